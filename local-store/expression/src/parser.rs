//! The grammar: parsing the text into a syntax tree.
//!
//! This pass checks only the grammar, the size of the text and redundant parentheses.
//! [`NESTING_MAX`] limits the recursion, so no text can overflow the stack.

use model::limits::{EXPRESSION_BYTES_MAX, EXPRESSION_OPERATORS_MAX};

use crate::check::{is_known_function, too_many_operators, unknown_function};
use crate::comparator::Comparator;
use crate::error::{ExpressionError, ExpressionKind};
use crate::syntax::{Action, Call, Node, Section, Step, Steps, UpdateSyntax};
use crate::token::{Token, TokenKind, tokenize};

/// The maximum nesting of parentheses and function calls, inclusive. An expression within the limit of
/// 300 operators cannot nest deeper without redundant parentheses: at most 300 calls or `NOT`s,
/// parentheses around each, and one pair around the innermost operand.
const NESTING_MAX: usize = 2 * EXPRESSION_OPERATORS_MAX + 1;

type Parsed<T> = Result<T, ExpressionError>;

/// Parses a condition, a filter or a key condition expression.
pub(crate) fn parse_condition(text: &str, kind: ExpressionKind) -> Parsed<Node<'_>> {
    let mut parser = Parser::new(text, kind)?;
    let condition = parser.condition(false)?;
    parser.expect(TokenKind::End)?;
    Ok(condition)
}

/// Parses a projection expression: at least one path.
pub(crate) fn parse_projection(text: &str) -> Parsed<Vec<Steps<'_>>> {
    let mut parser = Parser::new(text, ExpressionKind::Projection)?;
    let mut paths = vec![parser.path()?];
    while parser.take(TokenKind::Comma) {
        paths.push(parser.path()?);
    }
    parser.expect(TokenKind::End)?;
    Ok(paths)
}

/// Parses an update expression: at least one section with at least one action.
pub(crate) fn parse_update(text: &str) -> Parsed<UpdateSyntax<'_>> {
    let mut parser = Parser::new(text, ExpressionKind::Update)?;
    let mut update = UpdateSyntax { sections: Vec::new(), actions: Vec::new() };
    loop {
        let section = match parser.peek() {
            TokenKind::Set => Section::Set,
            TokenKind::Remove => Section::Remove,
            TokenKind::Add => Section::Add,
            TokenKind::Delete => Section::Delete,
            _ => return Err(parser.syntax_error()),
        };
        parser.position += 1;
        update.sections.push(section);
        update.actions.push(parser.action(section)?);
        while parser.take(TokenKind::Comma) {
            update.actions.push(parser.action(section)?);
        }
        if parser.peek() == TokenKind::End {
            return Ok(update);
        }
    }
}

struct Parser<'a> {
    text: &'a str,
    kind: ExpressionKind,
    tokens: Vec<Token>,
    position: usize,
    nesting: usize,
}

impl<'a> Parser<'a> {
    fn new(text: &'a str, kind: ExpressionKind) -> Parsed<Self> {
        if text.trim_ascii().is_empty() {
            return Err(kind.invalid("The expression can not be empty;"));
        }
        if text.len() > EXPRESSION_BYTES_MAX {
            return Err(kind.too_large(text.len()));
        }
        Ok(Self { text, kind, tokens: tokenize(text), position: 0, nesting: 0 })
    }

    fn token(&self, position: usize) -> Token {
        let end = Token { kind: TokenKind::End, start: self.text.len(), end: self.text.len() };
        self.tokens.get(position).copied().unwrap_or(end)
    }

    fn peek(&self) -> TokenKind {
        self.token(self.position).kind
    }

    fn take(&mut self, kind: TokenKind) -> bool {
        let found = self.peek() == kind;
        self.position += usize::from(found);
        found
    }

