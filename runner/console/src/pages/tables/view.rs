//! What the page of all tables shows.

use serde::Serialize;

use crate::table_shape::TableShape;

/// The page of all tables.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct View {
    /// The version of this form.
    pub(crate) schema: &'static str,
    /// The tables of this page, by name.
    pub(crate) tables: Vec<TableShape>,
    /// The name after which this page begins.
    pub(crate) after: Option<String>,
    /// The name after which the next page begins; `None` on the last page.
    pub(crate) next: Option<String>,
}
