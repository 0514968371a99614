//! Tests of plans for one history in memory: single cases, and all orders of delivery.

use model::{Item, Number};
use proptest::collection::vec;
use proptest::prelude::*;

use super::super::history::{VersionEvent, fingerprint};
use super::*;

fn stamp(sequence: u64) -> Stamp {
    Stamp::of_record("l", &sequence.to_string().parse().unwrap())
}

fn image(value: u64) -> Item {
    Item::new().with("v", Number::from(value))
}

/// Returns the change with a sequence number. It increments the item's value.
fn change(sequence: u64) -> (Stamp, Change) {
    let change = Change {
        event: if sequence == 1 { VersionEvent::Insert } else { VersionEvent::Modify },
        image: Some(image(sequence)),
        before: (sequence > 1).then(|| image(sequence - 1)),
        previous_fingerprint: (sequence > 1).then(|| fingerprint(&image(sequence - 1))),
        at_seconds: Some(1000 + sequence),
        by_ttl: false,
        event_id: format!("e{sequence}"),
    };
    (stamp(sequence), change)
}

fn changes(sequences: &[u64]) -> Changes {
    sequences.iter().map(|sequence| change(*sequence)).collect()
}

/// A table of one history.
#[derive(Default)]
struct Table {
    head: Option<Head>,
    versions: BTreeMap<u64, Version>,
}

impl Table {
    /// Returns the table with a history that a backfill began before the first stream record.
    fn back_filled() -> Self {
        let base = Version::base(image(99));
        Self { head: Some(Head::of_base()), versions: BTreeMap::from([(1, base)]) }
    }

    /// Returns the last versions as an executor reads them. They begin before the earliest change.
    fn tail(&self, changes: &Changes) -> Vec<Version> {
        let is_earlier = |v: &&Version| changes.earliest().is_some_and(|e| v.stamp < *e);
        let from = self.versions.values().rfind(is_earlier).map_or(0, |version| version.number);
        let from = if from == 2 { 1 } else { from };
        self.versions.range(from..).map(|(_, version)| version.clone()).collect()
    }

    fn try_add(&mut self, sequences: &[u64], retention: Retention) -> Result<usize, TooLate> {
        let all = changes(sequences);
        let needed = self.head.as_ref().is_some_and(|head| head.needs_tail(&all));
        let tail = if needed { self.tail(&all) } else { Vec::new() };
        let missing = missing(self.head.as_ref(), &tail, &all);
        if missing.is_empty() {
            return Ok(0);
        }
        let plan = plan(self.head.as_ref(), &tail, &missing, retention)?;
        self.carry_out(plan);
        Ok(missing.len())
    }

    fn carry_out(&mut self, plan: Plan) {
        assert!(plan.writes.len() < 100);
        for write in plan.writes {
            match write {
                Write::Put(version) => {
                    self.versions.insert(version.number, version);
                }
                Write::Delete(number) => {
                    self.versions.remove(&number);
                }
                Write::Expire { number, at_seconds } => {
                    if let Some(version) = self.versions.get_mut(&number) {
                        version.expires_at = Some(at_seconds);
                    }
                }
            }
        }
        self.head = Some(plan.head);
    }

    fn add(&mut self, sequences: &[u64], retention: Retention) -> usize {
        self.try_add(sequences, retention).unwrap()
    }

    /// Checks that the table has exactly the versions of the head, in order. Only the first version
    /// may be a base.
    fn check_order(&self) {
        let Some(head) = &self.head else { return };
        let numbers = self.versions.keys().copied();
        assert!(numbers.eq(head.first..=head.latest), "{head:?}: {}", self.text());
        assert!(self.versions.values().is_sorted_by_key(|version| &version.stamp));
        let mut bases = self.versions.values().filter(|v| v.event == VersionEvent::Base);
        assert!(bases.all(|version| version.number == 1), "{}", self.text());
        assert_eq!(self.versions[&head.latest].stamp, head.stamp);
        // The versions with an expiry are at the beginning and expire in order, so TTL leaves no
        // gap.
        let expires = self.versions.range(..=head.expiring).map(|(_, v)| v.expires_at);
        let expires: Vec<u64> = expires.map(|at| at.expect("it was told")).collect();
        assert!(expires.is_sorted(), "{}", self.text());
        assert!(expires.last().is_none_or(|at| *at == head.expiring_at), "{}", self.text());
        let mut others = self.versions.range(head.expiring + 1..);
        assert!(others.all(|(_, v)| v.expires_at.is_none()), "{head:?}: {}", self.text());
    }

