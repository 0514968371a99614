//! The JSON form of items in transforms. The conversion is lossless in both directions.
//!
//! | DynamoDB | in the transform |
//! |---|---|
//! | S, BOOL, NULL, L, M | string, boolean, null, array, object |
//! | N | number; it keeps all 38 digits if it is only copied |
//! | B | `{"$binary": "base64"}` |
//! | SS, NS, BS | `{"$ss": [...]}`, `{"$ns": [...]}`, `{"$bs": ["base64"]}` |
//! | M with one member whose name begins with `$` | `{"$map": {...}}` |
//!
//! The result of a transform is converted back in the same way.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use model::limits::NESTING_LEVELS_MAX;
use model::number::NumberError;
use model::{AttributeValue, Item, Number};
use thiserror::Error;

use crate::jq::{Num, Object, Val};

const BINARY: &str = "$binary";
const STRINGS: &str = "$ss";
const NUMBERS: &str = "$ns";
const BINARIES: &str = "$bs";
const MAP: &str = "$map";

/// A value of a transform that cannot be stored.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum UnstorableValue {
    /// A value of this type, although only an object is an item.
    #[error("the transform yielded {0}, not an object of attributes")]
    NotAnItem(&'static str),
    /// The path of a value that is nested too deep.
    #[error("`{0}` is nested more than {NESTING_LEVELS_MAX} levels deep")]
    TooDeep(String),
    /// A tag whose value is wrong.
    #[error("`{path}` has the tag `{tag}` without {expected}")]
    Tagged {
        /// The path of the tagged value.
        path: String,
        /// The tag.
        tag: String,
        /// The kind of value that the tag requires.
        expected: &'static str,
    },
    /// An unknown tag.
    #[error(
        "`{path}` has the unknown tag `{tag}`; put an object whose only name begins with `$` into {{\"$map\": ...}}"
    )]
    UnknownTag {
        /// The path of the tagged value.
        path: String,
        /// The tag.
        tag: String,
    },
    /// The path of a NaN.
    #[error("`{0}` is NaN, which DynamoDB cannot store")]
    NotANumber(String),
    /// A number that DynamoDB does not accept.
    #[error("`{path}` cannot be stored as a number: {text}: {error}")]
    Number {
        /// The path of the number.
        path: String,
        /// The number.
        text: String,
        /// The reason.
        #[source]
        error: NumberError,
    },
}

/// Returns the view of an item: an object of its attributes.
pub(super) fn of_item(item: &Item) -> Val {
    object(item.iter().map(|(name, value)| (name.as_str(), of_value(value))))
}

fn object<'a>(members: impl Iterator<Item = (&'a str, Val)>) -> Val {
    members.map(|(name, value)| (name.into(), value)).collect()
}

fn tagged(tag: &str, value: Val) -> Val {
    object(std::iter::once((tag, value)))
}

fn number(number: &Number) -> Val {
    Num::parse(&number.to_string()).map_or(Val::Null, Val::Num)
}

fn of_value(value: &AttributeValue) -> Val {
    match value {
        AttributeValue::S(string) => Val::from(string.as_str()),
        AttributeValue::N(value) => number(value),
        AttributeValue::B(bytes) => tagged(BINARY, Val::from(STANDARD.encode(bytes))),
        AttributeValue::Bool(flag) => Val::Bool(*flag),
        AttributeValue::Null => Val::Null,
        AttributeValue::L(members) => members.iter().map(of_value).collect(),
        AttributeValue::M(members) => {
            let plain =
                object(members.iter().map(|(name, value)| (name.as_str(), of_value(value))));
            match members.keys().next() {
                Some(name) if members.len() == 1 && name.starts_with('$') => tagged(MAP, plain),
                _ => plain,
            }
        }
        AttributeValue::Ss(members) => {
            tagged(STRINGS, members.iter().map(|member| Val::from(member.as_str())).collect())
        }
        AttributeValue::Ns(members) => tagged(NUMBERS, members.iter().map(number).collect()),
        AttributeValue::Bs(members) => tagged(
            BINARIES,
            members.iter().map(|bytes| Val::from(STANDARD.encode(bytes))).collect(),
        ),
    }
}

