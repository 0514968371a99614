//! The data of the page of all tables.

use serde::Serialize;

use crate::table_shape::TableShape;

/// The data of the page of all tables.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct View {
    /// The name and version of the JSON schema.
    pub(crate) schema: &'static str,
    /// The tables of this page, by name.
    pub(crate) tables: Vec<TableShape>,
    /// The name after which this page begins.
    pub(crate) after: Option<String>,
    /// The name after which the next page begins; `None` on the last page.
    pub(crate) next: Option<String>,
}
