//! Tests of the tree and its thread that need access to their internals.

use super::memtable::Cursor;
use super::versions::OpenViews;
use std::thread;
use std::time::Duration;

use lsm_tree::AbstractTree;

use super::*;
use crate::disk::SplitMix64;

fn put(key: u64) -> Batch {
    Batch { ops: vec![partition::Op::Put(key.to_be_bytes().to_vec(), vec![0; 2_000].into())] }
}

fn small(path: &Path) -> LsmStorage {
    let options = Options { memtable_bytes: 1_000, ..Options::default() };
    LsmStorage::open_with(path, &options).unwrap()
}

/// Waits until a condition holds, which the storage's thread causes.
fn wait(until: impl Fn() -> bool) {
    let patience = Duration::from_millis(10);
    assert!((0..6_000).any(|_| until() || (thread::sleep(patience), false).1));
}

/// Goal: readers of a table do not wait for its flush, even if its rows are unordered, and the
/// flushed rows are right.
#[test]
fn readers_of_a_table_do_not_wait_for_its_flush() {
    let table = Memtable::default();
    let nobody = OpenViews { oldest: u64::MAX, newest: 0 };
    for number in 0..200 {
        // The rows are not inserted in key order.
        let key = number * 77 % 200;
        table.apply(&put(key).ops, number, &nobody);
    }
    let mut written = table.versions(|_| true);
    let first = written.next().unwrap();
    let from = 3_u64.to_be_bytes();
    let cursor = Cursor::new(&table, (&from, &[0xff]), false, u64::MAX);
    assert_eq!(cursor.row().unwrap().0, from);
    let keys: Vec<_> = [first].into_iter().chain(written).map(|row| row.key.user_key).collect();
    let expected: Vec<_> = (0..200_u64).map(|key| key.to_be_bytes().to_vec()).collect();
    assert!(keys.iter().map(|key| &**key).eq(&expected));
    let again = table.versions(|_| true).map(|row| row.key.user_key);
    assert!(again.eq(keys), "the scan returns the rows in key order");
}

#[test]
fn tables_of_repeated_persists_are_merged() {
    let directory = tempfile::tempdir().unwrap();
    let storage = LsmStorage::open(&directory.path().join("state")).unwrap();
    for key in 0..60 {
        storage.apply(&put(key)).unwrap();
        storage.persist().unwrap();
    }
    wait(|| storage.state.tables.run_count() <= 10);
}

/// Goal: replaced and deleted rows occupy no disk space after a reclaim.
#[test]
fn the_space_of_replaced_and_deleted_rows_is_given_back() {
    let directory = tempfile::tempdir().unwrap();
    let storage = LsmStorage::open(&directory.path().join("state")).unwrap();
    let mut random = SplitMix64::new(1);
    for _ in 0..5 {
        for key in 0..3_000_u64 {
            let value: Vec<u8> = (0..250).flat_map(|_| random.next_u64().to_be_bytes()).collect();
            let put = partition::Op::Put(key.to_be_bytes().to_vec(), value.into());
            storage.apply(&Batch { ops: vec![put] }).unwrap();
        }
        storage.persist().unwrap();
    }
    let before = storage.disk_bytes();
    storage.reclaim();
    wait(|| storage.disk_bytes() < before / 4);
    let key = 2_999_u64.to_be_bytes();
    assert!(storage.view().get(&key).unwrap().is_some());
    let after = storage.disk_bytes();
    for key in 0..2_999_u64 {
        let delete = partition::Op::Delete(key.to_be_bytes().to_vec());
        storage.apply(&Batch { ops: vec![delete] }).unwrap();
    }
    storage.persist().unwrap();
    storage.reclaim();
    wait(|| storage.disk_bytes() < after / 4);
    assert!(storage.view().get(&key).unwrap().is_some());
}

/// Goal: writers never wait forever, for any order of keys. Method: keys in random order fill
/// several levels. The strategy prefers merges of these levels to the merges that writers wait for.
#[test]
fn a_storage_of_many_levels_accepts_writes() {
    let directory = tempfile::tempdir().unwrap();
    let options = Options { memtable_bytes: 4_000, file_bytes: 1_000, ..Options::default() };
    let path = directory.path().join("state");
    let storage = LsmStorage::open_with(&path, &options).unwrap();
    let (written, is_done) = std::sync::mpsc::channel();
    thread::spawn(move || {
        let mut random = SplitMix64::new(7);
        for _ in 0..MANY_LEVELS {
            storage.apply(&put(random.next_u64() >> 1)).unwrap();
        }
        let Tables::Lsm(tables) = &storage.state.tables else { panic!("simulated tables") };
        written.send(tables.tree.level_table_count(3)).unwrap();
    });
    // The time-out detects a hang. It is far above the normal time.
    let third = is_done.recv_timeout(Duration::from_secs(300)).unwrap();
    assert!(third > Some(0), "not many levels");
}

