//! Which versions a history needs so that it knows some changes, and what must be written for that.
//!
//! **Why the same comes of every delivery.** Version *n* is the *n*-th change by stamp, so a history
//! is a function of the set of changes that it knows. Changes that come in stream order, which is
//! the rule, are put behind the current version. A change that comes late, because its batch was
//! given up and driven again, goes to its place, and the versions behind it move up by one; that is
//! bounded by [`RENUMBERED_MAX`]. What is there already is found by its stamp.
//! The first change of an item that was there before its history began says what the item was
//! before: that becomes version 1, the **base**.
//!
//! **Why nothing is half done.** What a plan writes goes into one transaction, guarded by the head's
//! revision: of two executors at the same history one wins, the other reads again. Nothing is read
//! or written here.

use std::collections::BTreeMap;

use thiserror::Error;

use super::change::{Change, Changes};
use super::history::{Head, Version};
use crate::stamp::Stamp;

/// Changes that one plan adds at most. With as many that move, each a put that may make another
/// version expire, and the head, a plan has less than the 100 operations of a transaction.
pub const CHANGES_MAX: usize = 24;
/// Versions that one plan moves at most because a change came late.
pub const RENUMBERED_MAX: usize = 24;
/// Bytes of images that one plan adds at most, and that it moves at most: with 400 KB more for a
/// base and one image that is always taken, below the 4 MB of a transaction.
pub const IMAGE_BYTES_MAX: usize = 1_500_000;
/// Versions that one plan prunes at most beside those that its own changes push out.
const PRUNED_MAX: u64 = 8;
const DAY_SECONDS: u64 = 24 * 60 * 60;

/// How long versions are kept. The current one always is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Retention {
    /// The last so many versions are kept, at least 1; `None`: all are.
    pub keep_last: Option<u64>,
    /// A version that is no longer among the last ones is kept for so many days more.
    pub keep_days: u32,
}

/// One write of a plan.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Write {
    /// This version stands under its number.
    Put(Version),
    /// The version with this number expires at this time in epoch seconds, if it is there.
    Expire {
        /// Its number.
        number: u64,
        /// When.
        at_seconds: u64,
    },
    /// There is no version with this number.
    Delete(u64),
}

/// What must be written, all of it or nothing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    /// The head, one revision later.
    pub head: Head,
    /// The versions, by number.
    pub writes: Vec<Write>,
}

/// A change that came so late that too many versions would have to move.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error(
    "a change came after {0} later ones were recorded; at most {RENUMBERED_MAX} versions of {IMAGE_BYTES_MAX} bytes can be moved, so it cannot be put to its place any more"
)]
pub struct TooLate(usize);

/// The changes that a history does not know yet. `tail` are the last versions of the history, by
/// number, beginning at or before the place of the earliest change, or with the first version there
/// is. A change before a first version that is not version 1 was pruned, or would be.
#[must_use]
pub fn missing(head: Option<&Head>, tail: &[Version], changes: &Changes) -> Changes {
    let Some(head) = head else { return changes.clone() };
    let known: std::collections::BTreeSet<&Stamp> = tail.iter().map(|v| &v.stamp).collect();
    let first = tail.first().filter(|version| version.number > 1).map(|version| &version.stamp);
    changes.filtered(|stamp| {
        *stamp > head.stamp || (!known.contains(stamp) && first.is_none_or(|first| stamp > first))
    })
}

impl Head {
    /// Whether the last versions must be looked at to add `changes`: not if all come after the
    /// current version, unless that is a base, which the first change may prove wrong.
    #[must_use]
    pub fn needs_tail(&self, changes: &Changes) -> bool {
        self.stamp == Stamp::lowest() || changes.earliest().is_some_and(|e| *e <= self.stamp)
    }
}

/// A place in the history that is being made.
struct Place {
    version: Version,
    /// The change it is from, if that is new.
    change: Option<Change>,
}

