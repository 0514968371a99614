//! The machine: the catalogue of tables, and `apply`, which turns a log entry into one batch.
//!
//! `apply` is total: a request can never make it fail. Only damaged storage can, and then the
//! replica has to stop. The same entries in the same order give the same batches everywhere.

use std::collections::BTreeMap;
use std::sync::Arc;

use model::EpochMillis;

use crate::command::{Command, CreateTable, Entry, Reply, TimeToLiveChange, UpdateTable};
use crate::deletion;
use crate::index::{IndexNumber, IndexStatus, SecondaryIndex};
use crate::index_build;
use crate::keys::machine_state::{self, MachineState};
use crate::keys::table as table_key;
use crate::mutation::{self, Mutation};
use crate::options::TableOptions;
use crate::split;
use crate::storage::{Batch, Overlay, ReadError, View};
use crate::stream::{self, Sequence};
use crate::table::{Table, TableId, even_partitions, partition_count};
use crate::time_to_live::{self, TimeToLive};
use crate::transaction;
use crate::write;

/// A table that must not be deleted, in DynamoDB's words.
const DELETION_PROTECTED: &str = "Resource cannot be deleted as it is currently protected against deletion. Disable deletion protection first.";

/// All tables, by id and by name. A shared copy never changes.
#[derive(Clone, Debug, Default)]
pub struct Catalogue {
    tables: BTreeMap<TableId, Arc<Table>>,
    names: BTreeMap<String, TableId>,
}

impl Catalogue {
    /// The table with a name.
    #[must_use]
    pub fn find(&self, name: &str) -> Option<&Arc<Table>> {
        self.names.get(name).and_then(|id| self.tables.get(id))
    }

    /// The table with an id.
    #[must_use]
    pub fn get(&self, id: TableId) -> Option<&Arc<Table>> {
        self.tables.get(&id)
    }

    /// Every table, by name.
    pub fn by_name(&self) -> impl Iterator<Item = &Arc<Table>> {
        self.names.values().filter_map(|id| self.tables.get(id))
    }

    fn put(&mut self, table: Table) {
        self.names.insert(table.name.clone(), table.id);
        self.tables.insert(table.id, Arc::new(table));
    }

    fn remove(&mut self, id: TableId) {
        if let Some(table) = self.tables.remove(&id) {
            self.names.remove(&table.name);
        }
    }
}

/// One replica's state beside its storage.
#[derive(Debug)]
pub struct Machine {
    state: MachineState,
    catalogue: Arc<Catalogue>,
}

impl Machine {
    /// Finds the state again that the storage was left in.
    ///
    /// # Errors
    /// When the storage cannot be read.
    pub fn open(view: &dyn View) -> Result<Self, ReadError> {
        let mut catalogue = Catalogue::default();
        table_key::read_all(view)?.into_iter().for_each(|table| catalogue.put(table));
        let mut state = machine_state::read(view)?;
        if mutation::is_active(Mutation::ApplyTwice) {
            state.applied_index = state.applied_index.saturating_sub(1);
        }
        Ok(Self { state, catalogue: Arc::new(catalogue) })
    }

    /// The last log index whose entry the storage contains; 0 before the first.
    #[must_use]
    pub fn applied_index(&self) -> u64 {
        self.state.applied_index
    }

    /// The latest time that an entry carried.
    #[must_use]
    pub fn now(&self) -> EpochMillis {
        self.state.now
    }

    /// The tables as of the last applied entry.
    #[must_use]
    pub fn catalogue(&self) -> &Arc<Catalogue> {
        &self.catalogue
    }

    /// Applies the entry at `index` to the state that `view` shows. The caller makes the batch
    /// part of the storage before it applies the next entry or sends a reply. There is one reply
    /// for each command, in their order. An entry that was applied before gives an empty batch.
    ///
    /// # Errors
    /// When the storage cannot be read: the replica must stop.
    pub fn apply(
        &mut self,
        view: &dyn View,
        index: u64,
        entry: Entry,
    ) -> Result<(Batch, Vec<Reply>), ReadError> {
        if index <= self.state.applied_index {
            return Ok((Batch::default(), Vec::new()));
        }
        let mut overlay = Overlay::new(view);
        self.state.applied_index = index;
        self.state.now = self.state.now.max(entry.now);
        let mut replies = Vec::with_capacity(entry.commands.len());
        let mut position = 0u32;
        for command in entry.commands {
            let sequence = Sequence { index, position };
            let positions = u32::try_from(command.positions()).unwrap_or(u32::MAX);
            position = position.saturating_add(positions);
            replies.push(self.apply_command(&mut overlay, sequence, command)?);
        }
        machine_state::write(&mut overlay, &self.state)?;
        Ok((overlay.into_batch(), replies))
    }

