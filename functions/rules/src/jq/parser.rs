//! The parser: from the tokens of a jq program to its syntax tree, with jq 1.8's precedences.
//!
//! The parser also resolves names: variables and labels to their bindings, and filters to the list
//! of available filters. Definitions, modules and `?//` are not available.

use super::ProgramError;
use super::builtin::{self, Builtin, Format};
use super::lexer::{self, Kind, TextPart, Token};
use super::number::Num;
use super::operator::{Level, Operator};
use super::syntax::{Binding, Pattern, Piece, Term};
use super::value::Val;

/// The maximum nesting of a program.
const NESTING_MAX: usize = 128;
const NOT_JQ: &str = "jq syntax error";
const KEYWORDS: [&str; 17] = [
    "def", "if", "then", "elif", "else", "end", "as", "reduce", "foreach", "label", "import",
    "include", "module", "and", "or", "try", "catch",
];

/// Returns the syntax tree of a program, and the number of its tokens.
///
/// # Errors
/// The error and its position.
pub(super) fn parse(program: &str) -> Result<(Term, usize), ProgramError> {
    let (tokens, count) = lexer::tokens(program)?;
    let mut scope = Scope::default();
    let term = Parser { tokens: &tokens, scope: &mut scope }.whole()?;
    Ok((term, count))
}

/// The variables and labels in scope.
#[derive(Default)]
struct Scope<'p> {
    variables: Vec<(&'p str, Binding)>,
    labels: Vec<(&'p str, Binding)>,
    bindings: Binding,
    nesting: usize,
}

struct Parser<'t, 'p> {
    /// The remaining tokens.
    tokens: &'t [Token<'p>],
    scope: &'t mut Scope<'p>,
}

type Parsed<T = Term> = Result<T, ProgramError>;

impl<'t, 'p> Parser<'t, 'p> {
    fn whole(mut self) -> Parsed {
        let term = self.pipe()?;
        match self.kind() {
            Kind::End => Ok(term),
            _ => self.wrong(NOT_JQ),
        }
    }

    fn kind(&self) -> &'t Kind<'p> {
        self.tokens.first().map_or(&Kind::End, |token| &token.kind)
    }

    fn at(&self) -> usize {
        self.tokens.first().map_or(0, |token| token.at)
    }

    fn advance(&mut self) {
        self.tokens = self.tokens.get(1..).unwrap_or_default();
    }

    fn wrong<T>(&self, reason: &str) -> Parsed<T> {
        Err(ProgramError { at: self.at(), reason: reason.to_owned() })
    }

    fn is(&self, sign: &str) -> bool {
        matches!(self.kind(), Kind::Sign(found) | Kind::Word(found) if *found == sign)
    }

    /// Consumes a sign or keyword if it is the next token. Returns whether it was.
    fn skip(&mut self, sign: &str) -> bool {
        let is = self.is(sign);
        if is {
            self.advance();
        }
        is
    }

    fn expect(&mut self, sign: &str) -> Parsed<()> {
        if self.skip(sign) {
            return Ok(());
        }
        self.wrong(&format!("expected `{sign}`"))
    }

    fn nested<T>(&mut self, parse: impl FnOnce(&mut Self) -> Parsed<T>) -> Parsed<T> {
        if self.scope.nesting >= NESTING_MAX {
            return self
                .wrong(&format!("the expression has more than {NESTING_MAX} nested levels"));
        }
        self.scope.nesting += 1;
        let parsed = parse(self);
        self.scope.nesting -= 1;
        parsed
    }

    fn pipe(&mut self) -> Parsed {
        self.nested(|parser| parser.binary(Level::Pipe, true))
    }

    /// Parses the value of an object's member, which ends at a comma.
    fn member_value(&mut self) -> Parsed {
        self.nested(|parser| parser.binary(Level::Pipe, false))
    }

