//! The operations that are measured: what each sends, with which keys, and what a good answer is.
//!
//! It sends nothing and measures nothing.

use clap::ValueEnum;

use super::request::{self, BATCH_ITEMS, Request, SLOTS};

/// What is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Operation {
    /// PutItem of 300 bytes over an item that is there
    Put,
    /// GetItem, strongly consistent
    Get,
    /// GetItem, eventually consistent
    GetEventual,
    /// UpdateItem that adds 1 to one of 20 slots
    Update,
    /// Query of 50 items of 300 bytes
    Query,
    /// BatchWriteItem of 25 items of 300 bytes
    Batch,
    /// Query of 50 items of 300 bytes in a global index that holds all of them
    QueryIndex,
    /// TransactWriteItems of 2 puts of 300 bytes
    Transact2,
    /// TransactWriteItems of 25 puts of 300 bytes
    Transact25,
    /// Scan of a page of 1 MB, from a random place on
    Scan,
    /// GetRecords of up to 1,000 records, from the beginning of a shard
    GetRecords,
}

impl Operation {
    /// As on the command line and in reports.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Put => "put",
            Self::Get => "get",
            Self::GetEventual => "get-eventual",
            Self::Update => "update",
            Self::Query => "query",
            Self::Batch => "batch",
            Self::QueryIndex => "query-index",
            Self::Transact2 => "transact2",
            Self::Transact25 => "transact25",
            Self::Scan => "scan",
            Self::GetRecords => "get-records",
        }
    }
}

/// What keeps up with the writes of a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Follower {
    /// A stream with both images, of the items and of the slots
    Stream,
    /// A global index of the items with all attributes, in which each put moves an entry
    Index,
}

impl Follower {
    /// As on the command line and in reports.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Stream => "stream",
            Self::Index => "index",
        }
    }
}

/// The tables of one run and how much is in them.
#[derive(Clone, Debug)]
pub(super) struct Tables {
    pub(super) items: String,
    pub(super) votes: String,
    /// The table with a global index; made only when it is asked for.
    pub(super) indexed: String,
    /// The table with a stream; made only when it is asked for.
    pub(super) streamed: String,
    /// Where each shard of that stream begins.
    pub(super) iterators: Vec<String>,
    /// Loose items, numbered from 0.
    pub(super) item_count: u64,
    /// Partitions of 50 items, numbered from 0.
    pub(super) partition_count: u64,
}

impl Tables {
    /// A request for an operation, to be given its keys by [`Draw::next`].
    pub(super) fn request(&self, authority: &str, operation: Operation) -> Request {
        let (target, body) = match operation {
            Operation::Put => ("PutItem", request::put_body(&self.items)),
            Operation::Get => ("GetItem", request::get_body(&self.items, true)),
            Operation::GetEventual => ("GetItem", request::get_body(&self.items, false)),
            Operation::Update => ("UpdateItem", request::update_body(&self.votes)),
            Operation::Query => ("Query", request::query_body(&self.items)),
            Operation::Batch => ("BatchWriteItem", request::batch_body(&self.items)),
            Operation::QueryIndex => ("Query", request::query_index_body(&self.indexed)),
            Operation::Transact2 => ("TransactWriteItems", request::transact_body(&self.items, 2)),
            Operation::Transact25 => {
                ("TransactWriteItems", request::transact_body(&self.items, BATCH_ITEMS))
            }
            Operation::Scan => ("Scan", request::scan_body(&self.items)),
            Operation::GetRecords => {
                return Request::any_of_streams(authority, "GetRecords", &self.iterators);
            }
        };
        Request::new(authority, target, &body)
    }
}

/// Random keys: SplitMix64 (Steele et al., OOPSLA 2014), so that a run's keys are known.
#[derive(Clone, Debug)]
pub(super) struct Draw {
    state: u64,
}

impl Draw {
    /// Each connection has a seed of its own.
    pub(super) fn new(seed: u64) -> Self {
        Self { state: seed.wrapping_mul(0xd134_2543_de82_ef95) }
    }

    fn number(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.state;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// Gives a request its next keys.
    pub(super) fn set_next(
        &mut self,
        request: &mut Request,
        operation: Operation,
        tables: &Tables,
    ) {
        let random = self.number();
        let version = random >> 8;
        match operation {
            Operation::Put | Operation::Get | Operation::GetEventual | Operation::Scan => {
                request.set([random % tables.item_count.max(1)], version);
            }
            Operation::Update => request.set([random % SLOTS], version),
            Operation::Query | Operation::QueryIndex => {
                request.set([random % tables.partition_count.max(1)], version);
            }
            Operation::Batch | Operation::Transact2 | Operation::Transact25 => {
                request.set(batch_keys(random, tables.item_count), version);
            }
            Operation::GetRecords => request.choose(random),
        }
    }
}

/// Different keys, evenly apart: one request must not name a key twice.
fn batch_keys(random: u64, item_count: u64) -> impl Iterator<Item = u64> {
    let count = item_count.max(BATCH_ITEMS);
    let apart = count / BATCH_ITEMS;
    let first = random % count;
    (0..BATCH_ITEMS).map(move |place| (first + place * apart) % count)
}

/// Whether an answer with status 200 did all that was asked.
pub(super) fn is_complete(operation: Operation, body: &[u8]) -> bool {
    match operation {
        Operation::Batch => {
            // Some stores answer nothing at all when nothing is left over.
            let left_over = br#""UnprocessedItems":"#;
            let place = body.windows(left_over.len()).position(|window| window == left_over);
            place
                .and_then(|place| body.get(place + left_over.len()..))
                .is_none_or(|rest| rest.starts_with(b"{}"))
        }
        Operation::Get | Operation::GetEventual => body.len() > 100,
        Operation::Query | Operation::QueryIndex | Operation::GetRecords => body.len() > 50 * 100,
        Operation::Scan => contains(body, br#""Items":["#),
        Operation::Put | Operation::Update | Operation::Transact2 | Operation::Transact25 => true,
    }
}

fn contains(body: &[u8], part: &[u8]) -> bool {
    body.windows(part.len()).any(|window| window == part)
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
        let cases: [(Operation, &str, bool); 9] = [
            (Operation::Batch, r#"{"UnprocessedItems":{}}"#, true),
            (Operation::Batch, r"{}", true),
            (Operation::Batch, r#"{"UnprocessedItems":{"t":[]}}"#, false),
            (Operation::Get, &item, true),
            (Operation::Get, "{}", false),
            (Operation::Query, &item, false),
            (Operation::Put, "{}", true),
            (Operation::Scan, r#"{"Items":[]}"#, true),
            (Operation::Scan, "{}", false),
        ];
        for (operation, body, expected) in cases {
            assert_eq!(is_complete(operation, body.as_bytes()), expected, "{body}");
        }
    }

    #[test]
    fn draws_reach_every_slot() {
        let tables = Tables {
            items: "i".to_owned(),
            votes: "v".to_owned(),
            indexed: "x".to_owned(),
            streamed: "s".to_owned(),
            iterators: Vec::new(),
            item_count: 100,
            partition_count: 2,
        };
        let mut request = tables.request("h:1", Operation::Update);
        let mut draw = Draw::new(1);
        let mut seen = BTreeSet::new();
        for _ in 0..500 {
            draw.set_next(&mut request, Operation::Update, &tables);
            let text = String::from_utf8_lossy(request.bytes()).into_owned();
            let (_, rest) = text.split_once("slot").unwrap();
            seen.insert(rest[..9].parse::<u64>().unwrap());
        }
        assert_eq!(seen, (0..SLOTS).collect());
    }
}
