//! Tests of the contract of storage engines, which run for each engine.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::ControlFlow;

use partition::{Batch, Op, QUEUE_KEYS, View};
use proptest::prelude::*;

use super::*;
use crate::disk::SimulatedDisk;

type Map = BTreeMap<Vec<u8>, Vec<u8>>;

/// An engine for a test, with the objects that must outlive it.
struct Opened {
    storage: Box<dyn Storage>,
    _directory: Option<tempfile::TempDir>,
}

fn open_memory() -> Opened {
    Opened { storage: Box::new(MemoryStorage::new()), _directory: None }
}

fn open_lsm(memtable_bytes: u64) -> Opened {
    let directory = tempfile::tempdir().unwrap();
    let options = LsmOptions {
        cache: BlockCache::with_bytes(1 << 20),
        memtable_bytes,
        ..LsmOptions::default()
    };
    let storage = LsmStorage::open_with(&directory.path().join("state"), &options).unwrap();
    Opened { storage: Box::new(storage), _directory: Some(directory) }
}

fn open_simulated(memtable_bytes: u64) -> Opened {
    let cache = BlockCache::new(0, 1);
    let options = LsmOptions { cache, memtable_bytes, ..LsmOptions::default() };
    let disk = SimulatedDisk::new();
    let storage = LsmStorage::open_simulated(&disk, "state", &options).unwrap();
    Opened { storage: Box::new(storage), _directory: None }
}

macro_rules! for_each_engine {
    ($($case:ident)*) => {
        mod memory { $(#[test] fn $case() { super::$case(&*super::open_memory().storage); })* }
        mod lsm { $(#[test] fn $case() {
            // Three sizes of tables in memory: each batch seals a table; tables are small; tables
            // are so large that they are rarely flushed.
            for bytes in [0, 1 << 16, 1 << 23] { super::$case(&*super::open_lsm(bytes).storage); }
        })* }
        mod simulated { $(#[test] fn $case() {
            for bytes in [0, 1 << 16, 1 << 23] {
                super::$case(&*super::open_simulated(bytes).storage);
            }
        })* }
    };
}

for_each_engine! {
    an_empty_storage_holds_nothing
    the_last_value_counts
    a_view_does_not_change
    scans_keep_to_their_bounds_and_order
    a_visitor_may_stop_and_may_use_the_storage
    an_invalid_batch_is_refused_as_a_whole
    large_values_and_many_batches_come_back
}

fn put(key: &str, value: &str) -> Op {
    Op::Put(key.into(), value.as_bytes().into())
}

fn apply(storage: &dyn Storage, ops: &[Op]) {
    storage.apply(&Batch { ops: ops.to_vec() }).unwrap();
}

fn get(view: &dyn View, key: &str) -> Option<String> {
    view.get(key.as_bytes()).unwrap().map(|value| String::from_utf8(value.to_vec()).unwrap())
}

