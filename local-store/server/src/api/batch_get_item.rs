//! `BatchGetItem`: reads up to 100 items of several tables by their keys.
//!
//! Each item is read as `GetItem` reads it. Once the response would exceed 16 MB, the remaining
//! keys are returned as unprocessed.

use std::collections::{BTreeMap, BTreeSet};

use expression::Projection;
use model::limits::{BATCH_GET_BYTES_MAX, BATCH_GET_KEYS_MAX};
use model::{Item, PrimaryKey, json};
use partition::{View, read_item};

use super::answer::{begin_member, boolean_member, text_member};
use super::batch;
use super::batch_quotation;
use super::capacity::{Capacity, CapacityDetail};
use super::constraints::{Constraints, RETURN_CONSUMED_CAPACITY};
use super::error::ApiError;
use super::expressions::{self, Substitutions, check_combination, mixed};
use super::legacy::AttributesToGet;
use super::metering;
use super::parameters::{self, Parameters};
use super::tables;
use super::wording::{Checked, Wording};
use crate::store::Store;
use crate::store::long_reads::SHORT_READ_KEYS;

/// DynamoDB's name for the request of one table.
const KIND: &str = "KeysAndAttributes";

/// The request for one table, as it was sent.
struct TableRead<'j> {
    name: &'j str,
    parameters: Parameters<'j>,
    keys: Option<Vec<Checked<Item>>>,
    projection: Option<&'j str>,
    to_get: Option<Vec<&'j str>>,
    names: Option<BTreeMap<String, String>>,
    is_consistent: Option<bool>,
}

/// The progress of the response.
struct Progress<'j> {
    bytes: usize,
    responses: String,
    unprocessed: String,
    capacities: Vec<(&'j str, Capacity)>,
    /// The number of keys that were looked up.
    read: usize,
    /// The throttling error if the throughput limits rejected some of the keys; `None` otherwise.
    throttled: Option<ApiError>,
}

pub(super) async fn batch_get_item(
    store: &Store,
    parameters: Parameters<'_>,
) -> Result<String, ApiError> {
    let items = parameters.map_of("RequestItems", parameters::Class(KIND))?;
    let reads = match items {
        Some(items) => read_tables(items)?,
        None => Vec::new(),
    };
    let capacity_detail = parameters.string("ReturnConsumedCapacity")?;

    let mut constraints = Constraints::new();
    // DynamoDB reports errors of the map before all other errors.
    if let Some(items) = items {
        constraints.list_at_least("RequestItems", reads.len(), 1);
        let names = reads.iter().map(|read| read.name);
        batch::constrain_names(&mut constraints, names, || batch_quotation::json_of(items.map()));
    }
    for read in &reads {
        constrain_table(&mut constraints, read);
    }
    constraints.one_of("returnConsumedCapacity", capacity_detail, RETURN_CONSUMED_CAPACITY);
    constraints.required("requestItems", items.is_some());
    constraints.finish()?;
    let keys: usize = reads.iter().map(|read| read.keys.iter().flatten().count()).sum();
    if keys > BATCH_GET_KEYS_MAX {
        return Err(ApiError::validation("Too many items requested for the BatchGetItem call"));
    }

    let view = store.view();
    let mut progress = Progress {
        bytes: 0,
        responses: String::from("{"),
        unprocessed: String::from("{"),
        capacities: Vec::with_capacity(reads.len()),
        read: 0,
        throttled: None,
    };
    check_kinds(&reads)?;
    let mut planned = Vec::with_capacity(reads.len());
    for read in reads {
        let projection = check_table(&read)?;
        planned.push((read, projection));
    }
    let mut read = || answer_tables(store, &*view, &planned, &mut progress);
    if keys <= SHORT_READ_KEYS {
        read()?;
    } else {
        store.long_reads().run(read).await?;
    }
    let Progress { responses, unprocessed, capacities, read, throttled, .. } = progress;
    if let Some(error) = throttled.filter(|_| read == 0) {
        return Err(error);
    }
    let mut out = format!("{{\"Responses\":{responses}}},\"UnprocessedKeys\":{unprocessed}}}");
    CapacityDetail::from_parameter(capacity_detail).write_list_member(&mut out, &capacities);
    out.push('}');
    Ok(out)
}

