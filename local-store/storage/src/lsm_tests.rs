//! Tests of the tree across restarts, crashes and power losses: persisted batches exist, and the
//! content is always a prefix of the applied batches.

use std::fs::{self, OpenOptions};
use std::ops::ControlFlow;
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::path::Path;

use partition::{Batch, Op, QUEUE_KEYS, View};

use super::lsm::Options;
use super::*;
use crate::disk::{Damage, SimulatedDisk};
use partition::Value;

/// First bytes of the keys in batches: below, in and above the key range of queues.
const SIDES: [&[u8]; 3] = [&[1], &[QUEUE_KEYS, 7], b"right"];

/// Returns batch `n`, which stores its number under one key, and one value on each of the three
/// [`SIDES`].
pub(crate) fn batch(n: u64, value_bytes: usize) -> Batch {
    let value = Value::from(vec![n.to_be_bytes()[7]; value_bytes]);
    let mut ops = vec![Op::Put(b"applied".to_vec(), n.to_be_bytes().into())];
    ops.extend(SIDES.map(|side| Op::Put([side, &n.to_be_bytes()].concat(), value.clone())));
    Batch { ops }
}

/// Returns the number of batches that the storage contains. Checks that it contains all batches up
/// to that number, and no part of later batches.
pub(crate) fn applied(storage: &dyn Storage, batches: u64, value_bytes: usize) -> u64 {
    let view = storage.view();
    let applied = view.get(b"applied").unwrap();
    let applied = applied.map_or(0, |bytes| u64::from_be_bytes((*bytes).try_into().unwrap()));
    for n in 1..=batches {
        for side in SIDES {
            let found = view.get(&[side, &n.to_be_bytes()].concat()).unwrap();
            let expected =
                (n <= applied).then(|| Value::from(vec![n.to_be_bytes()[7]; value_bytes]));
            assert!(found == expected, "batch {n} of {applied}");
        }
    }
    for side in SIDES {
        for reverse in [false, true] {
            let mut numbers: Vec<u64> = Vec::new();
            let visit: &mut partition::Visit<'_> = &mut |key, value| {
                assert_eq!(value.len(), value_bytes);
                numbers.push(u64::from_be_bytes(*key.last_chunk().unwrap()));
                ControlFlow::Continue(())
            };
            view.scan(side, &[side, &[255]].concat(), reverse, visit).unwrap();
            if reverse {
                numbers.reverse();
            }
            assert_eq!(numbers, (1..=applied).collect::<Vec<_>>());
        }
    }
    applied
}

pub(crate) fn apply_batches(storage: &LsmStorage, from: u64, to: u64, value_bytes: usize) {
    for n in from..to {
        storage.apply(&batch(n, value_bytes)).unwrap();
    }
}

/// A place for a storage that outlives it: a directory, or a simulated disk.
enum Place {
    Directory(tempfile::TempDir),
    Simulated(SimulatedDisk),
}

impl Place {
    fn each() -> [Self; 2] {
        [Self::Directory(tempfile::tempdir().unwrap()), Self::Simulated(SimulatedDisk::new())]
    }

    fn open(&self, options: &Options) -> Result<LsmStorage, Error> {
        match self {
            Self::Directory(directory) => {
                LsmStorage::open_with(&directory.path().join("data/state"), options)
            }
            Self::Simulated(disk) => LsmStorage::open_simulated(disk, "state", options),
        }
    }
}

#[test]
fn all_batches_survive_a_clean_end() {
    for place in Place::each() {
        let open = || place.open(&Options::default()).unwrap();
        let storage = open();
        apply_batches(&storage, 1, 50, 10);
        storage.persist().unwrap();
        drop(storage);
        let storage = open();
        assert_eq!(applied(&storage, 60, 10), 49);
        apply_batches(&storage, 50, 60, 10);
        // The storage is dropped without another persist. It must keep at least the persisted
        // batches.
        drop(storage);
        assert!(applied(&open(), 60, 10) >= 49);
        if let Place::Directory(directory) = &place {
            let mode = fs::metadata(directory.path().join("data/state")).unwrap().permissions();
            assert_eq!(mode.mode() & 0o777, 0o700);
        }
    }
}

