//! The tokenizer of PartiQL statements.

use super::PartiqlError;

/// The kind and content of a token.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Token {
    /// A bare word: a keyword in any case, a function, or a name.
    Word(String),
    /// A name in double quotes.
    Quoted(String),
    /// A string in single quotes.
    Text(String),
    /// A number as it is written.
    Number(String),
    /// The placeholder `?`.
    Parameter,
    /// Any other symbol: `=`, `<>`, `(`, `<<`, and others.
    Symbol(&'static str),
}

/// The symbols, longest first, so that `<<` is not parsed as two `<`.
const SYMBOLS: [&str; 24] = [
    "<<", ">>", "<=", ">=", "<>", "!=", "=", "<", ">", "(", ")", "[", "]", "{", "}", ",", ".", ":",
    "*", "+", "-", "/", "%", ";",
];

/// A token and its byte range in the statement.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct PositionedToken {
    pub(crate) token: Token,
    pub(crate) start: usize,
    pub(crate) end: usize,
}

/// Returns the position of a token for error messages: `line:column:length`. Lines and columns
/// start at 1. Columns and lengths count characters.
pub(crate) fn place(text: &str, placed: &PositionedToken) -> String {
    let before = text.get(..placed.start).unwrap_or("");
    let line = before.matches('\n').count() + 1;
    let column = before.rsplit('\n').next().map_or(0, |last| last.chars().count()) + 1;
    let length = text.get(placed.start..placed.end).map_or(0, |token| token.chars().count());
    format!("{line}:{column}:{length}")
}

/// Splits a statement into tokens.
pub(crate) fn tokenize(text: &str) -> Result<Vec<PositionedToken>, PartiqlError> {
    let mut tokens = Vec::new();
    let mut rest = text;
    loop {
        rest = skip_blanks(rest)?;
        let Some(first) = rest.chars().next() else {
            return Ok(tokens);
        };
        let (token, after) = match first {
            '\'' => {
                let (text, after) = quoted(rest, '\'')?;
                (Token::Text(text), after)
            }
            '"' => {
                let (name, after) = quoted(rest, '"')?;
                (Token::Quoted(name), after)
            }
            '?' => (Token::Parameter, rest.get(1..).unwrap_or("")),
            digit if digit.is_ascii_digit() || begins_with_fraction(rest) => {
                let length = number_length(rest);
                let (number, after) = rest.split_at(length);
                (Token::Number(number.to_owned()), after)
            }
            letter if is_word_start(letter) => {
                let length = rest.find(|c| !is_word_part(c)).unwrap_or(rest.len());
                let (word, after) = rest.split_at(length);
                (Token::Word(word.to_owned()), after)
            }
            _ => {
                let symbol = SYMBOLS.iter().find(|symbol| rest.starts_with(**symbol));
                let symbol = symbol.ok_or_else(|| PartiqlError::malformed(""))?;
                (Token::Symbol(symbol), rest.get(symbol.len()..).unwrap_or(""))
            }
        };
        let (start, end) = (text.len() - rest.len(), text.len() - after.len());
        tokens.push(PositionedToken { token, start, end });
        rest = after;
    }
}

/// Returns whether the text begins with a number that has no digits before its decimal point.
fn begins_with_fraction(text: &str) -> bool {
    text.strip_prefix('.').is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_digit()))
}

fn is_word_start(c: char) -> bool {
    c.is_alphabetic() || c == '_' || c == '$'
}

fn is_word_part(c: char) -> bool {
    is_word_start(c) || c.is_ascii_digit()
}

/// Skips white space, `-- to the end of the line`, and `/* between these */`.
fn skip_blanks(mut rest: &str) -> Result<&str, PartiqlError> {
    loop {
        rest = rest.trim_start();
        if rest.starts_with("--") {
            rest = rest.find('\n').and_then(|end| rest.get(end..)).unwrap_or("");
        } else if let Some(comment) = rest.strip_prefix("/*") {
            let end = comment.find("*/").ok_or_else(|| PartiqlError::malformed(""))?;
            rest = comment.get(end + 2..).unwrap_or("");
        } else {
            return Ok(rest);
        }
    }
}

/// Parses a quoted string, in which a doubled quote represents one quote. Returns the unquoted text
/// and the rest of the input.
fn quoted(text: &str, quote: char) -> Result<(String, &str), PartiqlError> {
    let mut content = String::new();
    let mut rest = text.get(1..).unwrap_or("");
    loop {
        let end = rest.find(quote).ok_or_else(|| PartiqlError::malformed(""))?;
        content.push_str(rest.get(..end).unwrap_or(""));
        rest = rest.get(end + 1..).unwrap_or("");
        if !rest.starts_with(quote) {
            return Ok((content, rest));
        }
        content.push(quote);
        rest = rest.get(1..).unwrap_or("");
    }
}

/// Returns the length of the number at the start of the text: digits, a fraction, an exponent.
fn number_length(text: &str) -> usize {
    let digits = |from: usize| text.bytes().skip(from).take_while(u8::is_ascii_digit).count();
    let bytes = text.as_bytes();
    let mut length = digits(0);
    if bytes.get(length) == Some(&b'.') {
        length += 1 + digits(length + 1);
    }
    if matches!(bytes.get(length), Some(b'e' | b'E')) {
        let sign = usize::from(matches!(bytes.get(length + 1), Some(b'+' | b'-')));
        let exponent = digits(length + 1 + sign);
        if exponent > 0 {
            length += 1 + sign + exponent;
        }
    }
    length
}