/// What must be written so that a history knows `changes` as well: at most [`CHANGES_MAX`] of them,
/// none known yet (see [`missing`]). `tail` as for [`missing`]; empty if [`Head::needs_tail`] says
/// so or there is no head.
///
/// # Errors
/// When too many versions would have to move.
pub fn plan(
    head: Option<&Head>,
    tail: &[Version],
    changes: &Changes,
    retention: Retention,
) -> Result<Plan, TooLate> {
    let tail = moved(tail, changes)?;
    let latest_before = head.map_or(0, |head| head.latest);
    let start = tail.first().map_or(latest_before + 1, |version| version.number);
    let mut places = merged(tail, changes);
    if start == 1 {
        set_base(&mut places);
    }
    let mut writes = Vec::new();
    let mut numbered: BTreeMap<u64, Version> = BTreeMap::new();
    for (number, place) in (start..).zip(places.into_values()) {
        numbered.insert(number, Version { number, ..place.version });
    }
    let Some((&latest, last)) = numbered.last_key_value() else {
        // Without changes nothing is planned; a head without them is as it was.
        let head = head.cloned();
        let head =
            head.unwrap_or(Head { latest: 1, first: 1, stamp: Stamp::lowest(), revision: 1 });
        return Ok(Plan { head, writes });
    };
    let stamp = last.stamp.clone();
    let first_before = head.map_or(1, |head| head.first);
    let pruned_max = PRUNED_MAX + u64::try_from(changes.len()).unwrap_or(0);
    let last_pruned_max = (first_before - 1).saturating_add(pruned_max);
    let first = match retention.keep_last.map(|count| latest.saturating_sub(count.max(1))) {
        None => first_before,
        Some(cut) if retention.keep_days == 0 => {
            delete(&mut numbered, &mut writes, first_before, cut.min(last_pruned_max))
        }
        Some(_) => {
            let keep_last = retention.keep_last.unwrap_or(1).max(1);
            expire(&mut numbered, &mut writes, first_before, keep_last, retention.keep_days);
            first_before
        }
    };
    let is_as_it_was = |version: &Version| tail.iter().any(|known| known == version);
    writes.extend(numbered.into_values().filter(|version| !is_as_it_was(version)).map(Write::Put));
    writes.extend((latest + 1..=latest_before).map(Write::Delete));
    let revision = head.map_or(0, |head| head.revision) + 1;
    Ok(Plan { head: Head { latest, first, stamp, revision }, writes })
}

/// The part of the tail that moves: the versions behind the earliest change, and a base right
/// before it, which the change may prove wrong.
fn moved<'t>(tail: &'t [Version], changes: &Changes) -> Result<&'t [Version], TooLate> {
    let Some(earliest) = changes.earliest() else { return Ok(&[]) };
    let mut from = tail.iter().take_while(|version| version.stamp < *earliest).count();
    if from == 1 && tail.first().is_some_and(|version| version.number == 1) {
        from = 0;
    }
    let moved = tail.get(from..).unwrap_or_default();
    let bytes: usize =
        moved.iter().filter_map(|version| Some(version.image.as_ref()?.size())).sum();
    let is_base_alone = moved.len() == 1 && from == 0;
    if moved.len() > RENUMBERED_MAX || (bytes > IMAGE_BYTES_MAX && !is_base_alone) {
        return Err(TooLate(moved.len()));
    }
    Ok(moved)
}

fn merged(tail: &[Version], changes: &Changes) -> BTreeMap<Stamp, Place> {
    let known = tail
        .iter()
        .map(|version| (version.stamp.clone(), Place { version: version.clone(), change: None }));
    let mut places: BTreeMap<Stamp, Place> = known.collect();
    for (stamp, change) in changes.iter() {
        places.entry(stamp.clone()).or_insert_with(|| Place {
            version: Version {
                number: 0,
                stamp: stamp.clone(),
                event: change.event,
                image: change.image.clone(),
                at_seconds: change.at_seconds,
                by_ttl: change.by_ttl,
                event_id: change.event_id.clone(),
                expires_at: None,
            },
            change: Some(change.clone()),
        });
    }
    places
}

/// What the item was before its first change is that change's business: a base that was written for
/// a later one, or by a back-fill, gives way.
fn set_base(places: &mut BTreeMap<Stamp, Place>) {
    let lowest = Stamp::lowest();
    let first = places.iter().find(|(stamp, _)| **stamp != lowest);
    let Some((_, Place { change: Some(first), .. })) = first else { return };
    match first.before.clone() {
        Some(image) => {
            let base = Place { version: Version::base(image), change: None };
            places.insert(lowest, base);
        }
        None => {
            places.remove(&lowest);
        }
    }
}

/// Deletes the versions `first` to `cut`. Gives the number of the first one that is left.
fn delete(
    numbered: &mut BTreeMap<u64, Version>,
    writes: &mut Vec<Write>,
    first: u64,
    cut: u64,
) -> u64 {
    let start = numbered.keys().next().copied().unwrap_or(1);
    for number in first..=cut {
        numbered.remove(&number);
        // What is new would be put and deleted at once.
        if number < start {
            writes.push(Write::Delete(number));
        }
    }
    first.max(cut + 1)
}

