//! A cursor over the rows of all queue files, in key order. A block is read only when one of its
//! rows may be the next row, so a reader of a queue reads few unnecessary blocks, even if there are
//! many files.

use std::io;
use std::ops::Range;

use super::Queue;
use super::file::BlockRows;
use super::removed_rows::RemovedRows;
use crate::engine::OWN_KEYS;

/// The existing rows of a range, in order.
pub(in super::super) struct Rows {
    /// The cursors of all files. The last cursor in the list points to the next row.
    cursors: Vec<Cursor>,
    from: Box<[u8]>,
    to: Box<[u8]>,
    reverse: bool,
}

impl Rows {
    pub(super) fn new(queues: &[Queue], from: &[u8], to: &[u8], reverse: bool) -> io::Result<Self> {
        let mut cursors: Vec<Cursor> =
            queues.iter().filter_map(|queue| Cursor::new(queue, from, to)).collect();
        cursors.sort_unstable_by(|a, b| {
            let order = b.next_key(reverse).cmp(&a.next_key(reverse));
            if reverse { order.reverse() } else { order }
        });
        let mut rows = Self { cursors, from: from.into(), to: to.into(), reverse };
        rows.read_ahead()?;
        Ok(rows)
    }

    /// Returns all rows of these files.
    ///
    /// # Errors
    /// When a file cannot be read.
    pub(super) fn all(queues: &[Queue]) -> io::Result<Self> {
        Self::new(queues, &[], &[OWN_KEYS], false)
    }

    /// Returns the current row: a key and its value. `None` at the end.
    pub(in super::super) fn row(&self) -> Option<(&[u8], &[u8])> {
        self.cursors.last()?.row()
    }

    /// Advances to the next row.
    ///
    /// # Errors
    /// When a file cannot be read.
    pub(in super::super) fn advance(&mut self) -> io::Result<()> {
        if let Some(cursor) = self.cursors.last_mut() {
            cursor.advance();
            self.read_ahead()?;
        }
        Ok(())
    }

    /// Advances until the last cursor of the list points to the next row. Terminates, because every
    /// iteration except the first and the last reads a block or drops a cursor.
    fn read_ahead(&mut self) -> io::Result<()> {
        loop {
            let Some(mut cursor) = self.cursors.pop() else { return Ok(()) };
            if cursor.row().is_none() && !cursor.read(&self.from, &self.to, self.reverse)? {
                continue;
            }
            let key = cursor.next_key(self.reverse);
            let place = self.cursors.partition_point(|other| {
                let other = other.next_key(self.reverse);
                if self.reverse { other <= key } else { other >= key }
            });
            let is_next = place == self.cursors.len();
            self.cursors.insert(place, cursor);
            if is_next {
                return Ok(());
            }
        }
    }
}

/// A cursor over the rows of one file.
struct Cursor {
    queue: Queue,
    /// The blocks that are not read yet.
    blocks: Range<usize>,
    block: Option<ReadBlock>,
}

struct ReadBlock {
    rows: BlockRows,
    /// The rows of the current block that are not visited yet.
    left: Range<usize>,
    first_place: u32,
    reverse: bool,
}

impl Cursor {
    /// Creates a cursor; `None` if the file has no row from `from` to `to`.
    fn new(queue: &Queue, from: &[u8], to: &[u8]) -> Option<Self> {
        let blocks = queue.file.blocks();
        let start = blocks.partition_point(|block| block.last() < from);
        let end = blocks.partition_point(|block| block.first() < to);
        (start < end).then(|| Self { queue: queue.clone(), blocks: start..end, block: None })
    }

    fn row(&self) -> Option<(&[u8], &[u8])> {
        self.block.as_ref()?.row()
    }

    /// Returns the key of the cursor's row. If the row's block is not read yet, returns a bound:
    /// all rows of the cursor are at or after it.
    fn next_key(&self, reverse: bool) -> Option<&[u8]> {
        if let Some((key, _)) = self.row() {
            return Some(key);
        }
        let blocks = self.queue.file.blocks();
        if reverse {
            Some(blocks.get(self.blocks.end.checked_sub(1)?)?.last())
        } else {
            Some(blocks.get(self.blocks.start)?.first())
        }
    }

    fn advance(&mut self) {
        if let Some(block) = &mut self.block {
            block.advance();
            block.skip_removed(&self.queue.removed);
        }
    }

    /// Advances to the next existing row in the range, reading blocks as needed. Returns whether
    /// there is such a row.
    fn read(&mut self, from: &[u8], to: &[u8], reverse: bool) -> io::Result<bool> {
        let Self { queue, blocks, block } = self;
        let file = &queue.file;
        while let Some(index) = if reverse { blocks.next_back() } else { blocks.next() } {
            let Some(next) = file.blocks().get(index) else { break };
            let places = next.places();
            if queue.removed.contains_all(places.start, places.end) {
                continue;
            }
            let rows = file.read(next)?;
            let left = rows.count_below(from)..rows.count_below(to);
            let mut read = ReadBlock { rows, left, first_place: places.start, reverse };
            read.skip_removed(&queue.removed);
            if read.row().is_some() {
                *block = Some(read);
                return Ok(true);
            }
        }
        *block = None;
        Ok(false)
    }
}

impl ReadBlock {
    /// Returns the index of the next row; `None` if no row remains.
    fn next(&self) -> Option<usize> {
        let index = if self.reverse { self.left.end.checked_sub(1)? } else { self.left.start };
        self.left.contains(&index).then_some(index)
    }

    fn row(&self) -> Option<(&[u8], &[u8])> {
        self.rows.row(self.next()?)
    }

    fn advance(&mut self) {
        _ = if self.reverse { self.left.next_back() } else { self.left.next() };
    }

    fn skip_removed(&mut self, removed: &RemovedRows) {
        while let Some(index) = self.next()
            && let Ok(index) = u32::try_from(index)
            && removed.contains(self.first_place.saturating_add(index))
        {
            self.advance();
        }
    }
}
