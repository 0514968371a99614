//! The conversion of the form to a request: one Query or Scan with its expressions.
//!
//! This module performs no I/O. Names and values are replaced by placeholders, so no input of the
//! form is part of an expression.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use model::limits::{IN_OPERANDS_MAX, NESTING_LEVELS_MAX};
use model::{AttributeType, AttributeValue, Item, KeyAttribute, json};
use serde::Serialize;
use serde_json::value::RawValue;

use super::form::{Form, LIMIT_DEFAULT};
use super::path::{DocumentPath, Step};
use crate::placeholders::Placeholders;
use crate::table_shape::{Keys, TableShape};

/// The maximum number of items that a page reads.
const LIMIT_MAX: i32 = 100;

/// The operators of a sort key, as the form names them.
pub(super) const SORT_OPERATORS: [&str; 7] = ["=", "<", "<=", ">", ">=", "between", "begins_with"];

/// The operators of a filter, as the form names them.
pub(super) const FILTER_OPERATORS: [&str; 19] = [
    "=",
    "<>",
    "<",
    "<=",
    ">",
    ">=",
    "between",
    "in",
    "begins_with",
    "contains",
    "attribute_exists",
    "attribute_not_exists",
    "attribute_type",
    "size =",
    "size <>",
    "size <",
    "size <=",
    "size >",
    "size >=",
];

/// A problem with a field of the form.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Problem {
    /// The description of the problem.
    pub(crate) what: String,
    /// The field.
    #[serde(rename = "where")]
    pub(crate) place: String,
    /// The input to write in place of the rejected one.
    pub(crate) instead: String,
}

fn problem(what: impl Into<String>, place: &str, instead: impl Into<String>) -> Problem {
    Problem { what: what.into(), place: place.to_owned(), instead: instead.into() }
}

/// Query or Scan.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub(crate) enum Operation {
    /// Reads the items of one partition key.
    Query,
    /// Reads all items.
    Scan,
}

/// A request that is ready to be sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Request {
    /// Query or Scan.
    pub(crate) operation: Operation,
    pub(crate) table: String,
    /// The index; `None` for the table.
    pub(crate) index: Option<String>,
    /// The key condition of a Query.
    pub(crate) key_condition: Option<String>,
    pub(crate) filter: Option<String>,
    pub(crate) projection: Option<String>,
    /// The placeholders of the expressions.
    pub(crate) placeholders: Placeholders,
    /// The maximum number of items to read.
    pub(crate) limit: i32,
    /// Whether a Query returns items in descending order.
    pub(crate) backward: bool,
    /// Whether the read is strongly consistent.
    pub(crate) consistent: bool,
    /// The key after which the read begins.
    pub(crate) start: Option<Item>,
}

/// Formats a document path with placeholders.
fn write_path(placeholders: &mut Placeholders, path: &DocumentPath) -> String {
    let mut text = String::new();
    for step in &path.0 {
        match step {
            Step::Index(index) => text.push_str(&format!("[{index}]")),
            Step::Name(name) => {
                let separator = if text.is_empty() { "" } else { "." };
                text = format!("{text}{separator}{}", placeholders.name(name));
            }
        }
    }
    text
}

impl Request {
    /// Returns the request that a form describes.
    ///
    /// # Errors
    /// A field is invalid.
    pub(super) fn of(form: &Form, table: &TableShape) -> Result<Self, Problem> {
        let keys = match form.index.as_str() {
            "" => &table.keys,
            name => &table.index(name).ok_or_else(|| unknown_index(name, table))?.keys,
        };
        let mut placeholders = Placeholders::default();
        let key_condition = key_condition(form, keys, &mut placeholders)?;
        let filter = filter(form, &mut placeholders)?;
        let projection = projection(&form.project, &mut placeholders)?;
        let operation = if key_condition.is_some() { Operation::Query } else { Operation::Scan };
        let backward = match form.order.as_str() {
            "" | "asc" => false,
            "desc" if operation == Operation::Query => true,
            "desc" => {
                let instead = "a value of the partition key, or the order `forward`";
                return Err(problem("a Scan has no order", "Order", instead));
            }
            other => {
                return Err(problem(format!("unknown order `{other}`"), "Order", "asc or desc"));
            }
        };
        let start = match form.after.as_str() {
            "" => None,
            text => Some(start_key(text)?),
        };
        Ok(Self {
            operation,
            table: table.name.clone(),
            index: Some(form.index.clone()).filter(|index| !index.is_empty()),
            key_condition,
            filter,
            projection,
            placeholders,
            limit: limit(&form.limit)?,
            backward,
            consistent: !matches!(form.consistent.as_str(), "" | "0"),
            start,
        })
    }

