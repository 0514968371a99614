//! fjall across restarts, crashes and power losses: what was persisted is there, and what else is
//! there is some first part of what was applied.

use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::path::Path;

use partition::{Batch, Op};

use super::fjall::Options;
use super::*;
use crate::disk::SplitMix64;

/// Batch `n` leaves its number under one key, and two values that belong together.
fn batch(n: u64, value_bytes: usize) -> Batch {
    let value = vec![n.to_be_bytes()[7]; value_bytes];
    Batch {
        ops: vec![
            Op::Put(b"applied".to_vec(), n.to_be_bytes().to_vec()),
            Op::Put([b"left".as_slice(), &n.to_be_bytes()].concat(), value.clone()),
            Op::Put([b"right".as_slice(), &n.to_be_bytes()].concat(), value),
        ],
    }
}

/// How many batches the storage holds. It must hold all up to there, and nothing of later ones.
fn applied(storage: &dyn Storage, batches: u64, value_bytes: usize) -> u64 {
    let view = storage.view();
    let applied = view.get(b"applied").unwrap();
    let applied = applied.map_or(0, |bytes| u64::from_be_bytes(bytes.try_into().unwrap()));
    for n in 1..=batches {
        for side in [b"left".as_slice(), b"right"] {
            let found = view.get(&[side, &n.to_be_bytes()].concat()).unwrap();
            let expected = (n <= applied).then(|| vec![n.to_be_bytes()[7]; value_bytes]);
            assert!(found == expected, "batch {n} of {applied}");
        }
    }
    applied
}

fn apply_batches(storage: &FjallStorage, from: u64, to: u64, value_bytes: usize) {
    for n in from..to {
        storage.apply(batch(n, value_bytes)).unwrap();
    }
}

#[test]
fn everything_is_there_after_a_clean_end() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("data/state");
    let storage = FjallStorage::open(&path).unwrap();
    apply_batches(&storage, 1, 50, 10);
    storage.persist().unwrap();
    drop(storage);
    let storage = FjallStorage::open(&path).unwrap();
    assert_eq!(applied(&storage, 60, 10), 49);
    apply_batches(&storage, 50, 60, 10);
    // Not persisted: what a clean end leaves is at least what was.
    drop(storage);
    let storage = FjallStorage::open(&path).unwrap();
    assert!(applied(&storage, 60, 10) >= 49);
    assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o700);
}

#[test]
fn many_flushes_and_compactions_keep_everything() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("state");
    let options =
        FjallOptions { cache_bytes: 1 << 20, memtable_bytes: 1 << 18, recent_bytes: 1 << 16 };
    for round in 0..3 {
        let storage = FjallStorage::open_with(&path, &options).unwrap();
        assert_eq!(applied(&storage, round * 1_000, 1_000), round * 1_000);
        apply_batches(&storage, round * 1_000 + 1, round * 1_000 + 1_001, 1_000);
        storage.persist().unwrap();
    }
    assert_eq!(applied(&FjallStorage::open(&path).unwrap(), 3_000, 1_000), 3_000);
}

#[test]
fn a_storage_has_one_owner() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("state");
    let storage = FjallStorage::open(&path).unwrap();
    let Err(error) = FjallStorage::open(&path) else { panic!("opened twice") };
    assert!(matches!(error, Error::InUse { .. }), "{error}");
    assert!(error.to_string().contains("choose another data directory"), "{error}");
    drop(storage);
    FjallStorage::open(&path).unwrap();
}

#[test]
fn a_start_that_was_interrupted_leaves_nothing_in_the_way() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("state");
    let half_made = directory.path().join("state.new");
    fs::create_dir_all(half_made.join("keyspaces")).unwrap();
    fs::write(half_made.join("0.jnl"), b"half").unwrap();
    let storage = FjallStorage::open(&path).unwrap();
    apply_batches(&storage, 1, 3, 10);
    assert_eq!(applied(&storage, 5, 10), 2);
    assert!(!half_made.exists());
}

#[test]
fn damage_is_an_error_not_an_empty_storage() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("state");
    drop(FjallStorage::open(&path).unwrap());
    fs::write(path.join("version"), b"other").unwrap();
    let Err(error) = FjallStorage::open(&path) else { panic!("opened") };
    assert!(matches!(error, Error::Corrupt { .. }), "{error}");
}

/// Copies a database as a process that is killed leaves it: what the kernel has, the copy has.
/// A read that finds damage must not be the last thing that is known of it.
#[test]
fn damage_that_a_read_finds_keeps_the_storage_from_opening_again() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("state");
    let storage = FjallStorage::open_with(
        &path,
        &Options { cache_bytes: 0, memtable_bytes: 64 * 1024, recent_bytes: 0 },
    )
    .unwrap();
    apply_batches(&storage, 1, 200, 2000);
    storage.persist().unwrap();
    // Blocks of tables are read, and verified, only when something in them is looked for.
    let is_table = |file: &std::path::PathBuf| file.parent().unwrap().ends_with("tables");
    let finds_damage = || {
        for table in files_below(&path).into_iter().filter(is_table) {
            // It may be gone already.
            let Ok(file) = OpenOptions::new().write(true).open(&table) else { continue };
            let length = file.metadata().unwrap().len();
            file.write_all_at(&[0x5a; 64], length / 4).unwrap();
        }
        let view = storage.view();
        (1..=200_u64).any(|n| {
            [b"left".as_slice(), b"right"]
                .iter()
                .any(|side| view.get(&[*side, &n.to_be_bytes()].concat()).is_err())
        })
    };
    // Tables are written and replaced by threads of the engine, whenever they get to it.
    let failed = (0..500).any(|_| {
        std::thread::sleep(std::time::Duration::from_millis(10));
        finds_damage()
    });
    assert!(failed, "the damage was not found");
    drop(storage);
    let noted = fs::read_to_string(folder.path().join("state.damaged")).unwrap();
    let error = FjallStorage::open(&path).err().unwrap();
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

