//! The sink against an object store in memory that loses, delays and repeats requests. In the end
//! each row is in the archive exactly once.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use arrow_array::cast::AsArray;
use bytes::Bytes;
use futures::future::join_all;
use model::json::item_from_str;
use model::stream_record::LambdaRecord;
use model::{EventName, Item, StreamRecord, StreamViewType, UserIdentity};
use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;
use proptest::prelude::*;
use rules::archive::{Archive, Bucket, Declaration, Rows};
use rules::{Effect, Folded, Rule, fold};

use super::encoding::tests::check_is_plain;
use super::*;
use crate::object_store::in_memory::{Faults, InMemoryObjectStore};
use crate::tables::in_memory::AT_ONCE;

/// Returns the effect of a TTL delete in one of three minutes, so that many records share a bucket.
pub(super) fn effect(number: usize) -> Effect<Bucket, Rows> {
    let item = item_from_str(&format!(
        r#"{{"id":{{"S":"k{number}"}},"n":{{"N":"1"}},"x{}":{{"S":"{number}"}}}}"#,
        number % 3
    ))
    .unwrap();
    effect_of(number, item, None).unwrap()
}

/// Returns the effect of a TTL delete of this item, as decided for the archive `archive`; `None` if
/// the item gets no row.
pub(super) fn effect_of(
    number: usize,
    item: Item,
    archive: Option<&str>,
) -> Option<Effect<Bucket, Rows>> {
    let mut keys = item.clone();
    keys.retain(|name, _| name == "id");
    let record = LambdaRecord {
        record: StreamRecord {
            event_id: format!("{number:032x}"),
            event_name: EventName::Remove,
            user_identity: Some(UserIdentity::time_to_live()),
            approximate_creation_seconds: Some(1_795_228_140 + number as u64 * 7),
            keys,
            old_image: Some(item),
            new_image: None,
            sequence_number: number.to_string().parse().unwrap(),
            size_bytes: 1,
            view_type: StreamViewType::OldImage,
        },
        event_source_arn: "arn:aws:dynamodb:r:a:table/things/stream/2026-11-21".to_owned(),
    };
    // The rule depends on the number, as if functions with different columns had processed the
    // records. Two of these columns conflict.
    let declared =
        ["n:bigint", "", "*", "n:string"].get(number % 9).copied().unwrap_or("n:bigint,*");
    let Declaration { columns, discover } = Declaration::parse(declared).unwrap();
    let archive = archive.map(str::to_owned);
    let rule = Archive { columns, discover, archive, ..Archive::default() };
    rule.decide(&record, &Found::default()).unwrap().pop()
}

pub(super) fn folded(numbers: std::ops::Range<usize>) -> Folded<Bucket, Rows> {
    fold(numbers.enumerate().map(|(position, number)| (position, effect(number))))
}

pub(super) fn sink(
    store: &Arc<InMemoryObjectStore>,
    attempts_max: u32,
) -> ArchiveSink<Arc<InMemoryObjectStore>> {
    let policy = RetryPolicy { attempts_max, ..AT_ONCE };
    ArchiveSink::new(Arc::clone(store), "archive/".to_owned(), policy)
}

pub(super) fn hour() -> Deadline {
    Deadline::after(Duration::from_secs(3600))
}

/// Returns the items in the archive by event id, with the objects that contain them. Also checks
/// the encodings, because every test of the sink, of compaction and of erasure calls this function.
pub(super) fn contents(
    objects: &BTreeMap<String, Bytes>,
) -> BTreeMap<String, Vec<(String, String)>> {
    let mut found: BTreeMap<String, Vec<(String, String)>> = BTreeMap::new();
    for (name, part) in objects {
        check_is_plain(part);
        let reader = ParquetRecordBatchReaderBuilder::try_new(part.clone()).unwrap();
        for batch in reader.build().unwrap() {
            let batch = batch.unwrap();
            let column = |name| batch.column_by_name(name).unwrap().as_string::<i32>().iter();
            for (id, item) in column("_event_id").zip(column("_item")) {
                let place = (name.clone(), item.unwrap().to_owned());
                found.entry(id.unwrap().to_owned()).or_default().push(place);
            }
        }
    }
    found
}

