//! Saves, creates and deletes an item from its page.
//!
//! A change never overwrites another client's write. The page sends the fingerprint of the item
//! that it showed. The action reads the item again, strongly consistent, and refuses if the
//! fingerprint differs. Then it writes only the attributes that the person changed, on the
//! condition that the item is unchanged since that read. A concurrent write after the read either
//! makes the condition fail or is preserved.

use aws_sdk_dynamodb::error::{ProvideErrorMetadata, SdkError};
use aws_sdk_dynamodb::types::ReturnValue;
use client::attribute::{from_sdk_item, to_sdk_item};
use client::output::counted;
use client::sdk_error::{error_text, is_not_found};
use model::{Item, json};

use super::Done;
use super::item_change::{self, CHANGES_MAX};
use crate::context::Context;
use crate::error::PageError;
use crate::pages::item::{fingerprint, get, no_item, read_item, read_key};
use crate::placeholders::Placeholders;
use crate::query::Query;
use crate::table_shape::TableShape;

/// Writes the changed attributes of an item.
///
/// # Errors
/// The JSON is invalid, another client changed the item, or the store rejects the write.
pub(crate) async fn save(
    context: &Context,
    table: &str,
    fields: &Query,
) -> Result<Done, PageError> {
    let table = TableShape::read(context.dynamodb(), table).await?;
    let edited = edited(fields)?;
    let (key, read) = unchanged(context, &table, fields).await?;
    if table.key_of(&edited).as_ref() != Some(&key) {
        let what = "the key of the item cannot be changed".to_owned();
        let instead =
            format!("the key {}; to use another key, create an item", json::item_to_string(&key));
        return Err(PageError::bad_input("the item", what, instead));
    }
    let mut placeholders = Placeholders::default();
    let Some(update) = item_change::update(&mut placeholders, &read, &edited) else {
        return Ok(Done { said: "no attribute was changed, so nothing was written".to_owned() });
    };
    if update.changes > CHANGES_MAX {
        let what = format!("the edit changes {} attributes", update.changes);
        return Err(PageError::bad_input(
            "the item",
            what,
            format!("at most {CHANGES_MAX} at a time"),
        ));
    }
    let request = context
        .dynamodb()
        .update_item()
        .table_name(&table.name)
        .set_key(Some(to_sdk_item(&key)))
        .update_expression(update.expression)
        .condition_expression(update.condition)
        .set_expression_attribute_names(placeholders.sdk_names())
        .set_expression_attribute_values(placeholders.sdk_values());
    request.send().await.map_err(|error| failed(&error, &table.name))?;
    Ok(Done { said: format!("saved {}", counted(update.changes, "attribute", "attributes")) })
}

/// Writes a new item.
///
/// # Errors
/// The JSON is invalid, an item with the key exists, or the store rejects the write.
pub(crate) async fn create(
    context: &Context,
    table: &str,
    fields: &Query,
) -> Result<Done, PageError> {
    let table = TableShape::read(context.dynamodb(), table).await?;
    let item = edited(fields)?;
    let Some(key) = table.key_of(&item) else {
        let names: Vec<&str> = table.keys.all().map(|key| key.name.as_str()).collect();
        let instead = format!("an item with {}", names.join(" and "));
        return Err(PageError::bad_input("the item", "a key attribute is missing", instead));
    };
    let mut placeholders = Placeholders::default();
    let condition = item_change::absent(&mut placeholders, &table.keys);
    let request = context
        .dynamodb()
        .put_item()
        .table_name(&table.name)
        .set_item(Some(to_sdk_item(&item)))
        .condition_expression(condition)
        .set_expression_attribute_names(placeholders.sdk_names());
    request.send().await.map_err(|error| match is_conflict(&error) {
        true => PageError::Conflict(format!(
            "the item {} exists already; open it to edit it",
            json::item_to_string(&key)
        )),
        false => failed(&error, &table.name),
    })?;
    Ok(Done { said: format!("created {}", json::item_to_string(&key)) })
}

/// Deletes an item.
///
/// # Errors
/// Another client changed the item, or the store rejects the delete.
pub(crate) async fn delete(
    context: &Context,
    table: &str,
    fields: &Query,
) -> Result<Done, PageError> {
    let table = TableShape::read(context.dynamodb(), table).await?;
    let (key, read) = unchanged(context, &table, fields).await?;
    let mut placeholders = Placeholders::default();
    let condition = item_change::as_read(&mut placeholders, &read, &[]);
    let request = context
        .dynamodb()
        .delete_item()
        .table_name(&table.name)
        .set_key(Some(to_sdk_item(&key)))
        .condition_expression(condition)
        .set_expression_attribute_names(placeholders.sdk_names())
        .set_expression_attribute_values(placeholders.sdk_values())
        .return_values(ReturnValue::AllOld);
    let answer = request.send().await.map_err(|error| failed(&error, &table.name))?;
    let deleted = answer.attributes.map(from_sdk_item).transpose()?;
    match deleted {
        // The condition cannot name attributes that another client added just before the delete.
        Some(deleted) if deleted != read => Err(PageError::Conflict(format!(
            "another client changed the item just before it was deleted; to restore it, create the item {}",
            json::item_to_string(&deleted)
        ))),
        _ => Ok(Done { said: format!("deleted {}", json::item_to_string(&key)) }),
    }
}

/// Parses the item that a person typed.
fn edited(fields: &Query) -> Result<Item, PageError> {
    let text = fields.get("item").unwrap_or_default();
    read_item(text).map_err(|fault| {
        PageError::bad_input(&format!("line {}", fault.line), fault.what, fault.instead)
    })
}

/// Reads the item again, and returns its key and the item if the item's fingerprint equals the
/// page's fingerprint.
async fn unchanged(
    context: &Context,
    table: &TableShape,
    fields: &Query,
) -> Result<(Item, Item), PageError> {
    let missing = |field: &str| {
        PageError::bad_input(field, "the field is missing", "the field's value on the item's page")
    };
    let key = read_key(table, fields.get("key").ok_or_else(|| missing("key"))?)?;
    let shown = fields.get("read").ok_or_else(|| missing("read"))?;
    let item = get(context.dynamodb(), &table.name, &key).await?;
    let item = item.ok_or_else(|| no_item(&table.name, &key))?;
    match fingerprint(&item) == shown {
        true => Ok((key, item)),
        false => Err(changed()),
    }
}

fn changed() -> PageError {
    let text = "another client changed the item after this page was loaded; nothing was written: reload the item's page and repeat the change";
    PageError::Conflict(text.to_owned())
}

fn is_conflict<E>(error: &SdkError<E>) -> bool
where
    E: std::error::Error + ProvideErrorMetadata + 'static,
{
    let code = error.as_service_error().and_then(ProvideErrorMetadata::code);
    code == Some("ConditionalCheckFailedException")
}

/// Converts the SDK error of a write to the error of the page.
fn failed<E>(error: &SdkError<E>, table: &str) -> PageError
where
    E: std::error::Error + ProvideErrorMetadata + 'static,
{
    if is_conflict(error) {
        return changed();
    }
    if is_not_found(error) {
        return PageError::NotFound { what: format!("table `{table}`") };
    }
    let code = error.as_service_error().and_then(ProvideErrorMetadata::code);
    match code {
        Some("ValidationException") => {
            PageError::bad_input("the item", error_text(error), "an item that DynamoDB accepts")
        }
        _ => PageError::Store(error_text(error)),
    }
}
