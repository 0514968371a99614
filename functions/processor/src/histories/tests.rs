//! Histories in memory: concurrent executors, faults, redelivered batches.

use std::sync::Arc;
use std::time::Duration;

use futures::future::join_all;
use model::stream_record::{LambdaRecord, decode_lambda_record};
use model::{AttributeValue, json};
use rules::versions::Versions;
use rules::{Rule, fold};

use super::in_memory::InMemoryHistories;
use super::*;
use crate::frame::Frame;
use crate::object_store::in_memory::InMemoryObjectStore;
use crate::quarantine::Quarantine;
use crate::tables::in_memory::{AT_ONCE, Faults};

impl<T: HistoryTable> HistoryTable for Arc<T> {
    async fn load_heads(&self, items: &BTreeSet<String>) -> Result<Loaded, Failure> {
        self.as_ref().load_heads(items).await
    }

    async fn versions_below(&self, item: &str, below: u64) -> Result<Vec<Item>, Failure> {
        self.as_ref().versions_below(item, below).await
    }

    async fn write(&self, item: &str, plan: &Plan, found: u64) -> Result<PlanOutcome, Failure> {
        self.as_ref().write(item, plan, found).await
    }
}

fn histories(
    table: &Arc<InMemoryHistories>,
    retention: Retention,
) -> Histories<Arc<InMemoryHistories>> {
    Histories { table: Arc::clone(table), retention, retry: AT_ONCE }
}

