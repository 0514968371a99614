//! The format of a queue file, its writer and the reader of its blocks.
//!
//! ```text
//! block …                     rows in the order of their keys: key-bytes:u16 value-bytes:u32 key value
//! blocks                      the list of the blocks, in postcard's encoding
//! list-bytes:u32 checksum:u64 of that list
//! "weirqf01"
//! ```
//!
//! Numbers are little-endian, checksums are XXH3. A file never changes. It is opened for each read
//! of a block, so a process keeps no queue files open. A process keeps only the lists of blocks in
//! memory: some 160 bytes per block.

use std::io;
use std::ops::{ControlFlow, Range};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use partition::QUEUE_PREFIX_BYTES;
use partition::mutation::{self, Mutation};
use serde::{Deserialize, Serialize};
use xxhash_rust::xxh3::xxh3_64;

use super::super::folder::Folder;
use super::super::maintenance::block_in_place;
use super::{Listing, damaged};
use crate::disk::DiskFile;
use crate::disk::descriptors::{self, Backoff};
use crate::engine::Pace;

const MAGIC: [u8; 8] = *b"weirqf01";
/// The size of the trailer in bytes: the list's length, its checksum, and the magic number.
const TRAILER_BYTES: usize = 20;
/// The size in bytes of the two lengths before a row.
const HEAD_BYTES: usize = 6;
/// The size in bytes at which a block ends: some hundred records in two or three rows, which a
/// reader usually needs together.
const BLOCK_BYTES: usize = 32 * 1024;
/// The size in bytes at which buffered blocks are written to the file.
const BUFFER_BYTES: usize = 8 * BLOCK_BYTES;
/// The minimum size in bytes of a block that ends at the end of its queue. A block of this size
/// contains no rows of the next queue, so that later keys of its queue are outside the range of
/// every block.
const LAST_BLOCK_BYTES: usize = 4 * 1024;

/// The description of a block in the file's list of blocks.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Block {
    offset: u64,
    length: u32,
    checksum: u64,
    /// The position of the block's first row among the rows of the file.
    first_place: u32,
    rows: u32,
    first: Box<[u8]>,
    last: Box<[u8]>,
}

impl Block {
    pub(super) fn first(&self) -> &[u8] {
        &self.first
    }

    pub(super) fn last(&self) -> &[u8] {
        &self.last
    }

    pub(super) fn bytes(&self) -> u64 {
        u64::from(self.length)
    }

    /// Returns the positions of the block's rows among the rows of the file.
    pub(super) fn places(&self) -> Range<u32> {
        self.first_place..self.first_place.saturating_add(self.rows)
    }
}

/// A complete queue file.
pub(super) struct QueueFile {
    folder: Arc<Folder>,
    name: String,
    number: u64,
    salt: u64,
    blocks: Box<[Block]>,
    bytes: u64,
    checksum: u64,
    /// Whether the file is removed when its last user drops it.
    is_unused: AtomicBool,
}

