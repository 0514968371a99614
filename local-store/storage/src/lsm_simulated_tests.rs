//! Tests of the engine on a simulated disk: power cuts, damage, and processes that were killed.

use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use super::lsm::Options;
use super::lsm_tests::{VALUE_BYTES, applied, apply_batches, batch, small};
use super::*;
use crate::disk::{Damage, Disk as _, Fault, SimulatedDisk, SplitMix64};

/// Goal: a power cut at any operation of the disk, also during a start, keeps the persisted batches
/// and a prefix of the others.
#[test]
fn a_power_cut_at_any_operation_keeps_persisted_batches() {
    let options = Options { memtable_bytes: 4_000, ..small() };
    let (disk, mut random) = (SimulatedDisk::new(), SplitMix64::new(1));
    let (mut persisted, mut lost) = (0, 0);
    let mut last = 0;
    for _ in 0..300 {
        disk.fail_at(disk.operations() + random.up_to(60) as u64, Fault::PowerOff);
        if let Ok(storage) = LsmStorage::open_simulated(&disk, "state", &options) {
            let found = applied(&storage, last, 200);
            assert!(found >= persisted, "{found} of {persisted} persisted batches");
            lost += last - found;
            last = found;
            while storage.apply(&batch(last + 1, 200)).is_ok() {
                last += 1;
                if random.chance(10) && storage.persist().is_ok() {
                    persisted = last;
                }
            }
            // The failed batch may be flushed.
            last += 1;
        }
        disk.power_cut(random.next_u64());
    }
    assert!(persisted > 300 && lost > 100, "{persisted} persisted, {lost} lost");
}

/// Goal: a damaged byte of any file is found by a read, by a verification, or at the next start,
/// and then the storage is not opened again.
#[test]
fn damage_of_simulated_files_is_found() {
    for folder in ["tables", "queues"] {
        let disk = SimulatedDisk::new();
        let open = || {
            let damage = Damage::of_one_among_peers();
            LsmStorage::open_simulated(&disk, "state", &Options { damage, ..small() })
        };
        let storage = open().unwrap();
        apply_batches(&storage, 1, 10, VALUE_BYTES);
        storage.persist().unwrap();
        let files = disk.subdirectory("state").subdirectory(folder);
        let name = files.list().unwrap().swap_remove(0);
        files.corrupt(&name, 1_000, &[1]);
        let mut after = None;
        let found = loop {
            match storage.verify_next(after, &mut |_| ControlFlow::Continue(())) {
                Ok(None) => break None,
                Ok(next) => after = next,
                Err(error) => break Some(error),
            }
        };
        assert!(matches!(found, Some(Error::Corrupt { .. })), "{folder}: {found:?}");
        drop(storage);
        assert!(matches!(open().err(), Some(Error::Corrupt { .. })), "{folder}");
    }
}

/// Goal: a process that was killed changes nothing on the disk, even if its objects are dropped
/// later.
#[test]
fn a_dead_process_changes_nothing() {
    let disk = SimulatedDisk::new();
    let is_alive = Arc::new(AtomicBool::new(true));
    let of_process = disk.of_process(Arc::clone(&is_alive));
    let dead = LsmStorage::open_simulated(&of_process, "state", &small()).unwrap();
    apply_batches(&dead, 1, 10, 100);
    dead.persist().unwrap();
    dead.is_temporary().store(true, Ordering::Release);
    is_alive.store(false, Ordering::SeqCst);
    apply_batches(&dead, 10, 11, 100);
    assert!(dead.persist().is_err());
    drop(dead);
    let storage = LsmStorage::open_simulated(&disk, "state", &small()).unwrap();
    assert_eq!(applied(&storage, 10, 100), 9);
}