    fn binary(&mut self, least: Level, with_comma: bool) -> Parsed {
        let mut left = match self.skip("-") {
            // jq parses `-1` as one number.
            true if matches!(self.kind(), Kind::Number(_)) => {
                Term::Negative(Box::new(self.operand(with_comma)?))
            }
            true => {
                let of = self.nested(|parser| parser.binary(Level::Product, with_comma))?;
                Term::Negative(Box::new(of))
            }
            false => self.operand(with_comma)?,
        };
        let mut before = None;
        while let Some(operator) = Operator::of(self.kind()) {
            let level = operator.level();
            if level < least || (level == Level::Comma && !with_comma) {
                break;
            }
            if before == Some(level) && matches!(level, Level::Assignment | Level::Comparison) {
                return self.wrong("jq does not chain these operators; parenthesize one of them");
            }
            self.advance();
            let is_right = matches!(level, Level::Pipe | Level::Alternative);
            let right_level = if is_right { level } else { level.next() };
            let right = if level == Level::Product {
                self.factor(with_comma)?
            } else {
                self.nested(|parser| parser.binary(right_level, with_comma))?
            };
            left = operator.join(left, right);
            before = Some(level);
        }
        Ok(left)
    }

    /// Parses the right side of `*`, `/` and `%`.
    fn factor(&mut self, with_comma: bool) -> Parsed {
        if self.skip("-") {
            let of = self.nested(|parser| parser.factor(with_comma))?;
            return Ok(Term::Negative(Box::new(of)));
        }
        self.operand(with_comma)
    }

    /// Parses a postfix term, or a term whose body extends to the end: `... as $x | ...` and `label
    /// $x | ...`.
    fn operand(&mut self, with_comma: bool) -> Parsed {
        if self.is("def") {
            return self.wrong("definitions are not available in transforms");
        }
        if self.skip("label") {
            let Kind::Variable(name) = self.kind() else {
                return self.wrong("expected a label");
            };
            self.advance();
            self.expect("|")?;
            let binding = self.bind();
            self.scope.labels.push((*name, binding));
            let body = self.pipe();
            self.scope.labels.pop();
            return Ok(Term::Label(binding, Box::new(body?)));
        }
        let term = self.postfix()?;
        if !self.is("as") {
            return Ok(term);
        }
        if !with_comma {
            return self.wrong("put parentheses around the term before `as`");
        }
        self.advance();
        let (known, pattern) = (self.scope.variables.len(), self.pattern()?);
        self.expect("|")?;
        let body = self.pipe();
        self.scope.variables.truncate(known);
        Ok(Term::Bind(Box::new(term), pattern, Box::new(body?)))
    }

    fn bind(&mut self) -> Binding {
        self.scope.bindings += 1;
        self.scope.bindings
    }

    fn pattern(&mut self) -> Parsed<Pattern> {
        let known = self.scope.variables.len();
        let at = self.at();
        let pattern = self.nested(Self::one_pattern)?;
        let mut names: Vec<_> =
            self.scope.variables.iter().skip(known).map(|(name, _)| *name).collect();
        names.sort_unstable();
        if let Some([name, _]) = names.windows(2).find(|pair| pair.first() == pair.last()) {
            let reason = format!("`${name}` is bound twice in this pattern");
            return Err(ProgramError { at, reason });
        }
        if self.is("?//") {
            return self.wrong("`?//` is not available in transforms");
        }
        Ok(pattern)
    }

    fn variable(&mut self, name: &'p str) -> Binding {
        let binding = self.bind();
        self.scope.variables.push((name, binding));
        binding
    }

