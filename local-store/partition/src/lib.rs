//! The partition state machine: `apply(entry)` returns one atomic write batch and the replies.
//!
//! The state machine is deterministic: the same log produces the same bytes on every replica. The
//! crate has no clock (time is in the log entry), no disk, no network and no randomness, and never
//! iterates over an unordered collection. HTTP and the scheduling of commands are in the server.

mod arcs;
mod catalogue;
mod command;
mod entry;
mod image;
mod index;
mod item_collection;
mod keys;
mod machine;
pub mod mutation;
mod read;
mod ring;
mod split;
mod storage;
mod stream;
mod table;
mod time_to_live;
mod transaction;
mod write;

pub use arcs::adoption::can_follow;
pub use arcs::delivery::{Delivery, DeliveryBatch};
pub use arcs::outbox::{has_arrived, is_outbox_full, read_delivery_batch, unacknowledged_changes};
pub use arcs::routing::{
    ArcRange, Destination, Location, arc_of_token, cut, destination, locate, sum_values,
};
pub use catalogue::Catalogue;
pub use command::reply::{CancellationReason, ItemCollection, Reply, Written};
pub use command::{
    Command, CreateTable, Decide, Finish, Prepare, TimeToLiveChange, Transaction, UpdateTable,
    Write, WriteAction,
};
pub use entry::sequence::Sequence;
pub use entry::{
    ENTRY_HEAD_BYTES_MAX, EncodedEntry, Entry, EntryEncoder, EntryError, decode_entry,
    encode_entry, entry_counts,
};
pub use index::build::{adds_entries, find_index_work};
pub use index::change::global_index_tokens;
pub use index::refusal::{ItemRefusal, check_put, check_put_encoded};
pub use keys::ring::read_ring;
pub use keys::statistics::Statistics;
pub use keys::stream_row::table_of_record;
pub use keys::{QUEUE_KEYS, QUEUE_PREFIX_BYTES};
pub use machine::Machine;
pub use machine::deletion::find_deleted_table;
pub use read::{
    ItemRange, SortRange, read_encoded_entries, read_encoded_item, read_encoded_items,
    read_index_statistics, read_item, read_partition_statistics, read_statistics,
};
pub use ring::change::RingChange;
pub use ring::placement::{place, place_first};
pub use ring::refusal::RingRefusal;
pub use ring::{NODES_MAX, REPLICAS, Ring, RingNode, Slot};
pub use split::{find_due_splits, find_split_work};
pub use storage::{Batch, Op, ReadError, Value, View, Visit};
pub use stream::seek::find_first_since;
pub use stream::{
    Position, find_due_rotations, find_due_trims, read_last_sequence, read_newest_shard_records,
    read_shard_records,
};
pub use table::Table;
pub use table::billing::{Billing, partition_count};
pub use table::identifiers::{IndexNumber, PartitionNumber, ShardNumber, TableId};
pub use table::index::{
    IndexChange, IndexDefinition, IndexKey, IndexKind, IndexProjection, IndexStatus, IndexWrite,
    SecondaryIndex,
};
pub use table::name::TableName;
pub use table::options::{
    ExpectedPolicy, IndexOptions, OnDemandLimit, OptionChange, Recovery, ResourcePolicy,
    TableOptions, Units,
};
pub use table::partition::{PARTITIONS_MAX, Partition, Split, SplitPoint};
pub use table::placement::{ARCS_MAX, ArcId, ArcPosition, Placement, PlacementRange};
pub use table::refusal::POLICY_CHANGED;
pub use table::stream::{Shard, Stream};
pub use table::time_to_live::TimeToLive;
pub use table::token_range::TokenRange;
pub use time_to_live::{Expired, find_expired, find_time_to_live_work};
pub use transaction::state::{Decision, PreparedHead, TransactionId};
pub use transaction::two_phase_commit::{
    has_old_transactions, read_incomplete, read_prepared, read_prepared_heads,
    read_transaction_steps,
};
pub use transaction::{
    TRANSACTION_TOO_LARGE, find_result, fingerprint, has_expired_tokens, is_remembered,
};
