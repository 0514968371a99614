//! One copy of an origin: its required values, and their check.
//!
//! **Why a check of a copy converges with jobs.** A check reads the copy, its origin's job, the
//! origin, and the copy again, all strongly consistent. If the job is as of stamp *s*, the origin's
//! value is as of *s* or later. The check writes this value with the stamp `s+<revision>`, which is
//! after *s* and before every later stamp. It writes only while the copy still has the mark that
//! was read last. A later change of the origin has a later stamp, and its job overwrites the
//! check's value. That job finds the copy, because the copy existed before the check. If the index
//! does not show the copy yet, the sampled self-check repairs it later.
//!
//! A job is written before its mark is written to any copy. If a check reads a mark and then a job
//! with an older stamp, the job of the mark was lost. The check then uses the stamp of the mark
//! instead of the stamp of the job.
//!
//! **Why a copy is never deleted while its origin exists.** A worker deletes a copy in three steps.
//! It writes a unique mark to the copy. It reads the origin. If the origin does not exist, it
//! deletes the copy on the condition that the copy still has the mark. If the origin is created
//! again before the read, the worker finds it. A copy that a client creates later lacks the mark.
//! Another worker's mark may have been written after the origin was read, so the worker replaces it
//! by its own mark, see [`CopyRule::marked_for_deletion`].

use std::collections::BTreeMap;
use std::iter;

use model::{AttributeValue, Item};

use super::copy_rule::{CopyRule, OnDelete};
use super::{HOPS_MAX, Origin, value_text};
use crate::marks::copy::Mark;
use crate::stamp::Stamp;

/// The hops of a mark for deletion. A mark of values has at least one hop.
const HOPS_OF_DELETION: u32 = 0;

/// The state of an origin, which its copies must have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OriginState {
    /// The stamp of the state.
    pub stamp: Stamp,
    /// The number of deployments through which the values have passed, including this deployment.
    pub hops: u32,
    /// The values by attribute of the copy; `None` if the origin lacks the attribute. If the origin
    /// was deleted, these are its last values.
    pub values: BTreeMap<String, Option<AttributeValue>>,
    /// Whether the origin was deleted.
    pub deleted: bool,
    /// The time of the deletion in seconds since 1970, if the record contains it.
    pub gone_at: Option<u64>,
}

/// A write to a copy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Update {
    /// Sets these attributes and the mark. An attribute without a value is removed.
    Set {
        /// The values by attribute of the copy.
        values: BTreeMap<String, Option<AttributeValue>>,
        /// The mark.
        mark: Mark,
    },
    /// Deletes the copy on the condition that it has this mark. The origin must have been read
    /// after the mark was written.
    Delete {
        /// The mark for deletion, see [`Update::marking`].
        mark: Mark,
    },
}

impl Update {
    /// Returns the write that must precede this write and the read of the origin. Returns `None` if
    /// this write needs no preceding write.
    #[must_use]
    pub fn marking(&self) -> Option<Self> {
        match self {
            Self::Set { .. } => None,
            Self::Delete { mark } => {
                Some(Self::Set { values: BTreeMap::new(), mark: mark.clone() })
            }
        }
    }
}

/// The results of the reads of a check, in the order of the reads.
#[derive(Clone, Copy, Debug)]
pub struct CopyReads<'s> {
    /// The copy, read first.
    pub before: &'s Item,
    /// The state in the job of its origin.
    pub job: Option<&'s OriginState>,
    /// The origin.
    pub origin: Option<&'s Item>,
    /// The copy, read last.
    pub copy: &'s Item,
    /// A unique number, greater than all earlier nonces, to distinguish workers' deletion marks.
    pub nonce: u64,
    /// The number of deployments through which the copy's values have passed, according to the
    /// record that requested the check; `None` if no record requested it.
    pub arrival: Option<u32>,
}

/// The result of a check of a copy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CheckResult {
    /// The copy has the correct values, or no origin prescribes its values.
    UpToDate,
    /// The copy has a later stamp than the origin's state that was read. Check the copy again.
    CheckAgain,
    /// Write this update on the condition that the copy still has the mark that was read.
    Write(Update),
    /// Write this mark if the copy still has the mark that was read. Then check the copy again.
    Mark(Update),
    /// The copy is wrong, but for this reason it must not be written.
    Refuse(String),
}