impl QueueFile {
    /// Opens the file with a number, and checks it against its listing.
    ///
    /// # Errors
    /// When the file cannot be read, is missing or differs from its listing.
    pub(super) fn open(folder: &Arc<Folder>, number: u64, listing: &Listing) -> io::Result<Self> {
        let Listing { salt, bytes, checksum, .. } = *listing;
        let name = name_of(number, salt);
        let path = folder.path_of(&name);
        let blocks = match folder.open(&name) {
            Ok(file) => read_list(&*file, &path, bytes, checksum)?,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                return Err(damaged(&path, "the file is missing"));
            }
            Err(error) => return Err(error),
        };
        let (folder, is_unused) = (Arc::clone(folder), AtomicBool::new(false));
        Ok(Self { folder, name, number, salt, blocks, bytes, checksum, is_unused })
    }

    /// Returns the path for error messages.
    fn path(&self) -> PathBuf {
        self.folder.path_of(&self.name)
    }

    pub(super) fn salt(&self) -> u64 {
        self.salt
    }

    pub(super) fn number(&self) -> u64 {
        self.number
    }

    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    pub(super) fn checksum(&self) -> u64 {
        self.checksum
    }

    pub(super) fn blocks(&self) -> &[Block] {
        &self.blocks
    }

    pub(super) fn rows(&self) -> u32 {
        self.blocks.last().map_or(0, |block| block.places().end)
    }

    /// Reads a block.
    ///
    /// # Errors
    /// When the block cannot be read or is damaged.
    pub(super) fn read(&self, block: &Block) -> io::Result<BlockRows> {
        let mut bytes = vec![0; length(block.length)];
        let file = self.reopen()?;
        file.read_at(block.offset, &mut bytes).map_err(|error| self.sort(&error.source))?;
        if xxh3_64(&bytes) != block.checksum {
            return Err(damaged(
                &self.path(),
                "the checksum of a block differs from the file's block list",
            ));
        }
        let rows = BlockRows::new(bytes);
        rows.filter(|rows| rows.len() == length(block.rows)).ok_or_else(|| {
            damaged(&self.path(), "the number of rows in a block differs from the block list")
        })
    }

    /// Verifies the entire file in chunks; `pace` may stop the verification between two chunks.
    ///
    /// # Errors
    /// When the file cannot be read or is damaged.
    pub(super) fn verify(&self, pace: &mut Pace<'_>) -> io::Result<()> {
        read_list(&*self.reopen()?, &self.path(), self.bytes, self.checksum)?;
        for block in &self.blocks {
            self.read(block)?;
            if pace(length(block.length)) == ControlFlow::Break(()) {
                break;
            }
        }
        Ok(())
    }

    /// Opens the file again. Retries while no file descriptor is available, because after an error
    /// a cursor would have to start over.
    fn reopen(&self) -> io::Result<Box<dyn DiskFile>> {
        let mut backoff = Backoff::default();
        loop {
            match self.folder.open(&self.name) {
                Err(error) if descriptors::is_exhausted(&error) => {
                    block_in_place(|| backoff.pause());
                }
                opened => return opened.map_err(|error| self.sort(&error)),
            }
        }
    }

    /// Classifies an error. A file that ends too early was damaged after it was opened. A missing
    /// file is not reported as damage, because a later storage in this directory may have removed
    /// it. If the file was lost, the next start detects the loss.
    fn sort(&self, error: &io::Error) -> io::Error {
        match error.kind() {
            io::ErrorKind::UnexpectedEof => damaged(&self.path(), "the file ends too early"),
            kind => io::Error::new(kind, format!("{}: {error}", self.path().display())),
        }
    }

    /// Marks the file for removal when its last user drops it.
    pub(super) fn remove_when_unused(&self) {
        self.is_unused.store(true, Ordering::Release);
    }
}

impl Drop for QueueFile {
    fn drop(&mut self) {
        if self.is_unused.load(Ordering::Acquire)
            && let Err(error) = self.folder.remove(&self.name)
        {
            let path = self.path();
            let path = path.display();
            tracing::warn!(%error, %path, "cannot remove an unused file; the next start removes it");
        }
    }
}

fn length(bytes: u32) -> usize {
    usize::try_from(bytes).unwrap_or(usize::MAX)
}

fn read_list(
    file: &dyn DiskFile,
    path: &Path,
    bytes: u64,
    checksum: u64,
) -> io::Result<Box<[Block]>> {
    let other = || damaged(path, "the file differs from its entry in the list of files");
    if file.size_bytes()? != bytes {
        return Err(other());
    }
    let mut trailer = [0; TRAILER_BYTES];
    let end = bytes.checked_sub(TRAILER_BYTES as u64).ok_or_else(other)?;
    file.read_at(end, &mut trailer)?;
    let (list_bytes, rest) = trailer.split_first_chunk().ok_or_else(other)?;
    let list_bytes = u32::from_le_bytes(*list_bytes);
    if *rest != *[checksum.to_le_bytes(), MAGIC].as_flattened() {
        return Err(other());
    }
    let from = end.checked_sub(u64::from(list_bytes)).ok_or_else(other)?;
    let mut list = vec![0; length(list_bytes)];
    file.read_at(from, &mut list)?;
    if xxh3_64(&list) != checksum {
        return Err(other());
    }
    postcard::from_bytes(&list).map_err(|_| other())
}