/// The number of batches of 2 KB that fill several levels of the tree.
const MANY_LEVELS: usize = 1_500;

#[test]
fn other_tasks_continue_while_a_writer_waits() {
    let directory = tempfile::tempdir().unwrap();
    let storage = Arc::new(small(&directory.path().join("state")));
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).build().unwrap();
    let not_written = storage.state.tables.lock_flush();
    let writer = Arc::clone(&storage);
    let written =
        runtime.spawn(async move { (0..10).for_each(|key| writer.apply(&put(key)).unwrap()) });
    wait(|| storage.state.sealed_count() > 3);
    let (other, is_done) = std::sync::mpsc::channel();
    runtime.spawn(async move { other.send(()).unwrap() });
    is_done.recv_timeout(Duration::from_secs(60)).unwrap();
    assert!(!written.is_finished());
    drop(not_written);
    runtime.block_on(written).unwrap();
}

#[test]
fn a_full_disk_says_what_to_do() {
    let full = lsm_tree::Error::Io(io::ErrorKind::StorageFull.into());
    let text = sort("write to", Path::new("state"), full).to_string();
    assert!(text.contains("free disk space") && text.ends_with("process to recover"), "{text}");
}

#[test]
fn missing_files_are_damage_only_when_a_tree_is_opened() {
    use io::ErrorKind::{NotFound, PermissionDenied, UnexpectedEof};
    for (kind, is_damage) in [(NotFound, true), (UnexpectedEof, true), (PermissionDenied, false)] {
        let error = || lsm_tree::Error::Io(kind.into());
        let found = sort_opening(Path::new("state"), error());
        assert_eq!(matches!(found, Error::Corrupt { .. }), is_damage, "{found}");
        assert!(matches!(sort("write to", Path::new("state"), error()), Error::Io { .. }));
    }
}

/// Goal: rows that are inserted, deleted and inserted again exist once and are counted, both in and
/// out of the key order.
#[test]
fn a_table_in_memory_has_the_remaining_rows() {
    use std::collections::BTreeMap;

    use partition::Op;

    let key_of = |number: u64| {
        [&[8][..], &number.to_be_bytes(), &[1; 80][..(number % 90) as usize % 81]].concat()
    };
    let table = Memtable::default();
    let nobody = OpenViews { oldest: u64::MAX, newest: 0 };
    let mut random = SplitMix64::new(3);
    let mut left = BTreeMap::new();
    // The second half starts when all rows are in order, and deletes more rows than it inserts.
    for (round, of_four_deleted) in
        (0..60).map(|round| (round, 1)).chain((60..120).map(|round| (round, 3)))
    {
        let numbers: std::collections::BTreeSet<u64> =
            (0..500).map(|_| random.next_u64() % 12_000).collect();
        let mut ops = Vec::new();
        for number in numbers {
            let key = key_of(number);
            let value: partition::Value = vec![7; (random.next_u64() % 40) as usize].into();
            ops.push(match left.contains_key(&key) {
                true if random.next_u64() % 4 < of_four_deleted => {
                    left.remove(&key);
                    Op::Delete(key)
                }
                true => {
                    left.insert(key.clone(), value.clone());
                    Op::Put(key, value)
                }
                false => {
                    left.insert(key.clone(), value.clone());
                    Op::Insert(key, value)
                }
            });
        }
        table.apply(&ops, round, &nobody);
        if round == 60 || round == 119 {
            let newest = table.newest(8);
            let expected = left.iter().map(|(key, value)| (key.as_slice(), Some(&**value)));
            assert!(newest.rows().into_iter().eq(expected), "round {round}");
            let row = |(key, value): (&Vec<u8>, &partition::Value)| {
                rows::ROW_BYTES + (key.len().saturating_sub(64) + value.len()) as u64
            };
            assert_eq!(table.bytes(), left.iter().map(row).sum::<u64>(), "round {round}");
        }
        for number in 0..20 {
            let key = key_of(number);
            let found = table.get(&key::Key::from(key.as_slice()), u64::MAX).flatten();
            assert_eq!(found, left.get(&key).cloned());
        }
    }
}