fn scan(view: &dyn View, from: &[u8], to: &[u8], reverse: bool, count_max: usize) -> Vec<Vec<u8>> {
    let mut seen = Vec::new();
    let mut visit = |key: &[u8], value: &[u8]| {
        seen.push([key, b"=", value].concat());
        if seen.len() == count_max { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    };
    view.scan(from, to, reverse, &mut visit).unwrap();
    seen
}

fn scan_text(view: &dyn View, from: &str, to: &str, reverse: bool) -> String {
    let seen = scan(view, from.as_bytes(), to.as_bytes(), reverse, usize::MAX);
    String::from_utf8(seen.join(&b' ')).unwrap()
}

fn an_empty_storage_holds_nothing(storage: &dyn Storage) {
    storage.apply(&Batch::default()).unwrap();
    storage.persist().unwrap();
    let view = storage.view();
    assert_eq!(get(&*view, "a"), None);
    assert_eq!(get(&*view, ""), None);
    assert_eq!(scan_text(&*view, "", "z", false), "");
}

fn the_last_value_counts(storage: &dyn Storage) {
    apply(storage, &[put("a", "1"), put("b", "1"), put("c", "")]);
    apply(storage, &[Op::Delete("a".into()), put("b", "2"), Op::Delete("never there".into())]);
    let view = storage.view();
    assert_eq!(get(&*view, "a"), None);
    assert_eq!(get(&*view, "b").as_deref(), Some("2"));
    assert_eq!(get(&*view, "c").as_deref(), Some(""));
    assert_eq!(scan_text(&*view, "a", "z", false), "b=2 c=");
    // The order of a batch does not matter, because no key occurs twice.
    apply(storage, &[put("z", "3"), put("a", "3")]);
    assert_eq!(scan_text(&*storage.view(), "a", "zz", false), "a=3 b=2 c= z=3");
}

fn a_view_does_not_change(storage: &dyn Storage) {
    apply(storage, &[put("a", "1"), put("b", "1")]);
    let first = storage.view();
    apply(storage, &[put("a", "2"), Op::Delete("b".into()), put("c", "2")]);
    let second = storage.view();
    apply(storage, &[Op::Delete("a".into()), put("b", "3")]);
    storage.persist().unwrap();
    for _ in 0..2 {
        assert_eq!(scan_text(&*first, "a", "z", false), "a=1 b=1");
        assert_eq!(scan_text(&*second, "a", "z", false), "a=2 c=2");
        assert_eq!(get(&*first, "b").as_deref(), Some("1"));
        assert_eq!(get(&*first, "c"), None);
        // Enough batches to flush all tables in memory to disk.
        for _ in 0..8 {
            apply(storage, &[put("fill", &"x".repeat(20_000))]);
        }
        apply(storage, &[Op::Delete("fill".into())]);
    }
    drop(first);
    assert_eq!(get(&*second, "b"), None);
    drop(second);
    assert_eq!(scan_text(&*storage.view(), "a", "z", true), "c=2 b=3");
}

fn scans_keep_to_their_bounds_and_order(storage: &dyn Storage) {
    apply(storage, &[put("a", "1"), put("ab", "2"), put("b", "3"), put("b\0", "4"), put("c", "5")]);
    let view = storage.view();
    for (from, to, expected) in [
        ("", "zzz", "a=1 ab=2 b=3 b\0=4 c=5"),
        ("a", "c", "a=1 ab=2 b=3 b\0=4"),
        ("aa", "b", "ab=2"),
        ("b", "b\0", "b=3"),
        ("b", "b", ""),
        ("c", "a", ""),
        ("d", "e", ""),
        ("", "", ""),
    ] {
        assert_eq!(scan_text(&*view, from, to, false), expected, "{from} {to}");
        let mut reversed: Vec<&str> = expected.split(' ').collect();
        reversed.reverse();
        assert_eq!(scan_text(&*view, from, to, true), reversed.join(" "), "{from} {to}");
    }
    // Bounds are arbitrary bytes, and may be longer than any key.
    let longest = vec![b'x'; KEY_BYTES_MAX];
    let longer = vec![b'x'; KEY_BYTES_MAX + 1];
    apply(storage, &[Op::Put(longest.clone(), (*b"6").into())]);
    let view = storage.view();
    for (from, to, count) in [
        (b"a".as_slice(), longer.as_slice(), 6),
        (b"a", &longest, 5),
        (&longest, &longer, 1),
        (&longest, &longest, 0),
        (&longer, &longer, 0),
        (&longer, &longest, 0),
        (&longer, b"y", 0),
    ] {
        assert_eq!(scan(&*view, from, to, false, 9).len(), count);
        assert_eq!(scan(&*view, from, to, true, 9).len(), count);
    }
}

fn a_visitor_may_stop_and_may_use_the_storage(storage: &dyn Storage) {
    let ops: Vec<Op> = (0..500).map(|n| put(&format!("k{n:03}"), &n.to_string())).collect();
    apply(storage, &ops);
    let view = storage.view();
    assert_eq!(scan(&*view, b"k", b"l", false, 2), [b"k000=0", b"k001=1"]);
    assert_eq!(scan(&*view, b"k", b"l", true, 2), [b"k499=499", b"k498=498"]);
    for reverse in [false, true] {
        let mut count = 0;
        let mut visit = |key: &[u8], value: &[u8]| {
            count += 1;
            assert_eq!(view.get(key).unwrap().as_deref(), Some(value));
            let changed = Op::Put(key.to_vec(), (*b"changed").into());
            storage.apply(&Batch { ops: vec![changed, Op::Delete(b"k250".to_vec())] }).unwrap();
            assert_eq!(get(&*storage.view(), "k250"), None);
            ControlFlow::Continue(())
        };
        // The scan omits `k250`, because the visitor's batch would contain this key twice.
        view.scan(b"k000", b"k250", reverse, &mut visit).unwrap();
        view.scan(b"k251", b"l", reverse, &mut visit).unwrap();
        assert_eq!(count, 499);
    }
    assert_eq!(scan_text(&*view, "k249", "k252", false), "k249=249 k250=250 k251=251");
    assert_eq!(scan_text(&*storage.view(), "k249", "k252", false), "k249=changed k251=changed");
}

fn an_invalid_batch_is_refused_as_a_whole(storage: &dyn Storage) {
    let long = vec![b'k'; KEY_BYTES_MAX];
    let too_long = vec![b'k'; KEY_BYTES_MAX + 1];
    let delete = |key: &[u8]| Op::Delete(key.to_vec());
    for (ops, complaint) in [
        (vec![put("a", "1"), put("", "1")], "a key has 0 bytes; it must have 1 to 65535"),
        (vec![put("a", "1"), delete(&too_long)], "a key has 65536 bytes; it must have 1 to 65535"),
        (vec![put("a", "1"), delete(&[255])], "a key begins with the reserved byte 255"),
    ] {
        let error = storage.apply(&Batch { ops }).unwrap_err();
        assert!(!error.is_fatal());
        assert_eq!(error.to_string(), format!("the batch cannot be applied: {complaint}"));
        assert_eq!(scan_text(&*storage.view(), "", "z", false), "");
    }
    apply(storage, &[Op::Put(long.clone(), (*b"1").into())]);
    assert_eq!(storage.view().get(&long).unwrap().as_deref(), Some(b"1".as_slice()));
    assert_eq!(storage.view().get(&too_long).unwrap(), None);
}

fn large_values_and_many_batches_come_back(storage: &dyn Storage) {
    let value = |n: usize| vec![n.to_be_bytes()[7]; 100 + n % 7 * 1_000];
    for n in 0_usize..600 {
        apply(storage, &[Op::Put(n.to_be_bytes().to_vec(), value(n).into())]);
    }
    apply(storage, &[put("large", &"y".repeat(500_000))]);
    let view = storage.view();
    for n in 0_usize..600 {
        assert_eq!(view.get(&n.to_be_bytes()).unwrap(), Some(value(n).into()));
    }
    assert_eq!(get(&*view, "large").unwrap().len(), 500_000);
    let mut count = 0;
    view.scan(&[], &[1], false, &mut |key, found| {
        assert_eq!(key, count_key(count));
        assert_eq!(found, value(count));
        count += 1;
        ControlFlow::Continue(())
    })
    .unwrap();
    assert_eq!(count, 600);
}

fn count_key(count: usize) -> [u8; 8] {
    count.to_be_bytes()
}

#[derive(Debug, Clone)]
enum Step {
    Apply(BTreeMap<Vec<u8>, Option<Vec<u8>>>),
    Persist,
    TakeView,
    DropView,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    // Half of the keys belong to queues.
    let key = (
        prop::sample::select(vec![0, 1, 2, QUEUE_KEYS, QUEUE_KEYS, QUEUE_KEYS]),
        prop::collection::vec(0_u8..4, 0..3),
    )
        .prop_map(|(first, rest)| [vec![first], rest].concat());
    let value = prop::option::weighted(0.7, prop::collection::vec(any::<u8>(), 0..3_000));
    let batch = prop::collection::btree_map(key, value, 0..6);
    let step = prop_oneof![
        6 => batch.prop_map(Step::Apply),
        1 => Just(Step::Persist),
        2 => Just(Step::TakeView),
        1 => Just(Step::DropView),
    ];
    prop::collection::vec(step, 1..60)
}

fn entries(map: &Map, from: &[u8], to: &[u8]) -> Vec<Vec<u8>> {
    let inside = map.iter().filter(|(key, _)| key.as_slice() >= from && key.as_slice() < to);
    inside.map(|(key, value)| [key, b"=".as_slice(), value].concat()).collect()
}

/// Compares every view with the map at the time when the view was opened.
fn compare(views: &[(Box<dyn View + Send + Sync>, Map)]) -> Result<(), TestCaseError> {
    for (view, map) in views {
        const Q: u8 = QUEUE_KEYS;
        for (from, to) in [
            (vec![], vec![9]),
            (vec![1], vec![2, 2]),
            (vec![0, 3], vec![3]),
            (vec![1, 1], vec![Q, 2]),
            (vec![Q, 1], vec![Q, 3, 1]),
            (vec![Q, 0, 2], vec![Q + 1]),
            (vec![Q, 2], vec![Q + 1, 0]),
            (vec![], vec![u8::MAX; 9]),
        ] {
            let mut expected = entries(map, &from, &to);
            prop_assert_eq!(&scan(&**view, &from, &to, false, usize::MAX), &expected);
            expected.reverse();
            prop_assert_eq!(&scan(&**view, &from, &to, true, usize::MAX), &expected);
        }
        for key in [vec![0], vec![1, 2], vec![2, 3, 3], vec![Q], vec![Q, 1], vec![Q, 3, 3]] {
            let found = view.get(&key).unwrap();
            prop_assert_eq!(found.as_deref(), map.get(&key).map(Vec::as_slice));
        }
    }
    Ok(())
}

fn run(storage: &dyn Storage, steps: Vec<Step>) -> Result<(), TestCaseError> {
    let mut map = Map::new();
    let mut views = Vec::new();
    for step in steps {
        match step {
            Step::Apply(changes) => {
                let mut ops = Vec::new();
                for (key, value) in changes {
                    ops.push(match value.clone() {
                        Some(value) if !map.contains_key(&key) && value.len() % 2 == 0 => {
                            Op::Insert(key.clone(), value.into())
                        }
                        Some(value) => Op::Put(key.clone(), value.into()),
                        None => Op::Delete(key.clone()),
                    });
                    match value {
                        Some(value) => map.insert(key, value),
                        None => map.remove(&key),
                    };
                }
                storage.apply(&Batch { ops }).unwrap();
            }
            Step::Persist => storage.persist().unwrap(),
            Step::TakeView => views.push((storage.view(), map.clone())),
            Step::DropView if views.is_empty() => {}
            Step::DropView => drop(views.remove(0)),
        }
    }
    views.push((storage.view(), map));
    compare(&views)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]
    #[test]
    fn memory_is_a_map(steps in steps()) {
        run(&*open_memory().storage, steps)?;
    }
}

