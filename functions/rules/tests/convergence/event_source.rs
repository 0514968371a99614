//! Deliveries by Weir's event source mapping, with every fault of a fault plan.
//!
//! Each stream has its own mapping and its own shards. The simulation uses no process, socket or
//! clock.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use mapping::faults::{InvocationFault, Plan};
use mapping::{
    Checkpoints, Command, Delivery, Input, InvokeOutcome, Mapping, Now, ReadFailure, ReadFrom,
    Record, SequenceNumber, Settings, ShardDescription, ShardId, mix,
};
use model::json::item_to_string;
use model::stream_record::{LambdaRecord, lambda_record_from_str};
use serde_json::{Value, json};

use super::{Change, history};

/// The maximum number of turns, far more than any seed needs. A mapping that needs more turns
/// hangs.
const TURNS_MAX: u32 = 100_000;

type Faults = BTreeMap<&'static str, u64>;

/// SplitMix64: the random numbers of one seed.
struct Draws(u64);

impl Draws {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_add(1);
        mix(self.0) % bound
    }

    fn index(&mut self, bound: usize) -> usize {
        usize::try_from(self.below(bound as u64)).unwrap()
    }
}

/// Returns the batches that the mappings of all streams deliver under one seed, and the faults.
pub(super) fn deliver(seed: u64, records: &[LambdaRecord]) -> (Vec<Vec<&LambdaRecord>>, Faults) {
    let mut draws = Draws(mix(seed));
    let mut streams: BTreeMap<&str, Vec<&LambdaRecord>> = BTreeMap::new();
    for record in records {
        streams.entry(&record.event_source_arn).or_default().push(record);
    }
    let (mut delivered, mut faults) = (Vec::new(), Faults::new());
    for (arn, records) in streams {
        let (batches, occurred) = World::new((seed, arn), &records, &mut draws).run();
        delivered.push(VecDeque::from(batches));
        for (fault, count) in occurred {
            *faults.entry(fault).or_default() += count;
        }
    }
    // The mappings run concurrently, so their batches arrive in any order.
    let mut batches = Vec::new();
    while !delivered.is_empty() {
        let stream = draws.index(delivered.len());
        match delivered[stream].pop_front() {
            Some(batch) => batches.push(batch),
            None => drop(delivered.swap_remove(stream)),
        }
    }
    (batches, faults)
}

/// A shard with all records that it will ever contain.
#[derive(Default)]
struct Shard {
    parent: Option<ShardId>,
    records: Vec<Record>,
    /// The position of the iterator.
    iterator: usize,
}

/// Returns the shards of a stream. Some shards close and continue in child shards.
fn shards(records: &[&LambdaRecord], draws: &mut Draws) -> BTreeMap<ShardId, Shard> {
    let first = ShardId::new("s00");
    let mut shards = BTreeMap::from([(first.clone(), Shard::default())]);
    let mut shard_of: BTreeMap<String, ShardId> = BTreeMap::new();
    for record in records {
        shard_of.entry(item_to_string(&record.record.keys)).or_insert_with(|| first.clone());
    }
    for LambdaRecord { record, event_source_arn } in records {
        if draws.below(12) == 0 && shards.len() < 10 {
            split(&mut shards, &mut shard_of, draws);
        }
        let event = event(record, event_source_arn);
        let creation_s = record.approximate_creation_seconds.map(|s| i64::try_from(s).unwrap());
        let sequence = SequenceNumber::from(&record.sequence_number);
        let shard = shards.get_mut(&shard_of[&item_to_string(&record.keys)]).unwrap();
        shard.records.push(Record::of_event(sequence, creation_s, &event));
    }
    shards
}

/// Closes a shard. The records of its keys continue in one or two child shards.
fn split(
    shards: &mut BTreeMap<ShardId, Shard>,
    shard_of: &mut BTreeMap<String, ShardId>,
    draws: &mut Draws,
) {
    let parent = shard_of.values().nth(draws.index(shard_of.len())).unwrap().clone();
    let next = shards.len();
    let children: Vec<_> =
        (0..=draws.index(2)).map(|n| ShardId::new(&format!("s{:02}", next + n))).collect();
    for child in &children {
        shards.insert(child.clone(), Shard { parent: Some(parent.clone()), ..Shard::default() });
    }
    for (key, shard) in shard_of.values_mut().enumerate().filter(|(_, shard)| **shard == parent) {
        *shard = children[key % children.len()].clone();
    }
}