    /// Returns the body of the HTTP request, as JSON.
    pub(super) fn body(&self) -> String {
        let mut out = String::from("{\"TableName\":");
        json::write_string(&mut out, &self.table);
        let texts = [
            ("IndexName", &self.index),
            ("KeyConditionExpression", &self.key_condition),
            ("FilterExpression", &self.filter),
            ("ProjectionExpression", &self.projection),
        ];
        for (name, text) in texts {
            if let Some(text) = text {
                out.push_str(&format!(",\"{name}\":"));
                json::write_string(&mut out, text);
            }
        }
        if !self.placeholders.names.is_empty() {
            out.push_str(",\"ExpressionAttributeNames\":");
            out.push_str(&self.placeholders.names_json());
        }
        if !self.placeholders.values.is_empty() {
            out.push_str(",\"ExpressionAttributeValues\":");
            out.push_str(&self.placeholders.values_json());
        }
        out.push_str(&format!(",\"Limit\":{}", self.limit));
        if self.backward {
            out.push_str(",\"ScanIndexForward\":false");
        }
        if self.consistent {
            out.push_str(",\"ConsistentRead\":true");
        }
        if let Some(start) = &self.start {
            out.push_str(",\"ExclusiveStartKey\":");
            json::write_item(&mut out, start);
        }
        out.push_str(",\"ReturnConsumedCapacity\":\"INDEXES\"}");
        out
    }
}

/// Parses the key after which a page begins.
fn start_key(text: &str) -> Result<Item, Problem> {
    let wrong = |what: String| {
        let instead = "the key in the link to the next page, as DynamoDB JSON";
        problem(what, "after", instead)
    };
    let key = json::item_from_str(text).map_err(|error| wrong(error.to_string()))?;
    let is_scalar = |value: &AttributeValue| {
        matches!(value, AttributeValue::S(_) | AttributeValue::N(_) | AttributeValue::B(_))
    };
    match key.values().all(is_scalar) {
        true => Ok(key),
        false => Err(wrong("a key has only values of the types S, N and B".to_owned())),
    }
}

fn unknown_index(name: &str, table: &TableShape) -> Problem {
    let names: Vec<&str> = table.indexes.iter().map(|index| index.name.as_str()).collect();
    let instead = match names.as_slice() {
        [] => "the table, because it has no indexes".to_owned(),
        names => format!("the table, or one of {}", names.join(", ")),
    };
    problem(format!("the table has no index `{name}`"), "Index", instead)
}

fn limit(text: &str) -> Result<i32, Problem> {
    let text = if text.is_empty() { LIMIT_DEFAULT } else { text };
    let limit = text.trim().parse().ok().filter(|limit| (1..=LIMIT_MAX).contains(limit));
    limit.ok_or_else(|| {
        let instead = format!("a whole number from 1 to {LIMIT_MAX}");
        problem(format!("`{text}` is not a limit"), "Limit", instead)
    })
}

/// Returns the key condition; `None` if the form has no value of the partition key.
fn key_condition(
    form: &Form,
    keys: &Keys,
    placeholders: &mut Placeholders,
) -> Result<Option<String>, Problem> {
    let given = [&form.pk, &form.pk2, &form.pk3, &form.pk4];
    let is_query = keys.partition.iter().zip(given).any(|(_, text)| !text.is_empty());
    if !is_query {
        let has_sort = [&form.sk, &form.sk_to].iter().any(|text| !text.is_empty());
        let instead = "a value of the partition key, or no condition on the sort key";
        return match has_sort {
            true => Err(problem("the partition key has no value", "Sort key", instead)),
            false => Ok(None),
        };
    }
    let mut conditions = Vec::new();
    for (key, text) in keys.partition.iter().zip(given) {
        let place = format!("Partition key `{}`", key.name);
        let value = key_value(key, text, &place)?;
        conditions.push(format!(
            "{} = {}",
            placeholders.name(&key.name),
            placeholders.value(value)
        ));
    }
    conditions.extend(sort_condition(form, keys, placeholders)?);
    Ok(Some(conditions.join(" AND ")))
}

