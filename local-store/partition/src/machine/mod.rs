//! The state machine of one arc: its tables, and `apply`, which turns a log entry into one batch.
//!
//! No request can make `apply` fail. It fails only if the storage is damaged; the replica must then
//! stop. The same entries in the same order give the same batches on every replica.

pub(crate) mod deletion;
mod ring;
pub(crate) mod step;
#[cfg(test)]
mod step_tests;
#[cfg(test)]
pub(crate) mod tests;

use std::sync::Arc;

use model::{EpochMillis, PrimaryKey};

use crate::arcs::adoption;
use crate::arcs::outbox;
use crate::catalogue::Catalogue;
use crate::command::reply::Reply;
use crate::command::{Command, CreateTable, TimeToLiveChange, UpdateTable, Write};
use crate::entry::Entry;
use crate::entry::sequence::Sequence;
use crate::index;
use crate::keys::machine_state::{self, MachineState};
use crate::keys::ring::read_ring;
use crate::keys::{item, item_collection, table as table_key};
use crate::mutation::{self, Mutation};
use crate::read::read_statistics;
use crate::ring::Ring;
use crate::split;
use crate::storage::overlay::Overlay;
use crate::storage::{Batch, ReadError, View};
use crate::stream;
use crate::table::Table;
use crate::table::billing::partition_count;
use crate::table::identifiers::{IndexNumber, PartitionNumber, TableId};
use crate::table::index::{IndexStatus, SecondaryIndex};
use crate::table::options::TableOptions;
use crate::table::partition::{SplitPoint, even_partitions, partitions_in};
use crate::table::placement::{ArcPosition, Placement};
use crate::table::refusal::TableRefusal;
use crate::table::time_to_live::TimeToLive;
use crate::time_to_live;
use crate::transaction;
use crate::transaction::locks::Locks;
use crate::transaction::two_phase_commit;
use crate::write;

/// DynamoDB's error message for a table that is protected from deletion.
const DELETION_PROTECTED: &str = "Resource cannot be deleted as it is currently protected against deletion. Disable deletion protection first.";

/// The number of commands whose items are prefetched together. The number is large enough to use
/// the memory bandwidth, and so small that the first items stay in the CPU cache until they are
/// needed.
const COMMANDS_TOGETHER: usize = 32;

/// The maximum number of changes per command for which the overlay reserves capacity.
const CHANGES_EXPECTED_MAX: usize = 8;

/// The state machine of one replica, without its storage.
#[derive(Debug)]
pub struct Machine {
    arc_position: ArcPosition,
    state: MachineState,
    catalogue: Arc<Catalogue>,
    /// The ring; the default one in all arcs but the first.
    ring: Arc<Ring>,
    /// The locks of prepared transactions, in memory for fast lookup.
    locks: Locks,
    /// The number of changes per command in the last applied entry, rounded up, at most
    /// [`CHANGES_EXPECTED_MAX`]. Used only to reserve capacity; no result depends on it.
    changes_of_a_command: usize,
}

impl Machine {
    /// Restores the state machine of a ring with one arc from its storage.
    ///
    /// # Errors
    /// When the storage cannot be read.
    pub fn open(view: &dyn View) -> Result<Self, ReadError> {
        Self::open_in(ArcPosition::default(), view)
    }

    /// Restores the state machine of an arc from its storage. The position of an arc must never
    /// change.
    ///
    /// # Errors
    /// When the storage cannot be read.
    pub fn open_in(position: ArcPosition, view: &dyn View) -> Result<Self, ReadError> {
        let catalogue = Catalogue::read(view)?;
        let mut state = machine_state::read(view)?;
        if mutation::is_active(Mutation::ApplyTwice) {
            state.applied_index = state.applied_index.saturating_sub(1);
        }
        let locks = match mutation::is_active(Mutation::ForgetLocks) {
            true => Locks::default(),
            false => Locks::read(view)?,
        };
        Ok(Self {
            arc_position: position,
            state,
            catalogue: Arc::new(catalogue),
            ring: Arc::new(read_ring(view)?.unwrap_or_default()),
            locks,
            changes_of_a_command: 1,
        })
    }

    /// Returns the last log index whose entry the storage contains; 0 before the first.
    #[must_use]
    pub fn applied_index(&self) -> u64 {
        self.state.applied_index
    }

    /// Returns the latest time of an applied entry.
    #[must_use]
    pub fn now(&self) -> EpochMillis {
        self.state.now
    }

