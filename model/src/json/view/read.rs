//! Reads views with serde.
//!
//! JSON that `decode` rejects, or decodes to a different item, is an error in this module. The
//! caller then falls back to `decode`, so the messages of these errors are never shown.

use std::borrow::Cow;
use std::fmt;
use std::marker::PhantomData;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde::de::{Deserialize, DeserializeSeed, Deserializer, Error, MapAccess, SeqAccess, Visitor};

use super::{ItemView, Member, ValueView};
use crate::attribute_value::AttributeType;
use crate::limits::NESTING_LEVELS_MAX;
use crate::number::Number;

/// Returns the error of a value that only `decode` can read or reject.
fn unusual<E: Error>() -> E {
    E::custom("an unusual value")
}

impl<'de: 't, 't> Deserialize<'de> for ItemView<'t> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Members { level: 1 }.deserialize(deserializer)
    }
}

/// A visitor of the members of an item or map. `level` is 1 in an item, and one more in each map or list.
struct Members {
    level: usize,
}

impl<'de> DeserializeSeed<'de> for Members {
    type Value = ItemView<'de>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        deserializer.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for Members {
    type Value = ItemView<'de>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object of attribute values")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut access: A) -> Result<Self::Value, A::Error> {
        let mut members = Vec::new();
        while let Some(Text(name)) = access.next_key()? {
            let value = access.next_value_seed(Value { level: self.level })?;
            members.push(Member { name, value });
        }
        let is_sorted = |all: &[Member<'_>]| all.is_sorted_by(|a, b| a.name < b.name);
        if !is_sorted(&members) {
            members.sort_unstable_by(|a, b| a.name.cmp(&b.name));
            if !is_sorted(&members) {
                return Err(unusual());
            }
        }
        Ok(ItemView(members))
    }
}

/// A visitor of a value at a level of nesting.
struct Value {
    level: usize,
}

impl<'de> DeserializeSeed<'de> for Value {
    type Value = ValueView<'de>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        if self.level > NESTING_LEVELS_MAX {
            return Err(unusual());
        }
        deserializer.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for Value {
    type Value = ValueView<'de>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an attribute value")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut access: A) -> Result<Self::Value, A::Error> {
        let Some(Text(descriptor)) = access.next_key()? else { return Err(unusual()) };
        let value = match AttributeType::from_descriptor(&descriptor).ok_or_else(unusual)? {
            AttributeType::S => ValueView::S(access.next_value::<Text<'_>>()?.0),
            AttributeType::N => ValueView::N(access.next_value::<NumberText<'_>>()?.0),
            AttributeType::B => ValueView::B(access.next_value::<Binary>()?.0),
            AttributeType::Bool => ValueView::Bool(access.next_value()?),
            AttributeType::Null if access.next_value()? => ValueView::Null,
            AttributeType::Null => return Err(unusual()),
            AttributeType::M => {
                ValueView::M(access.next_value_seed(Members { level: self.level + 1 })?)
            }
            AttributeType::L => {
                ValueView::L(access.next_value_seed(List { level: self.level + 1 })?)
            }
            AttributeType::Ss => ValueView::Ss(set(access
                .next_value::<Vec<Text<'_>>>()?
                .into_iter()
                .map(|text| text.0))?),
            AttributeType::Ns => {
                let texts = access.next_value::<Vec<Text<'_>>>()?;
                let numbers = texts.iter().map(|text| text.0.parse().map_err(|_| unusual()));
                ValueView::Ns(set(numbers.collect::<Result<Vec<Number>, _>>()?)?)
            }
            AttributeType::Bs => ValueView::Bs(set(access
                .next_value::<Vec<Binary>>()?
                .into_iter()
                .map(|bytes| bytes.0))?),
        };
        // `decode` ignores a second type whose value is `null`, and rejects any other.
        if access.next_key::<Text<'_>>()?.is_some() {
            return Err(unusual());
        }
        Ok(value)
    }
}