    fn one_pattern(&mut self) -> Parsed<Pattern> {
        match self.kind() {
            Kind::Variable(name) => {
                self.advance();
                Ok(Pattern::Variable(self.variable(name)))
            }
            Kind::Sign("[") => {
                self.advance();
                let mut members = vec![self.nested(Self::one_pattern)?];
                while self.skip(",") {
                    members.push(self.nested(Self::one_pattern)?);
                }
                self.expect("]")?;
                Ok(Pattern::Array(members))
            }
            Kind::Sign("{") => {
                self.advance();
                let mut members = vec![self.member_pattern()?];
                while self.skip(",") {
                    members.push(self.member_pattern()?);
                }
                self.expect("}")?;
                Ok(Pattern::Object(members))
            }
            _ => self.wrong("expected a variable, `[` or `{`"),
        }
    }

    fn member_pattern(&mut self) -> Parsed<(String, Option<Binding>, Option<Pattern>)> {
        let (name, binding) = match self.kind() {
            Kind::Variable(name) => {
                self.advance();
                let binding = self.variable(name);
                if !self.is(":") {
                    return Ok(((*name).to_owned(), Some(binding), None));
                }
                ((*name).to_owned(), Some(binding))
            }
            Kind::Word(name) => {
                self.advance();
                ((*name).to_owned(), None)
            }
            Kind::Text(parts) => match parts.as_slice() {
                [TextPart::Plain(name)] => {
                    self.advance();
                    (name.clone(), None)
                }
                _ => {
                    return self
                        .wrong("a computed name in a pattern is not available in transforms");
                }
            },
            Kind::Sign("(") => {
                return self.wrong("a computed name in a pattern is not available in transforms");
            }
            _ => return self.wrong(NOT_JQ),
        };
        self.expect(":")?;
        Ok((name, binding, Some(self.nested(Self::one_pattern)?)))
    }

    fn postfix(&mut self) -> Parsed {
        let mut term = self.primary()?;
        loop {
            term = match self.kind() {
                Kind::Field(name) => {
                    self.advance();
                    let key = Box::new(Term::Literal(Val::from(*name)));
                    Term::Index(Box::new(term), key, self.skip("?"))
                }
                Kind::Sign(".") if self.is_before_key() => {
                    self.advance();
                    if self.is("[") {
                        self.bracket(term)?
                    } else {
                        let key = Box::new(self.text(Format::Text)?);
                        Term::Index(Box::new(term), key, self.skip("?"))
                    }
                }
                Kind::Sign("[") => self.bracket(term)?,
                Kind::Sign("?") => {
                    self.advance();
                    Term::Try(Box::new(term), None)
                }
                _ => return Ok(term),
            };
        }
    }

    /// Returns whether a dot is followed by a string or a bracket.
    fn is_before_key(&self) -> bool {
        let next = self.tokens.get(1).map(|token| &token.kind);
        matches!(next, Some(Kind::Text(_) | Kind::Sign("[")))
    }

    /// Parses `[...]` after a term.
    fn bracket(&mut self, of: Term) -> Parsed {
        self.expect("[")?;
        let of = Box::new(of);
        if self.skip("]") {
            return Ok(Term::Each(of, self.skip("?")));
        }
        let from = if self.is(":") { None } else { Some(Box::new(self.pipe()?)) };
        if !self.skip(":") {
            self.expect("]")?;
            let key = from.unwrap_or_else(|| Box::new(Term::Identity));
            return Ok(Term::Index(of, key, self.skip("?")));
        }
        let to = if self.is("]") { None } else { Some(Box::new(self.pipe()?)) };
        if from.is_none() && to.is_none() {
            return self.wrong(NOT_JQ);
        }
        self.expect("]")?;
        Ok(Term::Slice(of, from, to, self.skip("?")))
    }

