//! One copy: what it must hold, and whether it does.
//!
//! **Why a look converges with jobs.** Whoever looks at a copy reads the origin's job first, then
//! the origin itself, then the copy, all strongly consistent. If the job is as of stamp *s*, the
//! origin's value is as of *s* or of something later. It is written with the stamp `s+<revision>`:
//! after *s* and before every later one, and only while the copy's mark is the one that was read.
//! A change that the look did not see has a later stamp, and its job overwrites what the look wrote.
//! The job finds the copy, because the copy was there before the look; an index that is so far
//! behind that it does not know the copy yet is what the sampled check is for.

use std::collections::BTreeMap;

use model::{AttributeValue, Item};

use super::declaration::{CopyRule, OnDelete};
use super::mark::Mark;
use super::{HOPS_MAX, Origin, value_text};
use crate::stamp::Stamp;

/// What copies of an origin must hold.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OriginState {
    /// As of when.
    pub stamp: Stamp,
    /// Through how many copies the values came, this one included.
    pub hops: u32,
    /// By attribute of the copy; `None` for one that the origin does not have. The last values of
    /// an origin that was deleted.
    pub values: BTreeMap<String, Option<AttributeValue>>,
    /// Whether the origin was deleted.
    pub deleted: bool,
}

/// What must be written to a copy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Update {
    /// These attributes, and the mark. An attribute without a value is removed.
    Set {
        /// By attribute of the copy.
        values: BTreeMap<String, Option<AttributeValue>>,
        /// The mark.
        mark: Mark,
    },
    /// The copy is deleted.
    Delete {
        /// The mark that a copy that stays must be older than.
        mark: Mark,
    },
}

/// What a look found to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Look {
    /// The copy is as it must be.
    InOrder,
    /// The copy is newer than what was read of its origin: look again.
    Again,
    /// This must be written while the copy's mark is still what was read.
    Write(Update),
}

impl CopyRule {
    /// The values that copies of an origin hold.
    #[must_use]
    pub fn values_of(&self, origin: &Item) -> BTreeMap<String, Option<AttributeValue>> {
        let pairs = self.attributes.iter();
        pairs.map(|(to, from)| (to.clone(), origin.get(from).cloned())).collect()
    }

    /// Whether a copy that became `new` must be looked at: it is not known that it was written from
    /// its origin, or what was written from there was changed by somebody else.
    ///
    /// Our own writes leave the origin as it is and raise the mark. A mark that went back, or that
    /// came with another origin, is of somebody who wrote an item whole that had been read before.
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
        let is_moved = old.get(&self.index_key) != new.get(&self.index_key);
        if !is_moved && Mark::is_raised(&origin, text_of(old, &name), mark) {
            return false;
        }
        is_moved || self.attributes.keys().any(|to| old.get(to) != new.get(to))
    }
}

fn text_of<'i>(item: &'i Item, attribute: &str) -> Option<&'i str> {
    item.get(attribute).and_then(AttributeValue::as_str)
}

/// What a job must write to each copy. Copies that outlive their origin get its last values, so
/// they end the same however late the changes before the deletion come.
#[must_use]
pub fn update_of(rule: &CopyRule, origin: &Origin, state: &OriginState) -> Update {
    let mark = Mark { origin: origin.key.clone(), stamp: state.stamp.clone(), hops: state.hops };
    match rule.on_delete {
        OnDelete::Cascade if state.deleted => Update::Delete { mark },
        OnDelete::Clear if state.deleted => Update::Set { values: cleared(rule), mark },
        _ => Update::Set { values: state.values.clone(), mark },
    }
}

fn cleared(rule: &CopyRule) -> BTreeMap<String, Option<AttributeValue>> {
    rule.attributes.keys().map(|to| (to.clone(), None)).collect()
}

/// Whether a copy holds these values.
#[must_use]
pub fn is_as_wanted(copy: &Item, values: &BTreeMap<String, Option<AttributeValue>>) -> bool {
    values.iter().all(|(name, value)| copy.get(name) == value.as_ref())
}

