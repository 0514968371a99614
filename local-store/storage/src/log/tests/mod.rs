//! Tests of the log, usually on a disk in memory.

#![expect(clippy::cast_possible_truncation, reason = "indexes and offsets here are small")]

mod append;
mod damage;
mod faults;
mod growth;
mod power_cuts;
mod torn_tail;
mod truncation;

use super::segment::DATA_OFFSET;
use super::*;
use crate::disk::SimulatedDisk;

/// Returns options with the smallest segments, so that switching is frequent.
fn options() -> Options {
    let bytes = 2 * DATA_OFFSET;
    Options { segment_bytes: bytes, first_segment_bytes: bytes, ..Options::default() }
}

/// Returns options with segments that grow from the minimum size to eight times this size.
fn growing() -> Options {
    Options { segment_bytes: 16 * DATA_OFFSET, ..options() }
}

fn open(disk: &SimulatedDisk) -> Log {
    Log::open(Arc::new(disk.clone()), options()).unwrap()
}

fn entry(index: u64, payload_bytes: usize) -> Entry {
    let payload: Vec<u8> =
        (0..payload_bytes).map(|place| (index as u8).wrapping_add(place as u8)).collect();
    Entry { index, term: index / 10, payload: payload.into() }
}

/// Returns entries with payloads of 100 bytes. With header and padding, a record has 144 bytes, and
/// 28 records fill a segment.
fn entries(from: u64, to: u64) -> Vec<Entry> {
    (from..to).map(|index| entry(index, 100)).collect()
}

fn read_all(log: &Log) -> Vec<Entry> {
    log.read(log.first_index(), log.next_index()).unwrap().map(Result::unwrap).collect()
}

fn contents(disk: &SimulatedDisk, name: &str) -> Vec<u8> {
    let file = disk.open(name).unwrap();
    let mut bytes = vec![0; file.size_bytes().unwrap() as usize];
    file.read_at(0, &mut bytes).unwrap();
    bytes
}

fn segment_names(disk: &SimulatedDisk) -> Vec<String> {
    let mut names = disk.list().unwrap();
    names.retain(|name| name.starts_with("segment-"));
    names
}

/// Returns the file, the offset and the message of an error, which must be [`Error::Corrupt`].
fn corruption(error: Error) -> (String, u64, String) {
    match error {
        Error::Corrupt { file, offset, expected, found } => {
            (file, offset, format!("expected {expected}, found {found}"))
        }
        other => panic!("not about corruption: {other}"),
    }
}
