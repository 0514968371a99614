//! Tests of the simulated disk itself: it loses only what its contract allows.

use std::collections::BTreeSet;

use super::*;

const NAME: &str = "file";

/// Returns a disk with one durable file of two sectors.
fn disk() -> (SimulatedDisk, Box<dyn DiskFile>) {
    let disk = SimulatedDisk::new();
    let file = disk.create(NAME, 1_024).unwrap();
    disk.sync_directory().unwrap();
    (disk, file)
}

fn contents(disk: &SimulatedDisk, name: &str) -> Vec<u8> {
    let file = disk.open(name).unwrap();
    let mut bytes = vec![0; usize::try_from(file.size_bytes().unwrap()).unwrap()];
    file.read_at(0, &mut bytes).unwrap();
    bytes
}

#[test]
fn synced_bytes_survive_and_unsynced_sectors_are_old_or_new() {
    let mut seen = BTreeSet::new();
    for seed in 0..400 {
        let (disk, file) = disk();
        file.write_at(0, &[1; 1_024]).unwrap();
        file.sync_data().unwrap();
        file.write_at(100, &[2; 800]).unwrap();
        file.write_at(100, &[3; 800]).unwrap();
        disk.power_cut(seed);
        let bytes = contents(&disk, NAME);
        assert_eq!(&bytes[..100], &[1; 100]);
        assert_eq!(&bytes[900..], &[1; 124]);
        let (first, second) = (bytes[100], bytes[512]);
        assert_eq!(&bytes[100..512], &[first; 412]);
        assert_eq!(&bytes[512..900], &[second; 388]);
        seen.insert((first, second));
        assert!(file.read_at(0, &mut [0]).is_err(), "files opened before the cut must fail");
    }
    assert_eq!(seen.len(), 9, "each sector is old, intermediate or new: {seen:?}");
}

#[test]
fn names_survive_only_after_a_directory_sync() {
    let mut seen = BTreeSet::new();
    for seed in 0..100 {
        let (disk, _file) = disk();
        disk.rename(NAME, "renamed").unwrap();
        disk.create("new", 1).unwrap();
        disk.power_cut(seed);
        seen.insert(disk.list().unwrap());
    }
    assert_eq!(seen.len(), 4, "{seen:?}");
    let (disk, _file) = disk();
    disk.rename(NAME, "renamed").unwrap();
    disk.sync_directory().unwrap();
    disk.remove("renamed").unwrap();
    disk.sync_directory().unwrap();
    disk.power_cut(0);
    assert!(disk.list().unwrap().is_empty());
}

#[test]
fn a_failed_sync_loses_the_bytes_even_when_it_is_repeated() {
    let (disk, file) = disk();
    file.write_at(0, &[7; 512]).unwrap();
    disk.fail_at(disk.operations(), Fault::Io);
    let error = file.sync_data().unwrap_err();
    assert!(error.is_fatal());
    assert_eq!(error.kind, ErrorKind::SyncFailed);
    file.sync_data().unwrap();
    assert_eq!(contents(&disk, NAME)[0], 7, "reads from the cache return the unsynced bytes");
    disk.power_cut(0);
    assert_eq!(contents(&disk, NAME)[0], 0);
}

#[test]
fn faults_hit_the_chosen_operation() {
    let (disk, file) = disk();
    disk.fail_at(disk.operations() + 1, Fault::OutOfSpace);
    file.write_at(0, &[1]).unwrap();
    let error = file.write_at(1, &[1]).unwrap_err();
    assert_eq!((error.kind, error.is_fatal()), (ErrorKind::OutOfSpace, false));
    file.write_at(1, &[1]).unwrap();
    disk.fail_at(disk.operations(), Fault::PowerOff);
    assert!(file.sync_data().is_err());
    assert!(disk.list().is_err() && file.size_bytes().is_err());
    disk.power_cut(3);
    assert_eq!(disk.list().unwrap(), [NAME]);
}

#[test]
fn the_same_seed_makes_the_same_choices() {
    let run = |seed| {
        let (disk, file) = disk();
        file.write_at(0, &[1; 1_024]).unwrap();
        disk.create("new", 5).unwrap();
        disk.power_cut(seed);
        (contents(&disk, NAME), disk.list().unwrap())
    };
    for seed in 0..20 {
        assert_eq!(run(seed), run(seed));
    }
}

#[test]
fn a_full_disk_refuses_new_files_until_there_is_space() {
    let (disk, file) = disk();
    disk.set_full(true);
    let error = disk.create("new", 1).unwrap_err();
    assert_eq!((error.kind, disk.refusals()), (ErrorKind::OutOfSpace, 1));
    file.write_at(0, &[1]).unwrap();
    disk.set_full(false);
    disk.create("new", 1).unwrap();
}

#[test]
fn a_power_cut_reports_the_fate_of_sectors() {
    for seed in 0..40 {
        let (disk, file) = disk();
        assert_eq!(disk.unsynced_sectors(), 0);
        file.write_at(0, &[1; 1_024]).unwrap();
        assert_eq!(disk.unsynced_sectors(), 2);
        let cut = disk.power_cut(seed);
        assert_eq!(cut.sectors_lost + cut.sectors_kept, 2);
        let kept = contents(&disk, NAME).chunks(512).filter(|sector| sector[0] == 1).count();
        assert_eq!(cut.sectors_kept, kept);
    }
}

#[test]
fn the_next_sync_can_be_chosen_to_fail_and_the_power_to_go_off() {
    let (disk, file) = disk();
    disk.fail_next_sync();
    file.write_at(0, &[1]).unwrap();
    assert_eq!(file.sync_data().unwrap_err().kind, ErrorKind::SyncFailed);
    file.sync_data().unwrap();
    disk.power_off();
    assert!(file.sync_data().is_err() && disk.list().is_err());
    disk.power_cut(0);
    assert_eq!(disk.list().unwrap(), [NAME]);
}

/// Goal: an appended file keeps its synced bytes. Its unsynced sectors are lost or kept, and lost
/// sectors before kept ones are zeros.
#[test]
fn appended_bytes_survive_only_after_a_sync() {
    let mut lengths = BTreeSet::new();
    for seed in 0..200 {
        let disk = SimulatedDisk::new();
        let file = disk.create_empty(NAME).unwrap();
        disk.sync_directory().unwrap();
        file.append(&[1; 700]).unwrap();
        file.sync_data().unwrap();
        file.append(&[2; 900]).unwrap();
        assert_eq!(file.size_bytes().unwrap(), 1_600);
        disk.power_cut(seed);
        let bytes = contents(&disk, NAME);
        assert_eq!(&bytes[..700], &[1; 700]);
        assert!(bytes[700..].iter().all(|byte| [0, 2].contains(byte)));
        lengths.insert(bytes.len());
    }
    assert_eq!(lengths, BTreeSet::from([700, 1_024, 1_536, 1_600]));
}

#[test]
fn a_full_disk_refuses_growth() {
    let (disk, file) = disk();
    disk.set_full(true);
    assert_eq!(file.append(&[1]).unwrap_err().kind, ErrorKind::OutOfSpace);
    assert!(disk.create_empty("other").is_err());
    file.write_at(0, &[1]).unwrap();
    assert_eq!(disk.refusals(), 2);
    disk.set_full(false);
    file.append(&[1]).unwrap();
}
