//! The frame with the rule of counters, over a table and a quarantine in memory.

mod slots;

use std::sync::Arc;
use std::time::Duration;

use futures::future::join_all;
use model::{AttributeValue, Number};
use proptest::prelude::*;
use rules::archive::Archive;
use rules::counters::{Cells, Counters, LoadedTotal};
use rules::{Folded, Joined};

use super::*;
use crate::archive_sink::ArchiveSink;
use crate::event::{Event, decode};
use crate::object_store::in_memory::{self as objects, InMemoryObjectStore};
use crate::tables::in_memory::{AT_ONCE, Faults, InMemoryTable};
use crate::totals::Totals;

type CountersFrame = Frame<Counters, Totals<Arc<InMemoryTable>>, Arc<InMemoryObjectStore>>;

const SLOT_COUNT: u32 = 3;

fn frame(
    table: Arc<InMemoryTable>,
    store: Arc<InMemoryObjectStore>,
    attempts: u32,
) -> CountersFrame {
    let retry = crate::back_off::RetryPolicy { attempts_max: attempts, ..AT_ONCE };
    Frame {
        rule: Counters {
            slot_count: SLOT_COUNT,
            slot_key: "slot".to_owned(),
            slot_value: "votes".to_owned(),
        },
        executor: Totals::new(table, "counter".to_owned(), retry),
        quarantine: Quarantine::new(store, "q/".to_owned(), "counters", retry),
    }
}

