//! Attribute values: the ten types of DynamoDB, their equality, order and size.
//!
//! The module `json` parses values, and `encoding` defines their storage layout. Source: AWS, "Data
//! types" and "DynamoDB item sizes and formats".

use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet};

use crate::number::Number;

/// The value of an attribute. Sets are sorted, so equality ignores the order of their members, as
/// in DynamoDB.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AttributeValue {
    /// String, UTF-8.
    S(String),
    /// Number.
    N(Number),
    /// Binary.
    B(Vec<u8>),
    /// Boolean.
    Bool(bool),
    /// Null.
    Null,
    /// Map.
    M(BTreeMap<String, AttributeValue>),
    /// List.
    L(Vec<AttributeValue>),
    /// String set, never empty.
    Ss(BTreeSet<String>),
    /// Number set, never empty.
    Ns(BTreeSet<Number>),
    /// Binary set, never empty.
    Bs(BTreeSet<Vec<u8>>),
}

/// The type of an attribute value, which DynamoDB JSON names by a descriptor.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum AttributeType {
    /// String.
    S,
    /// Number.
    N,
    /// Binary.
    B,
    /// Boolean.
    Bool,
    /// Null.
    Null,
    /// Map.
    M,
    /// List.
    L,
    /// String set.
    Ss,
    /// Number set.
    Ns,
    /// Binary set.
    Bs,
}

impl AttributeType {
    /// Every type, in the order in which DynamoDB lists them.
    pub const ALL: [Self; 10] = [
        Self::S,
        Self::N,
        Self::B,
        Self::Bool,
        Self::Null,
        Self::M,
        Self::L,
        Self::Ss,
        Self::Ns,
        Self::Bs,
    ];

    /// Returns the descriptor: `S`, `N`, `B`, `BOOL`, `NULL`, `M`, `L`, `SS`, `NS` or `BS`.
    #[must_use]
    pub fn descriptor(self) -> &'static str {
        match self {
            Self::S => "S",
            Self::N => "N",
            Self::B => "B",
            Self::Bool => "BOOL",
            Self::Null => "NULL",
            Self::M => "M",
            Self::L => "L",
            Self::Ss => "SS",
            Self::Ns => "NS",
            Self::Bs => "BS",
        }
    }

    /// Returns the type with this descriptor.
    #[must_use]
    pub fn from_descriptor(descriptor: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|candidate| candidate.descriptor() == descriptor)
    }
}

/// The number of bytes that a map or list adds to its contents (AWS: 3 bytes of overhead).
pub(crate) const CONTAINER_OVERHEAD: usize = 3;
/// The number of bytes that a map or list adds for each member (AWS: 1 byte of overhead).
pub(crate) const MEMBER_OVERHEAD: usize = 1;

impl AttributeValue {
    /// Returns the type of this value.
    #[must_use]
    pub fn attribute_type(&self) -> AttributeType {
        match self {
            Self::S(_) => AttributeType::S,
            Self::N(_) => AttributeType::N,
            Self::B(_) => AttributeType::B,
            Self::Bool(_) => AttributeType::Bool,
            Self::Null => AttributeType::Null,
            Self::M(_) => AttributeType::M,
            Self::L(_) => AttributeType::L,
            Self::Ss(_) => AttributeType::Ss,
            Self::Ns(_) => AttributeType::Ns,
            Self::Bs(_) => AttributeType::Bs,
        }
    }

    /// Returns the size in bytes, as DynamoDB counts it for item size and capacity.
    #[must_use]
    pub fn size(&self) -> usize {
        match self {
            Self::S(text) => text.len(),
            Self::N(number) => number.size(),
            Self::B(bytes) => bytes.len(),
            Self::Bool(_) | Self::Null => 1,
            Self::M(members) => {
                CONTAINER_OVERHEAD
                    + members
                        .iter()
                        .map(|(name, value)| name.len() + value.size() + MEMBER_OVERHEAD)
                        .sum::<usize>()
            }
            Self::L(members) => {
                CONTAINER_OVERHEAD
                    + members.iter().map(|value| value.size() + MEMBER_OVERHEAD).sum::<usize>()
            }
            Self::Ss(members) => members.iter().map(String::len).sum(),
            Self::Ns(members) => members.iter().map(Number::size).sum(),
            Self::Bs(members) => members.iter().map(Vec::len).sum(),
        }
    }

