//! Tests that compare queue files with a map: after any puts and deletes, both have the same
//! content.

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;

use partition::QUEUE_KEYS;
use proptest::prelude::*;

use super::file::FileWriter;
use super::flush::{QueueRow, files_to_join};
use super::*;
use crate::disk::FileDisk;
use crate::lsm::folder::Salts;

type OwnedRow = (Box<[u8]>, Option<Value>);
type Map = BTreeMap<Vec<u8>, Vec<u8>>;

/// The files in a folder, and their listings in the tree.
struct Written {
    directory: tempfile::TempDir,
    folder: Arc<Folder>,
    queues: Queues,
    listed: BTreeMap<u64, Listing>,
}

fn folder_in(directory: &Path) -> Arc<Folder> {
    let disk = FileDisk::of_owner(directory.to_owned(), None);
    Folder::new(Arc::new(disk), directory.to_owned(), Salts::System)
}

impl Written {
    fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let folder = folder_in(directory.path());
        Self { directory, folder, queues: Queues::default(), listed: BTreeMap::new() }
    }

    fn write(&mut self, rows: &[OwnedRow]) {
        let rows: Vec<QueueRow<'_>> =
            rows.iter().map(|(key, value)| (&**key, value.as_deref())).collect();
        let flush = QueueFlush::new(&self.queues, &self.folder, &rows).unwrap();
        for (number, listing) in flush.listed() {
            match listing {
                Some(listing) => self.listed.insert(*number, listing.clone()),
                None => self.listed.remove(number),
            };
        }
        self.queues = flush.finish();
    }

    fn open(&self) -> io::Result<Queues> {
        Queues::open(&self.folder, self.listed.clone().into_iter().collect())
    }

    fn path(&self, number: u64) -> PathBuf {
        self.directory.path().join(name_of(number, self.listed[&number].salt))
    }

    fn files(&self) -> Vec<u64> {
        let names = fs::read_dir(self.directory.path()).unwrap();
        let number = |name: &str| name.split_once('-').unwrap().0.parse().unwrap();
        let mut numbers: Vec<u64> =
            names.map(|entry| number(entry.unwrap().file_name().to_str().unwrap())).collect();
        numbers.sort_unstable();
        numbers
    }
}

fn read(queues: &Queues, from: &[u8], to: &[u8], reverse: bool) -> Vec<(Vec<u8>, Vec<u8>)> {
    let mut rows = queues.scan(from, to, reverse).unwrap();
    let mut found = Vec::new();
    while let Some((key, value)) = rows.row() {
        found.push((key.to_vec(), value.to_vec()));
        rows.advance().unwrap();
    }
    found
}

fn key() -> impl Strategy<Value = Vec<u8>> {
    prop::collection::vec(0_u8..4, 0..4).prop_map(|rest| [vec![QUEUE_KEYS], rest].concat())
}

/// Returns a value, or `None`. A block has several of the small values, or one large value.
fn value() -> impl Strategy<Value = Option<Vec<u8>>> {
    let bytes = (any::<u8>(), prop_oneof![0..20_usize, 9_000..40_000_usize]);
    prop::option::weighted(0.6, bytes.prop_map(|(byte, count)| vec![byte; count]))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]
    #[test]
    fn files_of_queues_are_a_map(
        steps in prop::collection::vec(prop::collection::btree_map(key(), value(), 1..12), 1..25),
        (from, to) in (key(), key()),
    ) {
        let (mut written, mut map) = (Written::new(), Map::new());
        let mut kept: Vec<(Queues, Map)> = Vec::new();
        for (index, step) in steps.into_iter().enumerate() {
            let row = |(key, value): (&Vec<u8>, &Option<Vec<u8>>)| -> OwnedRow {
                (key.as_slice().into(), value.clone().map(Value::from))
            };
            written.write(&step.iter().map(row).collect::<Vec<_>>());
            for (key, value) in step {
                match value {
                    Some(value) => map.insert(key, value),
                    None => map.remove(&key),
                };
            }
            if index % 4 == 0 {
                kept.push((written.queues.clone(), map.clone()));
            }
            if kept.len() > 2 {
                kept.remove(0);
            }
        }
        kept.push((written.queues.clone(), map.clone()));
        // The files are opened last, because opening removes unlisted files, which other readers
        // may still use.
        let opened = std::iter::once_with(|| {
            let listed: Vec<u64> = written.listed.keys().copied().collect();
            assert_eq!(written.files(), listed, "unused files must be removed");
            (written.open().unwrap(), map)
        });
        for (queues, map) in kept.into_iter().chain(opened) {
            for (from, to) in [(from.clone(), to.clone()), (vec![], vec![255])] {
                let inside = |(key, _): &(&Vec<u8>, &Vec<u8>)| from <= **key && **key < to;
                let expected: Vec<_> =
                    map.iter().filter(inside).map(|(key, value)| (key.clone(), value.clone())).collect();
                let mut found = read(&queues, &from, &to, true);
                found.reverse();
                prop_assert_eq!(&found, &expected);
                prop_assert_eq!(read(&queues, &from, &to, false), expected);
            }
            let found = queues.get(&from).unwrap();
            prop_assert_eq!(found.as_deref(), map.get(&from).map(Vec::as_slice));
        }
    }
}

