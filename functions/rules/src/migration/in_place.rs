//! Changes within one table: what an item has to look like, and what must be so where it is written.
//!
//! `in-place` makes of each item the same item with other attributes, `purge` leaves items out.
//! Nothing marks an item as done: a done item is one that the transform leaves as it is. So the
//! statement "this item is as the plan wants it" holds no data, may be made of any version of the
//! item, in any order and as often as one likes. What is written follows from the version that stands
//! in the table when it is written: that one is judged, and a guard says what could make the judgement
//! another one. Who reads and writes is not known here.

use std::collections::BTreeSet;

use model::Item;
use model::stream_record::LambdaRecord;

use super::{MARK, Makes, Migration, Target, is_bare_tombstone};
use crate::effect::Effect;
use crate::rule::Refusal;

/// What has to be done with an item.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Rewrite {
    /// It is as the plan wants it.
    Keep,
    /// It has to be this one, with the same key.
    Change(Item),
    /// It must not be there.
    Delete,
}

/// What must be so where a change is written, beside that every attribute of the judged item stands
/// there unchanged.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Guard {
    /// Attributes that must not be there.
    pub absent: BTreeSet<String>,
    /// Whether no other attribute can make a difference. If not, the program can look at more than a
    /// condition can name, and what the change met has to be judged afterwards.
    pub is_complete: bool,
}

/// Attributes of an item at most, before and after a change together: each is a comparison in the
/// guard, and an expression of DynamoDB has at most 300 operators. Source: DynamoDB developer guide,
/// "Service quotas: expressions".
const ATTRIBUTES_MAX: usize = 140;
/// Bytes of an expression at most, without the condition that the item exists. Source: as above.
const GUARD_BYTES_MAX: usize = 4096 - 32;
/// Bytes of a comparison in a guard, such as `#a139 = :b139 AND `.
const EQUAL_BYTES: usize = 18;
/// Bytes of the condition that there is no such attribute, `attribute_not_exists(#a139) AND `.
const ABSENT_BYTES: usize = 32;
/// Bytes of an attribute's name at most.
const NAME_BYTES_MAX: usize = 65_535;

/// Whether a guard has room for so many attributes that must stand there, and that must not.
fn has_room(equal: usize, absent: usize) -> bool {
    equal + absent <= ATTRIBUTES_MAX
        && equal * EQUAL_BYTES + absent * ABSENT_BYTES <= GUARD_BYTES_MAX
}

/// Whether a guard can compare all attributes that an item has before or after a change.
fn check_attributes(before: &Item, after: Option<&Item>) -> Result<(), String> {
    let is_new = |name: &&String| !before.contains_key(*name);
    let new = after.map_or(0, |after| after.keys().filter(is_new).count());
    let attributes = before.len() + new;
    if has_room(before.len(), new) {
        return Ok(());
    }
    let most = match attributes > ATTRIBUTES_MAX {
        true => format!("more than the {ATTRIBUTES_MAX} that a guarded change can compare"),
        false => format!("{new} of them new, more than a guard has room for"),
    };
    Err(format!("it has {attributes} attributes before and after the change, {most}"))
}

/// What an item is after a change from `before` to `after` met it: it may have more attributes.
#[must_use]
pub fn changed(before: &Item, after: &Item, met: &Item) -> Item {
    let mut item = met.clone();
    item.retain(|name, _| !before.contains_key(name) || after.contains_key(name));
    item.extend(after.iter().map(|(name, value)| (name.clone(), value.clone())));
    item
}

impl Migration {
    /// What has to be done with an item of one of its tables. A tombstone of another migration is no
    /// item: readers do not see it, and made an item it would come back to life.
    ///
    /// # Errors
    /// When the transform cannot be carried out for the item, changes its key, or is not finished
    /// after it was carried out once.
    pub fn rewrite(&self, table: &str, item: &Item) -> Result<Rewrite, String> {
        if self.schema(table).is_some_and(|schema| is_bare_tombstone(item, schema)) {
            return Ok(Rewrite::Keep);
        }
        let Some(wanted) = self.wanted(table, item)? else {
            check_attributes(item, None)?;
            return Ok(Rewrite::Delete);
        };
        if wanted == *item {
            return Ok(Rewrite::Keep);
        }
        if self.wanted(table, &wanted)?.as_ref() != Some(&wanted) {
            return Err(
                "the transform gives something else when it is carried out twice; write it so that a finished item stays as it is, such as `.a //= 1`"
                    .to_owned(),
            );
        }
        check_attributes(item, Some(&wanted))?;
        Ok(Rewrite::Change(wanted))
    }