    fn slice(&self, start: usize, end: usize) -> &'a str {
        self.text.get(start..end).unwrap_or("")
    }

    /// Consumes the next token if the token has this kind, and returns its text.
    fn expect(&mut self, kind: TokenKind) -> Parsed<&'a str> {
        let token = self.token(self.position);
        if token.kind != kind {
            return Err(self.syntax_error());
        }
        self.position += 1;
        Ok(self.slice(token.start, token.end))
    }

    /// Returns the syntax error for the next token. The `near` part of the message also contains
    /// the tokens before and after it.
    fn syntax_error(&self) -> ExpressionError {
        let token = self.token(self.position);
        let before = self.position.checked_sub(1).map_or(token, |before| self.token(before));
        let behind = self.token(self.position + 1);
        let found = match token.kind {
            TokenKind::End => "<EOF>",
            _ => self.slice(token.start, token.end),
        };
        let near = self.slice(before.start, behind.end);
        self.kind.invalid(format_args!("Syntax error; token: \"{found}\", near: \"{near}\""))
    }

    fn redundant_parentheses(&self) -> ExpressionError {
        self.kind.invalid("The expression has redundant parentheses;")
    }

    /// Enters parentheses or arguments, and reports excessive nesting. Their contents are not
    /// parsed yet, so the error depends only on the preceding text.
    fn descend(&mut self, function: Option<&str>) -> Parsed<()> {
        self.nesting += 1;
        if self.nesting <= NESTING_MAX {
            return Ok(());
        }
        let operators = self.tokens.iter().take(self.position).filter(|token| is_operator(token));
        Err(match function {
            Some(name) if !is_known_function(name) => unknown_function(self.kind, name),
            None if operators.count() <= EXPRESSION_OPERATORS_MAX => self.redundant_parentheses(),
            _ => too_many_operators(self.kind),
        })
    }

    /// Parses `OR` of `AND`s of possibly negated comparisons. In parentheses (`grouped`), a single
    /// operand is also allowed.
    fn condition(&mut self, grouped: bool) -> Parsed<Node<'a>> {
        let mut alternatives = Vec::new();
        loop {
            let mut members = Vec::new();
            loop {
                let member = self.negation()?;
                if member.is_bare_operand() {
                    let alone = alternatives.is_empty() && members.is_empty();
                    if grouped && alone && self.peek() == TokenKind::Close {
                        return Ok(member);
                    }
                    return Err(self.syntax_error());
                }
                members.push(member);
                if !self.take(TokenKind::And) {
                    break;
                }
            }
            alternatives.push(joined(members, Node::And));
            if !self.take(TokenKind::Or) {
                return Ok(joined(alternatives, Node::Or));
            }
        }
    }

    fn negation(&mut self) -> Parsed<Node<'a>> {
        let mut times = 0;
        while self.take(TokenKind::Not) {
            times += 1;
        }
        let inner = self.comparison()?;
        if times == 0 {
            return Ok(inner);
        }
        if inner.is_bare_operand() {
            return Err(self.syntax_error());
        }
        Ok(Node::Not { times, inner: Box::new(inner) })
    }

    fn comparison(&mut self) -> Parsed<Node<'a>> {
        let left = if self.peek() == TokenKind::Open {
            self.group(|parser| parser.condition(true))?
        } else {
            self.operand()?
        };
        if !left.is_operand() {
            return Ok(left);
        }
        if let Some(comparator) = comparator(self.peek()) {
            self.position += 1;
            let right = Box::new(self.operand()?);
            return Ok(Node::Compare { comparator, left: Box::new(left), right });
        }
        if self.take(TokenKind::Between) {
            let lower = Box::new(self.operand()?);
            self.expect(TokenKind::And)?;
            let upper = Box::new(self.operand()?);
            return Ok(Node::Between { operand: Box::new(left), lower, upper });
        }
        if self.take(TokenKind::In) {
            self.expect(TokenKind::Open)?;
            let candidates = self.operands()?;
            return Ok(Node::In { operand: Box::new(left), candidates });
        }
        Ok(left)
    }

    /// Parses parentheses. `inner` parses their contents.
    fn group(&mut self, inner: impl FnOnce(&mut Self) -> Parsed<Node<'a>>) -> Parsed<Node<'a>> {
        self.expect(TokenKind::Open)?;
        self.descend(None)?;
        let node = inner(self)?;
        self.expect(TokenKind::Close)?;
        self.nesting -= 1;
        match node {
            Node::Group(_) => Err(self.redundant_parentheses()),
            node => Ok(Node::Group(Box::new(node))),
        }
    }

    /// Parses a value, a path, a function call, or one of these in parentheses.
    fn operand(&mut self) -> Parsed<Node<'a>> {
        match self.peek() {
            TokenKind::Open => self.group(Self::operand),
            TokenKind::Value => Ok(Node::Value(self.expect(TokenKind::Value)?)),
            TokenKind::Word if self.token(self.position + 1).kind == TokenKind::Open => {
                let name = self.expect(TokenKind::Word)?;
                self.expect(TokenKind::Open)?;
                self.descend(Some(name))?;
                let arguments = self.operands()?;
                self.nesting -= 1;
                Ok(Node::Call(Call { name, arguments }))
            }
            _ => Ok(Node::Path(self.path()?)),
        }
    }

    /// Parses at least one operand, and the closing parenthesis.
    fn operands(&mut self) -> Parsed<Vec<Node<'a>>> {
        let mut operands = vec![self.operand()?];
        while self.take(TokenKind::Comma) {
            operands.push(self.operand()?);
        }
        self.expect(TokenKind::Close)?;
        Ok(operands)
    }

    fn path(&mut self) -> Parsed<Steps<'a>> {
        let mut steps = vec![self.path_name()?];
        loop {
            if self.take(TokenKind::Dot) {
                steps.push(self.path_name()?);
            } else if self.take(TokenKind::OpenBracket) {
                steps.push(Step::Index(self.expect(TokenKind::Integer)?));
                self.expect(TokenKind::CloseBracket)?;
            } else {
                return Ok(Steps(steps));
            }
        }
    }

    fn path_name(&mut self) -> Parsed<Step<'a>> {
        match self.peek() {
            TokenKind::Name => Ok(Step::Placeholder(self.expect(TokenKind::Name)?)),
            _ => Ok(Step::Word(self.expect(TokenKind::Word)?)),
        }
    }

    fn action(&mut self, section: Section) -> Parsed<Action<'a>> {
        let path = self.path()?;
        let value = match section {
            Section::Set => {
                self.expect(TokenKind::Equal)?;
                Some(self.set_value()?)
            }
            Section::Remove => None,
            Section::Add | Section::Delete => Some(Node::Value(self.expect(TokenKind::Value)?)),
        };
        Ok(Action { section, path, value })
    }

    /// Parses an operand, a sum or difference of two operands, or one of these in parentheses.
    fn set_value(&mut self) -> Parsed<Node<'a>> {
        let left = match self.peek() {
            TokenKind::Open => self.group(Self::set_value)?,
            _ => self.operand()?,
        };
        let subtract = match self.peek() {
            TokenKind::Plus => false,
            TokenKind::Minus => true,
            _ => return Ok(left),
        };
        if !left.is_operand() {
            return Err(self.syntax_error());
        }
        self.position += 1;
        let right = Box::new(self.operand()?);
        Ok(Node::Arithmetic { subtract, left: Box::new(left), right })
    }
}

/// Joins members into one node. A single member is returned unchanged.
fn joined<'a>(
    mut members: Vec<Node<'a>>,
    join: impl FnOnce(Vec<Node<'a>>) -> Node<'a>,
) -> Node<'a> {
    match members.pop() {
        Some(only) if members.is_empty() => only,
        Some(last) => {
            members.push(last);
            join(members)
        }
        None => join(members),
    }
}

fn comparator(kind: TokenKind) -> Option<Comparator> {
    match kind {
        TokenKind::Equal => Some(Comparator::Equal),
        TokenKind::NotEqual => Some(Comparator::NotEqual),
        TokenKind::Less => Some(Comparator::Less),
        TokenKind::LessOrEqual => Some(Comparator::LessOrEqual),
        TokenKind::Greater => Some(Comparator::Greater),
        TokenKind::GreaterOrEqual => Some(Comparator::GreaterOrEqual),
        _ => None,
    }
}

fn is_operator(token: &Token) -> bool {
    let kinds = [TokenKind::And, TokenKind::Or, TokenKind::Not, TokenKind::Between, TokenKind::In];
    comparator(token.kind).is_some() || kinds.contains(&token.kind)
}
