//! Cuts off what a power loss tore at the end of fjall's journal.
//!
//! fjall recovers from a journal that ends early, but refuses to open one whose last batches are
//! there in part: whose end reached the disk and whose middle did not. Their order is up to the
//! kernel, as nothing was synced. This reads the newest journal, which is the only one that can be
//! torn (older ones were synced when they were closed), and shortens it to its whole batches.
//!
//! Nothing is lost that the log does not have. If it was not a power loss but damage to batches that
//! were persisted, then the log does not reach back to what is left here, and the store refuses to
//! start: see `crate::log` on `applied + 1`.
//!
//! It knows the journal format of fjall 3.1, to which the workspace is pinned; the tests compare.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, BufReader, Read};
use std::path::{Path, PathBuf};

use xxhash_rust::xxh3::Xxh3;

use super::Error;
use super::fjall::io_error;

/// The file that fjall locks while it has the database open.
const LOCK_FILE: &str = "lock";

/// How much of a value is hashed at a time.
const CHUNK_BYTES: u64 = 64 * 1024;

const TAG_START: u8 = 1;
const TAG_ITEM: u8 = 2;
const TAG_END: u8 = 3;

/// What ends a batch, after its checksum.
const TRAILER: [u8; 4] = *b"FJL\x03";

/// The bytes of an item between its tag and its key: value type, compression, keyspace, key length,
/// value length, stored value length.
const ITEM_HEADER_BYTES: usize = 20;

/// Shortens the newest journal of the database in `path` to its whole batches.
///
/// # Errors
///
/// [`Error::InUse`] when a process has the database open, [`Error::Io`] otherwise.
pub(super) fn cut_torn_end(path: &Path) -> Result<(), Error> {
    let fail = |source: io::Error| io_error("open", path, source.to_string());
    let Some(journal) = newest_journal(path).map_err(fail)? else { return Ok(()) };
    // fjall takes this lock itself a moment later; here it keeps us from cutting a live journal.
    let lock = OpenOptions::new()
        .create(true)
        .truncate(false)
        .write(true)
        .open(path.join(LOCK_FILE))
        .map_err(fail)?;
    match lock.try_lock() {
        Ok(()) => {}
        Err(TryLockError::WouldBlock) => {
            return Err(Error::InUse { path: path.display().to_string() });
        }
        Err(TryLockError::Error(source)) => return Err(fail(source)),
    }
    let file = OpenOptions::new().read(true).write(true).open(journal).map_err(fail)?;
    let size_bytes = file.metadata().map_err(fail)?.len();
    let whole_bytes = measure_whole_batches(&file, size_bytes).map_err(fail)?;
    if whole_bytes < size_bytes {
        file.set_len(whole_bytes).and_then(|()| file.sync_all()).map_err(fail)?;
    }
    Ok(())
}

/// The journal with the highest number, which is in its name.
fn newest_journal(path: &Path) -> io::Result<Option<PathBuf>> {
    let mut newest: Option<(u64, PathBuf)> = None;
    for found in fs::read_dir(path)? {
        let found = found?.path();
        let number = found
            .file_name()
            .and_then(|name| name.to_str()?.strip_suffix(".jnl")?.parse::<u64>().ok());
        if let Some(number) = number
            && newest.as_ref().is_none_or(|(highest, _)| number > *highest)
        {
            newest = Some((number, found));
        }
    }
    Ok(newest.map(|(_, journal)| journal))
}

/// How many bytes from the beginning are whole batches.
pub(super) fn measure_whole_batches(file: &File, size_bytes: u64) -> io::Result<u64> {
    let mut input = Input { reader: BufReader::new(file), rest: size_bytes };
    let mut whole_bytes = 0;
    loop {
        match read_batch(&mut input) {
            Ok(()) => whole_bytes = size_bytes - input.rest,
            Err(Broken::Torn) => return Ok(whole_bytes),
            Err(Broken::Io(source)) => return Err(source),
        }
    }
}

/// Why a batch is not whole.
enum Broken {
    Torn,
    Io(io::Error),
}

/// The rest of a journal.
struct Input<'a> {
    reader: BufReader<&'a File>,
    rest: u64,
}

impl Input<'_> {
    fn take<const N: usize>(&mut self) -> Result<[u8; N], Broken> {
        let mut bytes = [0; N];
        self.fill(&mut bytes)?;
        Ok(bytes)
    }

    fn fill(&mut self, bytes: &mut [u8]) -> Result<(), Broken> {
        self.rest = self.rest.checked_sub(bytes.len() as u64).ok_or(Broken::Torn)?;
        self.reader.read_exact(bytes).map_err(Broken::Io)
    }

    fn hash(&mut self, mut length: u64, hasher: &mut Xxh3) -> Result<(), Broken> {
        if length > self.rest {
            return Err(Broken::Torn);
        }
        let mut chunk = Vec::new();
        while length > 0 {
            let step = length.min(CHUNK_BYTES);
            chunk.resize(usize::try_from(step).unwrap_or(0), 0);
            self.fill(&mut chunk)?;
            hasher.update(&chunk);
            length -= step;
        }
        Ok(())
    }
}

/// Reads one batch: a start with the number of items, the items, an end with their checksum.
fn read_batch(input: &mut Input<'_>) -> Result<(), Broken> {
    let [tag] = input.take()?;
    if tag != TAG_START {
        return Err(Broken::Torn);
    }
    let count = u32::from_le_bytes(input.take()?);
    let _seqno: [u8; 8] = input.take()?;
    let mut hasher = Xxh3::new();
    for _ in 0..count {
        let [tag] = input.take()?;
        if tag != TAG_ITEM {
            return Err(Broken::Torn);
        }
        let header: [u8; ITEM_HEADER_BYTES] = input.take()?;
        hasher.update(&[tag]);
        hasher.update(&header);
        let [.., k0, k1, _, _, _, _, v0, v1, v2, v3] = header;
        let key_bytes = u64::from(u16::from_le_bytes([k0, k1]));
        let value_bytes = u64::from(u32::from_le_bytes([v0, v1, v2, v3]));
        input.hash(key_bytes + value_bytes, &mut hasher)?;
    }
    let [tag] = input.take()?;
    let checksum = u64::from_le_bytes(input.take()?);
    let trailer: [u8; 4] = input.take()?;
    if tag == TAG_END && checksum == hasher.digest() && trailer == TRAILER {
        return Ok(());
    }
    Err(Broken::Torn)
}
