//! The journal: the events of each stream record on its way to the functions.
//!
//! `weir up` appends the reports of its mappings. `weir streams explain` reads them, even when no store
//! is running. The journal is bounded and only for diagnosis: no mapping depends on it, and a failed
//! write only leaves a gap. `docs/formats/journal.md` has the format.

mod batch;
mod entry;
mod failing;
mod history;
mod line_text;
mod reader;
mod record_filter;
mod watcher;
mod writer;

#[cfg(test)]
mod tests;

pub use self::entry::{Entry, FORMAT, Line, Messages, RecordName};
pub use self::failing::{Failing, failing};
pub use self::history::{
    Attempt, End, FilterRejection, History, MappingFacts, MappingHistory, histories_of, history_of,
    is_between,
};
pub use self::reader::{JournalError, Reader, newest_record, records_between};
pub use self::watcher::MappingJournal;
pub use self::writer::{Journal, SEGMENT_BYTES_MAX, SEGMENTS_MAX};