    /// Returns the table as a string: `number=value`, with `~` before a base.
    fn text(&self) -> String {
        let one = |version: &Version| {
            let value = version.image.as_ref().unwrap()["v"].as_number().unwrap();
            let base = if version.event == VersionEvent::Base { "~" } else { "" };
            let expires = version.expires_at.map_or(String::new(), |at| format!("!{at}"));
            format!("{}={base}{value}{expires}", version.number)
        };
        self.versions.values().map(one).collect::<Vec<_>>().join(" ")
    }
}

const ALL: Retention = Retention { keep_last: None, keep_days: 0 };

fn retention() -> impl Strategy<Value = Retention> {
    prop_oneof![
        Just(ALL),
        (1..6u64).prop_map(|count| Retention { keep_last: Some(count), keep_days: 0 }),
        (1..6u64, 1..9u32)
            .prop_map(|(count, keep_days)| Retention { keep_last: Some(count), keep_days }),
    ]
}

#[test]
fn versions_are_numbered_by_the_order_of_their_changes() {
    for (batches, expected) in [
        (&[&[1, 2, 3][..]][..], "1=1 2=2 3=3"),
        (&[&[1], &[1], &[1, 2], &[2, 3]], "1=1 2=2 3=3"),
        // The item existed before its history.
        (&[&[5], &[6, 7]], "1=~4 2=5 3=6 4=7"),
        // Late changes are inserted at their places, and the first base is replaced.
        (&[&[7], &[5]], "1=~4 2=5 3=7"),
        (&[&[3], &[2], &[1]], "1=1 2=2 3=3"),
        (&[&[1, 3, 5], &[2, 4]], "1=1 2=2 3=3 4=4 5=5"),
        (&[&[4], &[6], &[5, 4, 6]], "1=~3 2=4 3=5 4=6"),
    ] {
        let mut table = Table::default();
        for batch in batches {
            table.add(batch, ALL);
        }
        assert_eq!(table.text(), expected, "{batches:?}");
        let head = table.head.clone().unwrap();
        assert_eq!(head.latest, *table.versions.keys().last().unwrap());
        let before = table.text();
        assert_eq!(batches.iter().map(|batch| table.add(batch, ALL)).sum::<usize>(), 0);
        assert_eq!((table.head, before), (Some(head), expected.to_owned()));
    }
}

/// Goal: the version after a missing change shows the gap until the change is inserted.
#[test]
fn a_missing_change_is_visible() {
    let mut table = Table::default();
    let lacking = |table: &Table| -> Vec<u64> {
        let versions: Vec<&Version> = table.versions.values().collect();
        let pairs = versions
            .windows(2)
            .filter(|pair| !pair[1].is_next_to(pair[0].image.as_ref().map(fingerprint)));
        pairs.map(|pair| pair[1].number).collect()
    };
    table.add(&[5, 6, 8, 9], ALL);
    table.add(&[12], ALL);
    assert_eq!((table.text().as_str(), lacking(&table)), ("1=~4 2=5 3=6 4=8 5=9 6=12", vec![4, 6]));
    table.add(&[7], ALL);
    assert_eq!(lacking(&table), [7]);
    table.add(&[10, 11], ALL);
    assert_eq!(lacking(&table), [0; 0]);
    assert!(!table.versions[&1].lacks_base());
}

#[test]
fn a_back_filled_base_gives_way_to_the_first_change() {
    for (first, expected) in [(1, "1=1"), (5, "1=~4 2=5")] {
        let mut table = Table::back_filled();
        table.add(&[first], ALL);
        assert_eq!(table.text(), expected);
    }
}

/// Tests a change with sequence number 5 at time 1005. The value before the change was 4.
#[test]
fn a_base_keeps_the_time_at_which_a_back_fill_saw_it() {
    for (seen, value, expected) in [
        (900, 4, Some(900)),
        (1005, 4, Some(1005)),
        // The change had already happened, and a later change had restored the value.
        (1006, 4, None),
        // The backfill read the result of the change.
        (1005, 5, None),
        (900, 99, None),
    ] {
        let base = Version { at_seconds: Some(seen), ..Version::base(image(value)) };
        let mut table =
            Table { head: Some(Head::of_base()), versions: BTreeMap::from([(1, base)]) };
        table.add(&[5, 6], ALL);
        assert_eq!(table.text(), "1=~4 2=5 3=6");
        assert_eq!(table.versions[&1].at_seconds, expected, "{seen} {value}");
        let versions: Vec<Version> = table.versions.into_values().collect();
        let as_of = |seconds| super::super::as_of(&versions, seconds).map(|v| v.number);
        assert_eq!(as_of(1005), Ok(2));
        assert_eq!(as_of(899).is_ok(), expected.is_none());
    }
}

