//! What a table in memory makes of the files when it is written to disk: a new file with its rows,
//! other rows that are gone, and files that are of no use any more.
//!
//! Small files are written again into the new one, so that there are never many of them: one that is
//! read has to be looked for in each.

use std::collections::HashMap;
use std::io;
use std::path::Path;
use std::sync::Arc;

use lsm_tree::{InternalValue, SeqNo};

use super::file::{BlockRows, FileWriter, QueueFile};
use super::gone::Gone;
use super::{Listing, Queue, Queues, listing};

/// So many files of about one size become one. With fewer a row is written again more often, with more
/// a reader has more files to look into.
const FILES_TOGETHER: usize = 8;
/// Files of up to so many bytes are of the first size; each size is eight times the one before it.
const FIRST_SIZE: u64 = 64 * 1024;
const SIZE_FACTOR: u64 = 8;
/// Files of this many sizes are written again, those that are larger (4 MB) never: they go when all of
/// their rows have gone.
const SIZES: u32 = 3;

/// A key of a queue, and its value or that it was deleted.
pub(super) type QueueRow<'a> = (&'a [u8], Option<&'a [u8]>);

/// See the module. Nothing has changed until the tree has what it lists.
pub(in super::super) struct Renewal {
    /// All files from then on.
    pub(in super::super) queues: Queues,
    listed: Vec<(u64, Option<Listing>)>,
    of_no_use: Vec<Arc<QueueFile>>,
}

impl Renewal {
    /// Writes the new file, and syncs it. The rows are in the order of their keys, no key twice.
    ///
    /// # Errors
    /// When a file cannot be read or written.
    pub(in super::super) fn new(
        before: &Queues,
        folder: &Path,
        rows: &[QueueRow<'_>],
    ) -> io::Result<Self> {
        let mut marked = Vec::with_capacity(before.queues.len());
        for queue in &before.queues {
            let gone = gone_with(queue, rows)?;
            marked.push(Queue { file: Arc::clone(&queue.file), gone });
        }
        let new_bytes =
            rows.iter().filter_map(|(key, value)| Some(key.len() + value.as_ref()?.len()));
        let new_bytes = u64::try_from(new_bytes.sum::<usize>()).unwrap_or(u64::MAX);
        let small = sizes_to_join(&marked, new_bytes);
        let (joined, kept): (Vec<Queue>, Vec<Queue>) = marked.into_iter().partition(|queue| {
            queue.live_rows() == 0
                || size(queue.live_bytes()).is_some_and(|size| small.contains(&size))
        });
        let new = write(folder, before.next, rows, &joined)?;
        let new = new.map(|file| Queue { file: Arc::new(file), gone: Gone::default() });
        let before_kept: HashMap<u64, &Queue> =
            before.queues.iter().map(|queue| (queue.file.number(), queue)).collect();
        let has_changed = |queue: &&Queue| {
            before_kept.get(&queue.file.number()).is_none_or(|known| known.gone != queue.gone)
        };
        let queues: Vec<Queue> = kept.into_iter().chain(new).collect();
        let changed = queues.iter().filter(has_changed);
        let mut listed: Vec<(u64, Option<Listing>)> =
            changed.map(|queue| (queue.file.number(), Some(queue.listing()))).collect();
        listed.extend(joined.iter().map(|queue| (queue.file.number(), None)));
        listed.sort_unstable_by_key(|(number, _)| *number);
        let of_no_use = joined.into_iter().map(|queue| queue.file).collect();
        let next = before.next + 1;
        Ok(Self { queues: Queues { queues, next }, listed, of_no_use })
    }

    /// The files of which the tree has to list something else, or nothing any more.
    #[cfg(test)]
    pub(super) fn listed(&self) -> &[(u64, Option<Listing>)] {
        &self.listed
    }

    /// What the tree has to list from then on, in the order of its keys.
    ///
    /// # Errors
    /// When it cannot be told.
    pub(in super::super) fn rows(&self, sequence: SeqNo) -> io::Result<Vec<InternalValue>> {
        let row = |(number, listing): &(u64, Option<Listing>)| {
            listing::row(*number, listing.as_ref(), sequence)
        };
        self.listed.iter().map(row).collect()
    }

    /// When the tree has that: what it no longer lists goes with its last reader.
    pub(in super::super) fn finish(self) -> Queues {
        self.of_no_use.iter().for_each(|file| file.is_of_no_use());
        self.queues
    }
}

/// Which of a file's rows are gone when these keys have other values, or none. Keys of queues that are
/// new are behind those of the file, so few of them and few blocks are looked at.
fn gone_with(queue: &Queue, rows: &[QueueRow<'_>]) -> io::Result<Gone> {
    let (mut places, mut reader) = (Vec::new(), None);
    let (mut blocks, mut rest) = (queue.file.blocks(), rows);
    while let Some((key, _)) = rest.first() {
        let (_, left) = blocks.split_at(blocks.partition_point(|block| block.last() < *key));
        let Some((block, left)) = left.split_first() else { break };
        blocks = left;
        let (_, left) = rest.split_at(rest.partition_point(|(key, _)| *key < block.first()));
        let (inside, left) = left.split_at(left.partition_point(|(key, _)| *key <= block.last()));
        rest = left;
        let all = block.places();
        if inside.is_empty() || queue.gone.contains_all(all.start, all.end) {
            continue;
        }
        let reader = match &mut reader {
            Some(reader) => reader,
            None => reader.insert(queue.file.reader()?),
        };
        let found = queue.file.read(reader, block)?;
        let in_block = indices_of(inside, &found);
        places
            .extend(in_block.filter_map(|index| all.start.checked_add(u32::try_from(index).ok()?)));
    }
    Ok(if places.is_empty() { queue.gone.clone() } else { queue.gone.with(places) })
}

/// Which rows of a block have one of these keys. What is between two keys of either is passed over.
fn indices_of<'a>(
    mut keys: &'a [QueueRow<'_>],
    block: &'a BlockRows,
) -> impl Iterator<Item = usize> + 'a {
    std::iter::from_fn(move || {
        while let Some((key, _)) = keys.first() {
            let index = block.count_below(key);
            let (found, _) = block.row(index)?;
            let is_it = found == *key;
            let next = keys.partition_point(|(key, _)| *key < found) + usize::from(is_it);
            keys = keys.get(next..)?;
            if is_it {
                return Some(index);
            }
        }
        None
    })
}

