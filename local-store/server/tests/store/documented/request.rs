//! Operations of the model, and their conversion to the JSON of a request.

use std::fmt::Write as _;

use model::{AttributeValue, Item, json};

use super::expression::{Condition, Path, Writer};
use super::state::{Change, Write};
use super::table::{Index, KINDS, KeyNumbers, key_value};

/// The value of `ReturnValues`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Returns {
    None,
    AllOld,
    UpdatedOld,
    AllNew,
    UpdatedNew,
}

/// A comparison of a Query's sort key. The numbers are arguments of [`key_value`](super::table::key_value).
#[derive(Clone, Copy, Debug)]
pub(super) enum SortCondition {
    Equal(u8),
    Less(u8),
    LessOrEqual(u8),
    Greater(u8),
    GreaterOrEqual(u8),
    Between(u8, u8),
    /// A numeric sort key uses [`SortCondition::Equal`] instead.
    BeginsWith(u8),
}

/// The parameters that Query and Scan share.
#[derive(Clone, Debug)]
pub(super) struct Read {
    pub(super) table: usize,
    /// The position of the index in the table's list of indexes. A position beyond the list means
    /// the table itself.
    pub(super) index: usize,
    pub(super) filter: Option<Condition>,
    pub(super) projection: Option<Vec<Path>>,
    pub(super) limit: Option<u64>,
    pub(super) all_attributes: bool,
    pub(super) count_only: bool,
}

/// One operation.
#[derive(Clone, Debug)]
pub(super) enum Operation {
    Write(Write, Returns),
    Get { table: usize, key: KeyNumbers, projection: Option<Vec<Path>>, consistent: bool },
    Query { read: Read, partition: u8, sort: Option<SortCondition>, forward: bool },
    Scan { read: Read, segments: Option<u32> },
    BatchWrite(Vec<Write>),
    BatchGet(Vec<(usize, KeyNumbers)>),
    TransactWrite(Vec<Write>),
    TransactGet(Vec<(usize, KeyNumbers)>),
}

impl Read {
    pub(super) fn index(&self) -> Option<&'static Index> {
        KINDS[self.table].indexes.get(self.index)
    }

    /// Returns the attributes of the filter that the index does not project, in the order of the filter.
    pub(super) fn filtered_in_vain(&self) -> Vec<&'static str> {
        let mut roots = Vec::new();
        let held = self.index().and_then(|index| index.projected(&KINDS[self.table]));
        if let (Some(held), Some(filter)) = (held, &self.filter) {
            filter.add_roots(&mut roots);
            roots.retain(|root| !held.contains(root));
        }
        roots
    }

    /// Returns the expected error if the filter uses attributes that the index does not project.
    pub(super) fn refusal(&self) -> Option<String> {
        let missing = expression::in_set_order(self.filtered_in_vain().into_iter());
        let index = self.index().filter(|_| !missing.is_empty())?;
        Some(format!(
            "One or more parameter values were invalid: Secondary index {} does not project one or more filter attributes: [{}]",
            index.name,
            missing.join(", ")
        ))
    }
}

pub(super) fn item_json(item: &Item) -> String {
    json::item_to_string(item)
}