    fn primary(&mut self) -> Parsed {
        let kind = self.kind();
        match kind {
            Kind::Text(_) => self.text(Format::Text),
            Kind::Field(name) => {
                self.advance();
                let key = Box::new(Term::Literal(Val::from(*name)));
                Ok(Term::Index(Box::new(Term::Identity), key, self.skip("?")))
            }
            Kind::Number(text) => {
                let Some(number) = Num::parse(text) else {
                    return self.wrong("the number has too many digits");
                };
                self.advance();
                Ok(Term::Literal(Val::Num(number)))
            }
            Kind::Variable(name) => self.variable_use(name),
            Kind::Format(name) => {
                let format = builtin::format(name).ok_or_else(|| ProgramError {
                    at: self.at(),
                    reason: format!("unknown format `@{name}`"),
                })?;
                self.advance();
                match self.kind() {
                    Kind::Text(_) => self.text(format),
                    _ => Ok(Term::Call(Builtin::Format(format), Vec::new())),
                }
            }
            Kind::Sign(sign) => self.sign(sign),
            Kind::Word(word) => self.word(word),
            Kind::End => self.wrong(NOT_JQ),
        }
    }

    fn sign(&mut self, sign: &str) -> Parsed {
        match sign {
            "." => {
                self.advance();
                if let Kind::Text(_) = self.kind() {
                    let key = Box::new(self.text(Format::Text)?);
                    return Ok(Term::Index(Box::new(Term::Identity), key, self.skip("?")));
                }
                Ok(Term::Identity)
            }
            ".." => {
                self.advance();
                if let Kind::Field(_) | Kind::Text(_) = self.kind() {
                    return self.wrong(NOT_JQ);
                }
                Ok(Term::Call(Builtin::Recurse, Vec::new()))
            }
            "(" => {
                self.advance();
                let term = self.pipe()?;
                self.expect(")")?;
                Ok(term)
            }
            "[" => {
                self.advance();
                if self.skip("]") {
                    return Ok(Term::Array(None));
                }
                let members = self.pipe()?;
                self.expect("]")?;
                Ok(Term::Array(Some(Box::new(members))))
            }
            "{" => {
                self.advance();
                self.object()
            }
            _ => self.wrong(NOT_JQ),
        }
    }

    fn variable_use(&mut self, name: &str) -> Parsed {
        let known = self.scope.variables.iter().rev().find(|(known, _)| *known == name);
        let Some((_, binding)) = known else {
            let reason = match name {
                "ENV" | "__loc__" | "__prog_args" => {
                    format!(
                        "`${name}` is not available in transforms: it reads data outside of the item"
                    )
                }
                _ => format!("unknown variable `${name}`"),
            };
            return self.wrong(&reason);
        };
        let term = Term::Variable(*binding);
        self.advance();
        Ok(term)
    }

    fn word(&mut self, word: &'p str) -> Parsed {
        match word {
            "if" => {
                self.advance();
                self.branches()
            }
            "try" => {
                self.advance();
                let body = self.nested(Self::postfix)?;
                let catch = match self.skip("catch") {
                    true => Some(Box::new(self.nested(Self::postfix)?)),
                    false => None,
                };
                Ok(Term::Try(Box::new(body), catch))
            }
            "reduce" | "foreach" => {
                self.advance();
                self.fold(word == "reduce")
            }
            "break" => {
                self.advance();
                let Kind::Variable(name) = self.kind() else {
                    return self.wrong("expected a label");
                };
                let label = self.scope.labels.iter().rev().find(|(known, _)| known == name);
                let Some((_, binding)) = label else {
                    return self.wrong(&format!("unknown label `${name}`"));
                };
                let term = Term::Break(*binding);
                self.advance();
                Ok(term)
            }
            word if KEYWORDS.contains(&word) => match word {
                "def" | "import" | "include" | "module" => {
                    self.wrong(&format!("`{word}` is not available in transforms"))
                }
                _ => self.wrong(NOT_JQ),
            },
            _ => self.call(word),
        }
    }

    /// Parses the rest of `if`.
    fn branches(&mut self) -> Parsed {
        let condition = self.pipe()?;
        self.expect("then")?;
        let then = self.pipe()?;
        let otherwise = if self.skip("elif") {
            self.nested(Self::branches)?
        } else if self.skip("else") {
            let otherwise = self.pipe()?;
            self.expect("end")?;
            otherwise
        } else {
            self.expect("end")?;
            Term::Identity
        };
        Ok(Term::If(Box::new(condition), Box::new(then), Box::new(otherwise)))
    }

