//! Tables on a simulated disk, in place of the tables of lsm-tree, whose files are on a real disk.
//!
//! The layer keeps the promises of lsm-tree on which the engine relies: a flush and a merge are
//! atomic, and a file counts only once the list of tables names it. The list is replaced by a
//! rename, after the files that it names were synced. Everything else is lost in a power cut.

use std::collections::BTreeSet;
use std::io;
use std::ops::{Bound, Range};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, MutexGuard};

use locks::Mutex;
use lsm_tree::{InternalValue, Slice};
use partition::Value;
use serde::{Deserialize, Serialize};
use xxhash_rust::xxh3::xxh3_64;

use super::super::folder::Folder;
use super::super::queue::damaged;
use super::super::view::KeyRange;
use super::simulated_file::{Row, SimulatedTable};
use crate::engine::Pace;

/// The list of the valid tables, and the name of an incomplete list.
const LIST: &str = "list";
const INCOMPLETE_LIST: &str = "list.new";
/// The size of the checksum at the end of the list in bytes.
const CHECKSUM_BYTES: usize = 8;
/// The number of tables at which all tables are merged. The number is small, so that simulations
/// with little data merge often.
const TABLES_TO_MERGE: usize = 4;

/// The entry of a table in the list.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Listed {
    id: u64,
    bytes: u64,
    checksum: u64,
}

/// The tables, newest first.
type Tables = Vec<Arc<SimulatedTable>>;

/// The tables of a storage on a simulated disk.
pub(in super::super) struct SimulatedTables {
    folder: Arc<Folder>,
    tables: Mutex<Arc<Tables>>,
    /// The id of the next table. An id is not reused, because dropping an unused table removes the
    /// file with its id.
    next_id: AtomicU64,
    flush_lock: Mutex<()>,
}

impl SimulatedTables {
    /// Opens the listed tables, and removes all other files. Creates an empty list if there are no
    /// files.
    ///
    /// # Errors
    /// When a file cannot be read or written, is missing or differs from its entry in the list.
    pub(in super::super) fn open(folder: Arc<Folder>) -> io::Result<Self> {
        let names = folder.list()?;
        let listed = if names.iter().any(|name| name == LIST) {
            read_list(&folder)?
        } else if let Some(other) = names.iter().find(|name| *name != INCOMPLETE_LIST) {
            return Err(damaged(&folder.path_of(LIST), &format!("missing, but `{other}` exists")));
        } else {
            write_list(&folder, &[])?;
            Vec::new()
        };
        let known: BTreeSet<String> =
            listed.iter().map(|table| table.id.to_string()).chain([LIST.to_owned()]).collect();
        for name in names.iter().filter(|name| !known.contains(*name)) {
            folder.remove(name)?;
        }
        let open = |table: &Listed| {
            SimulatedTable::open(&folder, table.id, table.bytes, table.checksum).map(Arc::new)
        };
        let tables = listed.iter().map(open).collect::<io::Result<Tables>>()?;
        let next_id = tables.iter().map(|table| table.id()).max().map_or(1, |last| last + 1);
        Ok(Self {
            folder,
            tables: Mutex::new(Arc::new(tables)),
            next_id: AtomicU64::new(next_id),
            flush_lock: Mutex::new(()),
        })
    }

    fn tables(&self) -> Arc<Tables> {
        Arc::clone(&self.tables.lock())
    }

    /// Returns the highest number of any row.
    pub(super) fn highest_number(&self) -> Option<u64> {
        self.tables().iter().filter_map(|table| table.highest_number()).max()
    }