impl CopyRule {
    /// Returns the origin of a copy; `None` if the copy has no origin.
    #[must_use]
    pub fn origin_of(&self, copy: &Item) -> Option<Origin> {
        let key = copy.get(&self.index_key).filter(|key| super::is_key(key))?;
        Some(Origin { rule: self.name.clone(), key: value_text(key) })
    }

    /// Returns the values that the copies of an origin must have.
    #[must_use]
    pub fn values_of(&self, origin: &Item) -> BTreeMap<String, Option<AttributeValue>> {
        let pairs = self.attributes.iter();
        pairs.map(|(to, from)| (to.clone(), origin.get(from).cloned())).collect()
    }

    /// Returns whether a copy that was changed from `old` to `new` must be checked. There are three
    /// reasons. The copy may lack its origin's values. Another writer changed copied values. The
    /// copy's place in the index changed, so a running job may already have passed the new place.
    ///
    /// A write by Weir keeps the origin and increases the mark. If the mark became lower or the
    /// origin changed with it, a client wrote back an item that it had read earlier. The copy is
    /// then checked even if the values are equal, because a deletion may depend on the mark.
    ///
    /// Checks do not trigger each other endlessly. A job writes only over an older mark, and a
    /// check increments the revision. A check that marks a copy for deletion uses a nonce that is
    /// greater than every incremented revision. If two checks mark the same copy at the same time,
    /// the later mark may be lower. The next check then deletes the copy, or finds the origin and
    /// writes a greater mark.
    pub(super) fn wants_look(&self, old: Option<&Item>, new: &Item) -> bool {
        let name = super::mark_attribute(&self.name);
        let (Some(mark), Some(origin)) = (text_of(new, &name), new.get(&self.index_key)) else {
            return true;
        };
        let origin = value_text(origin);
        if Mark::parse(mark).is_none_or(|mark| mark.origin != origin) {
            return true;
        }
        let Some(old) = old else { return true };
        let is_moved = self.place_attributes().any(|name| old.get(name) != new.get(name));
        if !is_moved && Mark::is_raised(&origin, text_of(old, &name), mark) {
            return false;
        }
        is_moved
            || text_of(old, &name) != Some(mark)
            || self.attributes.keys().any(|to| old.get(to) != new.get(to))
    }
}

impl CopyRule {
    /// Returns the copy's mark if another worker marked the copy for the same deletion as `mark`.
    /// Returns `None` for a copy of another origin or with any other mark.
    #[must_use]
    pub fn marked_for_deletion(&self, copy: &Item, mark: &Mark) -> Option<Mark> {
        let text = text_of(copy, &super::mark_attribute(&self.name))?;
        let seen = Mark::parse(text)?;
        let is_of_it = self.origin_of(copy)?.key == mark.origin
            && seen.origin == mark.origin
            && seen.stamp.base() == mark.stamp.base()
            && seen.hops == HOPS_OF_DELETION;
        // The write condition compares strings, so it cannot match a mark in another format.
        (is_of_it && seen.text() == text).then_some(seen)
    }

    /// Returns the attributes that, with the primary key, determine a copy's place in the index.
    pub(super) fn place_attributes(&self) -> impl Iterator<Item = &String> {
        iter::once(&self.index_key).chain(&self.index_sort)
    }
}

fn text_of<'i>(item: &'i Item, attribute: &str) -> Option<&'i str> {
    item.get(attribute).and_then(AttributeValue::as_str)
}

/// Returns the update that a job must write to each copy. Copies that outlive their origin get its
/// last values, so the order in which records arrive does not affect their final state. For `nonce`
/// see [`CopyReads::nonce`].
#[must_use]
pub fn update_of(rule: &CopyRule, origin: &Origin, state: &OriginState, nonce: u64) -> Update {
    let mark = Mark { origin: origin.key.clone(), stamp: state.stamp.clone(), hops: state.hops };
    match rule.on_delete {
        OnDelete::Cascade if state.deleted => {
            let stamp = state.stamp.reconciled(nonce);
            Update::Delete { mark: Mark { stamp, hops: HOPS_OF_DELETION, ..mark } }
        }
        OnDelete::Clear if state.deleted => Update::Set { values: cleared(rule), mark },
        _ => Update::Set { values: state.values.clone(), mark },
    }
}

fn cleared(rule: &CopyRule) -> BTreeMap<String, Option<AttributeValue>> {
    rule.attributes.keys().map(|to| (to.clone(), None)).collect()
}

