//! The marks of copies: the attribute of a copy that names the source of its values.
//!
//! A mark is one string, so that a write can compare it in one condition. Marks of one origin sort
//! by stamp. Marks of different origins are never compared.

use crate::stamp::Stamp;

/// The prefix of the names of all mark attributes.
pub const MARK_PREFIX: &str = "_from_";

/// The source of a copy's values: `<origin>@<stamp> <hops>`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mark {
    /// The origin's key value in DynamoDB JSON.
    pub origin: String,
    /// The stamp of the values.
    pub stamp: Stamp,
    /// The number of deployments through which the values have passed, including the first one.
    /// Earlier releases counted copies instead, so their number is the same or higher.
    pub hops: u32,
}

/// Returns the attribute that holds the mark of a rule.
#[must_use]
pub fn mark_attribute(rule: &str) -> String {
    format!("{MARK_PREFIX}{rule}")
}

impl Mark {
    /// Returns the common prefix of all marks of an origin. The prefix is unique, because the
    /// origin is JSON, so its end before the `@` is unambiguous.
    #[must_use]
    pub fn prefix(origin: &str) -> String {
        format!("{origin}@")
    }

    /// Returns the mark as a string. The space before the hops sorts before the `+` of a stamp, so
    /// a mark with a reconciler's stamp sorts after the mark with the plain stamp.
    #[must_use]
    pub fn text(&self) -> String {
        format!("{}{} {}", Self::prefix(&self.origin), self.stamp, self.hops)
    }

    /// Returns whether the change of a mark from `old` to `new` is a write by Weir for the same
    /// origin: `new` is later than `old`, or it is the first mark of this origin.
    #[must_use]
    pub fn is_raised(origin: &str, old: Option<&str>, new: &str) -> bool {
        // The origin ends before the `@`, see [`Mark::prefix`].
        let is_of_origin =
            |old: &&str| old.strip_prefix(origin).is_some_and(|rest| rest.starts_with('@'));
        old.filter(is_of_origin).is_none_or(|old| old < new)
    }

    /// Returns a mark for the same deletion that is greater than this mark and all `others`.
    /// `nonce` is a unique number.
    #[must_use]
    pub fn above<'m>(&self, others: impl Iterator<Item = &'m Self>, nonce: u64) -> Self {
        let others = others.map(|mark| mark.stamp.revision()).max().unwrap_or(0);
        let highest = self.stamp.revision().max(others);
        let stamp = self.stamp.reconciled(nonce.max(highest.saturating_add(1)));
        Self { stamp, ..self.clone() }
    }

    /// Parses a string of [`Mark::text`]; returns `None` for any other string.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let (rest, hops) = text.rsplit_once(' ')?;
        let (origin, stamp) = rest.rsplit_once('@')?;
        Some(Self {
            origin: origin.to_owned(),
            stamp: stamp.parse().ok()?,
            hops: hops.parse().ok()?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn marks_of_one_origin_sort_by_stamp() {
        let stamp = |sequence: &str| Stamp::of_record("2026", &sequence.parse().unwrap());
        let mark = |stamp: Stamp, hops| Mark { origin: r#"{"S":"a @b"}"#.to_owned(), stamp, hops };
        let in_order = [
            mark(Stamp::lowest(), 3),
            mark(Stamp::lowest().reconciled(1), 1),
            mark(stamp("9"), 4),
            mark(stamp("9").reconciled(1), 1),
            mark(stamp("9").reconciled(2), 1),
            mark(stamp("10"), 1),
        ];
        assert!(in_order.iter().map(Mark::text).is_sorted());
        let (first, last) = (in_order[0].text(), in_order[5].text());
        let origin = &in_order[0].origin;
        for (old, new, expected) in [
            (None, &first, true),
            (Some(r#"{"S":"other"}@2026"#), &first, true),
            (Some("no mark"), &first, true),
            (Some(first.as_str()), &last, true),
            (Some(last.as_str()), &first, false),
            (Some(first.as_str()), &first, false),
        ] {
            assert_eq!(Mark::is_raised(origin, old, new), expected, "{old:?} to {new}");
        }
        for mark in in_order {
            assert_eq!(Mark::parse(&mark.text()), Some(mark));
        }
        assert_eq!(Mark::parse("{\"S\":\"a\"}@x 1"), None);
    }
}