/// Returns a record that sets a slot to `votes`; `None` removes it.
fn vote(sequence: usize, key: &str, votes: Option<i64>) -> String {
    let (name, image) = match votes {
        Some(votes) => ("MODIFY", format!(r#""NewImage":{{"votes":{{"N":"{votes}"}}}},"#)),
        None => ("REMOVE", String::new()),
    };
    format!(
        r#"{{"eventID":"e{sequence}","eventName":"{name}","dynamodb":{{"Keys":{{"slot":{{"S":"{key}"}}}},{image}"SequenceNumber":"{sequence}","SizeBytes":1,"StreamViewType":"NEW_IMAGE"}},"eventSourceARN":"arn:aws:dynamodb:r:a:table/slots/stream/2026"}}"#
    )
}

async fn process(frame: &CountersFrame, records: &[String]) -> Result<Report, Failure> {
    let payload = format!(r#"{{"Records":[{}]}}"#, records.join(","));
    let processed =
        frame.process_event(&payload, Deadline::after(Duration::from_secs(3600))).await?;
    processed.expect("a batch").result
}

fn total(table: &InMemoryTable, counter: &str) -> Option<Number> {
    table.items().get(counter)?.get("total")?.as_number()
}

#[tokio::test]
async fn a_batch_is_one_write_per_total() {
    let (table, store) = (Arc::new(InMemoryTable::new("counter")), Arc::default());
    let frame = frame(Arc::clone(&table), Arc::clone(&store), 3);
    let batch = [
        vote(1, "A#0", Some(1)),
        vote(2, "A#0", Some(2)),
        vote(3, "A#1", Some(5)),
        vote(4, "B#2", Some(-4)),
        vote(5, "A#1", None),
    ];
    let report = process(&frame, &batch).await.unwrap();
    assert_eq!(report.response, BatchResponse::default());
    assert_eq!(report.summary, Summary { records: 5, applied: 5, ..Summary::default() });
    assert_eq!(total(&table, "A"), Some(Number::from(2i64)));
    assert_eq!(total(&table, "B"), Some(Number::from(-4i64)));
    assert_eq!(table.items()["A"]["revision"], AttributeValue::N(Number::from(1i64)));

    // The same records change nothing when they are delivered again in different batches.
    let items = table.items();
    for batch in [&batch[2..], &batch[..1], &batch[1..4]] {
        let report = process(&frame, batch).await.unwrap();
        assert_eq!(report.summary.already_applied, batch.len());
    }
    assert_eq!(table.items(), items);
    assert_eq!(process(&frame, &[]).await, Ok(Report::default()));
}

#[tokio::test]
async fn writers_of_one_total_do_not_hinder_each_other() {
    let table = Arc::new(InMemoryTable::with_faults("counter", 5, Faults::default()));
    let writers = (0..8).map(|writer| {
        let frame = frame(Arc::clone(&table), Arc::default(), 16);
        async move { process(&frame, &[vote(writer, &format!("A#{}", writer % 3), Some(1))]).await }
    });
    for report in join_all(writers).await {
        assert_eq!(report.unwrap().summary.retried, 0);
    }
    assert_eq!(total(&table, "A"), Some(Number::from(3i64)));
}

#[test]
fn targets_are_applied_in_the_order_of_records() {
    let joined = |records: &[usize]| Joined { value: (), records: records.to_vec() };
    let targets =
        BTreeMap::from([("a", joined(&[4, 2])), ("b", joined(&[3])), ("c", joined(&[1]))]);
    let order: Vec<_> = in_order(targets).into_iter().map(|(name, _)| name).collect();
    assert_eq!(order, ["c", "a", "b"]);
}

#[tokio::test]
async fn refused_records_are_quarantined_and_the_rest_is_applied() {
    let (table, store) = (Arc::new(InMemoryTable::new("counter")), Arc::default());
    let frame = frame(Arc::clone(&table), Arc::clone(&store), 3);
    let batch = [
        vote(1, "config", Some(1)),
        "7".to_owned(),
        vote(2, "A#0", Some(2)),
        vote(3, "A#9", Some(3)),
        r#"{"eventID":"e4","dynamodb":{"SequenceNumber":"4"}}"#.to_owned(),
    ];
    let report = process(&frame, &batch).await.unwrap();
    assert_eq!(report.response, BatchResponse::default());
    assert_eq!(
        report.summary,
        Summary { records: 5, applied: 1, refused: 4, ..Summary::default() }
    );
    assert_eq!(total(&table, "A"), Some(Number::from(2i64)));
    let names: Vec<String> = store.objects().into_keys().collect();
    assert_eq!(names[0], "q/counters/slots/2026/1-e1.json");
    assert_eq!(names[1], "q/counters/slots/2026/3-e3.json");
    assert_eq!(names[2], "q/counters/unknown-table/unknown-stream/4-e4.json");
    assert!(names[3].starts_with("q/counters/unknown-table/unknown-stream/unknown-"));
}

#[tokio::test]
async fn the_first_record_that_failed_is_reported() {
    let never = objects::Faults { lost: 100, ..objects::Faults::default() };
    let table = Arc::new(InMemoryTable::new("counter"));
    let frame = frame(table, Arc::new(InMemoryObjectStore::with_faults(1, never)), 2);
    let (good, bad) = (|n| vote(n, "A#0", Some(1)), |n| vote(n, "bad", Some(1)));
    for (batch, expected) in [
        (vec![good(1), bad(2), good(3), bad(4)], Ok(("2", 3))),
        (vec![good(1), good(2), "7".to_owned(), bad(4)], Ok(("2", 3))),
        (vec!["7".to_owned(), good(2)], Err("whole batch")),
        (vec![good(1)], Ok(("", 0))),
    ] {
        let report = process(&frame, &batch).await;
        match (report, expected) {
            (Ok(report), Ok((sequence_number, retried))) => {
                let failures = &report.response.batch_item_failures;
                let named = failures.first().map_or("", |failure| &failure.item_identifier);
                assert_eq!((named, report.summary.retried), (sequence_number, retried));
                assert!(failures.len() <= 1);
            }
            (Err(Failure::Retry(_)), Err(_)) => {}
            (report, expected) => panic!("{report:?} {expected:?}"),
        }
    }
}

#[tokio::test]
async fn a_table_that_cannot_be_read_hands_the_batch_back() {
    let never = Faults { lost: 100, ..Faults::default() };
    let table = Arc::new(InMemoryTable::with_faults("counter", 1, never));
    let frame = frame(table, Arc::default(), 2);
    // After a failed invocation, Lambda delivers a smaller batch. A single record cannot be divided,
    // so the response reports the record.
    let batch = [vote(7, "A#0", Some(1)), vote(8, "A#0", Some(2))];
    assert_eq!(process(&frame, &batch).await, Err(Failure::Retry("throttled".to_owned())));
    let report = process(&frame, &batch[..1]).await.unwrap();
    assert_eq!(report.response.batch_item_failures[0].item_identifier, "7");
    assert_eq!(report.summary, Summary { records: 1, retried: 1, ..Summary::default() });
}

#[tokio::test]
async fn the_loaded_part_of_a_batch_is_applied() {
    let table = Arc::new(InMemoryTable::new("counter"));
    let frame = frame(Arc::clone(&table), Arc::default(), 2);
    // The executor has recorded the size of a total, so it reads many totals at a time.
    frame.executor.note_loaded(1);
    // The order of the counters differs from the order of their records. Each counter has two
    // records.
    let name = |record: usize| record / 2 * 7919 % 1000;
    let record = |record| vote(record, &format!("{:03}#0", name(record)), Some(1));
    let batch: Vec<String> = (0..700).map(record).collect();
    let mut rest = batch.as_slice();
    for (reads, done) in [(2, 400), (1, 200), (1, 100)] {
        table.answer_reads(reads);
        let report = process(&frame, rest).await.unwrap();
        let summary = report.summary;
        assert_eq!((summary.applied, summary.retried), (done, rest.len() - done));
        rest = &rest[done..];
        let named = report.response.batch_item_failures.first();
        assert_eq!(named.is_some(), !rest.is_empty());
    }
    assert_eq!(table.items().len(), 350);
    // If the table refuses requests with many keys, the needs are loaded in small parts.
    table.answer_keys(20);
    table.answer_reads(5);
    let report = process(&frame, &batch).await.unwrap();
    assert_eq!((report.summary.already_applied, report.summary.retried), (100, 600));
}

/// An executor whose writes take all of the time.
struct Slow;

impl Executor for Slow {
    type Rule = Counters;

    async fn load(&self, _: Needs) -> Result<Found<LoadedTotal>, Failure> {
        Ok(Found::default())
    }

    async fn apply(
        &self,
        folded: Folded<String, Cells>,
        _: &Found<LoadedTotal>,
        deadline: Deadline,
    ) -> Vec<TargetOutcome> {
        tokio::time::sleep(deadline.remaining()).await;
        let late = |(target, joined): (String, Joined<Cells>)| {
            let result = Err(Failure::Retry("out of time".to_owned()));
            TargetOutcome::new(target, joined.records, result)
        };
        folded.into_iter().map(late).collect()
    }
}

#[tokio::test]
async fn a_refused_record_is_put_aside_however_slow_targets_are() {
    let store = Arc::new(InMemoryObjectStore::default());
    let CountersFrame { rule, quarantine, .. } =
        frame(Arc::new(InMemoryTable::new("counter")), Arc::clone(&store), 2);
    let frame = Frame { rule, executor: Slow, quarantine };
    let payload =
        format!(r#"{{"Records":[{},{}]}}"#, vote(1, "bad", Some(1)), vote(2, "A#0", Some(1)));
    let deadline = Deadline::after(Duration::from_millis(500));
    let report = frame.process_event(&payload, deadline).await.unwrap().unwrap().result.unwrap();
    assert_eq!(report.response.batch_item_failures[0].item_identifier, "2");
    assert_eq!((report.summary.refused, report.summary.retried), (1, 1));
    assert_eq!(store.objects().len(), 1);
}

#[tokio::test]
async fn a_missing_bucket_fails_the_invocation() {
    let store = Arc::new(InMemoryObjectStore::default());
    store.lose_bucket();
    let frame = frame(Arc::new(InMemoryTable::new("counter")), store, 2);
    let failed = process(&frame, &[vote(7, "bad", Some(1))]).await;
    assert_eq!(failed, Err(Failure::Fatal("bucket=`b` does not exist".to_owned())));
}

/// Returns the record of a delete. Sequence numbers 3 and 4 give a record without a row, and 6 a
/// malformed record.
fn delete(sequence: usize) -> String {
    let (identity, image) = match sequence {
        3 => ("User", r#","OldImage":{"id":{"S":"a"}}"#),
        4 => ("Service", ""),
        5 => ("Service", r#", "OldImage": {"id": {"S": "a"}}"#),
        6 => ("Service", r#","OldImage":7"#),
        _ => ("Service", r#","OldImage":{"id":{"S":"a"}}"#),
    };
    format!(
        r#"{{"eventID":"e{sequence}","eventName":"REMOVE","dynamodb":{{"ApproximateCreationDateTime":1795228199,"Keys":{{"id":{{"S":"a"}}}}{image},"SequenceNumber":"{sequence}","StreamViewType":"OLD_IMAGE"}},"userIdentity":{{"type":"{identity}","principalId":"dynamodb.amazonaws.com"}},"eventSourceARN":"arn:aws:dynamodb:r:a:table/tab/stream/2026"}}"#
    )
}

#[tokio::test]
async fn an_event_is_processed_as_its_batch_is() {
    let archive = |store: &Arc<InMemoryObjectStore>| Frame {
        rule: Archive::default(),
        executor: ArchiveSink::new(Arc::clone(store), "a/".to_owned(), AT_ONCE),
        quarantine: Quarantine::new(Arc::clone(store), "q/".to_owned(), "archive", AT_ONCE),
    };
    let records: Vec<String> = (1..8).map(delete).collect();
    let usual = format!(r#"{{"Records":[{}]}}"#, records.join(","));
    let unusual = usual.replacen("Records", "Rec\\u006frds", 1);
    let deadline = Deadline::after(Duration::from_secs(3600));
    let by_batch = Arc::default();
    let Ok(Event::Batch(batch)) = decode(&usual) else { panic!("{usual}") };
    let expected = archive(&by_batch).process(&batch, deadline).await;
    let summary = Summary { records: 7, applied: 4, ignored: 1, refused: 2, ..Summary::default() };
    assert_eq!(expected.as_ref().map(|report| report.summary), Ok(summary));
    for payload in [&usual, &unusual] {
        let store = Arc::default();
        let processed = archive(&store).process_event(payload, deadline).await.unwrap().unwrap();
        let texts: Vec<&str> = processed.batch.iter().map(|delivered| delivered.raw).collect();
        assert_eq!(texts, records);
        assert_eq!(processed.result, expected);
        assert_eq!(store.objects(), by_batch.objects());
    }

    let lost = objects::Faults { lost: 100, ..objects::Faults::default() };
    let store = Arc::new(InMemoryObjectStore::with_faults(1, lost));
    let processed = archive(&store).process_event(&usual, deadline).await.unwrap().unwrap();
    let report = processed.result.unwrap();
    assert_eq!(report.response.batch_item_failures[0].item_identifier, "1");
    assert_eq!(report.summary.retried, 7);
    assert!(archive(&store).process_event("{}", deadline).await.unwrap().is_none());
    assert!(matches!(archive(&store).process_event("[", deadline).await, Err(Failure::Fatal(_))));
}

/// Delivers the records of one shard as Lambda does, until all are done.
async fn poll(frame: CountersFrame, records: Vec<String>, sizes: Vec<usize>) {
    let mut sizes = sizes.into_iter().cycle();
    let mut rest = records.as_slice();
    while !rest.is_empty() {
        let mut size = sizes.next().unwrap().min(rest.len());
        let response = loop {
            match process(&frame, &rest[..size]).await {
                Ok(report) => break report.response,
                Err(Failure::Retry(_)) if size > 1 => size /= 2,
                Err(failure) => panic!("{failure}"),
            }
        };
        let first_failed = response.batch_item_failures.first().map(|failure| {
            let named = format!(r#""SequenceNumber":"{}""#, failure.item_identifier);
            rest.iter().position(|record| record.contains(&named)).unwrap()
        });
        rest = &rest[first_failed.unwrap_or(size)..];
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    /// Several pollers deliver the same history concurrently, each with its own boundaries, while
    /// requests fail. In the end the totals have the values of the slots.
    #[test]
    fn totals_converge(
        votes in prop::collection::vec((0..3_usize, 0..SLOT_COUNT, prop::option::of(-9..9_i64)), 1..30),
        pollers in prop::collection::vec(prop::collection::vec(1..8_usize, 1..5), 1..5),
        seed in any::<u64>(),
    ) {
        let mut slots = BTreeMap::new();
        let mut records = Vec::new();
        for (sequence, (counter, slot, value)) in votes.into_iter().enumerate() {
            let counter = ["A", "B", "C#c"][counter];
            slots.insert((counter, slot), value.unwrap_or(0));
            records.push(vote(sequence + 1, &format!("{counter}#{slot}"), value));
        }
        let faults = Faults { lost: 10, unanswered: 10, unprocessed: 10 };
        let table = Arc::new(InMemoryTable::with_faults("counter", seed, faults));
        let polls = pollers.into_iter().map(|sizes| {
            poll(frame(Arc::clone(&table), Arc::default(), 3), records.clone(), sizes)
        });
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        runtime.block_on(join_all(polls));

        let mut expected = BTreeMap::new();
        for ((counter, _), value) in slots {
            *expected.entry(counter).or_insert(0) += value;
        }
        prop_assert_eq!(table.items().len(), expected.len());
        for (counter, sum) in expected {
            prop_assert_eq!(total(&table, counter), Some(Number::from(sum)));
        }
    }
}