    pub(super) fn lock_flush(&self) -> MutexGuard<'_, ()> {
        self.flush_lock.lock()
    }

    pub(super) fn count(&self) -> usize {
        self.tables().len()
    }

    /// Returns the numbers of deleted rows and of all rows.
    pub(super) fn row_counts(&self) -> (u64, u64) {
        let tables = self.tables();
        let rows = || tables.iter().flat_map(|table| table.rows());
        (rows().filter(|row| row.is_deletion()).count() as u64, rows().count() as u64)
    }

    /// Returns the total size of all tables in bytes.
    pub(super) fn bytes(&self) -> u64 {
        self.tables().iter().map(|table| table.bytes()).sum()
    }

    /// Returns the newest value of a key with a number below `below`.
    ///
    /// # Errors
    /// When the value cannot be read, or is damaged.
    pub(super) fn get(&self, key: &[u8], below: u64) -> io::Result<Option<Value>> {
        for table in self.tables().iter() {
            let places = table.versions(key);
            let rows = table.rows().get(places).unwrap_or_default();
            if let Some(row) = rows.iter().find(|row| row.number < below) {
                return Ok(table.read(row)?.map(Value::from));
            }
        }
        Ok(None)
    }

    /// Returns a cursor over the rows of a range with numbers below `below`.
    pub(super) fn range(&self, (lower, upper): KeyRange<'_>, below: u64) -> SimulatedRows {
        let places = |table: &Arc<SimulatedTable>| {
            let start = match lower {
                Bound::Included(key) => table.count_where(|found| found < key),
                Bound::Excluded(key) => table.count_where(|found| found <= key),
                Bound::Unbounded => 0,
            };
            let end = match upper {
                Bound::Included(key) => table.count_where(|found| found <= key),
                Bound::Excluded(key) => table.count_where(|found| found < key),
                Bound::Unbounded => table.rows().len(),
            };
            (Arc::clone(table), start..end.max(start))
        };
        SimulatedRows { tables: self.tables().iter().map(places).collect(), below }
    }

    /// Writes a new table, and makes it and the list durable. The rows must be in the tree's order:
    /// by key, then the newest version first.
    ///
    /// # Errors
    /// When a file cannot be written.
    pub(super) fn flush(&self, rows: impl Iterator<Item = InternalValue>) -> io::Result<()> {
        let rows: Vec<NewRow> = rows.map(NewRow::from).collect();
        let tables = self.tables();
        let new = self.write(&rows)?;
        self.publish(new.into_iter().chain(tables.iter().cloned()).collect())
    }

    /// Merges all tables if there are many. Returns whether it merged any. Drops the versions that
    /// no view of the batches below `oldest` or of later batches sees.
    ///
    /// # Errors
    /// When a file cannot be read or written, or is damaged.
    pub(super) fn merge_many(&self, oldest: u64) -> io::Result<bool> {
        let is_many = self.count() >= TABLES_TO_MERGE;
        if is_many {
            self.merge_all(oldest)?;
        }
        Ok(is_many)
    }

    /// Merges all tables, like [`SimulatedTables::merge_many`].
    ///
    /// # Errors
    /// When a file cannot be read or written, or is damaged.
    pub(super) fn merge_all(&self, oldest: u64) -> io::Result<()> {
        let tables = self.tables();
        let everything = (Bound::Unbounded, Bound::Unbounded);
        let mut cursor = self.range(everything, u64::MAX);
        let mut rows = Vec::new();
        while let Some(versions) = cursor.take_versions(false) {
            // Views see at most one version below `oldest`, and a deletion is the same as no row.
            let needed = versions.partition_point(|(_, row)| row.number >= oldest);
            for (index, (table, row)) in versions.iter().take(needed + 1).enumerate() {
                let value = table.read(row)?;
                if index < needed || value.is_some() {
                    rows.push(NewRow { key: row.key.to_vec(), number: row.number, value });
                }
            }
        }
        let new = self.write(&rows)?;
        self.publish(new.into_iter().collect())?;
        tables.iter().for_each(|table| table.remove_when_unused());
        Ok(())
    }

    /// Writes and syncs a table. Returns `None` if there are no rows.
    fn write(&self, rows: &[NewRow]) -> io::Result<Option<Arc<SimulatedTable>>> {
        if rows.is_empty() {
            return Ok(None);
        }
        let id = self.next_id.fetch_add(1, Ordering::Relaxed);
        SimulatedTable::write(&self.folder, id, rows).map(|table| Some(Arc::new(table)))
    }

    /// Makes these the valid tables.
    fn publish(&self, tables: Tables) -> io::Result<()> {
        let listed = |table: &Arc<SimulatedTable>| Listed {
            id: table.id(),
            bytes: table.bytes(),
            checksum: table.checksum(),
        };
        write_list(&self.folder, &tables.iter().map(listed).collect::<Vec<_>>())?;
        *self.tables.lock() = Arc::new(tables);
        Ok(())
    }

    /// Verifies the table with the lowest id above `after`, and returns that id; `None` after the
    /// last table.
    ///
    /// # Errors
    /// When the table cannot be read, or is damaged.
    pub(super) fn verify_next(
        &self,
        after: Option<u64>,
        pace: &mut Pace<'_>,
    ) -> io::Result<Option<u64>> {
        let tables = self.tables();
        let behind = tables.iter().filter(|table| Some(table.id()) > after);
        let Some(table) = behind.min_by_key(|table| table.id()) else { return Ok(None) };
        // Opening the table again verifies its list of rows on the disk.
        let found =
            SimulatedTable::open(&self.folder, table.id(), table.bytes(), table.checksum())?;
        for row in found.rows() {
            found.read(row)?;
        }
        // The only pause comes at the end, because simulated tables are small. The verification of
        // this table is complete, so the answer does not matter.
        let _ = pace(usize::try_from(table.bytes()).unwrap_or(usize::MAX));
        Ok(Some(table.id()))
    }
}

