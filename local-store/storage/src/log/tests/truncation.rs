//! Tests of truncation, and of the reuse of files afterwards.

use super::*;
use crate::disk::Fault;

#[test]
fn a_prefix_is_removed_in_whole_segments_whose_files_are_reused() {
    let disk = SimulatedDisk::new();
    let mut log = open(&disk);
    log.append(&entries(1, 150)).unwrap();
    log.sync().unwrap();
    assert_eq!(segment_names(&disk).len(), 6);
    log.truncate_prefix(0).unwrap();
    log.truncate_prefix(27).unwrap();
    assert_eq!(log.first_index(), 1);
    log.truncate_prefix(28).unwrap();
    assert_eq!(log.first_index(), 29);
    log.truncate_prefix(149).unwrap();
    assert_eq!((log.first_index(), log.next_index()), (141, 150));
    let spares = disk.list().unwrap().len() - segment_names(&disk).len();
    assert_eq!((segment_names(&disk).len(), spares), (1, 2));
    assert_eq!(read_all(&log), entries(141, 150));

    let files_before = disk.list().unwrap().len();
    log.append(&entries(150, 210)).unwrap();
    log.sync().unwrap();
    assert_eq!(disk.list().unwrap().len(), files_before, "no file was created");
    drop(log);
    disk.power_cut(0);
    let log = open(&disk);
    assert_eq!(read_all(&log), entries(141, 210));
    assert_eq!(log.recovery().discarded, None, "old records in a reused file are ignored");
}

#[test]
fn a_prefix_beyond_the_end_restarts_the_log() {
    let disk = SimulatedDisk::new();
    let mut log = open(&disk);
    log.append(&entries(1, 40)).unwrap();
    log.truncate_prefix(99).unwrap();
    for _ in 0..2 {
        assert_eq!((log.first_index(), log.next_index(), log.last_index()), (100, 100, 99));
        assert_eq!(log.synced_end(), 100);
        drop(log);
        disk.power_cut(1);
        log = open(&disk);
    }
    assert!(matches!(log.append(&entries(40, 41)), Err(Error::NotContiguous { .. })));
    log.append(&entries(100, 140)).unwrap();
    assert_eq!(read_all(&log), entries(100, 140));
}

#[test]
fn a_segment_id_is_never_reused() {
    let disk = SimulatedDisk::new();
    let mut names = std::collections::BTreeSet::new();
    let mut used = 0;
    for round in 0..20 {
        let mut log = open(&disk);
        let next = log.next_index();
        log.append(&entries(next, next + 30)).unwrap();
        // Each round removes the newest segment. Its file may be reused under another name.
        log.truncate_prefix(next + 30 + round % 2).unwrap();
        let newest = segment_names(&disk).pop().unwrap();
        names.insert(newest);
        used += 1;
    }
    assert_eq!(names.len(), used);
}

#[test]
fn spares_without_segments_do_not_restore_old_entries() {
    let disk = SimulatedDisk::new();
    let mut log = open(&disk);
    log.append(&entries(1, 60)).unwrap();
    log.truncate_prefix(59).unwrap();
    for name in segment_names(&disk) {
        disk.remove(&name).unwrap();
    }
    // Reusing id 1 would make the records of the first segment valid again.
    let log = open(&disk);
    assert_eq!((log.first_index(), log.next_index()), (1, 1));
    assert!(segment_names(&disk)[0].as_str() > "segment-0000000000000002");
    drop(log);
    assert_eq!(read_all(&open(&disk)), []);
}

#[test]
fn a_truncation_survives_a_power_cut_at_any_operation() {
    // The log is truncated with a power-off at operation n, for each n until the truncation
    // succeeds.
    type Truncation = fn(&mut Log) -> Result<(), Error>;
    let truncations: [Truncation; 2] =
        [|log| log.truncate_prefix(120), |log| log.truncate_prefix(500)];
    for (number, truncate) in truncations.into_iter().enumerate() {
        for offset in 0.. {
            let disk = SimulatedDisk::new();
            let mut log = open(&disk);
            log.append(&entries(1, 150)).unwrap();
            log.sync().unwrap();
            disk.fail_at(disk.operations() + offset, Fault::PowerOff);
            let done = truncate(&mut log).is_ok();
            disk.power_cut(offset);
            let mut log = open(&disk);
            let (first, next) = (log.first_index(), log.next_index());
            let before = first <= 121 && next == 150;
            match number {
                0 => assert!(before && (!done || first == 113), "{first}..{next}"),
                _ => assert!((first, next) == (501, 501) || (!done && before), "{first}..{next}"),
            }
            assert_eq!(read_all(&log), entries(first, next));
            log.append(&entries(next, next + 40)).unwrap();
            assert_eq!(read_all(&log), entries(first, next + 40));
            if done {
                break;
            }
            assert!(offset < 100, "the truncation never succeeds");
        }
    }
}