    /// Returns the tables as of the last applied entry.
    #[must_use]
    pub fn catalogue(&self) -> &Arc<Catalogue> {
        &self.catalogue
    }

    /// Applies the entry at `index` to the state in `view`. Returns the batch and one reply for
    /// each command, in order. The caller adds the batch to the storage before it applies the next
    /// entry or sends a reply. An entry that was applied before returns an empty batch.
    ///
    /// # Errors
    /// When the storage cannot be read: the replica must stop.
    pub fn apply(
        &mut self,
        view: &dyn View,
        index: u64,
        entry: &Entry,
    ) -> Result<(Batch, Vec<Reply>), ReadError> {
        if index <= self.state.applied_index {
            return Ok((Batch::default(), Vec::new()));
        }
        // Reserves capacity: most entries change about as much per command as the previous entry.
        let changes = self.changes_of_a_command * entry.commands.len();
        let mut overlay = Overlay::with_room(view, changes);
        self.state.applied_index = index;
        self.state.now = self.state.now.max(entry.now);
        let mut replies = Vec::with_capacity(entry.commands.len());
        let mut position = 0u32;
        for commands in entry.commands.chunks(COMMANDS_TOGETHER) {
            let stored: Vec<_> = commands.iter().map(written_item).collect();
            // Prefetching makes reads faster only if there are several keys.
            if stored.len() > 1 {
                view.fetch(&mut stored.iter().map(Vec::as_slice).filter(|key| !key.is_empty()));
            }
            for (command, stored) in commands.iter().zip(stored) {
                let sequence = Sequence { index, position };
                let positions = u32::try_from(command.positions()).unwrap_or(u32::MAX);
                position = position.saturating_add(positions);
                // Other commands may scan keys or write rows of stream records, so all open rows
                // are closed first. The end of a row is part of an entry's effect, so this rule
                // must never change.
                if !command.only_writes() {
                    overlay.close_rows();
                }
                replies.push(self.apply_command(&mut overlay, sequence, command, stored)?);
            }
        }
        machine_state::write(&mut overlay, &self.state)?;
        let batch = overlay.into_batch();
        self.changes_of_a_command =
            batch.ops.len().div_ceil(entry.commands.len().max(1)).min(CHANGES_EXPECTED_MAX);
        Ok((batch, replies))
    }

    /// Records that the entry at `index` is applied, without applying it: the state machine of
    /// another replica with the same state has computed the entry's batch. The caller adds that
    /// batch to the storage. Returns false and does nothing if the entry was applied before, or if
    /// the entry has commands that change more than items. Such commands must also change this
    /// state machine's tables or locks.
    pub fn take_over(&mut self, index: u64, entry: &Entry) -> bool {
        if index <= self.state.applied_index || !entry.only_writes() {
            return false;
        }
        self.state.applied_index = index;
        self.state.now = self.state.now.max(entry.now);
        true
    }

