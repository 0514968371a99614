//! What the page of a table shows: the table, the form, the request, and the items of one page.

use std::collections::BTreeMap;

use serde::Serialize;

use super::code::Code;
use super::form::Form;
use super::request::{Operation, Problem};
use crate::item_json::ItemJson;
use crate::table_shape::TableShape;

/// The page of a table.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct View {
    /// The version of this form.
    pub(crate) schema: &'static str,
    pub(crate) table: TableShape,
    /// The form as it was sent.
    pub(crate) form: Form,
    /// What is wrong with the form or the request; there is no result then.
    pub(crate) problem: Option<Problem>,
    /// The request that the form describes.
    pub(crate) asked: Option<Asked>,
    /// The items.
    pub(crate) result: Option<Items>,
    /// Whether an item can be created, edited or deleted.
    pub(crate) allow_writes: bool,
}

/// The request of the form, in the forms in which it can be used elsewhere.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct Asked {
    /// Query or Scan.
    pub(crate) operation: Operation,
    /// The body of the request in DynamoDB's protocol.
    pub(crate) request: serde_json::Value,
    /// The request as code.
    pub(crate) code: Code,
}

/// The items of one page.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub(crate) struct Items {
    /// The items, in the order of the store.
    pub(crate) items: Vec<ItemJson>,
    /// How many items the request read. The filter may have removed some of them.
    pub(crate) read: i64,
    /// The capacity units that it consumed.
    pub(crate) capacity: Capacity,
    /// The key after which the next page begins; `None` on the last page.
    pub(crate) next: Option<ItemJson>,
}

/// The read capacity units of a request.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub(crate) struct Capacity {
    /// The sum.
    pub(crate) total: f64,
    /// Those of the table.
    pub(crate) table: f64,
    /// Those of each index.
    pub(crate) indexes: BTreeMap<String, f64>,
}
