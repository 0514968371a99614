//! Deliberate faults of the store, one at a time, to see that its checkers find them.
//!
//! Without the feature `mutations`, which no build but the simulation's own check has, nothing can
//! be activated and the compiler removes every question. With it, a thread chooses the fault for
//! everything that it runs; a simulated world runs on one thread.

/// A deliberate fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mutation {
    /// The log says that it has synced without a sync.
    ReplyBeforeSync,
    /// A failed sync of the log counts as done.
    IgnoreSyncError,
    /// A new segment of the log is used before its name is durable.
    SkipDirectorySync,
    /// A payload of the log is taken as it is, whatever its checksum says.
    IgnoreChecksum,
    /// The state says that it is durable when it is not, so that the log is shortened too far.
    PersistNothing,
    /// After a restart the last entry is applied once more.
    ApplyTwice,
    /// A write is made although its condition does not hold.
    IgnoreCondition,
    /// A transaction of which one operation fails makes the others.
    PartialTransaction,
    /// A transaction's token is not remembered.
    ForgetToken,
    /// Removing an item leaves its index entries.
    SkipIndexEntries,
    /// A write that changes nothing has a stream record.
    RecordOfNothing,
    /// The first records of a shard that continues another one alone are lost.
    DropRecordAtRotation,
    /// The first records of the shards that continue a shard that was split are lost.
    DropRecordAtSplit,
    /// A transaction does not look at the items that it only checks.
    SkipTransactionCheck,
    /// An expired item is deleted although its time was extended.
    ExpireExtended,
    /// Deletes by TTL do not say so.
    LoseTimeToLiveIdentity,
    /// A node that starts again does not know for whom it voted.
    ForgetVote,
    /// A strong read is answered from the state that a node happens to have.
    ReadWithoutIndex,
    /// A node takes its own vote for those of a majority.
    TrustOwnVote,
    /// A node that led when it ended leads again when it starts.
    LeaderRestore,
    /// A write whose answer was lost is said not to have been made.
    FalseFailure,
    /// A write whose answer was lost is handed to the leader once more.
    RepeatLostWrite,
    /// The last keys of a snapshot are not sent.
    LoseEndOfSnapshot,
    /// The log is shortened to its newest entry, whatever the state contains durably.
    ShortenTooFar,
    /// The change of an index entry that lies in another arc is not left for it.
    SkipOutbox,
    /// What was left for another arc is let go of before it was received there.
    TrimUnreceived,
    /// What comes from another arc once more is taken in once more.
    UnguardedDelivery,
    /// The decision about a transaction over several arcs is told, and not kept.
    ForgetDecision,
    /// A transaction over several arcs is answered before its decision is durable.
    AnswerBeforeDecision,
    /// A write that is stored as a delta to another one gets that one's condition whole.
    ConditionOfModel,
}

impl Mutation {
    /// All of them.
    pub const ALL: [Self; 30] = [
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
    ];
}

#[cfg(feature = "mutations")]
mod switch {
    use std::cell::Cell;

    use super::Mutation;

    thread_local! {
        static ACTIVE: Cell<Option<Mutation>> = const { Cell::new(None) };
    }

    /// Chooses the fault of this thread, or none.
    pub fn activate(mutation: Option<Mutation>) {
        ACTIVE.set(mutation);
    }

    /// Whether this fault is active on this thread.
    #[must_use]
    pub fn is_active(mutation: Mutation) -> bool {
        ACTIVE.get() == Some(mutation)
    }
}

#[cfg(feature = "mutations")]
pub use switch::{activate, is_active};

/// Nothing is active without the feature `mutations`.
#[cfg(not(feature = "mutations"))]
#[must_use]
pub const fn is_active(_: Mutation) -> bool {
    false
}