proptest! {
    // Each case creates a database on a real disk.
    #![proptest_config(ProptestConfig::with_cases(24))]
    #[test]
    fn lsm_is_a_map(steps in steps()) {
        for memtable_bytes in [0, 1 << 14, 1 << 23] {
            run(&*open_lsm(memtable_bytes).storage, steps.clone())?;
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]
    #[test]
    fn simulated_tables_are_a_map(steps in steps()) {
        for memtable_bytes in [0, 1 << 14, 1 << 23] {
            run(&*open_simulated(memtable_bytes).storage, steps.clone())?;
        }
    }
}

#[test]
fn a_power_cut_loses_only_some_of_the_last_batches() {
    let mut seen = BTreeSet::new();
    for seed in 0..200 {
        let storage = MemoryStorage::new();
        apply(&storage, &[put("a", "1"), put("b", "1")]);
        storage.persist().unwrap();
        let view = storage.view();
        let mut states = vec![scan_text(&*view, "a", "z", false)];
        for ops in [
            vec![put("a", "2"), put("c", "2")],
            vec![Op::Delete("a".into()), Op::Delete("c".into())],
            vec![put("c", "4")],
        ] {
            apply(&storage, &ops);
            states.push(scan_text(&*storage.view(), "a", "z", false));
        }
        let forgotten = storage.lose_memory(seed);
        seen.insert(forgotten);
        let left = scan_text(&*storage.view(), "a", "z", false);
        assert_eq!(left, states[3 - forgotten], "seed {seed}");
        assert_eq!(scan_text(&*view, "a", "z", false), states[0]);
        assert_eq!(storage.lose_memory(seed), 0, "batches that survived a power cut are durable");
    }
    assert_eq!(seen.len(), 4);
}

/// Goal: the memory engine checks the rules for batches that the production engine does not check.
/// Every other test also runs on the memory engine.
#[test]
fn the_memory_engine_rejects_a_key_that_occurs_twice() {
    let storage = MemoryStorage::new();
    for (ops, key) in [
        (vec![put("a", "1"), put("a", "2")], "a"),
        (vec![put("b", "1"), put("a", "2"), Op::Delete(b"b".to_vec())], "b"),
    ] {
        let error = storage.apply(&Batch { ops }).unwrap_err();
        assert!(!error.is_fatal());
        let expected = format!("the batch cannot be applied: the key `{key}` occurs twice");
        assert_eq!(error.to_string(), expected);
        assert_eq!(scan_text(&*storage.view(), "", "z", false), "");
    }
}