/// Returns the members `ExpressionAttributeNames` and `ExpressionAttributeValues`, if needed.
pub(super) fn substitutions(writer: &Writer) -> String {
    let mut out = String::new();
    if !writer.names.is_empty() {
        let names: Vec<String> =
            writer.names.iter().map(|(name, of)| format!(r#""{name}":"{of}""#)).collect();
        let _ = write!(out, r#","ExpressionAttributeNames":{{{}}}"#, names.join(","));
    }
    if !writer.values.is_empty() {
        let values: Vec<String> = writer
            .values
            .iter()
            .map(|(name, value)| {
                let mut text = String::new();
                json::write_attribute_value(&mut text, value);
                format!(r#""{name}":{text}"#)
            })
            .collect();
        let _ = write!(out, r#","ExpressionAttributeValues":{{{}}}"#, values.join(","));
    }
    out
}

/// Returns the name of the operation for a single write.
pub(super) fn write_operation(write: &Write) -> &'static str {
    match write.change {
        Change::Put(_) => "PutItem",
        Change::Update(_) => "UpdateItem",
        Change::Delete => "DeleteItem",
        Change::Check => "ConditionCheck",
    }
}

/// Returns the parameters of a write, without braces.
pub(super) fn write_parameters(write: &Write, tables: &[String]) -> String {
    let mut writer = Writer::default();
    let mut out = format!(r#""TableName":"{}""#, tables[write.table]);
    let _ = match write.item() {
        Some(item) => write!(out, r#","Item":{}"#, item_json(&item)),
        None => write!(out, r#","Key":{}"#, item_json(&write.kind().key(write.key))),
    };
    if let Change::Update(actions) = &write.change
        && !actions.is_empty()
    {
        let _ = write!(out, r#","UpdateExpression":"{}""#, writer.update(actions));
    }
    if let Some(condition) = &write.condition {
        let _ = write!(out, r#","ConditionExpression":"{}""#, writer.condition(condition));
    }
    out + &substitutions(&writer)
}

fn projection_member(writer: &mut Writer, projection: Option<&Vec<Path>>) -> String {
    let Some(paths) = projection else { return String::new() };
    let paths: Vec<String> = paths.iter().map(|path| writer.path(path)).collect();
    format!(r#","ProjectionExpression":"{}""#, paths.join(", "))
}

pub(super) fn get_parameters(
    table: usize,
    key: KeyNumbers,
    projection: Option<&Vec<Path>>,
    tables: &[String],
) -> String {
    let mut writer = Writer::default();
    let projection = projection_member(&mut writer, projection);
    format!(
        r#""TableName":"{}","Key":{}{projection}{}"#,
        tables[table],
        item_json(&KINDS[table].key(key)),
        substitutions(&writer)
    )
}

/// Returns the parameters that Query and Scan share, except the starting key. `key` writes the key condition.
pub(super) fn read_parameters(
    read: &Read,
    tables: &[String],
    key: impl FnOnce(&mut Writer) -> Option<String>,
) -> String {
    let mut writer = Writer::default();
    let mut out = format!(r#""TableName":"{}""#, tables[read.table]);
    if let Some(index) = read.index() {
        let _ = write!(out, r#","IndexName":"{}""#, index.name);
    }
    if let Some(condition) = key(&mut writer) {
        let _ = write!(out, r#","KeyConditionExpression":"{condition}""#);
    }
    if let Some(filter) = &read.filter {
        let _ = write!(out, r#","FilterExpression":"{}""#, writer.condition(filter));
    }
    if read.count_only {
        out.push_str(r#","Select":"COUNT""#);
    } else if read.all_attributes {
        out.push_str(r#","Select":"ALL_ATTRIBUTES""#);
    } else {
        out.push_str(&projection_member(&mut writer, read.projection.as_ref()));
    }
    if let Some(limit) = read.limit {
        let _ = write!(out, r#","Limit":{limit}"#);
    }
    out + &substitutions(&writer)
}

/// Returns the key condition of a Query.
pub(super) fn key_condition(
    writer: &mut Writer,
    partition: (&str, &AttributeValue),
    sort: Option<((&'static str, &'static str), SortCondition)>,
) -> String {
    let mut out = format!("{} = {}", partition.0, writer.value(partition.1));
    if let Some((attribute, condition)) = sort {
        let name = attribute.0;
        let mut value = |number| writer.value(&key_value(attribute, number));
        let _ = match condition {
            SortCondition::Equal(n) => write!(out, " AND {name} = {}", value(n)),
            SortCondition::Less(n) => write!(out, " AND {name} < {}", value(n)),
            SortCondition::LessOrEqual(n) => write!(out, " AND {name} <= {}", value(n)),
            SortCondition::Greater(n) => write!(out, " AND {name} > {}", value(n)),
            SortCondition::GreaterOrEqual(n) => write!(out, " AND {name} >= {}", value(n)),
            SortCondition::Between(low, high) => {
                write!(out, " AND {name} BETWEEN {} AND {}", value(low), value(high))
            }
            SortCondition::BeginsWith(n) if attribute.1 == "N" => {
                write!(out, " AND {name} = {}", value(n))
            }
            SortCondition::BeginsWith(n) => write!(out, " AND begins_with({name}, {})", value(n)),
        };
    }
    out
}
