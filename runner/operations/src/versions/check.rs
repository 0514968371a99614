//! `weir versions check`: compares every history with its item.
//!
//! A history is correct if its versions have no gap, begin at its head's first number, and end with
//! the version that the head names. This last version must equal the item, or be a deletion. A
//! quarantined change leaves no gap in the numbers. The check detects such a change because the
//! fingerprint in the next version differs from the previous version's item. Expired versions do
//! not count, because TTL deletes in no defined order. Marks of migrations do not count either.
//! Unreadable histories are reported. Differences are checked again one by one after a grace
//! period, because the function may be behind. The check writes nothing.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use model::Item;
use rules::Stamp;
use rules::versions::{Head, Version, fingerprint, fits_into_a_version};
use serde_json::json;

use super::backfill::key_text;
use super::reading::{Entry, each_entry};
use super::{Place, recheck};
use client::attribute::from_sdk_item;
use client::failure::{Context, Failure, Result, fatal};
use client::interruption;
use client::output::{Output, counted};
use client::table_description::key_attributes;

/// Maximum number of histories in memory. Each takes about 200 bytes.
const HISTORIES_MAX: usize = 5_000_000;
/// Maximum number of differences in the report.
const NAMED_MAX: usize = 10;

/// The message for a history in which a change is missing.
const LACKS_CHANGE: &str =
    "lacks a change: a version does not follow directly from the previous one";
/// The message for a history without the item's initial state.
const LACKS_BASE: &str =
    "lacks the item's initial state: the item existed before its first version was recorded";

/// The result of a check.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// Number of items of the table.
    pub items: u64,
    /// Number of items with a history.
    pub histories: u64,
    /// Number of versions in all histories.
    pub versions: u64,
    /// The faults, by item.
    pub wrong: BTreeMap<String, &'static str>,
}

impl Report {
    /// Returns true if the report contains no fault.
    #[must_use]
    pub fn is_clean(&self) -> bool {
        self.wrong.is_empty()
    }

    pub(super) fn text(&self, output: Output) -> String {
        if output != Output::Table {
            let named: BTreeMap<_, _> = self.wrong.iter().take(NAMED_MAX).collect();
            return format!(
                "{}\n",
                json!({
                    "schema": "weir.versions.check/v1", "items": self.items, "histories": self.histories,
                    "versions": self.versions, "wrong": self.wrong.len(), "samples": named,
                })
            );
        }
        let mut text = format!(
            "{}, {} with {}, {} wrong\n",
            counted(self.items, "item", "items"),
            counted(self.histories, "history", "histories"),
            counted(self.versions, "version", "versions"),
            self.wrong.len()
        );
        for (item, what) in self.wrong.iter().take(NAMED_MAX) {
            text.push_str(&format!("  {item}: {what}\n"));
        }
        text
    }
}

/// The properties of one history that the check compares.
#[derive(Debug, Default)]
pub(super) struct History {
    pub(super) head: Option<Head>,
    lowest: u64,
    highest: u64,
    pub(super) count: u64,
    /// The fingerprint of the image of the highest version; `None` for a deletion.
    image: Option<u128>,
    /// The stamp of the highest version, which orders changes in time.
    stamp: Option<Stamp>,
    /// The message about missing changes, if the versions show that changes are missing.
    lacks: Option<&'static str>,
    /// The message about an unreadable entry, if the history has an unreadable entry.
    damage: Option<&'static str>,
}

impl History {
    /// Returns a history without versions.
    pub(super) fn of(head: Option<Head>) -> Self {
        Self { head, ..Self::default() }
    }

    /// Returns a history with an unreadable entry.
    pub(super) fn damaged(damage: &'static str) -> Self {
        Self { damage: Some(damage), ..Self::default() }
    }