#[test]
fn many_flushes_and_compactions_keep_everything() {
    let options = LsmOptions {
        cache: BlockCache::with_bytes(1 << 20),
        memtable_bytes: 1 << 18,
        ..LsmOptions::default()
    };
    for place in Place::each() {
        for round in 0..3 {
            let storage = place.open(&options).unwrap();
            assert_eq!(applied(&storage, round * 1_000, 1_000), round * 1_000);
            apply_batches(&storage, round * 1_000 + 1, round * 1_000 + 1_001, 1_000);
            storage.persist().unwrap();
        }
        assert_eq!(applied(&place.open(&options).unwrap(), 3_000, 1_000), 3_000);
    }
}

/// Goal: a storage that has become large can read the tables that it wrote while it was small, and
/// vice versa, although their formats differ.
#[test]
fn a_storage_that_became_large_or_small_stays_readable() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("state");
    for (round, pinned_up_to) in (0..).zip([u64::MAX, 0, u64::MAX, 1 << 16, 0, 1 << 30]) {
        let options = LsmOptions {
            cache: BlockCache::with_bytes(1 << 20),
            memtable_bytes: 1 << 18,
            pinned_up_to,
            ..LsmOptions::default()
        };
        let storage = LsmStorage::open_with(&path, &options).unwrap();
        assert_eq!(applied(&storage, round * 1_000, 1_000), round * 1_000);
        apply_batches(&storage, round * 1_000 + 1, round * 1_000 + 1_001, 1_000);
        storage.persist().unwrap();
        assert_eq!(applied(&storage, round * 1_000 + 1_000, 1_000), round * 1_000 + 1_000);
    }
}

#[test]
fn a_storage_has_one_owner() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("state");
    let storage = LsmStorage::open(&path).unwrap();
    let Err(error) = LsmStorage::open(&path) else { panic!("opened twice") };
    assert!(matches!(error, Error::InUse { .. }), "{error}");
    assert!(error.to_string().contains("choose another data directory"), "{error}");
    drop(storage);
    LsmStorage::open(&path).unwrap();
}

#[test]
fn an_interrupted_start_does_not_block_the_next_one() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("state");
    let half_made = directory.path().join("state.new");
    fs::create_dir_all(half_made.join("tables")).unwrap();
    fs::write(half_made.join("current"), b"half").unwrap();
    let storage = LsmStorage::open(&path).unwrap();
    apply_batches(&storage, 1, 3, 10);
    assert_eq!(applied(&storage, 5, 10), 2);
    assert!(!half_made.exists());
}

#[test]
fn damage_is_an_error_not_an_empty_storage() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("state");
    drop(LsmStorage::open(&path).unwrap());
    fs::write(path.join("version"), b"other").unwrap();
    let Err(error) = LsmStorage::open(&path) else { panic!("opened") };
    assert!(matches!(error, Error::Corrupt { .. }), "{error}");
}

/// Goal: damage that a read has found prevents the storage from being opened again.
#[test]
fn damage_found_by_a_read_prevents_reopening() {
    for folder_name in ["tables", "queues"] {
        damage_is_found_by_a_read(folder_name);
    }
}

fn damage_is_found_by_a_read(folder_name: &str) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("state");
    let storage = LsmStorage::open_with(
        &path,
        &Options {
            cache: BlockCache::with_bytes(0),
            memtable_bytes: 64 * 1024,
            ..Options::default()
        },
    )
    .unwrap();
    apply_batches(&storage, 1, 200, 2000);
    storage.persist().unwrap();
    // A block of a table is read and verified only when a key in it is looked up.
    let is_table = |file: &std::path::PathBuf| file.parent().unwrap().ends_with(folder_name);
    let finds_damage = || {
        for table in files_below(&path).into_iter().filter(is_table) {
            // A merge may have removed the table already.
            let Ok(file) = OpenOptions::new().write(true).open(&table) else { continue };
            let length = file.metadata().unwrap().len();
            file.write_all_at(&[0x5a; 64], length / 4).unwrap();
        }
        let view = storage.view();
        (1..=200_u64).any(|n| {
            SIDES.iter().any(|side| view.get(&[*side, &n.to_be_bytes()].concat()).is_err())
        })
    };
    // Background threads of the engine write and replace tables at any time.
    let failed = (0..500).any(|_| {
        std::thread::sleep(std::time::Duration::from_millis(10));
        finds_damage()
    });
    assert!(failed, "the damage was not found");
    drop(storage);
    let noted = fs::read_to_string(folder.path().join("state.damaged")).unwrap();
    let error = LsmStorage::open(&path).err().unwrap();
    assert!(matches!(&error, Error::Corrupt { reason, .. } if *reason == noted), "{error}");
}

