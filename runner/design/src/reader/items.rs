//! Reads the example items: DynamoDB JSON with places.

use std::collections::BTreeMap;

use model::json::item_from_str;
use model::{AttributeType, AttributeValue, Item};
use serde_json::{Map, Value};
use template::Span;
use template::diagnostic::{Findings, listed, similar};
use template::document::{Entry, Kind, Node};

use crate::data_model::{DataModel, Place, Table};
use crate::reader::{list, shape};

/// Maximum size of an item. Source: DynamoDB developer guide, "Quotas".
const ITEM_BYTES_MAX: usize = 409_600;
/// An attribute value with its type, for messages.
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
        let Some(item) = item(node, findings) else { continue };
        check_key(table, &item, node, findings);
        let key: Vec<_> = table.key().iter().map(|name| item.get(*name).map(plain)).collect();
        if let Some(first) = keys.insert(key, node.at.line) {
            let message = format!("this item has the key of the item in line {first}");
            findings.error(node.at, message, "change its key, or remove one of the two");
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

/// Reports the name of a table that the model does not have.
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

/// Returns an item; `None` if it has mistakes, which are reported.
fn item(node: &Node, findings: &Findings<'_>) -> Option<Item> {
    let Kind::Map(_) = &node.kind else {
        let message = format!("expected an item, found {}", node.description());
        findings.error(node.at, message, format!("write {{\"pk\": {TYPED}}}"));
        return None;
    };
    let values = attributes(node, findings)?;
    match item_from_str(&Value::Object(values.clone()).to_string()) {
        Ok(item) if item.size() > ITEM_BYTES_MAX => {
            let message = format!(
                "this item has {} bytes, at most {ITEM_BYTES_MAX} are allowed",
                item.size()
            );
            findings.error(node.at, message, "keep large values in S3, or split the item");
            None
        }
        Ok(item) => Some(item),
        Err(error) => {
            let at = invalid_value(node, &values).unwrap_or(node.at);
            findings.error(at, format!("invalid value: {error}"), "correct the value");
            None
        }
    }
}

/// Returns the place of the first attribute whose value is invalid by itself.
fn invalid_value(node: &Node, values: &Map<String, Value>) -> Option<Span> {
    let is_invalid = |entry: &&Entry| {
        let value = values.get(&entry.key).map(|value| (entry.key.clone(), value.clone()));
        item_from_str(&Value::Object(value.into_iter().collect()).to_string()).is_err()
    };
    node.entries().iter().find(is_invalid).map(|entry| entry.value.at)
}

/// Returns the members of a map of typed values; `None` if one has a mistake.
fn attributes(node: &Node, findings: &Findings<'_>) -> Option<Map<String, Value>> {
    // All members are read, so that all mistakes are reported.
    let members: Vec<_> = node
        .entries()
        .iter()
        .map(|entry| Some((entry.key.clone(), typed(&entry.value, &entry.key, findings)?)))
        .collect();
    members.into_iter().collect()
}

/// Returns a typed value such as `{"S": "text"}` as JSON.
fn typed(node: &Node, name: &str, findings: &Findings<'_>) -> Option<Value> {
    let wrong = |at, message: String, help: String| {
        findings.error(at, message, help);
        None
    };
    let [entry] = node.entries() else {
        let shown = node.as_text().map_or_else(|| "…".to_owned(), |text| format!("\"{text}\""));
        let guess =
            if node.as_text().is_some_and(|text| text.parse::<f64>().is_ok()) { "N" } else { "S" };
        let help = format!("write \"{name}\": {{\"{guess}\": {shown}}}");
        return wrong(node.at, format!("the value of `{name}` has no type"), help);
    };
    let types = || AttributeType::ALL.iter().map(|kind| kind.descriptor());
    let Some(kind) = AttributeType::from_descriptor(&entry.key) else {
        let help = format!("write one of {}", listed(types()));
        return wrong(entry.key_at, format!("`{}` is not a type", entry.key), help);
    };
    let (value, at) = (&entry.value, entry.value.at);
    let text = || match value.as_text() {
        Some(text) => Some(Value::from(text)),
        None => wrong(
            at,
            format!("the value of `{name}` must be a text, not {}", value.description()),
            format!("write {{\"{}\": \"…\"}}", entry.key),
        ),
    };
    let members = |example: &str| match &value.kind {
        Kind::List(members) => Some(members),
        _ => {
            let message = format!("the value of `{name}` must be a list");
            findings.error(at, message, format!("write {example}"));
            None
        }
    };
    let value = match kind {
        AttributeType::S | AttributeType::N | AttributeType::B => text()?,
        AttributeType::Bool | AttributeType::Null => match shape::flag(value) {
            Some(flag) => Value::Bool(flag),
            None => {
                let message = format!("the value of `{name}` must be true or false");
                return wrong(at, message, format!("write {{\"{}\": true}}", entry.key));
            }
        },
        AttributeType::M => match &value.kind {
            Kind::Map(_) => Value::Object(attributes(value, findings)?),
            _ => {
                let message = format!("the value of `{name}` must be an object");
                return wrong(at, message, format!("write {{\"M\": {{\"{name}\": {TYPED}}}}}"));
            }
        },
        AttributeType::L => {
            let members = members(&format!("{{\"L\": [{TYPED}]}}"))?;
            let members: Vec<_> =
                members.iter().map(|member| typed(member, name, findings)).collect();
            members.into_iter().collect::<Option<Value>>()?
        }
        AttributeType::Ss | AttributeType::Ns | AttributeType::Bs => {
            let members = members(&format!("{{\"{}\": [\"…\"]}}", entry.key))?;
            members.iter().map(|member| member.as_text().map(Value::from)).collect::<Option<_>>()?
        }
    };
    Some(Value::Object(Map::from_iter([(entry.key.clone(), value)])))
}

/// Reports key attributes that an item lacks or has with another type.
fn check_key(table: &Table, item: &Item, node: &Node, findings: &Findings<'_>) {
    for name in table.key() {
        let wanted = table.type_of(name).map_or("S", |kind| kind.descriptor());
        let found = item.get(name).map(|value| value.attribute_type().descriptor());
        let message = match found {
            Some(found) if found == wanted => continue,
            Some(found) => format!("the key attribute `{name}` is {found}, the table has {wanted}"),
            None => format!("the key attribute `{name}` is missing"),
        };
        let at = super::entry(node, name).map_or(node.at, |entry| entry.value.at);
        findings.error(at, message, format!("write \"{name}\": {{\"{wanted}\": \"…\"}}"));
    }
}