    /// What must be so where an item that was judged is changed into another one, or removed.
    ///
    /// What is written must be guarded also by attributes that are not there: one that a writer adds
    /// after the item was judged may be what spares it. Those that the change makes come first, so that
    /// no writer's value is written over.
    #[must_use]
    pub fn guard(&self, table: &str, before: &Item, after: Option<&Item>) -> Guard {
        let new = after.into_iter().flat_map(|after| after.keys());
        let mut absent: BTreeSet<_> =
            new.filter(|name| !before.contains_key(*name)).cloned().collect();
        let looked_at = self.looked_at(table);
        let mut is_complete = looked_at.is_some();
        // The mark makes a tombstone of an item that has nothing else.
        let mark = MARK.to_owned();
        for name in looked_at.into_iter().flatten().chain([&mark]) {
            let can_be_there = (1..=NAME_BYTES_MAX).contains(&name.len());
            if !can_be_there || before.contains_key(name) || absent.contains(name) {
                continue;
            }
            let fits = has_room(before.len(), absent.len() + 1);
            is_complete &= fits;
            if fits {
                absent.insert(name.clone());
            }
        }
        Guard { absent, is_complete }
    }

    /// Whether the plan can look at any attribute of a table's items that it changes where they stand.
    /// What comes while one is changed can only be judged afterwards then.
    #[must_use]
    pub fn looks_at_any(&self, table: &str) -> bool {
        self.kind.is_in_place() && self.reads(table) && self.looked_at(table).is_none()
    }

    /// The attributes of a table's items that the plan can look at; none if that may be any.
    fn looked_at(&self, table: &str) -> Option<&BTreeSet<String>> {
        match &self.sources.get(table)?.first()?.makes {
            Makes::Purge(condition) => condition.looks_at(),
            Makes::Transform(transform) => transform.looks().of_change(),
            Makes::Split(_) => None,
        }
    }

    /// Whether a change of the item that was judged was not the right one for the item that it met,
    /// which had all attributes of the judged one and perhaps more. It must be taken back then.
    #[must_use]
    pub fn is_misjudged(
        &self,
        table: &str,
        before: &Item,
        after: Option<&Item>,
        met: &Item,
    ) -> bool {
        if met.len() <= before.len() {
            return false;
        }
        match (self.rewrite(table, met), after) {
            (Ok(Rewrite::Delete), None) => false,
            (Ok(Rewrite::Change(wanted)), Some(after)) => wanted != changed(before, after, met),
            (Ok(Rewrite::Keep), Some(after)) => *met != changed(before, after, met),
            (Ok(_) | Err(_), _) => true,
        }
    }

    /// What the transform makes of an item; none if it is to be deleted.
    fn wanted(&self, table: &str, item: &Item) -> Result<Option<Item>, String> {
        let Some(output) = self.sources.get(table).and_then(|outputs| outputs.first()) else {
            return Ok(Some(item.clone()));
        };
        let mut made = output.run(item)?;
        let schema = self.schema(table).ok_or_else(|| format!("there is no table `{table}`"))?;
        match (made.pop(), made.is_empty()) {
            (None, _) if self.kind.deletes() => Ok(None),
            (Some(wanted), true) => {
                let key = |item: &Item| schema.key_of_item(item).map_err(|error| error.to_string());
                if key(&wanted)? == key(item)? {
                    Ok(Some(wanted))
                } else {
                    Err("the transform changes the key; that needs kind `restructure` and another table".to_owned())
                }
            }
            (None, _) => {
                Err("the transform gives nothing; to delete items, use kind `purge`".to_owned())
            }
            (Some(_), false) => {
                Err("the transform gives several items; that needs kind `restructure`".to_owned())
            }
        }
    }

    /// That an item is as the plan wants it, unless it is already.
    pub(super) fn settle(&self, table: &str, item: &Item) -> Result<Vec<Effect>, Refusal> {
        if self.rewrite(table, item).map_err(Refusal)? == Rewrite::Keep {
            return Ok(Vec::new());
        }
        let schema = self.schema(table).ok_or_else(|| Refusal(format!("no table `{table}`")))?;
        let key = schema.key_of_item(item).map_err(|error| Refusal(error.to_string()))?;
        let target =
            Target { migration: self.name.clone(), table: table.to_owned(), key, adopts: false };
        Ok(vec![Effect::Rewrite { target }])
    }

    /// What a record of a table that is changed in place says: a deleted item needs nothing.
    pub(super) fn decide_in_place(
        &self,
        table: &str,
        record: &LambdaRecord,
    ) -> Result<Vec<Effect>, Refusal> {
        match &record.record.new_image {
            Some(item) => self.settle(table, item),
            None => Ok(Vec::new()),
        }
    }
}
