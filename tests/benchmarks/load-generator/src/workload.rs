//! The measured operations: their requests, their keys, and their successful answers.
//!
//! This module sends no requests and measures nothing.

use clap::ValueEnum;
use http::header::InvalidHeaderValue;

use crate::request::{self, BATCH_ITEMS, Request, SLOTS};

/// A measured operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Operation {
    /// PutItem of 300 bytes that replaces an item
    Put,
    /// GetItem of 300 bytes, strongly consistent
    Get,
    /// UpdateItem that adds 1 to one of 20 slots
    Update,
    /// Query of 50 items of 300 bytes
    Query,
    /// BatchWriteItem of 25 items of 300 bytes
    Batch,
}

impl Operation {
    /// Returns the name on the command line and in reports.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Put => "put",
            Self::Get => "get",
            Self::Update => "update",
            Self::Query => "query",
            Self::Batch => "batch",
        }
    }
}

/// Consumers of a table's writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Follower {
    /// A stream with both images, of the items and of the slots
    Stream,
    /// A global index of the items with all attributes, in which each put moves an entry
    Index,
}

/// The tables of one run, and the number of their items.
#[derive(Clone, Debug)]
pub(crate) struct Tables {
    pub(crate) items: String,
    pub(crate) votes: String,
    /// The number of single items, which are numbered from 0.
    pub(crate) item_count: u64,
    /// The number of partitions of 50 items, which are numbered from 0.
    pub(crate) partition_count: u64,
}

impl Tables {
    /// Returns a request for an operation; [`Draw::set_next`] sets its keys.
    ///
    /// # Errors
    /// When the authority is not a valid header value.
    pub(crate) fn request(
        &self,
        authority: &str,
        operation: Operation,
    ) -> Result<Request, InvalidHeaderValue> {
        let (target, body) = match operation {
            Operation::Put => ("PutItem", request::put_body(&self.items)),
            Operation::Get => ("GetItem", request::get_body(&self.items)),
            Operation::Update => ("UpdateItem", request::update_body(&self.votes)),
            Operation::Query => ("Query", request::query_body(&self.items)),
            Operation::Batch => ("BatchWriteItem", request::batch_body(&self.items)),
        };
        Request::new(authority, target, &body)
    }
}

/// Random keys from SplitMix64 (Steele et al., OOPSLA 2014), so that a run's keys are reproducible.
#[derive(Clone, Debug)]
pub(crate) struct Draw {
    state: u64,
}

impl Draw {
    /// Creates a generator from a seed. Each connection has its own generator.
    pub(crate) fn new(seed: u64) -> Self {
        Self { state: seed.wrapping_mul(0xd134_2543_de82_ef95) }
    }

    fn number(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.state;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// Sets the keys of the next request.
    pub(crate) fn set_next(
        &mut self,
        request: &mut Request,
        operation: Operation,
        tables: &Tables,
    ) {
        let random = self.number();
        let version = random >> 8;
        match operation {
            Operation::Put | Operation::Get => {
                request.set([random % tables.item_count.max(1)], version);
            }
            Operation::Update => request.set([random % SLOTS], version),
            Operation::Query => request.set([random % tables.partition_count.max(1)], version),
            Operation::Batch => request.set(batch_keys(random, tables.item_count), version),
        }
    }
}

/// Returns distinct, evenly spaced keys, because a request must not contain a key twice.
fn batch_keys(random: u64, item_count: u64) -> impl Iterator<Item = u64> {
    let count = item_count.max(BATCH_ITEMS);
    let apart = count / BATCH_ITEMS;
    let first = random % count;
    (0..BATCH_ITEMS).map(move |place| (first + place * apart) % count)
}

/// Returns true if an answer with status 200 is complete.
pub(crate) fn is_complete(operation: Operation, body: &[u8]) -> bool {
    match operation {
        Operation::Batch => {
            // Some stores omit the member `UnprocessedItems` if there are no unprocessed items.
            let left_over = br#""UnprocessedItems":"#;
            let place = body.windows(left_over.len()).position(|window| window == left_over);
            place
                .and_then(|place| body.get(place + left_over.len()..))
                .is_none_or(|rest| rest.starts_with(b"{}"))
        }
        Operation::Get => body.len() > 100,
        Operation::Query => body.len() > 50 * 100,
        Operation::Put | Operation::Update => true,
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn keys_of_a_batch_differ() {
        for (random, count) in [(0, 25), (24, 25), (u64::MAX, 26), (17, 100), (99, 10_007)] {
            let keys: BTreeSet<_> = batch_keys(random, count).collect();
            assert_eq!(keys.len(), 25, "{random} of {count}");
            assert!(keys.iter().all(|key| *key < count));
        }
    }

    #[test]
    fn answers_that_do_not_do_all_are_noticed() {
        let item = format!(r#"{{"Item":"{}"}}"#, "x".repeat(300));
        for (operation, body, expected) in [
            (Operation::Batch, r#"{"UnprocessedItems":{}}"#, true),
            (Operation::Batch, r"{}", true),
            (Operation::Batch, r#"{"UnprocessedItems":{"t":[]}}"#, false),
            (Operation::Get, &item, true),
            (Operation::Get, "{}", false),
            (Operation::Query, &item, false),
            (Operation::Put, "{}", true),
        ] {
            assert_eq!(is_complete(operation, body.as_bytes()), expected, "{body}");
        }
    }
}
