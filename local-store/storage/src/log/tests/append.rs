//! Tests of appending, syncing, reading and switching segments, without faults.

use proptest::prelude::*;

use super::*;
use crate::disk::FileDisk;

#[test]
fn an_empty_log_is_ready_for_its_first_entry() {
    let disk = SimulatedDisk::new();
    let log = open(&disk);
    assert_eq!((log.first_index(), log.next_index(), log.last_index()), (1, 1, 0));
    assert_eq!(read_all(&log), []);
    assert_eq!(log.recovery(), &Recovery::default());
    let begun = Options { first_index: 7, ..options() };
    let log = Log::open(Arc::new(SimulatedDisk::new()), begun).unwrap();
    assert_eq!((log.first_index(), log.next_index(), log.last_index()), (7, 7, 6));
}

#[test]
fn entries_come_back_in_order_across_segments_and_after_reopening() {
    let disk = SimulatedDisk::new();
    let mut log = open(&disk);
    log.append(&entries(1, 4)).unwrap();
    log.append(&[]).unwrap();
    // This group is larger than two segments.
    log.append(&entries(4, 100)).unwrap();
    log.sync().unwrap();
    log.append(&[entry(100, 0)]).unwrap();
    assert_eq!(log.synced_end(), 100);
    let expected: Vec<Entry> = entries(1, 100).into_iter().chain([entry(100, 0)]).collect();
    assert_eq!(read_all(&log), expected);
    assert_eq!(segment_names(&disk).len(), 4);
    drop(log);
    let log = open(&disk);
    assert_eq!(read_all(&log), expected);
    assert_eq!((log.first_index(), log.last_index(), log.synced_end()), (1, 100, 101));
    assert_eq!(log.recovery(), &Recovery { entries: 100, discarded: None });
    let some = |from, to| log.read(from, to).unwrap().map(|read| read.unwrap().index);
    assert!(some(28, 30).eq([28, 29]));
    assert_eq!(some(58, 58).count(), 0);
    assert_eq!(some(101, 101).count(), 0);
}

#[test]
fn a_group_commit_is_one_write_and_one_sync() {
    let disk = SimulatedDisk::new();
    let mut log = open(&disk);
    let before = disk.operations();
    log.append(&entries(1, 20)).unwrap();
    assert_eq!(disk.operations() - before, 1);
    log.sync().unwrap();
    assert_eq!(disk.operations() - before, 2);
    log.sync().unwrap();
    assert_eq!(disk.operations() - before, 2, "nothing to sync");
}

#[test]
fn invalid_groups_are_refused_and_change_nothing() {
    let disk = SimulatedDisk::new();
    let mut log = open(&disk);
    log.append(&entries(1, 3)).unwrap();
    let largest = options().payload_bytes_max();
    assert_eq!(largest, 4_096 - 40);
    let before = disk.operations();
    for (refused, message) in [
        (entries(4, 5), "the next entry must have index=`3`, but has index=`4`"),
        (entries(2, 3), "the next entry must have index=`3`, but has index=`2`"),
        ([entries(3, 5), entries(6, 7)].concat(), "must have index=`5`, but has index=`6`"),
        (
            vec![entry(3, 1), entry(4, largest + 1)],
            "entry index=`4` has a payload of 4057 bytes; the log takes at most 4056",
        ),
    ] {
        let error = log.append(&refused).unwrap_err();
        assert!(!error.is_fatal());
        assert!(error.to_string().contains(message), "{error}");
    }
    assert_eq!(disk.operations(), before);
    log.append(&[entry(3, largest), entry(4, largest)]).unwrap();
    assert_eq!(
        read_all(&log),
        [entries(1, 3), vec![entry(3, largest), entry(4, largest)]].concat()
    );
    for (from, to) in [(0, 2), (4, 6), (6, 6), (3, 2)] {
        let error = log.read(from, to).unwrap_err();
        assert!(error.to_string().contains("from=`1` to=`5` (exclusive)"), "{error}");
    }
}

#[test]
fn invalid_options_are_refused() {
    for segment_bytes in [0, 4_096, 8_191, 8_200, u64::MAX] {
        let options = Options { segment_bytes, ..Options::default() };
        let error = Log::open(Arc::new(SimulatedDisk::new()), options).unwrap_err();
        assert!(error.to_string().contains("set a multiple of 4096 from 8192"), "{error}");
    }
    let options = Options { first_index: 0, ..Options::default() };
    let error = Log::open(Arc::new(SimulatedDisk::new()), options).unwrap_err();
    assert_eq!(error.to_string(), "the log's first index is 0; set at least 1");
}

#[test]
fn the_segment_size_can_change_between_runs() {
    let disk = SimulatedDisk::new();
    let mut log = open(&disk);
    log.append(&entries(1, 80)).unwrap();
    log.truncate_prefix(40).unwrap();
    drop(log);
    let larger = Options { segment_bytes: 16_384, ..options() };
    let mut log = Log::open(Arc::new(disk.clone()), larger).unwrap();
    log.append(&[entry(80, 12_000)]).unwrap();
    log.append(&entries(81, 110)).unwrap();
    log.sync().unwrap();
    log.truncate_prefix(85).unwrap();
    drop(log);
    let log = open(&disk);
    let expected: Vec<Entry> = entries(log.first_index(), 80)
        .into_iter()
        .chain([entry(80, 12_000)])
        .chain(entries(81, 110))
        .collect();
    assert_eq!(read_all(&log), expected[expected.len() - read_all(&log).len()..]);
    assert_eq!(log.next_index(), 110);
}

#[test]
fn a_log_on_real_files_has_one_owner_and_keeps_its_entries() {
    let directory = tempfile::tempdir().unwrap();
    let data = FileDisk::open(directory.path().join("data")).unwrap();
    let mut log = Log::open(Arc::new(data.subdirectory("log").unwrap()), options()).unwrap();
    log.append(&entries(1, 50)).unwrap();
    log.sync().unwrap();
    log.truncate_prefix(30).unwrap();
    drop((log, data));
    let data = FileDisk::open(directory.path().join("data")).unwrap();
    let mut log = Log::open(Arc::new(data.subdirectory("log").unwrap()), options()).unwrap();
    assert_eq!((log.first_index(), log.next_index()), (29, 50));
    assert_eq!(read_all(&log), entries(29, 50));
    log.append(&entries(50, 51)).unwrap();
    log.sync().unwrap();
}

proptest! {
    #[test]
    fn any_groups_of_any_sizes_round_trip(
        groups in prop::collection::vec(prop::collection::vec(0_usize..4_057, 0..5), 0..12),
    ) {
        let disk = SimulatedDisk::new();
        let mut log = open(&disk);
        let mut expected = Vec::new();
        for group in groups {
            let next = log.next_index();
            let group: Vec<Entry> =
                (next..).zip(group).map(|(index, size)| entry(index, size)).collect();
            log.append(&group).unwrap();
            log.sync().unwrap();
            expected.extend(group);
        }
        prop_assert_eq!(&read_all(&log), &expected);
        drop(log);
        disk.power_cut(0);
        prop_assert_eq!(&read_all(&open(&disk)), &expected);
    }
}
