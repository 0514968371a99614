//! Changes within one table: what an item has to look like, and what to write if it does not.
//!
//! `in-place` makes of each item the same item with other attributes, `purge` leaves items out.
//! Nothing marks an item as done: a done item is one that the transform leaves as it is. So the
//! statement "this item is as the plan wants it" holds no data, may be made of any version of the
//! item, in any order and as often as one likes, and what is written follows from the version that
//! stands in the table when it is written. Who writes is not known here.

use model::Item;
use model::json::item_to_string;
use model::stream_record::LambdaRecord;

use super::{Migration, Target, is_bare_tombstone};
use crate::effect::{Effect, Join};
use crate::rule::Refusal;
use crate::stamp::Stamp;

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

/// An item as it was seen last: what the writer tries first, so that it need not read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Seen {
    /// As of when.
    pub stamp: Stamp,
    /// The item.
    pub item: Item,
}

/// Attributes of an item at most, before and after a change together: each is a comparison in the
/// guard, and an expression of DynamoDB has at most 300 operators. Source: DynamoDB developer guide,
/// "Service quotas: expressions".
const ATTRIBUTES_MAX: usize = 140;

/// Whether a guard can compare all attributes that an item has before or after a change.
fn check_attributes(before: &Item, after: Option<&Item>) -> Result<(), String> {
    let is_new = |name: &&String| !before.contains_key(*name);
    let attributes = before.len() + after.map_or(0, |after| after.keys().filter(is_new).count());
    if attributes <= ATTRIBUTES_MAX {
        return Ok(());
    }
    Err(format!(
        "it has {attributes} attributes before and after the change, more than the {ATTRIBUTES_MAX} that a guarded change can compare"
    ))
}

impl Join for Seen {
    fn join(&mut self, other: Self) {
        let content = |seen: &Self| item_to_string(&seen.item);
        let is_later = other.stamp > self.stamp
            || (other.stamp == self.stamp && content(&other) > content(self));
        if is_later {
            *self = other;
        }
    }
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
    pub(super) fn settle(
        &self,
        table: &str,
        item: &Item,
        stamp: Stamp,
    ) -> Result<Vec<Effect>, Refusal> {
        if self.rewrite(table, item).map_err(Refusal)? == Rewrite::Keep {
            return Ok(Vec::new());
        }
        let schema = self.schema(table).ok_or_else(|| Refusal(format!("no table `{table}`")))?;
        let key = schema.key_of_item(item).map_err(|error| Refusal(error.to_string()))?;
        let target =
            Target { migration: self.name.clone(), table: table.to_owned(), key, adopts: false };
        Ok(vec![Effect::Rewrite { target, seen: Seen { stamp, item: item.clone() } }])
    }

    /// What a record of a table that is changed in place says: a deleted item needs nothing.
    pub(super) fn decide_in_place(
        &self,
        table: &str,
        record: &LambdaRecord,
        stamp: Stamp,
    ) -> Result<Vec<Effect>, Refusal> {
        match &record.record.new_image {
            Some(item) => self.settle(table, item, stamp),
            None => Ok(Vec::new()),
        }
    }
}
