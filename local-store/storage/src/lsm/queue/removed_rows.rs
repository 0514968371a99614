//! The removed rows of a file, by position. Rows are removed from the front of queues, so the
//! positions form only a few ranges, even for many rows.

use std::sync::Arc;

/// Positions of removed rows: ranges with exclusive ends, in order and not adjacent.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct RemovedRows {
    ranges: Arc<[(u32, u32)]>,
}

impl RemovedRows {
    /// Creates the set from the result of [`RemovedRows::ranges`].
    pub(super) fn from_ranges(ranges: Vec<(u32, u32)>) -> Self {
        Self { ranges: ranges.into() }
    }

    pub(super) fn ranges(&self) -> &[(u32, u32)] {
        &self.ranges
    }

    pub(super) fn count(&self) -> u32 {
        self.ranges.iter().map(|(from, to)| to.saturating_sub(*from)).sum()
    }

    pub(super) fn contains(&self, place: u32) -> bool {
        self.contains_all(place, place.saturating_add(1))
    }

    /// Returns whether all positions from `from` (inclusive) to `to` (exclusive) are removed.
    pub(super) fn contains_all(&self, from: u32, to: u32) -> bool {
        let behind = self.ranges.partition_point(|(start, _)| *start <= from);
        let before = behind.checked_sub(1).and_then(|index| self.ranges.get(index));
        before.is_some_and(|(_, end)| to <= *end)
    }

    /// Returns the set with these positions added. The positions may be in any order.
    pub(super) fn with(&self, places: impl IntoIterator<Item = u32>) -> Self {
        let more = places.into_iter().map(|place| (place, place.saturating_add(1)));
        let mut all: Vec<(u32, u32)> = self.ranges.iter().copied().chain(more).collect();
        all.sort_unstable();
        let mut joined: Vec<(u32, u32)> = Vec::with_capacity(self.ranges.len() + 1);
        for (from, to) in all {
            match joined.last_mut() {
                Some((_, end)) if from <= *end => *end = to.max(*end),
                _ => joined.push((from, to)),
            }
        }
        Self::from_ranges(joined)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn positions_are_a_set(
            steps in prop::collection::vec(prop::collection::vec(0_u32..40, 0..20), 0..6),
            (from, to) in (0_u32..40, 0_u32..40),
        ) {
            let (mut removed, mut set) = (RemovedRows::default(), BTreeSet::new());
            for places in steps {
                removed = removed.with(places.clone());
                set.extend(places);
            }
            prop_assert_eq!(removed.count() as usize, set.len());
            prop_assert_eq!(removed.contains(from), set.contains(&from));
            if from < to {
                prop_assert_eq!(
                    removed.contains_all(from, to),
                    (from..to).all(|place| set.contains(&place)),
                );
            }
            prop_assert!(removed.ranges().windows(2).all(|pair| pair[0].1 < pair[1].0));
        }
    }
}
