//! The position of a command in the log, which is the sequence number of its stream record.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// The position of a command in the log: the index of its entry, and the command's position within
/// the entry.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
pub struct Sequence {
    /// Log index.
    pub index: u64,
    /// Position in the entry, below 100,000.
    pub position: u32,
}

/// Digits of the log index in a sequence number: enough for a million entries a second over three centuries.
const INDEX_DIGITS: usize = 16;

/// Digits of the position within the entry in a sequence number.
const POSITION_DIGITS: usize = 5;

impl fmt::Display for Sequence {
    /// Writes a sequence number in the API's form: the digit 1, the log index (16 digits), and the
    /// position (5 digits).
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut digits = [b'1'; 1 + INDEX_DIGITS + POSITION_DIGITS];
        let (start, position) = digits.split_at_mut(1 + INDEX_DIGITS);
        let fits = put_digits(start.iter_mut().skip(1), self.index)
            && put_digits(position.iter_mut(), u64::from(self.position));
        match std::str::from_utf8(&digits) {
            Ok(text) if fits => f.write_str(text),
            // A log index with more digits would be written in full, but no real log reaches such
            // an index.
            _ => write!(f, "1{:0INDEX_DIGITS$}{:0POSITION_DIGITS$}", self.index, self.position),
        }
    }
}

/// Writes the last digits of a number with leading zeros, and returns whether the number has no
/// further digits. This is several times as fast as `write!`, which matters for a page of a
/// thousand records.
fn put_digits<'d>(digits: impl DoubleEndedIterator<Item = &'d mut u8>, mut number: u64) -> bool {
    for digit in digits.rev() {
        *digit = u8::try_from(number % 10).map_or(b'0', |rest| b'0' + rest);
        number /= 10;
    }
    number == 0
}

impl FromStr for Sequence {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        let digits = text.strip_prefix('1').ok_or(())?;
        let whole = digits.len() == INDEX_DIGITS + POSITION_DIGITS
            && digits.bytes().all(|b| b.is_ascii_digit());
        let (index, position) = digits.split_at_checked(INDEX_DIGITS).filter(|_| whole).ok_or(())?;
        Ok(Self {
            index: index.parse().map_err(|_| ())?,
            position: position.parse().map_err(|_| ())?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sequences_keep_their_order_as_text() {
        let sequence = |index, position| Sequence { index, position };
        for s in [sequence(0, 0), sequence(1, 99_999), sequence(9_999_999_999_999_999, 5)] {
            assert_eq!(s.to_string().parse(), Ok(s));
            assert_eq!(s.to_string().len(), 22);
            assert_eq!(s.to_string(), format!("1{:016}{:05}", s.index, s.position));
        }
        assert_eq!(sequence(u64::MAX, u32::MAX).to_string(), "1184467440737095516154294967295");
        assert!(sequence(9, 99_999).to_string() < sequence(10, 0).to_string());
        for wrong in
            ["", "1", "200000000000000000000", "1000000000000000000000x", "10000000000000000000000"]
        {
            assert_eq!(wrong.parse::<Sequence>(), Err(()), "{wrong}");
        }
    }
}