/// Returns the item for an object of attributes.
///
/// # Errors
/// When the value is not an object, or contains a value that cannot be stored. The error names this
/// value and the reason.
pub(super) fn to_item(value: &Val) -> Result<Item, UnstorableValue> {
    let Val::Obj(members) = value else {
        return Err(UnstorableValue::NotAnItem(kind(value)));
    };
    members_of(members, None, 0).map(Item)
}

/// The path of a value, for error messages. It is formatted only if there is an error.
#[derive(Clone, Copy)]
struct Path<'p> {
    outer: Option<&'p Path<'p>>,
    name: &'p str,
}

impl fmt::Display for Path<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(outer) = self.outer {
            write!(f, "{outer}.")?;
        }
        f.write_str(self.name)
    }
}

fn members_of(
    members: &Object,
    outer: Option<&Path<'_>>,
    level: usize,
) -> Result<BTreeMap<String, AttributeValue>, UnstorableValue> {
    let read = |(name, value): (&Arc<str>, &Val)| {
        let value = to_value(value, &Path { outer, name }, level)?;
        Ok((name.to_string(), value))
    };
    members.members().iter().map(read).collect()
}

fn to_value(value: &Val, path: &Path<'_>, level: usize) -> Result<AttributeValue, UnstorableValue> {
    if level > NESTING_LEVELS_MAX {
        return Err(UnstorableValue::TooDeep(path.to_string()));
    }
    Ok(match value {
        Val::Null => AttributeValue::Null,
        Val::Bool(flag) => AttributeValue::Bool(*flag),
        Val::Num(value) => AttributeValue::N(number_of(value, path)?),
        Val::Str(text) => AttributeValue::S(text.to_string()),
        Val::Arr(members) => AttributeValue::L(
            members
                .members()
                .iter()
                .map(|member| to_value(member, path, level + 1))
                .collect::<Result<_, _>>()?,
        ),
        Val::Obj(members) => match only_member(members) {
            Some((tag, inner)) if tag.starts_with('$') => to_tagged(tag, inner, path, level)?,
            _ => AttributeValue::M(members_of(members, Some(path), level + 1)?),
        },
    })
}

fn only_member(members: &Object) -> Option<(&str, &Val)> {
    let members = members.members();
    let (name, value) = members.first().filter(|_| members.len() == 1)?;
    Some((name, value))
}

fn to_tagged(
    tag: &str,
    value: &Val,
    path: &Path<'_>,
    level: usize,
) -> Result<AttributeValue, UnstorableValue> {
    let named = || (path.to_string(), tag.to_owned());
    let wrong = |expected| {
        let (path, tag) = named();
        UnstorableValue::Tagged { path, tag, expected }
    };
    let members = || match value {
        Val::Arr(members) if !members.members().is_empty() => Ok(members.members().iter()),
        _ => Err(wrong("an array that is not empty")),
    };
    let strings = || {
        members()?
            .map(|member| string_of(member).ok_or_else(|| wrong("strings")))
            .collect::<Result<BTreeSet<_>, _>>()
    };
    let binary = |text: &String| STANDARD.decode(text).map_err(|_| wrong("base64"));
    Ok(match tag {
        BINARY => {
            let text = string_of(value).ok_or_else(|| wrong("a string"))?;
            AttributeValue::B(binary(&text)?)
        }
        STRINGS => AttributeValue::Ss(strings()?),
        BINARIES => AttributeValue::Bs(strings()?.iter().map(binary).collect::<Result<_, _>>()?),
        NUMBERS => {
            let numbers = members()?.map(|member| match member {
                Val::Num(value) => number_of(value, path),
                _ => Err(wrong("numbers")),
            });
            AttributeValue::Ns(numbers.collect::<Result<_, _>>()?)
        }
        MAP => match value {
            Val::Obj(members) => AttributeValue::M(members_of(members, Some(path), level + 1)?),
            _ => return Err(wrong("an object")),
        },
        _ => {
            let (path, tag) = named();
            return Err(UnstorableValue::UnknownTag { path, tag });
        }
    })
}