/// Returns the record of the change with this number. The changes belong to three items.
fn record(number: u64) -> LambdaRecord {
    let item = number % 3;
    let image = |value: u64| format!(r#"{{"id":{{"S":"{item}"}},"v":{{"N":"{value}"}}}}"#);
    let before = number.checked_sub(3).map(|before| format!(r#""OldImage":{},"#, image(before)));
    let event = if before.is_some() { "MODIFY" } else { "INSERT" };
    let text = format!(
        r#"{{"eventID":"e{number}","eventName":"{event}","dynamodb":{{"ApproximateCreationDateTime":{},"Keys":{{"id":{{"S":"{item}"}}}},{}"NewImage":{},"SequenceNumber":"{}","SizeBytes":1,"StreamViewType":"NEW_AND_OLD_IMAGES"}},"eventSourceARN":"arn:aws:dynamodb:r:a:table/movies/stream/2026"}}"#,
        1000 + number,
        before.unwrap_or_default(),
        image(number),
        number + 1,
    );
    decode_lambda_record(&json::parse(text.as_bytes()).unwrap()).unwrap()
}

/// Applies the records from `from` to `to`, exclusive. Returns how many of them changed a history.
async fn apply(
    histories: &Histories<Arc<InMemoryHistories>>,
    from: u64,
    to: u64,
) -> Result<usize, Failure> {
    let rule = Versions { table: "movies".to_owned() };
    let records: Vec<LambdaRecord> = (from..to).map(record).collect();
    let needs = rule.needs(&records.iter().collect::<Vec<_>>());
    let found = Executor::load(histories, needs).await?;
    let effects = records.iter().enumerate().flat_map(|(position, record)| {
        let effects = rule.decide(record, &found).unwrap();
        effects.into_iter().map(move |effect| (position, effect))
    });
    let deadline = Deadline::after(Duration::from_secs(3600));
    let outcomes = histories.apply(fold(effects), &found, deadline).await;
    outcomes.into_iter().map(|outcome| outcome.result).sum()
}

fn check(table: &InMemoryHistories, count: u64) {
    for (item, (head, versions)) in table.histories() {
        let number: u64 =
            item.chars().find(char::is_ascii_digit).unwrap().to_string().parse().unwrap();
        let values: Vec<u64> = versions
            .values()
            .map(|v| v.image.as_ref().unwrap()["v"].as_number().unwrap().to_u64().unwrap())
            .collect();
        let expected: Vec<u64> = (0..count).filter(|value| value % 3 == number).collect();
        assert_eq!(values, expected, "{item}");
        assert!(versions.keys().copied().eq(1..=expected.len() as u64));
        assert_eq!(head.unwrap().latest, expected.len() as u64);
    }
}

#[tokio::test]
async fn batches_that_come_again_add_nothing() {
    let table = Arc::new(InMemoryHistories::default());
    let histories = histories(&table, Retention::default());
    assert_eq!(apply(&histories, 0, 200).await, Ok(200));
    check(&table, 200);
    let before = table.histories();
    for (from, to) in [(0, 200), (150, 200), (0, 1), (77, 99)] {
        assert_eq!(apply(&histories, from, to).await, Ok(0));
    }
    assert_eq!(table.histories(), before);
    assert_eq!(apply(&histories, 190, 230).await, Ok(30));
    check(&table, 230);
}

#[tokio::test]
async fn executors_at_the_same_time_number_each_change_once() {
    for seed in 0..64 {
        let faults = Faults { lost: 10, unanswered: 10, unprocessed: 20 };
        let table = Arc::new(InMemoryHistories::with_faults(seed, faults));
        let histories = histories(&table, Retention::default());
        // Three executors at different positions process the records of a stream in order.
        let executors = (0..3u64).map(|executor| {
            let histories = &histories;
            async move {
                let mut done = 0;
                while done < 60 {
                    let to = (done + 3 + (seed + executor) % 5).min(60);
                    // After a failure, the records are delivered again in different batches.
                    if apply(histories, done.saturating_sub(executor), to).await.is_ok() {
                        done = to;
                    }
                }
            }
        });
        join_all(executors).await;
        check(&table, 60);
    }
}

#[tokio::test]
async fn a_transaction_that_is_too_much_for_a_partition_is_made_smaller() {
    for capacity in [1, 5] {
        let table = Arc::new(InMemoryHistories::with_capacity(capacity));
        let histories = histories(&table, Retention::default());
        assert_eq!(apply(&histories, 0, 90).await, Ok(90));
        check(&table, 90);
    }
}

#[tokio::test]
async fn a_late_change_does_not_take_the_memory_of_the_history() {
    let table = Arc::new(InMemoryHistories::default());
    let histories = histories(&table, Retention::default());
    apply(&histories, 0, 300).await.unwrap();
    let (item, (head, _)) = table.histories().pop_first().unwrap();
    let rule = Versions { table: "movies".to_owned() };
    let effects = rule.decide(&record(3), &Found::default()).unwrap();
    let early = fold(effects.into_iter().map(|effect| (0, effect)));
    let changes = early.into_values().next().unwrap().value;
    let tail = histories.load_tail(&item, &head.unwrap(), &changes).await.unwrap();
    assert_eq!(tail.len(), 100);
    let with_image = tail.iter().filter(|version| version.image.is_some()).count();
    assert_eq!(with_image, IMAGES_MAX);
    assert!(tail.iter().rev().take(IMAGES_MAX).all(|version| version.image.is_some()));
}

#[tokio::test]
async fn pruned_versions_do_not_come_back() {
    let table = Arc::new(InMemoryHistories::default());
    let histories = histories(&table, Retention { keep_last: Some(4), keep_days: 0 });
    apply(&histories, 0, 90).await.unwrap();
    apply(&histories, 90, 99).await.unwrap();
    assert_eq!(apply(&histories, 0, 99).await, Ok(0));
    for (head, versions) in table.histories().into_values() {
        assert!(versions.keys().copied().eq(30..=33), "{versions:?}");
        assert_eq!(head.map(|head| (head.first, head.latest)), Some((30, 33)));
    }
}

#[tokio::test]
async fn a_damaged_history_is_not_written() {
    let table = Arc::new(InMemoryHistories::default());
    let histories = histories(&table, Retention::default());
    apply(&histories, 0, 3).await.unwrap();
    let damaged = Item::new().with("item", AttributeValue::from("x"));
    let changes = Changes::default();
    let joined = histories.join("x", &changes, Some(&damaged), &mut Vec::new()).await;
    assert!(matches!(joined, Err(Failure::Retry(_))), "{joined:?}");
}

/// The key of an item may, as text, exceed the maximum length of a history's key.
#[tokio::test]
async fn a_key_that_no_history_can_have_is_put_aside_alone() {
    let (table, store) = (Arc::new(InMemoryHistories::default()), Arc::default());
    let frame = Frame {
        rule: Versions { table: "movies".to_owned() },
        executor: histories(&table, Retention::default()),
        quarantine: Quarantine::new(Arc::clone(&store), "q/".to_owned(), "versions", AT_ONCE),
    };
    let record = |number: usize, key: &str| {
        let key = json::item_to_string(&Item::new().with("id", key));
        format!(
            r#"{{"eventID":"e{number}","eventName":"INSERT","dynamodb":{{"Keys":{key},"NewImage":{key},"SequenceNumber":"{number}","SizeBytes":1,"StreamViewType":"NEW_AND_OLD_IMAGES"}},"eventSourceARN":"arn:aws:dynamodb:r:a:table/movies/stream/2026"}}"#
        )
    };
    // Each quotation mark takes two bytes as text, so this key is too long.
    let records = [record(1, "a"), record(2, &"\"".repeat(1024)), record(3, &"b".repeat(2000))];
    let payload = format!(r#"{{"Records":[{}]}}"#, records.join(","));
    let deadline = Deadline::after(Duration::from_secs(3600));
    let processed = frame.process_event(&payload, deadline).await.unwrap().unwrap();
    let summary = processed.result.unwrap().summary;
    assert_eq!((summary.applied, summary.refused, summary.retried), (2, 1, 0));
    assert_eq!(table.histories().len(), 2);
    let store: Arc<InMemoryObjectStore> = store;
    let names: Vec<String> = store.objects().into_keys().collect();
    assert_eq!(names, ["q/versions/movies/2026/2-e2.json"]);
}

/// A change is quarantined with its reason if the table refuses its version. All other changes of
/// its item become versions without a gap, and every redelivery gives the same result.
#[tokio::test]
async fn a_change_that_the_table_takes_no_version_of_is_put_aside_alone() {
    let store: Arc<InMemoryObjectStore> = Arc::default();
    let table = Arc::new(InMemoryHistories::without_versions_of("large"));
    let frame = Frame {
        rule: Versions { table: "movies".to_owned() },
        executor: histories(&table, Retention::default()),
        quarantine: Quarantine::new(Arc::clone(&store), "q/".to_owned(), "versions", AT_ONCE),
    };
    // The history begins with a change of an item that was too large before. Changes 8 and 20 make
    // the item too large.
    let is_large = |number: u64| [0, 8, 20].contains(&number);
    let image = |number: u64| {
        let large = if is_large(number) { r#","large":{"S":"x"}"# } else { "" };
        format!(r#"{{"id":{{"S":"a"}},"v":{{"N":"{number}"}}{large}}}"#)
    };
    let record = |number: u64| {
        let (old, new) = (image(number - 1), image(number));
        format!(
            r#"{{"eventID":"e{number}","eventName":"MODIFY","dynamodb":{{"Keys":{{"id":{{"S":"a"}}}},"OldImage":{old},"NewImage":{new},"SequenceNumber":"{number}","SizeBytes":1,"StreamViewType":"NEW_AND_OLD_IMAGES"}},"eventSourceARN":"arn:aws:dynamodb:r:a:table/movies/stream/2026"}}"#
        )
    };
    let deadline = Deadline::after(Duration::from_secs(3600));
    let expected: Vec<u64> = (1..=40).filter(|number| !is_large(*number)).collect();
    for (from, to, applied, refused) in [(1, 31, 28, 2), (1, 41, 10, 2), (8, 9, 0, 1)] {
        let records: Vec<String> = (from..to).map(record).collect();
        let payload = format!(r#"{{"Records":[{}]}}"#, records.join(","));
        let processed = frame.process_event(&payload, deadline).await.unwrap().unwrap();
        let summary = processed.result.unwrap().summary;
        assert_eq!((summary.applied, summary.refused, summary.retried), (applied, refused, 0));
        assert_eq!(summary.already_applied, records.len() - applied - refused);
    }
    let (head, versions) = table.histories().into_values().next().unwrap();
    let value = |version: &Version| version.image.as_ref().unwrap()["v"].as_number().unwrap();
    let values: Vec<u64> = versions.values().map(|v| value(v).to_u64().unwrap()).collect();
    assert_eq!(values, expected);
    assert!(versions.keys().copied().eq(1..=expected.len() as u64));
    // The stored versions show that the base and some changes are missing.
    assert!(versions[&1].lacks_base());
    assert_eq!(lacking(&versions), [9, 21]);
    assert_eq!(head.unwrap().latest, expected.len() as u64);
    let names: Vec<String> = store.objects().into_keys().collect();
    assert_eq!(names, ["q/versions/movies/2026/20-e20.json", "q/versions/movies/2026/8-e8.json"]);
}

/// Returns the numbers of the versions before which a change is missing.
fn lacking(versions: &BTreeMap<u64, Version>) -> Vec<u64> {
    let pairs = versions.values().zip(versions.values().skip(1));
    let lacking = pairs.filter(|(before, version)| {
        !version.is_next_to(before.image.as_ref().map(rules::versions::fingerprint))
    });
    let value =
        |version: &Version| version.image.as_ref().unwrap()["v"].as_number().unwrap().to_u64();
    lacking.map(|(_, version)| value(version).unwrap()).collect()
}

/// All changes that come too late for their history are quarantined. The other changes of the batch
/// become versions.
#[tokio::test]
async fn changes_that_come_too_late_are_put_aside_together() {
    let store: Arc<InMemoryObjectStore> = Arc::default();
    let table: Arc<InMemoryHistories> = Arc::default();
    let frame = Frame {
        rule: Versions { table: "movies".to_owned() },
        executor: histories(&table, Retention::default()),
        quarantine: Quarantine::new(Arc::clone(&store), "q/".to_owned(), "versions", AT_ONCE),
    };
    let record = |number: u64| {
        format!(
            r#"{{"eventID":"e{number}","eventName":"MODIFY","dynamodb":{{"Keys":{{"id":{{"S":"a"}}}},"OldImage":{{"id":{{"S":"a"}},"v":{{"N":"{}"}}}},"NewImage":{{"id":{{"S":"a"}},"v":{{"N":"{number}"}}}},"SequenceNumber":"{number}","SizeBytes":1,"StreamViewType":"NEW_AND_OLD_IMAGES"}},"eventSourceARN":"arn:aws:dynamodb:r:a:table/movies/stream/2026"}}"#,
            number - 1
        )
    };
    let deadline = Deadline::after(Duration::from_secs(3600));
    // After change 120 there are 29 versions, after change 130 only 19.
    let first: Vec<u64> = (100..120).chain([121]).chain(122..130).chain(131..150).collect();
    let late: Vec<u64> = (1..40).chain([120, 130]).chain(150..153).collect();
    for (numbers, applied, refused) in [(first, 48, 0), (late, 4, 40)] {
        let records: Vec<String> = numbers.into_iter().map(record).collect();
        let payload = format!(r#"{{"Records":[{}]}}"#, records.join(","));
        let processed = frame.process_event(&payload, deadline).await.unwrap().unwrap();
        let summary = processed.result.unwrap().summary;
        assert_eq!((summary.applied, summary.refused, summary.retried), (applied, refused, 0));
    }
    let (_, versions) = table.histories().into_values().next().unwrap();
    let value = |version: &Version| version.image.as_ref().unwrap()["v"].as_number().unwrap();
    let values: Vec<u64> = versions.values().map(|v| value(v).to_u64().unwrap()).collect();
    let expected: Vec<u64> = (99..120).chain(121..153).collect();
    assert_eq!(values, expected);
    assert_eq!(lacking(&versions), [121]);
    assert_eq!(store.objects().len(), 40);
    // The later versions fill about 17 pages. These pages are not read again for each change.
    assert!(table.pages() < 120, "{}", table.pages());
}