    /// Applies one command; `stored` is the result of [`written_item`].
    fn apply_command(
        &mut self,
        overlay: &mut Overlay<'_>,
        at: Sequence,
        command: &Command,
        stored: Vec<u8>,
    ) -> Result<Reply, ReadError> {
        let (position, now) = (self.arc_position, self.state.now);
        let (catalogue, locks) = (&self.catalogue, &mut self.locks);
        match command {
            Command::Write(write) => self.write(overlay, at, write, stored),
            Command::Expire { table, key, expires_at } => {
                self.expire(overlay, at, *table, key, *expires_at, stored)
            }
            Command::Transaction(all) => {
                transaction::apply(overlay, catalogue, locks, at, now, all)
            }
            Command::CreateTable(create) => self.create_table(overlay, at, create),
            Command::UpdateTable(update) => self.update_table(overlay, at, update),
            Command::DeleteTable { table } => self.delete_table(overlay, *table),
            Command::UpdateTimeToLive { table, change } => {
                self.update_time_to_live(overlay, *table, change)
            }
            Command::StepTimeToLive { table } => {
                self.step_table(overlay, *table, time_to_live::step)
            }
            Command::StepIndexes { table } => self.step_table(overlay, *table, |overlay, table| {
                index::build::step(overlay, table, position)
            }),
            Command::RotateShards { table } => self.step_table(overlay, *table, |_, table| {
                stream::rotate(table, at, now);
                Ok(false)
            }),
            Command::TrimStreams { table } => {
                self.step_table(overlay, *table, |overlay, table| stream::trim(overlay, table, now))
            }
            Command::SplitPartition { table, partition, at } => {
                self.split_partition(overlay, *table, *partition, *at)
            }
            Command::StepSplits { table } => self
                .step_table(overlay, *table, |overlay, table| split::step(overlay, table, at, now)),
            Command::PurgeTable { table } => self.purge_table(overlay, *table),
            Command::ForgetTokens => transaction::forget_tokens(overlay, now).map(more),
            Command::AdoptTable { table, placement } => {
                self.adopt_table(overlay, at, table, placement)
            }
            Command::DropTable { table } => self.drop_table(overlay, *table),
            Command::LimitItemCollections { bytes_max } => {
                item_collection::write_bytes_max(overlay, *bytes_max).map(|()| more(false))
            }
            Command::Receive(batch) => outbox::receive(overlay, catalogue, batch),
            Command::TrimOutbox { to, upto } => outbox::trim(overlay, *to, *upto),
            Command::Prepare(prepare) => {
                two_phase_commit::prepare(overlay, catalogue, locks, at, now, prepare)
            }
            Command::Decide(decide) => two_phase_commit::decide(overlay, now, decide),
            Command::Finish(finish) => {
                two_phase_commit::finish(overlay, catalogue, locks, at, now, finish)
            }
            Command::CompleteTransaction { id, began } => {
                two_phase_commit::complete_transaction(overlay, *id, *began)
            }
            Command::ChangeRing(change) => self.change_ring(overlay, change),
            Command::ForgetTransactions => two_phase_commit::forget(overlay, now).map(more),
        }
    }

    fn write(
        &self,
        overlay: &mut Overlay<'_>,
        at: Sequence,
        write: &Write,
        stored: Vec<u8>,
    ) -> Result<Reply, ReadError> {
        match self.catalogue.get(write.table) {
            Some(_) if self.locks.contains(&stored) => Ok(Reply::Conflict),
            Some(table) => write::apply_write(overlay, table, at, self.state.now, write, stored),
            None => Ok(Reply::TableNotFound),
        }
    }

    /// Expires an item. Like [`Machine::write`], leaves the tables and locks unchanged: see
    /// [`Entry::only_writes`].
    fn expire(
        &self,
        overlay: &mut Overlay<'_>,
        at: Sequence,
        table: TableId,
        key: &PrimaryKey,
        expires_at: u64,
        stored: Vec<u8>,
    ) -> Result<Reply, ReadError> {
        match self.catalogue.get(table) {
            // A transaction has locked the item, so it is not deleted yet. The next search for
            // expired items finds it again.
            Some(_) if self.locks.contains(&stored) => Ok(more(false)),
            Some(table) => {
                let now = self.state.now;
                write::apply_expire(overlay, table, at, now, key, expires_at, stored)
            }
            None => Ok(Reply::TableNotFound),
        }
    }

    fn split_partition(
        &mut self,
        overlay: &mut Overlay<'_>,
        table: TableId,
        partition: PartitionNumber,
        at: SplitPoint,
    ) -> Result<Reply, ReadError> {
        self.change_table(overlay, table, |table| {
            split::begin(table, partition, at)?;
            Ok(more(true))
        })
    }

    fn purge_table(&self, overlay: &mut Overlay<'_>, table: TableId) -> Result<Reply, ReadError> {
        if self.catalogue.get(table).is_some() {
            return Ok(more(false));
        }
        deletion::purge(overlay, table).map(more)
    }

    fn drop_table(
        &mut self,
        overlay: &mut Overlay<'_>,
        table: TableId,
    ) -> Result<Reply, ReadError> {
        if self.catalogue.get(table).is_some() {
            Arc::make_mut(&mut self.catalogue).remove(table);
            table_key::delete(overlay, table);
        }
        Ok(more(false))
    }

    fn adopt_table(
        &mut self,
        overlay: &mut Overlay<'_>,
        sequence: Sequence,
        definition: &Table,
        placement: &Placement,
    ) -> Result<Reply, ReadError> {
        let definition = &Table { placement: placement.clone(), ..definition.clone() };
        let (arc, now) = (self.arc_position.arc, self.state.now);
        let own = self.table(definition.id);
        let adopted = match &own {
            Some(own) => {
                let is_empty = read_statistics(overlay, own)?.items == 0;
                adoption::follow(own, is_empty, definition, sequence, now)
            }
            None => adoption::found(definition, arc, sequence, now),
        };
        let is_behind = !adoption::has_followed(&adopted, definition);
        if own.is_none_or(|own| *own != adopted) {
            self.keep(overlay, adopted)?;
        }
        Ok(more(is_behind))
    }

