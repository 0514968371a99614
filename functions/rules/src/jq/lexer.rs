//! Tokens of a jq program.

use super::ProgramError;

/// A token and its position in bytes.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Token<'p> {
    pub(super) at: usize,
    pub(super) kind: Kind<'p>,
}

/// The kind of a token.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Kind<'p> {
    /// A name or a keyword.
    Word(&'p str),
    /// A field: `.name`.
    Field(&'p str),
    /// A variable: `$name`.
    Variable(&'p str),
    /// A format: `@name`.
    Format(&'p str),
    Number(&'p str),
    /// The parts of a string.
    Text(Vec<TextPart<'p>>),
    Sign(&'static str),
    End,
}

/// A part of a string.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum TextPart<'p> {
    Plain(String),
    /// An interpolation: `\(...)`.
    Tokens(Vec<Token<'p>>),
}

/// The operators and punctuation. Each sign precedes its own prefixes, so that the longest sign
/// matches.
const SIGNS: [&str; 34] = [
    "?//", "//=", "//", "==", "!=", "<=", ">=", "|=", "+=", "-=", "*=", "/=", "%=", "..", "?", "[",
    "]", "(", ")", "{", "}", "|", ",", ".", ":", ";", "=", "<", ">", "+", "-", "*", "/", "%",
];
/// The maximum number of tokens of a program, which bounds the depth of its tree.
const TOKENS_MAX: usize = 4_000;
/// The maximum nesting of strings within interpolations of strings.
const NESTING_MAX: usize = 32;

/// Returns the tokens of a program with an end token, and the total number of tokens, including
/// tokens within strings.
///
/// # Errors
/// Returns the position of the first byte that cannot begin a token.
pub(super) fn tokens(program: &str) -> Result<(Vec<Token<'_>>, usize), ProgramError> {
    let mut lexer = Lexer { program, at: 0, nesting: 0, count: 0 };
    let tokens = lexer.tokens(false)?;
    Ok((tokens, lexer.count))
}

struct Lexer<'p> {
    program: &'p str,
    at: usize,
    nesting: usize,
    count: usize,
}

impl<'p> Lexer<'p> {
    fn rest(&self) -> &'p str {
        self.program.get(self.at..).unwrap_or("")
    }

    fn error(&self, reason: &str) -> ProgramError {
        ProgramError { at: self.at, reason: reason.to_owned() }
    }

    fn space(&mut self) {
        loop {
            let rest = self.rest();
            let rest = rest.trim_start_matches([' ', '\t', '\r', '\n']);
            let line = match rest.strip_prefix('#') {
                Some(comment) => comment.split_once('\n').map_or(0, |(_, rest)| rest.len()),
                None => rest.len(),
            };
            let is_comment = line != rest.len();
            self.at = self.program.len() - line;
            if !is_comment {
                return;
            }
        }
    }

    /// Consumes characters as long as `fits` returns true, and returns them.
    fn take(&mut self, fits: impl Fn(char) -> bool) -> &'p str {
        let rest = self.rest();
        let end = rest.find(|c| !fits(c)).unwrap_or(rest.len());
        self.at += end;
        rest.get(..end).unwrap_or("")
    }

    fn name(&mut self) -> Result<&'p str, ProgramError> {
        if !self.rest().starts_with(|c: char| c.is_ascii_alphabetic() || c == '_') {
            return Err(self.error("expected a name"));
        }
        Ok(self.take(|c| c.is_ascii_alphanumeric() || c == '_'))
    }

    /// Reads tokens up to the end, or to the `)` that closes `\(`.
    fn tokens(&mut self, is_inner: bool) -> Result<Vec<Token<'p>>, ProgramError> {
        let mut tokens = Vec::new();
        let mut open = Vec::new();
        loop {
            self.space();
            let at = self.at;
            let token = self.token()?;
            self.count += 1;
            if self.count > TOKENS_MAX {
                return Err(self.error("the program has more tokens than a transform can have"));
            }
            match &token {
                Kind::Sign(sign @ ("(" | "[" | "{")) => open.push((*sign, at)),
                Kind::Sign(")") if is_inner && open.is_empty() => {
                    tokens.push(Token { at, kind: Kind::End });
                    return Ok(tokens);
                }
                Kind::Sign(sign @ (")" | "]" | "}")) => {
                    let closes = matches!(
                        (open.pop().map(|(sign, _)| sign), *sign),
                        (Some("("), ")") | (Some("["), "]") | (Some("{"), "}")
                    );
                    if !closes {
                        let reason = format!("jq syntax error: unmatched `{sign}`");
                        return Err(ProgramError { at, reason });
                    }
                }
                Kind::End => {
                    let missing = match open.last() {
                        Some(("(", _)) => "closing parenthesis",
                        Some(("[", _)) => "closing bracket",
                        Some(_) => "closing brace",
                        None if is_inner => "closing parenthesis",
                        None => {
                            tokens.push(Token { at, kind: Kind::End });
                            return Ok(tokens);
                        }
                    };
                    return Err(self.error(&format!("expected {missing}")));
                }
                _ => {}
            }
            tokens.push(Token { at, kind: token });
        }
    }

    fn token(&mut self) -> Result<Kind<'p>, ProgramError> {
        let rest = self.rest();
        let mut characters = rest.chars();
        let Some(first) = characters.next() else { return Ok(Kind::End) };
        let second = characters.next().unwrap_or(' ');
        let is_letter = |c: char| c.is_ascii_alphabetic() || c == '_';
        match first {
            c if is_letter(c) => self.name().map(Kind::Word),
            '$' => {
                self.at += 1;
                self.name().map(Kind::Variable)
            }
            '@' => {
                self.at += 1;
                self.name().map(Kind::Format)
            }
            '.' if is_letter(second) => {
                self.at += 1;
                self.name().map(Kind::Field)
            }
            '0'..='9' => self.number(),
            '.' if second.is_ascii_digit() => self.number(),
            '"' => self.text(),
            _ => {
                let sign = SIGNS.iter().find(|sign| rest.starts_with(**sign));
                let Some(sign) = sign else {
                    return Err(self.error("jq syntax error"));
                };
                self.at += sign.len();
                Ok(Kind::Sign(sign))
            }
        }
    }

    fn number(&mut self) -> Result<Kind<'p>, ProgramError> {
        let start = self.at;
        self.take(|c| c.is_ascii_digit());
        if self.rest().starts_with('.') {
            self.at += 1;
            self.take(|c| c.is_ascii_digit());
        }
        let exponent = self.rest().strip_prefix(['e', 'E']);
        let digits = exponent.map(|rest| rest.strip_prefix(['+', '-']).unwrap_or(rest));
        if let Some(digits) =
            digits.filter(|digits| digits.starts_with(|c: char| c.is_ascii_digit()))
        {
            self.at = self.program.len() - digits.len();
            self.take(|c| c.is_ascii_digit());
        }
        Ok(Kind::Number(self.program.get(start..self.at).unwrap_or("")))
    }

    fn text(&mut self) -> Result<Kind<'p>, ProgramError> {
        self.at += 1;
        let mut parts = Vec::new();
        let mut plain = String::new();
        loop {
            let rest = self.rest();
            let Some(character) = rest.chars().next() else {
                return Err(self.error("expected closing quote"));
            };
            self.at += character.len_utf8();
            match character {
                '"' => {
                    parts.push(TextPart::Plain(plain));
                    return Ok(Kind::Text(parts));
                }
                '\\' if self.rest().starts_with('(') => {
                    self.at += 1;
                    self.nesting += 1;
                    if self.nesting > NESTING_MAX {
                        return Err(self.error("strings are nested too deeply"));
                    }
                    parts.push(TextPart::Plain(std::mem::take(&mut plain)));
                    parts.push(TextPart::Tokens(self.tokens(true)?));
                    self.nesting -= 1;
                }
                '\\' => plain.push(self.escape()?),
                character => plain.push(character),
            }
        }
    }

    fn escape(&mut self) -> Result<char, ProgramError> {
        let wrong = self.error("not an escape sequence of jq");
        let escape = self.rest().chars().next().ok_or_else(|| wrong.clone())?;
        self.at += escape.len_utf8();
        Ok(match escape {
            '"' | '\\' | '/' => escape,
            'b' => '\u{8}',
            'f' => '\u{c}',
            'n' => '\n',
            'r' => '\r',
            't' => '\t',
            'u' => {
                let high = self.unit().ok_or_else(|| wrong.clone())?;
                if let Some(character) = char::from_u32(high) {
                    return Ok(character);
                }
                let is_pair = high < 0xdc00 && self.rest().starts_with("\\u");
                self.at += if is_pair { 2 } else { 0 };
                let low = self.unit().filter(|low| is_pair && (0xdc00..0xe000).contains(low));
                let low = low.ok_or_else(|| wrong.clone())?;
                char::from_u32(0x10000 + ((high - 0xd800) << 10) + (low - 0xdc00)).ok_or(wrong)?
            }
            _ => return Err(wrong),
        })
    }

    /// Reads four hexadecimal digits.
    fn unit(&mut self) -> Option<u32> {
        let digits = self.rest().get(..4)?;
        let unit = digits.bytes().all(|byte| byte.is_ascii_hexdigit());
        self.at += 4;
        unit.then(|| u32::from_str_radix(digits, 16).ok())?
    }
}
