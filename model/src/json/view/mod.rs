//! Items that borrow from their JSON, for code that reads an item once and writes most of it
//! unchanged, such as the archive.
//!
//! A view accepts only JSON that `decode` accepts. For any unusual JSON, it returns `None`, and the
//! caller falls back to `decode`, which reports errors with DynamoDB's messages. Members are in the
//! order of their names, as in an [`Item`].

mod read;

use std::borrow::Cow;

use super::encode::{write_binary, write_list, write_number, write_string};
use crate::attribute_value::{AttributeType, AttributeValue};
use crate::item::Item;
use crate::number::Number;

/// Attributes by name, in the order of their names.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ItemView<'t>(Vec<Member<'t>>);

/// An attribute of an item, or a member of a map.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Member<'t> {
    name: Cow<'t, str>,
    value: ValueView<'t>,
}

/// The value of an attribute.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ValueView<'t> {
    /// String.
    S(Cow<'t, str>),
    /// Number, in the format of [`Number`].
    N(Cow<'t, str>),
    /// Binary.
    B(Vec<u8>),
    /// Boolean.
    Bool(bool),
    /// Null.
    Null,
    /// Map.
    M(ItemView<'t>),
    /// List.
    L(Vec<ValueView<'t>>),
    /// String set, in order.
    Ss(Vec<Cow<'t, str>>),
    /// Number set, in order.
    Ns(Vec<Number>),
    /// Binary set, in order.
    Bs(Vec<Vec<u8>>),
}

impl<'t> ItemView<'t> {
    /// Creates the view of an item.
    #[must_use]
    pub fn of(item: &'t Item) -> Self {
        Self::of_members(item)
    }

    fn of_members(members: &'t std::collections::BTreeMap<String, AttributeValue>) -> Self {
        let member = |(name, value): (&'t String, &'t AttributeValue)| Member {
            name: Cow::Borrowed(name.as_str()),
            value: ValueView::of(value),
        };
        Self(members.iter().map(member).collect())
    }

    /// Reads an item from a text. Returns `None` if the text is not an item, or is an unusual item
    /// that only [`item_from_str`] can decode.
    ///
    /// [`item_from_str`]: super::item_from_str
    pub(crate) fn from_text(text: &'t str) -> Option<Self> {
        serde_json::from_str(text).ok()
    }

    /// Returns the attributes, in the order of their names.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = (&str, &ValueView<'t>)> {
        self.0.iter().map(|member| (member.name.as_ref(), &member.value))
    }

    /// Returns the number of attributes.
    #[must_use]
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Returns whether the item has no attributes.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the value of an attribute.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&ValueView<'t>> {
        self.find(name).map(|(_, value)| value)
    }

    /// Returns the position of an attribute, from 0, and its value.
    #[must_use]
    pub fn find(&self, name: &str) -> Option<(usize, &ValueView<'t>)> {
        let at = self.0.binary_search_by(|member| member.name.as_ref().cmp(name)).ok()?;
        self.0.get(at).map(|member| (at, &member.value))
    }

    /// Does the same as [`ItemView::find`], but checks the probable position `place` first.
    #[must_use]
    pub fn find_near(&self, place: usize, name: &str) -> Option<(usize, &ValueView<'t>)> {
        match self.0.get(place) {
            Some(member) if member.name == name => Some((place, &member.value)),
            _ => self.find(name),
        }
    }

    /// Converts the view to an item.
    #[must_use]
    pub fn into_item(self) -> Item {
        let members = self.0.into_iter();
        members.map(|member| (member.name.into_owned(), member.value.into_value())).collect()
    }

    /// Appends DynamoDB JSON, like `write_item`.
    pub fn write(&self, out: &mut String) {
        self.write_and_tell(out, |_, _| {});
    }

    /// Does the same as [`ItemView::write`], and calls `tell` with the range of each attribute's
    /// value in `out`.
    pub fn write_and_tell(&self, out: &mut String, mut tell: impl FnMut(usize, usize)) {
        out.push('{');
        for (position, Member { name, value }) in self.0.iter().enumerate() {
            if position > 0 {
                out.push(',');
            }
            write_string(out, name);
            out.push(':');
            let start = out.len();
            value.write(out);
            tell(start, out.len());
        }
        out.push('}');
    }
}

impl<'t> ValueView<'t> {
    fn of(value: &'t AttributeValue) -> Self {
        match value {
            AttributeValue::S(text) => Self::S(Cow::Borrowed(text)),
            AttributeValue::N(number) => Self::N(Cow::Owned(number.to_string())),
            AttributeValue::B(bytes) => Self::B(bytes.clone()),
            AttributeValue::Bool(flag) => Self::Bool(*flag),
            AttributeValue::Null => Self::Null,
            AttributeValue::M(members) => Self::M(ItemView::of_members(members)),
            AttributeValue::L(members) => Self::L(members.iter().map(Self::of).collect()),
            AttributeValue::Ss(texts) => {
                Self::Ss(texts.iter().map(|text| Cow::Borrowed(text.as_str())).collect())
            }
            AttributeValue::Ns(numbers) => Self::Ns(numbers.iter().copied().collect()),
            AttributeValue::Bs(all) => Self::Bs(all.iter().cloned().collect()),
        }
    }

    fn into_value(self) -> AttributeValue {
        match self {
            Self::S(text) => AttributeValue::S(text.into_owned()),
            // The string is a number's canonical form, so parsing succeeds.
            Self::N(text) => AttributeValue::N(text.parse().unwrap_or(Number::ZERO)),
            Self::B(bytes) => AttributeValue::B(bytes),
            Self::Bool(flag) => AttributeValue::Bool(flag),
            Self::Null => AttributeValue::Null,
            Self::M(members) => AttributeValue::M(members.into_item().0),
            Self::L(members) => {
                AttributeValue::L(members.into_iter().map(Self::into_value).collect())
            }
            Self::Ss(texts) => AttributeValue::Ss(texts.into_iter().map(Cow::into_owned).collect()),
            Self::Ns(numbers) => AttributeValue::Ns(numbers.into_iter().collect()),
            Self::Bs(all) => AttributeValue::Bs(all.into_iter().collect()),
        }
    }

    /// Returns the type.
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

    /// Returns the number; `None` if the value is not a number.
    #[must_use]
    pub fn as_number(&self) -> Option<Number> {
        match self {
            Self::N(text) => text.parse().ok(),
            _ => None,
        }
    }

    /// Returns the members; `None` if the value is not a map.
    #[must_use]
    pub fn as_map(&self) -> Option<&ItemView<'t>> {
        match self {
            Self::M(members) => Some(members),
            _ => None,
        }
    }

    /// Appends DynamoDB JSON, like `write_attribute_value`.
    pub fn write(&self, out: &mut String) {
        out.push_str("{\"");
        out.push_str(self.attribute_type().descriptor());
        out.push_str("\":");
        match self {
            Self::S(text) => write_string(out, text),
            Self::N(text) => write_plain(out, text),
            Self::B(bytes) => write_binary(out, bytes),
            Self::Bool(flag) => out.push_str(if *flag { "true" } else { "false" }),
            Self::Null => out.push_str("true"),
            Self::M(members) => members.write(out),
            Self::L(members) => write_list(out, members, |out, value| value.write(out)),
            Self::Ss(texts) => write_list(out, texts, |out, text| write_string(out, text)),
            Self::Ns(numbers) => write_list(out, numbers, write_number),
            Self::Bs(all) => write_list(out, all, |out, bytes| write_binary(out, bytes)),
        }
        out.push('}');
    }
}

/// Appends a string in which no character must be escaped.
fn write_plain(out: &mut String, text: &str) {
    out.push('"');
    out.push_str(text);
    out.push('"');
}

#[cfg(test)]
mod tests;
