//! Plans: the writes that add changes to a history.
//!
//! **Why every delivery produces the same history.** Version *n* is the *n*-th change by stamp, so
//! a history depends only on the set of its known changes. Changes usually arrive in stream order
//! and are appended after the current version. A late change, for example of a discarded batch that
//! was redriven, is inserted at its position, and the numbers of the later versions increase by
//! one. [`RENUMBERED_MAX`] bounds the number of these versions. The stamp of a change shows whether
//! it is already known. If an item existed before its history, its first change contains the item
//! before the change. This item becomes version 1, the **base**.
//!
//! **Why a plan is never partially written.** A plan is written in one transaction that is
//! conditional on the head's revision. If two executors plan for the same history, one transaction
//! succeeds. The other executor reads the history again and plans again. The processor reads and
//! writes the items.

use std::collections::BTreeMap;

use thiserror::Error;

use super::change::{Change, Changes};
use super::history::{Head, Version, image_bytes};
use crate::stamp::Stamp;

/// The maximum number of changes that one plan adds. A plan also contains at most
/// [`RENUMBERED_MAX`] renumbered versions, a base, the head, and the versions that expire or are
/// pruned ([`PUSHED_OUT_MAX`] plus one for each added change). The sum is below the 100 operations
/// of a transaction.
pub const CHANGES_MAX: usize = 24;
/// The maximum number of versions that one plan renumbers because of a late change.
pub const RENUMBERED_MAX: usize = 24;
/// The maximum total size in bytes of the images that one plan adds, and of the images that it
/// renumbers. The base and the first image are always accepted and may add 400 KB each. A plan is
/// therefore below the 4 MB of a transaction.
pub const IMAGE_BYTES_MAX: usize = 1_500_000;
/// The maximum number of versions that one plan prunes or expires, in addition to one for each
/// added change.
const PUSHED_OUT_MAX: u64 = 8;
const DAY_SECONDS: u64 = 24 * 60 * 60;

/// The retention of versions. The current version is always kept. If the setting is raised later,
/// pruned versions are not restored and existing expiries do not change.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Retention {
    /// The number of last versions that are kept, at least 1; `None` if all are kept.
    pub keep_last: Option<u64>,
    /// The number of days for which a version is kept after it is no longer one of the last
    /// versions.
    pub keep_days: u32,
}

/// One write of a plan.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Write {
    /// Stores this version under its number.
    Put(Version),
    /// Sets the expiry of the version with this number, if it exists.
    Expire {
        /// The number of the version.
        number: u64,
        /// The expiry in seconds since 1970.
        at_seconds: u64,
    },
    /// Deletes the version with this number.
    Delete(u64),
}

/// The writes of one transaction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    /// The head with the next revision.
    pub head: Head,
    /// The writes of versions, by number.
    pub writes: Vec<Write>,
}

/// The error for a change that arrives so late that too many versions would have to be renumbered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error(
    "a change arrived after {0} later changes were recorded and can no longer be inserted: at most {RENUMBERED_MAX} versions with {IMAGE_BYTES_MAX} bytes in total can be renumbered"
)]
pub struct TooLate(usize);

/// Returns the changes that a history does not contain yet. `tail` has the last versions of the
/// history, ordered by number. It begins at or before the position of the earliest change, or with
/// the first existing version. If this first version is not version 1, changes before it count as
/// pruned, so they are not in the result.
#[must_use]
pub fn missing(head: Option<&Head>, tail: &[Version], changes: &Changes) -> Changes {
    let Some(head) = head else { return changes.clone() };
    let known: std::collections::BTreeSet<&Stamp> = tail.iter().map(|v| &v.stamp).collect();
    let first = tail.first().filter(|version| version.number > 1).map(|version| &version.stamp);
    changes.filtered(|stamp| {
        *stamp > head.stamp || (!known.contains(stamp) && first.is_none_or(|first| stamp > first))
    })
}

/// Returns the longest run of consecutive versions at the end. `versions` are ordered by number.
/// Versions before a gap count as pruned, because the position of a change before the gap is
/// unknown.
#[must_use]
pub fn unbroken(versions: Vec<Version>) -> Vec<Version> {
    let numbers = versions.iter().map(|version| version.number);
    let pairs = numbers.clone().zip(numbers.skip(1));
    let mut broken = pairs.enumerate().filter(|(_, (number, next))| number + 1 != *next);
    let from = broken.next_back().map_or(0, |(place, _)| place + 1);
    versions.into_iter().skip(from).collect()
}

