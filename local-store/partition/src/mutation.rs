//! Deliberate faults of the store, one at a time, to verify that its checkers find them.
//!
//! Only the mutation check of the simulation builds with the feature `mutations`. Without the
//! feature, no fault can be activated, and the compiler removes every check for an active fault.
//! With the feature, each thread has its own active fault. A simulated world runs on one thread.

/// A deliberate fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mutation {
    /// The log reports records as durable before it has synced them.
    ReplyBeforeSync,
    /// A failed sync of the log is treated as successful.
    IgnoreSyncError,
    /// A new segment of the log is used before its name is durable.
    SkipDirectorySync,
    /// The log accepts a record whose checksum is wrong.
    IgnoreChecksum,
    /// The state reports writes as durable that are only in memory, so the log is truncated too
    /// far.
    PersistNothing,
    /// A restart applies the last entry a second time.
    ApplyTwice,
    /// A write is applied although its condition does not hold.
    IgnoreCondition,
    /// A transaction with one failed operation applies its other operations.
    PartialTransaction,
    /// A transaction's token is not remembered.
    ForgetToken,
    /// Deleting an item does not delete its index entries.
    SkipIndexEntries,
    /// A write that changes nothing produces a stream record.
    RecordOfNothing,
    /// The first records of a shard that is the only child of another shard are lost.
    DropRecordAtRotation,
    /// The first records of the two children of a split shard are lost.
    DropRecordAtSplit,
    /// A transaction ignores the conditions of operations that only check an item.
    SkipTransactionCheck,
    /// An expired item is deleted although its expiry time was extended in the meantime.
    ExpireExtended,
    /// Stream records of deletes by TTL do not show that TTL deleted the item.
    LoseTimeToLiveIdentity,
    /// A restarted node forgets its vote.
    ForgetVote,
    /// A consistent read is answered from the local state without a read index.
    ReadWithoutIndex,
    /// A node counts its own vote as a majority.
    TrustOwnVote,
    /// A restarted leader leads again without an election.
    LeaderRestore,
    /// A write whose reply was lost is reported as not applied, although its outcome is unknown.
    FalseFailure,
    /// A write whose reply was lost is sent to the leader again.
    RepeatLostWrite,
    /// The sender of a snapshot omits the last keys.
    LoseEndOfSnapshot,
    /// The log is truncated to its newest entry, even if the state does not durably contain the
    /// removed entries.
    ShortenTooFar,
    /// The change of an index entry in another arc is not added to the outbox.
    SkipOutbox,
    /// The outbox is trimmed before the other arc has received the changes.
    TrimUnreceived,
    /// A repeated delivery from another arc is applied again.
    UnguardedDelivery,
    /// The decision about a transaction over several arcs is sent, but not stored.
    ForgetDecision,
    /// A transaction over several arcs is acknowledged before its decision is durable.
    AnswerBeforeDecision,
    /// A write that was stored as a delta is decoded with the condition values of its base.
    ConditionOfModel,
    /// A read of an arc on other nodes is answered before everything that it needs was fetched.
    ReadIncomplete,
    /// A node without a majority answers consistent reads of other nodes.
    RemoteReadWithoutIndex,
    /// A replica answers a read of another node before it has applied the entries that the read must
    /// show.
    RemoteReadUnapplied,
    /// A replica omits the last pair of a range that another node reads.
    LoseEndOfRange,
    /// A write to an arc on other nodes is sent to another arc.
    SendToOtherArc,
    /// A node never looks for the next leader of an arc on other nodes.
    KeepOldLeader,
    /// A node reads the tables and the ring of an arc on other nodes only once.
    KeepOldDefinitions,
    /// A store uses its replica of an arc that has moved to other nodes.
    KeepUsingReplica,
    /// A replica that was added to a running node does not deliver its outbox.
    SkipRelayOfMoved,
    /// A node never removes the replica of an arc that has moved to other nodes.
    KeepReplica,
    /// A node removes its replica when the ring changes, while it is still a member of the group.
    LeaveWhileMember,
    /// The log does not record that a node has joined a group.
    ForgetJoined,
    /// The log does not record that a node has left a group.
    ForgetLeft,
    /// The ring takes a replica from a node, but gives it to no other node.
    LosePlace,
    /// A change of the ring is not stored, so it is lost at a restart.
    ForgetRing,
    /// A node that lost its disk keeps its incarnation.
    ReuseIncarnation,
    /// A leaving node is removed from the ring while groups still have it.
    ForgetTooEarly,
    /// A node without a replica votes in the elections of its arc.
    VoteUnfilled,
    /// The sender of a snapshot omits the stream records.
    SnapshotWithoutStream,
    /// A restarted replica forgets the locks of transactions over several arcs.
    ForgetLocks,
    /// A transaction over several arcs whose coordinator was lost is always committed.
    CommitAbandoned,
    /// A write does not maintain an index that is being built.
    IgnoreUnfinishedIndex,
    /// A flush of the engine omits the first key.
    FlushForgetsKey,
    /// The engine reads a queue file again after its rows were merged into another file.
    KeepJoinedQueue,
    /// The engine lists a queue file before the file is durable.
    QueueWithoutSync,
    /// A snapshot becomes the state before it is durable.
    AdoptUnpersisted,
}