/// The rows of a block.
pub(super) struct BlockRows {
    bytes: Vec<u8>,
    /// For each row, the start and the end of its key, and the end of its value.
    places: Vec<(usize, usize, usize)>,
}

impl BlockRows {
    fn new(bytes: Vec<u8>) -> Option<Self> {
        let mut places = Vec::new();
        let mut rest = bytes.as_slice();
        while !rest.is_empty() {
            let (key_bytes, behind) = rest.split_first_chunk()?;
            let (value_bytes, behind) = behind.split_first_chunk()?;
            let key_bytes = usize::from(u16::from_le_bytes(*key_bytes));
            let value_bytes = length(u32::from_le_bytes(*value_bytes));
            let key_start = bytes.len() - behind.len();
            let (_, behind) = behind.split_at_checked(key_bytes)?;
            let (_, behind) = behind.split_at_checked(value_bytes)?;
            places.push((key_start, key_start + key_bytes, bytes.len() - behind.len()));
            rest = behind;
        }
        Some(Self { bytes, places })
    }

    pub(super) fn len(&self) -> usize {
        self.places.len()
    }

    /// Returns a row's key and value.
    pub(super) fn row(&self, index: usize) -> Option<(&[u8], &[u8])> {
        let (start, key_end, end) = *self.places.get(index)?;
        Some((self.bytes.get(start..key_end)?, self.bytes.get(key_end..end)?))
    }

    /// Returns the number of keys in the block that are less than the given key.
    pub(super) fn count_below(&self, key: &[u8]) -> usize {
        self.places.partition_point(|(start, key_end, _)| {
            self.bytes.get(*start..*key_end).is_some_and(|found| found < key)
        })
    }
}

/// Returns the name of a file. Numbers are reused after a restart. The random salt prevents a
/// reader of a closed storage from opening a new file with the same number.
pub(super) fn name_of(number: u64, salt: u64) -> String {
    format!("{number}-{salt:016x}")
}

/// An incomplete file. The file is removed on drop, because free disk space may be low.
struct Unfinished {
    folder: Arc<Folder>,
    /// The name of the file; `None` when it is complete.
    name: Option<String>,
}

impl Drop for Unfinished {
    fn drop(&mut self) {
        if let Some(name) = &self.name
            && let Err(error) = self.folder.remove(name)
        {
            let path = self.folder.path_of(name);
            let path = path.display();
            tracing::warn!(%error, %path, "cannot remove an incomplete file; the next start removes it");
        }
    }
}

/// A writer of a file, row by row in key order.
pub(super) struct FileWriter {
    /// The file until it is complete; an incomplete file is removed on drop.
    unfinished: Unfinished,
    number: u64,
    salt: u64,
    out: Box<dyn DiskFile>,
    /// Blocks that are not written yet, and the current block.
    buffer: Vec<u8>,
    /// The start of the current block in the buffer.
    block_start: usize,
    /// The first and the last key of the current block.
    keys: (Vec<u8>, Vec<u8>),
    block_rows: u32,
    offset: u64,
    rows: u32,
    blocks: Vec<Block>,
}

impl FileWriter {
    /// Creates the file. The file is removed on drop, unless [`FileWriter::finish`] was called.
    ///
    /// # Errors
    /// When the file cannot be created.
    pub(super) fn new(folder: &Arc<Folder>, number: u64) -> io::Result<Self> {
        let salt = folder.salt()?;
        let name = name_of(number, salt);
        Ok(Self {
            out: folder.create(&name)?,
            unfinished: Unfinished { folder: Arc::clone(folder), name: Some(name) },
            number,
            salt,
            buffer: Vec::with_capacity(BUFFER_BYTES + 2 * BLOCK_BYTES),
            block_start: 0,
            keys: (Vec::new(), Vec::new()),
            block_rows: 0,
            offset: 0,
            rows: 0,
            blocks: Vec::new(),
        })
    }

