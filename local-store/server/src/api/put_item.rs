//! `PutItem`: creates an item, or replaces the existing item with the same key.
//!
//! The condition is evaluated when the command is applied.

use expression::Condition;
use model::EncodedItem;
use model::encoding::EncodingError;
use model::limits::ITEM_BYTES_MAX;
use partition::{Table, Write, WriteAction, check_put_encoded};

use super::answer::item_member;
use super::error::ApiError;
use super::expressions::{LEGACY_CONDITION, check_combination};
use super::item_write::{
    WriteOperation, WriteParameters, detected, only_condition, submit_write, write_capacity,
};
use super::parameters::Parameters;
use super::tables;
use super::wording::{Checked, Wording};
use crate::store::Store;

/// The error for an item that is too large.
const TOO_LARGE: &str = "Item size has exceeded the maximum allowed size";

/// The contents of a request, after the checks that do not depend on the table.
struct ParsedRequest {
    item: EncodedItem,
    condition: Option<Condition>,
}

pub(super) async fn put_item(
    store: &Store,
    parameters: Parameters<'_>,
) -> Result<String, ApiError> {
    let shared = WriteParameters::read(parameters)?;
    let item = parameters.encoded_item("Item")?;
    shared.constrain(parameters, WriteOperation::Put, ("item", item.is_some()), |_| {})?;
    let (Some(name), Some(item)) = (shared.table, item) else {
        return Err(ApiError::resource_not_found());
    };

    let detail = shared.capacity_detail();
    let return_old = shared.return_values == "ALL_OLD";
    let return_on_failure = shared.returns_item_on_failure();
    let ParsedRequest { item, condition } =
        read(parameters, shared, item).map_err(|error| detected(parameters, error))?;

    let table = tables::find_for_items(store, name)?;
    let key = item.primary_key(&table.key_schema).map_err(damaged)??;
    check_indexes(&table, &item)?;
    let write = Write {
        table: table.id,
        key,
        action: WriteAction::Put(item),
        condition: condition.map(Box::new),
        return_old,
        return_new: false,
        return_on_failure,
    };
    let written = submit_write(store, &table, write).await?;

    let mut out = String::from("{");
    if let Some(old) = &written.old {
        item_member(&mut out, "Attributes", old);
    }
    write_capacity(&mut out, detail, name, &table, &written);
    out.push('}');
    Ok(out)
}

fn read(
    parameters: Parameters<'_>,
    shared: WriteParameters<'_>,
    item: Checked<EncodedItem>,
) -> Result<ParsedRequest, ApiError> {
    check_combination(parameters, &["ConditionExpression"], &LEGACY_CONDITION, Wording::Current)?;
    shared.expected.check_joined()?;
    let item = item.map_err(|wrong| wrong.current())?;
    shared.check_returns_old_only()?;
    check_size(item.size().map_err(damaged)?)?;
    let condition = only_condition(shared.condition, shared.substitutions, shared.expected)?;
    Ok(ParsedRequest { item, condition })
}

/// Checks that an item has at most 400 KB, names included.
pub(crate) fn check_size(size: usize) -> Result<(), ApiError> {
    if size > ITEM_BYTES_MAX { Err(ApiError::validation(TOO_LARGE)) } else { Ok(()) }
}

/// Checks that the indexes of a table accept an item to be put.
pub(super) fn check_indexes(table: &Table, item: &EncodedItem) -> Result<(), ApiError> {
    let checked = check_put_encoded(table, item).map_err(damaged)?;
    checked.map_err(|refusal| ApiError::validation(refusal.text))
}

/// Returns the internal error for an item that cannot be decoded although this store encoded it.
#[expect(clippy::needless_pass_by_value, reason = "errors are mapped by value")]
pub(super) fn damaged(error: EncodingError) -> ApiError {
    ApiError::defect(&error.to_string())
}