/// Returns whether a copy holds these values.
#[must_use]
pub fn is_as_wanted(copy: &Item, values: &BTreeMap<String, Option<AttributeValue>>) -> bool {
    values.iter().all(|(name, value)| copy.get(name) == value.as_ref())
}

/// Returns the result of a check of a copy.
#[must_use]
pub fn look(rule: &CopyRule, sight: &CopyReads<'_>) -> CheckResult {
    let CopyReads { before, job, origin, copy, nonce, arrival } = *sight;
    let Some(key) = copy.get(&rule.index_key).filter(|key| super::is_key(key)) else {
        return CheckResult::UpToDate;
    };
    let key = value_text(key);
    let seen = mark_of(rule, copy, &key);
    let base = seen.as_ref().map_or_else(Stamp::lowest, |mark| mark.stamp.base());
    // The job was read after this mark. If the job is older, the job of the mark was lost.
    let lost = mark_of(rule, before, &key).map(|mark| mark.stamp.base());
    let job = job.filter(|job| lost.as_ref().is_none_or(|lost| *lost <= job.stamp));
    let known = job.map(|job| job.stamp.clone()).or(lost).unwrap_or_else(Stamp::lowest);
    if base > known {
        return CheckResult::CheckAgain;
    }
    let values = match origin {
        Some(origin) => rule.values_of(origin),
        // An origin that never existed may still be created. The rule decides about deletions.
        None => match (job.filter(|job| job.deleted), rule.on_delete) {
            (None, _) => return CheckResult::UpToDate,
            (Some(job), OnDelete::Keep) => job.values.clone(),
            (Some(_), OnDelete::Clear) => cleared(rule),
            (Some(_), OnDelete::Cascade) => {
                let stamp = known.reconciled(nonce);
                let mark = Mark { origin: key, stamp, hops: HOPS_OF_DELETION };
                let delete = Update::Delete { mark: mark.clone() };
                return match delete.marking() {
                    Some(marking) if seen != Some(mark) => CheckResult::Mark(marking),
                    _ => CheckResult::Write(delete),
                };
            }
        },
    };
    if seen.is_some() && is_as_wanted(copy, &values) {
        return CheckResult::UpToDate;
    }
    let hops = hops_of_origin(rule, job, origin, &values).max(hops_of_arrival(rule, copy, arrival));
    if hops > HOPS_MAX {
        return CheckResult::Refuse(super::loop_of(hops));
    }
    let revision =
        seen.filter(|_| base == known).map_or(0, |mark| mark.stamp.revision().saturating_add(1));
    let mark = Mark { origin: key, stamp: known.reconciled(revision), hops };
    CheckResult::Write(Update::Set { values, mark })
}

/// Returns the number of deployments through which the values of an origin have passed. If the job
/// holds exactly these values, its number applies. Otherwise, the highest number of any mark on the
/// origin applies, because any of them may belong to the values.
fn hops_of_origin(
    rule: &CopyRule,
    job: Option<&OriginState>,
    origin: Option<&Item>,
    values: &BTreeMap<String, Option<AttributeValue>>,
) -> u32 {
    match job.filter(|job| job.values == *values) {
        Some(job) => job.hops,
        None => super::hops_of(&rule.writers, None, origin),
    }
}

/// Returns the number of deployments through which the copy's values have passed. Without a record
/// that gives the number, a mark counts only if it has more than [`HOPS_MAX`] hops, so that a
/// self-check does not restart a stopped loop. Other marks do not count in this case: two
/// deployments that write to the same items would increment each other's numbers.
fn hops_of_arrival(rule: &CopyRule, copy: &Item, arrival: Option<u32>) -> u32 {
    let there = || super::hops_of(&rule.siblings, None, Some(copy));
    arrival.or_else(|| Some(there()).filter(|hops| *hops > HOPS_MAX)).unwrap_or(1)
}

/// Returns the mark of a copy; `None` if it is not a mark of this origin.
fn mark_of(rule: &CopyRule, copy: &Item, origin: &str) -> Option<Mark> {
    let mark = Mark::parse(text_of(copy, &super::mark_attribute(&rule.name))?)?;
    (mark.origin == origin).then_some(mark)
}

#[cfg(test)]
mod tests {
    use super::super::parse_rules;
    use super::*;

    fn rule(on_delete: &str) -> CopyRule {
        parse_rules(&format!(
            "- {{name: r, from: aaa, to: bbb, index: i, key: {{aid: id}}, attributes: {{n: name}}, on-delete: {on_delete}}}"
        ))
        .unwrap()
        .remove(0)
    }