/// A visitor of the members of a list at a level of nesting.
struct List {
    level: usize,
}

impl<'de> DeserializeSeed<'de> for List {
    type Value = Vec<ValueView<'de>>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        deserializer.deserialize_seq(self)
    }
}

impl<'de> Visitor<'de> for List {
    type Value = Vec<ValueView<'de>>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an array of attribute values")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut access: A) -> Result<Self::Value, A::Error> {
        let mut members = Vec::new();
        while let Some(member) = access.next_element_seed(Value { level: self.level })? {
            members.push(member);
        }
        Ok(members)
    }
}

/// Sorts the members of a set.
///
/// # Errors
/// When the set is empty or has a duplicate.
fn set<T: Ord, E: Error>(members: impl IntoIterator<Item = T>) -> Result<Vec<T>, E> {
    let mut members: Vec<T> = members.into_iter().collect();
    members.sort_unstable();
    if members.is_empty() || !members.is_sorted_by(|a, b| a < b) {
        return Err(unusual());
    }
    Ok(members)
}

/// A string. It borrows from the JSON if it has no escapes.
struct Text<'t>(Cow<'t, str>);

/// The canonical form of a number. It borrows from the JSON if the number is canonical there. DynamoDB writes
/// canonical numbers.
struct NumberText<'t>(Cow<'t, str>);

/// Decoded base64.
struct Binary(Vec<u8>);

/// A visitor that reads a string and converts it with a function.
struct StringVisitor<T, F>(F, PhantomData<T>);

impl<'de, T, F: FnOnce(Cow<'de, str>) -> Option<T>> Visitor<'de> for StringVisitor<T, F> {
    type Value = T;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a string")
    }

    fn visit_borrowed_str<E: Error>(self, text: &'de str) -> Result<T, E> {
        (self.0)(Cow::Borrowed(text)).ok_or_else(unusual)
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<T, E> {
        (self.0)(Cow::Owned(text.to_owned())).ok_or_else(unusual)
    }
}

fn string<'de, D: Deserializer<'de>, T>(
    deserializer: D,
    convert: impl FnOnce(Cow<'de, str>) -> Option<T>,
) -> Result<T, D::Error> {
    deserializer.deserialize_str(StringVisitor(convert, PhantomData))
}

impl<'de> Deserialize<'de> for Text<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        string(deserializer, |text| Some(Self(text)))
    }
}

impl<'de> Deserialize<'de> for NumberText<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        string(deserializer, |text| canonical(text).map(Self))
    }
}

impl<'de> Deserialize<'de> for Binary {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        string(deserializer, |text| STANDARD.decode(text.as_ref()).ok().map(Self))
    }
}

/// Returns the canonical form of a number; `None` if the text is not a number.
pub(super) fn canonical(text: Cow<'_, str>) -> Option<Cow<'_, str>> {
    if is_canonical(text.as_bytes()) {
        return Some(text);
    }
    text.parse::<Number>().ok().map(|number| Cow::Owned(number.to_string()))
}

/// Returns true if a number is certainly in its canonical form. Returns false if that is unknown.
pub(super) fn is_canonical(text: &[u8]) -> bool {
    /// Every number with this many digits is in range and exact.
    const BYTES_MAX: usize = 38;
    let unsigned = text.strip_prefix(b"-").unwrap_or(text);
    let digits = |part: &[u8]| !part.is_empty() && part.iter().all(u8::is_ascii_digit);
    let is_whole =
        |whole: &[u8]| digits(whole) && (whole.len() == 1 || whole.first() != Some(&b'0'));
    text.len() <= BYTES_MAX
        && match unsigned.iter().position(|byte| *byte == b'.').map(|at| unsigned.split_at(at)) {
            None => is_whole(unsigned) && text != b"-0",
            Some((whole, fraction)) => {
                let fraction = fraction.get(1..).unwrap_or_default();
                is_whole(whole) && digits(fraction) && fraction.last() != Some(&b'0')
            }
        }
}
