//! What is refused although it can be read.
//!
//! The service reads a statement to its end before it looks at what it says: a statement that is not
//! well formed is told as that, wherever that is. Therefore a refusal is remembered, reading goes on
//! with something in its place, and the first refusal is told once all was read.

use super::PartiqlError;
use super::parser::{Parsed, Parser};
use super::token::Token;

impl Parser<'_> {
    /// Remembers why the statement is refused, unless it is refused already.
    pub(super) fn refuse(&mut self, refusal: PartiqlError) {
        self.refused.get_or_insert(refusal);
    }

    /// What was read, or something in its place when that is refused; what is not well formed ends
    /// the reading.
    pub(super) fn or_refuse<T>(&mut self, read: Parsed<T>, otherwise: T) -> Parsed<T> {
        match read {
            Err(refusal) if !refusal.is_malformed() => {
                self.refuse(refusal);
                Ok(otherwise)
            }
            read => read,
        }
    }

    /// Whether a list, a tuple, a set, or something in parentheses begins here.
    pub(super) fn is_opening(&self) -> bool {
        self.peek().is_some_and(is_opening)
    }

    /// Passes over what stands between brackets, if they open here, and over them. It is not read:
    /// only as many brackets must close as open.
    pub(super) fn skip_brackets(&mut self) -> Parsed<()> {
        let mut open = 0_usize;
        loop {
            match self.peek() {
                Some(token) if is_opening(token) => open += 1,
                Some(_) if open == 0 => return Ok(()),
                Some(Token::Symbol(")" | "]" | "}" | ">>")) => open -= 1,
                Some(_) => {}
                None => return Err(self.unexpected()),
            }
            self.position += 1;
            if open == 0 {
                return Ok(());
            }
        }
    }
}

fn is_opening(token: &Token) -> bool {
    matches!(token, Token::Symbol("(" | "[" | "{" | "<<"))
}