fn files_below(folder: &Path) -> Vec<std::path::PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            found.extend(files_below(&path));
        } else {
            found.push(path);
        }
    }
    found
}

fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for found in fs::read_dir(from).unwrap() {
        let found = found.unwrap();
        let target = to.join(found.file_name());
        if found.file_type().unwrap().is_dir() {
            copy(&found.path(), &target);
        } else {
            fs::copy(found.path(), target).unwrap();
        }
    }
}

const PERSISTED: u64 = 40;
const APPLIED: u64 = 1_190;
pub(crate) const VALUE_BYTES: usize = 300;

/// Returns options with small tables, which are flushed about every 30 batches.
pub(crate) fn small() -> Options {
    Options {
        cache: BlockCache::with_bytes(1 << 20),
        memtable_bytes: 1 << 15,
        pinned_up_to: 1 << 30,
        file_bytes: 1 << 23,
        damage: Damage::default(),
    }
}

#[test]
fn unpersisted_batches_survive_as_a_prefix() {
    for place in Place::each() {
        let storage = place.open(&small()).unwrap();
        apply_batches(&storage, 1, PERSISTED + 1, VALUE_BYTES);
        storage.persist().unwrap();
        apply_batches(&storage, PERSISTED + 1, APPLIED + 1, VALUE_BYTES);
        // Dropping the storage loses the batches in memory, as a kill does.
        drop(storage);
        let storage = place.open(&small()).unwrap();
        let left = applied(&storage, APPLIED, VALUE_BYTES);
        assert!((PERSISTED + 1..APPLIED).contains(&left), "{left}");
        // The storage continues from the last existing batch, and the next start finds all batches.
        apply_batches(&storage, left + 1, APPLIED + 1, VALUE_BYTES);
        storage.persist().unwrap();
        drop(storage);
        assert_eq!(applied(&place.open(&small()).unwrap(), APPLIED, VALUE_BYTES), APPLIED);
    }
}

/// Goal: a power loss during a flush loses no persisted batch. A table becomes part of the state
/// when the manifest is replaced. Before that, any part of the table may exist.
#[test]
fn a_power_loss_during_a_flush_keeps_persisted_batches() {
    let directory = tempfile::tempdir().unwrap();
    let live = directory.path().join("live");
    let storage = LsmStorage::open(&live).unwrap();
    apply_batches(&storage, 1, PERSISTED + 1, VALUE_BYTES);
    storage.persist().unwrap();
    drop(storage);
    let tables = || fs::read_dir(live.join("tables")).unwrap().map(|found| found.unwrap().path());
    let number = |path: &Path| path.file_name().unwrap().to_str().unwrap().parse::<u64>().unwrap();
    let last = tables().max_by_key(|path| number(path)).unwrap();
    let bytes = fs::read(&last).unwrap();
    for (round, length) in [0, 1, 512, bytes.len() / 2, bytes.len()].into_iter().enumerate() {
        let image = directory.path().join(format!("image-{round}"));
        copy(&live, &image);
        let next = image.join("tables").join((number(&last) + 1).to_string());
        fs::write(next, &bytes[..length]).unwrap();
        // An incomplete queue file under the next number, and a complete queue file that is not
        // listed.
        let queue = fs::read_dir(image.join("queues")).unwrap().next().unwrap().unwrap().path();
        let bytes = fs::read(queue).unwrap();
        let part = &bytes[..length.min(bytes.len())];
        for (name, bytes) in [("2-000000000000000a", part), ("1-000000000000000b", &bytes)] {
            fs::write(image.join("queues").join(name), bytes).unwrap();
        }
        fs::write(image.join("v999"), &bytes[..length.min(100)]).unwrap();
        let storage = LsmStorage::open(&image).unwrap();
        assert_eq!(applied(&storage, APPLIED, VALUE_BYTES), PERSISTED, "{length} bytes");
        apply_batches(&storage, PERSISTED + 1, APPLIED + 1, VALUE_BYTES);
        storage.persist().unwrap();
        drop(storage);
        assert_eq!(applied(&LsmStorage::open(&image).unwrap(), APPLIED, VALUE_BYTES), APPLIED);
    }
}