/// Goal: the base loses its time if the backfill read the result of a change whose record arrives
/// late. The value was 4 until time 1005, and then 5.
#[test]
fn a_base_that_gives_way_to_a_late_change_loses_its_time() {
    let base = Version { at_seconds: Some(1005), ..Version::base(image(5)) };
    let mut table = Table { head: Some(Head::of_base()), versions: BTreeMap::from([(1, base)]) };
    table.add(&[6], ALL);
    assert_eq!((table.text().as_str(), table.versions[&1].at_seconds), ("1=~5 2=6", Some(1005)));
    table.add(&[5], ALL);
    assert_eq!((table.text().as_str(), table.versions[&1].at_seconds), ("1=~4 2=5 3=6", None));
}

#[test]
fn only_the_last_versions_are_kept() {
    let last = Retention { keep_last: Some(2), keep_days: 0 };
    let mut table = Table::default();
    table.add(&[1, 2, 3, 4, 5], last);
    assert_eq!(table.text(), "4=4 5=5");
    table.add(&[6], last);
    assert_eq!(table.text(), "5=5 6=6");
    // A redelivered change that was pruned is not restored.
    assert_eq!(table.add(&[1, 2, 3, 4], last), 0);
    assert_eq!((table.text().as_str(), table.head.clone().unwrap().first), ("5=5 6=6", 5));

    // If the setting is lowered, the next writes prune the rest.
    let mut table = Table::default();
    table.add(&(1..=20).collect::<Vec<_>>(), ALL);
    table.add(&[21], last);
    assert_eq!(table.versions.len(), 21 - 9);
    table.add(&[22], last);
    table.add(&[23], last);
    assert_eq!(table.text(), "22=22 23=23");
}

/// Goal: the base is removed, because it would be wrong for the time between the backfill and the
/// change.
#[test]
fn a_change_of_an_item_too_large_for_a_version_removes_the_base() {
    let (stamp, change) = change(5);
    let changes = Changes::from([(stamp, Change { before: None, ..change })]);
    let mut table = Table::back_filled();
    let tail: Vec<Version> = table.versions.values().cloned().collect();
    let plan = plan(table.head.as_ref(), &tail, &changes, ALL).unwrap();
    table.carry_out(plan);
    assert_eq!(table.text(), "1=5");
    table.add(&[5, 6], ALL);
    assert_eq!(table.text(), "1=5 2=6");
}

/// Goal: a plan may both renumber a version and prune it. The version is also deleted under its old
/// number.
#[test]
fn versions_beyond_the_last_ones_are_deleted() {
    let last = |count| Retention { keep_last: Some(count), keep_days: 0 };
    let mut table = Table::back_filled();
    table.add(&[5], last(1));
    assert_eq!(table.text(), "2=5");
    table.add(&[6], last(1));
    assert_eq!(table.text(), "3=6");

    let mut table = Table::back_filled();
    table.add(&[5, 6, 7], last(2));
    assert_eq!(table.text(), "3=6 4=7");

    // Two late changes directly follow the oldest stored version.
    let mut table = Table::default();
    table.add(&[1, 2, 3, 6, 7], last(3));
    assert_eq!(table.text(), "3=3 4=6 5=7");
    table.add(&[4, 5], last(3));
    assert_eq!(table.text(), "5=5 6=6 7=7");
}

proptest! {
    /// Goal: the table has the versions of the head, in the order of the changes. This holds for
    /// all late changes and all earlier settings.
    #[test]
    fn kept_versions_have_no_gap(
        batches in vec((vec(1..40u64, 1..6), 0..2usize), 1..40),
        settings in (retention(), retention()),
        is_back_filled in any::<bool>(),
    ) {
        let mut table = if is_back_filled { Table::back_filled() } else { Table::default() };
        for (sequences, setting) in &batches {
            let retention = if *setting == 0 { settings.0 } else { settings.1 };
            // A change that is too late is an error and has no effect.
            let _ = table.try_add(sequences, retention);
            table.check_order();
        }
        // Further writes in order complete the pruning that the setting requires.
        for sequence in 50..60 {
            table.add(&[sequence], settings.0);
            table.check_order();
        }
        let latest = table.head.clone().unwrap().latest;
        if let Retention { keep_last: Some(count), keep_days: 0 } = settings.0 {
            let first = latest.saturating_sub(count) + 1;
            prop_assert!(table.versions.keys().copied().eq(first..=latest), "{}", table.text());
        }
        if let Retention { keep_last: Some(count), keep_days: 1.. } = settings.0 {
            let expiring = table.head.clone().unwrap().expiring;
            prop_assert!(expiring >= latest.saturating_sub(count), "{}", table.text());
        }
    }
}