/// Returns a record as Lambda's event contains it.
fn event(record: &model::StreamRecord, arn: &str) -> Value {
    let item = |item| -> Value { serde_json::from_str(&item_to_string(item)).unwrap() };
    let mut event = json!({
        "eventID": record.event_id,
        "eventName": record.event_name.as_str(),
        "eventVersion": "1.1",
        "eventSource": "aws:dynamodb",
        "awsRegion": "us-east-1",
        "eventSourceARN": arn,
        "dynamodb": {
            "ApproximateCreationDateTime": record.approximate_creation_seconds,
            "Keys": item(&record.keys),
            "SequenceNumber": record.sequence_number.as_str(),
            "SizeBytes": record.size_bytes,
            "StreamViewType": record.view_type.as_str(),
        },
    });
    for (name, image) in [("OldImage", &record.old_image), ("NewImage", &record.new_image)] {
        if let Some(image) = image {
            event["dynamodb"][name] = item(image);
        }
    }
    if let Some(user) = &record.user_identity {
        event["userIdentity"] =
            json!({ "type": user.identity_type, "principalId": user.principal_id });
    }
    event
}

/// One mapping on a stream, and its simulated surroundings.
struct World<'a, 'r> {
    records: BTreeMap<SequenceNumber, &'r LambdaRecord>,
    shards: BTreeMap<ShardId, Shard>,
    /// The batches that the function received.
    batches: Vec<Vec<&'r LambdaRecord>>,
    draws: &'a mut Draws,
    plan: Plan,
    mapping: Mapping,
    now: Now,
    pending: Vec<Command>,
    wake: Option<u64>,
    durable: Option<Checkpoints>,
    delivered: VecDeque<Vec<Arc<Delivery>>>,
    invocations: u64,
    reads: u64,
    faults: Faults,
}

