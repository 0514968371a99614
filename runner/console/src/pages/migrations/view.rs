//! The data of the page `migrations`, which is served as HTML and as JSON.

use serde::Serialize;

/// The data of the page Migrations.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct View {
    /// The name and version of the JSON schema.
    pub(crate) schema: &'static str,
    pub(crate) control_table: String,
    /// The migrations. Those that have not ended come first.
    pub(crate) migrations: Vec<Listed>,
    /// The number of migrations that are not shown.
    pub(crate) left_out: usize,
}

/// A migration in the list.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Listed {
    pub(crate) name: String,
    pub(crate) phase: &'static str,
    /// Whether the backfill is paused.
    pub(crate) paused: bool,
    /// Whether the migration has ended.
    pub(crate) ended: bool,
    /// Whether a command has blocked writers and has not unblocked them.
    pub(crate) writers_blocked: bool,
    /// The start time, in seconds since 1970.
    pub(crate) begun: Option<i64>,
    /// The number of differences between targets and transformed sources in the last comparison.
    pub(crate) differences: Option<u64>,
}
