//! Parsing of the example items, which are DynamoDB JSON, with their positions in the file.

use std::collections::BTreeMap;

use model::json::item_from_str;
use model::{AttributeType, AttributeValue, Item};
use serde_json::{Map, Value};
use template::Span;
use template::diagnostic::{Findings, listed, similar};
use template::document::{Entry, Kind, Node};

use crate::data_model::{DataModel, Place, Table};
use crate::reader::{list, shape};

/// The maximum size of an item in bytes. Source: DynamoDB developer guide, "Quotas".
const ITEM_BYTES_MAX: usize = 409_600;
/// An example of an attribute value with its type, for messages.
const TYPED: &str = "{\"S\": \"value\"}";

/// Reads the items of a table into the model.
pub(super) fn read(model: &mut DataModel, entry: &Entry, findings: &Findings<'_>) {
    let Some((_, table)) = model.table(&entry.key) else {
        report_unknown_table(model, &entry.key, entry.key_at, findings);
        return;
    };
    let (mut items, mut keys) = (Vec::new(), BTreeMap::new());
    for (at, node) in list(Some(&entry.value)).iter().enumerate() {
        let Some(node) = node.get("PutRequest").and_then(|request| request.get("Item")) else {
            continue;
        };
        let Ok(item) = item(node, findings) else { continue };
        check_key(table, &item, node, findings);
        let key: Vec<_> = table.key().iter().map(|name| item.get(*name).map(plain)).collect();
        if let Some(first) = keys.insert(key, node.at.line) {
            let message = format!("this item has the same key as the item in line {first}");
            findings.error(node.at, message, "change its key, or remove one of the two items");
        }
        items.push((item, Place::Item(entry.key.clone(), at), node.at));
    }
    for (item, place, at) in items {
        model.places.insert(place, at);
        model.items.entry(entry.key.clone()).or_default().push(item);
    }
}

/// Returns a value as DynamoDB JSON.
fn plain(value: &AttributeValue) -> String {
    let mut text = String::new();
    model::json::write_attribute_value(&mut text, value);
    text
}

/// Reports the name of a table that does not exist in the model.
pub(super) fn report_unknown_table(
    model: &DataModel,
    name: &str,
    at: Span,
    findings: &Findings<'_>,
) {
    let known = || model.tables.iter().map(|table| table.table_name.as_str());
    let help = match similar(name, known()) {
        Some(meant) => format!("did you mean `{meant}`?"),
        None => format!("add it to `tables`, or write {}", listed(known())),
    };
    findings.error(at, format!("there is no table `{name}`"), help);
}

/// Proof that a mistake was reported, so that no item is omitted without a message.
struct Reported(());

/// Reports a mistake, and returns the proof.
fn reported(
    at: Span,
    message: impl Into<String>,
    help: impl Into<String>,
    findings: &Findings<'_>,
) -> Reported {
    findings.error(at, message, help);
    Reported(())
}

/// Parses an item, and reports its mistakes.
fn item(node: &Node, findings: &Findings<'_>) -> Result<Item, Reported> {
    let Kind::Map(_) = &node.kind else {
        let message = format!("expected an item, found {}", node.description());
        return Err(reported(node.at, message, format!("write {{\"pk\": {TYPED}}}"), findings));
    };
    let values = attributes(node, findings)?;
    match item_from_str(&Value::Object(values.clone()).to_string()) {
        Ok(item) if item.size() > ITEM_BYTES_MAX => {
            let message = format!(
                "this item has {} bytes, but at most {ITEM_BYTES_MAX} are allowed",
                item.size()
            );
            let help = "keep large values in S3, or split the item";
            Err(reported(node.at, message, help, findings))
        }
        Ok(item) => Ok(item),
        Err(error) => {
            let at = invalid_value(node, &values).unwrap_or(node.at);
            Err(reported(at, format!("invalid value: {error}"), "correct the value", findings))
        }
    }
}

/// Returns the position of the first attribute whose value is invalid on its own.
fn invalid_value(node: &Node, values: &Map<String, Value>) -> Option<Span> {
    let is_invalid = |entry: &&Entry| {
        let value = values.get(&entry.key).map(|value| (entry.key.clone(), value.clone()));
        item_from_str(&Value::Object(value.into_iter().collect()).to_string()).is_err()
    };
    node.entries().iter().find(is_invalid).map(|entry| entry.value.at)
}

