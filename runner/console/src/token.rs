//! The secret token of a console. Every request that changes something must contain it.
//!
//! The console's pages contain the token. A web page of another origin cannot read these pages, so
//! it cannot send the token.

use std::fmt;

/// The number of random bytes.
const BYTES: usize = 32;

/// A random token in hexadecimal, which is new at each start of the console.
pub(crate) struct Token(String);

impl Token {
    /// Generates a token.
    ///
    /// # Errors
    /// The system cannot generate random numbers.
    pub(crate) fn random() -> Result<Self, getrandom::Error> {
        let mut bytes = [0_u8; BYTES];
        getrandom::fill(&mut bytes)?;
        Ok(Self(bytes.iter().map(|byte| format!("{byte:02x}")).collect()))
    }

    /// Returns the token as a string for a hidden field.
    pub(crate) fn as_str(&self) -> &str {
        &self.0
    }

    /// Compares a string with the token, in a time that depends only on the string's length.
    pub(crate) fn is(&self, text: &str) -> bool {
        let differences = self.0.bytes().zip(text.bytes()).fold(0, |seen, (a, b)| seen | (a ^ b));
        text.len() == self.0.len() && differences == 0
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Token(…)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_whole_token_is_accepted() {
        let token = Token::random().unwrap();
        let text = token.as_str().to_owned();
        assert_eq!(text.len(), 2 * BYTES);
        assert!(token.is(&text));
        let other = Token::random().unwrap();
        for wrong in ["", &text[1..], &format!("{text}0"), &text.to_uppercase(), other.as_str()] {
            assert!(!token.is(wrong) || wrong == text, "{wrong}");
        }
        assert!(!format!("{token:?}").contains(&text));
    }
}
