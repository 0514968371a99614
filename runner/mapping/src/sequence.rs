//! Sequence numbers of stream records. They are stored as strings and ordered as numbers.
//!
//! A sequence number has up to 40 digits, more than a machine integer or a DynamoDB `N` can
//! represent, so it is never converted to a number.

use std::cmp::Ordering;
use std::fmt;
use std::sync::Arc;

/// Maximum number of digits of a sequence number (DynamoDB API, `StreamRecord`).
pub const DIGITS_MAX: usize = 40;

/// The position of a record in its shard.
///
/// The order is numeric (`9` before `10`). Two notations of the same number, such as `7` and `007`,
/// are different sequence numbers, and no sequence number is between them.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct SequenceNumber(Arc<str>);

/// A string that is not a sequence number.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "not a sequence number: `{text}`; a sequence number is 1 to {DIGITS_MAX} decimal digits, \
     copied from a stream record"
)]
pub struct InvalidSequenceNumber {
    /// The invalid string.
    pub text: String,
}

impl SequenceNumber {
    /// Parses a sequence number: 1 to 40 (inclusive) decimal digits.
    ///
    /// # Errors
    /// Returns an error if the string has a different form.
    pub fn parse(text: &str) -> Result<Self, InvalidSequenceNumber> {
        let digits_only = text.bytes().all(|byte| byte.is_ascii_digit());
        if text.is_empty() || text.len() > DIGITS_MAX || !digits_only {
            return Err(InvalidSequenceNumber { text: text.to_owned() });
        }
        Ok(Self(text.into()))
    }

    /// Returns the sequence number exactly as the stream returned it.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    fn significant(&self) -> &str {
        self.0.trim_start_matches('0')
    }
}

impl From<&model::stream_record::SequenceNumber> for SequenceNumber {
    fn from(number: &model::stream_record::SequenceNumber) -> Self {
        Self(number.as_str().into())
    }
}

impl Ord for SequenceNumber {
    fn cmp(&self, other: &Self) -> Ordering {
        let (mine, theirs) = (self.significant(), other.significant());
        mine.len()
            .cmp(&theirs.len())
            .then_with(|| mine.cmp(theirs))
            .then_with(|| self.0.cmp(&other.0))
    }
}

impl PartialOrd for SequenceNumber {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl fmt::Display for SequenceNumber {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.0)
    }
}

impl fmt::Debug for SequenceNumber {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn orders_by_number_and_not_by_text() {
        let ascending = [
            "0",
            "00",
            "7",
            "007",
            "9",
            "10",
            "99",
            "100",
            "9999999999999999999999999999999999999999",
        ];
        let parsed: Vec<_> =
            ascending.iter().map(|text| SequenceNumber::parse(text).unwrap()).collect();
        for pair in parsed.windows(2) {
            let equal_numbers = pair[0].significant() == pair[1].significant();
            assert!(pair[0] < pair[1] || equal_numbers, "{:?} < {:?}", pair[0], pair[1]);
            assert_ne!(pair[0], pair[1]);
        }
    }

    #[test]
    fn refuses_what_is_not_a_sequence_number() {
        for text in ["", "-1", "1.0", "1e3", " 1", "12345678901234567890123456789012345678901"] {
            assert!(SequenceNumber::parse(text).is_err(), "{text:?}");
        }
    }
}