/// Returns the condition on the first attribute of the sort key.
fn sort_condition(
    form: &Form,
    keys: &Keys,
    placeholders: &mut Placeholders,
) -> Result<Option<String>, Problem> {
    if form.sk.is_empty() && form.sk_to.is_empty() {
        return Ok(None);
    }
    let Some(key) = keys.sort.first() else {
        let instead = "no condition on a sort key, or an index with a sort key";
        return Err(problem("the table or index has no sort key", "Sort key", instead));
    };
    let place = format!("Sort key `{}`", key.name);
    let operator = if form.sk_op.is_empty() { "=" } else { &form.sk_op };
    if !SORT_OPERATORS.contains(&operator) {
        let instead = SORT_OPERATORS.join(", ");
        return Err(problem(format!("unknown operator `{operator}`"), &place, instead));
    }
    let value = key_value(key, &form.sk, &place)?;
    let (name, value) = (placeholders.name(&key.name), placeholders.value(value));
    Ok(Some(match operator {
        "between" => {
            let upper = key_value(key, &form.sk_to, &format!("{place}, upper bound"))?;
            format!("{name} BETWEEN {value} AND {}", placeholders.value(upper))
        }
        "begins_with" => format!("begins_with({name}, {value})"),
        operator => format!("{name} {operator} {value}"),
    }))
}

/// Parses the value of a key attribute, which must not be empty.
fn key_value(key: &KeyAttribute, text: &str, place: &str) -> Result<AttributeValue, Problem> {
    let key_type = key.attribute_type.attribute_type();
    if text.is_empty() {
        let instead = format!("a value of type {}", key_type.descriptor());
        return Err(problem("the value is missing", place, instead));
    }
    scalar(text, key_type, place)
}

/// Parses a scalar of a type.
fn scalar(text: &str, kind: AttributeType, place: &str) -> Result<AttributeValue, Problem> {
    match kind {
        AttributeType::S => Ok(AttributeValue::S(text.to_owned())),
        AttributeType::N => match text.trim().parse() {
            Ok(number) => Ok(AttributeValue::N(number)),
            Err(_) => {
                let instead = "a number of at most 38 digits, such as 2013 or -1.5e3";
                Err(problem(format!("`{text}` is not a number"), place, instead))
            }
        },
        AttributeType::B => match STANDARD.decode(text.trim()) {
            Ok(bytes) => Ok(AttributeValue::B(bytes)),
            Err(_) => {
                let instead = "base64 with its padding, such as AAEC";
                Err(problem(format!("`{text}` is not base64"), place, instead))
            }
        },
        AttributeType::Bool => match text.trim() {
            "true" => Ok(AttributeValue::Bool(true)),
            "false" => Ok(AttributeValue::Bool(false)),
            _ => Err(problem(format!("`{text}` is not a Boolean"), place, "true or false")),
        },
        AttributeType::Null => Ok(AttributeValue::Null),
        kind => {
            let what = format!("the operator accepts no operand of type {}", kind.descriptor());
            Err(problem(what, place, "the type S, N, B, BOOL or NULL"))
        }
    }
}