/// Parses the members of a map of typed values.
fn attributes(node: &Node, findings: &Findings<'_>) -> Result<Map<String, Value>, Reported> {
    // Parse all members before returning an error, so that all mistakes are reported.
    let members: Vec<_> = node
        .entries()
        .iter()
        .map(|entry| Ok((entry.key.clone(), typed(&entry.value, &entry.key, findings)?)))
        .collect();
    members.into_iter().collect()
}

/// Parses a typed value such as `{"S": "text"}`, and returns it as JSON.
fn typed(node: &Node, name: &str, findings: &Findings<'_>) -> Result<Value, Reported> {
    let wrong = |at, message: String, help: String| reported(at, message, help, findings);
    let [entry] = node.entries() else {
        let shown = node.as_text().map_or_else(|| "…".to_owned(), |text| format!("\"{text}\""));
        let guess =
            if node.as_text().is_some_and(|text| text.parse::<f64>().is_ok()) { "N" } else { "S" };
        let help = format!("write \"{name}\": {{\"{guess}\": {shown}}}");
        return Err(wrong(node.at, format!("the value of `{name}` has no type"), help));
    };
    let types = || AttributeType::ALL.iter().map(|kind| kind.descriptor());
    let Some(kind) = AttributeType::from_descriptor(&entry.key) else {
        let help = format!("write one of {}", listed(types()));
        return Err(wrong(entry.key_at, format!("`{}` is not a type", entry.key), help));
    };
    let (value, at) = (&entry.value, entry.value.at);
    let must_be = |wanted: &str, help: String| {
        wrong(at, format!("the value of `{name}` must be {wanted}"), help)
    };
    let members = |example: &str| match &value.kind {
        Kind::List(members) => Ok(members),
        _ => Err(must_be("a list", format!("write {example}"))),
    };
    let value = match kind {
        AttributeType::S | AttributeType::N | AttributeType::B => {
            let text = value.as_text().ok_or_else(|| {
                let wanted = format!("a string, not {}", value.description());
                must_be(&wanted, format!("write {{\"{}\": \"…\"}}", entry.key))
            });
            Value::from(text?)
        }
        AttributeType::Bool | AttributeType::Null => {
            let help = || format!("write {{\"{}\": true}}", entry.key);
            Value::Bool(shape::flag(value).ok_or_else(|| must_be("true or false", help()))?)
        }
        AttributeType::M => match &value.kind {
            Kind::Map(_) => Value::Object(attributes(value, findings)?),
            _ => {
                let help = format!("write {{\"M\": {{\"{name}\": {TYPED}}}}}");
                return Err(must_be("an object", help));
            }
        },
        AttributeType::L => {
            let members = members(&format!("{{\"L\": [{TYPED}]}}"))?;
            let members: Vec<_> =
                members.iter().map(|member| typed(member, name, findings)).collect();
            members.into_iter().collect::<Result<Value, _>>()?
        }
        AttributeType::Ss | AttributeType::Ns | AttributeType::Bs => {
            let example = format!("{{\"{}\": [\"…\"]}}", entry.key);
            let member = |member: &Node| match member.as_text() {
                Some(text) => Ok(Value::from(text)),
                None => {
                    let message = format!("a member of `{name}` must be a string");
                    Err(wrong(member.at, message, format!("write {example}")))
                }
            };
            let members: Vec<_> = members(&example)?.iter().map(member).collect();
            members.into_iter().collect::<Result<Value, _>>()?
        }
    };
    Ok(Value::Object(Map::from_iter([(entry.key.clone(), value)])))
}

/// Reports key attributes that are missing in an item, or have the wrong type.
fn check_key(table: &Table, item: &Item, node: &Node, findings: &Findings<'_>) {
    for name in table.key() {
        let wanted = table.type_of(name).map_or("S", |kind| kind.descriptor());
        let found = item.get(name).map(|value| value.attribute_type().descriptor());
        let message = match found {
            Some(found) if found == wanted => continue,
            Some(found) => format!(
                "the key attribute `{name}` has the type {found}, but the table has {wanted}"
            ),
            None => format!("the key attribute `{name}` is missing"),
        };
        let at = super::entry(node, name).map_or(node.at, |entry| entry.value.at);
        findings.error(at, message, format!("write \"{name}\": {{\"{wanted}\": \"…\"}}"));
    }
}
