//! Executes a Query also as a PartiQL statement, which must return the same items in the same order.
//!
//! The statement has the conditions of the Query, with another syntax for names and values, so it needs no
//! separate model.

use std::fmt::Write as _;

use model::json::{self, Json};
use model::{AttributeValue, Item};
use proptest::test_runner::TestCaseError;
use server::store::Store;

use super::answer::{call, items, message};
use super::check::same;
use super::expression::Writer;
use super::request::Read;

/// The maximum number of pages of one statement, so that an endless statement fails the test.
const PAGES_MAX: usize = 2000;

/// Converts conditions to the syntax of statements, with `?` for each value and quotes around each name that
/// had a placeholder. Also returns the values in the order of their `?`.
fn converted(condition: &str, writer: &Writer) -> (String, Vec<AttributeValue>) {
    let (mut out, mut values) = (String::new(), Vec::new());
    let mut rest = condition;
    while let Some(at) = rest.find([':', '#']) {
        let (before, sign) = rest.split_at(at);
        let end = sign[1..].find(|c: char| !c.is_alphanumeric() && c != '_');
        let (sign, after) = sign.split_at(end.map_or(sign.len(), |end| end + 1));
        out.push_str(before);
        match writer.values.get(sign) {
            Some(value) => {
                out.push('?');
                values.push(value.clone());
            }
            None => {
                let _ = write!(out, "\"{}\"", writer.names[sign]);
            }
        }
        rest = after;
    }
    (out + rest, values)
}

/// Compares the results of a Query with the results of its statement. `order` is the attribute in `ORDER BY`,
/// and true if the order is ascending.
pub(super) async fn check(
    store: &Store,
    read: &Read,
    table: &str,
    (mut conditions, mut writer): (String, Writer),
    order: (&str, bool),
    expected: &[Item],
) -> Result<(), TestCaseError> {
    if let Some(filter) = &read.filter {
        let _ = write!(conditions, " AND ({})", writer.condition(filter));
    }
    let (conditions, values) = converted(&conditions, &writer);
    let from = match read.index() {
        Some(index) => format!("\"{table}\".\"{}\"", index.name),
        None => format!("\"{table}\""),
    };
    let mut statement = format!("SELECT * FROM {from} WHERE {conditions}");
    if !order.1 {
        let _ = write!(statement, " ORDER BY {} DESC", order.0);
    }
    let mut body = String::from("{\"Statement\":");
    json::write_string(&mut body, &statement);
    body.push_str(",\"Parameters\":[");
    for (position, value) in values.iter().enumerate() {
        body.push_str(if position > 0 { "," } else { "" });
        json::write_attribute_value(&mut body, value);
    }
    body.push(']');
    if let Some(limit) = read.limit {
        let _ = write!(body, ",\"Limit\":{limit}");
    }
    let mut found = Vec::new();
    let mut token = String::new();
    for _ in 0..PAGES_MAX {
        let response = call(store, "ExecuteStatement", &format!("{body}{token}}}")).await;
        if let Some(refusal) = read.refusal() {
            return same(&body, &refusal, &message(&response.body));
        }
        let answer = json::parse(response.body.as_bytes()).unwrap();
        if response.status != 200 {
            return Err(TestCaseError::fail(format!("{body}\nanswered {}", response.body)));
        }
        found.extend(items(&answer, "Items"));
        let Some(next) = answer.get("NextToken").and_then(Json::as_str) else {
            if found == expected {
                return Ok(());
            }
            let text = format!("{body}\nexpected {expected:?}\ngot {found:?}");
            return Err(TestCaseError::fail(text));
        };
        token = format!(",\"NextToken\":\"{next}\"");
    }
    Err(TestCaseError::fail(format!("{body}\nhas no end")))
}