    /// Compares two values: numbers by value, strings and binaries by unsigned bytes. Returns
    /// `None` for values of any other type or of two different types, because DynamoDB does not
    /// order them.
    #[must_use]
    pub fn compare(&self, other: &Self) -> Option<Ordering> {
        match (self, other) {
            (Self::S(left), Self::S(right)) => Some(left.as_bytes().cmp(right.as_bytes())),
            (Self::N(left), Self::N(right)) => Some(left.cmp(right)),
            (Self::B(left), Self::B(right)) => Some(left.cmp(right)),
            _ => None,
        }
    }

    /// Returns the number of nesting levels, including the value itself: 1 for a scalar or a set, 2
    /// for a map of scalars.
    #[must_use]
    pub fn nesting_levels(&self) -> usize {
        match self {
            Self::M(members) => 1 + members.values().map(Self::nesting_levels).max().unwrap_or(0),
            Self::L(members) => 1 + members.iter().map(Self::nesting_levels).max().unwrap_or(0),
            _ => 1,
        }
    }

    /// Returns the content of a string value; `None` for any other type.
    #[must_use]
    pub fn as_str(&self) -> Option<&str> {
        match self {
            Self::S(text) => Some(text),
            _ => None,
        }
    }

    /// Returns the number in a number value; `None` for any other type.
    #[must_use]
    pub fn as_number(&self) -> Option<Number> {
        match self {
            Self::N(number) => Some(*number),
            _ => None,
        }
    }

    /// Returns the members of a map value; `None` for any other type.
    #[must_use]
    pub fn as_map(&self) -> Option<&BTreeMap<String, Self>> {
        match self {
            Self::M(members) => Some(members),
            _ => None,
        }
    }
}

impl From<&str> for AttributeValue {
    fn from(text: &str) -> Self {
        Self::S(text.to_owned())
    }
}

impl From<String> for AttributeValue {
    fn from(text: String) -> Self {
        Self::S(text)
    }
}

impl From<Number> for AttributeValue {
    fn from(number: Number) -> Self {
        Self::N(number)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::json::attribute_value_from_str;

    #[test]
    fn sizes_follow_the_published_rules() {
        for (json, size) in [
            (r#"{"S":"hé"}"#, 3),
            (r#"{"N":"0"}"#, 1),
            (r#"{"N":"1"}"#, 2),
            (r#"{"N":"-123"}"#, 4),
            (r#"{"N":"100"}"#, 2),
            (r#"{"B":"AAEC"}"#, 3),
            (r#"{"BOOL":true}"#, 1),
            (r#"{"NULL":true}"#, 1),
            (r#"{"M":{}}"#, 3),
            (r#"{"L":[]}"#, 3),
            (r#"{"M":{"ab":{"S":"cd"}}}"#, 8),
            (r#"{"L":[{"S":"a"},{"S":"b"}]}"#, 7),
            (r#"{"SS":["a","bc"]}"#, 3),
            (r#"{"NS":["1","22"]}"#, 4),
        ] {
            assert_eq!(attribute_value_from_str(json).unwrap().size(), size, "{json}");
        }
    }

    #[test]
    fn only_scalars_of_one_type_have_an_order() {
        let value = |json: &str| attribute_value_from_str(json).unwrap();
        let order = |a: &str, b: &str| value(a).compare(&value(b));
        assert_eq!(order(r#"{"N":"10"}"#, r#"{"N":"9"}"#), Some(Ordering::Greater));
        assert_eq!(order(r#"{"S":"10"}"#, r#"{"S":"9"}"#), Some(Ordering::Less));
        assert_eq!(order(r#"{"B":"/w=="}"#, r#"{"B":"AA=="}"#), Some(Ordering::Greater));
        assert_eq!(order(r#"{"S":"1"}"#, r#"{"N":"1"}"#), None);
        assert_eq!(order(r#"{"BOOL":true}"#, r#"{"BOOL":true}"#), None);
        assert_eq!(value(r#"{"NS":["1.0","2"]}"#), value(r#"{"NS":["2","1"]}"#));
    }
}
