//! Ballots: one item for each voter, with the vote and the slot that counts it. This module also
//! computes how the slots change when a vote is cast, changed or withdrawn.
//!
//! Ballot and slots are written in one transaction, conditional on the previous ballot. A vote that
//! is sent twice therefore counts once, and the sum of the slots always equals the sum of the
//! ballots. The caller reads and writes the items.

use std::collections::BTreeMap;

use model::limits::PARTITION_KEY_BYTES_MAX;
use model::{AttributeValue, Item, KeyValue, Number, Token};

use super::{Counters, SUMMABLE, is_summable};
use crate::rule::Refusal;

const COUNTER: &str = "counter";
const SLOT: &str = "counted_in";
const POINTS: &str = "points";
/// The attribute with a random number that each write of a ballot replaces. If two reads return the
/// same number, no write happened between them: the vote was neither changed, nor withdrawn and
/// cast again.
pub const DRAWN: &str = "drawn";

/// A voter's vote, and the slot that counts it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ballot {
    /// The counter.
    pub counter: String,
    /// The slot to which the points were added.
    pub slot: u32,
    /// The points of the vote; may be negative.
    pub points: Number,
}

/// Returns the slot of a voter. A voter always has the same slot, so all changes of the voter's
/// vote go to that slot.
#[must_use]
pub fn slot_of_voter(voter: &str, slots: u32) -> u32 {
    let token = Token::of(&KeyValue::S(voter.to_owned()));
    u32::try_from(token.0 % u64::from(slots.max(1))).unwrap_or(0)
}

/// Returns the key of a voter's ballot in a poll.
///
/// # Errors
/// The key could equal a ballot key of another poll, or would be too long.
pub fn ballot_key(poll: &str, voter: &str) -> Result<String, Refusal> {
    if poll.contains('#') {
        return Err(Refusal(format!(
            "poll=`{poll}` contains `#`, so a ballot key POLL#VOTER could equal a ballot key of another poll; use a name without `#`"
        )));
    }
    let key = format!("{poll}#{voter}");
    if key.len() > PARTITION_KEY_BYTES_MAX {
        return Err(Refusal(format!(
            "the ballot's key POLL#VOTER would have {} bytes, and a key has at most {PARTITION_KEY_BYTES_MAX}; use shorter names",
            key.len()
        )));
    }
    Ok(key)
}

impl Ballot {
    /// Returns a voter's vote as a ballot.
    ///
    /// # Errors
    /// The slot of the vote would not belong to a counter, or totals cannot store the points
    /// exactly.
    pub fn cast(
        rule: &Counters,
        voter: &str,
        counter: &str,
        points: Number,
    ) -> Result<Self, Refusal> {
        let slot = slot_of_voter(voter, rule.slot_count);
        // The check uses the longest key, so that its result does not depend on the voter's slot.
        let longest = rule.slot_count.saturating_sub(1);
        if !Counters::can_have_slot(counter, longest) {
            let room = PARTITION_KEY_BYTES_MAX - Counters::slot_key_text("", longest).len();
            return Err(Refusal(format!(
                "the counter's name has {} bytes; with {} slots it may have at most {room}, because the keys of its slots, COUNTER#SLOT, have at most {PARTITION_KEY_BYTES_MAX}",
                counter.len(),
                rule.slot_count
            )));
        }
        let key = Counters::slot_key_text(counter, slot);
        if rule.parse_slot_key(&key) != Ok((counter, slot)) {
            return Err(Refusal(format!(
                "counter=`{counter}` has no slots: `{key}` is not a valid slot key; use a counter name of at least one character"
            )));
        }
        if !is_summable(&points) {
            return Err(Refusal(format!(
                "points=`{points}` are outside the range that totals can store exactly: {SUMMABLE}"
            )));
        }
        Ok(Self { counter: counter.to_owned(), slot, points })
    }

    /// Returns the attributes of the ballot's item without its key.
    #[must_use]
    pub fn to_item(&self) -> Item {
        Item::new()
            .with(COUNTER, self.counter.as_str())
            .with(SLOT, Number::from(u64::from(self.slot)))
            .with(POINTS, self.points)
    }

