//! The change of the queue files when a table in memory is flushed: a new file with the table's
//! rows, the rows of other files that the table deletes or replaces, and the files that are no
//! longer needed.
//!
//! Small files are merged into the new file. This keeps the number of files low, because a read may
//! have to search every file.

use std::collections::HashSet;
use std::io;
use std::sync::Arc;

use lsm_tree::{InternalValue, SeqNo};
use partition::mutation::{self, Mutation};

use super::super::folder::Folder;
use super::super::is_full;
use super::file::{BlockRows, FileWriter, QueueFile};
use super::removed_rows::RemovedRows;
use super::{Listing, Queue, Queues, listing};

/// The number of files of similar size that are merged, oldest first. A smaller number rewrites
/// rows more often; a larger number makes readers search more files.
const FILES_TOGETHER: usize = 8;

/// Size classes of files by their existing rows in bytes (inclusive), and the number of files of a
/// class that are merged. A full table in memory becomes a file of about 11 MB, which is in the
/// last class. When there are 2.8 GB of such files, their rows are rewritten once. Larger files are
/// never rewritten. The longest merge during a flush writes 256 MB.
const SIZES: [(u64, usize); 4] = [
    (64 * 1024, FILES_TOGETHER),
    (512 * 1024, FILES_TOGETHER),
    (4 * 1024 * 1024, FILES_TOGETHER),
    (32 * 1024 * 1024, 256),
];

/// A key of a queue, and its value, or `None` if the key was deleted.
pub(super) type QueueRow<'a> = (&'a [u8], Option<&'a [u8]>);

/// A prepared change of the queue files. The change takes effect when the tree stores the rows of
/// [`QueueFlush::rows`].
pub(in super::super) struct QueueFlush {
    /// All files after the change.
    pub(in super::super) queues: Queues,
    listed: Vec<(u64, Option<Listing>)>,
    unused: Vec<Arc<QueueFile>>,
}