fn check_exactly_once(store: &InMemoryObjectStore, count: usize) {
    let objects = store.objects();
    let found = contents(&objects);
    assert_eq!(found.len(), count);
    for number in 0..count {
        let Effect { target: bucket, statement: rows } = effect(number);
        let row = rows.iter().next().unwrap();
        let places = &found[row.event_id()];
        assert_eq!(places.len(), 1, "{number} stands in {places:?}");
        let (name, item) = &places[0];
        assert!(bucket.part_number("archive/", name).is_some(), "{number} stands in {name}");
        assert_eq!(*item, row.item());
    }
}

/// Runs one poller. It delivers batches of varying sizes, which begin at the first failed record or
/// sometimes at an earlier record. A restarted process has an empty cache.
pub(super) async fn poll(store: Arc<InMemoryObjectStore>, count: usize, choices: Vec<u8>) {
    let mut choices = choices.into_iter().cycle();
    let mut choice = |below: usize| usize::from(choices.next().unwrap()) % below;
    let attempts_max = 1 + u32::try_from(choice(4)).unwrap();
    let mut alive = sink(&store, attempts_max);
    let mut from = 0;
    let mut redeliveries = 0;
    while from < count {
        let to = (from + 1 + choice(12)).min(count);
        let outcomes = alive.apply(folded(from..to), &Found::default(), hour()).await;
        let failed = outcomes.iter().filter(|outcome| outcome.result.is_err());
        let first_failed = failed.filter_map(|outcome| outcome.records.iter().min()).min();
        match first_failed {
            Some(position) => {
                from += position;
                if choice(2) == 0 {
                    alive = sink(&store, attempts_max);
                }
            }
            None if choice(4) == 0 && redeliveries < 5 => {
                redeliveries += 1;
                from = from.saturating_sub(choice(9));
            }
            None => from = to,
        }
    }
}

pub(super) fn block_on<F: Future>(work: F) -> F::Output {
    tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap().block_on(work)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn each_row_is_archived_exactly_once(
        count in 1..25_usize,
        seed in any::<u64>(),
        pollers in prop::collection::vec(prop::collection::vec(any::<u8>(), 1..30), 1..5),
        faulty in any::<bool>(),
    ) {
        let faults = if faulty { Faults { lost: 8, unanswered: 12, contended: 8, ..Faults::default() } } else { Faults::default() };
        let store = Arc::new(InMemoryObjectStore::with_faults(seed, faults));
        let pollers = pollers.into_iter().map(|choices| poll(Arc::clone(&store), count, choices));
        block_on(join_all(pollers));
        check_exactly_once(&store, count);
    }
}

#[test]
fn archived_rows_are_not_read_or_written_again() {
    block_on(async {
        let store = Arc::new(InMemoryObjectStore::default());
        let first = sink(&store, 5);
        let applied = |outcomes: Vec<TargetOutcome>| -> usize {
            outcomes.into_iter().map(|outcome| outcome.result.unwrap()).sum()
        };
        assert_eq!(applied(first.apply(folded(0..20), &Found::default(), hour()).await), 20);
        let objects = store.objects();
        assert_eq!(applied(first.apply(folded(3..17), &Found::default(), hour()).await), 0);
        let other = sink(&store, 5);
        assert_eq!(applied(other.apply(folded(10..20), &Found::default(), hour()).await), 0);
        assert_eq!(store.objects(), objects);
        assert_eq!(applied(other.apply(folded(19..21), &Found::default(), hour()).await), 1);
        assert_eq!(store.objects().len(), objects.len() + 1);
        check_exactly_once(&store, 21);
    });
}

#[test]
fn objects_that_are_not_parts_are_ignored_or_named() {
    block_on(async {
        let store = Arc::new(InMemoryObjectStore::default());
        let bucket = effect(0).target;
        let note = format!("{}note.txt", bucket.prefix("archive/"));
        store.put_if_absent(&note, Bytes::new(), "text/plain").await.unwrap();
        let outcomes = sink(&store, 5).apply(folded(0..1), &Found::default(), hour()).await;
        assert_eq!(outcomes[0].result, Ok(1));

        let broken = bucket.part_name("archive/", 2);
        store.put_if_absent(&broken, Bytes::from_static(b"?"), PARQUET).await.unwrap();
        let outcomes = sink(&store, 5).apply(folded(0..2), &Found::default(), hour()).await;
        let Err(Failure::Fatal(reason)) = &outcomes[0].result else { panic!("{outcomes:?}") };
        assert!(reason.contains(&broken), "{reason}");
    });
}