/// Returns the key of row `number` of one of four queues.
fn row_key(queue: u8, number: u32) -> Box<[u8]> {
    [[QUEUE_KEYS, queue].as_slice(), &number.to_be_bytes()].concat().into()
}

/// Goal: the files of queues stay small. Each write appends rows to four queues and removes the
/// rows of the write a hundred writes earlier.
#[test]
fn queues_with_a_moving_front_stay_small() {
    const ROWS: u32 = 20;
    let mut written = Written::new();
    let (mut most_files, mut bytes_written) = (0, 0_u64);
    for round in 0..1_000_u32 {
        let mut rows = Vec::new();
        for queue in 0..4 {
            let removed = round.checked_sub(100).map_or(0..0, |old| old * ROWS..(old + 1) * ROWS);
            rows.extend(removed.map(|number| (row_key(queue, number), None)));
            let new = round * ROWS..(round + 1) * ROWS;
            rows.extend(new.map(|number| (row_key(queue, number), Some([7; 200].into()))));
        }
        let next = written.queues.next;
        written.write(&rows);
        bytes_written += written.listed.get(&next).map_or(0, |listing| listing.bytes);
        most_files = most_files.max(written.files().len());
    }
    // The existing rows come from 100 writes of 17 KB. The files may have twice as many bytes.
    let on_disk: u64 = written.listed.values().map(|listing| listing.bytes).sum();
    assert!(on_disk < 4_000_000, "{on_disk} bytes");
    // There are fewer than eight files of each of the three small sizes, and the large files.
    assert!(most_files <= 3 * 8, "{most_files} files");
    assert!(bytes_written < 4 * 1_000 * 17_000, "{bytes_written} bytes written");
    let ranges: usize = written.listed.values().map(|listing| listing.removed.len()).sum();
    assert!(ranges <= 4 * written.listed.len(), "{ranges} ranges");
    let found = read(&written.queues, &[QUEUE_KEYS, 2], &[QUEUE_KEYS, 3], false);
    assert_eq!(found.len(), 100 * 20);
}

/// Goal: the oldest files of a size class are merged when there are many, and large files are never
/// merged.
#[test]
fn some_of_many_files_of_a_size_are_merged() {
    let of = |count: u64, bytes: u64| -> Vec<(u64, u64)> {
        (1..=count).rev().map(|number| (number, bytes)).collect::<Vec<_>>()
    };
    let (small, full, large) = (60_000, 7_000_000, 33_600_000);
    assert_eq!(files_to_join(&of(6, small), small), Vec::<u64>::new());
    assert_eq!(files_to_join(&of(7, small), full), Vec::<u64>::new());
    assert_eq!(files_to_join(&of(7, small), small), (1..=7).collect::<Vec<_>>());
    assert_eq!(files_to_join(&of(9, small), 0), (1..=8).collect::<Vec<_>>());
    assert_eq!(files_to_join(&of(254, full), full), Vec::<u64>::new());
    assert_eq!(files_to_join(&of(255, full), full), (1..=8).collect::<Vec<_>>());
    assert_eq!(files_to_join(&of(5_000, large), full), Vec::<u64>::new());
    // The files of the smallest size class are merged first, even if other classes also have many
    // files.
    let both = [of(300, full), (301..309).map(|number| (number, small)).collect()].concat();
    assert_eq!(files_to_join(&both, full), (301..=308).collect::<Vec<_>>());
}

/// Goal: an incomplete file is removed.
#[test]
fn an_unfinished_file_leaves_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let mut file = FileWriter::new(&folder_in(folder.path()), 1).unwrap();
    file.write(&row_key(1, 1), &[7; 100_000]).unwrap();
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
    drop(file);
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
}

