//! The catalogue: the tables of one arc, or the tables merged from all arcs.
//!
//! The modules `machine` and `arcs::adoption` change tables.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::arcs::adoption::has_followed;
use crate::keys::table::read_all;
use crate::storage::{ReadError, View};
use crate::table::Table;
use crate::table::identifiers::TableId;
use crate::table::index::{IndexStatus, SecondaryIndex};
use crate::table::time_to_live::TimeToLive;

/// All tables, by id and by name. A shared copy is immutable.
#[derive(Clone, Debug, Default)]
pub struct Catalogue {
    tables: BTreeMap<TableId, Arc<Table>>,
    names: BTreeMap<String, TableId>,
}

impl Catalogue {
    /// Reads the tables of one arc from its state.
    ///
    /// # Errors
    /// When the storage cannot be read.
    pub fn read(view: &dyn View) -> Result<Self, ReadError> {
        let mut catalogue = Self::default();
        read_all(view)?.into_iter().for_each(|table| catalogue.put(table));
        Ok(catalogue)
    }

    /// Returns the table with a full name, which includes the owner: see
    /// [`crate::table::name::TableName::whole`].
    #[must_use]
    pub fn find(&self, whole_name: &str) -> Option<&Arc<Table>> {
        self.names.get(whole_name).and_then(|id| self.tables.get(id))
    }

    /// Returns the table with an id.
    #[must_use]
    pub fn get(&self, id: TableId) -> Option<&Arc<Table>> {
        self.tables.get(&id)
    }

    /// Returns the table with an id if every arc has the table. Only such a table accepts items: an
    /// index entry may belong to any arc, and an arc without the table would discard the entry.
    #[must_use]
    pub fn get_for_items(&self, id: TableId) -> Option<&Arc<Table>> {
        self.get(id).filter(|table| !table.is_partial)
    }

    /// Returns all tables in the order of owner and name.
    pub fn by_name(&self) -> impl Iterator<Item = &Arc<Table>> {
        self.names.values().filter_map(|id| self.tables.get(id))
    }

    /// Returns all tables in the order of their ids. In a ring of several arcs, the result may
    /// include an old table whose name already belongs to a newer one.
    pub fn tables(&self) -> impl Iterator<Item = &Arc<Table>> {
        self.tables.values()
    }

    /// Adds or replaces a table. If two tables have the same name, the name refers to the newer
    /// table, because the older table is about to be removed.
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

    /// Merges the catalogues of a ring's arcs, the first arc first. The first arc decides which
    /// tables exist. The other arcs contribute their partitions, their shards and the progress of
    /// their work.
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
    // While an arc is still enabling or disabling TTL, the merged table has that status.
    if matches!(part.time_to_live, TimeToLive::Enabling { .. } | TimeToLive::Disabling { .. }) {
        whole.time_to_live = part.time_to_live.clone();
    }
    // If this arc has removed an index, the merged table shows the index as being deleted. If this
    // arc does not have an index yet, the merged table shows it as being created: this arc may have
    // items without an entry, even if the first arc has finished.
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
    // An index that only the first arc has removed is being deleted. If its id is higher than all
    // index ids that the first arc has assigned, this node's copy of the first arc is stale, and
    // the index is omitted.
    let given = whole.next_index;
    for index in part.indexes.iter().filter(|index| index.number.0 < given) {
        if whole.indexes.iter().all(|known| known.number != index.number) {
            let status = IndexStatus::Deleting;
            whole.indexes.push(SecondaryIndex { status, ..index.clone() });
        }
    }
}
