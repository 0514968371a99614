//! The journal: what happened to each stream record on its way to the functions.
//!
//! `weir up` appends what its mappings report; `weir streams explain` reads it, also when nothing
//! runs. It is a bounded memory for people: no mapping depends on it, and a line that cannot be
//! written is missing and nothing else. The format is in docs/formats/journal.md.

mod entry;
mod history;
mod reader;
mod watcher;
mod writer;

#[cfg(test)]
mod tests;

pub use self::entry::{Entry, FORMAT, Line, Messages, RecordName};
pub use self::history::{
    Attempt, End, History, MappingFacts, MappingHistory, PassedOver, history_of, is_between,
};
pub use self::reader::{JournalError, Reader, newest_record, records_between};
pub use self::watcher::MappingJournal;
pub use self::writer::{Journal, SEGMENT_BYTES_MAX, SEGMENTS_MAX};