impl QueueFlush {
    /// Writes the new file, and syncs it. The rows must be in key order, without duplicate keys.
    ///
    /// # Errors
    /// When a file cannot be read or written.
    pub(in super::super) fn new(
        before: &Queues,
        folder: &Arc<Folder>,
        rows: &[QueueRow<'_>],
    ) -> io::Result<Self> {
        let mut marked = Vec::with_capacity(before.queues.len());
        let mut changed = HashSet::from([before.next]);
        for queue in &before.queues {
            let removed = removed_with(queue, rows)?;
            if removed != queue.removed {
                changed.insert(queue.file.number());
            }
            marked.push(Queue { file: Arc::clone(&queue.file), removed });
        }
        let new_bytes =
            rows.iter().filter_map(|(key, value)| Some(key.len() + value.as_ref()?.len()));
        let new_bytes = u64::try_from(new_bytes.sum::<usize>()).unwrap_or(u64::MAX);
        let live = marked.iter().filter(|queue| queue.live_rows() > 0);
        let sizes = live.map(|queue| (queue.file.number(), queue.live_bytes())).collect::<Vec<_>>();
        let small = files_to_join(&sizes, new_bytes);
        let is_joined =
            |queue: &Queue| queue.live_rows() == 0 || small.contains(&queue.file.number());
        let (joined, kept): (Vec<Queue>, Vec<Queue>) = marked.iter().cloned().partition(is_joined);
        let (new, joined, kept) = match write(folder, before.next, rows, &joined) {
            // The disk is full. Retry without the merge, because that needs less space. The removal of
            // files without live rows may then free some space.
            Err(error) if is_full(&error) && !small.is_empty() => {
                let (removed, kept) =
                    marked.into_iter().partition::<Vec<_>, _>(|queue| queue.live_rows() == 0);
                (write(folder, before.next, rows, &removed)?, removed, kept)
            }
            new => (new?, joined, kept),
        };
        let new = new.map(|file| Queue { file: Arc::new(file), removed: RemovedRows::default() });
        let queues: Vec<Queue> = kept.into_iter().chain(new).collect();
        let changed = queues.iter().filter(|queue| changed.contains(&queue.file.number()));
        let mut listed: Vec<(u64, Option<Listing>)> =
            changed.map(|queue| (queue.file.number(), Some(queue.listing()))).collect();
        let is_kept = mutation::is_active(Mutation::KeepJoinedQueue);
        let removed = joined.iter().filter(|_| !is_kept);
        listed.extend(removed.map(|queue| (queue.file.number(), None)));
        listed.sort_unstable_by_key(|(number, _)| *number);
        let unused = joined.into_iter().map(|queue| queue.file).collect();
        let next = before.next + 1;
        Ok(Self { queues: Queues { queues, next }, listed, unused })
    }

    /// Returns the numbers of the files whose listings change, with their new listings; `None` if
    /// the listing is deleted.
    #[cfg(test)]
    pub(super) fn listed(&self) -> &[(u64, Option<Listing>)] {
        &self.listed
    }

    /// Returns the rows that the tree must store, in key order.
    ///
    /// # Errors
    /// When a listing cannot be encoded.
    pub(in super::super) fn rows(&self, sequence: SeqNo) -> io::Result<Vec<InternalValue>> {
        let row = |(number, listing): &(u64, Option<Listing>)| {
            listing::row(*number, listing.as_ref(), sequence)
        };
        self.listed.iter().map(row).collect()
    }

    /// Completes the change after the tree has stored the rows: files that are no longer listed are
    /// removed when their last user drops them.
    pub(in super::super) fn finish(self) -> Queues {
        if !mutation::is_active(Mutation::KeepJoinedQueue) {
            self.unused.iter().for_each(|file| file.remove_when_unused());
        }
        self.queues
    }
}

/// Returns the rows of a file that these keys replace or delete. New keys of a queue sort after the
/// keys of the file, so only a few keys are looked up and a few blocks are read.
fn removed_with(queue: &Queue, rows: &[QueueRow<'_>]) -> io::Result<RemovedRows> {
    let mut places = Vec::new();
    let (mut blocks, mut rest) = (queue.file.blocks(), rows);
    while let Some((key, _)) = rest.first() {
        let (_, left) = blocks.split_at(blocks.partition_point(|block| block.last() < *key));
        let Some((block, left)) = left.split_first() else { break };
        blocks = left;
        let (_, left) = rest.split_at(rest.partition_point(|(key, _)| *key < block.first()));
        let (inside, left) = left.split_at(left.partition_point(|(key, _)| *key <= block.last()));
        rest = left;
        let all = block.places();
        if inside.is_empty() || queue.removed.contains_all(all.start, all.end) {
            continue;
        }
        let found = queue.file.read(block)?;
        let in_block = indices_of(inside, &found);
        places
            .extend(in_block.filter_map(|index| all.start.checked_add(u32::try_from(index).ok()?)));
    }
    Ok(if places.is_empty() { queue.removed.clone() } else { queue.removed.with(places) })
}

/// Returns the indexes of the rows of a block that have one of these keys. Uses a search to skip
/// rows between two keys, and keys between two rows.
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

/// Returns the numbers of the files to merge with the new file: some files of the smallest size
/// class that has enough files, or none. `files` contains the number and the size of each file.
pub(super) fn files_to_join(files: &[(u64, u64)], new_bytes: u64) -> Vec<u64> {
    let size = |bytes: u64| SIZES.iter().position(|(most, _)| bytes <= *most);
    for (place, (_, many)) in SIZES.iter().enumerate() {
        let of_size = files.iter().filter(|(_, bytes)| size(*bytes) == Some(place));
        let mut numbers: Vec<u64> = of_size.map(|(number, _)| *number).collect();
        let new = usize::from(new_bytes > 0 && size(new_bytes) == Some(place));
        if numbers.len() + new >= *many {
            numbers.sort_unstable();
            numbers.truncate(FILES_TOGETHER);
            return numbers;
        }
    }
    Vec::new()
}

/// Writes a file with the rows of the table in memory and the remaining rows of other files.
fn write(
    folder: &Arc<Folder>,
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
    // Terminates, because each iteration except the last writes a row.
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
            return file.finish();
        }
    }
}
