//! The storage keys of a replica, with one file for each kind.
//!
//! The enum [`Family`] lists the kinds; `docs/formats/keys.md` documents the layout. Values begin
//! with a version byte.

pub(crate) mod expiry;
pub(crate) mod index_entry;
pub(crate) mod index_statistics;
pub(crate) mod item;
pub(crate) mod item_collection;
pub(crate) mod machine_state;
pub(crate) mod outbox;
pub(crate) mod removal;
pub(crate) mod request_token;
pub(crate) mod ring;
pub(crate) mod statistics;
pub(crate) mod stream_record;
pub(crate) mod stream_row;
pub(crate) mod table;
pub(crate) mod two_phase_commit;

use crate::storage::ReadError;
use crate::table::identifiers::TableId;

/// The first byte of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Family {
    /// One entry: applied log index, time, next table id. See [`machine_state`].
    MachineState = 1,
    /// Tables by id. See [`table`].
    Table = 2,
    /// Items by table, token and key. See [`item`].
    Item = 3,
    /// Rows of stream records, by table, shard and the sequence of their last record. See
    /// [`stream_row`].
    StreamRecord = 4,
    /// Items that expire, by table and time. See [`expiry`].
    Expiry = 5,
    /// Item count and bytes by table and partition. See [`statistics`].
    Statistics = 6,
    /// Deleted tables whose entries are being removed, and the progress. See [`table`].
    DeletedTable = 7,
    /// Entries of secondary indexes by table, index, token and keys. See [`index_entry`].
    IndexEntry = 8,
    /// Entry count and bytes by table and index. See [`index_statistics`].
    IndexStatistics = 9,
    /// The result of the transaction with a client request token. See [`request_token`].
    RequestToken = 10,
    /// Client request tokens by expiry time. See [`request_token`].
    RequestTokenExpiry = 11,
    /// Changes of index entries that wait for delivery to another arc. See [`outbox`].
    Outbox = 12,
    /// Progress of the deliveries to each other arc. See [`outbox`].
    OutboxProgress = 13,
    /// Progress of the deliveries from each other arc. See [`outbox`].
    Inbox = 14,
    /// Operations that transactions over several arcs have prepared. See [`two_phase_commit`].
    Prepared = 15,
    /// Transactions that have ended in this arc. See [`two_phase_commit`].
    FinishedTransaction = 16,
    /// Decisions that at least one arc has not applied yet. See [`two_phase_commit`].
    Decision = 17,
    /// Decisions that every arc has applied. See [`two_phase_commit`].
    SettledDecision = 18,
    /// Number of steps of transactions over several arcs. See [`two_phase_commit`].
    TransactionSteps = 19,
    /// Bytes of item collections of tables with local indexes. See [`item_collection`].
    ItemCollection = 20,
    /// Limit of the size of item collections. See [`item_collection`].
    ItemCollectionLimit = 21,
    /// Progress of step-by-step removals in existing tables. See [`removal`].
    Removal = 22,
    /// One entry, in the first arc: the nodes of the cluster and the placement of its arcs. See
    /// [`ring`].
    Ring = 23,
}

/// The first byte of queue keys, which are the keys of stream records. Records of a shard are only
/// appended at the end and removed from the front, so an engine may store them separately.
pub const QUEUE_KEYS: u8 = Family::StreamRecord as u8;

/// Length in bytes of the common prefix of one queue's keys: family, table and shard.
pub const QUEUE_PREFIX_BYTES: usize = 13;

impl Family {
    /// Returns a key that begins with this family and a table's id.
    pub(crate) fn of_table(self, table: TableId) -> Vec<u8> {
        let mut key = Vec::with_capacity(64);
        self.append_of_table(&mut key, table);
        key
    }

    /// Appends this family and a table's id to an empty key.
    fn append_of_table(self, key: &mut Vec<u8>, table: TableId) {
        key.push(self as u8);
        key.extend_from_slice(&table.0.to_be_bytes());
    }
}

/// The version byte of stored values in the current layout.
pub(crate) const VALUE_VERSION: u8 = 1;
/// The version byte of a stored table that is spread over arcs: see [`table`].
pub(crate) const PLACED_TABLE_VERSION: u8 = 2;

/// Encodes a value for the storage: the version byte, then postcard's encoding.
pub(crate) fn encode_value<T: serde::Serialize>(value: &T) -> Result<Vec<u8>, ReadError> {
    encode_value_into(Vec::new(), value)
}

/// Appends the result of [`encode_value`] to an empty vector, whose capacity the caller may have
/// reserved.
pub(crate) fn encode_value_into<T: serde::Serialize>(
    mut out: Vec<u8>,
    value: &T,
) -> Result<Vec<u8>, ReadError> {
    out.push(VALUE_VERSION);
    postcard::to_extend(value, out)
        .map_err(|error| ReadError(format!("cannot encode a value: {error}")))
}

/// Decodes a value of [`encode_value`].
pub(crate) fn decode_value<T: serde::de::DeserializeOwned>(bytes: &[u8]) -> Result<T, ReadError> {
    match bytes.split_first() {
        Some((&VALUE_VERSION, rest)) => postcard::from_bytes(rest)
            .map_err(|error| ReadError(format!("damaged stored value: {error}"))),
        _ => Err(ReadError(format!("stored value has an unknown version: {:?}", bytes.first()))),
    }
}

/// Splits the first `N` bytes off a key.
pub(crate) fn take<const N: usize>(bytes: &[u8]) -> Option<([u8; N], &[u8])> {
    bytes.split_first_chunk::<N>().map(|(head, rest)| (*head, rest))
}
