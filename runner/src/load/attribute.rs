//! From our attribute values to the DynamoDB SDK's.
//!
//! The SDK's value types know no JSON; `model` does.

use std::collections::HashMap;

use aws_sdk_dynamodb::primitives::Blob;
use aws_sdk_dynamodb::types::AttributeValue as SdkValue;
use model::{AttributeValue, Item};

/// The item as the SDK takes it.
pub(crate) fn to_sdk_item(item: &Item) -> HashMap<String, SdkValue> {
    item.iter().map(|(name, value)| (name.clone(), to_sdk_value(value))).collect()
}

/// The value as the SDK takes it.
pub(crate) fn to_sdk_value(value: &AttributeValue) -> SdkValue {
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
