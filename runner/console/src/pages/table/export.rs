//! The items of the page as a file: DynamoDB JSON lines, or CSV.
//!
//! The export sends the same request as the page. `weir load` reads both formats, but only DynamoDB
//! JSON preserves all types.

use std::fmt::Write as _;

use model::{AttributeValue, Item, json};

use super::columns::columns;
use super::form::Form;
use super::request::Request;
use super::view::Items;
use super::{Failure, run};
use crate::context::Context;
use crate::error::PageError;
use crate::query::Query;
use crate::table_shape::{Keys, TableShape};

/// The format of an exported file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Export {
    /// JSON lines: each line is an item as DynamoDB JSON.
    JsonLines,
    /// CSV: a header with the names of the attributes, and a line for each item.
    Csv,
}

/// Returns the items that the page with the same query string shows, as the content of a file.
///
/// # Errors
/// The form is invalid, the table does not exist, or the store does not answer.
pub(crate) async fn export(
    context: &Context,
    name: &str,
    query: &Query,
    format: Export,
) -> Result<String, PageError> {
    let table = TableShape::read(context.dynamodb(), name).await?;
    let wrong = |problem: super::Problem| {
        PageError::bad_input(&problem.place, problem.what, problem.instead)
    };
    let request = Request::of(&Form::of(query), &table).map_err(wrong)?;
    let items = run(context.dynamodb(), &request).await.map_err(|failure| match failure {
        Failure::Refused(problem) => wrong(problem),
        Failure::Page(error) => error,
    })?;
    match format {
        Export::JsonLines => Ok(json_lines(&items)),
        Export::Csv => {
            csv(&items, &table.keys).map_err(|error| PageError::Store(error.to_string()))
        }
    }
}

fn json_lines(items: &Items) -> String {
    let mut out = String::new();
    for item in &items.items {
        let _ = writeln!(out, "{{\"Item\":{}}}", item.text());
    }
    out
}

fn csv(items: &Items, keys: &Keys) -> Result<String, csv::Error> {
    let columns = columns(&items.items, &[keys]);
    let mut writer = csv::Writer::from_writer(Vec::new());
    if !columns.is_empty() {
        writer.write_record(&columns)?;
    }
    for item in &items.items {
        writer.write_record(columns.iter().map(|column| field(&item.0, column)))?;
    }
    let bytes = writer.into_inner().map_err(|error| csv::Error::from(error.into_error()))?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// Returns a CSV field: a scalar as a plain string, any other value as DynamoDB JSON. The field is
/// empty if the item lacks the attribute.
fn field(item: &Item, column: &str) -> String {
    match item.get(column) {
        None => String::new(),
        Some(AttributeValue::S(text)) => text.clone(),
        Some(AttributeValue::N(number)) => number.to_string(),
        Some(AttributeValue::Bool(flag)) => flag.to_string(),
        Some(value) => {
            let mut out = String::new();
            json::write_attribute_value(&mut out, value);
            out
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::item_json::ItemJson;

    fn items(texts: &[&str]) -> Items {
        let items = texts.iter().map(|text| ItemJson(json::item_from_str(text).unwrap()));
        Items { items: items.collect(), ..Items::default() }
    }

    #[test]
    fn a_file_has_the_items_of_the_page() {
        let shown = items(&[
            r#"{"p":{"S":"a,\"b\"\nc"},"n":{"N":"1.50"},"t":{"BOOL":true}}"#,
            r#"{"p":{"S":"<script>"},"m":{"M":{"x":{"SS":["é"]}}},"b":{"B":"AAE="}}"#,
        ]);
        let lines = "{\"Item\":{\"n\":{\"N\":\"1.5\"},\"p\":{\"S\":\"a,\\\"b\\\"\\nc\"},\"t\":{\"BOOL\":true}}}\n\
                     {\"Item\":{\"b\":{\"B\":\"AAE=\"},\"m\":{\"M\":{\"x\":{\"SS\":[\"é\"]}}},\"p\":{\"S\":\"<script>\"}}}\n";
        assert_eq!(json_lines(&shown), lines);
        let expected = "p,b,m,n,t\n\
                        \"a,\"\"b\"\"\nc\",,,1.5,true\n\
                        <script>,\"{\"\"B\"\":\"\"AAE=\"\"}\",\"{\"\"M\"\":{\"\"x\"\":{\"\"SS\"\":[\"\"é\"\"]}}}\",,\n";
        assert_eq!(csv(&shown, &Keys::default()).unwrap(), expected);
        assert_eq!(csv(&items(&[]), &Keys::default()).unwrap(), "");
    }
}
