//! One table on a simulated disk.
//!
//! ```text
//! value …                          the values of the rows
//! rows                             the list of the rows, in postcard's encoding
//! list-bytes:u32 checksum:u64      of that list
//! ```
//!
//! The list stays in memory, and each value is read from the disk and verified when it is needed.

use std::io;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use serde::{Deserialize, Serialize};
use xxhash_rust::xxh3::xxh3_64;

use super::super::folder::Folder;
use super::super::queue::damaged;
use super::simulated::NewRow;
use crate::disk::DiskFile;

/// The size of the list's length and checksum in bytes.
const TRAILER_BYTES: usize = 12;
/// The size in bytes of one write, so that a power cut also hits a file between two writes.
const WRITE_BYTES: usize = 16 * 1024;

/// A row of a table.
#[derive(Clone, Debug)]
pub(super) struct Row {
    pub(super) key: Arc<[u8]>,
    /// The number of the batch that wrote the row.
    pub(super) number: u64,
    /// The place of the value; `None` if the row is a deletion.
    value: Option<Place>,
}

#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
struct Place {
    offset: u64,
    bytes: u32,
    checksum: u64,
}

impl Row {
    pub(super) fn is_deletion(&self) -> bool {
        self.value.is_none()
    }
}

/// A row in the list of rows: its key, its number, and the place of its value.
type ListedRow = (Vec<u8>, u64, Option<Place>);

impl From<&ListedRow> for Row {
    fn from((key, number, value): &ListedRow) -> Self {
        Self { key: key.as_slice().into(), number: *number, value: *value }
    }
}

/// A complete table, whose file stays open.
pub(super) struct SimulatedTable {
    folder: Arc<Folder>,
    id: u64,
    file: Box<dyn DiskFile>,
    rows: Box<[Row]>,
    bytes: u64,
    checksum: u64,
    /// Whether the file is removed when its last user drops it.
    is_unused: AtomicBool,
}

impl SimulatedTable {
    /// Opens a table, and checks its list of rows.
    ///
    /// # Errors
    /// When the file cannot be read, is missing or has another list.
    pub(super) fn open(
        folder: &Arc<Folder>,
        id: u64,
        bytes: u64,
        checksum: u64,
    ) -> io::Result<Self> {
        let path = folder.path_of(&id.to_string());
        let other = || damaged(&path, "the table differs from the manifest");
        let file = match folder.open(&id.to_string()) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                return Err(damaged(&path, "the table is missing"));
            }
            opened => opened?,
        };
        if file.size_bytes()? != bytes {
            return Err(other());
        }
        let mut trailer = [0; TRAILER_BYTES];
        let end = bytes.checked_sub(TRAILER_BYTES as u64).ok_or_else(other)?;
        file.read_at(end, &mut trailer)?;
        let (list_bytes, found) = trailer.split_first_chunk().ok_or_else(other)?;
        let list_bytes = u32::from_le_bytes(*list_bytes);
        let start = end.checked_sub(u64::from(list_bytes)).ok_or_else(other)?;
        let mut list = vec![0; usize::try_from(list_bytes).unwrap_or(usize::MAX)];
        file.read_at(start, &mut list)?;
        if *found != checksum.to_le_bytes() || xxh3_64(&list) != checksum {
            return Err(other());
        }
        let list: Vec<ListedRow> = postcard::from_bytes(&list).map_err(|_| other())?;
        let (folder, is_unused) = (Arc::clone(folder), AtomicBool::new(false));
        let rows = list.iter().map(Row::from).collect();
        Ok(Self { folder, id, file, rows, bytes, checksum, is_unused })
    }

    /// Writes a table, and makes it survive a power loss.
    ///
    /// # Errors
    /// When the file cannot be written or synced.
    pub(super) fn write(folder: &Arc<Folder>, id: u64, rows: &[NewRow]) -> io::Result<Self> {
        let too_long = |_| io::Error::other("a row is too long for a table");
        let (mut content, mut list) = (Vec::new(), Vec::<ListedRow>::new());
        for NewRow { key, number, value } in rows {
            let value = match value {
                Some(value) => {
                    let bytes = u32::try_from(value.len()).map_err(too_long)?;
                    let offset = content.len() as u64;
                    content.extend_from_slice(value);
                    Some(Place { offset, bytes, checksum: xxh3_64(value) })
                }
                None => None,
            };
            list.push((key.clone(), *number, value));
        }
        let encoded = postcard::to_allocvec(&list).map_err(io::Error::other)?;
        let checksum = xxh3_64(&encoded);
        let list_bytes = u32::try_from(encoded.len()).map_err(too_long)?;
        content.extend_from_slice(&encoded);
        content.extend_from_slice(&list_bytes.to_le_bytes());
        content.extend_from_slice(&checksum.to_le_bytes());
        let file = folder.create(&id.to_string())?;
        content.chunks(WRITE_BYTES).try_for_each(|part| file.append(part))?;
        file.sync_data()?;
        // The name must survive before a list names it.
        folder.sync()?;
        let (folder, is_unused) = (Arc::clone(folder), AtomicBool::new(false));
        let bytes = content.len() as u64;
        let rows = list.iter().map(Row::from).collect();
        Ok(Self { folder, id, file, rows, bytes, checksum, is_unused })
    }

    pub(super) fn id(&self) -> u64 {
        self.id
    }

    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    pub(super) fn checksum(&self) -> u64 {
        self.checksum
    }

    /// Returns all rows: by key, then the newest version first.
    pub(super) fn rows(&self) -> &[Row] {
        &self.rows
    }

    pub(super) fn highest_number(&self) -> Option<u64> {
        self.rows.iter().map(|row| row.number).max()
    }

    /// Returns the number of rows at the beginning whose keys fulfil a condition.
    pub(super) fn count_where(&self, is_before: impl Fn(&[u8]) -> bool) -> usize {
        self.rows.partition_point(|row| is_before(&row.key))
    }

    /// Returns the places of the rows of a key.
    pub(super) fn versions(&self, key: &[u8]) -> Range<usize> {
        let start = self.count_where(|found| found < key);
        let behind = self.rows.get(start..).unwrap_or_default();
        start..start + behind.iter().take_while(|row| *row.key == *key).count()
    }

    /// Reads the value of a row; `None` if the row is a deletion.
    ///
    /// # Errors
    /// When the value cannot be read, or is damaged.
    pub(super) fn read(&self, row: &Row) -> io::Result<Option<Vec<u8>>> {
        let Some(place) = row.value else { return Ok(None) };
        let mut value = vec![0; usize::try_from(place.bytes).unwrap_or(usize::MAX)];
        self.file.read_at(place.offset, &mut value)?;
        if xxh3_64(&value) != place.checksum {
            let path = self.folder.path_of(&self.id.to_string());
            return Err(damaged(&path, "the checksum of a value is wrong"));
        }
        Ok(Some(value))
    }

    /// Marks the file for removal when its last user drops it.
    pub(super) fn remove_when_unused(&self) {
        self.is_unused.store(true, Ordering::Release);
    }
}

impl Drop for SimulatedTable {
    fn drop(&mut self) {
        // If the power is off, the next start removes the file.
        if self.is_unused.load(Ordering::Acquire) {
            let _ = self.folder.remove(&self.id.to_string());
        }
    }
}