    /// Appends a row; keys must be ascending.
    ///
    /// # Errors
    /// When the file cannot be written to, or has no room for more rows.
    pub(super) fn write(&mut self, key: &[u8], value: &[u8]) -> io::Result<()> {
        let queue = |bytes: &[u8]| bytes.len().min(QUEUE_PREFIX_BYTES);
        if self.block().len() >= LAST_BLOCK_BYTES
            && self.keys.1.get(..queue(&self.keys.1)) != key.get(..queue(key))
        {
            self.end_block()?;
        }
        let too_long = |_| io::Error::other("a key or value is too long for a queue file");
        let key_bytes = u16::try_from(key.len()).map_err(too_long)?;
        let value_bytes = u32::try_from(value.len()).map_err(too_long)?;
        // The length of a block has 32 bits.
        let row_bytes = HEAD_BYTES + key.len() + value.len();
        u32::try_from(self.block().len().saturating_add(row_bytes)).map_err(too_long)?;
        self.buffer.extend_from_slice(&key_bytes.to_le_bytes());
        self.buffer.extend_from_slice(&value_bytes.to_le_bytes());
        self.buffer.extend_from_slice(key);
        self.buffer.extend_from_slice(value);
        if self.block_rows == 0 {
            self.keys.0.clear();
            self.keys.0.extend_from_slice(key);
        }
        self.keys.1.clear();
        self.keys.1.extend_from_slice(key);
        self.block_rows += 1;
        if self.block().len() >= BLOCK_BYTES { self.end_block() } else { Ok(()) }
    }

    fn end_block(&mut self) -> io::Result<()> {
        if self.block_rows == 0 {
            return Ok(());
        }
        let full = || io::Error::other("the queue file is full");
        let length = u32::try_from(self.block().len()).map_err(|_| full())?;
        self.blocks.push(Block {
            offset: self.offset,
            length,
            checksum: xxh3_64(self.block()),
            first_place: self.rows,
            rows: self.block_rows,
            first: self.keys.0.as_slice().into(),
            last: self.keys.1.as_slice().into(),
        });
        self.offset += u64::from(length);
        self.rows = self.rows.checked_add(self.block_rows).ok_or_else(full)?;
        self.block_rows = 0;
        if self.buffer.len() >= BUFFER_BYTES {
            self.out.append(&self.buffer)?;
            self.buffer.clear();
        }
        self.block_start = self.buffer.len();
        Ok(())
    }

    /// Returns the bytes of the current, incomplete block.
    fn block(&self) -> &[u8] {
        self.buffer.get(self.block_start..).unwrap_or_default()
    }

    /// Makes the file survive a power loss, or removes it if it has no rows.
    ///
    /// # Errors
    /// When the file cannot be written or synced.
    pub(super) fn finish(mut self) -> io::Result<Option<QueueFile>> {
        self.end_block()?;
        if self.blocks.is_empty() {
            return Ok(None);
        }
        let list = postcard::to_allocvec(&self.blocks).map_err(io::Error::other)?;
        let checksum = xxh3_64(&list);
        let full = |_| io::Error::other("the queue file is full");
        let list_bytes = u32::try_from(list.len()).map_err(full)?;
        self.out.append(&self.buffer)?;
        self.out.append(&list)?;
        let trailer = [&list_bytes.to_le_bytes()[..], &checksum.to_le_bytes(), &MAGIC].concat();
        self.out.append(&trailer)?;
        if !mutation::is_active(Mutation::QueueWithoutSync) {
            self.out.sync_data()?;
        }
        // This sync makes the file's name durable.
        self.unfinished.folder.sync()?;
        let Some(name) = self.unfinished.name.take() else { return Ok(None) };
        Ok(Some(QueueFile {
            folder: Arc::clone(&self.unfinished.folder),
            name,
            number: self.number,
            salt: self.salt,
            blocks: self.blocks.into_boxed_slice(),
            bytes: self.offset + u64::from(list_bytes) + TRAILER_BYTES as u64,
            checksum,
            is_unused: AtomicBool::new(false),
        }))
    }
}