impl Mutation {
    /// All deliberate faults.
    pub const ALL: [Self; 56] = [
        Self::ReplyBeforeSync,
        Self::IgnoreSyncError,
        Self::SkipDirectorySync,
        Self::IgnoreChecksum,
        Self::PersistNothing,
        Self::ApplyTwice,
        Self::IgnoreCondition,
        Self::PartialTransaction,
        Self::ForgetToken,
        Self::SkipIndexEntries,
        Self::RecordOfNothing,
        Self::DropRecordAtRotation,
        Self::DropRecordAtSplit,
        Self::SkipTransactionCheck,
        Self::ExpireExtended,
        Self::LoseTimeToLiveIdentity,
        Self::ForgetVote,
        Self::ReadWithoutIndex,
        Self::TrustOwnVote,
        Self::LeaderRestore,
        Self::FalseFailure,
        Self::RepeatLostWrite,
        Self::LoseEndOfSnapshot,
        Self::ShortenTooFar,
        Self::SkipOutbox,
        Self::TrimUnreceived,
        Self::UnguardedDelivery,
        Self::ForgetDecision,
        Self::AnswerBeforeDecision,
        Self::ConditionOfModel,
        Self::ReadIncomplete,
        Self::RemoteReadWithoutIndex,
        Self::RemoteReadUnapplied,
        Self::LoseEndOfRange,
        Self::SendToOtherArc,
        Self::KeepOldLeader,
        Self::KeepOldDefinitions,
        Self::KeepUsingReplica,
        Self::SkipRelayOfMoved,
        Self::KeepReplica,
        Self::LeaveWhileMember,
        Self::ForgetJoined,
        Self::ForgetLeft,
        Self::LosePlace,
        Self::ForgetRing,
        Self::ReuseIncarnation,
        Self::ForgetTooEarly,
        Self::VoteUnfilled,
        Self::SnapshotWithoutStream,
        Self::ForgetLocks,
        Self::CommitAbandoned,
        Self::IgnoreUnfinishedIndex,
        Self::FlushForgetsKey,
        Self::KeepJoinedQueue,
        Self::QueueWithoutSync,
        Self::AdoptUnpersisted,
    ];
}

#[cfg(feature = "mutations")]
mod switch {
    use std::cell::Cell;

    use super::Mutation;

    thread_local! {
        static ACTIVE: Cell<Option<Mutation>> = const { Cell::new(None) };
    }

    /// Sets the active fault of this thread; `None` deactivates it.
    pub fn activate(mutation: Option<Mutation>) {
        ACTIVE.set(mutation);
    }

    /// Returns whether the given fault is active on this thread.
    #[must_use]
    pub fn is_active(mutation: Mutation) -> bool {
        ACTIVE.get() == Some(mutation)
    }
}

#[cfg(feature = "mutations")]
pub use switch::{activate, is_active};

/// Returns false: no fault is active without the feature `mutations`.
#[cfg(not(feature = "mutations"))]
#[must_use]
pub const fn is_active(_: Mutation) -> bool {
    false
}
