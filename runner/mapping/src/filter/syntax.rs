//! A parser for the JSON of a filter pattern that preserves the notation of numbers.
//!
//! The module does not interpret operators.

use std::collections::BTreeMap;

use serde_json::value::RawValue;

/// A fault in a pattern: the problem, and the text to write instead.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Fault {
    pub(super) problem: String,
    pub(super) remedy: String,
}

impl Fault {
    pub(super) fn new(problem: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self { problem: problem.into(), remedy: remedy.into() }
    }
}

/// The kinds of JSON value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Null,
    Bool,
    Number,
    Text,
    Array,
    Object,
}

/// Returns the kind of a value, from its first byte. The value must be valid JSON.
pub(super) fn kind(raw: &RawValue) -> Kind {
    match raw.get().as_bytes().first() {
        Some(b'{') => Kind::Object,
        Some(b'[') => Kind::Array,
        Some(b'"') => Kind::Text,
        Some(b't' | b'f') => Kind::Bool,
        Some(b'n') => Kind::Null,
        _ => Kind::Number,
    }
}

/// Returns the members of an object. If a name occurs twice, the last member counts, as in Lambda.
pub(super) fn object(raw: &RawValue) -> Result<BTreeMap<String, &RawValue>, Fault> {
    serde_json::from_str(raw.get()).map_err(|_| Fault::new("the value is not an object", "{…}"))
}

/// Returns the elements of an array.
pub(super) fn list(raw: &RawValue) -> Result<Vec<&RawValue>, Fault> {
    serde_json::from_str(raw.get()).map_err(|_| Fault::new("this is not a list", "[…]"))
}

/// Returns the content of a JSON string, with its escapes resolved.
pub(super) fn text(raw: &RawValue) -> Result<String, Fault> {
    serde_json::from_str(raw.get()).map_err(|_| Fault::new("the value is not a string", "\"text\""))
}