    fn stamp(sequence: u64) -> Stamp {
        Stamp::of_record("l", &sequence.to_string().parse().unwrap())
    }

    fn state(sequence: u64, name: Option<&str>) -> OriginState {
        let values = [("n".to_owned(), Some(name.unwrap_or("last").into()))].into();
        let (stamp, deleted) = (stamp(sequence), name.is_none());
        OriginState { stamp, hops: 1, values, deleted, gone_at: None }
    }

    fn copy(name: Option<&str>, mark: Option<Stamp>) -> Item {
        let mut copy = Item::new().with("aid", "1");
        if let Some(name) = name {
            copy = copy.with("n", name);
        }
        if let Some(stamp) = mark {
            let mark = Mark { origin: r#"{"S":"1"}"#.to_owned(), stamp, hops: 1 };
            copy = copy.with("_from_r", mark.text());
        }
        copy
    }

    fn written(look: CheckResult) -> String {
        match look {
            CheckResult::UpToDate => "in order".to_owned(),
            CheckResult::CheckAgain => "again".to_owned(),
            CheckResult::Refuse(reason) => reason,
            CheckResult::Write(Update::Delete { .. }) => "delete".to_owned(),
            CheckResult::Mark(Update::Delete { .. }) => "delete at once".to_owned(),
            CheckResult::Mark(Update::Set { mark, .. }) => format!("mark {}", mark.stamp),
            CheckResult::Write(Update::Set { values, mark }) => {
                let value =
                    values["n"].as_ref().map_or("-".to_owned(), |v| v.as_str().unwrap().to_owned());
                format!("{value} {}", mark.stamp)
            }
        }
    }

    /// Returns the result of a check as a string. The check reads the same copy both times.
    fn check_text(
        rule: &CopyRule,
        job: Option<&OriginState>,
        origin: Option<&Item>,
        copy: &Item,
    ) -> String {
        written(look(rule, &CopyReads { before: copy, job, origin, copy, nonce: 3, arrival: None }))
    }

    #[test]
    fn checks_of_copies() {
        let origin = Item::new().with("id", "1").with("name", "new");
        let keep = rule("keep");
        let base = |sequence| stamp(sequence).as_str().to_owned();
        let zeros = "0".repeat(19);
        for (job, origin, copy, expected) in [
            // A new copy without values.
            (
                Some(state(5, Some("new"))),
                Some(&origin),
                copy(None, None),
                format!("new {}+{zeros}0", base(5)),
            ),
            (None, Some(&origin), copy(None, None), format!("new /{}+{zeros}0", "0".repeat(40))),
            // The copy was already written from its origin.
            (
                Some(state(5, Some("new"))),
                Some(&origin),
                copy(Some("new"), Some(stamp(5))),
                "in order".to_owned(),
            ),
            // Another writer changed the copy after the job, and again after a check.
            (
                Some(state(5, Some("new"))),
                Some(&origin),
                copy(Some("x"), Some(stamp(5))),
                format!("new {}+{zeros}1", base(5)),
            ),
            (
                Some(state(5, Some("new"))),
                Some(&origin),
                copy(Some("x"), Some(stamp(5).reconciled(1))),
                format!("new {}+{zeros}2", base(5)),
            ),
            // The job that wrote the mark was lost, or a late record replaced the job.
            (
                Some(state(5, Some("old"))),
                Some(&origin),
                copy(Some("x"), Some(stamp(6))),
                format!("new {}+{zeros}1", base(6)),
            ),
            // The origin does not exist yet, or no longer exists.
            (None, None, copy(None, None), "in order".to_owned()),
            (
                Some(state(5, None)),
                None,
                copy(Some("x"), Some(stamp(4))),
                format!("last {}+{zeros}0", base(5)),
            ),
            (Some(state(5, None)), None, copy(Some("last"), Some(stamp(5))), "in order".to_owned()),
        ] {
            assert_eq!(check_text(&keep, job.as_ref(), origin, &copy), expected);
        }
        assert_eq!(
            check_text(&rule("clear"), Some(&state(5, None)), None, &copy(Some("x"), None)),
            format!("- {}+{zeros}0", base(5))
        );
        // A job wrote between the two reads of the copy.
        let (before, after) = (copy(Some("x"), Some(stamp(5))), copy(Some("y"), Some(stamp(6))));
        let job = state(5, Some("new"));
        let sight = CopyReads {
            before: &before,
            job: Some(&job),
            origin: Some(&origin),
            copy: &after,
            nonce: 3,
            arrival: None,
        };
        assert_eq!(written(look(&keep, &sight)), "again");
    }

    #[test]
    fn a_check_refuses_a_value_of_a_loop() {
        // The job has older values than the origin.
        let (keep, job) = (rule("keep"), state(5, Some("old")));
        let origin = |hops| {
            let mark = Mark { origin: r#"{"S":"0"}"#.to_owned(), stamp: stamp(2), hops };
            Item::new().with("id", "1").with("name", "new").with("_from_other", mark.text())
        };
        let zeros = "0".repeat(20);
        let written = format!("new {}+{zeros}", stamp(5).as_str());
        assert_eq!(check_text(&keep, Some(&job), Some(&origin(4)), &copy(None, None)), written);
        let refused = check_text(&keep, Some(&job), Some(&origin(5)), &copy(None, None));
        assert!(refused.starts_with("the value passed through 6 deployments"), "{refused}");
        // A correct copy needs no write.
        let right = copy(Some("new"), Some(stamp(5)));
        assert_eq!(check_text(&keep, Some(&job), Some(&origin(5)), &right), "in order");
        // The job has these values, so the mark does not belong to them.
        let job = state(5, Some("new"));
        assert_eq!(check_text(&keep, Some(&job), Some(&origin(5)), &copy(None, None)), written);
    }

    #[test]
    fn the_hops_of_the_copy_count_like_those_of_its_origin() {
        let (keep, job) = (rule("keep"), state(5, Some("new")));
        let origin = Item::new().with("id", "1").with("name", "new");
        let marked = |hops| {
            let mark = Mark { origin: r#"{"S":"0"}"#.to_owned(), stamp: stamp(2), hops };
            copy(None, None).with("_from_other", mark.text())
        };
        let hops_of = |hops, arrival| {
            let copy = marked(hops);
            let sight = CopyReads {
                before: &copy,
                job: Some(&job),
                origin: Some(&origin),
                copy: &copy,
                nonce: 3,
                arrival,
            };
            match look(&keep, &sight) {
                CheckResult::Write(Update::Set { mark, .. }) => Some(mark.hops),
                CheckResult::Refuse(_) => None,
                other => panic!("{other:?}"),
            }
        };
        for (hops, arrival, expected) in [
            // The record contains the number, so the marks on the copy do not count.
            (5, Some(1), Some(1)),
            (1, Some(4), Some(4)),
            (1, Some(5), Some(5)),
            (1, Some(6), None),
            // Without a record, only a mark at which a loop was stopped counts.
            (4, None, Some(1)),
            (5, None, None),
        ] {
            assert_eq!(hops_of(hops, arrival), expected, "{hops}, {arrival:?}");
        }
    }

    #[test]
    fn a_check_deletes_only_a_copy_that_it_marked() {
        let (cascade, gone) = (rule("cascade"), state(5, None));
        let own = stamp(5).reconciled(3);
        for mark in [None, Some(stamp(4)), Some(stamp(5)), Some(stamp(5).reconciled(4))] {
            let copy = copy(Some("x"), mark);
            assert_eq!(check_text(&cascade, Some(&gone), None, &copy), format!("mark {own}"));
        }
        // A mark of values never counts as a mark for deletion, regardless of its stamp.
        let valued = copy(Some("x"), Some(own.clone()));
        assert_eq!(check_text(&cascade, Some(&gone), None, &valued), format!("mark {own}"));
        let mark = Mark { origin: r#"{"S":"1"}"#.to_owned(), stamp: own, hops: HOPS_OF_DELETION };
        let marked = valued.with("_from_r", mark.text());
        assert_eq!(check_text(&cascade, Some(&gone), None, &marked), "delete");
        // The origin was created again.
        let origin = Item::new().with("id", "1").with("name", "x");
        assert_eq!(check_text(&cascade, Some(&gone), Some(&origin), &marked), "in order");
        // The origin is unknown, or the only known state is older than the copy.
        assert_eq!(check_text(&cascade, None, None, &copy(Some("x"), None)), "in order");
        let newer = copy(Some("x"), Some(stamp(6)));
        assert_eq!(check_text(&cascade, Some(&gone), None, &newer), "in order");
    }

    #[test]
    fn a_deletion_accepts_only_marks_of_the_same_deletion() {
        let rule = rule("cascade");
        let mark = |sequence, nonce, hops| Mark {
            origin: r#"{"S":"1"}"#.to_owned(),
            stamp: stamp(sequence).reconciled(nonce),
            hops,
        };
        let marked = |mark: &str| copy(Some("x"), None).with("_from_r", mark);
        let own = mark(5, 3, HOPS_OF_DELETION);
        let of_other = Mark { origin: r#"{"S":"2"}"#.to_owned(), ..own.clone() };
        let theirs = mark(5, 9, HOPS_OF_DELETION).text();
        for (copy, expected) in [
            (marked(&own.text()), true),
            (marked(&theirs), true),
            (marked(&mark(5, 1, HOPS_OF_DELETION).text()), true),
            (marked(&mark(6, 9, HOPS_OF_DELETION).text()), false),
            (marked(&mark(5, 9, 1).text()), false),
            (marked(&of_other.text()), false),
            (marked(&theirs).with("aid", "2"), false),
            (marked(&theirs.replace(" 0", " 00")), false),
            (copy(Some("x"), None), false),
        ] {
            let found = rule.marked_for_deletion(&copy, &own);
            assert_eq!(found.is_some(), expected, "{copy:?}");
            let Some(seen) = found else { continue };
            assert_eq!(copy.get("_from_r"), Some(&AttributeValue::S(seen.text())));
            // The worker's new mark belongs to the same deletion and is greater than both marks.
            for nonce in [1, 20] {
                let mine = own.above([&seen].into_iter(), nonce);
                assert!(mine.text() > seen.text() && mine.text() > own.text(), "{mine:?}");
                assert_eq!(mine.stamp.base(), own.stamp.base());
                assert_eq!(mine.hops, HOPS_OF_DELETION);
            }
        }
    }

    #[test]
    fn a_copy_that_was_just_written_needs_no_check() {
        let rule = rule("keep");
        let plain = copy(Some("x"), None);
        let marked = copy(Some("y"), Some(stamp(5)));
        let by_hand = copy(Some("z"), Some(stamp(5)));
        let moved = by_hand.clone().with("aid", "2");
        let other = marked.clone().with("other", "o");
        let newer = copy(Some("w"), Some(stamp(6)));
        let elsewhere = copy(Some("y"), None).with("aid", "2");
        let deleting = copy(Some("y"), Some(stamp(5).reconciled(1 << 63)));
        let deleting_with_other = deleting.clone().with("other", "o");
        let broken = copy(Some("y"), None).with("_from_r", r#"{"S":"1"}@~"#);
        for (old, new, expected) in [
            (None, &plain, true),
            (Some(&plain), &marked, false),
            (Some(&marked), &by_hand, true),
            (Some(&by_hand), &moved, true),
            (Some(&marked), &other, false),
            (None, &marked, true),
            (Some(&marked), &newer, false),
            // A client wrote back the complete item that it had read earlier.
            (Some(&newer), &marked, true),
            (Some(&elsewhere), &marked, true),
            // The client overwrote the mark for deletion, so the copy must be checked again.
            (Some(&deleting), &marked, true),
            (Some(&marked), &deleting, false),
            (Some(&deleting), &deleting_with_other, false),
            // A client replaces a string that is no mark, but sorts after marks, by a mark.
            (Some(&broken), &marked, true),
        ] {
            assert_eq!(rule.wants_look(old, new), expected);
        }
    }

    /// Goal: a copy whose place in the index changes is checked. A job may have passed this place.
    #[test]
    fn a_copy_at_another_place_of_the_index_needs_a_check() {
        let place = ["day", "at"].map(str::to_owned).to_vec();
        let rule = CopyRule { index_sort: place, ..rule("keep") };
        let marked = |sequence| copy(Some("y"), Some(stamp(sequence))).with("day", "1");
        let placed = |sequence, at: &str| marked(sequence).with("at", at);
        for (old, new, expected) in [
            (placed(5, "7"), placed(5, "3"), true),
            (placed(5, "7"), placed(5, "7").with("day", "0"), true),
            // The copy enters the index.
            (marked(5), placed(5, "7"), true),
            (placed(5, "7"), placed(5, "7").with("other", "o"), false),
            // A job wrote the copy.
            (placed(5, "7"), placed(6, "7"), false),
            (copy(None, None).with("at", "7"), copy(None, Some(stamp(6))).with("at", "7"), false),
        ] {
            assert_eq!(rule.wants_look(Some(&old), &new), expected, "{old:?} to {new:?}");
        }
    }
}
