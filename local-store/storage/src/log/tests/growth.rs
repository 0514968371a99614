//! Tests of the sizes of segments: they grow with the log, and an idle log frees its space.

use super::*;
use crate::disk::Fault;

fn open_growing(disk: &SimulatedDisk) -> Log {
    Log::open(Arc::new(disk.clone()), growing()).unwrap()
}

/// Returns the sizes of the segments in pages, in order.
fn sizes(disk: &SimulatedDisk) -> Vec<u64> {
    let pages = |name: &String| contents(disk, name).len() as u64 / DATA_OFFSET;
    segment_names(disk).iter().map(pages).collect()
}

#[test]
fn segments_double_up_to_the_largest_size() {
    let disk = SimulatedDisk::new();
    let mut log = open_growing(&disk);
    for from in (1..1_001).step_by(20) {
        log.append(&entries(from, from + 20)).unwrap();
        log.sync().unwrap();
    }
    assert_eq!(sizes(&disk), [2, 4, 8, 16, 16]);
    drop(log);
    disk.power_cut(3);
    assert_eq!(read_all(&open_growing(&disk)), entries(1, 1_001));
}

#[test]
fn a_large_group_gets_one_file_that_fits_or_files_of_the_largest_size() {
    for (count, expected) in [(400, &[2, 15][..]), (1_000, &[2, 16, 16, 16])] {
        let disk = SimulatedDisk::new();
        let mut log = open_growing(&disk);
        log.append(&entries(1, 1 + count)).unwrap();
        assert_eq!(sizes(&disk), expected);
        assert_eq!(read_all(&log), entries(1, 1 + count));
    }
}

#[test]
fn a_full_disk_changes_nothing() {
    let disk = SimulatedDisk::new();
    let mut log = open_growing(&disk);
    for later in [0, 2] {
        disk.fail_at(disk.operations() + later, Fault::OutOfSpace);
        let refused = log.append(&entries(1, 1_001)).unwrap_err();
        assert!(matches!(refused, Error::OutOfSpace(_)), "{refused}");
        assert_eq!(log.next_index(), 1);
    }
    log.append(&entries(1, 1_001)).unwrap();
    log.sync().unwrap();
    disk.fail_at(disk.operations(), Fault::OutOfSpace);
    assert!(matches!(log.shrink(), Err(Error::OutOfSpace(_))));
    assert_eq!(read_all(&log), entries(1, 1_001));
    log.shrink().unwrap();
    assert_eq!(sizes(&disk).last(), Some(&2));
}

#[test]
fn a_log_that_shrinks_gives_its_files_back() {
    let disk = SimulatedDisk::new();
    let mut log = open_growing(&disk);
    log.append(&entries(1, 2_001)).unwrap();
    log.truncate_prefix(1_500).unwrap();
    assert!(log.file_bytes() > growing().small_bytes());
    log.shrink().unwrap();
    log.append(&entries(2_001, 2_002)).unwrap();
    log.sync().unwrap();
    log.truncate_prefix(2_000).unwrap();
    assert_eq!((log.first_index(), log.file_bytes()), (2_001, 2 * DATA_OFFSET));
    assert_eq!(disk.list().unwrap().len(), 1, "one segment, no spare");
    log.shrink().unwrap();
    assert_eq!(disk.list().unwrap().len(), 1, "a small log stays as it is");
    drop(log);
    disk.power_cut(1);
    assert_eq!(read_all(&open_growing(&disk)), entries(2_001, 2_002));
}

#[test]
fn a_power_cut_while_a_log_shrinks_loses_nothing() {
    for offset in 0.. {
        let disk = SimulatedDisk::new();
        let mut log = open_growing(&disk);
        log.append(&entries(1, 901)).unwrap();
        log.sync().unwrap();
        log.truncate_prefix(600).unwrap();
        let first = log.first_index();
        disk.fail_at(disk.operations() + offset, Fault::PowerOff);
        let done = log.shrink().is_ok();
        disk.power_cut(offset);
        let mut log = open_growing(&disk);
        assert_eq!(read_all(&log), entries(first, 901));
        log.append(&entries(901, 950)).unwrap();
        assert_eq!(read_all(&log), entries(first, 950));
        if done {
            break;
        }
        assert!(offset < 100, "it never succeeds");
    }
}