    /// Adds a version, if it has not expired.
    pub(super) fn add(&mut self, version: &Version, now_seconds: u64) {
        if version.expires_at.is_some_and(|at| at <= now_seconds) {
            return;
        }
        self.count += 1;
        let is_first = self.count == 1;
        // A query returns the versions of an item in order.
        let is_behind = !is_first && version.number == self.highest + 1;
        if version.lacks_base() {
            self.lacks.get_or_insert(LACKS_BASE);
        }
        let begins_anew = self.stamp.as_ref().is_some_and(|stamp| version.begins_anew(stamp));
        if is_behind && !begins_anew && !version.is_next_to(self.image) {
            self.lacks.get_or_insert(LACKS_CHANGE);
        }
        self.lowest = if is_first { version.number } else { self.lowest.min(version.number) };
        if version.number > self.highest {
            self.highest = version.number;
            self.image = version.image.as_ref().map(fingerprint);
            self.stamp = Some(version.stamp.clone());
        }
    }
}

/// Compares all histories. Checks differences again after the grace period.
///
/// # Errors
/// When a table cannot be read.
pub async fn run(place: &Place, grace_seconds: u64) -> Result<Report> {
    let mut report = look(place).await?;
    if report.is_clean() {
        return Ok(report);
    }
    let different = report.wrong.len();
    tracing::info!(
        "{different} histories differ from their items; checking again in {grace_seconds} s"
    );
    let grace = Duration::from_secs(grace_seconds);
    tokio::time::sleep(grace).await;
    if report.wrong.len() > recheck::HISTORIES_MAX {
        let before = std::mem::replace(&mut report, look(place).await?).wrong;
        report.wrong.retain(|item, _| before.contains_key(item));
    }
    if report.wrong.len() <= recheck::HISTORIES_MAX {
        report.wrong = recheck::retain_wrong(place, report.wrong, grace).await?;
    }
    Ok(report)
}

/// Returns the fault of a history, or the difference between the history and its item; `None` if
/// both are correct.
pub(super) fn verdict(
    text: &str,
    history: Option<&History>,
    item: Option<&Item>,
) -> Option<&'static str> {
    // An unreadable history cannot be checked further.
    if let Some(damage) = history.and_then(|history| history.damage) {
        return Some(damage);
    }
    let compared = match (history, item) {
        (Some(history), Some(item)) if history.image == Some(fingerprint(item)) => None,
        (_, Some(item)) if fits_into_a_version(text, Some(item)).is_err() => {
            Some("does not fit into a version")
        }
        (None, Some(_)) => Some("has no history"),
        (Some(_), Some(_)) => Some("differs from its current version in the history"),
        (Some(history), None) if history.image.is_some() => {
            Some("was deleted, but its history has no deletion")
        }
        (_, None) => None,
    };
    compared.or_else(|| history.and_then(gap)).or_else(|| history.and_then(|it| it.lacks))
}

async fn look(place: &Place) -> Result<Report> {
    let mut histories: BTreeMap<String, History> = BTreeMap::new();
    let mut report = Report::default();
    let now = place.now().await;
    each_entry(place, |entry| {
        match entry {
            Entry::Head(item, head) => histories.entry(item).or_default().head = Some(head),
            Entry::Version(item, version) => {
                report.versions += 1;
                histories.entry(item).or_default().add(&version, now);
            }
            Entry::Damaged(item, what, reason) => {
                tracing::warn!("{item} {what}: {reason}");
                histories.entry(item).or_default().damage = Some(what);
            }
        }
        interruption::reached(format!("{} versions read", report.versions));
        histories.len() < HISTORIES_MAX
    })
    .await?;
    if histories.len() >= HISTORIES_MAX {
        return Err(fatal!(
            "table `{}` has {HISTORIES_MAX} histories or more, which do not fit into memory",
            place.history
        ));
    }
    report.histories = histories.len() as u64;
    let keys = key_attributes(&place.client, &place.table).await?;
    let mut seen = BTreeSet::new();
    let scan = place.client.scan().table_name(&place.table).consistent_read(true);
    let mut items = scan.into_paginator().items().send();
    while let Some(item) = items.next().await {
        let item = item.map_err(Failure::from).and_then(from_sdk_item);
        let item = item.context(|| format!("cannot read table `{}`", place.table))?;
        report.items += 1;
        interruption::reached(format!("{} items of `{}` compared", report.items, place.table));
        let text = key_text(&keys, &item);
        if let Some(what) = verdict(&text, histories.get(&text), Some(&item)) {
            report.wrong.insert(text.clone(), what);
        }
        seen.insert(text);
    }
    for (item, history) in &histories {
        if !seen.contains(item)
            && let Some(what) = verdict(item, Some(history), None)
        {
            report.wrong.insert(item.clone(), what);
        }
    }
    Ok(report)
}

