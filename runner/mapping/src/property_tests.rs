//! Checks the mapping's guarantees with random streams, functions, destinations and restarts.
//!
//! `World` simulates everything outside of the mapping. It delivers pages, simulates every kind of
//! failed invocation, and kills and restarts the mapping. It checks the guarantees after each step.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use proptest::prelude::*;
use serde_json::json;

use super::*;

#[derive(Debug, Clone)]
struct Scenario {
    shards: Vec<ShardPlan>,
    batch_size: usize,
    window_ms: u64,
    retries: Option<u32>,
    bisect: bool,
    report: bool,
    destination: bool,
    duplicate: bool,
    record_age_s: Option<i64>,
    lanes: usize,
    /// The length of the tumbling windows in seconds; `None` without windows. Only mappings with
    /// one lane have windows.
    tumbling_s: Option<u32>,
    /// The random choices of the world, in order. After the last choice, nothing fails.
    choices: Vec<u16>,
}

#[derive(Debug, Clone)]
struct ShardPlan {
    /// A random number, which is reduced to the index of the parent among the earlier shards. The
    /// first two shards have no parent.
    parent: usize,
    /// For each record: true if it passes the filter, and its item.
    records: Vec<(bool, u8)>,
}

fn scenarios() -> impl Strategy<Value = Scenario> {
    let record = (prop::bool::weighted(0.7), 0_u8..6);
    let shard = (any::<usize>(), prop::collection::vec(record, 0..25))
        .prop_map(|(parent, records)| ShardPlan { parent, records });
    let flags = (any::<bool>(), any::<bool>(), any::<bool>(), any::<bool>());
    let shards = prop::collection::vec(shard, 1..6);
    let retries = prop::option::of(0_u32..3);
    let age = prop::option::weighted(0.3, 60_i64..120);
    let choices = prop::collection::vec(any::<u16>(), 0..400);
    let lanes = (1_usize..5, prop::option::weighted(0.3, 1_u32..40));
    (shards, 1_usize..8, 0_u64..300, retries, flags, age, lanes, choices).prop_map(
        |(shards, batch_size, window_ms, retries, flags, record_age_s, lanes, choices)| Scenario {
            shards,
            batch_size,
            window_ms,
            retries,
            bisect: flags.0,
            report: flags.1,
            destination: flags.2,
            duplicate: flags.3,
            record_age_s,
            lanes: if lanes.1.is_some() { 1 } else { lanes.0 },
            tumbling_s: lanes.1,
            choices,
        },
    )
}

struct World {
    mapping: Mapping,
    now: Now,
    shards: BTreeMap<ShardId, ShardTruth>,
    pending: VecDeque<Command>,
    wake: Option<u64>,
    choices: VecDeque<u16>,
    /// The last durable checkpoints.
    durable: Option<Checkpoints>,
    /// For each item, the first record of the last attempt since the last restart.
    invoked_in_run: BTreeMap<(ShardId, u8), SequenceNumber>,
}

#[derive(Clone)]
struct RecordTruth {
    sequence: SequenceNumber,
    passes: bool,
    item: u8,
    creation_s: i64,
}

struct ShardTruth {
    parent: Option<ShardId>,
    records: Vec<RecordTruth>,
    /// The position of the shard's iterator in its records.
    iterator: usize,
    /// Records that the function has processed or the mapping has discarded.
    finished: BTreeSet<SequenceNumber>,
    /// Records that the last invocation of a window has aggregated, and records that belong to no
    /// window.
    aggregated: BTreeSet<SequenceNumber>,
}

