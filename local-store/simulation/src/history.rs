//! What the clients did and heard, for the checkers. It judges nothing.

use std::collections::BTreeMap;
use std::sync::MutexGuard;
use std::sync::atomic::{AtomicU64, Ordering};

use locks::Mutex;
use model::{Item, StreamRecord};

use crate::checkers::linearizability::{Operation, State};
use crate::checkers::serializability::Transaction;
use crate::request::WRITE_ID;

/// What is known about a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// It was acknowledged.
    Acknowledged,
    /// It may have been made, once, or not.
    Unknown,
    /// It was certainly not made.
    NotMade,
}

/// A sum over accounts that one read saw.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sum {
    /// Of which accounts.
    pub what: &'static str,
    /// What they add up to.
    pub total: i128,
    /// When it was read, on the logical clock.
    pub at: u64,
}

/// Votes of one counter slot.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Votes {
    /// Call, end, and the count after the vote, of each acknowledged vote that told its count.
    pub told: Vec<(u64, u64, i128)>,
    /// Votes that were certainly counted.
    pub counted: i128,
    /// Votes that may have been.
    pub unknown: i128,
}

/// What one reader read of one shard without a gap, in order.
#[derive(Clone, Debug, PartialEq)]
pub struct Reading {
    /// Which shard.
    pub shard: String,
    /// Whether it began at the shard's beginning.
    pub from_beginning: bool,
    /// What it read.
    pub records: Vec<StreamRecord>,
}

/// Everything that was recorded.
#[derive(Debug, Default)]
pub struct Records {
    /// Operations on each register, by key.
    pub registers: BTreeMap<String, Vec<Operation>>,
    /// Every write that stores something, by its id.
    pub writes: BTreeMap<u64, (String, Fate)>,
    /// Every delete, by key: what it removed, if that is known.
    pub deletes: BTreeMap<String, Vec<(Fate, State)>>,
    /// Values that reads without strong consistency saw, by key.
    pub weak_reads: Vec<(String, State)>,
    /// Sums that reads saw.
    pub sums: Vec<Sum>,
    /// What has to come out of each of them.
    pub expected_sums: BTreeMap<&'static str, i128>,
    /// Transactions, and single operations on the same items.
    pub transactions: Vec<Transaction>,
    /// Counter slots.
    pub votes: BTreeMap<String, Votes>,
    /// Stream readers.
    pub readings: Vec<Reading>,
    /// Strong reads that found an expiring item gone: key, what its last known writer stored as its
    /// time, and store time then.
    pub gone: Vec<(String, u64, u64)>,
    /// Answers that the store must never give.
    pub defects: Vec<String>,
    /// How many requests had each kind of end.
    pub acknowledged: u64,
    /// Requests whose outcome nobody told.
    pub unknown: u64,
    /// Requests that were refused.
    pub refused: u64,
}

/// The recorder that all clients share.
#[derive(Debug, Default)]
pub struct History {
    clock: AtomicU64,
    next_write: AtomicU64,
    records: Mutex<Records>,
}

impl History {
    /// The next moment of the logical clock.
    pub fn tick(&self) -> u64 {
        self.clock.fetch_add(1, Ordering::SeqCst) + 1
    }

    /// A number that no write has had.
    pub fn write_id(&self) -> u64 {
        self.next_write.fetch_add(1, Ordering::SeqCst) + 1
    }

    /// The records, to add to them.
    pub fn records(&self) -> MutexGuard<'_, Records> {
        self.records.lock()
    }

    /// Everything that was recorded, at the end.
    #[must_use]
    pub fn take(&self) -> Records {
        std::mem::take(&mut *self.records())
    }

    /// Records an operation on a register.
    pub fn register(&self, key: &str, operation: Operation) {
        self.records().registers.entry(key.to_owned()).or_default().push(operation);
    }

    /// Records a transaction that was made, or may have been.
    pub fn transacted(&self, transaction: Transaction) {
        self.records().transactions.push(transaction);
    }

    /// Records what became of a write that stores something.
    pub fn wrote(&self, id: u64, key: &str, fate: Fate) {
        self.records().writes.insert(id, (key.to_owned(), fate));
    }

    /// Records what became of a delete.
    pub fn deleted(&self, key: &str, fate: Fate, seen: State) {
        self.records().deletes.entry(key.to_owned()).or_default().push((fate, seen));
    }
}

/// The state of a register that an item shows.
#[must_use]
pub fn state_of(item: Option<&Item>) -> State {
    item?.get(WRITE_ID)?.as_number()?.to_u64()
}