/// Goal: flushes and merges drop overwritten values, except values that an open view sees.
#[test]
fn a_view_keeps_what_it_sees_while_everything_is_rewritten() {
    Place::each().iter().for_each(rewrite_beside_views);
}

fn rewrite_beside_views(place: &Place) {
    let storage = place.open(&small()).unwrap();
    let key = |n: u64| [b"key".as_slice(), &n.to_be_bytes()].concat();
    let rewrite = |round: u8| {
        let ops = (0..200).map(|n| Op::Put(key(n), vec![round; 300].into())).collect();
        storage.apply(&Batch { ops }).unwrap();
    };
    let mut views = Vec::new();
    for round in 0..60 {
        rewrite(round);
        if round % 7 == 0 {
            views.push((round, storage.view()));
        }
        if round % 10 == 3 {
            storage.persist().unwrap();
        }
        // Closes some views, in another order than the order in which they were opened.
        if views.len() > 4 {
            views.remove(usize::from(round) % views.len());
        }
        for (seen, view) in &views {
            for n in [0, 77, 199] {
                assert_eq!(view.get(&key(n)).unwrap().unwrap()[..], vec![*seen; 300]);
            }
            let mut count = 0;
            view.scan(b"key", b"kez", false, &mut |_, value| {
                assert_eq!(value, vec![*seen; 300]);
                count += 1;
                ControlFlow::Continue(())
            })
            .unwrap();
            assert_eq!(count, 200);
        }
    }
}

/// Goal: a view that is opened during a batch, a seal or a flush sees only complete batches, and
/// all batches that an earlier view has seen.
#[test]
fn views_opened_during_batches_see_whole_batches() {
    const KEYS: u64 = 70;
    const ROUNDS: u64 = 1_500;
    let directory = tempfile::tempdir().unwrap();
    let options = small();
    let storage = LsmStorage::open_with(&directory.path().join("state"), &options).unwrap();
    let key = |n: u64| [b"key".as_slice(), &n.to_be_bytes()].concat();
    let values = |view: &dyn View, reverse: bool| {
        let mut values = Vec::new();
        view.scan(b"key", b"kez", reverse, &mut |_, value| {
            values.push(u64::from_be_bytes(value.first_chunk().copied().unwrap()));
            ControlFlow::Continue(())
        })
        .unwrap();
        values
    };
    let write = || {
        for round in 1..=ROUNDS {
            // Each round deletes another third of the keys.
            let op = |n: u64| match (n + round) % 3 {
                0 => Op::Delete(key(n)),
                // A key that the previous round deleted is new.
                1 if round > 1 => Op::Insert(key(n), round.to_be_bytes().repeat(5).into()),
                // Rows of different sizes, so that tables end at different keys.
                1 => Op::Put(key(n), round.to_be_bytes().repeat(5).into()),
                _ => Op::Put(key(n), round.to_be_bytes().repeat(10).into()),
            };
            storage.apply(&Batch { ops: (0..KEYS).map(op).collect() }).unwrap();
        }
    };
    let read = |reverse: bool| {
        let mut last = 0;
        while last < ROUNDS {
            let view = storage.view();
            let seen = values(&*view, reverse);
            let Some(&round) = seen.first() else { continue };
            assert!(round >= last, "{round} after {last}");
            assert_eq!(seen, vec![round; (0..KEYS).filter(|n| (n + round) % 3 > 0).count()]);
            for n in 0..KEYS {
                let found = view.get(&key(n)).unwrap();
                let found = found.map(|value| u64::from_be_bytes(*value.first_chunk().unwrap()));
                assert_eq!(found, ((n + round) % 3 > 0).then_some(round), "key {n}");
            }
            last = round;
        }
    };
    std::thread::scope(|threads| {
        let readers = [false, true].map(|reverse| threads.spawn(move || read(reverse)));
        threads.spawn(write);
        for reader in readers {
            reader.join().unwrap();
        }
    });
}