    /// Parses the item of [`Ballot::to_item`]; `None` for any other item.
    #[must_use]
    pub fn from_item(item: &Item) -> Option<Self> {
        let slot = item.get(SLOT)?.as_number()?.to_u64()?;
        Some(Self {
            counter: item.get(COUNTER)?.as_str()?.to_owned(),
            slot: u32::try_from(slot).ok()?,
            points: item.get(POINTS)?.as_number()?,
        })
    }

    /// Returns whether both ballots give the same points to the same counter. Their slots may
    /// differ.
    #[must_use]
    pub fn is_same_vote(&self, other: &Self) -> bool {
        (&self.counter, self.points) == (&other.counter, other.points)
    }
}

/// Returns the attributes on which a write of a ballot is conditional, with their values in
/// `ballot`.
#[must_use]
pub fn guard_of(ballot: &Ballot) -> Vec<(&'static str, AttributeValue)> {
    vec![
        (COUNTER, AttributeValue::from(ballot.counter.as_str())),
        (SLOT, AttributeValue::N(Number::from(u64::from(ballot.slot)))),
        (POINTS, AttributeValue::N(ballot.points)),
    ]
}

/// Returns the numbers to add to slots, by slot key, when a voter's ballot changes. `None` means
/// that there is no ballot.
///
/// A ballot may have been counted when the counter had more slots. Folding the counter may move the
/// points of a removed slot to a remaining slot at any time. The additions therefore go to that
/// remaining slot. This is correct because only the sum of the slots matters. An addition to the
/// removed slot would recreate a slot that no reader reads.
///
/// # Errors
/// A sum has more than the 38 digits of a number.
pub fn additions(
    before: Option<&Ballot>,
    after: Option<&Ballot>,
    slots: u32,
) -> Result<BTreeMap<String, Number>, model::number::NumberError> {
    let mut additions: BTreeMap<String, Number> = BTreeMap::new();
    let old = before.map(|ballot| (ballot, ballot.points.negated()));
    let new = after.map(|ballot| (ballot, ballot.points));
    for (ballot, points) in old.into_iter().chain(new) {
        let slot = Counters::folded_slot(ballot.slot, slots);
        let key = Counters::slot_key_text(&ballot.counter, slot);
        let sum = additions.entry(key).or_insert(Number::ZERO);
        *sum = sum.checked_add(points)?;
    }
    additions.retain(|_, sum| !sum.is_zero());
    Ok(additions)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ballot(counter: &str, slot: u32, points: i64) -> Ballot {
        Ballot { counter: counter.to_owned(), slot, points: Number::from(points) }
    }

    #[test]
    fn a_change_adds_the_difference() {
        let text = |before: Option<&Ballot>, after: Option<&Ballot>| {
            let sign = |n: &Number| if n.is_negative() { "" } else { "+" };
            let additions = additions(before, after, 20).unwrap().into_iter();
            additions.map(|(key, n)| format!("{key}{}{n}", sign(&n))).collect::<Vec<_>>().join(" ")
        };
        let (a, b) = (ballot("A", 3, 5), ballot("A", 3, -2));
        for (before, after, expected) in [
            (None, Some(&a), "A#3+5"),
            (Some(&a), Some(&b), "A#3-7"),
            (Some(&a), Some(&a), ""),
            (Some(&a), None, "A#3-5"),
            (Some(&a), Some(&ballot("B", 4, 1)), "A#3-5 B#4+1"),
            // The first vote was cast when there were fewer slots.
            (Some(&a), Some(&ballot("A", 7, 5)), "A#3-5 A#7+5"),
            (None, Some(&ballot("A", 1, 0)), ""),
            // The first vote was cast when there were more slots.
            (Some(&ballot("A", 35, 5)), Some(&b), "A#15-5 A#3-2"),
            (Some(&ballot("A", 23, 5)), Some(&b), "A#3-7"),
            (Some(&ballot("A", 35, 5)), Some(&ballot("B", 15, 5)), "A#15-5 B#15+5"),
            (Some(&ballot("A", 35, 5)), None, "A#15-5"),
        ] {
            assert_eq!(text(before, after), expected);
        }
    }

    /// Goal: 20 slots were partly folded into 5. Clients that use 5 slots then change and withdraw
    /// votes. These changes write no slot with a number of 5 or more, and the sum is right.
    #[test]
    fn votes_change_after_their_slots_were_folded() {
        let mut slots: BTreeMap<String, Number> = BTreeMap::new();
        let add = |slots: &mut BTreeMap<String, Number>, key: String, points: Number| {
            let sum = slots.entry(key).or_insert(Number::ZERO);
            *sum = sum.checked_add(points).unwrap();
        };
        let voters: Vec<String> = (0..100).map(|voter| format!("v{voter}")).collect();
        let cast = |voter: &str| ballot("A", slot_of_voter(voter, 20), 3);
        for voter in &voters {
            for (key, points) in additions(None, Some(&cast(voter)), 20).unwrap() {
                add(&mut slots, key, points);
            }
        }
        for slot in (5..20).step_by(2) {
            let moved = slots.remove(&Counters::slot_key_text("A", slot)).unwrap();
            let target = Counters::slot_key_text("A", Counters::folded_slot(slot, 5));
            add(&mut slots, target, moved);
        }
        let higher = |slots: &BTreeMap<String, Number>| {
            let is_higher = |key: &&String| key["A#".len()..].parse::<u32>().unwrap() >= 5;
            slots.keys().filter(is_higher).cloned().collect::<Vec<_>>()
        };
        let left = higher(&slots);
        for (number, voter) in voters.iter().enumerate() {
            let changed = ballot("A", slot_of_voter(voter, 5), -1);
            let after = (number % 2 == 0).then_some(&changed);
            for (key, points) in additions(Some(&cast(voter)), after, 5).unwrap() {
                add(&mut slots, key, points);
            }
        }
        assert_eq!(higher(&slots), left);
        let sum = slots.values().fold(Number::ZERO, |sum, n| sum.checked_add(*n).unwrap());
        assert_eq!(sum, Number::from(-50_i64));
    }

    #[test]
    fn items_round_trip() {
        let ballot = ballot("A#b", 19, -3);
        assert_eq!(Ballot::from_item(&ballot.to_item()), Some(ballot));
        assert_eq!(Ballot::from_item(&Item::new()), None);
    }

    #[test]
    fn a_vote_that_no_slot_can_hold_is_refused() {
        let rule = Counters {
            slot_count: 20,
            slot_key: "slot".to_owned(),
            slot_value: "votes".to_owned(),
        };
        let cast = |counter: &str, points: &str| {
            Ballot::cast(&rule, "ada", counter, points.parse().unwrap()).map_err(|why| why.0)
        };
        let counted = cast("2026#blue", "-1.5").unwrap();
        assert_eq!(
            (counted.counter.as_str(), counted.slot),
            ("2026#blue", slot_of_voter("ada", 20))
        );
        for (counter, points, expected) in [
            ("", "1", "counter=`` has no slots"),
            (&"c".repeat(2_046), "1", "has 2046 bytes; with 20 slots it may have at most 2045,"),
            ("A", "0.0000001", "points=`0.0000001` are outside"),
            ("A", "1e30", "the range that totals can store exactly: magnitude below 10^28"),
            ("A", "-10000000000000000000000000000", "are outside"),
        ] {
            let refusal = cast(counter, points).unwrap_err();
            assert!(refusal.contains(expected), "{refusal}");
        }
    }

    #[test]
    fn polls_do_not_share_ballots() {
        assert_eq!(ballot_key("tv", "de#ann"), Ok("tv#de#ann".to_owned()));
        let refusal = ballot_key("tv#de", "ann").unwrap_err().0;
        assert!(refusal.contains("poll=`tv#de` contains `#`"), "{refusal}");
    }

    #[test]
    fn a_voter_has_one_slot() {
        let slots: std::collections::BTreeSet<u32> =
            (0..1000).map(|voter| slot_of_voter(&format!("v{voter}"), 20)).collect();
        assert_eq!(slots.len(), 20);
        assert_eq!(slot_of_voter("v1", 20), slot_of_voter("v1", 20));
    }
}
