//! A record of the clients' requests and the answers, for the checkers.

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
pub enum WriteOutcome {
    /// The write was acknowledged.
    Acknowledged,
    /// The outcome is unknown: the write was applied once, or not at all.
    Unknown,
    /// The write was not applied, and never will be.
    NotApplied,
}

/// A sum over accounts that one read returned.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sum {
    /// The name of the group of accounts.
    pub what: &'static str,
    /// The sum that the read returned.
    pub total: i128,
    /// The time of the read, on the logical clock.
    pub at: u64,
}

/// The votes of one counter slot.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Votes {
    /// The acknowledged votes whose count was returned: the time of the call, the time of the answer, and the
    /// count after the vote.
    pub acknowledged_counts: Vec<(u64, u64, i128)>,
    /// The number of votes that were certainly counted.
    pub counted: i128,
    /// The number of votes that may have been counted.
    pub unknown: i128,
}

/// The records that one reader read from one shard, in order and without a gap.
#[derive(Clone, Debug, PartialEq)]
pub struct Reading {
    /// The id of the shard.
    pub shard: String,
    /// Whether the reader began at the beginning of the shard.
    pub from_beginning: bool,
    /// The records.
    pub records: Vec<StreamRecord>,
}

/// All observations that were recorded during a run.
#[derive(Debug, Default)]
pub struct Records {
    /// The operations on each register, by key.
    pub registers: BTreeMap<String, Vec<Operation>>,
    /// Every write that stores an item: by the id of the write, its key and its outcome.
    pub writes: BTreeMap<u64, (String, WriteOutcome)>,
    /// Every delete, by key: its outcome, and the removed state if it is known.
    pub deletes: BTreeMap<String, Vec<(WriteOutcome, State)>>,
    /// The values that reads without strong consistency returned, each with its key.
    pub weak_reads: Vec<(String, State)>,
    /// The sums that reads returned.
    pub sums: Vec<Sum>,
    /// The expected value of each sum.
    pub expected_sums: BTreeMap<&'static str, i128>,
    /// The transactions, and the single operations on the same items.
    pub transactions: Vec<Transaction>,
    /// The transactions, and the single operations on the same items, that were not applied.
    pub cancelled: Vec<Transaction>,
    /// The votes of each counter slot.
    pub votes: BTreeMap<String, Votes>,
    /// The records that stream readers read.
    pub readings: Vec<Reading>,
    /// The consistent reads that did not find an expiring item: the key, the expiry time that its
    /// last known write had stored, and the store time of the read.
    pub missing_expiring: Vec<(String, u64, u64)>,
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
    /// Advances the logical clock and returns its new value.
    pub fn tick(&self) -> u64 {
        self.clock.fetch_add(1, Ordering::SeqCst) + 1
    }

    /// Returns a new, unique number for a write.
    pub fn write_id(&self) -> u64 {
        self.next_write.fetch_add(1, Ordering::SeqCst) + 1
    }

    /// Returns the records, so that the caller can add observations.
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

    /// Records a transaction and its outcome. Removes its `end` if the outcome is unknown.
    pub fn transacted(&self, mut transaction: Transaction, outcome: WriteOutcome) {
        let mut records = self.records();
        match outcome {
            WriteOutcome::Acknowledged => records.transactions.push(transaction),
            WriteOutcome::Unknown => {
                transaction.end = None;
                records.transactions.push(transaction);
            }
            WriteOutcome::NotApplied => records.cancelled.push(transaction),
        }
    }

    /// Records the outcome of a write that stores something.
    pub fn wrote(&self, id: u64, key: &str, fate: WriteOutcome) {
        self.records().writes.insert(id, (key.to_owned(), fate));
    }

    /// Records the outcome of a delete.
    pub fn deleted(&self, key: &str, fate: WriteOutcome, seen: State) {
        self.records().deletes.entry(key.to_owned()).or_default().push((fate, seen));
    }
}

/// Returns the state of a register: the number of the write that stored the item.
#[must_use]
pub fn state_of(item: Option<&Item>) -> State {
    item?.get(WRITE_ID)?.as_number()?.to_u64()
}
