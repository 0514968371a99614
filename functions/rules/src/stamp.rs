//! Stamps: the position of a change in the order of all changes of an item. A stamp is stored with
//! a value, so that an older change cannot replace the value.
//!
//! A stamp is never a timestamp: the creation time of a stream record has a resolution of one second.

use std::fmt;
use std::str::FromStr;

use model::SequenceNumber;
use model::stream_record::SEQUENCE_NUMBER_DIGITS;
use thiserror::Error;

/// The number of digits of the revision at the end of a reconciler's stamp. Every `u64` fits.
const REVISION_DIGITS: usize = 20;

/// A position in the order of all changes of one item. Stamps are strings that sort in this order.
///
/// - The stamp of a stream record is `<stream label>/<sequence number, 40 digits>`. A stream that
///   was disabled and enabled again has a later label, so its records sort after all earlier
///   records.
/// - The stamp of a reconciler is `<stamp of a record>+<revision, 20 digits>`: it sorts after that
///   record and before every later record.
///
/// The lowest stamp has an empty label. It is the stamp of a value without a stream record.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Stamp(String);

/// The error for a string that is not a stamp.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("invalid stamp: expected `LABEL/40 digits` or `LABEL/40 digits+20 digits`, got=`{0}`")]
pub struct StampError(String);

impl Stamp {
    /// Returns the stamp of a stream record.
    #[must_use]
    pub fn of_record(stream_label: &str, sequence_number: &SequenceNumber) -> Self {
        Self(format!("{stream_label}/{}", sequence_number.padded()))
    }

    /// Returns the label of the record's stream.
    #[must_use]
    pub fn stream_label(&self) -> &str {
        self.0.split_once('/').map_or("", |(label, _)| label)
    }

    /// Returns the lowest stamp, which is before the stamp of every record.
    #[must_use]
    pub fn lowest() -> Self {
        Self(format!("/{:0>SEQUENCE_NUMBER_DIGITS$}", 0))
    }

    /// Returns the reconciler's stamp that sorts after this stamp and before the stamp of any later
    /// record. If this is a reconciler's stamp, the revision is replaced, so that stamps do not
    /// grow.
    #[must_use]
    pub fn reconciled(&self, revision: u64) -> Self {
        let base = self.0.get(..self.base_length()).unwrap_or(&self.0);
        Self(format!("{base}+{revision:0>REVISION_DIGITS$}"))
    }

    /// Returns the record's stamp in a reconciler's stamp, or any other stamp unchanged.
    #[must_use]
    pub fn base(&self) -> Self {
        Self(self.0.get(..self.base_length()).unwrap_or(&self.0).to_owned())
    }

    /// Returns the revision of a reconciler's stamp; 0 for any other stamp.
    #[must_use]
    pub fn revision(&self) -> u64 {
        self.0.get(self.base_length() + 1..).and_then(|digits| digits.parse().ok()).unwrap_or(0)
    }

    /// Returns the stamp as a string.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    fn base_length(&self) -> usize {
        let slash = self.0.rfind('/').unwrap_or(0);
        (slash + 1 + SEQUENCE_NUMBER_DIGITS).min(self.0.len())
    }
}

impl fmt::Display for Stamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl FromStr for Stamp {
    type Err = StampError;

    fn from_str(text: &str) -> Result<Self, StampError> {
        let digits =
            |text: &str, count| text.len() == count && text.bytes().all(|b| b.is_ascii_digit());
        let is_stamp =
            text.rsplit_once('/').is_some_and(|(_, place)| match place.split_once('+') {
                None => digits(place, SEQUENCE_NUMBER_DIGITS),
                Some((sequence, revision)) => {
                    digits(sequence, SEQUENCE_NUMBER_DIGITS) && digits(revision, REVISION_DIGITS)
                }
            });
        if is_stamp {
            Ok(Self(text.to_owned()))
        } else {
            Err(StampError(text.chars().take(128).collect()))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LABEL: &str = "2026-11-21T02:30:00.000";

    fn stamp(label: &str, sequence: &str) -> Stamp {
        Stamp::of_record(label, &sequence.parse().unwrap())
    }

    #[test]
    fn the_order_of_texts_is_the_order_in_time() {
        let nine = stamp(LABEL, "9");
        let in_order = [
            Stamp::lowest(),
            Stamp::lowest().reconciled(3),
            nine.clone(),
            nine.reconciled(0),
            nine.reconciled(9),
            nine.reconciled(9).reconciled(10),
            stamp(LABEL, "10"),
            stamp(LABEL, "4000000000000000000000000000000000000000"),
            stamp("2026-11-21T02:30:00.001", "1"),
        ];
        assert!(in_order.is_sorted_by(|left, right| left < right), "{in_order:?}");
        for stamp in in_order {
            assert_eq!(stamp.as_str().parse(), Ok(stamp.clone()));
        }
        assert_eq!((nine.reconciled(7).base(), nine.reconciled(7).revision()), (nine.clone(), 7));
        assert_eq!((nine.base(), nine.revision()), (nine, 0));
    }

    #[test]
    fn other_texts_are_refused() {
        let forty = "0".repeat(40);
        for wrong in [
            String::new(),
            LABEL.to_owned(),
            format!("{LABEL}/12"),
            format!("{LABEL}/{forty}0"),
            format!("{LABEL}/{forty}+1"),
            format!("{LABEL}/{forty}+"),
        ] {
            assert!(wrong.parse::<Stamp>().is_err(), "{wrong}");
        }
    }
}