/// Each version expires so many days after the one came that pushed it out of the last `keep_last`.
fn expire(
    numbered: &mut BTreeMap<u64, Version>,
    writes: &mut Vec<Write>,
    first: u64,
    keep_last: u64,
    keep_days: u32,
) {
    let kept_seconds = u64::from(keep_days) * DAY_SECONDS;
    let pushed_out: Vec<(u64, u64)> = numbered
        .values()
        .filter_map(|v| Some((v.number.checked_sub(keep_last)?, v.at_seconds? + kept_seconds)))
        .filter(|(number, _)| *number >= first.max(1))
        .collect();
    for (number, at_seconds) in pushed_out {
        match numbered.get_mut(&number) {
            Some(version) => version.expires_at = Some(at_seconds),
            None => writes.push(Write::Expire { number, at_seconds }),
        }
    }
}

#[cfg(test)]
mod tests {
    use model::{Item, Number};

    use super::super::history::VersionEvent;
    use super::*;

    fn stamp(sequence: u64) -> Stamp {
        Stamp::of_record("l", &sequence.to_string().parse().unwrap())
    }

    fn image(value: u64) -> Item {
        Item::new().with("v", Number::from(value))
    }

    /// The change with a sequence number, from the value of the one before it.
    fn change(sequence: u64) -> (Stamp, Change) {
        let change = Change {
            event: if sequence == 1 { VersionEvent::Insert } else { VersionEvent::Modify },
            image: Some(image(sequence)),
            before: (sequence > 1).then(|| image(sequence - 1)),
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
        fn add(&mut self, sequences: &[u64], retention: Retention) -> usize {
            let all = changes(sequences);
            let tail: Vec<Version> = self.versions.values().cloned().collect();
            let needed = self.head.as_ref().is_some_and(|head| head.needs_tail(&all));
            let tail = if needed { tail } else { Vec::new() };
            let missing = missing(self.head.as_ref(), &tail, &all);
            if missing.is_empty() {
                return 0;
            }
            let plan = plan(self.head.as_ref(), &tail, &missing, retention).unwrap();
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
            missing.len()
        }

        /// `number=value`, and `~` before a base.
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

    #[test]
    fn versions_are_numbered_by_the_order_of_their_changes() {
        for (batches, expected) in [
            (&[&[1, 2, 3][..]][..], "1=1 2=2 3=3"),
            (&[&[1], &[1], &[1, 2], &[2, 3]], "1=1 2=2 3=3"),
            // An item that was there before its history.
            (&[&[5], &[6, 7]], "1=~4 2=5 3=6 4=7"),
            // Late changes go to their places, and what was taken for the base gives way.
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

    #[test]
    fn a_back_filled_base_gives_way_to_the_first_change() {
        for (first, expected) in [(1, "1=1"), (5, "1=~4 2=5")] {
            let mut table = Table::default();
            table.versions.insert(1, Version::base(image(99)));
            table.head = Some(Head { latest: 1, first: 1, stamp: Stamp::lowest(), revision: 1 });
            table.add(&[first], ALL);
            assert_eq!(table.text(), expected);
        }
    }

    #[test]
    fn only_the_last_versions_are_kept() {
        let last = Retention { keep_last: Some(2), keep_days: 0 };
        let mut table = Table::default();
        table.add(&[1, 2, 3, 4, 5], last);
        assert_eq!(table.text(), "4=4 5=5");
        table.add(&[6], last);
        assert_eq!(table.text(), "5=5 6=6");
        // What is delivered again after it was pruned does not come back.
        assert_eq!(table.add(&[1, 2, 3, 4], last), 0);
        assert_eq!((table.text().as_str(), table.head.clone().unwrap().first), ("5=5 6=6", 5));

        // A setting that is lowered later prunes the rest over the next writes.
        let mut table = Table::default();
        table.add(&(1..=20).collect::<Vec<_>>(), ALL);
        table.add(&[21], last);
        assert_eq!(table.versions.len(), 21 - 9);
        table.add(&[22], last);
        table.add(&[23], last);
        assert_eq!(table.text(), "22=22 23=23");
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
    fn a_change_that_comes_too_late_is_an_error() {
        let mut table = Table::default();
        table.add(&[1], ALL);
        for sequence in 3..60 {
            table.add(&[sequence], ALL);
        }
        let tail: Vec<Version> = table.versions.values().cloned().collect();
        let late = plan(table.head.as_ref(), &tail, &changes(&[2]), ALL);
        assert_eq!(late, Err(TooLate(58)));
        // What is known already is not late.
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
        // The base is version 1, so 199 changes make 200 versions.
        assert_eq!(table.head.unwrap().latest, 200);
    }
}