impl<'a, 'r> World<'a, 'r> {
    fn new((seed, arn): (u64, &str), records: &[&'r LambdaRecord], draws: &'a mut Draws) -> Self {
        let numbered =
            |record: &&'r LambdaRecord| ((&record.record.sequence_number).into(), *record);
        Self {
            records: records.iter().map(numbered).collect(),
            shards: shards(records, draws),
            batches: Vec::new(),
            plan: Plan::new(seed, arn),
            mapping: Mapping::new(settings(arn, draws), None),
            draws,
            now: Now { time_ms: 1_795_228_140_000, tick_ms: 0 },
            pending: Vec::new(),
            wake: None,
            durable: None,
            delivered: VecDeque::new(),
            invocations: 0,
            reads: 0,
            faults: Faults::new(),
        }
    }

    /// Runs until every record is delivered. Returns the batches, and the faults that occurred.
    fn run(mut self) -> (Vec<Vec<&'r LambdaRecord>>, Faults) {
        self.step(Input::Tick);
        for _ in 0..TURNS_MAX {
            if self.mapping.is_over() {
                assert!(self.mapping.is_idle());
                return (self.batches, self.faults);
            }
            if self.pending.is_empty() {
                self.now.tick_ms = self.now.tick_ms.max(self.wake.unwrap_or_default());
                self.step(Input::Tick);
                continue;
            }
            let command = self.pending.remove(self.draws.index(self.pending.len()));
            if let Some(input) = self.carry_out(command) {
                self.step(input);
            }
        }
        panic!("the mapping hangs: {:?}", self.mapping.status(0));
    }

    /// Passes these records to the function, as parsed from the event.
    fn apply(&mut self, records: &[Arc<Delivery>]) {
        let received = |delivery: &Arc<Delivery>| {
            let record = self.records[&delivery.sequence];
            assert_eq!(&lambda_record_from_str(&delivery.json).unwrap(), record);
            record
        };
        self.batches.push(records.iter().map(received).collect());
    }

    fn step(&mut self, input: Input) {
        self.wake = None;
        for command in self.mapping.step(self.now, input) {
            match command {
                Command::Wake { tick_ms } => self.wake = Some(tick_ms),
                // A save may be delayed, so the disk may contain an earlier complete state.
                Command::Checkpoint { .. } | Command::Save => {
                    if self.draws.below(3) > 0 {
                        self.durable = self.mapping.checkpoints();
                    }
                }
                Command::Report(_) => {}
                command => self.pending.push(command),
            }
        }
    }

    fn count(&mut self, fault: &'static str) {
        *self.faults.entry(fault).or_default() += 1;
    }

    fn carry_out(&mut self, command: Command) -> Option<Input> {
        match command {
            Command::Describe => Some(self.describe()),
            Command::Read { shard, from } => Some(self.read(shard, &from)),
            Command::Invoke { ref records, batch, .. } => {
                let records = records.clone();
                let fault = self.plan.invocation(self.invocations);
                self.invocations += 1;
                let outcome = self.invoke(&records, fault, command)?;
                self.delivered.push_front(records);
                Some(Input::Invoked { batch, outcome })
            }
            other => panic!("not to be carried out: {other}"),
        }
    }

    fn describe(&mut self) -> Input {
        // A listing that lags behind may lack the end of shards.
        let lags = self.draws.below(4) == 0;
        let shards = self.shards.iter();
        let shards = shards.filter(|(_, shard)| !lags || shard.parent.is_none());
        let shards = shards.map(|(id, shard)| ShardDescription {
            id: id.clone(),
            parent: shard.parent.clone(),
            closed: true,
        });
        Input::Described { enabled: lags, shards: shards.collect() }
    }

    fn read(&mut self, shard: ShardId, from: &ReadFrom) -> Input {
        self.reads += 1;
        if self.plan.iterator_expires(self.reads) {
            self.count("iterator expired");
            return Input::ReadFailed { shard, failure: ReadFailure::IteratorExpired };
        }
        let truth = self.shards.get_mut(&shard).unwrap();
        truth.iterator = match from {
            ReadFrom::Iterator => truth.iterator,
            ReadFrom::TrimHorizon | ReadFrom::Latest => 0,
            ReadFrom::After(last) => {
                truth.records.iter().filter(|record| record.sequence <= *last).count()
            }
        };
        let length = self.draws.index(12).min(truth.records.len() - truth.iterator);
        let end = truth.iterator + length;
        let records = truth.records[truth.iterator..end].to_vec();
        truth.iterator = end;
        Input::Page { shard, records, end: end == truth.records.len() }
    }

    /// Returns the outcome of an invocation; `None` if there is no response yet, or the poller has
    /// crashed.
    fn invoke(
        &mut self,
        records: &[Arc<Delivery>],
        fault: Option<InvocationFault>,
        command: Command,
    ) -> Option<InvokeOutcome> {
        match fault {
            Some(InvocationFault::Throttle) => {
                self.count("throttled");
                return Some(InvokeOutcome::NotInvoked("throttled".to_owned()));
            }
            Some(InvocationFault::Slow { .. }) => {
                self.count("slow");
                self.now.tick_ms += 1;
                self.pending.push(command);
                return None;
            }
            Some(InvocationFault::Duplicate) => {
                self.count("duplicate");
                self.apply(records);
            }
            Some(InvocationFault::Split { draw }) if records.len() > 1 => {
                self.count("split");
                let cut = 1 + usize::try_from(draw % (records.len() as u64 - 1)).unwrap();
                self.apply(&records[..cut]);
            }
            _ => {}
        }
        // A failed function may have completed a part of its work.
        if self.draws.below(8) == 0 {
            self.count("function error");
            let some = self.draws.index(records.len());
            self.apply(&records[..some]);
            let (kind, message) = ("Unhandled".to_owned(), "oops".to_owned());
            let payload = "".into();
            return Some(InvokeOutcome::FunctionError { kind, message, payload });
        }
        self.apply(records);
        match fault {
            Some(InvocationFault::Late { back }) => {
                if let Some(old) = self.delivered.get(back - 1).cloned() {
                    self.count("late");
                    self.apply(&old);
                }
            }
            Some(InvocationFault::Crash) => {
                self.count("crash");
                self.mapping.restart(self.durable.clone());
                self.pending.clear();
                self.step(Input::Tick);
                return None;
            }
            _ => {}
        }
        if self.draws.below(8) == 0 {
            self.count("partial batch");
            let failed = records[self.draws.index(records.len())].sequence.as_str();
            let answer = json!({ "batchItemFailures": [{ "itemIdentifier": failed }] });
            return Some(InvokeOutcome::Ok(answer.to_string().into()));
        }
        Some(InvokeOutcome::Ok("{}".into()))
    }
}

fn settings(arn: &str, draws: &mut Draws) -> Settings {
    let mut settings = Settings::new(arn, "arn:function", arn);
    settings.batch_size = 1 + draws.index(12);
    settings.batching_window_ms = draws.below(200);
    settings.parallelization_factor = 1 + draws.index(4);
    settings.bisect_on_function_error = draws.below(2) == 0;
    settings.report_batch_item_failures = draws.below(2) == 0;
    settings.check().unwrap();
    settings
}

/// Goal: the other tests cover every fault, because every fault occurs and no record is lost.
#[test]
fn every_fault_happens_and_no_record_is_lost() {
    let mut faults = Faults::new();
    for seed in 0..200 {
        let mut draws = Draws(seed);
        let mut change = || Change::Put {
            key: u8::try_from(draws.below(8)).unwrap(),
            value: i8::try_from(draws.below(100)).unwrap(),
        };
        let changes: Vec<_> = (0..40).map(|_| change()).collect();
        let (_, records) = history(&changes);
        let (batches, occurred) = deliver(seed, &records);
        for record in &records {
            assert!(batches.iter().flatten().any(|delivered| *delivered == record), "seed {seed}");
        }
        for (fault, count) in occurred {
            *faults.entry(fault).or_default() += count;
        }
    }
    println!("{faults:?}");
    assert_eq!(faults.len(), 9, "{faults:?}");
}
