//! `UpdateItem`: applies an update expression to the item with a key, which may not exist.
//!
//! The condition and the update are evaluated when the command is applied.

use expression::{Condition, ExpressionKind, Update, UpdateError};
use model::Item;
use model::limits::ITEM_BYTES_MAX;
use partition::{Table, Write, WriteAction, Written};

use super::answer::item_member;
use super::constraints::Constraints;
use super::error::ApiError;
use super::expressions::{self, Substitutions, check_combination};
use super::item_write::{WriteOperation, WriteParameters, detected, submit_write, write_capacity};
use super::legacy::AttributeUpdates;
use super::parameters::Parameters;
use super::tables;
use super::wording::{Checked, Wording};
use crate::store::Store;

/// The contents of a request, after the checks that do not depend on the table.
struct ParsedRequest {
    key: Item,
    update: Update,
    condition: Option<Condition>,
}

pub(super) async fn update_item(
    store: &Store,
    parameters: Parameters<'_>,
) -> Result<String, ApiError> {
    let shared = WriteParameters::read(parameters)?;
    let key = parameters.item("Key")?;
    let update = parameters.string("UpdateExpression")?;
    let attribute_updates = AttributeUpdates::read(parameters)?;
    let further = |constraints: &mut Constraints| {
        if let Some(updates) = &attribute_updates {
            updates.constrain(constraints);
        }
    };
    shared.constrain(parameters, WriteOperation::Update, ("key", key.is_some()), further)?;
    let (Some(name), Some(key)) = (shared.table, key) else {
        return Err(ApiError::resource_not_found());
    };

    let detail = shared.capacity_detail();
    let returned = shared.return_values;
    let return_on_failure = shared.returns_item_on_failure();
    let ParsedRequest { key, update, condition } =
        read(parameters, shared, key, update, attribute_updates)
            .map_err(|error| detected(parameters, error))?;

    let table = tables::find_for_items(store, name)?;
    check_leaves_key(&update, &table)?;
    let key = table.key_schema.key_of_parameter(&key)?;
    check_charge(&update)?;
    let write = Write {
        table: table.id,
        key,
        action: WriteAction::Update(update.clone()),
        condition: condition.map(Box::new),
        return_old: matches!(returned, "ALL_OLD" | "UPDATED_OLD"),
        return_new: matches!(returned, "ALL_NEW" | "UPDATED_NEW"),
        return_on_failure,
    };
    let written = submit_write(store, &table, write).await?;
    let mut out = String::from("{");
    write_attributes(&mut out, returned, &update, &written);
    write_capacity(&mut out, detail, name, &table, &written);
    out.push('}');
    Ok(out)
}

fn read(
    parameters: Parameters<'_>,
    shared: WriteParameters<'_>,
    key: Checked<Item>,
    update: Option<&str>,
    attribute_updates: Option<AttributeUpdates<'_>>,
) -> Result<ParsedRequest, ApiError> {
    let legacy = ["AttributeUpdates", "Expected", "ConditionalOperator"];
    check_combination(
        parameters,
        &["UpdateExpression", "ConditionExpression"],
        &legacy,
        Wording::Current,
    )?;
    shared.expected.check_joined()?;
    let key = key.map_err(|wrong| wrong.current())?;
    let (update, condition) = match (update, shared.condition) {
        (None, None) => {
            let update = attribute_updates.map(AttributeUpdates::into_update).transpose()?;
            (update.unwrap_or_default(), shared.expected.into_condition()?)
        }
        (update, condition) => read_expressions(update, condition, shared.substitutions)?,
    };
    Ok(ParsedRequest { key, update, condition })
}

pub(crate) fn read_expressions(
    update: Option<&str>,
    condition: Option<&str>,
    substitutions: Substitutions,
) -> Result<(Update, Option<Condition>), ApiError> {
    if update.is_none() && condition.is_none() {
        return Ok((Update::default(), None));
    }
    let words = substitutions.words();
    let mut placeholders = substitutions.into_placeholders()?;
    let update = match update {
        Some(text) => expression::parse_update(text, &mut placeholders)?,
        None => Update::default(),
    };
    let condition =
        expressions::condition(condition, ExpressionKind::Condition, &mut placeholders, words)?;
    placeholders.check_all_used()?;
    Ok((update, condition))
}

/// Checks that an update changes neither the key nor a nested part of an index's key attribute.
pub(crate) fn check_leaves_key(update: &Update, table: &Table) -> Result<(), ApiError> {
    if let Some(path) = update.touched().find(|path| table.key_schema.contains(path.root())) {
        return Err(ApiError::invalid_parameter(format!(
            "Cannot update attribute {}. This attribute is part of the key",
            path.root()
        )));
    }
    let is_key =
        |name: &str| table.indexes.iter().any(|index| index.definition.key_schema.contains(name));
    match update.touched().find(|path| !path.below().is_empty() && is_key(path.root())) {
        None => Ok(()),
        Some(path) => Err(expressions::key_is_scalar("IndexKey", path.root())),
    }
}

/// Checks that the charge of the update expression does not exceed the item size limit. Like DynamoDB,
/// checks it before the condition, and without the size of the stored item.
fn check_charge(update: &Update) -> Result<(), ApiError> {
    if update.charge() > ITEM_BYTES_MAX {
        return Err(ApiError::validation(UpdateError::TooLarge.to_string()));
    }
    Ok(())
}

/// Appends the attributes that `ReturnValues` requests, if there are any.
fn write_attributes(out: &mut String, returned: &str, update: &Update, written: &Written) {
    let (image, only_updated) = match returned {
        "ALL_OLD" => (&written.old, false),
        "UPDATED_OLD" => (&written.old, true),
        "ALL_NEW" => (&written.new, false),
        "UPDATED_NEW" => (&written.new, true),
        _ => return,
    };
    match image {
        Some(image) if only_updated => {
            let updated = update.updated_attributes(image);
            if !updated.is_empty() {
                item_member(out, "Attributes", &updated);
            }
        }
        Some(image) => item_member(out, "Attributes", image),
        None => {}
    }
}