/// Of which size a file is; `None` if it is never written again.
fn size(bytes: u64) -> Option<u32> {
    (0..SIZES).find(|size| bytes <= FIRST_SIZE.saturating_mul(SIZE_FACTOR.saturating_pow(*size)))
}

/// The sizes of which there are so many files that they become one.
fn sizes_to_join(queues: &[Queue], new_bytes: u64) -> Vec<u32> {
    let live = queues.iter().filter(|queue| queue.live_rows() > 0);
    let bytes = live.map(Queue::live_bytes).chain((new_bytes > 0).then_some(new_bytes));
    let sizes: Vec<u32> = bytes.filter_map(size).collect();
    let count = |wanted: &u32| sizes.iter().filter(|size| *size == wanted).count();
    (0..SIZES).filter(|size| count(size) >= FILES_TOGETHER).collect()
}

/// Writes a file with the rows of the table in memory and those that are left of other files.
fn write(
    folder: &Path,
    number: u64,
    rows: &[QueueRow<'_>],
    joined: &[Queue],
) -> io::Result<Option<QueueFile>> {
    let mut put = rows.iter().filter_map(|(key, value)| Some((*key, (*value)?))).peekable();
    let mut left = super::Rows::all(joined)?;
    if put.peek().is_none() && left.row().is_none() {
        return Ok(None);
    }
    let mut file = FileWriter::new(folder, number)?;
    loop {
        let is_left_first = match (left.row(), put.peek()) {
            (Some((key, _)), Some((other, _))) => key < *other,
            (Some(_), None) => true,
            (None, _) => false,
        };
        if is_left_first && let Some((key, value)) = left.row() {
            file.write(key, value)?;
            left.advance()?;
        } else if let Some((key, value)) = put.next() {
            file.write(key, value)?;
        } else {
            return file.finish(folder);
        }
    }
}
