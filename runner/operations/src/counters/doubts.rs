//! Doubtful votes: their responses were lost, so they may or may not be counted. Therefore the
//! expected total of a counter is a range.

use std::collections::BTreeMap;

use model::Number;

/// Maximum number of doubtful votes in a message.
const NAMED_MAX: usize = 20;

/// The doubtful votes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct DoubtfulVotes {
    /// Number of doubtful votes.
    pub(super) votes: u64,
    /// Descriptions of the first doubtful votes.
    pub(super) named: Vec<String>,
    /// For each counter, the sum of its negative and the sum of its positive doubtful votes.
    sums: BTreeMap<String, (i64, i64)>,
}

/// The range of a counter's total.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Range {
    /// The total if all negative doubtful votes are counted, and no positive doubtful vote is.
    pub(super) lowest: i64,
    /// The total if all positive doubtful votes are counted, and no negative doubtful vote is.
    pub(super) highest: i64,
}

impl Range {
    /// Returns true if a total is within the range.
    pub(super) fn has(self, total: Number) -> bool {
        (Number::from(self.lowest)..=Number::from(self.highest)).contains(&total)
    }
}

impl DoubtfulVotes {
    /// Adds a doubtful vote and its reason.
    pub(super) fn add(&mut self, slot: &str, counter: &str, points: i64, reason: &str) {
        self.votes += 1;
        if self.named.len() < NAMED_MAX {
            self.named.push(format!("{points} in slot `{slot}`: {reason}"));
        }
        let (below, above) = self.sums.entry(counter.to_owned()).or_default();
        *below += points.min(0);
        *above += points.max(0);
    }

    /// Returns the number of doubtful votes that are not described; `None` if all of them are.
    pub(super) fn unnamed(&self) -> Option<u64> {
        self.votes.checked_sub(self.named.len() as u64).filter(|more| *more > 0)
    }

    /// Returns the range of a counter's total; `voted` is the sum of all votes.
    pub(super) fn range(&self, counter: &str, voted: i64) -> Range {
        let (below, above) = self.sums.get(counter).copied().unwrap_or_default();
        // A vote that is not counted is missing from the sum.
        Range { lowest: voted - above, highest: voted - below }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_total_is_between_what_it_is_with_and_without_the_doubtful_votes() {
        let mut both = DoubtfulVotes::default();
        both.add("a#0", "a", 1, "no answer");
        both.add("a#1", "a", -1, "no answer");
        both.add("a#0", "a", 1, "HTTP 500");
        assert_eq!(both.range("a", 10), Range { lowest: 8, highest: 11 });
        assert_eq!(both.range("b", 10), Range { lowest: 10, highest: 10 });
        let range = both.range("a", 10);
        for (total, is_in) in [("7", false), ("8", true), ("11", true), ("11.5", false)] {
            assert_eq!(range.has(total.parse().unwrap()), is_in, "{total}");
        }
        assert_eq!((both.votes, both.named.len(), both.unnamed()), (3, 3, None));
        assert_eq!(both.named[2], "1 in slot `a#0`: HTTP 500");
        (0..2 * NAMED_MAX).for_each(|_| both.add("a#0", "a", 1, "no answer"));
        assert_eq!((both.named.len(), both.unnamed()), (NAMED_MAX, Some(23)));
    }
}