impl Head {
    /// Returns whether the last versions must be read to add `changes`. They are not needed if all
    /// changes are later than the current version. A current version that is a base must always be
    /// read, because the first change may correct it.
    #[must_use]
    pub fn needs_tail(&self, changes: &Changes) -> bool {
        self.stamp == Stamp::lowest() || changes.earliest().is_some_and(|e| *e <= self.stamp)
    }
}

/// A version of the history that is being planned.
struct PlannedVersion {
    version: Version,
    /// The change of the version, if it is new.
    change: Option<Change>,
}

/// Plans the writes that add `changes` to a history. There are at most [`CHANGES_MAX`] changes, and
/// the history contains none of them (see [`missing`]). `tail` is the same as for [`missing`]. It
/// is empty if [`Head::needs_tail`] returns false, or if there is no head.
///
/// # Errors
/// When too many versions would have to be renumbered.
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
        // Without changes, the plan writes no item, and the head stays unchanged.
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

/// Returns the part of the tail that is renumbered: the versions after the earliest change. A base
/// directly before them is included, because the change may correct it.
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

fn merged(tail: &[Version], changes: &Changes) -> BTreeMap<Stamp, PlannedVersion> {
    let known = tail.iter().map(|version| {
        (version.stamp.clone(), PlannedVersion { version: version.clone(), change: None })
    });
    let mut places: BTreeMap<Stamp, PlannedVersion> = known.collect();
    for (stamp, change) in changes.iter() {
        places.entry(stamp.clone()).or_insert_with(|| PlannedVersion {
            version: Version {
                number: 0,
                stamp: stamp.clone(),
                event: change.event,
                image: change.image.clone(),
                at_seconds: change.at_seconds,
                by_ttl: change.by_ttl,
                event_id: change.event_id.clone(),
                expires_at: None,
                previous_fingerprint: change.previous_fingerprint,
            },
            change: Some(change.clone()),
        });
    }
    places
}

/// Sets the base to the item before the first change. This replaces a base from a later change or a
/// backfill. The base is removed if the item did not exist, or if it does not fit into a version.
///
/// A backfill records the time at which it read the item. This time is kept if the backfill read
/// the same item and the first change happened later. In any other case, the backfill read an item
/// that had already changed, so the time of the base is unknown.
fn set_base(places: &mut BTreeMap<Stamp, PlannedVersion>) {
    let lowest = Stamp::lowest();
    let first = places.iter().find(|(stamp, _)| **stamp != lowest);
    let Some((_, PlannedVersion { change: Some(first), .. })) = first else { return };
    match first.before.clone() {
        Some(image) => {
            let known = places.get(&lowest).map(|place| &place.version);
            let expires_at = known.and_then(|base| base.expires_at);
            let seen = known.filter(|base| base.image.as_ref() == Some(&image));
            let at_seconds = seen.and_then(|base| base.at_seconds);
            let changed_at = first.at_seconds;
            let at_seconds = at_seconds.filter(|at| changed_at.is_some_and(|it| *at <= it));
            let version = Version { expires_at, at_seconds, ..Version::base(image) };
            places.insert(lowest, PlannedVersion { version, change: None });
        }
        None => {
            places.remove(&lowest);
        }
    }
}

/// Deletes the versions `first` to `cut`. Before the plan, versions up to `latest_before` exist.
/// Returns the number of the first remaining version.
fn delete(
    numbered: &mut BTreeMap<u64, Version>,
    writes: &mut Vec<Write>,
    first: u64,
    cut: u64,
    latest_before: u64,
) -> u64 {
    for number in first..=cut {
        numbered.remove(&number);
        // A version with a higher number does not exist yet, and a transaction cannot both put and
        // delete it.
        if number <= latest_before {
            writes.push(Write::Delete(number));
        }
    }
    first.max(cut + 1)
}

/// Returns the number and the expiry of the last version with an expiry: the values of the head,
/// updated for late changes. A version that is inserted before an expiring version gets the same
/// expiry.
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

/// Sets the expiry of the versions with the numbers `those`. `kept` is the number of last versions
/// to keep, and the delay in seconds after which older versions expire. A version leaves the `kept`
/// last versions when a newer version is added. The delay counts from the time of this newer
/// version. No version expires before the previous version. Returns the number of the last version
/// with an expiry, and this expiry.
///
/// If `KEEP_LAST` was lowered, this newer version may not be in the plan. The delay then counts
/// from the time of the plan's first version, which is later.
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
        // If none of these versions has a time, a later change sets the expiry.
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