fn journal(path: &Path) -> File {
    OpenOptions::new().read(true).write(true).open(path.join("0.jnl")).unwrap()
}

/// The end of the batches in the journal.
fn journal_end(path: &Path) -> u64 {
    let file = journal(path);
    journal::measure_whole_batches(&file, file.metadata().unwrap().len()).unwrap()
}

const PERSISTED: u64 = 40;
const APPLIED: u64 = 120;
const VALUE_BYTES: usize = 300;

/// An image of a database with [`PERSISTED`] batches persisted and [`APPLIED`] applied, and where in
/// the journal the persisted ones end. All fits into memory, so the journal is all there is.
fn crashed_image(directory: &Path) -> u64 {
    let storage = FjallStorage::open(&directory.join("live")).unwrap();
    apply_batches(&storage, 1, PERSISTED + 1, VALUE_BYTES);
    storage.persist().unwrap();
    let persisted_end = journal_end(&directory.join("live"));
    apply_batches(&storage, PERSISTED + 1, APPLIED + 1, VALUE_BYTES);
    copy(&directory.join("live"), &directory.join("image"));
    persisted_end
}

#[test]
fn a_killed_process_leaves_a_first_part_of_its_batches() {
    let directory = tempfile::tempdir().unwrap();
    crashed_image(directory.path());
    let image = directory.path().join("image");
    let storage = FjallStorage::open(&image).unwrap();
    let left = applied(&storage, APPLIED, VALUE_BYTES);
    assert!((PERSISTED..APPLIED).contains(&left), "{left}");
    // It goes on from there, and the next start finds all of it.
    apply_batches(&storage, left + 1, APPLIED + 1, VALUE_BYTES);
    storage.persist().unwrap();
    drop(storage);
    assert_eq!(applied(&FjallStorage::open(&image).unwrap(), APPLIED, VALUE_BYTES), APPLIED);
}

#[test]
fn the_journal_is_measured_as_fjall_writes_it() {
    let directory = tempfile::tempdir().unwrap();
    let persisted_end = crashed_image(directory.path());
    // A batch is a start of 13 bytes, three items with 21 bytes and key and value, an end of 13.
    let batch_bytes = 13 + 3 * 21 + (7 + 8) + (12 + 300) + (13 + 300) + 13;
    assert_eq!(persisted_end, PERSISTED * batch_bytes);
    let image = directory.path().join("image");
    let unpersisted_bytes = journal_end(&image) - persisted_end;
    assert!(unpersisted_bytes > 0 && unpersisted_bytes.is_multiple_of(batch_bytes));
}

#[test]
fn a_power_loss_leaves_at_least_what_was_persisted() {
    let directory = tempfile::tempdir().unwrap();
    let persisted_end = crashed_image(directory.path());
    let image = directory.path().join("image");
    let bytes = fs::read(image.join("0.jnl")).unwrap();
    let end = bytes.iter().rposition(|byte| *byte != 0).unwrap() as u64 + 1;
    let (mut kept_some, mut cut_some) = (0, 0);
    for seed in 0..40 {
        let torn = directory.path().join(format!("torn-{seed}"));
        copy(&image, &torn);
        let mut generator = SplitMix64::new(seed);
        // Whole sectors of what was not synced are missing, in any place, or the end is.
        for sector in persisted_end.div_ceil(512)..end / 512 {
            if generator.chance(1 + 9 * (seed % 5)) {
                journal(&torn).write_all_at(&[0; 512], sector * 512).unwrap();
            }
        }
        if generator.chance(30) {
            let rest = usize::try_from(end - persisted_end).unwrap();
            journal(&torn).set_len(persisted_end + generator.up_to(rest) as u64).unwrap();
        }
        let storage = FjallStorage::open(&torn).unwrap();
        let left = applied(&storage, APPLIED, VALUE_BYTES);
        assert!(left >= PERSISTED, "seed {seed}: {left}");
        kept_some += u32::from(left > PERSISTED);
        cut_some += u32::from(left < APPLIED - 20);
        apply_batches(&storage, left + 1, APPLIED + 1, VALUE_BYTES);
        storage.persist().unwrap();
        drop(storage);
        assert_eq!(applied(&FjallStorage::open(&torn).unwrap(), APPLIED, VALUE_BYTES), APPLIED);
        fs::remove_dir_all(&torn).unwrap();
    }
    assert!(kept_some > 5 && cut_some > 5, "{kept_some} {cut_some}");
}
