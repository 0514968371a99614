//! What goes into the log, and what the requester gets back.
//!
//! A command is complete: it carries the time (in its entry), names and labels, so that applying it
//! needs nothing but the state. Requests were checked before; what can only be known when the
//! command is applied (a condition, the type of an operand) comes back as a reply.

use expression::{Condition, Update};
use model::{EncodedItem, EpochMillis, Item, KeySchema, KeyValue, PrimaryKey, StreamViewType};
use postcard::ser_flavors::Flavor;
use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::TableId;
use crate::index::{IndexChange, IndexDefinition, IndexWrite};
use crate::options::OptionChange;
use crate::outbox::Parcel;
use crate::placement::{ArcId, Placement};
use crate::split::SplitPoint;
use crate::table::{Billing, PartitionNumber, Table};
use crate::table_name::TableName;
use crate::two_phase_commit::{Decide, Finish, Prepare, TransactionId};

/// One entry of the log: commands that were ready at the same time.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Entry {
    /// The proposer's time. The machine's time never goes back, even when this does.
    pub now: EpochMillis,
    /// What to do, in this order; each has its own reply. At most 99,999 positions altogether.
    pub commands: Vec<Command>,
}

impl Entry {
    /// Whether every command writes or deletes an item, and changes nothing else: what the machine
    /// knows of tables and locks is the same behind it.
    #[must_use]
    pub fn only_writes(&self) -> bool {
        let writes =
            |command: &Command| matches!(command, Command::Write(_) | Command::Expire { .. });
        self.commands.iter().all(writes)
    }
}

/// One thing to do.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum Command {
    /// Make a table.
    CreateTable(Box<CreateTable>),
    /// Change a table's settings.
    UpdateTable(Box<UpdateTable>),
    /// Remove a table and, step by step, everything in it.
    DeleteTable {
        /// Which.
        table: TableId,
    },
    /// Change the TTL setting.
    UpdateTimeToLive {
        /// Of which table.
        table: TableId,
        /// To what.
        change: TimeToLiveChange,
    },
    /// Change one item.
    Write(Box<Write>),
    /// Delete an item, if it still expires at this time and that time has come.
    Expire {
        /// The table.
        table: TableId,
        /// The item.
        key: Box<PrimaryKey>,
        /// The time, in epoch seconds, under which it was found.
        expires_at: u64,
    },
    /// Index or un-index the next items for TTL.
    StepTimeToLive {
        /// Which table.
        table: TableId,
    },
    /// Build or remove the next entries of an index.
    StepIndexes {
        /// Of which table.
        table: TableId,
    },
    /// Close the stream shards that are old enough and open their children.
    RotateShards {
        /// Of which table.
        table: TableId,
    },
    /// Remove stream records older than 24 hours.
    TrimStreams {
        /// Of which table.
        table: TableId,
    },
    /// Remove the next entries of a deleted table.
    PurgeTable {
        /// Which.
        table: TableId,
    },
    /// Change several items, or none.
    Transaction(Box<Transaction>),
    /// Forget the next client request tokens whose time has come.
    ForgetTokens,
    /// Begin to split a partition in two.
    SplitPartition {
        /// Of which table.
        table: TableId,
        /// Which.
        partition: PartitionNumber,
        /// Where.
        at: SplitPoint,
    },
    /// Go on with the splits of a table that have begun.
    StepSplits {
        /// Which table.
        table: TableId,
    },
    /// Know a table as the first arc of the ring has it.
    AdoptTable {
        /// The table, as it is there.
        table: Box<Table>,
        /// Where its parts are, and the version of all that.
        placement: Placement,
    },
    /// Remove a table that the first arc has deleted.
    DropTable {
        /// Which.
        table: TableId,
    },
    /// Take in changes of index entries from another arc.
    Receive(Box<Parcel>),
    /// Forget changes that another arc has acknowledged.
    TrimOutbox {
        /// Which arc.
        to: ArcId,
        /// The number of the last of them.
        upto: u64,
    },
    /// Lock the items of a transaction over several arcs and see whether it can be made.
    Prepare(Box<Prepare>),
    /// Decide about a transaction over several arcs.
    Decide(Box<Decide>),
    /// Carry out what was decided.
    Finish(Finish),
    /// Every arc has carried out what was decided about a transaction.
    Settle {
        /// Which.
        id: TransactionId,
        /// When it began.
        began: EpochMillis,
    },
    /// Forget the next transactions that are over and old.
    ForgetTransactions,
    /// Change how many bytes an item collection may have.
    LimitItemCollections {
        /// Inclusive.
        bytes_max: u64,
    },
}

