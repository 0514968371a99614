//! `weir fan-out check`: what is wrong with the rules, or with the tables that they name.
//!
//! Nothing is written.

use std::collections::BTreeMap;

use aws_sdk_dynamodb::Client;
use aws_sdk_dynamodb::types::{KeySchemaElement, KeyType, StreamViewType, TableDescription};
use rules::fan_out::{CopyRule, TableShape, check_tables};
use serde_json::{Value, json};

use crate::exit::Exit;
use crate::load::error_text;
use crate::output::{self, Output, say};

/// What is told of each rule.
const HEADINGS: [&str; 4] = ["rule", "tables", "attributes", "finding"];

/// Checks rules, and with a client their tables.
///
/// # Errors
/// When the endpoint does not answer.
pub(super) async fn run(
    rules: Result<Vec<CopyRule>, String>,
    client: Option<&Client>,
    output: Output,
) -> Result<Exit, String> {
    let rules = match rules {
        Ok(rules) => rules,
        Err(problem) => {
            match output {
                Output::Table => say(&problem),
                // Rules that cannot be read have no names.
                Output::Json | Output::Ndjson => {
                    let row = [Value::Null, Value::Null, Value::Null, json!(problem)];
                    output::rows(output, &HEADINGS, &[row.to_vec()]);
                }
            }
            return Ok(Exit::Differences);
        }
    };
    let mut shapes: BTreeMap<String, Result<TableShape, String>> = BTreeMap::new();
    let (mut rows, mut is_wrong) = (Vec::new(), false);
    for rule in &rules {
        let verdict = match client {
            None => Ok(Vec::new()),
            Some(client) => {
                for table in [&rule.origin, &rule.target] {
                    if !shapes.contains_key(table) {
                        shapes.insert(table.clone(), shape_of(client, table).await);
                    }
                }
                check(rule, &shapes)
            }
        };
        is_wrong |= verdict.is_err();
        rows.push(vec![
            json!(rule.name),
            json!(format!("{} -> {}", rule.origin, rule.target)),
            json!(rule.attributes.len()),
            json!(finding(verdict)),
        ]);
    }
    output::rows(output, &HEADINGS, &rows);
    Ok(if is_wrong { Exit::Differences } else { Exit::Done })
}

/// What is said of a rule: what is wrong with it, or what copies must have besides.
fn finding(verdict: Result<Vec<String>, String>) -> String {
    match verdict {
        Err(wrong) => wrong,
        Ok(advice) if advice.is_empty() => "in order".to_owned(),
        Ok(advice) => format!("in order; {}", advice.join("; ")),
    }
}

fn check(
    rule: &CopyRule,
    shapes: &BTreeMap<String, Result<TableShape, String>>,
) -> Result<Vec<String>, String> {
    let shape = |table: &String| match shapes.get(table) {
        Some(shape) => shape.as_ref().map_err(Clone::clone),
        None => Err(format!("table `{table}` was not looked at")),
    };
    check_tables(rule, shape(&rule.origin)?, shape(&rule.target)?)
}

async fn shape_of(client: &Client, table: &str) -> Result<TableShape, String> {
    let answer = client.describe_table().table_name(table).send().await;
    let answer = answer.map_err(|error| format!("table `{table}`: {}", error_text(&error)))?;
    let described = answer.table.ok_or_else(|| format!("table `{table}` has no description"))?;
    Ok(shape(&described))
}

fn shape(table: &TableDescription) -> TableShape {
    let key_attributes = |schema: &[KeySchemaElement]| -> Vec<String> {
        let mut schema: Vec<_> = schema.iter().collect();
        schema.sort_by_key(|element| element.key_type() != &KeyType::Hash);
        schema.into_iter().map(|element| element.attribute_name().to_owned()).collect()
    };
    let global = table.global_secondary_indexes().iter();
    let global = global.map(|index| (index.index_name(), index.key_schema()));
    let local = table.local_secondary_indexes().iter();
    let local = local.map(|index| (index.index_name(), index.key_schema()));
    let indexes = global.chain(local);
    let indexes =
        indexes.filter_map(|(name, schema)| Some((name?.to_owned(), key_attributes(schema))));
    let view = table.stream_specification().and_then(|stream| stream.stream_view_type());
    TableShape {
        name: table.table_name().unwrap_or_default().to_owned(),
        keys: key_attributes(table.key_schema()),
        has_both_images: view == Some(&StreamViewType::NewAndOldImages),
        indexes: indexes.collect(),
    }
}