    fn apply_command(
        &mut self,
        overlay: &mut Overlay<'_>,
        sequence: Sequence,
        command: Command,
    ) -> Result<Reply, ReadError> {
        let now = self.state.now;
        match command {
            Command::CreateTable(create) => self.create_table(overlay, sequence, create),
            Command::UpdateTable(update) => self.update_table(overlay, sequence, update),
            Command::DeleteTable { table } => self.delete_table(overlay, table),
            Command::UpdateTimeToLive { table, change } => {
                self.change_table(overlay, table, |table| change_time_to_live(table, change))
            }
            Command::Write(write) => match self.table(write.table) {
                Some(table) => write::apply_write(overlay, &table, sequence, now, *write),
                None => Ok(Reply::TableNotFound),
            },
            Command::Expire { table, key, expires_at } => match self.table(table) {
                Some(table) => {
                    write::apply_expire(overlay, &table, sequence, now, &key, expires_at)
                }
                None => Ok(Reply::TableNotFound),
            },
            Command::StepTimeToLive { table } => {
                self.step_table(overlay, table, time_to_live::step)
            }
            Command::StepIndexes { table } => self.step_table(overlay, table, index_build::step),
            Command::RotateShards { table } => self.step_table(overlay, table, |_, table| {
                stream::rotate(table, sequence, now);
                Ok(false)
            }),
            Command::TrimStreams { table } => self.step_table(overlay, table, |overlay, table| {
                stream::trim(overlay, table, now).map(|done| !done)
            }),
            Command::SplitPartition { table, partition, at } => self
                .change_table(overlay, table, |table| split::begin(table, partition, at))
                .map(|reply| match reply {
                    Reply::Table(_) => Reply::Done { more: true },
                    refused => refused,
                }),
            Command::StepSplits { table } => self.step_table(overlay, table, |overlay, table| {
                split::step(overlay, table, sequence, now)
            }),
            Command::PurgeTable { table } => {
                if self.catalogue.get(table).is_some() {
                    return Ok(Reply::Done { more: false });
                }
                deletion::purge(overlay, table).map(|more| Reply::Done { more })
            }
            Command::Transaction(transaction) => {
                transaction::apply(overlay, &self.catalogue, sequence, now, *transaction)
            }
            Command::ForgetTokens => {
                transaction::forget_tokens(overlay, now).map(|more| Reply::Done { more })
            }
        }
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
        create: CreateTable,
    ) -> Result<Reply, ReadError> {
        if self.catalogue.find(&create.name).is_some() {
            return Ok(Reply::TableExists);
        }
        let indexes: Vec<SecondaryIndex> = (0u32..)
            .zip(create.indexes)
            .map(|(number, definition)| SecondaryIndex {
                number: IndexNumber(number),
                definition,
                // There is nothing to build it from.
                status: IndexStatus::Active,
            })
            .collect();
        let partitions = even_partitions(partition_count(create.billing, 0));
        let mut table = Table {
            id: TableId(self.state.next_table),
            name: create.name,
            key_schema: create.key_schema,
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
        };
        for change in create.options {
            if let Err(refusal) = table.options.apply(change, self.state.now) {
                return Ok(Reply::Invalid(refusal));
            }
        }
        self.state.next_table += 1;
        if let Some((view_type, label)) = create.stream {
            stream::enable(&mut table, label, view_type, sequence, self.state.now);
        }
        self.keep(overlay, table.clone())?;
        Ok(Reply::Table(Box::new(table)))
    }

    fn update_table(
        &mut self,
        overlay: &mut Overlay<'_>,
        sequence: Sequence,
        update: UpdateTable,
    ) -> Result<Reply, ReadError> {
        let now = self.state.now;
        self.change_table(overlay, update.table, |table| {
            match (update.stream, table.enabled_stream().is_some()) {
                (Some(Some(_)), true) => {
                    return Err(format!(
                        "Table already has an enabled stream: TableName: {}",
                        table.name
                    ));
                }
                (Some(None), false) => {
                    return Err(format!(
                        "Table has no stream to disable: TableName: {}",
                        table.name
                    ));
                }
                (Some(Some((view_type, label))), false) => {
                    stream::enable(table, label, view_type, sequence, now);
                }
                (Some(None), true) => stream::disable(table, sequence, now),
                (None, _) => {}
            }
            index_build::change_indexes(table, update.indexes)?;
            update.options.into_iter().try_for_each(|change| table.options.apply(change, now))?;
            let billing = update.billing.unwrap_or(table.billing);
            table.options.note_billing(table.billing, billing, now);
            table.billing = billing;
            table.deletion_protection =
                update.deletion_protection.unwrap_or(table.deletion_protection);
            Ok(())
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

    /// Changes a table's settings, or refuses in DynamoDB's words.
    fn change_table(
        &mut self,
        overlay: &mut Overlay<'_>,
        id: TableId,
        change: impl FnOnce(&mut Table) -> Result<(), String>,
    ) -> Result<Reply, ReadError> {
        let Some(table) = self.table(id) else {
            return Ok(Reply::TableNotFound);
        };
        let mut changed = Table::clone(&table);
        if let Err(refusal) = change(&mut changed) {
            return Ok(Reply::Invalid(refusal));
        }
        self.keep(overlay, changed.clone())?;
        Ok(Reply::Table(Box::new(changed)))
    }

    /// Does a piece of a table's housekeeping.
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
        let more = step(overlay, &mut changed)?;
        if changed != *table {
            self.keep(overlay, changed)?;
        }
        Ok(Reply::Done { more })
    }
}

fn change_time_to_live(table: &mut Table, change: TimeToLiveChange) -> Result<(), String> {
    let (current, wanted) = (&table.time_to_live, change);
    table.time_to_live = match (current, wanted) {
        (TimeToLive::Enabling { .. } | TimeToLive::Disabling { .. }, _) => {
            return Err(
                "Time to live has been modified multiple times within a fixed interval".to_owned()
            );
        }
        (TimeToLive::Enabled { .. }, TimeToLiveChange::Enable(_)) => {
            return Err("TimeToLive is already enabled".to_owned());
        }
        (TimeToLive::Disabled, TimeToLiveChange::Disable(_)) => {
            return Err("TimeToLive is already disabled".to_owned());
        }
        (TimeToLive::Enabled { attribute }, TimeToLiveChange::Disable(given)) => {
            if *attribute != given {
                return Err(format!(
                    "TimeToLive is active on a different AttributeName: current AttributeName is {attribute}"
                ));
            }
            TimeToLive::Disabling { attribute: given }
        }
        (TimeToLive::Disabled, TimeToLiveChange::Enable(attribute)) => {
            TimeToLive::Enabling { attribute, cursor: None }
        }
    };
    Ok(())
}