impl Command {
    /// How many positions the command takes in its entry: one for each change that a stream may
    /// have to tell about.
    #[must_use]
    pub fn positions(&self) -> usize {
        match self {
            Self::Transaction(transaction) => transaction.operations.len().max(1),
            Self::Finish(finish) => usize::try_from(finish.operations).unwrap_or(1).max(1),
            _ => 1,
        }
    }
}

/// Several operations on different items, all made or none.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Transaction {
    /// Within ten minutes of success, another transaction with this token is not made again.
    pub token: Option<String>,
    /// The operations; the requester has made sure that no two are on one item. What they return
    /// of items when they succeed is not asked for.
    pub operations: Vec<Write>,
}

/// Make a table.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct CreateTable {
    /// Its name, checked.
    pub name: TableName,
    /// Its key.
    pub key_schema: KeySchema,
    /// Its billing mode.
    pub billing: Billing,
    /// Whether it is protected from deletion.
    pub deletion_protection: bool,
    /// Its stream, if it begins with one.
    pub stream: Option<(StreamViewType, String)>,
    /// Its indexes, with names that differ.
    pub indexes: Vec<IndexDefinition>,
    /// Its options, in this order.
    pub options: Vec<OptionChange>,
}

/// Change a table's settings; what is `None` stays.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct UpdateTable {
    /// Which table.
    pub table: TableId,
    /// Its billing mode.
    pub billing: Option<Billing>,
    /// Whether it is protected from deletion.
    pub deletion_protection: Option<bool>,
    /// Its stream: `Some(Some(..))` enables one with this view type and label, `Some(None)` disables it.
    pub stream: Option<Option<(StreamViewType, String)>>,
    /// Its indexes, in this order.
    pub indexes: Vec<IndexChange>,
    /// Its options, in this order.
    pub options: Vec<OptionChange>,
}

impl UpdateTable {
    /// An update that changes nothing but options.
    #[must_use]
    pub fn of_options(table: TableId, options: Vec<OptionChange>) -> Self {
        Self {
            table,
            billing: None,
            deletion_protection: None,
            stream: None,
            indexes: Vec::new(),
            options,
        }
    }
}

/// A new TTL setting.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum TimeToLiveChange {
    /// Expire by this attribute.
    Enable(String),
    /// Do not expire by this attribute any more.
    Disable(String),
}

/// Change one item.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Write {
    /// Of which table.
    pub table: TableId,
    /// Which item.
    pub key: PrimaryKey,
    /// How.
    pub action: WriteAction,
    /// Only if this holds for the item as it is.
    pub condition: Option<Box<Condition>>,
    /// Whether the reply carries the item as it was.
    pub return_old: bool,
    /// Whether the reply carries the item as it is.
    pub return_new: bool,
    /// Whether a failed condition's reply carries the item.
    pub return_on_failure: bool,
}

/// How an item changes.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum WriteAction {
    /// It is replaced by this item, whose size and key were checked.
    Put(EncodedItem),
    /// It is removed.
    Delete,
    /// These updates are made; an item that is not there begins with its key alone.
    Update(Update),
    /// It stays as it is; only the condition matters.
    Check,
}

impl WriteAction {
    /// Replaces what is there by an item.
    #[must_use]
    pub fn put(item: &Item) -> Self {
        Self::Put(item.into())
    }
}

