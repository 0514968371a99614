//! Votes that may or may not be counted, because their answers were lost: how many there are, and
//! between what each counter's total must be because of them.

use std::collections::BTreeMap;

use model::Number;

/// Votes that are named; more would hide the rest.
const NAMED_MAX: usize = 20;

/// The votes of which it is not known whether they are counted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Doubts {
    /// How many there are.
    pub(super) votes: u64,
    /// The first ones, for a person.
    pub(super) named: Vec<String>,
    /// By counter: what those below nothing are together, and those above.
    sums: BTreeMap<String, (i64, i64)>,
}

/// What a counter's total must be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Range {
    /// If of the doubtful votes only those below nothing are counted.
    pub(super) lowest: i64,
    /// If only those above are.
    pub(super) highest: i64,
}

impl Range {
    /// Whether a total is as it must be.
    pub(super) fn has(self, total: Number) -> bool {
        (Number::from(self.lowest)..=Number::from(self.highest)).contains(&total)
    }
}

impl Doubts {
    /// Adds a vote of which it is not known whether it is counted, because of `reason`.
    pub(super) fn add(&mut self, slot: &str, counter: &str, points: i64, reason: &str) {
        self.votes += 1;
        if self.named.len() < NAMED_MAX {
            self.named.push(format!("{points} in slot `{slot}`: {reason}"));
        }
        let (below, above) = self.sums.entry(counter.to_owned()).or_default();
        *below += points.min(0);
        *above += points.max(0);
    }

    /// What the total of a counter must be, in which `voted` is the sum of all votes.
    pub(super) fn range(&self, counter: &str, voted: i64) -> Range {
        let (below, above) = self.sums.get(counter).copied().unwrap_or_default();
        // A vote that was not counted is missing from the sum.
        Range { lowest: voted - above, highest: voted - below }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_total_is_between_what_it_is_with_and_without_the_doubtful_votes() {
        let mut both = Doubts::default();
        both.add("a#0", "a", 1, "no answer");
        both.add("a#1", "a", -1, "no answer");
        both.add("a#0", "a", 1, "HTTP 500");
        assert_eq!(both.range("a", 10), Range { lowest: 8, highest: 11 });
        assert_eq!(both.range("b", 10), Range { lowest: 10, highest: 10 });
        let range = both.range("a", 10);
        for (total, is_in) in [("7", false), ("8", true), ("11", true), ("11.5", false)] {
            assert_eq!(range.has(total.parse().unwrap()), is_in, "{total}");
        }
        assert_eq!((both.votes, both.named.len()), (3, 3));
        assert_eq!(both.named[2], "1 in slot `a#0`: HTTP 500");
        (0..2 * NAMED_MAX).for_each(|_| both.add("a#0", "a", 1, "no answer"));
        assert_eq!(both.named.len(), NAMED_MAX);
    }
}