    fn fold(&mut self, is_reduce: bool) -> Parsed {
        let source = Box::new(self.nested(Self::postfix)?);
        self.expect("as")?;
        let known = self.scope.variables.len();
        let pattern = self.pattern()?;
        let bound = self.scope.variables.split_off(known);
        self.expect("(")?;
        let begin = Box::new(self.pipe()?);
        self.expect(";")?;
        self.scope.variables.extend(bound);
        let update = self.pipe().map(Box::new);
        let extract = match is_reduce || !self.is(";") {
            true => None,
            false => {
                self.advance();
                Some(self.pipe().map(Box::new))
            }
        };
        self.scope.variables.truncate(known);
        self.expect(")")?;
        let (update, extract) = (update?, extract.transpose()?);
        Ok(match is_reduce {
            true => Term::Reduce(source, pattern, begin, update),
            false => Term::Foreach(source, pattern, begin, update, extract),
        })
    }

    fn call(&mut self, name: &str) -> Parsed {
        let at = self.at();
        self.advance();
        let mut arguments = Vec::new();
        if self.skip("(") {
            arguments.push(self.pipe()?);
            while self.skip(";") {
                arguments.push(self.pipe()?);
            }
            self.expect(")")?;
        }
        match (name, arguments.is_empty()) {
            ("true", true) => return Ok(Term::Literal(Val::Bool(true))),
            ("false", true) => return Ok(Term::Literal(Val::Bool(false))),
            ("null", true) => return Ok(Term::Literal(Val::Null)),
            _ => {}
        }
        match builtin::find(name, arguments.len()) {
            Ok(builtin) => Ok(Term::Call(builtin, arguments)),
            Err(unknown) => Err(ProgramError { at, reason: unknown.to_string() }),
        }
    }

    fn object(&mut self) -> Parsed {
        let mut members = Vec::new();
        while !self.skip("}") {
            members.push(self.member()?);
            if !self.skip(",") {
                self.expect("}")?;
                break;
            }
        }
        Ok(Term::Object(members))
    }

    fn member(&mut self) -> Parsed<(Term, Term)> {
        let named = |name: &str| Term::Literal(Val::from(name));
        let index = |key: Term| Term::Index(Box::new(Term::Identity), Box::new(key), false);
        let (key, short) = match self.kind() {
            Kind::Word(name) => {
                self.advance();
                (named(name), Some(index(named(name))))
            }
            Kind::Text(_) => {
                let key = self.text(Format::Text)?;
                (key.clone(), Some(index(key)))
            }
            Kind::Variable(name) => {
                let value = self.variable_use(name)?;
                (named(name), Some(value))
            }
            Kind::Sign("(") => {
                self.advance();
                let key = self.pipe()?;
                self.expect(")")?;
                (key, None)
            }
            _ => return self.wrong(NOT_JQ),
        };
        match short {
            Some(value) if !self.is(":") => Ok((key, value)),
            _ => {
                self.expect(":")?;
                Ok((key, self.member_value()?))
            }
        }
    }

    fn text(&mut self, format: Format) -> Parsed {
        let Kind::Text(parts) = self.kind() else { return self.wrong("expected a string") };
        self.advance();
        if let [TextPart::Plain(text)] = parts.as_slice() {
            return Ok(Term::Literal(Val::from(text.as_str())));
        }
        let mut pieces = Vec::new();
        for part in parts {
            pieces.push(match part {
                TextPart::Plain(text) => Piece::Plain(text.clone()),
                TextPart::Tokens(tokens) => {
                    Piece::Term(Parser { tokens, scope: &mut *self.scope }.whole()?)
                }
            });
        }
        Ok(Term::Text(format, pieces))
    }
}