/// What became of a command.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Reply {
    /// The item is as the write wanted it.
    Written(Written),
    /// The condition does not hold; nothing changed.
    ConditionFailed {
        /// The item, if it was asked for and is there.
        item: Option<Item>,
        /// Size of the item that is there or of the one that was to be put, the larger of both, in
        /// bytes.
        bytes: usize,
    },
    /// The write cannot be made on this item or table; nothing changed. DynamoDB's own words.
    Invalid(String),
    /// The write would give the key of an index an empty value; nothing changed. DynamoDB's own
    /// words.
    EmptyIndexKey(String),
    /// The item collection would become too large; nothing changed.
    ItemCollectionTooLarge,
    /// The table as it is now.
    Table(Box<Table>),
    /// There is no such table (any more).
    TableNotFound,
    /// A table of this name is there already.
    TableExists,
    /// Every operation of the transaction was made.
    Transacted {
        /// What each of them did, in their order.
        writes: Vec<Written>,
        /// Whether that was some time ago: this command changed nothing.
        repeated: bool,
    },
    /// Nothing of the transaction was made, for these reasons, one for each operation.
    TransactionCancelled(Vec<CancellationReason>),
    /// The token belongs to another transaction; nothing changed.
    TokenMismatch,
    /// The command was carried out; `more` asks for another of the same.
    Done {
        /// Whether there is more to do.
        more: bool,
    },
    /// A transaction has locked the item; nothing changed.
    Conflict,
    /// The operations of a transaction over several arcs can be made, and their items are locked.
    Prepared {
        /// What each of them will have done, in their order.
        writes: Vec<Written>,
    },
    /// An earlier attempt at the transaction with this token is under way; nothing changed.
    TransactionInProgress,
    /// The transaction is over here, or too old to begin with: nothing changed.
    TransactionOver,
    /// The decision that counts.
    Decided {
        /// Whether the transaction is made.
        commit: bool,
    },
    /// How far the changes from the arc that sent them have come.
    Received {
        /// The number of the last of them.
        upto: u64,
    },
}

/// What became of one operation of a transaction that was not made.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum CancellationReason {
    /// Nothing stands against this one.
    None,
    /// Its condition does not hold.
    ConditionFailed {
        /// The item, if it was asked for and is there.
        item: Option<Item>,
    },
    /// It cannot be made on this item. DynamoDB's own words.
    Invalid(String),
    /// It was to insert an item that is there already.
    DuplicateItem,
    /// Another transaction has locked its item.
    Conflict,
    /// Its item collection would become too large.
    ItemCollectionTooLarge,
    /// It was not even tried, because it is beyond the throughput of its table. The machine never
    /// says so: throughput is not its business.
    Throttled {
        /// Whether the table's throughput is provisioned.
        is_provisioned: bool,
        /// DynamoDB's own words.
        text: String,
    },
    /// It was not even tried, because its table is not there. The machine never says so: requests name
    /// tables, and the machine knows them by their ids.
    TableNotFound,
}

/// All items with one partition key, of a table with local indexes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ItemCollection {
    /// The partition key.
    pub partition: KeyValue,
    /// Bytes of the items and of their entries in local indexes.
    pub bytes: u64,
}

/// What a write did.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Written {
    /// The item as it was, if asked for and there.
    pub old: Option<Item>,
    /// The item as it is, if asked for and there.
    pub new: Option<Item>,
    /// Size of the item as it was, in bytes; 0 when it was not there.
    pub old_bytes: usize,
    /// Size of the item as it is, in bytes; 0 when it is not there.
    pub new_bytes: usize,
    /// The item collection as it is, in a table with local indexes.
    pub collection: Option<Box<ItemCollection>>,
    /// The entries of secondary indexes that it changed.
    pub index_writes: Vec<IndexWrite>,
}

/// A log entry that cannot be read or written.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("log entry: {0}")]
pub struct EntryError(String);

impl EntryError {
    #[expect(clippy::needless_pass_by_value, reason = "it is used as a function for map_err")]
    fn encoding(error: postcard::Error) -> Self {
        Self(error.to_string())
    }
}

/// First byte of an entry's payload.
const ENTRY_VERSION: u8 = 1;

/// The payload of an entry as the log stores it.
///
/// # Errors
/// Only for a defect of a command's encoding.
pub fn encode_entry(entry: &Entry) -> Result<Vec<u8>, EntryError> {
    let mut encoder = EntryEncoder::with_room(0);
    encoder.push(&entry.commands, usize::MAX)?;
    let EncodedEntry { mut bytes, begins_at } = encoder.finish(entry.now)?;
    bytes.drain(..begins_at);
    Ok(bytes)
}

