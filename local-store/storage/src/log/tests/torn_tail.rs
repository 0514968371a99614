//! Tests that recovery cuts off only the torn end after a power loss.

use super::*;
use crate::disk::FileDisk;

/// Returns a log with three groups: two synced groups with the entries 1 to 5, and an unsynced
/// group from entry 6 to `tail_end` (exclusive).
fn log_with_tail(tail_end: u64) -> (SimulatedDisk, String) {
    let disk = SimulatedDisk::new();
    let mut log = open(&disk);
    log.append(&entries(1, 3)).unwrap();
    log.sync().unwrap();
    log.append(&entries(3, 6)).unwrap();
    log.sync().unwrap();
    log.append(&entries(6, tail_end)).unwrap();
    (disk.clone(), segment_names(&disk).remove(0))
}

/// Returns the offset of a record; records of 100 bytes take 144.
fn record_offset(index: u64) -> usize {
    DATA_OFFSET as usize + 144 * (index as usize - 1)
}

/// Overwrites the bytes `from..to` with zeros, like sectors that were never written.
fn blank(disk: &SimulatedDisk, name: &str, from: usize, to: usize) -> bool {
    let bytes = contents(disk, name)[from..to].to_vec();
    disk.corrupt(name, from, &bytes);
    bytes.iter().any(|byte| *byte != 0)
}

#[test]
fn the_last_record_may_be_torn_at_any_byte() {
    for torn_at in record_offset(6)..record_offset(7) {
        let (disk, name) = log_with_tail(7);
        let changed = blank(&disk, &name, torn_at, record_offset(7));
        let mut log = open(&disk);
        let next = if changed { 6 } else { 7 };
        assert_eq!(log.next_index(), next, "torn at {torn_at}");
        assert_eq!(read_all(&log), entries(1, next));

        let other = Entry { term: 50, ..entry(next, 100) };
        log.append(&[other.clone(), entry(next + 1, 5)]).unwrap();
        log.sync().unwrap();
        drop(log);
        disk.power_cut(0);
        let expected = [entries(1, next), vec![other, entry(next + 1, 5)]].concat();
        assert_eq!(read_all(&open(&disk)), expected, "torn at {torn_at}");
    }
}

#[test]
fn a_torn_group_is_cut_at_its_first_missing_record() {
    for torn in 6..9 {
        // Only the payload, only the header, or all of one record is missing.
        for (from, to) in [(40, 144), (0, 40), (0, 144)] {
            let (disk, name) = log_with_tail(9);
            blank(&disk, &name, record_offset(torn) + from, record_offset(torn) + to);
            let mut log = open(&disk);
            assert_eq!(read_all(&log), entries(1, torn));
            let visible = torn < 8 || (from, to) == (40, 144);
            let discarded =
                Discarded { file: name, offset: record_offset(torn) as u64, index: torn };
            assert_eq!(log.recovery().discarded, visible.then_some(discarded));

            // New entries have the same size as the old entries. The new entries must not make
            // later old entries readable.
            let other = Entry { term: 50, ..entry(torn, 100) };
            log.append(std::slice::from_ref(&other)).unwrap();
            log.sync().unwrap();
            drop(log);
            disk.power_cut(0);
            let log = open(&disk);
            assert_eq!(read_all(&log), [entries(1, torn), vec![other]].concat());
            assert_eq!(log.recovery().discarded, None);
        }
    }
}

#[test]
fn a_first_group_that_was_lost_leaves_an_empty_log() {
    let disk = SimulatedDisk::new();
    let mut log = open(&disk);
    log.append(&entries(1, 4)).unwrap();
    let name = segment_names(&disk).remove(0);
    blank(&disk, &name, record_offset(1), record_offset(2));
    let mut log = open(&disk);
    assert_eq!((log.first_index(), log.next_index()), (1, 1));
    assert!(log.recovery().discarded.is_some());
    log.append(&entries(1, 2)).unwrap();
    drop(log);
    assert_eq!(read_all(&open(&disk)), entries(1, 2));
    assert_eq!(segment_names(&disk).len(), 1);
}

#[test]
fn a_durable_record_that_is_missing_is_corruption_not_a_torn_tail() {
    for index in 1..6 {
        let (disk, name) = log_with_tail(9);
        blank(&disk, &name, record_offset(index), record_offset(index + 1));
        let (file, offset, complaint) =
            corruption(Log::open(Arc::new(disk.clone()), options()).unwrap_err());
        assert_eq!((&file, offset), (&name, record_offset(index) as u64));
        let witness = if index < 3 { 3 } else { 6 };
        let expected = format!(
            "expected the record of entry {index}, which was durable before the record at offset \
             {} was written, found zeros",
            record_offset(witness)
        );
        assert_eq!(complaint, expected);
    }
}

#[test]
fn a_real_file_may_be_torn_too() {
    let directory = tempfile::tempdir().unwrap();
    let mut log =
        Log::open(Arc::new(FileDisk::open(directory.path()).unwrap()), options()).unwrap();
    log.append(&entries(1, 6)).unwrap();
    log.sync().unwrap();
    log.append(&entries(6, 9)).unwrap();
    drop(log);
    let disk = FileDisk::open(directory.path()).unwrap();
    let name = disk.list().unwrap().remove(0);
    disk.open(&name).unwrap().write_at(record_offset(7) as u64, &[0; 100]).unwrap();
    let log = Log::open(Arc::new(disk), options()).unwrap();
    assert_eq!(read_all(&log), entries(1, 7));
}