#[test]
fn versions_expire_some_days_after_they_were_pushed_out() {
    let days = Retention { keep_last: Some(1), keep_days: 2 };
    let mut table = Table::default();
    table.add(&[1, 2], days);
    table.add(&[3], days);
    let at = |sequence: u64| 1000 + sequence + 2 * 86_400;
    assert_eq!(table.text(), format!("1=1!{} 2=2!{} 3=3", at(2), at(3)));
}

#[test]
fn versions_from_before_a_setting_expire_too() {
    let days = |keep_last, keep_days| Retention { keep_last: Some(keep_last), keep_days };
    let mut table = Table::default();
    table.add(&(1..=12).collect::<Vec<_>>(), ALL);
    let mut expires = |sequence, retention| {
        table.add(&[sequence], retention);
        table.check_order();
        let expires = |version: &Version| Some((version.number, version.expires_at? - 1000));
        table.versions.values().filter_map(expires).collect::<Vec<_>>()
    };
    let one = |sequence, keep_days: u64| sequence + keep_days * 86_400;
    // The result is the same as if the first change had pushed out all these versions.
    let mut expected: Vec<_> = (1..=9).map(|number| (number, one(13, 2))).collect();
    assert_eq!(expires(13, days(1, 2)), expected);
    expected.extend((10..=13).map(|number| (number, one(14, 2))));
    assert_eq!(expires(14, days(1, 2)), expected);
    // Version 14 does not expire before version 13, which has a later time.
    expected.push((14, one(14, 2)));
    assert_eq!(expires(15, days(1, 1)), expected);
    // A version that was pushed out keeps its expiry, even if the setting is raised.
    assert_eq!(expires(16, days(3, 2)), expected);
    assert_eq!(expires(17, days(3, 2)), expected);
    expected.push((15, one(18, 2)));
    assert_eq!(expires(18, days(3, 2)), expected);
}

#[test]
fn a_late_version_expires_with_the_next_one() {
    let days = Retention { keep_last: Some(1), keep_days: 2 };
    let mut table = Table::default();
    table.add(&[1, 2], days);
    table.add(&[5, 6], days);
    table.add(&[3, 4], days);
    table.check_order();
    let at = |sequence: u64| 1000 + sequence + 2 * 86_400;
    let [two, five, six] = [2, 5, 6].map(at);
    assert_eq!(table.text(), format!("1=1!{two} 2=2!{five} 3=3!{six} 4=4!{six} 5=5!{six} 6=6"));
}

#[test]
fn versions_before_a_gap_are_ignored() {
    let numbered = |numbers: &[u64]| -> Vec<Version> {
        numbers
            .iter()
            .map(|number| Version { number: *number, ..Version::base(image(1)) })
            .collect()
    };
    for (numbers, expected) in [
        (&[1, 2, 3][..], &[1, 2, 3][..]),
        (&[1, 3, 4], &[3, 4]),
        (&[1, 2, 4, 5, 7], &[7]),
        (&[], &[]),
    ] {
        assert_eq!(unbroken(numbered(numbers)), numbered(expected));
    }
}

#[test]
fn a_change_that_comes_too_late_is_an_error() {
    let mut table = Table::default();
    table.add(&[1], ALL);
    for sequence in 3..60 {
        table.add(&[sequence], ALL);
    }
    let tail: Vec<Version> = table.versions.values().cloned().collect();
    let late = plan(table.head.as_ref(), &tail, &changes(&[2]), ALL);
    assert_eq!(late, Err(TooLate(58)));
    // A change that is already known is not late.
    assert!(missing(table.head.as_ref(), &tail, &changes(&[3])).is_empty());
}

#[test]
fn the_largest_plan_fits_into_a_transaction() {
    let days = Retention { keep_last: Some(30), keep_days: 1 };
    let mut table = Table::default();
    for batch in (2..=200u64).collect::<Vec<_>>().chunks(CHANGES_MAX) {
        table.add(batch, days);
        table.add(batch, Retention { keep_last: Some(1), keep_days: 0 });
    }
    // The base is version 1, so 199 changes result in 200 versions.
    assert_eq!(table.head.unwrap().latest, 200);
}