/// Goal: deleted rows whose keys were new occupy no memory and no disk space.
#[test]
fn inserted_and_deleted_rows_leave_nothing() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("state");
    let storage = LsmStorage::open(&path).unwrap();
    let key = |n: u64| [b"key".as_slice(), &n.to_be_bytes()].concat();
    // All rows together exceed the limit of a table in memory.
    for round in 0..60 {
        let keys = || (round * 1_000..(round + 1) * 1_000).map(key);
        let ops = keys().map(|key| Op::Insert(key, [7; 300].into())).collect();
        storage.apply(&Batch { ops }).unwrap();
        storage.apply(&Batch { ops: keys().map(Op::Delete).collect() }).unwrap();
    }
    storage.apply(&Batch { ops: vec![Op::Put(b"left".to_vec(), [1].into())] }).unwrap();
    storage.persist().unwrap();
    assert!(storage.view().get(b"left").unwrap().is_some());
    assert!(storage.view().get(&key(59_999)).unwrap().is_none());
    let bytes = bytes_below(&path);
    assert!(bytes < 64 * 1024, "{bytes} bytes on disk");
}

fn bytes_below(path: &Path) -> u64 {
    let entries = fs::read_dir(path).unwrap().map(|entry| entry.unwrap());
    let bytes = |entry: fs::DirEntry| {
        let meta = entry.metadata().unwrap();
        if meta.is_dir() { bytes_below(&entry.path()) } else { meta.len() }
    };
    entries.map(bytes).sum()
}

/// Goal: a tree with a missing or truncated file cannot be opened. The error reports damage:
/// neither a new tree nor a failing disk.
#[test]
fn files_that_are_missing_or_empty_are_damage() {
    let folder = tempfile::tempdir().unwrap();
    let whole = folder.path().join("whole");
    let storage = LsmStorage::open(&whole).unwrap();
    apply_batches(&storage, 1, 20, 100);
    storage.persist().unwrap();
    drop(storage);
    let names: Vec<_> = files_below(&whole)
        .iter()
        .map(|file| file.strip_prefix(&whole).unwrap().to_owned())
        .filter(|name| name != Path::new("lock"))
        .collect();
    for folder in ["tables", "queues"] {
        assert!(names.iter().any(|name| name.starts_with(folder)), "{names:?}");
    }
    assert!(names.contains(&"current".into()), "{names:?}");
    // A replaced version file may still exist, and is ignored.
    let is_version = |name: &Path| name.to_str().is_some_and(|name| name.starts_with('v'));
    let newest = names.iter().filter(|name| is_version(name)).max();
    let counts = |name: &Path| !is_version(name) || newest.is_some_and(|newest| newest == name);
    let copy = |path: &Path| {
        for folder in ["tables", "queues"] {
            fs::create_dir_all(path.join(folder)).unwrap();
        }
        for name in &names {
            fs::copy(whole.join(name), path.join(name)).unwrap();
        }
    };
    let path = folder.path().join("copy");
    copy(&path);
    assert_eq!(applied(&LsmStorage::open(&path).unwrap(), 20, 100), 19);
    for (place, name) in names.iter().filter(|name| counts(name)).enumerate() {
        for (how, damage) in [
            ("empty", (|file| fs::write(file, b"")) as fn(&Path) -> std::io::Result<()>),
            ("gone", |file| fs::remove_file(file)),
        ] {
            let path = folder.path().join(format!("{how}-{place}"));
            copy(&path);
            damage(&path.join(name)).unwrap();
            let Err(error) = LsmStorage::open(&path) else { panic!("{how} {}", name.display()) };
            assert!(matches!(error, Error::Corrupt { .. }), "{how} {}: {error}", name.display());
        }
    }
}

/// Goal: trees that share a block cache do not read each other's blocks. Method: both trees have
/// the same keys, in blocks at the same offsets of their files.
#[test]
fn trees_that_share_a_cache_keep_their_own_values() {
    let directory = tempfile::tempdir().unwrap();
    let options = small();
    let trees = ["a", "b"]
        .map(|name| LsmStorage::open_with(&directory.path().join(name), &options).unwrap());
    let key = |n: u32| [b"k", &n.to_be_bytes()[..]].concat();
    for (tree, mark) in trees.iter().zip([1_u8, 2]) {
        for n in 0..2_000 {
            let ops = vec![Op::Put(key(n), Value::from(vec![mark; 100]))];
            tree.apply(&Batch { ops }).unwrap();
        }
        tree.persist().unwrap();
    }
    for _ in 0..2 {
        for (tree, mark) in trees.iter().zip([1_u8, 2]) {
            let view = tree.view();
            for n in 0..2_000 {
                assert_eq!(view.get(&key(n)).unwrap().unwrap()[..], [mark; 100], "{n}");
            }
        }
    }
}
