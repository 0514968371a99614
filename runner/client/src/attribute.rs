//! Converts attribute values of the crate `model` to the SDK's attribute values, and back.
//!
//! The types of `model` can be read from JSON and written as JSON, the SDK's types cannot.

use std::collections::HashMap;

use aws_sdk_dynamodb::primitives::Blob;
use aws_sdk_dynamodb::types::AttributeValue as SdkValue;
use model::{AttributeValue, Item, Number};

use crate::failure::{Result, fatal};

/// Converts an item to the SDK's type.
pub fn to_sdk_item(item: &Item) -> HashMap<String, SdkValue> {
    item.iter().map(|(name, value)| (name.clone(), to_sdk_value(value))).collect()
}

/// Converts a value to the SDK's type.
pub fn to_sdk_value(value: &AttributeValue) -> SdkValue {
    match value {
        AttributeValue::S(text) => SdkValue::S(text.clone()),
        AttributeValue::N(number) => SdkValue::N(number.to_string()),
        AttributeValue::B(bytes) => SdkValue::B(Blob::new(bytes.clone())),
        AttributeValue::Bool(flag) => SdkValue::Bool(*flag),
        AttributeValue::Null => SdkValue::Null(true),
        AttributeValue::M(members) => SdkValue::M(
            members.iter().map(|(name, value)| (name.clone(), to_sdk_value(value))).collect(),
        ),
        AttributeValue::L(members) => SdkValue::L(members.iter().map(to_sdk_value).collect()),
        AttributeValue::Ss(members) => SdkValue::Ss(members.iter().cloned().collect()),
        AttributeValue::Ns(members) => {
            SdkValue::Ns(members.iter().map(ToString::to_string).collect())
        }
        AttributeValue::Bs(members) => {
            SdkValue::Bs(members.iter().map(|bytes| Blob::new(bytes.clone())).collect())
        }
    }
}

/// Converts an item from the SDK's type.
///
/// # Errors
/// When a value has an unknown type, or a number is invalid.
pub fn from_sdk_item(item: HashMap<String, SdkValue>) -> Result<Item> {
    let members = item.into_iter().map(|(name, value)| Ok((name, from_sdk_value(value)?)));
    members.collect()
}

fn from_sdk_value(value: SdkValue) -> Result<AttributeValue> {
    Ok(match value {
        SdkValue::S(text) => AttributeValue::S(text),
        SdkValue::N(text) => AttributeValue::N(number(&text)?),
        SdkValue::B(blob) => AttributeValue::B(blob.into_inner()),
        SdkValue::Bool(flag) => AttributeValue::Bool(flag),
        SdkValue::Null(_) => AttributeValue::Null,
        SdkValue::M(members) => AttributeValue::M(from_sdk_item(members)?.0),
        SdkValue::L(members) => {
            AttributeValue::L(members.into_iter().map(from_sdk_value).collect::<Result<_, _>>()?)
        }
        SdkValue::Ss(members) => AttributeValue::Ss(members.into_iter().collect()),
        SdkValue::Ns(members) => {
            AttributeValue::Ns(members.iter().map(|text| number(text)).collect::<Result<_>>()?)
        }
        SdkValue::Bs(members) => {
            AttributeValue::Bs(members.into_iter().map(Blob::into_inner).collect())
        }
        other => return Err(fatal!("unknown attribute type in a response: {other:?}")),
    })
}

fn number(text: &str) -> Result<Number> {
    text.parse().map_err(|error| fatal!("the table returned the invalid number `{text}`: {error}"))
}
