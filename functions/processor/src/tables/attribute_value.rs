//! Conversion between the SDK's attribute values and the crate `model`'s.
//!
//! Both conversions are lossless. A value of a kind that a later SDK adds is an error.

use std::collections::{BTreeSet, HashMap};

use aws_sdk_dynamodb::primitives::Blob;
use aws_sdk_dynamodb::types::AttributeValue as SdkValue;
use model::{AttributeValue, Item, Number};

use crate::failure::Failure;

/// Converts an item for the SDK.
pub(crate) fn to_sdk_item(item: &Item) -> HashMap<String, SdkValue> {
    item.iter().map(|(name, value)| (name.clone(), to_sdk(value))).collect()
}

/// Converts a value for the SDK.
pub(crate) fn to_sdk(value: &AttributeValue) -> SdkValue {
    match value {
        AttributeValue::S(text) => SdkValue::S(text.clone()),
        AttributeValue::N(number) => SdkValue::N(number.to_string()),
        AttributeValue::B(bytes) => SdkValue::B(Blob::new(bytes.clone())),
        AttributeValue::Bool(flag) => SdkValue::Bool(*flag),
        AttributeValue::Null => SdkValue::Null(true),
        AttributeValue::M(members) => SdkValue::M(
            members.iter().map(|(name, member)| (name.clone(), to_sdk(member))).collect(),
        ),
        AttributeValue::L(members) => SdkValue::L(members.iter().map(to_sdk).collect()),
        AttributeValue::Ss(members) => SdkValue::Ss(members.iter().cloned().collect()),
        AttributeValue::Ns(members) => {
            SdkValue::Ns(members.iter().map(Number::to_string).collect())
        }
        AttributeValue::Bs(members) => {
            SdkValue::Bs(members.iter().map(|bytes| Blob::new(bytes.clone())).collect())
        }
    }
}

/// Converts an item from the SDK.
pub(crate) fn from_sdk_item(item: HashMap<String, SdkValue>) -> Result<Item, Failure> {
    let members = item.into_iter().map(|(name, value)| Ok((name, from_sdk(value)?)));
    Ok(Item(members.collect::<Result<_, Failure>>()?))
}

/// Converts a value from the SDK.
pub(crate) fn from_sdk(value: SdkValue) -> Result<AttributeValue, Failure> {
    Ok(match value {
        SdkValue::S(text) => AttributeValue::S(text),
        SdkValue::N(text) => AttributeValue::N(number(&text)?),
        SdkValue::B(blob) => AttributeValue::B(blob.into_inner()),
        SdkValue::Bool(flag) => AttributeValue::Bool(flag),
        SdkValue::Null(_) => AttributeValue::Null,
        SdkValue::M(members) => AttributeValue::M(from_sdk_item(members)?.0),
        SdkValue::L(members) => {
            AttributeValue::L(members.into_iter().map(from_sdk).collect::<Result<_, _>>()?)
        }
        SdkValue::Ss(members) => AttributeValue::Ss(members.into_iter().collect()),
        SdkValue::Ns(members) => AttributeValue::Ns(
            members.iter().map(|text| number(text)).collect::<Result<BTreeSet<_>, _>>()?,
        ),
        SdkValue::Bs(members) => {
            AttributeValue::Bs(members.into_iter().map(Blob::into_inner).collect())
        }
        other => return Err(Failure::Fatal(format!("unknown kind of attribute value: {other:?}"))),
    })
}

fn number(text: &str) -> Result<Number, Failure> {
    text.parse().map_err(|error| {
        Failure::Fatal(format!("the table returned the invalid number `{text}`: {error}"))
    })
}

#[cfg(test)]
mod tests {
    use model::json::item_from_str;

    use super::*;

    #[test]
    fn every_kind_of_value_round_trips() {
        let nines = "9".repeat(38);
        let item = item_from_str(&format!(
            r#"{{"a":{{"S":"é"}},"b":{{"N":"-{nines}"}},"c":{{"B":"AAH/"}},"d":{{"BOOL":false}},"e":{{"NULL":true}},"f":{{"M":{{"x":{{"L":[{{"S":""}},{{"M":{{}}}}]}}}}}},"g":{{"SS":["a","b"]}},"h":{{"NS":["-1.5","1E-130"]}},"i":{{"BS":["AA==",""]}}}}"#
        ))
        .unwrap();
        assert_eq!(from_sdk_item(to_sdk_item(&item)), Ok(item));
        assert!(from_sdk(SdkValue::N("x".to_owned())).is_err());
    }
}
