//! Tests that a mapping reads announced records within a bounded time, even while it is busy.
//!
//! The simulated world has a clock and no failures. Records arrive at any time. A read takes time,
//! and returns the content that the shard has at one moment during the read. `property_tests`
//! covers failures.

use std::collections::BTreeMap;

use proptest::prelude::*;
use serde_json::json;

use super::*;

/// Minimum time between two reads of a shard, in milliseconds.
const READ_MS: u64 = 50;
/// Maximum duration of a read, in milliseconds.
const READ_TAKES_MS: u64 = 30;
/// The maximum time in milliseconds until an announced record is read. A running read may have seen
/// the shard before the record arrived. The next read begins after the minimum time between reads,
/// or when the running read ends, whichever is later.
const SOON_MS: u64 = READ_MS + 2 * READ_TAKES_MS;

/// A running read.
struct Reading {
    shard: ShardId,
    /// The time when the read sees the shard's content, then the time when it returns.
    sees: u64,
    answers: u64,
    records: Vec<Record>,
}

struct World {
    mapping: Mapping,
    tick: u64,
    wake: Option<u64>,
    /// The arrival times of each shard's records, in order.
    came: BTreeMap<ShardId, Vec<u64>>,
    read: BTreeMap<ShardId, usize>,
    /// True if the mapping was notified and further records arrived after the notification.
    is_told: bool,
    /// The number of notifications sent to the mapping.
    tellings: usize,
    reads: Vec<Reading>,
    /// For each read: its duration, and the moment during the read when it sees the content. The
    /// tests repeat the list from its beginning.
    paces: Vec<(u64, u64)>,
    next_pace: usize,
    slowest: u64,
}

impl World {
    fn new(shards: usize, paces: Vec<(u64, u64)>) -> Self {
        let mut settings = Settings::new("uuid", "arn:function", "arn:table/t/stream/label");
        settings.pace.read_ms = READ_MS;
        // Long intervals, so that no read is caused by a timer.
        (settings.pace.idle_poll_ms, settings.pace.describe_ms) = (1_000_000, 1_000_000);
        let ids = (0..shards).map(|index| ShardId::new(&format!("s{index}")));
        let came: BTreeMap<ShardId, Vec<u64>> = ids.map(|id| (id, Vec::new())).collect();
        let read = came.keys().map(|id| (id.clone(), 0)).collect();
        Self {
            mapping: Mapping::new(settings, None),
            tick: 0,
            wake: None,
            came,
            read,
            is_told: false,
            tellings: 0,
            reads: Vec::new(),
            paces,
            next_pace: 0,
            slowest: 0,
        }
    }

    fn step(&mut self, input: Input) {
        let now = Now { time_ms: 0, tick_ms: self.tick };
        self.wake = None;
        for command in self.mapping.step(now, input) {
            match command {
                Command::Wake { tick_ms } => self.wake = Some(tick_ms),
                Command::Describe => {
                    let open = |id: &ShardId| ShardDescription {
                        id: id.clone(),
                        parent: None,
                        closed: false,
                    };
                    let shards = self.came.keys().map(open).collect();
                    self.step(Input::Described { enabled: true, shards });
                }
                Command::Read { shard, .. } => {
                    let (takes, sees) = self.paces[self.next_pace % self.paces.len()];
                    self.next_pace += 1;
                    let (sees, answers) = (self.tick + sees.min(takes), self.tick + takes);
                    self.reads.push(Reading { shard, sees, answers, records: Vec::new() });
                }
                Command::Invoke { batch, .. } => {
                    self.step(Input::Invoked {
                        batch,
                        outcome: InvokeOutcome::Ok(Vec::new().into()),
                    });
                }
                _ => {}
            }
        }
    }

    /// Simulates all events of the current millisecond. `comes` lists the shards in which records
    /// arrive.
    fn pass(&mut self, comes: &[usize]) {
        for index in comes {
            let shards = self.came.len();
            self.came.values_mut().nth(index % shards).unwrap().push(self.tick);
            self.is_told = true;
        }
        for reading in self.reads.iter_mut().filter(|reading| reading.sees == self.tick) {
            let (came, read) = (&self.came[&reading.shard], self.read[&reading.shard]);
            reading.records = (read..came.len()).map(record).collect();
        }
        let is_over = |reading: &mut Reading| reading.answers == self.tick;
        for Reading { shard, records, .. } in self.reads.extract_if(.., is_over).collect::<Vec<_>>()
        {
            let from = self.read[&shard];
            for came in &self.came[&shard][from..from + records.len()] {
                self.slowest = self.slowest.max(self.tick - came);
            }
            *self.read.get_mut(&shard).unwrap() += records.len();
            self.step(Input::Page { shard, records, end: false });
        }
        if self.is_told && self.mapping.is_resting() {
            self.is_told = false;
            self.tellings += 1;
            self.step(Input::Arrived);
        }
        if self.wake.is_some_and(|wake| wake <= self.tick) {
            self.step(Input::Tick);
        }
        self.tick += 1;
    }
}

fn record(place: usize) -> Record {
    let sequence = SequenceNumber::parse(&(place + 1).to_string()).unwrap();
    let event = json!({"eventName": "INSERT", "dynamodb": {"Keys": {"pk": {"S": "p"}}}});
    Record::of_event(sequence, Some(0), &event)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2_000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn announced_records_are_read_soon(
        shards in 1_usize..4,
        paces in prop::collection::vec((1..=READ_TAKES_MS, 1..=READ_TAKES_MS), 1..6),
        comes in prop::collection::vec((0_u64..120, 0_usize..4), 0..30),
    ) {
        let mut world = World::new(shards, paces);
        world.step(Input::Tick);
        for (pause, shard) in comes {
            (0..pause).for_each(|_| world.pass(&[]));
            world.pass(&[shard]);
        }
        (0..=SOON_MS).for_each(|_| world.pass(&[]));
        for (shard, came) in &world.came {
            prop_assert_eq!(world.read[shard], came.len(), "{} has unread records", shard);
        }
        // At most one notification per read, and one more for the records that arrive before the
        // first read.
        prop_assert!(world.tellings <= world.next_pace, "{} tellings", world.tellings);
        prop_assert!(world.slowest <= SOON_MS, "one took {} ms", world.slowest);
    }
}