/// What a payload has before its commands at most: the version, and two numbers of at most ten bytes.
pub const ENTRY_HEAD_BYTES_MAX: usize = 1 + 10 + 10;

/// Builds a payload command by command, so that its size is known while commands are gathered.
#[derive(Debug)]
pub struct EntryEncoder {
    /// Room for the head, and the commands.
    bytes: Vec<u8>,
    count: u64,
}

/// A payload that was built.
#[derive(Debug)]
pub struct EncodedEntry {
    /// The payload, behind some bytes that do not belong to it.
    pub bytes: Vec<u8>,
    /// Where it begins.
    pub begins_at: usize,
}

impl EntryEncoder {
    /// For commands of about so many bytes; more find room, too.
    #[must_use]
    pub fn with_room(bytes: usize) -> Self {
        let mut room = Vec::with_capacity(ENTRY_HEAD_BYTES_MAX + bytes);
        room.resize(ENTRY_HEAD_BYTES_MAX, 0);
        Self { bytes: room, count: 0 }
    }

    /// Adds commands and gives the size of all commands so far, in bytes. `None` if these take more
    /// than `bytes_max` together: then none of them is added, and the rest of them is not encoded.
    ///
    /// # Errors
    /// Only for a defect of a command's encoding; the encoder is then of no more use.
    pub fn push(
        &mut self,
        commands: &[Command],
        bytes_max: usize,
    ) -> Result<Option<usize>, EntryError> {
        let before = self.bytes.len();
        let end = before.saturating_add(bytes_max);
        for command in commands {
            let room = Room { bytes: &mut self.bytes, end };
            match postcard::serialize_with_flavor(command, room) {
                Ok(()) => {}
                Err(postcard::Error::SerializeBufferFull) => {
                    self.bytes.truncate(before);
                    return Ok(None);
                }
                Err(error) => return Err(EntryError::encoding(error)),
            }
        }
        self.count += commands.len() as u64;
        Ok(Some(self.bytes.len() - ENTRY_HEAD_BYTES_MAX))
    }

    /// The payload: the version, the time, the number of commands, the commands.
    ///
    /// # Errors
    /// Only for a defect of the encoding.
    pub fn finish(self, now: EpochMillis) -> Result<EncodedEntry, EntryError> {
        let Self { mut bytes, count } = self;
        let head = postcard::to_extend(&(now, count), vec![ENTRY_VERSION])
            .map_err(EntryError::encoding)?;
        let too_long = || EntryError(format!("its head takes {} bytes", head.len()));
        let begins_at = ENTRY_HEAD_BYTES_MAX.checked_sub(head.len()).ok_or_else(too_long)?;
        let room = bytes.get_mut(begins_at..ENTRY_HEAD_BYTES_MAX).ok_or_else(too_long)?;
        room.copy_from_slice(&head);
        Ok(EncodedEntry { bytes, begins_at })
    }
}

/// Bytes that become more up to an end.
struct Room<'b> {
    bytes: &'b mut Vec<u8>,
    end: usize,
}

impl Flavor for Room<'_> {
    type Output = ();

    fn try_extend(&mut self, data: &[u8]) -> postcard::Result<()> {
        if data.len() > self.end.saturating_sub(self.bytes.len()) {
            return Err(postcard::Error::SerializeBufferFull);
        }
        self.bytes.extend_from_slice(data);
        Ok(())
    }

    fn try_push(&mut self, data: u8) -> postcard::Result<()> {
        if self.bytes.len() >= self.end {
            return Err(postcard::Error::SerializeBufferFull);
        }
        self.bytes.push(data);
        Ok(())
    }

    fn finalize(self) -> postcard::Result<()> {
        Ok(())
    }
}

/// Reads what [`encode_entry`] wrote.
///
/// # Errors
/// When the payload is damaged or of an unknown version.
pub fn decode_entry(payload: &[u8]) -> Result<Entry, EntryError> {
    match payload.split_first() {
        Some((&ENTRY_VERSION, rest)) => {
            postcard::from_bytes(rest).map_err(|error| EntryError(error.to_string()))
        }
        first => Err(EntryError(format!("unknown version: {:?}", first.map(|(byte, _)| byte)))),
    }
}
