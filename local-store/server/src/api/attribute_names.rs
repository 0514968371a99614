//! Checks the length of attribute names and of names in nested maps: 1 to 65,535 bytes.
//!
//! Attribute names are checked before the values of an item, and names in nested maps after all
//! values. The crate `expression` checks the names in `ExpressionAttributeNames`. Source: AWS,
//! "Quotas in Amazon DynamoDB", attribute names.

use super::wording::Checked;
use model::json::Json;
use model::limits::ATTRIBUTE_NAME_BYTES_MAX;
use model::{AttributeValue, Item};

/// Checks the names of an item's attributes.
pub(crate) fn check_attributes(json: &Json<'_>) -> Checked<()> {
    json.as_object().into_iter().flatten().try_for_each(|(name, _)| check(name))
}

/// Checks the names in nested maps of an item's values.
pub(crate) fn check_members(item: &Item) -> Checked<()> {
    item.iter().try_for_each(|(_, value)| check_value(value))
}

/// Checks the names in nested maps of a value. The recursion is bounded, because values are nested
/// at most 32 levels deep.
pub(crate) fn check_value(value: &AttributeValue) -> Checked<()> {
    match value {
        AttributeValue::M(members) => members
            .iter()
            .try_for_each(|(name, member)| check(name).and_then(|()| check_value(member))),
        AttributeValue::L(members) => members.iter().try_for_each(check_value),
        _ => Ok(()),
    }
}

/// Checks one name.
pub(crate) fn check(name: &str) -> Checked<()> {
    match name.len() {
        0 => Err("Empty attribute name".into()),
        1..=ATTRIBUTE_NAME_BYTES_MAX => Ok(()),
        _ => Err("Attribute name is too large, must be less than 65536 bytes".into()),
    }
}
