//! The data of the page, and its JSON twin.

use serde::Serialize;

/// What the page shows.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct View {
    /// The version of this document.
    pub(crate) schema: &'static str,
    pub(crate) control_table: String,
    /// The migrations, those that have not ended first.
    pub(crate) migrations: Vec<Listed>,
    /// Number of migrations that are not shown.
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
    /// Whether a command has blocked writers and not released them.
    pub(crate) writers_blocked: bool,
    /// The begin in seconds since 1970.
    pub(crate) begun: Option<i64>,
    /// The differences of the last comparison.
    pub(crate) differences: Option<u64>,
}
