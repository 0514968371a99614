//! Tests of steps over large items: each step reads a few megabytes, and all items are processed.

use model::limits::STREAM_RETENTION_MS;
use model::{EpochMillis, Item, KeyValue, Number, PrimaryKey};

use crate::machine::step::STEP_BYTES_MAX;
use crate::machine::tests::{Replica, START, create, entry, key, schema, write};
use crate::*;

const TABLE: TableId = TableId(1);
const ITEMS: u8 = 30;
const ITEM_BYTES: usize = 300_000;
/// The number of steps for all items. The last item of each step may exceed the step's byte limit.
const STEPS: usize = (ITEMS as usize).div_ceil(STEP_BYTES_MAX / ITEM_BYTES + 1);

fn put(number: u8, time: &str) -> Command {
    let item: Item = model::json::item_from_str(time).unwrap();
    let item = key(number).to_item(&schema()).into_iter().chain(item).collect::<Item>();
    write(number, WriteAction::put(&item.with("v", "x".repeat(ITEM_BYTES))))
}

/// Returns a replica whose table has a stream and large items, all expired.
fn replica() -> Replica {
    let mut replica = Replica::new();
    replica.apply(1, &entry(0, vec![create()]));
    let time = format!(r#"{{"ttl":{{"N":"{}"}}}}"#, START / 1000 - 5);
    replica.apply(2, &entry(0, (0..ITEMS).map(|number| put(number, &time)).collect()));
    replica
}

/// Repeats a command until its reply reports that no work remains. Returns the number of commands.
fn count_steps(replica: &mut Replica, first: u64, at: u64, command: &Command) -> usize {
    for (count, index) in (1..100).zip(first..) {
        let replies = replica.apply(index, &entry(at, vec![command.clone()]));
        if replies == [Reply::Done { more: false }] {
            return count;
        }
        assert_eq!(replies, [Reply::Done { more: true }]);
    }
    panic!("the steps never end")
}

fn enable() -> Command {
    let change = TimeToLiveChange::Enable("ttl".to_owned());
    Command::UpdateTimeToLive { table: TABLE, change }
}

#[test]
fn enabling_time_to_live_reads_a_few_large_items_at_a_time() {
    let mut replica = replica();
    replica.apply(3, &entry(0, vec![enable()]));
    let step = Command::StepTimeToLive { table: TABLE };
    assert_eq!(count_steps(&mut replica, 4, 0, &step), STEPS);
    assert_eq!(replica.table().time_to_live.status(), "ENABLED");
    let entries = replica.storage.0.keys().filter(|key| key[0] == 5).count();
    assert_eq!(entries, usize::from(ITEMS));
}

/// Goal: the size of the items limits an entry that deletes expired items. The size of the entry
/// itself is too small to limit it.
#[test]
fn large_items_expire_in_several_entries() {
    let mut replica = replica();
    replica.apply(3, &entry(0, vec![enable(), Command::StepTimeToLive { table: TABLE }]));
    let step = Command::StepTimeToLive { table: TABLE };
    count_steps(&mut replica, 4, 0, &step);
    let (now, mut entries) = (EpochMillis(START), 0);
    for index in 100..200 {
        let found = find_expired(&replica.storage, replica.table(), now, 500, None).unwrap();
        assert!(found.commands.len() <= STEP_BYTES_MAX / ITEM_BYTES + 1);
        replica.apply(index, &entry(0, found.commands));
        entries += 1;
        if found.next_position.is_none() {
            break;
        }
    }
    assert_eq!(entries, STEPS);
    assert!(replica.items().is_empty());
}

#[test]
fn an_entry_expires_a_bounded_number_of_items_and_at_least_one() {
    let replica = expiring(10);
    let far = EpochMillis(START + 3_600_000);
    for (limit, count, more) in [(0, 0, false), (1, 1, true), (10, 10, true), (11, 10, false)] {
        let found = find_expired(&replica.storage, replica.table(), far, limit, None).unwrap();
        let told = (found.commands.len(), found.next_position.is_some());
        assert_eq!(told, (count, more), "{limit}");
    }
}

/// Goal: locked items, which cannot be deleted yet, do not block the deletion of other items.
#[test]
fn a_search_continues_after_the_previous_one() {
    let replica = expiring(10);
    let far = EpochMillis(START + 3_600_000);
    let (mut behind, mut found) = (None, Vec::new());
    for _ in 0..4 {
        let place: Option<&[u8]> = behind.as_deref();
        let look = find_expired(&replica.storage, replica.table(), far, 3, place).unwrap();
        found.extend(look.commands);
        behind = look.next_position;
    }
    let all = find_expired(&replica.storage, replica.table(), far, 500, None).unwrap();
    assert_eq!(behind, None);
    assert_eq!(format!("{found:?}"), format!("{:?}", all.commands));
}

/// Returns a replica with `items` expiring items, each with its own partition key.
fn expiring(items: u64) -> Replica {
    let put = |number: u64| {
        let sort = Some(KeyValue::N(Number::from(number)));
        let key = PrimaryKey { partition: KeyValue::S("p".to_owned()), sort };
        let item = key.to_item(&schema()).with("ttl", Number::from(START / 1000 + number));
        Command::Write(Box::new(Write {
            table: TABLE,
            key,
            action: WriteAction::put(&item),
            condition: None,
            return_old: false,
            return_new: false,
            return_on_failure: false,
        }))
    };
    let mut replica = Replica::new();
    let step = Command::StepTimeToLive { table: TABLE };
    replica.apply(1, &entry(0, vec![create(), enable(), step]));
    replica.apply(2, &entry(0, (0..items).map(put).collect()));
    replica
}

#[test]
fn disabling_time_to_live_removes_a_thousand_entries_at_a_time() {
    for (items, steps) in [(0, 1), (999, 1), (1000, 2), (1001, 2), (2001, 3)] {
        let mut replica = expiring(items);
        let entries = |replica: &Replica| replica.storage.0.keys().filter(|k| k[0] == 5).count();
        assert_eq!(entries(&replica) as u64, items);
        let change = TimeToLiveChange::Disable("ttl".to_owned());
        let disable = Command::UpdateTimeToLive { table: TABLE, change };
        replica.apply(3, &entry(0, vec![disable]));
        let step = Command::StepTimeToLive { table: TABLE };
        assert_eq!(count_steps(&mut replica, 4, 0, &step), steps, "{items} items");
        assert_eq!(entries(&replica), 0);
        assert_eq!(replica.storage.0.keys().filter(|key| key[0] == 22).count(), 0);
        assert_eq!(replica.table().time_to_live.status(), "DISABLED");
        assert_eq!(replica.items().len() as u64, items);
    }
}

/// Goal: items that exist when TTL is enabled expire like items that are written later.
#[test]
fn existing_items_expire_like_later_ones() {
    let times = [
        r#"{"ttl":{"N":"1799999000"}}"#,
        r#"{"ttl":{"N":"1799999000.9"}}"#,
        r#"{"ttl":{"N":"-1799999000"}}"#,
        r#"{"ttl":{"N":"1e30"}}"#,
        r#"{"ttl":{"S":"1799999000"}}"#,
        r#"{"ttl":{"NS":["1799999000"]}}"#,
        r#"{"ttl":{"L":[{"N":"1799999000"}]}}"#,
        r#"{"other":{"N":"1799999000"}}"#,
    ];
    let puts = || (0..).zip(times).map(|(number, time)| put(number, time));
    let mut replicas = [true, false].map(|is_before| {
        let mut replica = Replica::new();
        replica.apply(1, &entry(0, vec![create()]));
        let mut steps = vec![enable(), Command::StepTimeToLive { table: TABLE }];
        let at = if is_before { 0 } else { steps.len() };
        steps.splice(at..at, puts());
        replica.apply(2, &entry(0, steps));
        replica.storage.0.into_keys().filter(|key| key[0] == 5).collect::<Vec<_>>()
    });
    let [before, after] = &mut replicas;
    assert_eq!(before.len(), 2, "only valid times are indexed");
    assert_eq!(before, after);
}

#[test]
fn a_deleted_table_is_purged_in_steps() {
    let mut replica = replica();
    replica.apply(3, &entry(0, vec![Command::DeleteTable { table: TABLE }]));
    // An older version of the program stored an empty value, without the progress.
    assert_eq!(replica.storage.0.get(&[&[7][..], &1u64.to_be_bytes()].concat()).unwrap().len(), 0);
    let steps = count_steps(&mut replica, 4, 0, &Command::PurgeTable { table: TABLE });
    // Each item has a stream record.
    assert!((2 * STEPS - 1..=2 * STEPS).contains(&steps), "{steps}");
    let of_table = |key: &&Vec<u8>| key.len() > 8 && key[1..9] == 1u64.to_be_bytes();
    assert_eq!(replica.storage.0.keys().filter(of_table).count(), 0);
}

#[test]
fn large_stream_records_are_trimmed_in_steps() {
    let mut replica = replica();
    let records = |replica: &Replica| replica.records().iter().map(|(_, r)| r.len()).sum::<usize>();
    assert_eq!(records(&replica), usize::from(ITEMS));
    let later = STREAM_RETENTION_MS + 2000;
    let trim = Command::TrimStreams { table: TABLE };
    assert_eq!(count_steps(&mut replica, 3, later, &trim), STEPS);
    assert_eq!(records(&replica), 0);
    assert_eq!(replica.items().len(), usize::from(ITEMS));
}
