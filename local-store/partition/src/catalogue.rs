//! All tables: as one arc knows them, or of all arcs together.
//!
//! It only holds and merges; what changes a table is in `machine` and `arcs::adoption`.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::arcs::adoption::has_followed;
use crate::table::Table;
use crate::table::identifiers::TableId;
use crate::table::index::{IndexStatus, SecondaryIndex};
use crate::table::time_to_live::TimeToLive;

/// All tables, by id and by name. A shared copy never changes.
#[derive(Clone, Debug, Default)]
pub struct Catalogue {
    tables: BTreeMap<TableId, Arc<Table>>,
    names: BTreeMap<String, TableId>,
}

impl Catalogue {
    /// Returns the table with a whole name, its owner's name before its own: see
    /// [`crate::table::name::TableName::whole`].
    #[must_use]
    pub fn find(&self, whole_name: &str) -> Option<&Arc<Table>> {
        self.names.get(whole_name).and_then(|id| self.tables.get(id))
    }

    /// The table with an id.
    #[must_use]
    pub fn get(&self, id: TableId) -> Option<&Arc<Table>> {
        self.tables.get(&id)
    }

    /// The table with an id, if every arc knows it. Only then it takes items: what an item has in
    /// an index may lie in any arc, and one that does not know the table lets go of it.
    #[must_use]
    pub fn get_for_items(&self, id: TableId) -> Option<&Arc<Table>> {
        self.get(id).filter(|table| !table.is_partial)
    }

    /// Every table, by owner and name.
    pub fn by_name(&self) -> impl Iterator<Item = &Arc<Table>> {
        self.names.values().filter_map(|id| self.tables.get(id))
    }

    /// Every table, by id: in one arc of several also one whose name belongs to a newer one.
    pub fn tables(&self) -> impl Iterator<Item = &Arc<Table>> {
        self.tables.values()
    }

    /// Of two tables with one name the newer one has it: the other is about to be removed.
    pub(crate) fn put(&mut self, table: Table) {
        let newest = self.names.entry(table.name.whole().to_owned()).or_insert(table.id);
        *newest = table.id.max(*newest);
        self.tables.insert(table.id, Arc::new(table));
    }

    pub(crate) fn remove(&mut self, id: TableId) {
        if let Some(table) = self.tables.remove(&id)
            && self.names.get(table.name.whole()) == Some(&id)
        {
            self.names.remove(table.name.whole());
        }
    }

    /// The tables of a ring from what each of its arcs knows, the first arc first. That one decides
    /// which tables there are; from the others come their partitions, their shards, and how far they
    /// have carried out what was decided.
    #[must_use]
    pub fn merge(arcs: &[Arc<Self>]) -> Self {
        let Some((first, others)) = arcs.split_first() else { return Self::default() };
        let mut merged = Self { names: first.names.clone(), ..Self::default() };
        for (id, table) in &first.tables {
            let mut whole = Table::clone(table);
            for part in others.iter().map(|arc| arc.tables.get(id)) {
                match part {
                    Some(part) => {
                        whole.is_behind |= !has_followed(part, table);
                        add_part(&mut whole, part);
                    }
                    None => (whole.is_behind, whole.is_partial) = (true, true),
                }
            }
            whole.partitions.sort_by_key(|partition| partition.first_token);
            for stream in &mut whole.streams {
                stream.shards.sort_by_key(|shard| (shard.opened_at, shard.number));
            }
            merged.tables.insert(*id, Arc::new(whole));
        }
        merged
    }
}

fn add_part(whole: &mut Table, part: &Table) {
    whole.partitions.extend(part.partitions.iter().cloned());
    for stream in &mut whole.streams {
        if let Some(own) = part.stream(&stream.label) {
            stream.shards.extend(own.shards.iter().cloned());
        }
    }
    // What is under way anywhere is under way.
    if matches!(part.time_to_live, TimeToLive::Enabling { .. } | TimeToLive::Disabling { .. }) {
        whole.time_to_live = part.time_to_live.clone();
    }
    // What this arc has removed is on its way out everywhere. One that it has not heard of yet is not
    // even begun there: it may hold items that have no entry, whatever the first arc has finished.
    for known in &mut whole.indexes {
        let here = match part.indexes.iter().find(|index| index.number == known.number) {
            Some(index) => index.status.clone(),
            None if known.number.0 < part.next_index => IndexStatus::Deleting,
            None => IndexStatus::Creating { cursor: None },
        };
        if here.progress() < known.status.progress() {
            known.status = here;
        }
    }
    // What the first arc has removed while this one has it: it may not have heard of that yet. Of
    // numbers that are not given there yet this node's copy of the first arc is late to tell.
    let given = whole.next_index;
    for index in part.indexes.iter().filter(|index| index.number.0 < given) {
        if whole.indexes.iter().all(|known| known.number != index.number) {
            let status = IndexStatus::Deleting;
            whole.indexes.push(SecondaryIndex { status, ..index.clone() });
        }
    }
}