    fn table(&self, id: TableId) -> Option<Arc<Table>> {
        self.catalogue.get(id).cloned()
    }

    fn keep(&mut self, overlay: &mut Overlay<'_>, table: Table) -> Result<(), ReadError> {
        table_key::write(overlay, &table)?;
        Arc::make_mut(&mut self.catalogue).put(table);
        Ok(())
    }

    fn create_table(
        &mut self,
        overlay: &mut Overlay<'_>,
        sequence: Sequence,
        create: &CreateTable,
    ) -> Result<Reply, ReadError> {
        if self.catalogue.find(create.name.whole()).is_some() {
            return Ok(Reply::TableExists);
        }
        let indexes: Vec<SecondaryIndex> = (0u32..)
            .zip(create.indexes.iter().cloned())
            .map(|(number, definition)| SecondaryIndex {
                number: IndexNumber(number),
                definition,
                // The new table has no items to index.
                status: IndexStatus::Active,
            })
            .collect();
        let id = TableId(self.state.next_table);
        let all = even_partitions(partition_count(create.billing));
        let firsts = all.iter().map(|partition| partition.first_token);
        let placement = Placement::deal(id, firsts, self.arc_position.arcs);
        let partitions = partitions_in(&placement, self.arc_position.arc, all);
        let mut table = Table {
            id,
            name: create.name.clone(),
            key_schema: create.key_schema.clone(),
            billing: create.billing,
            created_at: self.state.now,
            deletion_protection: create.deletion_protection,
            next_partition: u32::try_from(partitions.len()).unwrap_or(u32::MAX),
            partitions,
            streams: Vec::new(),
            next_shard: 0,
            time_to_live: TimeToLive::Disabled,
            next_index: u32::try_from(indexes.len()).unwrap_or(u32::MAX),
            indexes,
            options: TableOptions::new(create.billing, self.state.now),
            placement,
            is_behind: false,
            is_partial: false,
        };
        for change in create.options.iter().cloned() {
            if let Err(refusal) = table.options.apply(change, self.state.now) {
                return Ok(Reply::Invalid(refusal.to_string()));
            }
        }
        self.state.next_table += 1;
        if let Some((view_type, label)) = &create.stream {
            stream::enable(&mut table, label.clone(), *view_type, sequence, self.state.now);
        }
        self.keep(overlay, table.clone())?;
        Ok(Reply::Table(Box::new(table)))
    }

    fn update_table(
        &mut self,
        overlay: &mut Overlay<'_>,
        sequence: Sequence,
        update: &UpdateTable,
    ) -> Result<Reply, ReadError> {
        let (now, arcs) = (self.state.now, self.arc_position.arcs);
        self.change_table(overlay, update.table, |table| {
            count_version(table, arcs);
            match (&update.stream, table.enabled_stream().is_some()) {
                (Some(Some(_)), true) => {
                    return Err(TableRefusal::StreamEnabled(table.name.clone()));
                }
                (Some(None), false) => return Err(TableRefusal::NoStream(table.name.clone())),
                (Some(Some((view_type, label))), false) => {
                    let label = stream::next_label(table, label.clone());
                    stream::enable(table, label, *view_type, sequence, now);
                }
                (Some(None), true) => stream::disable(table, sequence, now),
                (None, _) => {}
            }
            index::change::change_indexes(table, &update.indexes)?;
            let mut options = update.options.iter().cloned();
            options.try_for_each(|change| table.options.apply(change, now))?;
            let billing = update.billing.unwrap_or(table.billing);
            table.options.note_billing(table.billing, billing, now);
            table.billing = billing;
            table.deletion_protection =
                update.deletion_protection.unwrap_or(table.deletion_protection);
            Ok(Reply::Table(Box::new(table.clone())))
        })
    }

    fn update_time_to_live(
        &mut self,
        overlay: &mut Overlay<'_>,
        id: TableId,
        change: &TimeToLiveChange,
    ) -> Result<Reply, ReadError> {
        let arcs = self.arc_position.arcs;
        let is_empty = match self.table(id) {
            Some(table) => read_statistics(overlay, &table)?.items == 0,
            None => false,
        };
        self.change_table(overlay, id, |table| {
            change_time_to_live(table, change, is_empty)?;
            count_version(table, arcs);
            Ok(Reply::Table(Box::new(table.clone())))
        })
    }