fn number_of(value: &Num, path: &Path<'_>) -> Result<Number, UnstorableValue> {
    let text = value.to_json();
    text.parse().map_err(|error| match (value.is_nan(), path.to_string()) {
        (true, path) => UnstorableValue::NotANumber(path),
        (false, path) => UnstorableValue::Number { path, text, error },
    })
}

/// Returns the content of a string; `None` for any other value.
fn string_of(value: &Val) -> Option<String> {
    match value {
        Val::Str(text) => Some(text.to_string()),
        _ => None,
    }
}

/// Returns the type of a value, for error messages.
pub(super) fn kind(value: &Val) -> &'static str {
    match value {
        Val::Null => "null",
        Val::Bool(_) => "a boolean",
        Val::Num(_) => "a number",
        Val::Str(_) => "a string",
        Val::Arr(_) => "an array",
        Val::Obj(_) => "an object",
    }
}

#[cfg(test)]
mod tests {
    use model::json::{item_from_str, item_to_string};

    use super::*;

    #[test]
    fn every_kind_of_value_round_trips() {
        let nines = "9".repeat(38);
        for text in [
            r#"{"a":{"S":"é\u0000"},"c":{"B":"AAH/"},"d":{"BOOL":false},"e":{"NULL":true}}"#.to_owned(),
            format!(r#"{{"a":{{"N":"-{nines}"}},"b":{{"N":"0.{nines}"}},"c":{{"N":"1E-130"}},"d":{{"N":"9E125"}}}}"#),
            r#"{"f":{"M":{"x":{"L":[{"S":""},{"M":{}},{"L":[]}]}}},"g":{"SS":["a","b"]},"h":{"NS":["-1.5","7"]},"i":{"BS":["AA==",""]}}"#.to_owned(),
            r#"{"$binary":{"S":"x"}}"#.to_owned(),
            r#"{"m":{"M":{"$ss":{"L":[{"S":"x"}]}}},"n":{"M":{"$map":{"M":{"$a":{"NULL":true}}}}},"o":{"M":{"$a":{"S":"x"},"b":{"S":"y"}}}}"#.to_owned(),
        ] {
            let item = item_from_str(&text).unwrap();
            let back = to_item(&of_item(&item)).unwrap();
            assert_eq!(back, item, "{}", item_to_string(&back));
        }
    }

    #[test]
    fn unstorable_values_are_reported_with_their_path() {
        for (json, expected) in [
            ("7", "the transform yielded a number, not an object of attributes"),
            (
                r#"{"a":{"$sss":["x"]}}"#,
                "`a` has the unknown tag `$sss`; put an object whose only name begins with `$` into {\"$map\": ...}",
            ),
            (r#"{"a":{"$ss":[]}}"#, "`a` has the tag `$ss` without an array that is not empty"),
            (r#"{"a":{"b":{"$binary":"!"}}}"#, "`a.b` has the tag `$binary` without base64"),
            (r#"{"a":{"$ns":["1"]}}"#, "`a` has the tag `$ns` without numbers"),
            (
                r#"{"a":{"x":[{"b":{"$map":{"c":{"$c":1}}}}]}}"#,
                "`a.x.b.c` has the unknown tag `$c`; put an object whose only name begins with `$` into {\"$map\": ...}",
            ),
            (
                r#"{"a":1e200}"#,
                "`a` cannot be stored as a number: 1E+200: Number overflow. Attempting to store a number with magnitude larger than supported range",
            ),
        ] {
            let value = crate::jq::read(json).unwrap();
            assert_eq!(to_item(&value).unwrap_err().to_string(), expected);
        }
    }
}