/// A row that is not written yet.
pub(super) struct NewRow {
    pub(super) key: Vec<u8>,
    pub(super) number: u64,
    pub(super) value: Option<Vec<u8>>,
}

impl From<InternalValue> for NewRow {
    fn from(row: InternalValue) -> Self {
        let value = (!row.is_tombstone()).then(|| row.value.to_vec());
        Self { key: row.key.user_key.to_vec(), number: row.key.seqno, value }
    }
}

fn read_list(folder: &Folder) -> io::Result<Vec<Listed>> {
    let file = folder.open(LIST)?;
    let mut bytes = vec![0; usize::try_from(file.size_bytes()?).unwrap_or(usize::MAX)];
    file.read_at(0, &mut bytes)?;
    let list = bytes.split_last_chunk::<CHECKSUM_BYTES>();
    let list = list.filter(|(list, checksum)| xxh3_64(list).to_le_bytes() == **checksum);
    let list = list.and_then(|(list, _)| postcard::from_bytes(list).ok());
    list.ok_or_else(|| damaged(&folder.path_of(LIST), "the checksum of the list is wrong"))
}

/// Replaces the list atomically, and makes it durable.
fn write_list(folder: &Folder, listed: &[Listed]) -> io::Result<()> {
    let list = postcard::to_allocvec(listed).map_err(io::Error::other)?;
    folder.remove(INCOMPLETE_LIST)?;
    let file = folder.create(INCOMPLETE_LIST)?;
    file.append(&list)?;
    file.append(&xxh3_64(&list).to_le_bytes())?;
    file.sync_data()?;
    folder.rename(INCOMPLETE_LIST, LIST)?;
    folder.sync()
}

/// A cursor over the newest rows below a number, from both ends of a range.
pub(in super::super) struct SimulatedRows {
    /// The tables, newest first, and for each table the rows that are not visited yet.
    tables: Vec<(Arc<SimulatedTable>, Range<usize>)>,
    below: u64,
}

/// The versions of one key, each with its table.
type VersionsOfKey = Vec<(Arc<SimulatedTable>, Row)>;

impl SimulatedRows {
    /// Returns the next row from the beginning or the end; `None` after the last row.
    pub(super) fn next(&mut self, reverse: bool) -> Option<io::Result<(Slice, Slice)>> {
        loop {
            let versions = self.take_versions(reverse)?;
            let seen = versions.iter().find(|(_, row)| row.number < self.below);
            let Some((table, row)) = seen else { continue };
            match table.read(row) {
                Ok(Some(value)) => return Some(Ok((Slice::from(&*row.key), Slice::from(value)))),
                Ok(None) => {}
                Err(error) => return Some(Err(error)),
            }
        }
    }

    /// Takes all versions of the next key, newest first; `None` after the last key.
    fn take_versions(&mut self, reverse: bool) -> Option<VersionsOfKey> {
        let next = |(table, places): &(Arc<SimulatedTable>, Range<usize>)| {
            let place = if reverse { places.end.checked_sub(1)? } else { places.start };
            let row = places.contains(&place).then(|| table.rows().get(place))??;
            Some(Arc::clone(&row.key))
        };
        let keys = self.tables.iter().filter_map(next);
        let key = if reverse { keys.max() } else { keys.min() }?;
        let mut versions = Vec::new();
        for (table, left) in &mut self.tables {
            let places = table.versions(&key);
            let places = places.start.max(left.start)..places.end.min(left.end);
            for row in table.rows().get(places.clone()).unwrap_or_default() {
                versions.push((Arc::clone(table), row.clone()));
            }
            if places.is_empty() {
                continue;
            }
            *left = if reverse { left.start..places.start } else { places.end..left.end };
        }
        Some(versions)
    }
}