/// Returns the gap in a history, without comparing the item; `None` if the history has no gap.
fn gap(history: &History) -> Option<&'static str> {
    let Some(head) = &history.head else { return Some("has versions but no head") };
    if history.count == 0 || history.highest != head.latest {
        return Some("has a head that does not name the last version");
    }
    if history.highest - history.lowest + 1 != history.count {
        return Some("has a gap between two versions");
    }
    // Versions before `first` were deleted by number; versions up to `expiring` may have expired.
    let begins_at = head.first.max(head.expiring + 1);
    (history.lowest > begins_at).then_some("has no versions at its beginning")
}

#[cfg(test)]
mod tests {
    use model::Number;
    use rules::versions::VersionEvent;

    use super::*;

    #[test]
    fn gaps_are_found() {
        let head = |latest| Some(Head { latest, ..Head::of_base() });
        let kept = |first, expiring| Some(Head { latest: 9, first, expiring, ..Head::of_base() });
        let beheaded = Some("has no versions at its beginning");
        let history =
            |head, lowest, highest, count| History { lowest, highest, count, ..History::of(head) };
        for (history, expected) in [
            (history(head(3), 1, 3, 3), None),
            (history(head(9), 7, 9, 3), beheaded),
            // Versions are removed by number, then by age (some still exist), then first by number
            // and later by age.
            (history(kept(7, 0), 7, 9, 3), None),
            (history(kept(7, 0), 8, 9, 2), beheaded),
            (history(kept(1, 6), 7, 9, 3), None),
            (history(kept(1, 6), 5, 9, 5), None),
            (history(kept(1, 6), 8, 9, 2), beheaded),
            (history(kept(7, 3), 8, 9, 2), beheaded),
            (history(kept(3, 6), 7, 9, 3), None),
            (history(kept(1, 8), 9, 9, 1), None),
            (history(head(3), 1, 3, 2), Some("has a gap between two versions")),
            (history(head(4), 1, 3, 3), Some("has a head that does not name the last version")),
            (history(head(1), 0, 0, 0), Some("has a head that does not name the last version")),
            (history(None, 1, 3, 3), Some("has versions but no head")),
        ] {
            assert_eq!(gap(&history), expected, "{history:?}");
        }
    }

    #[test]
    fn expired_versions_leave_no_gap() {
        let head = Head { latest: 4, expiring: 3, expiring_at: 101, ..Head::of_base() };
        let mut history = History { head: Some(head), ..History::default() };
        // TTL has deleted version 2 but not yet version 1.
        for (number, expires_at) in [(1, Some(50)), (3, Some(101)), (4, None)] {
            let version = Version { number, expires_at, ..Version::base(Item::new()) };
            history.add(&version, 100);
        }
        assert_eq!((history.lowest, history.highest, history.count), (3, 4, 2));
        assert_eq!(gap(&history), None);
    }

    /// A quarantined change is reported as missing while the versions before and after it exist.
    #[test]
    fn a_change_that_no_version_has_is_missed() {
        let item = |value: u64| Item::new().with("v", Number::from(value));
        let version = |number: u64, before: u64, value: u64| Version {
            number,
            event: VersionEvent::Modify,
            previous_fingerprint: Some(fingerprint(&item(before))),
            ..Version::base(item(value))
        };
        let base = Version::base(item(1));
        let from_then_on = Version { expires_at: Some(50), ..version(2, 1, 2) };
        for (versions, expected) in [
            (vec![base.clone(), version(2, 1, 2), version(3, 2, 4)], None),
            (vec![base.clone(), version(2, 1, 2), version(3, 3, 4)], Some(LACKS_CHANGE)),
            (vec![version(1, 3, 4)], Some(LACKS_BASE)),
            // Expired versions are not checked.
            (vec![from_then_on, version(3, 3, 4)], None),
        ] {
            let mut history = History::of(Some(Head { latest: 3, ..Head::of_base() }));
            versions.iter().for_each(|version| history.add(version, 100));
            assert_eq!(history.lacks, expected, "{versions:?}");
        }
    }
}
