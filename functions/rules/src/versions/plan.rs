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
use super::history::{Head, Version, image_bytes};
use crate::stamp::Stamp;

/// Changes that one plan adds at most. With as many that move, a base, the head, and what it makes
/// expire or prunes, which is [`PUSHED_OUT_MAX`] and as many as it adds, a plan has less than the
/// 100 operations of a transaction.
pub const CHANGES_MAX: usize = 24;
/// Versions that one plan moves at most because a change came late.
pub const RENUMBERED_MAX: usize = 24;
/// Bytes of images that one plan adds at most, and that it moves at most: with 400 KB more for a
/// base and one image that is always taken, below the 4 MB of a transaction.
pub const IMAGE_BYTES_MAX: usize = 1_500_000;
/// Versions that one plan prunes or makes expire at most beside those that its own changes push out.
const PUSHED_OUT_MAX: u64 = 8;
const DAY_SECONDS: u64 = 24 * 60 * 60;

/// How long versions are kept. The current one always is. What was pushed out stays so when more are
/// kept later.
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

/// The last of some versions, ordered by number, that follow one another. What is before a missing
/// one is as good as pruned: what came behind it has no place that could be told.
#[must_use]
pub fn unbroken(versions: Vec<Version>) -> Vec<Version> {
    let numbers = versions.iter().map(|version| version.number);
    let pairs = numbers.clone().zip(numbers.skip(1));
    let mut broken = pairs.enumerate().filter(|(_, (number, next))| number + 1 != *next);
    let from = broken.next_back().map_or(0, |(place, _)| place + 1);
    versions.into_iter().skip(from).collect()
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
        return Ok(Plan { head: head.cloned().unwrap_or_else(Head::of_base), writes });
    };
    let stamp = last.stamp.clone();
    let first_before = head.map_or(1, |head| head.first);
    let pushed_out_max = PUSHED_OUT_MAX + u64::try_from(changes.len()).unwrap_or(0);
    let (mut expiring, mut first) = (expiring(head, &mut numbered), first_before);
    if let Some(count) = retention.keep_last.map(|count| count.max(1)) {
        let cut = latest.saturating_sub(count);
        if retention.keep_days == 0 {
            let cut = cut.min((first_before - 1).saturating_add(pushed_out_max));
            first = delete(&mut numbered, &mut writes, first_before, cut, latest_before);
        } else {
            let from = first_before.max(expiring.0 + 1);
            let those = from..=cut.min((from - 1).saturating_add(pushed_out_max));
            let kept = (count, u64::from(retention.keep_days) * DAY_SECONDS);
            expiring = expire(&mut numbered, &mut writes, those, kept, expiring);
        }
    }
    let is_as_it_was = |version: &Version| tail.iter().any(|known| known == version);
    writes.extend(numbered.into_values().filter(|version| !is_as_it_was(version)).map(Write::Put));
    writes.extend((latest + 1..=latest_before).map(Write::Delete));
    let revision = head.map_or(0, |head| head.revision) + 1;
    let (expiring, expiring_at) = expiring;
    Ok(Plan { head: Head { latest, first, stamp, revision, expiring, expiring_at }, writes })
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
    let bytes: usize = moved.iter().filter_map(|v| Some(image_bytes(v.image.as_ref()?))).sum();
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
                follows: change.follows,
            },
            change: Some(change.clone()),
        });
    }
    places
}

/// What the item was before its first change is that change's business: a base that was written for
/// a later one, or by a back-fill, gives way. It gives way to nothing when the item was not there, or
/// when what it was does not fit into a version.
///
/// A back-fill says when it saw the item. That is still right if the item is what it saw and was
/// first changed after that; otherwise what it saw was already changed, and nobody knows since when
/// the item was what it was before.
fn set_base(places: &mut BTreeMap<Stamp, Place>) {
    let lowest = Stamp::lowest();
    let first = places.iter().find(|(stamp, _)| **stamp != lowest);
    let Some((_, Place { change: Some(first), .. })) = first else { return };
    match first.before.clone() {
        Some(image) => {
            let known = places.get(&lowest).map(|place| &place.version);
            let expires_at = known.and_then(|base| base.expires_at);
            let seen = known.filter(|base| base.image.as_ref() == Some(&image));
            let at_seconds = seen.and_then(|base| base.at_seconds);
            let changed_at = first.at_seconds;
            let at_seconds = at_seconds.filter(|at| changed_at.is_some_and(|it| *at <= it));
            let version = Version { expires_at, at_seconds, ..Version::base(image) };
            places.insert(lowest, Place { version, change: None });
        }
        None => {
            places.remove(&lowest);
        }
    }
}

/// Deletes the versions `first` to `cut`, of which those up to `latest_before` are there. Gives the
/// number of the first one that is left.
fn delete(
    numbered: &mut BTreeMap<u64, Version>,
    writes: &mut Vec<Write>,
    first: u64,
    cut: u64,
    latest_before: u64,
) -> u64 {
    for number in first..=cut {
        numbered.remove(&number);
        // A number behind those is new: it would be put and deleted at once.
        if number <= latest_before {
            writes.push(Write::Delete(number));
        }
    }
    first.max(cut + 1)
}

/// The number of the last version that was told when it expires, and when: what the head says of it,
/// after those that came late went to their places. What comes before a version that expires goes
/// with it.
fn expiring(head: Option<&Head>, numbered: &mut BTreeMap<u64, Version>) -> (u64, u64) {
    let (before, at) = head.map_or((0, 0), |head| (head.expiring, head.expiring_at));
    let mut next = None;
    for version in numbered.values_mut().rev() {
        version.expires_at = version.expires_at.or(next);
        next = version.expires_at;
    }
    match numbered.first_key_value() {
        Some((start, _)) if *start <= before => {
            let told = numbered.values().map_while(|v| Some((v.number, v.expires_at?)));
            told.last().unwrap_or((start - 1, 0))
        }
        _ => (before, at),
    }
}

/// `those` versions expire so many seconds after the one came that pushed each of them out of the
/// last so many (`kept`), one behind the other. Gives the last one that was told so, and when.
///
/// When a setting was lowered, that one is not among those of the plan; then the first one of the
/// plan stands for it, which came later.
fn expire(
    numbered: &mut BTreeMap<u64, Version>,
    writes: &mut Vec<Write>,
    those: std::ops::RangeInclusive<u64>,
    kept: (u64, u64),
    mut expiring: (u64, u64),
) -> (u64, u64) {
    let (keep_last, kept_seconds) = kept;
    for number in those {
        let pushed_out_at = numbered.range(number + keep_last..).find_map(|(_, v)| v.at_seconds);
        // Without a time, it waits for the next change.
        let Some(pushed_out_at) = pushed_out_at else { break };
        let at_seconds = expiring.1.max(pushed_out_at + kept_seconds);
        match numbered.get_mut(&number) {
            Some(version) => version.expires_at = Some(at_seconds),
            None => writes.push(Write::Expire { number, at_seconds }),
        }
        expiring = (number, at_seconds);
    }
    expiring
}

#[cfg(test)]
mod tests;
