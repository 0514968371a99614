//! The state of the model: the items of each table, and their changes.
//!
//! Source: the documentation of `PutItem`, `UpdateItem`, `DeleteItem`, `TransactWriteItems` and of
//! secondary indexes.

use std::collections::BTreeMap;

use model::Item;

use super::condition::holds;
use super::expression::{Action, Condition};
use super::table::{Index, KINDS, KeyNumbers, KeyValue, Kind, Projection};
use super::update::{created, updated};

/// A write to one item.
#[derive(Clone, Debug)]
pub(super) struct Write {
    pub(super) table: usize,
    pub(super) key: KeyNumbers,
    pub(super) change: Change,
    pub(super) condition: Option<Condition>,
}

#[derive(Clone, Debug)]
pub(super) enum Change {
    /// Replaces the item with an item that has the given attributes and the key.
    Put(Item),
    Update(Vec<Action>),
    Delete,
    /// Checks a condition without a write. Occurs only in transactions.
    Check,
}

/// The images of a successful write.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Written {
    pub(super) old: Option<Item>,
    pub(super) new: Option<Item>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Refusal {
    ConditionFailed,
    Invalid,
}

type OrderedKey = (KeyValue, Option<KeyValue>);

/// One table.
#[derive(Debug, Default)]
pub(super) struct Table {
    pub(super) items: BTreeMap<OrderedKey, Item>,
    /// The changes of each item, in order.
    pub(super) changes: BTreeMap<OrderedKey, Vec<Written>>,
}

/// The tables of a history, in the order of [`KINDS`].
#[derive(Debug, Default)]
pub(super) struct State {
    pub(super) tables: [Table; KINDS.len()],
}

impl Write {
    pub(super) fn kind(&self) -> &'static Kind {
        &KINDS[self.table]
    }

    /// Returns the item that a put writes.
    pub(super) fn item(&self) -> Option<Item> {
        match &self.change {
            Change::Put(attributes) => {
                let mut item = self.kind().key(self.key);
                item.0.extend(attributes.0.clone());
                Some(item)
            }
            _ => None,
        }
    }
}

impl State {
    pub(super) fn get(&self, table: usize, key: KeyNumbers) -> Option<&Item> {
        let kind = &KINDS[table];
        self.tables[table].items.get(&kind.order(&kind.key(key)))
    }

    /// Returns the effect of a write, without applying it.
    pub(super) fn decide(&self, write: &Write) -> Result<Written, Refusal> {
        let kind = write.kind();
        let old = self.get(write.table, write.key).cloned();
        let put = write.item();
        // The store first reports the errors that do not depend on the existing item.
        if put.as_ref().is_some_and(|item| !kind.fits_indexes(item)) {
            return Err(Refusal::Invalid);
        }
        let seen = old.clone().unwrap_or_default();
        if write.condition.as_ref().is_some_and(|condition| !holds(condition, &seen)) {
            return Err(Refusal::ConditionFailed);
        }
        let new = match &write.change {
            Change::Put(_) => put,
            Change::Delete => None,
            Change::Check => old.clone(),
            Change::Update(actions) => {
                let new = match &old {
                    Some(old) => updated(old, actions),
                    None => created(&kind.key(write.key), actions),
                };
                let new = new.map_err(|_| Refusal::Invalid)?;
                if !kind.fits_indexes(&new) {
                    return Err(Refusal::Invalid);
                }
                let is_created = actions.is_empty() || actions.iter().any(|a| !a.only_removes());
                (old.is_some() || is_created).then_some(new)
            }
        };
        Ok(Written { old, new })
    }

    /// Applies a write whose effect is `written`.
    pub(super) fn make(&mut self, write: &Write, written: &Written) {
        let kind = write.kind();
        let order = kind.order(&kind.key(write.key));
        let table = &mut self.tables[write.table];
        match &written.new {
            Some(item) => table.items.insert(order.clone(), item.clone()),
            None => table.items.remove(&order),
        };
        if written.old != written.new {
            table.changes.entry(order).or_default().push(written.clone());
        }
    }

    /// Decides a write and applies it.
    pub(super) fn write(&mut self, write: &Write) -> Result<Written, Refusal> {
        let written = self.decide(write)?;
        self.make(write, &written);
        Ok(written)
    }

    /// Returns the entries of an index with their complete items, in any order.
    pub(super) fn entries(&self, table: usize, index: &Index) -> Vec<(Item, Item)> {
        let has_keys = |item: &&Item| {
            item.0.contains_key(index.partition.0)
                && index.sort.is_none_or(|sort| item.0.contains_key(sort.0))
        };
        let items = self.tables[table].items.values().filter(has_keys);
        items.map(|item| (entry(&KINDS[table], index, item), item.clone())).collect()
    }
}

fn entry(kind: &Kind, index: &Index, item: &Item) -> Item {
    let mut entry = item.clone();
    if index.projection != Projection::All {
        let names = index.projected(kind).unwrap_or_default();
        entry.0.retain(|name, _| names.contains(&name.as_str()));
    }
    entry
}