fn filter(form: &Form, placeholders: &mut Placeholders) -> Result<Option<String>, Problem> {
    if form.filter.trim().is_empty() {
        let has_operand = !form.filter_value.is_empty() || !form.filter_to.is_empty();
        let instead = "the name of an attribute, such as rating or info.rating";
        return match has_operand {
            true => Err(problem("the filter has no attribute", "Filter", instead)),
            false => Ok(None),
        };
    }
    let path = document_path(&form.filter, "Filter")?;
    let operator = if form.filter_op.is_empty() { "=" } else { &form.filter_op };
    if !FILTER_OPERATORS.contains(&operator) {
        let instead = FILTER_OPERATORS.join(", ");
        return Err(problem(format!("unknown operator `{operator}`"), "Filter", instead));
    }
    let kind = match form.filter_type.as_str() {
        "" => AttributeType::S,
        text => AttributeType::from_descriptor(text).ok_or_else(|| {
            let instead = AttributeType::ALL.map(AttributeType::descriptor).join(", ");
            problem(format!("unknown type `{text}`"), "Filter type", instead)
        })?,
    };
    let name = write_path(placeholders, &path);
    let operand = |text: &str, kind| scalar(text, kind, "Filter value");
    Ok(Some(match operator {
        "attribute_exists" | "attribute_not_exists" => format!("{operator}({name})"),
        "attribute_type" => {
            let descriptor = AttributeValue::S(kind.descriptor().to_owned());
            format!("attribute_type({name}, {})", placeholders.value(descriptor))
        }
        "begins_with" | "contains" => {
            let value = operand(&form.filter_value, kind)?;
            format!("{operator}({name}, {})", placeholders.value(value))
        }
        "between" => {
            let (lower, upper) =
                (operand(&form.filter_value, kind)?, operand(&form.filter_to, kind)?);
            let (lower, upper) = (placeholders.value(lower), placeholders.value(upper));
            format!("{name} BETWEEN {lower} AND {upper}")
        }
        "in" => {
            let operands = operands(&form.filter_value)?;
            let values = operands.iter().map(|text| Ok(placeholders.value(operand(text, kind)?)));
            format!("{name} IN ({})", values.collect::<Result<Vec<_>, Problem>>()?.join(", "))
        }
        operator => match operator.strip_prefix("size ") {
            Some(comparison) => {
                let size = operand(&form.filter_value, AttributeType::N)?;
                format!("size({name}) {comparison} {}", placeholders.value(size))
            }
            None => {
                let value = operand(&form.filter_value, kind)?;
                format!("{name} {operator} {}", placeholders.value(value))
            }
        },
    }))
}

/// Returns the operands of `in`: the members of a JSON array, or comma-separated strings.
fn operands(text: &str) -> Result<Vec<String>, Problem> {
    let instead = format!("1 to {IN_OPERANDS_MAX} values: a, b or [\"a\", \"b\"]");
    let trimmed = text.trim();
    let operands: Vec<String> = if trimmed.starts_with('[') {
        let members: Vec<Box<RawValue>> = serde_json::from_str(trimmed).map_err(|error| {
            problem(format!("not a JSON array: {error}"), "Filter value", instead.clone())
        })?;
        let text = |member: &RawValue| {
            serde_json::from_str(member.get()).unwrap_or_else(|_| member.get().to_owned())
        };
        members.iter().map(|member| text(member)).collect()
    } else {
        trimmed.split(',').map(|part| part.trim().to_owned()).collect()
    };
    if operands.is_empty() || operands.len() > IN_OPERANDS_MAX {
        return Err(problem(
            format!("`in` has {} values", operands.len()),
            "Filter value",
            instead,
        ));
    }
    Ok(operands)
}

fn projection(text: &str, placeholders: &mut Placeholders) -> Result<Option<String>, Problem> {
    let paths = DocumentPath::parse_list(text).map_err(|error| wrong_path(error, "Projection"))?;
    if let Some(path) = paths.iter().find(|path| path.0.len() > NESTING_LEVELS_MAX) {
        return Err(too_deep(path, "Projection"));
    }
    let paths: Vec<String> = paths.iter().map(|path| write_path(placeholders, path)).collect();
    Ok(Some(paths.join(", ")).filter(|_| !paths.is_empty()))
}

fn document_path(text: &str, place: &str) -> Result<DocumentPath, Problem> {
    let path = DocumentPath::parse(text).map_err(|error| wrong_path(error, place))?;
    if path.0.len() > NESTING_LEVELS_MAX { Err(too_deep(&path, place)) } else { Ok(path) }
}

fn wrong_path(error: super::path::PathError, place: &str) -> Problem {
    let instead =
        "an attribute such as rating, info.rating, tags[0], or \"a name with .\" in quotes";
    problem(error.to_string(), place, instead)
}

fn too_deep(path: &DocumentPath, place: &str) -> Problem {
    let what = format!("the path has {} steps", path.0.len());
    problem(what, place, format!("at most {NESTING_LEVELS_MAX} steps"))
}

#[cfg(test)]
pub(in crate::pages::table) mod tests;