impl World {
    fn new(scenario: &Scenario) -> Self {
        let mut settings = Settings::new("uuid", "arn:function", "arn:table/t/stream/label");
        settings.batch_size = scenario.batch_size;
        settings.batching_window_ms = scenario.window_ms;
        settings.retry_attempts = scenario.retries;
        settings.bisect_on_function_error = scenario.bisect;
        settings.report_batch_item_failures = scenario.report;
        settings.has_failure_destination = scenario.destination;
        settings.faults.duplicate_delivery = scenario.duplicate;
        settings.record_age_ms = scenario.record_age_s.map(|seconds| seconds * 1000);
        settings.parallelization_factor = scenario.lanes;
        settings.tumbling_window_s = scenario.tumbling_s;
        settings.check().unwrap();
        settings.filter = FilterCriteria::compile(&[r#"{"eventName":["INSERT"]}"#]).unwrap();
        let mut shards = BTreeMap::new();
        for (index, plan) in scenario.shards.iter().enumerate() {
            let parent = (index > 1).then(|| plan.parent % index);
            let records = plan.records.iter().enumerate().map(|(place, (passes, item))| {
                let text = format!("{}", 5 + place * 3 + index * 1000);
                let sequence = SequenceNumber::parse(&text).unwrap();
                let creation_s = i64::try_from(place / 2 * 3).unwrap();
                RecordTruth { sequence, passes: *passes, item: *item, creation_s }
            });
            let truth = ShardTruth {
                parent: parent.map(|parent| ShardId::new(&format!("s{parent}"))),
                records: records.collect(),
                iterator: 0,
                finished: BTreeSet::new(),
                aggregated: BTreeSet::new(),
            };
            shards.insert(ShardId::new(&format!("s{index}")), truth);
        }
        Self {
            mapping: Mapping::new(settings, None),
            now: Now { time_ms: 0, tick_ms: 0 },
            shards,
            pending: VecDeque::new(),
            wake: None,
            choices: scenario.choices.iter().copied().collect(),
            durable: None,
            invoked_in_run: BTreeMap::new(),
        }
    }

    fn choose(&mut self, options: u16) -> u16 {
        self.choices.pop_front().map_or(0, |choice| choice % options)
    }

    fn step(&mut self, input: Input) {
        let commands = self.mapping.step(self.now, input);
        self.wake = None;
        for command in commands {
            match command {
                Command::Wake { tick_ms } => self.wake = Some(tick_ms),
                Command::Checkpoint { .. } | Command::Save => {
                    self.durable = self.mapping.checkpoints();
                }
                Command::Report(event) => self.note(event),
                command => {
                    self.check_command(&command);
                    self.pending.push_back(command);
                }
            }
        }
        self.check_checkpoints();
    }

    /// Updates the expectations after an event. A discarded record needs no further invocation.
    fn note(&mut self, event: Event) {
        match event {
            Event::Discarded { shard, first, last, count, .. } => {
                let factor = self.mapping.settings().parallelization_factor as u64;
                let truth = self.shards.get_mut(&shard).unwrap();
                let lane = |record: &RecordTruth| Delivery::from(record.record()).item() % factor;
                let first_given_up = truth.records.iter().find(|record| record.sequence == first);
                let its_lane = lane(first_given_up.unwrap());
                let in_range = |record: &&RecordTruth| {
                    record.passes && (&first..=&last).contains(&&record.sequence)
                };
                let given_up: Vec<_> = truth.records.iter().filter(in_range).cloned().collect();
                let given_up = given_up.iter().filter(|record| lane(record) == its_lane);
                let given_up: Vec<_> = given_up.map(|record| record.sequence.clone()).collect();
                assert_eq!(given_up.len(), count);
                truth.finished.extend(given_up.iter().cloned());
                truth.aggregated.extend(given_up);
            }
            Event::WindowDiscarded { shard, window } => {
                let truth = self.shards.get_mut(&shard).unwrap();
                let lost = truth
                    .records
                    .iter()
                    .filter(|record| (window.start_s..window.end_s).contains(&record.creation_s));
                let lost: Vec<_> = lost.map(|record| record.sequence.clone()).collect();
                truth.aggregated.extend(lost);
            }
            _ => {}
        }
    }

    /// Checks that a shard is read and delivered only when its parent is finished. For each item,
    /// the records that pass the filter must be delivered in order, without a gap, and never in two
    /// simultaneous attempts.
    fn check_command(&mut self, command: &Command) {
        let (Command::Read { shard, .. } | Command::Invoke { shard, .. }) = command else { return };
        let truth = &self.shards[shard];
        if let Some(parent) = &truth.parent {
            assert!(self.shards[parent].is_finished(), "{command} before its parent is done");
        }
        let Command::Invoke { records, window, .. } = command else { return };
        assert!(records.len() <= self.mapping.settings().batch_size);
        let sequences: Vec<_> = records.iter().map(|record| record.sequence.clone()).collect();
        assert!(sequences.is_sorted(), "{command} is out of order");
        if let Some(window) = window {
            self.check_window(shard, &sequences, window);
        } else {
            assert!(!records.is_empty());
        }
        let items: BTreeSet<u8> =
            sequences.iter().map(|sequence| truth.record(sequence).item).collect();
        for item in items {
            let truth = &self.shards[shard];
            for pending in &self.pending {
                if let Command::Invoke { shard: other, records, .. } = pending {
                    let mut others = records.iter().map(|record| truth.find(&record.sequence));
                    let collides = others.any(|other| other.is_some_and(|one| one.item == item));
                    assert!(other != shard || !collides, "{command} beside {pending}");
                }
            }
            self.check_item(shard, item, &sequences, command);
        }
    }

    fn check_item(
        &mut self,
        shard: &ShardId,
        item: u8,
        sequences: &[SequenceNumber],
        command: &Command,
    ) {
        let truth = &self.shards[shard];
        let one_lane = self.mapping.settings().parallelization_factor == 1;
        // With one lane, the order applies to all records of the shard. With several lanes, it
        // applies to the records of each item.
        let counts = |record: &RecordTruth| one_lane || record.item == item;
        let passing: Vec<_> = truth
            .records
            .iter()
            .filter(|record| record.passes && counts(record))
            .map(|record| record.sequence.clone())
            .collect();
        let delivered: Vec<_> =
            sequences.iter().filter(|one| counts(truth.record(one))).cloned().collect();
        let start = passing.iter().position(|sequence| *sequence == delivered[0]).unwrap();
        assert_eq!(passing[start..start + delivered.len()], delivered, "{command} leaves a gap");
        let skipped = passing[..start].iter().find(|sequence| !truth.finished.contains(*sequence));
        assert_eq!(skipped, None, "{command} skips a record");
        let first = sequences.iter().find(|one| truth.record(one).item == item).unwrap().clone();
        let before = self.invoked_in_run.insert((shard.clone(), item), first.clone());
        assert!(before.is_none_or(|before| first >= before), "{command} goes back");
    }

    /// Checks that the records belong to the window of the invocation, and that the window's state
    /// does not contain them yet. The state and the checkpoint are saved together, so this is also
    /// true after a restart.
    fn check_window(&self, shard: &ShardId, sequences: &[SequenceNumber], told: &WindowInvocation) {
        let truth = &self.shards[shard];
        let seen = seen(&told.open.state);
        assert!(told.is_final == sequences.is_empty(), "{told}");
        for sequence in sequences {
            let made = truth.record(sequence).creation_s;
            let Window { start_s, end_s } = told.open.window;
            assert!((start_s..end_s).contains(&made), "{sequence} in {told}");
            assert!(!seen.contains(sequence), "{sequence} twice in {told}");
        }
    }

    /// Checks that no checkpoint passes an unfinished record, and that no child has progress before
    /// its parent is closed.
    fn check_checkpoints(&self) {
        let Some(checkpoints) = self.mapping.checkpoints() else { return };
        for (id, checkpoint) in &checkpoints.shards {
            let truth = &self.shards[id];
            let covered = |sequence: &SequenceNumber| match &checkpoint.position {
                CheckpointPosition::After(last) => sequence <= last,
                CheckpointPosition::Closed { .. } => true,
                CheckpointPosition::TrimHorizon | CheckpointPosition::Latest => false,
            };
            for RecordTruth { sequence, passes, .. } in &truth.records {
                let finished = !passes || truth.finished.contains(sequence);
                assert!(finished || !covered(sequence), "checkpoint of {id} passes {sequence}");
            }
            let has_progress = checkpoint.position != CheckpointPosition::TrimHorizon;
            if let (true, Some(parent)) = (has_progress, &truth.parent) {
                let parent = &checkpoints.shards[parent].position;
                assert!(matches!(parent, CheckpointPosition::Closed { .. }), "{id} is ahead");
            }
        }
    }

    /// Simulates one event outside of the mapping.
    fn turn(&mut self) {
        match self.choose(20) {
            1 => self.restart(),
            2 => {
                self.now.time_ms += 40_000;
                self.step(Input::Tick);
            }
            3 if self.mapping.is_resting() => {
                self.step(Input::Arrived);
                // The first notification starts a read, which may be too early for later records.
                // The second notification therefore marks the shard to be read again. A third
                // notification would have no effect.
                self.step(Input::Arrived);
                assert!(
                    !self.mapping.is_resting(),
                    "a third notification would still have an effect"
                );
            }
            _ if self.pending.is_empty() => {
                self.now.tick_ms =
                    self.wake.map_or(self.now.tick_ms, |wake| wake.max(self.now.tick_ms));
                self.step(Input::Tick);
            }
            _ => {
                let choice = usize::from(self.choose(7)) % self.pending.len();
                let command = self.pending.remove(choice).unwrap();
                let input = self.carry_out(&command);
                self.step(input);
            }
        }
    }

    /// Kills and restarts the mapping. Running invocations and deliveries get no response, but may
    /// still take effect.
    fn restart(&mut self) {
        let settings = self.mapping.settings().clone();
        self.mapping = Mapping::new(settings, self.durable.clone());
        self.pending.clear();
        self.invoked_in_run.clear();
        self.step(Input::Tick);
    }

    fn carry_out(&mut self, command: &Command) -> Input {
        match command {
            Command::Describe if self.choose(5) == 1 => {
                Input::DescribeFailed { reason: "busy".to_owned() }
            }
            Command::Describe => self.describe(),
            Command::Read { shard, from } => self.read(shard, from),
            Command::Invoke { shard, batch, records, window, .. } => {
                let outcome = self.invoke(shard, records, window.as_deref());
                Input::Invoked { batch: *batch, outcome }
            }
            Command::DeliverFailure { delivery, .. } if self.choose(3) == 1 => {
                Input::FailureNotDelivered { delivery: *delivery, reason: "no bucket".to_owned() }
            }
            Command::DeliverFailure { delivery, .. } => {
                Input::FailureDelivered { delivery: *delivery }
            }
            other => panic!("unexpected command: {other}"),
        }
    }

    /// Returns a listing of the shards. It may lack the newest shards, because listings are
    /// eventually consistent.
    fn describe(&mut self) -> Input {
        let hide_leaves = self.choose(4) == 1;
        let parents: BTreeSet<_> =
            self.shards.values().filter_map(|truth| truth.parent.clone()).collect();
        let shards = self
            .shards
            .iter()
            .filter(|(id, truth)| !hide_leaves || truth.parent.is_none() || parents.contains(*id));
        let shards = shards
            .map(|(id, truth)| ShardDescription {
                id: id.clone(),
                parent: truth.parent.clone(),
                closed: parents.contains(id),
            })
            .collect();
        // If the listing lacks shards, the stream is reported as enabled, so that the mapping lists
        // it again.
        Input::Described { enabled: hide_leaves, shards }
    }

    fn read(&mut self, shard: &ShardId, from: &ReadFrom) -> Input {
        match self.choose(8) {
            1 => {
                let failure = ReadFailure::IteratorExpired;
                return Input::ReadFailed { shard: shard.clone(), failure };
            }
            2 => {
                let failure = ReadFailure::Unavailable { reason: "busy".to_owned() };
                return Input::ReadFailed { shard: shard.clone(), failure };
            }
            _ => {}
        }
        let length = usize::from(self.choose(9));
        let truth = self.shards.get_mut(shard).unwrap();
        truth.iterator = match from {
            ReadFrom::Iterator => truth.iterator,
            ReadFrom::TrimHorizon => 0,
            ReadFrom::Latest => truth.records.len(),
            ReadFrom::After(last) => {
                truth.records.iter().filter(|record| record.sequence <= *last).count()
            }
        };
        let rest = truth.records.len() - truth.iterator;
        let length = if self.choices.is_empty() { rest } else { length.min(rest) };
        let page = &truth.records[truth.iterator..truth.iterator + length];
        let records = page.iter().map(RecordTruth::record).collect();
        truth.iterator += length;
        let end = truth.iterator == truth.records.len();
        Input::Page { shard: shard.clone(), records, end }
    }

    fn invoke(
        &mut self,
        shard: &ShardId,
        records: &[std::sync::Arc<Delivery>],
        window: Option<&WindowInvocation>,
    ) -> InvokeOutcome {
        let choice = self.choose(6);
        let failed_from = match choice {
            1 => return InvokeOutcome::NotInvoked("busy".to_owned()),
            // The function may have processed any part of the batch before it failed.
            2 => return unhandled(),
            3 if !records.is_empty() => Some(usize::from(self.choose(u16::MAX)) % records.len()),
            4 if self.mapping.settings().report_batch_item_failures => {
                return InvokeOutcome::Ok(br#"{"batchItemFailures":[{}]}"#.to_vec().into());
            }
            _ => None,
        };
        let is_reporting = self.mapping.settings().report_batch_item_failures;
        let done = failed_from.filter(|_| is_reporting).unwrap_or(records.len());
        let truth = self.shards.get_mut(shard).unwrap();
        let sequences = records[..done].iter().map(|record| record.sequence.clone());
        truth.finished.extend(sequences.clone());
        let mut answer = failed_from.map_or(json!({}), |index| {
            let identifier = records[index].sequence.as_str();
            json!({"batchItemFailures": [{"itemIdentifier": identifier}]})
        });
        match window {
            None => truth.aggregated.extend(sequences),
            Some(window) => {
                let mut seen = seen(&window.open.state);
                if window.is_final {
                    truth.aggregated.extend(seen.iter().cloned());
                }
                seen.extend(sequences);
                let seen: Vec<_> = seen.iter().map(SequenceNumber::as_str).collect();
                answer["state"] = json!({ "seen": seen });
            }
        }
        InvokeOutcome::Ok(answer.to_string().into_bytes().into())
    }
}

/// Returns the records that are aggregated in a window's state.
fn seen(state: &str) -> BTreeSet<SequenceNumber> {
    let state: serde_json::Value = serde_json::from_str(state).unwrap();
    let seen = state["seen"].as_array().into_iter().flatten();
    seen.map(|text| SequenceNumber::parse(text.as_str().unwrap()).unwrap()).collect()
}

fn unhandled() -> InvokeOutcome {
    let (kind, message) = ("Unhandled".to_owned(), "oops".to_owned());
    InvokeOutcome::FunctionError { kind, message, payload: bytes::Bytes::new() }
}

impl ShardTruth {
    fn is_finished(&self) -> bool {
        self.records.iter().all(|one| {
            let finished = self.finished.contains(&one.sequence);
            !one.passes || (finished && self.aggregated.contains(&one.sequence))
        })
    }

    fn find(&self, sequence: &SequenceNumber) -> Option<&RecordTruth> {
        self.records.iter().find(|record| record.sequence == *sequence)
    }

    fn record(&self, sequence: &SequenceNumber) -> &RecordTruth {
        self.find(sequence).unwrap()
    }
}

impl RecordTruth {
    fn record(&self) -> Record {
        let keys = json!({"pk": {"S": "p"}, "sk": {"N": self.item.to_string()}});
        let event_name = if self.passes { "INSERT" } else { "REMOVE" };
        let event = json!({"eventName": event_name, "dynamodb": {"Keys": keys}});
        Record::of_event(self.sequence.clone(), Some(self.creation_s), &event)
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1_500, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn every_record_is_done_or_given_up_in_order(scenario in scenarios()) {
        let mut world = World::new(&scenario);
        world.step(Input::Tick);
        // This limit is far above the number of choices and retries. A mapping that needs more
        // iterations hangs.
        for _ in 0..20_000 {
            if world.mapping.is_over() && world.choices.is_empty() {
                break;
            }
            world.turn();
        }
        prop_assert!(world.mapping.is_over(), "the mapping hangs: {:?}", world.mapping.status(0));
        for (id, truth) in &world.shards {
            prop_assert!(truth.is_finished(), "{id} is over but not finished");
        }
        prop_assert!(world.mapping.is_idle());
    }
}
