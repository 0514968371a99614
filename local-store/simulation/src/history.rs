//! The requests of the clients and their answers, for the checkers.

use std::collections::BTreeMap;
use std::sync::MutexGuard;
use std::sync::atomic::{AtomicU64, Ordering};

use locks::Mutex;
use model::{Item, StreamRecord};

use crate::checkers::linearizability::{Operation, State};
use crate::checkers::serializability::Transaction;
use crate::request::WRITE_ID;

/// The known outcome of a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// It was acknowledged.
    Acknowledged,
    /// It may have been applied, once, or not.
    Unknown,
    /// It was certainly not applied.
    NotMade,
}

/// A sum over accounts, from one read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sum {
    /// The name of the accounts.
    pub what: &'static str,
    /// The sum.
    pub total: i128,
    /// When it was read, on the logical clock.
    pub at: u64,
}

/// The votes of one counter slot.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Votes {
    /// Call, end, and count after the vote, for each acknowledged vote that returned its count.
    pub told: Vec<(u64, u64, i128)>,
    /// Votes that were certainly counted.
    pub counted: i128,
    /// Votes that may have been counted.
    pub unknown: i128,
}

/// The records that one reader read of one shard without a gap, in order.
#[derive(Clone, Debug, PartialEq)]
pub struct Reading {
    /// The id of the shard.
    pub shard: String,
    /// Whether it began at the shard's beginning.
    pub from_beginning: bool,
    /// The records.
    pub records: Vec<StreamRecord>,
}

/// All records of a run.
#[derive(Debug, Default)]
pub struct Records {
    /// Operations on each register, by key.
    pub registers: BTreeMap<String, Vec<Operation>>,
    /// Every write that stores something, by its id.
    pub writes: BTreeMap<u64, (String, Fate)>,
    /// Every delete, by key: the removed state, if known.
    pub deletes: BTreeMap<String, Vec<(Fate, State)>>,
    /// Values that reads without strong consistency saw, by key.
    pub weak_reads: Vec<(String, State)>,
    /// Sums that reads saw.
    pub sums: Vec<Sum>,
    /// The expected value of each sum.
    pub expected_sums: BTreeMap<&'static str, i128>,
    /// Transactions, and single operations on the same items.
    pub transactions: Vec<Transaction>,
    /// Counter slots.
    pub votes: BTreeMap<String, Votes>,
    /// Stream readers.
    pub readings: Vec<Reading>,
    /// Consistent reads that did not find an expiring item: key, the time that its last known
    /// writer had stored, and store time of the read.
    pub gone: Vec<(String, u64, u64)>,
    /// Answers that the store must never give.
    pub defects: Vec<String>,
    /// Number of acknowledged requests.
    pub acknowledged: u64,
    /// Number of requests of unknown outcome.
    pub unknown: u64,
    /// Number of refused requests.
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
    /// Returns the next value of the logical clock.
    pub fn tick(&self) -> u64 {
        self.clock.fetch_add(1, Ordering::SeqCst) + 1
    }

    /// Returns a number that no write has had.
    pub fn write_id(&self) -> u64 {
        self.next_write.fetch_add(1, Ordering::SeqCst) + 1
    }

    /// Returns the records, to add to them.
    pub fn records(&self) -> MutexGuard<'_, Records> {
        self.records.lock()
    }

    /// Takes all records, at the end of the run.
    #[must_use]
    pub fn take(&self) -> Records {
        std::mem::take(&mut *self.records())
    }

    /// Records an operation on a register.
    pub fn register(&self, key: &str, operation: Operation) {
        self.records().registers.entry(key.to_owned()).or_default().push(operation);
    }

    /// Records a transaction that was applied, or may have been.
    pub fn transacted(&self, transaction: Transaction) {
        self.records().transactions.push(transaction);
    }

    /// Records the outcome of a write that stores something.
    pub fn wrote(&self, id: u64, key: &str, fate: Fate) {
        self.records().writes.insert(id, (key.to_owned(), fate));
    }

    /// Records the outcome of a delete.
    pub fn deleted(&self, key: &str, fate: Fate, seen: State) {
        self.records().deletes.entry(key.to_owned()).or_default().push((fate, seen));
    }
}

/// Returns the state of a register in an item.
#[must_use]
pub fn state_of(item: Option<&Item>) -> State {
    item?.get(WRITE_ID)?.as_number()?.to_u64()
}