    fn delete_table(&mut self, overlay: &mut Overlay<'_>, id: TableId) -> Result<Reply, ReadError> {
        let Some(table) = self.table(id) else {
            return Ok(Reply::TableNotFound);
        };
        if table.deletion_protection {
            return Ok(Reply::Invalid(DELETION_PROTECTED.to_owned()));
        }
        Arc::make_mut(&mut self.catalogue).remove(id);
        table_key::delete(overlay, id);
        Ok(Reply::Table(Box::new(Arc::unwrap_or_clone(table))))
    }

    /// Changes a table's settings and returns the reply. A refusal changes nothing.
    fn change_table(
        &mut self,
        overlay: &mut Overlay<'_>,
        id: TableId,
        change: impl FnOnce(&mut Table) -> Result<Reply, TableRefusal>,
    ) -> Result<Reply, ReadError> {
        let Some(table) = self.table(id) else {
            return Ok(Reply::TableNotFound);
        };
        let mut changed = Table::clone(&table);
        match change(&mut changed) {
            Ok(reply) => {
                self.keep(overlay, changed)?;
                Ok(reply)
            }
            Err(refusal) => Ok(Reply::Invalid(refusal.to_string())),
        }
    }

    /// Runs one step of background work for a table.
    fn step_table(
        &mut self,
        overlay: &mut Overlay<'_>,
        id: TableId,
        step: impl FnOnce(&mut Overlay<'_>, &mut Table) -> Result<bool, ReadError>,
    ) -> Result<Reply, ReadError> {
        let Some(table) = self.table(id) else {
            return Ok(Reply::TableNotFound);
        };
        let mut changed = Table::clone(&table);
        let is_unfinished = step(overlay, &mut changed)?;
        if changed != *table {
            self.keep(overlay, changed)?;
        }
        Ok(more(is_unfinished))
    }
}

/// Returns the storage key of the item that a command writes or deletes; empty for other commands.
fn written_item(command: &Command) -> Vec<u8> {
    match command {
        Command::Write(write) => item::encode(write.table, &write.key),
        Command::Expire { table, key, .. } => item::encode(*table, key),
        _ => Vec::new(),
    }
}

fn more(more: bool) -> Reply {
    Reply::Done { more }
}

/// Increments the version of a table's definition, so that the other arcs of the ring adopt the
/// change.
fn count_version(table: &mut Table, arcs: u32) {
    if arcs > 1 {
        table.placement.version += 1;
    }
}

/// Changes the TTL setting. An empty table has no expiry entries, so the change is complete
/// immediately.
fn change_time_to_live(
    table: &mut Table,
    change: &TimeToLiveChange,
    is_empty: bool,
) -> Result<(), TableRefusal> {
    let given = match change {
        TimeToLiveChange::Enable(given) | TimeToLiveChange::Disable(given) => given,
    };
    // DynamoDB validates the request before it reports that a change is already in progress.
    let current = &table.time_to_live;
    let refusal = match (current.indexed_attribute(), change) {
        (Some(attribute), _) if attribute != given => {
            Some(TableRefusal::OtherTimeToLive(attribute.to_owned()))
        }
        (Some(_), TimeToLiveChange::Enable(_)) => Some(TableRefusal::TimeToLiveEnabled),
        (None, TimeToLiveChange::Disable(_)) => Some(TableRefusal::TimeToLiveDisabled),
        _ => None,
    };
    refusal.map_or(Ok(()), Err)?;
    table.time_to_live = match (current, change) {
        (TimeToLive::Enabled { .. }, TimeToLiveChange::Disable(_)) if is_empty => {
            TimeToLive::Disabled
        }
        (TimeToLive::Enabled { .. }, TimeToLiveChange::Disable(attribute)) => {
            TimeToLive::Disabling { attribute: attribute.clone() }
        }
        (TimeToLive::Disabled, TimeToLiveChange::Enable(attribute)) if is_empty => {
            TimeToLive::Enabled { attribute: attribute.clone() }
        }
        (TimeToLive::Disabled, TimeToLiveChange::Enable(attribute)) => {
            TimeToLive::Enabling { attribute: attribute.clone(), cursor: None }
        }
        _ => return Err(TableRefusal::TimeToLiveChanging),
    };
    Ok(())
}
