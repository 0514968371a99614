//! `GetItem`: reads one item by its key.
//!
//! `ConsistentRead` determines the cost, and whether the read must see every write that was
//! acknowledged before the request.

use expression::Projection;
use model::encoding::{self, EncodingError};
use model::json;
use partition::{ReadError, read_encoded_item};

use super::answer::{begin_member, item_member};
use super::capacity::{Capacity, CapacityDetail};
use super::constraints::{Constraints, RETURN_CONSUMED_CAPACITY};
use super::error::ApiError;
use super::expressions::{self, Substitutions, check_combination};
use super::legacy::AttributesToGet;
use super::metering;
use super::operation::Operation;
use super::parameters::Parameters;
use super::tables;
use super::wording::Wording;
use crate::store::Store;
use node::ring::ArcId;

/// Returns the arc that a strongly consistent `GetItem` reads. Returns `None` for any other request,
/// and for an invalid request. The caller then waits for the latest state of all arcs.
pub(super) fn find_arc(
    store: &Store,
    operation: Operation,
    parameters: Parameters<'_>,
) -> Option<ArcId> {
    if store.arc_count() == 1 || operation != Operation::GetItem {
        return None;
    }
    let table = tables::find_for_items(store, parameters.string("TableName").ok()??).ok()?;
    let key = parameters.item("Key").ok()??.ok()?;
    Some(table.arc_of(&table.key_schema.key_of_parameter(&key).ok()?))
}

pub(super) fn get_item(store: &Store, parameters: Parameters<'_>) -> Result<String, ApiError> {
    let table = parameters.string("TableName")?;
    let key = parameters.item("Key")?;
    let is_consistent = parameters.boolean("ConsistentRead")?.unwrap_or(false);
    let projection = parameters.string("ProjectionExpression")?;
    let substitutions = Substitutions::read(parameters, Wording::Current)?;
    let to_get = AttributesToGet::read(parameters)?;
    let capacity_detail = parameters.string("ReturnConsumedCapacity")?;

    let mut constraints = Constraints::new();
    constraints.one_of("returnConsumedCapacity", capacity_detail, RETURN_CONSUMED_CAPACITY);
    constraints.table_name(table);
    constraints.required("key", key.is_some());
    to_get.constrain(&mut constraints, "attributesToGet");
    constraints.finish()?;
    let (Some(name), Some(key)) = (table, key) else {
        return Err(ApiError::resource_not_found());
    };

    check_combination(
        parameters,
        &["ProjectionExpression"],
        &["AttributesToGet"],
        Wording::Current,
    )?;
    let key = key.map_err(|wrong| wrong.current())?;
    let projection = match projection {
        None => to_get.into_projection()?,
        Some(text) => {
            let mut placeholders = substitutions.into_placeholders()?;
            let projection = expressions::projection(Some(text), &mut placeholders)?;
            placeholders.check_all_used()?;
            projection
        }
    };

    let table = tables::find_for_items(store, name)?;
    let key = table.key_schema.key_of_parameter(&key)?;
    expressions::check_projection_leaves_keys(projection.as_ref(), &table)?;
    let admitted = metering::admit_read(store, &table, &key, is_consistent)?;
    let found = read_encoded_item(&*store.view(), &table, &key)?;

    let mut out = String::with_capacity(64 + 2 * found.as_ref().map_or(0, |bytes| bytes.len()));
    out.push('{');
    let size = match found {
        Some(bytes) => write_found(&mut out, &bytes, projection.as_ref())?,
        None => 0,
    };
    let capacity = Capacity::of_read(size, is_consistent);
    metering::record_read(store, &table, &key.partition, capacity, admitted);
    CapacityDetail::from_parameter(capacity_detail).write_member(&mut out, name, capacity);
    out.push('}');
    Ok(out)
}

/// Decodes an item from its stored bytes, appends the item to the response, and returns the item's
/// size in bytes.
fn write_found(
    out: &mut String,
    bytes: &[u8],
    projection: Option<&Projection>,
) -> Result<usize, ApiError> {
    let damaged = |error: EncodingError| ApiError::from(ReadError(error.to_string()));
    let Some(projection) = projection else {
        begin_member(out, "Item");
        return json::write_encoded_item(out, bytes).map_err(damaged);
    };
    let item = encoding::decode_item(bytes).map_err(damaged)?;
    item_member(out, "Item", &projection.apply(&item));
    Ok(item.size())
}
