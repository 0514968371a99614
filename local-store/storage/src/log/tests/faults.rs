//! Tests with failing disks: a failed sync stops the log permanently, but a full disk only rejects
//! writes.

use super::*;
use crate::disk::Fault;

/// Appends and syncs groups of ten until an error, and returns how many entries were acknowledged.
fn write_until_error(log: &mut Log, groups: u64) -> (u64, Option<Error>) {
    for _ in 0..groups {
        let next = log.next_index();
        let result = log.append(&entries(next, next + 10)).and_then(|()| log.sync());
        if let Err(error) = result {
            return (log.synced_end() - 1, Some(error));
        }
    }
    (log.synced_end() - 1, None)
}

#[test]
fn a_failed_sync_is_never_retried_and_nothing_after_it_is_acknowledged() {
    let disk = SimulatedDisk::new();
    let mut log = open(&disk);
    write_until_error(&mut log, 1);
    log.append(&entries(11, 13)).unwrap();
    disk.fail_at(disk.operations(), Fault::Io);
    let error = log.sync().unwrap_err();
    assert!(
        error.is_fatal() && error.to_string().contains("restart the process to recover"),
        "{error}"
    );
    assert_eq!(log.synced_end(), 11);

    let operations = disk.operations();
    assert!(matches!(log.sync(), Err(Error::Stopped)));
    assert!(matches!(log.append(&entries(13, 14)), Err(Error::Stopped)));
    assert!(matches!(log.truncate_prefix(1), Err(Error::Stopped)));
    assert_eq!(disk.operations(), operations, "the log must not touch the disk");
    assert_eq!(read_all(&log), entries(1, 13), "entries must stay readable");

    // The page cache contains the entries as clean pages, but recovery must not trust it.
    drop(log);
    let log = open(&disk);
    assert_eq!(log.synced_end(), 13);
    drop(log);
    disk.power_cut(0);
    assert_eq!(read_all(&open(&disk)), entries(1, 13));
}

#[test]
fn a_full_disk_refuses_until_there_is_space() {
    let disk = SimulatedDisk::new();
    let mut log = open(&disk);
    log.append(&entries(1, 21)).unwrap();
    // The group needs two more segments; there is space for one.
    for fault_at in [0, 2] {
        disk.fail_at(disk.operations() + fault_at, Fault::OutOfSpace);
        let error = log.append(&entries(21, 80)).unwrap_err();
        assert!(matches!(error, Error::OutOfSpace(_)) && !error.is_fatal(), "{error}");
        assert!(error.to_string().contains("free disk space"), "{error}");
        assert_eq!(read_all(&log), entries(1, 21));
        log.sync().unwrap();
    }
    log.append(&entries(21, 23)).unwrap();
    log.append(&entries(23, 90)).unwrap();
    log.sync().unwrap();
    disk.power_cut(0);
    assert_eq!(read_all(&open(&disk)), entries(1, 90));
}

#[test]
fn every_fault_at_every_operation_keeps_acknowledged_entries() {
    for fault in [Fault::Io, Fault::OutOfSpace, Fault::PowerOff] {
        for operation in 0.. {
            let disk = SimulatedDisk::new();
            disk.fail_at(operation, fault);
            let (mut acknowledged, failed) = match Log::open(Arc::new(disk.clone()), options()) {
                Ok(mut log) => write_until_error(&mut log, 12),
                Err(error) => (0, Some(error)),
            };
            if let Some(Error::Corrupt { .. }) = failed {
                panic!("{failed:?} is not corruption");
            }
            // First, only the process ends. If the power is off, this step is skipped.
            if fault != Fault::PowerOff {
                // If the run did not reach the fault, it occurs during the recovery instead.
                let log =
                    Log::open(Arc::new(disk.clone()), options()).unwrap_or_else(|_| open(&disk));
                assert!(log.next_index() > acknowledged, "{fault:?} at {operation}");
                acknowledged = log.next_index() - 1;
                drop(log);
            }
            disk.power_cut(operation);
            let log = open(&disk);
            assert!(log.next_index() > acknowledged, "{fault:?} at {operation}");
            assert_eq!(read_all(&log), entries(1, log.next_index()));
            if failed.is_none() {
                assert!(operation > 30, "the fault must hit within the run");
                break;
            }
        }
    }
}

/// Returns a disk whose log was cut in the middle of a group, with spares, reused files and a
/// sealed segment.
fn crashed_disk(seed: u64) -> (SimulatedDisk, u64) {
    let disk = SimulatedDisk::new();
    let mut log = open(&disk);
    log.append(&entries(1, 120)).unwrap();
    log.sync().unwrap();
    log.truncate_prefix(80).unwrap();
    log.append(&entries(120, 130)).unwrap();
    log.sync().unwrap();
    log.append(&entries(130, 150)).unwrap();
    disk.power_cut(seed);
    (disk, 130)
}

#[test]
fn a_power_cut_during_recovery_loses_nothing_either() {
    let mut cut_short = 0;
    for seed in 0..60 {
        for operation in 0..20 {
            let (disk, next_min) = crashed_disk(seed);
            disk.fail_at(disk.operations() + operation, Fault::PowerOff);
            let recovered = Log::open(Arc::new(disk.clone()), options());
            // The entries that a successful recovery found must survive.
            let promised = recovered.as_ref().map_or(next_min, Log::next_index);
            cut_short += u32::from(recovered.is_err());
            drop(recovered);
            disk.power_cut(seed ^ operation);
            let log = open(&disk);
            assert!(log.next_index() >= promised, "seed {seed} operation {operation}");
            assert_eq!(read_all(&log), entries(log.first_index(), log.next_index()));
        }
    }
    assert!(cut_short > 200, "only {cut_short} recoveries were interrupted");
}
