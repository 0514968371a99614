//! `DeleteItem`: deletes the item with a key.
//!
//! Deleting an item that does not exist succeeds. The condition is evaluated when the command is
//! applied.

use expression::Condition;
use model::Item;
use partition::{Write, WriteAction};

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

pub(super) async fn delete_item(
    store: &Store,
    parameters: Parameters<'_>,
) -> Result<String, ApiError> {
    let shared = WriteParameters::read(parameters)?;
    let key = parameters.item("Key")?;
    shared.constrain(parameters, WriteOperation::Delete, ("key", key.is_some()), |_| {})?;
    let (Some(name), Some(key)) = (shared.table, key) else {
        return Err(ApiError::resource_not_found());
    };

    let detail = shared.capacity_detail();
    let return_old = shared.return_values == "ALL_OLD";
    let return_on_failure = shared.returns_item_on_failure();
    let (key, condition) =
        read(parameters, shared, key).map_err(|error| detected(parameters, error))?;

    let table = tables::find_for_items(store, name)?;
    let write = Write {
        table: table.id,
        key: table.key_schema.key_of_parameter(&key)?,
        action: WriteAction::Delete,
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

/// Parses the key and the condition, and does the checks that do not depend on the table.
fn read(
    parameters: Parameters<'_>,
    shared: WriteParameters<'_>,
    key: Checked<Item>,
) -> Result<(Item, Option<Condition>), ApiError> {
    check_combination(parameters, &["ConditionExpression"], &LEGACY_CONDITION, Wording::Current)?;
    shared.expected.check_joined()?;
    let key = key.map_err(|wrong| wrong.current())?;
    shared.check_returns_old_only()?;
    let condition = only_condition(shared.condition, shared.substitutions, shared.expected)?;
    Ok((key, condition))
}