/// Reads the items of all tables, each with the projection of its table.
fn answer_tables<'j>(
    store: &Store,
    view: &dyn View,
    planned: &[(TableRead<'j>, Option<Projection>)],
    progress: &mut Progress<'j>,
) -> Result<(), ApiError> {
    for (read, projection) in planned {
        answer_table(store, view, read, projection.as_ref(), progress).map_err(|error| {
            // DynamoDB checks for duplicates before it looks up a table. This function compares the keys
            // as they were sent, and only if the table does not exist.
            let is_first = error.is_resource_not_found()
                && planned.iter().any(|(read, _)| has_duplicates(read));
            if is_first { ApiError::validation(batch::DUPLICATES) } else { error }
        })?;
    }
    Ok(())
}

fn read_tables(items: Parameters<'_>) -> Result<Vec<TableRead<'_>>, ApiError> {
    batch::check_distinct(items)?;
    let mut reads = Vec::new();
    for (name, json) in items.map() {
        let parameters = parameters::member(json, KIND)?;
        let keys = match parameters.list("Keys")? {
            Some(keys) => Some(keys.iter().map(parameters::item).collect::<Result<_, _>>()?),
            None => None,
        };
        reads.push(TableRead {
            name,
            parameters,
            keys,
            projection: parameters.string("ProjectionExpression")?,
            to_get: parameters.texts("AttributesToGet")?,
            names: parameters.strings("ExpressionAttributeNames")?,
            is_consistent: parameters.boolean("ConsistentRead")?,
        });
    }
    Ok(reads)
}

fn constrain_table(constraints: &mut Constraints, read: &TableRead<'_>) {
    let at = format_args!("requestItems.{}.member.keys", read.name);
    constraints.required(at, read.keys.is_some());
    let at_names = format!("requestItems.{}.member.attributesToGet", read.name);
    AttributesToGet::of(read.to_get.clone()).constrain(constraints, &at_names);
    if let Some(keys) = &read.keys {
        let at = format_args!("RequestItems.{}.member.Keys", read.name);
        constraints.list_at_least(at, keys.len(), 1);
        constraints.list_at_most(at, keys.len(), BATCH_GET_KEYS_MAX);
    }
}

/// Checks that expressions and legacy parameters are not mixed, neither for one table nor for
/// different tables.
fn check_kinds(reads: &[TableRead<'_>]) -> Result<(), ApiError> {
    let has_expression = reads.iter().any(|read| read.projection.is_some());
    if has_expression && reads.iter().any(|read| read.to_get.is_some()) {
        return Err(mixed(&["AttributesToGet"], &["ProjectionExpression"]));
    }
    Ok(())
}

/// Does the checks that DynamoDB does before it looks up the table.
fn check_table(read: &TableRead<'_>) -> Result<Option<Projection>, ApiError> {
    check_combination(
        read.parameters,
        &["ProjectionExpression"],
        &["AttributesToGet"],
        Wording::Current,
    )?;
    if read.projection.is_none() {
        let to_get = AttributesToGet::of(read.to_get.clone()).into_projection()?;
        if to_get.is_some() {
            return Ok(to_get);
        }
    }
    let mut placeholders = Substitutions::of_names(read.names.clone()).into_placeholders()?;
    let projection = expressions::projection(read.projection, &mut placeholders)?;
    placeholders.check_all_used()?;
    Ok(projection)
}

/// Returns whether any key occurs twice. A linear search is enough for at most 100 keys.
fn has_duplicates(read: &TableRead<'_>) -> bool {
    let keys = || read.keys.iter().flatten().filter_map(|key| key.as_ref().ok());
    keys().enumerate().any(|(place, key)| keys().take(place).any(|earlier| earlier == key))
}

fn answer_table<'j>(
    store: &Store,
    view: &dyn View,
    read: &TableRead<'j>,
    projection: Option<&Projection>,
    progress: &mut Progress<'j>,
) -> Result<(), ApiError> {
    let table = tables::find_for_items(store, read.name)?;
    let mut keys = BTreeSet::new();
    let mut ordered: Vec<PrimaryKey> = Vec::new();
    for key in read.keys.iter().flatten() {
        let key = key.as_ref().map_err(|wrong| wrong.current())?;
        let key = table.key_schema.key_of_parameter(key)?;
        if !keys.insert(key.clone()) {
            return Err(ApiError::validation(batch::DUPLICATES));
        }
        ordered.push(key);
    }
    expressions::check_projection_leaves_keys(projection, &table)?;
    begin_member(&mut progress.responses, read.name);
    progress.responses.push('[');
    let mut capacity = Capacity::default();
    let mut unprocessed = Vec::new();
    for key in ordered {
        // The response would exceed 16 MB with this item. This key and all later keys are returned as
        // unprocessed.
        if progress.bytes >= BATCH_GET_BYTES_MAX {
            unprocessed.push(key);
            continue;
        }
        let is_consistent = read.is_consistent.unwrap_or(false);
        let admitted = match metering::admit_read(store, &table, &key, is_consistent) {
            Ok(admitted) => admitted,
            Err(error) => {
                progress.throttled = Some(error);
                unprocessed.push(key);
                continue;
            }
        };
        progress.read += 1;
        let found = read_item(view, &table, &key)?;
        let size = found.as_ref().map_or(0, Item::size);
        if progress.bytes + size > BATCH_GET_BYTES_MAX {
            progress.bytes = BATCH_GET_BYTES_MAX;
            unprocessed.push(key);
            continue;
        }
        progress.bytes += size;
        let consumed = Capacity::of_read(size, is_consistent);
        metering::record_read(store, &table, &key.partition, consumed, admitted);
        capacity = capacity.plus(consumed);
        if let Some(item) = found {
            let out = &mut progress.responses;
            if !out.ends_with('[') {
                out.push(',');
            }
            match projection {
                Some(projection) => json::write_item(out, &projection.apply(&item)),
                None => json::write_item(out, &item),
            }
        }
    }
    progress.responses.push(']');
    progress.capacities.push((read.name, capacity));
    if !unprocessed.is_empty() {
        let keys = unprocessed.iter().map(|key| key.to_item(&table.key_schema));
        write_unprocessed(&mut progress.unprocessed, read, keys);
    }
    Ok(())
}

/// Writes the request for a table as it was sent, with only the unprocessed keys.
fn write_unprocessed(out: &mut String, read: &TableRead<'_>, keys: impl Iterator<Item = Item>) {
    begin_member(out, read.name);
    out.push_str("{\"Keys\":[");
    for (position, key) in keys.enumerate() {
        if position > 0 {
            out.push(',');
        }
        json::write_item(out, &key);
    }
    out.push(']');
    if let Some(projection) = read.projection {
        text_member(out, "ProjectionExpression", projection);
    }
    if let Some(names) = &read.to_get {
        begin_member(out, "AttributesToGet");
        for (position, name) in names.iter().enumerate() {
            out.push(if position > 0 { ',' } else { '[' });
            json::write_string(out, name);
        }
        out.push(']');
    }
    if let Some(names) = &read.names {
        begin_member(out, "ExpressionAttributeNames");
        out.push('{');
        for (placeholder, name) in names {
            text_member(out, placeholder, name);
        }
        out.push('}');
    }
    if let Some(is_consistent) = read.is_consistent {
        boolean_member(out, "ConsistentRead", is_consistent);
    }
    out.push('}');
}
