//! The data of the page `archive`, which is served as HTML and as JSON.

use serde::Serialize;
use serde_json::value::RawValue;

use crate::tasks::{Task, TaskState};

/// The data of the page Archive.
#[derive(Clone, Debug, Default, Serialize)]
pub(crate) struct View {
    /// The name and version of the JSON schema.
    pub(crate) schema: &'static str,
    /// The address of the archive; `None` if there is none.
    pub(crate) location: Option<String>,
    /// The reason why there is no archive.
    pub(crate) nothing: Option<String>,
    /// The bucket that the query names.
    pub(crate) bucket: Option<String>,
    /// The tables of the archive.
    pub(crate) tables: Vec<String>,
    /// The table that the query names.
    pub(crate) table: Option<String>,
    /// The days, newest first.
    pub(crate) days: Vec<Day>,
    /// The number of days that are newer than the shown days.
    pub(crate) skipped: usize,
    /// The number of days that are older than the shown days.
    pub(crate) left_out: usize,
    /// The reasons why objects cannot be read.
    pub(crate) damaged: Vec<String>,
    /// The first rows of the day that the query names.
    pub(crate) rows: Option<Rows>,
    /// The preview of a restore.
    pub(crate) restore: Option<Restore>,
    /// The preview of an erasure.
    pub(crate) erasure: Option<Erasure>,
    /// The last tasks that buttons have started, newest first.
    pub(crate) tasks: Vec<Task>,
}

impl View {
    /// Returns whether a task is running, so that the page must update itself.
    pub(crate) fn is_running(&self) -> bool {
        self.tasks.iter().any(|task| task.state == TaskState::Running)
    }
}

/// One day of one table.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Day {
    pub(crate) table: String,
    /// The UTC day.
    pub(crate) day: String,
    /// The number of the day's objects in the archive.
    pub(crate) parts: u64,
    pub(crate) bytes: u64,
    /// The number of the day's rows; `None` if the page did not read it.
    pub(crate) rows: Option<u64>,
    /// The number of objects that cannot be read.
    pub(crate) damaged_parts: u64,
    /// The time of the day's first delete.
    pub(crate) first_deleted_at: Option<String>,
    /// The time of the day's last delete.
    pub(crate) last_deleted_at: Option<String>,
}

/// The first rows of a day.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Rows {
    pub(crate) day: String,
    pub(crate) rows: Vec<Row>,
    /// Whether the day has further rows.
    pub(crate) has_more: bool,
}

/// A row.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Row {
    /// The time of the delete.
    pub(crate) deleted_at: String,
    /// The actor that deleted the item, such as TTL.
    pub(crate) deleted_by: String,
    pub(crate) columns: Box<RawValue>,
}

/// The preview of a restore.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Restore {
    /// The fields of the form.
    pub(crate) form: RestoreForm,
    /// The counts of the preview as `weir archive restore --dry-run` writes them.
    pub(crate) counts: Option<Box<RawValue>>,
    /// Messages of the preview.
    pub(crate) notes: Vec<String>,
    /// The reason why there is no preview.
    pub(crate) problem: Option<String>,
    /// Whether the page has a button that executes the action.
    pub(crate) button: bool,
    /// The command that executes the action.
    pub(crate) command: String,
}

/// The fields of the form of a restore.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub(crate) struct RestoreForm {
    pub(crate) table: String,
    /// The key of the items to restore.
    pub(crate) key: Option<String>,
    pub(crate) condition: Option<String>,
    /// The UTC day of the deletes.
    pub(crate) day: Option<String>,
    /// The time up to which deletes are included.
    pub(crate) as_of: Option<String>,
    /// Whether all items are selected.
    pub(crate) all: bool,
    /// The time to live of restored items: `strip`, or seconds.
    pub(crate) ttl: String,
}

/// The preview of an erasure.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Erasure {
    /// The fields of the form.
    pub(crate) form: EraseForm,
    pub(crate) rows: Option<usize>,
    /// The number of objects that contain the rows.
    pub(crate) objects: Option<usize>,
    /// The rows that would be erased, or the reason why there is no preview.
    pub(crate) text: String,
    /// Whether the page has a button that executes the action.
    pub(crate) button: bool,
    /// The command that executes the action.
    pub(crate) command: String,
}

/// The fields of the form of an erasure.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub(crate) struct EraseForm {
    pub(crate) table: String,
    /// The attributes and values that select the rows.
    pub(crate) equals: Option<String>,
    /// The string attribute and the prefix that select the rows.
    pub(crate) begins_with: Option<String>,
}