/// What a look at a copy has to do. `job` is what the origin's job says, `origin` the origin as it
/// is, read after the job; `copy` was read last.
#[must_use]
pub fn look(
    rule: &CopyRule,
    job: Option<&OriginState>,
    origin: Option<&Item>,
    copy: &Item,
) -> Look {
    let Some(key) = copy.get(&rule.index_key).filter(|key| super::is_key(key)) else {
        return Look::InOrder;
    };
    let key = value_text(key);
    let name = super::mark_attribute(&rule.name);
    let seen = copy.get(&name).and_then(AttributeValue::as_str).and_then(Mark::parse);
    let seen = seen.filter(|mark| mark.origin == key);
    let known = job.map_or_else(Stamp::lowest, |job| job.stamp.clone());
    let base = seen.as_ref().map_or_else(Stamp::lowest, |mark| mark.stamp.base());
    if base > known {
        return Look::Again;
    }
    let values = match origin {
        Some(origin) => rule.values_of(origin),
        // An origin that was never there may still come; one that was deleted is the rule's matter.
        None => match (job.filter(|job| job.deleted), rule.on_delete) {
            (None, _) => return Look::InOrder,
            (Some(job), OnDelete::Keep) => job.values.clone(),
            (Some(_), OnDelete::Clear) => cleared(rule),
            (Some(_), OnDelete::Cascade) => {
                let mark = Mark { origin: key, stamp: known.reconciled(0), hops: 1 };
                return Look::Write(Update::Delete { mark });
            }
        },
    };
    if seen.is_some() && is_as_wanted(copy, &values) {
        return Look::InOrder;
    }
    let hops = 1 + origin.map_or(0, |origin| super::hops_of(None, Some(origin)));
    if hops > HOPS_MAX {
        return Look::InOrder;
    }
    let revision = seen.filter(|_| base == known).map_or(0, |mark| mark.stamp.revision() + 1);
    let mark = Mark { origin: key, stamp: known.reconciled(revision), hops };
    Look::Write(Update::Set { values, mark })
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
        OriginState { stamp: stamp(sequence), hops: 1, values, deleted: name.is_none() }
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

    fn written(look: Look) -> String {
        match look {
            Look::InOrder => "in order".to_owned(),
            Look::Again => "again".to_owned(),
            Look::Write(Update::Delete { .. }) => "delete".to_owned(),
            Look::Write(Update::Set { values, mark }) => {
                let value =
                    values["n"].as_ref().map_or("-".to_owned(), |v| v.as_str().unwrap().to_owned());
                format!("{value} {}", mark.stamp)
            }
        }
    }

    #[test]
    fn looks() {
        let origin = Item::new().with("id", "1").with("name", "new");
        let keep = rule("keep");
        let base = |sequence| stamp(sequence).as_str().to_owned();
        let zeros = "0".repeat(19);
        for (job, origin, copy, expected) in [
            // A new copy.
            (
                Some(state(5, Some("new"))),
                Some(&origin),
                copy(None, None),
                format!("new {}+{zeros}0", base(5)),
            ),
            (None, Some(&origin), copy(None, None), format!("new /{}+{zeros}0", "0".repeat(40))),
            // Written from its origin already.
            (
                Some(state(5, Some("new"))),
                Some(&origin),
                copy(Some("new"), Some(stamp(5))),
                "in order".to_owned(),
            ),
            // Changed by somebody else, once and again.
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
            // A job came in between.
            (
                Some(state(5, Some("new"))),
                Some(&origin),
                copy(Some("newer"), Some(stamp(6))),
                "again".to_owned(),
            ),
            // Its origin is not there yet, or no longer.
            (None, None, copy(None, None), "in order".to_owned()),
            (
                Some(state(5, None)),
                None,
                copy(Some("x"), Some(stamp(4))),
                format!("last {}+{zeros}0", base(5)),
            ),
            (Some(state(5, None)), None, copy(Some("last"), Some(stamp(5))), "in order".to_owned()),
        ] {
            assert_eq!(written(look(&keep, job.as_ref(), origin, &copy)), expected);
        }
        let gone = Some(state(5, None));
        assert_eq!(
            written(look(&rule("clear"), gone.as_ref(), None, &copy(Some("x"), None))),
            format!("- {}+{zeros}0", base(5))
        );
        assert_eq!(
            written(look(&rule("cascade"), gone.as_ref(), None, &copy(Some("x"), None))),
            "delete"
        );
        assert_eq!(written(look(&rule("cascade"), None, None, &copy(Some("x"), None))), "in order");
    }

    #[test]
    fn a_copy_that_was_just_written_wants_no_look() {
        let rule = rule("keep");
        let plain = copy(Some("x"), None);
        let marked = copy(Some("y"), Some(stamp(5)));
        let by_hand = copy(Some("z"), Some(stamp(5)));
        let moved = by_hand.clone().with("aid", "2");
        let other = marked.clone().with("other", "o");
        let newer = copy(Some("w"), Some(stamp(6)));
        let elsewhere = copy(Some("y"), None).with("aid", "2");
        for (old, new, expected) in [
            (None, &plain, true),
            (Some(&plain), &marked, false),
            (Some(&marked), &by_hand, true),
            (Some(&by_hand), &moved, true),
            (Some(&marked), &other, false),
            (None, &marked, true),
            (Some(&marked), &newer, false),
            // Somebody put the item whole as it had been read before.
            (Some(&newer), &marked, true),
            (Some(&elsewhere), &marked, true),
        ] {
            assert_eq!(rule.wants_look(old, new), expected);
        }
    }
}
