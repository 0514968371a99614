//! The data of the page of a table: the table, the form, the request, and the items of one page.

use std::collections::BTreeMap;

use serde::Serialize;

use super::code::Code;
use super::form::Form;
use super::request::{Operation, Problem};
use crate::item_json::ItemJson;
use crate::table_shape::TableShape;

/// The data of the page of a table.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct View {
    /// The name and version of the JSON schema.
    pub(crate) schema: &'static str,
    pub(crate) table: TableShape,
    /// The form as the browser sent it.
    pub(crate) form: Form,
    /// The problem of the form or the request; if there is one, `result` is `None`.
    pub(crate) problem: Option<Problem>,
    /// The request that the form describes.
    pub(crate) asked: Option<Asked>,
    /// The items that the request returned.
    pub(crate) result: Option<Items>,
    /// Whether actions may create, change or delete items.
    pub(crate) allow_writes: bool,
}

/// The request of the form, as JSON and as code for other programs.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct Asked {
    /// Query or Scan.
    pub(crate) operation: Operation,
    /// The body of the HTTP request.
    pub(crate) request: serde_json::Value,
    /// The request as code.
    pub(crate) code: Code,
}

/// The items of one page.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub(crate) struct Items {
    /// The items, in the order of the store.
    pub(crate) items: Vec<ItemJson>,
    /// The number of items that the request read. The filter may have removed some of them.
    pub(crate) read: i64,
    /// The capacity units that the request consumed.
    pub(crate) capacity: Capacity,
    /// The key after which the next page begins; `None` on the last page.
    pub(crate) next: Option<ItemJson>,
}

/// The read capacity units of a request.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub(crate) struct Capacity {
    /// The total read units.
    pub(crate) total: f64,
    /// The read units of the table.
    pub(crate) table: f64,
    /// The read units of each index.
    pub(crate) indexes: BTreeMap<String, f64>,
}