/// Goal: rows in key order are written only once if tables in memory are full.
#[test]
fn rows_of_full_tables_are_written_once() {
    let mut written = Written::new();
    for round in 0..12_u32 {
        let new = round * 50..(round + 1) * 50;
        let row = |number| (row_key(1, number), Some(vec![3; 100_000].into()));
        written.write(&new.map(row).collect::<Vec<_>>());
    }
    assert_eq!(written.files(), (1..=12).collect::<Vec<_>>());
    // A file is removed only after all its rows are removed.
    for (upto, left) in [(49, 12), (50, 11), (149, 10), (150, 9), (600, 0)] {
        let rows: Vec<OwnedRow> = (0..upto).map(|number| (row_key(1, number), None)).collect();
        written.write(&rows);
        assert_eq!(written.files().len(), left, "after {upto} rows were removed");
    }
}

/// Goal: even if many files become small at the same time, only a few are merged at a time, and
/// none is merged twice.
#[test]
fn few_files_are_merged_at_a_time() {
    let mut written = Written::new();
    for number in 0..20 {
        let row = |queue| (row_key(queue, number), Some(vec![3; 2_500_000].into()));
        written.write(&[row(1), row(2)]);
    }
    assert_eq!(written.files().len(), 20);
    let removed: Vec<OwnedRow> = (0..20).map(|number| (row_key(1, number), None)).collect();
    written.write(&removed);
    assert_eq!(written.files(), (9..=21).collect::<Vec<_>>());
    assert_eq!(written.listed[&21].removed, []);
    // The next merges process the other small files.
    written.write(&[(row_key(3, 1), Some([1].into()))]);
    assert_eq!(written.files(), (17..=22).collect::<Vec<_>>());
    assert_eq!(read(&written.queues, &[], &[255], false).len(), 21);
}

/// Goal: a reader of a closed storage never sees files of a later storage.
#[test]
fn a_reader_of_a_closed_storage_sees_no_later_files() {
    let mut written = Written::new();
    let row = |byte: u8| (row_key(1, 1), Some(Value::from([byte])));
    written.write(&[row(1)]);
    let before = written.queues.clone();
    written.write(&[(row_key(1, 1), None)]);
    assert!(written.listed.is_empty());
    written.queues = written.open().unwrap();
    written.write(&[row(2)]);
    assert_eq!(written.files(), [1]);
    // The files of the closed storage were removed, which is not damage.
    let error = before.scan(&[], &[255], false).err().unwrap();
    assert_eq!(error.kind(), io::ErrorKind::NotFound);
    drop(before);
    assert_eq!(read(&written.open().unwrap(), &[], &[255], false).len(), 1);
}

/// Goal: a file that is not listed counts as incomplete, even if its content is valid.
#[test]
fn unlisted_files_are_removed() {
    let mut written = Written::new();
    written.write(&[(row_key(1, 1), Some([1].into()))]);
    let whole = fs::read(written.path(1)).unwrap();
    for (name, bytes) in [("2-00", b"half".as_slice()), ("1-07", &whole), ("3", b"")] {
        fs::write(written.directory.path().join(name), bytes).unwrap();
    }
    let queues = written.open().unwrap();
    assert_eq!(written.files(), [1]);
    assert_eq!(read(&queues, &[], &[255], false).len(), 1);
}

/// Goal: every change of a file's bytes is detected when the file is opened or read, and never
/// returned as a row.
#[test]
fn damage_is_found() {
    let mut written = Written::new();
    let rows: Vec<OwnedRow> =
        (0..300).map(|number| (row_key(1, number), Some(vec![5; 500].into()))).collect();
    written.write(&rows);
    let path = written.path(1);
    let whole = fs::read(&path).unwrap();
    let complains = |bytes: &[u8]| {
        fs::write(&path, bytes).unwrap();
        let result = written.open().and_then(|queues| {
            let mut rows = queues.scan(&[], &[255], false)?;
            while rows.row().is_some() {
                rows.advance()?;
            }
            Ok(())
        });
        result.is_err_and(|error| is_damage(&error))
    };
    for place in (0..whole.len()).step_by(997).chain(whole.len() - 40..whole.len()) {
        let mut bytes = whole.clone();
        bytes[place] ^= 1;
        assert!(complains(&bytes), "byte {place}");
    }
    for length in [0, 10, whole.len() / 2, whole.len() - 1] {
        assert!(complains(&whole[..length]), "{length} bytes");
    }
    fs::remove_file(&path).unwrap();
    assert!(written.open().is_err_and(|error| is_damage(&error)));
    fs::write(&path, &whole).unwrap();
    assert_eq!(read(&written.open().unwrap(), &[], &[255], false).len(), 300);
}
