//! Rejection of statements that can be parsed.
//!
//! DynamoDB parses a statement to its end before it checks it, so a malformed statement is always
//! reported as malformed. If a part of the statement is rejected, the parser therefore remembers
//! the refusal and continues with a replacement for that part. It reports the first refusal at the
//! end.

use super::PartiqlError;
use super::parser::{Parsed, Parser};
use super::token::Token;

impl Parser<'_> {
    /// Remembers why the statement is rejected. Ignores all reasons after the first.
    pub(super) fn refuse(&mut self, refusal: PartiqlError) {
        self.refused.get_or_insert(refusal);
    }

    /// Returns the parsed value. If the value is rejected, remembers the refusal and returns
    /// `otherwise`, so that parsing continues. If the statement is malformed, returns the error.
    pub(super) fn or_refuse<T>(&mut self, read: Parsed<T>, otherwise: T) -> Parsed<T> {
        match read {
            Err(refusal) if !refusal.is_malformed() => {
                self.refuse(refusal);
                Ok(otherwise)
            }
            read => read,
        }
    }

    /// Returns whether the next token opens a list, a tuple, a set or a parenthesis.
    pub(super) fn is_opening(&self) -> bool {
        self.peek().is_some_and(is_opening)
    }

    /// If the next token opens brackets, skips them with their contents. The contents are not
    /// parsed; only the number of opening and closing brackets must match.
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
