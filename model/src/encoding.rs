//! The compact encoding of items and attribute values, for storage and the log.
//!
//! Every encoding begins with a version byte. The encoding of an item continues with the item's
//! size, so that it need not be computed again. `docs/formats/items.md` shows the layout. The
//! modules `key` and `number` contain the order-preserving encoding of keys.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};
use thiserror::Error;

use crate::attribute_value::AttributeValue;
use crate::item::Item;
use crate::number::Number;

/// The first byte of every encoded item.
const ITEM_VERSION: u8 = 2;
/// The offset in bytes of an item's members in its stored form.
pub(crate) const MEMBERS_BEGIN: usize = 1 + SIZE_BYTES;
/// The first byte of every encoded single value.
const VALUE_VERSION: u8 = 1;
/// The length in bytes of an item's size, which follows the version byte in little-endian order.
const SIZE_BYTES: usize = size_of::<u32>();
/// The maximum nesting that decoding accepts: DynamoDB's limit plus two levels, one of which is the
/// item.
pub(crate) const DEPTH_MAX: usize = crate::limits::NESTING_LEVELS_MAX + 2;

/// The type byte before a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Tag {
    S = 1,
    N = 2,
    B = 3,
    False = 4,
    True = 5,
    Null = 6,
    M = 7,
    L = 8,
    Ss = 9,
    Ns = 10,
    Bs = 11,
}

impl Tag {
    fn from_byte(byte: u8) -> Option<Self> {
        Some(match byte {
            1 => Self::S,
            2 => Self::N,
            3 => Self::B,
            4 => Self::False,
            5 => Self::True,
            6 => Self::Null,
            7 => Self::M,
            8 => Self::L,
            9 => Self::Ss,
            10 => Self::Ns,
            11 => Self::Bs,
            _ => return None,
        })
    }
}

/// The error for bytes that were not written by [`encode_item`] or [`encode_value`], or are
/// damaged.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("damaged item encoding at byte offset=`{offset}`: {problem}")]
pub struct EncodingError {
    /// The offset at which decoding stopped.
    pub offset: usize,
    /// The problem at that offset.
    pub problem: &'static str,
}

/// Encodes an item.
#[must_use]
pub fn encode_item(item: &Item) -> Vec<u8> {
    let size = item.size();
    // The encoding of a value takes slightly more bytes than DynamoDB counts for it.
    let mut out = Vec::with_capacity(size + 4 * item.len() + 12);
    begin_item(&mut out);
    put_members(&mut out, item);
    finish_item(&mut out, size);
    out
}

/// Clears a vector and writes the beginning of an item's encoding.
pub(crate) fn begin_item(out: &mut Vec<u8>) {
    out.clear();
    out.push(ITEM_VERSION);
    out.extend_from_slice(&[0; SIZE_BYTES]);
}

/// Writes the size of an item after its members. The size fits into 32 bits, because no request can
/// have an item of 4 GiB.
pub(crate) fn finish_item(item: &mut [u8], size: usize) {
    let size = u32::try_from(size).unwrap_or(u32::MAX).to_le_bytes();
    if let Some(place) = item.get_mut(1..=SIZE_BYTES) {
        place.copy_from_slice(&size);
    }
}

/// Encodes one value.
#[must_use]
pub fn encode_value(value: &AttributeValue) -> Vec<u8> {
    let mut out = vec![VALUE_VERSION];
    put_value(&mut out, value);
    out
}

/// Decodes the bytes of [`encode_item`].
///
/// # Errors
/// When the bytes are not a valid encoding.
pub fn decode_item(bytes: &[u8]) -> Result<Item, EncodingError> {
    let (mut reader, _) = Reader::of_item(bytes)?;
    let members = reader.members(DEPTH_MAX)?;
    reader.end()?;
    Ok(Item(members))
}

/// Decodes the bytes of [`encode_value`].
///
/// # Errors
/// When the bytes are not a valid encoding.
pub fn decode_value(bytes: &[u8]) -> Result<AttributeValue, EncodingError> {
    let mut reader = Reader::start(bytes, VALUE_VERSION)?;
    let value = reader.value(DEPTH_MAX)?;
    reader.end()?;
    Ok(value)
}

pub(crate) fn put_length(out: &mut Vec<u8>, length: usize) {
    let mut rest = length;
    while rest >= 0x80 {
        out.push(u8::try_from(rest & 0x7f).unwrap_or(0) | 0x80);
        rest >>= 7;
    }
    out.push(u8::try_from(rest).unwrap_or(0));
}

pub(crate) fn put_bytes(out: &mut Vec<u8>, bytes: &[u8]) {
    put_length(out, bytes.len());
    out.extend_from_slice(bytes);
}

fn put_members(out: &mut Vec<u8>, members: &BTreeMap<String, AttributeValue>) {
    put_length(out, members.len());
    for (name, value) in members {
        put_member(out, name, value);
    }
}

pub(crate) fn put_member(out: &mut Vec<u8>, name: &str, value: &AttributeValue) {
    put_bytes(out, name.as_bytes());
    put_value(out, value);
}

fn put_value(out: &mut Vec<u8>, value: &AttributeValue) {
    match value {
        AttributeValue::S(text) => {
            out.push(Tag::S as u8);
            put_bytes(out, text.as_bytes());
        }
        AttributeValue::N(number) => {
            out.push(Tag::N as u8);
            number.encode_ordered(out);
        }
        AttributeValue::B(bytes) => {
            out.push(Tag::B as u8);
            put_bytes(out, bytes);
        }
        AttributeValue::Bool(false) => out.push(Tag::False as u8),
        AttributeValue::Bool(true) => out.push(Tag::True as u8),
        AttributeValue::Null => out.push(Tag::Null as u8),
        AttributeValue::M(members) => {
            out.push(Tag::M as u8);
            put_members(out, members);
        }
        AttributeValue::L(members) => {
            out.push(Tag::L as u8);
            put_length(out, members.len());
            members.iter().for_each(|member| put_value(out, member));
        }
        AttributeValue::Ss(members) => {
            out.push(Tag::Ss as u8);
            put_length(out, members.len());
            members.iter().for_each(|member| put_bytes(out, member.as_bytes()));
        }
        AttributeValue::Ns(members) => {
            out.push(Tag::Ns as u8);
            put_length(out, members.len());
            members.iter().for_each(|member| member.encode_ordered(out));
        }
        AttributeValue::Bs(members) => {
            out.push(Tag::Bs as u8);
            put_length(out, members.len());
            members.iter().for_each(|member| put_bytes(out, member));
        }
    }
}

pub(crate) struct Reader<'a> {
    bytes: &'a [u8],
    offset: usize,
}

impl<'a> Reader<'a> {
    fn start(bytes: &'a [u8], version: u8) -> Result<Self, EncodingError> {
        let mut reader = Self { bytes, offset: 0 };
        if reader.byte()? == version {
            Ok(reader)
        } else {
            Err(EncodingError { offset: 0, problem: "unknown version" })
        }
    }

    /// Creates a reader at the members of an item, and returns the item's size.
    pub(crate) fn of_item(bytes: &'a [u8]) -> Result<(Self, usize), EncodingError> {
        let mut reader = Self::start(bytes, ITEM_VERSION)?;
        let rest = bytes.get(reader.offset..).and_then(<[u8]>::first_chunk);
        let size = rest.ok_or_else(|| reader.error("ends too early"))?;
        reader.offset += SIZE_BYTES;
        let size = usize::try_from(u32::from_le_bytes(*size));
        let size = size.map_err(|_| {
            reader.error("the item size exceeds the address range of this platform")
        })?;
        Ok((reader, size))
    }

    pub(crate) fn end(&self) -> Result<(), EncodingError> {
        if self.offset == self.bytes.len() {
            Ok(())
        } else {
            Err(self.error("unexpected bytes after the encoded item or value"))
        }
    }

    /// Returns the offset of the next byte to read.
    pub(crate) fn offset(&self) -> usize {
        self.offset
    }

    /// Returns the bytes from the offset `begin` to the current offset.
    pub(crate) fn since(&self, begin: usize) -> &'a [u8] {
        self.bytes.get(begin..self.offset).unwrap_or_default()
    }

    pub(crate) fn error(&self, problem: &'static str) -> EncodingError {
        EncodingError { offset: self.offset, problem }
    }

    fn byte(&mut self) -> Result<u8, EncodingError> {
        let byte = self.bytes.get(self.offset).ok_or_else(|| self.error("ends too early"))?;
        self.offset += 1;
        Ok(*byte)
    }

    fn length(&mut self) -> Result<usize, EncodingError> {
        let mut length = 0usize;
        for shift in (0..35).step_by(7) {
            let byte = self.byte()?;
            length |= usize::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                return Ok(length);
            }
        }
        Err(self.error("length too large"))
    }

    /// Reads the number of members. Rejects a number larger than the remaining bytes, because each
    /// member takes at least one byte.
    pub(crate) fn count(&mut self) -> Result<usize, EncodingError> {
        let count = self.length()?;
        if count > self.bytes.len() - self.offset {
            return Err(self.error("the number of members exceeds the number of remaining bytes"));
        }
        Ok(count)
    }

    pub(crate) fn slice(&mut self) -> Result<&'a [u8], EncodingError> {
        let length = self.length()?;
        let slice = self
            .bytes
            .get(self.offset..self.offset.saturating_add(length))
            .ok_or_else(|| self.error("ends too early"))?;
        self.offset += length;
        Ok(slice)
    }

    pub(crate) fn tag(&mut self) -> Result<Tag, EncodingError> {
        Tag::from_byte(self.byte()?).ok_or_else(|| self.error("unknown type"))
    }

    pub(crate) fn str(&mut self) -> Result<&'a str, EncodingError> {
        let slice = self.slice()?;
        std::str::from_utf8(slice).map_err(|_| self.error("not UTF-8"))
    }

    fn text(&mut self) -> Result<String, EncodingError> {
        self.str().map(str::to_owned)
    }

    pub(crate) fn number(&mut self) -> Result<Number, EncodingError> {
        let rest = self.bytes.get(self.offset..).unwrap_or(&[]);
        let (number, length) =
            Number::decode_ordered(rest).ok_or_else(|| self.error("not a number"))?;
        self.offset += length;
        Ok(number)
    }

    /// Reads the bytes of a number without decoding it.
    pub(crate) fn number_bytes(&mut self) -> Result<&'a [u8], EncodingError> {
        let rest = self.bytes.get(self.offset..).unwrap_or(&[]);
        let number = Number::ordered_length(rest).and_then(|length| rest.get(..length));
        let number = number.ok_or_else(|| self.error("not a number"))?;
        self.offset += number.len();
        Ok(number)
    }

    fn members(&mut self, depth: usize) -> Result<BTreeMap<String, AttributeValue>, EncodingError> {
        let count = self.count()?;
        let mut members = BTreeMap::new();
        for _ in 0..count {
            let name = self.text()?;
            let value = self.value(depth)?;
            members.insert(name, value);
        }
        Ok(members)
    }

    pub(crate) fn value(&mut self, depth: usize) -> Result<AttributeValue, EncodingError> {
        let depth = depth.checked_sub(1).ok_or_else(|| self.error("nested too deeply"))?;
        Ok(match self.tag()? {
            Tag::S => AttributeValue::S(self.text()?),
            Tag::N => AttributeValue::N(self.number()?),
            Tag::B => AttributeValue::B(self.slice()?.to_vec()),
            Tag::False => AttributeValue::Bool(false),
            Tag::True => AttributeValue::Bool(true),
            Tag::Null => AttributeValue::Null,
            Tag::M => AttributeValue::M(self.members(depth)?),
            Tag::L => {
                let count = self.count()?;
                AttributeValue::L((0..count).map(|_| self.value(depth)).collect::<Result<_, _>>()?)
            }
            Tag::Ss => {
                let count = self.count()?;
                AttributeValue::Ss(
                    (0..count).map(|_| self.text()).collect::<Result<BTreeSet<_>, _>>()?,
                )
            }
            Tag::Ns => {
                let count = self.count()?;
                AttributeValue::Ns(
                    (0..count).map(|_| self.number()).collect::<Result<BTreeSet<_>, _>>()?,
                )
            }
            Tag::Bs => {
                let count = self.count()?;
                AttributeValue::Bs(
                    (0..count)
                        .map(|_| self.slice().map(<[u8]>::to_vec))
                        .collect::<Result<BTreeSet<_>, _>>()?,
                )
            }
        })
    }
}

/// A serde visitor that decodes a byte string without copying it.
pub(crate) struct Decoding<T>(pub(crate) fn(&[u8]) -> Result<T, EncodingError>);

impl<T> de::Visitor<'_> for Decoding<T> {
    type Value = T;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an encoded item or attribute value")
    }

    fn visit_bytes<E: de::Error>(self, bytes: &[u8]) -> Result<T, E> {
        (self.0)(bytes).map_err(E::custom)
    }
}

/// In binary formats, an item is one byte string in the layout of this module.
impl Serialize for Item {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_bytes(&encode_item(self))
    }
}

impl<'de> Deserialize<'de> for Item {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_bytes(Decoding(decode_item))
    }
}

impl Serialize for AttributeValue {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_bytes(&encode_value(self))
    }
}

impl<'de> Deserialize<'de> for AttributeValue {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_bytes(Decoding(decode_value))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::{EncodedItem, json};

    fn any_value() -> impl Strategy<Value = AttributeValue> {
        let number = any::<i64>().prop_map(Number::from);
        let bytes = prop::collection::vec(any::<u8>(), 0..12);
        let leaf = prop_oneof![
            any::<String>().prop_map(AttributeValue::S),
            number.clone().prop_map(AttributeValue::N),
            bytes.clone().prop_map(AttributeValue::B),
            any::<bool>().prop_map(AttributeValue::Bool),
            Just(AttributeValue::Null),
            prop::collection::btree_set(".{0,6}", 1..4).prop_map(AttributeValue::Ss),
            prop::collection::btree_set(number, 1..4).prop_map(AttributeValue::Ns),
            prop::collection::btree_set(bytes, 1..4).prop_map(AttributeValue::Bs),
        ];
        leaf.prop_recursive(5, 40, 5, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..5).prop_map(AttributeValue::L),
                prop::collection::btree_map(".{0,6}", inner, 0..5).prop_map(AttributeValue::M),
            ]
        })
    }

    proptest! {
        #[test]
        fn encodings_and_json_are_lossless(
            members in prop::collection::btree_map(".{0,8}", any_value(), 0..6),
            mut others in prop::collection::btree_map(".{0,2}", any_value(), 0..4),
        ) {
            let item = Item(members);
            let bytes = encode_item(&item);
            prop_assert_eq!(decode_item(&bytes), Ok(item.clone()));
            let encoded = EncodedItem::from(&item);
            prop_assert_eq!(encoded.size(), Ok(item.size()));
            for (name, value) in &item {
                prop_assert_eq!(encoded.get(name), Ok(Some(value.clone())));
            }
            prop_assert_eq!(encoded.get("longer than any name"), Ok(None));
            let wants = |name: &str| name.len().is_multiple_of(2);
            let mut wanted = item.clone();
            wanted.retain(|name, _| wants(name));
            prop_assert_eq!(encoded.decode_only(wants), Ok(wanted));
            let mut replaced = item.clone();
            replaced.retain(|name, _| !wants(name));
            others.retain(|name, _| wants(name));
            replaced.extend(others.clone());
            let old = encoded.decode_only(wants).unwrap();
            let again = encoded.with_replaced(&old, &Item(others));
            prop_assert_eq!(again, Ok(EncodedItem::from(&replaced)));
            let text = json::item_to_string(&item);
            let mut straight = String::new();
            prop_assert_eq!(json::write_encoded_item(&mut straight, &bytes), Ok(item.size()));
            prop_assert_eq!(&straight, &text);
            prop_assert_eq!(json::item_from_str(&text).unwrap(), item);
        }

        #[test]
        fn equal_items_have_equal_bytes(
            a in prop::collection::btree_map(".{0,2}", any_value(), 0..3),
            b in prop::collection::btree_map(".{0,2}", any_value(), 0..3),
        ) {
            let (a, b) = (Item(a), Item(b));
            prop_assert_eq!(a == b, encode_item(&a) == encode_item(&b));
            let again = decode_item(&encode_item(&a)).unwrap();
            prop_assert_eq!(encode_item(&again), encode_item(&a));
        }

        #[test]
        fn damaged_bytes_never_panic(bytes in prop::collection::vec(any::<u8>(), 0..60)) {
            let _ = decode_item(&bytes);
            let mut versioned = Vec::new();
            begin_item(&mut versioned);
            finish_item(&mut versioned, bytes.len());
            versioned.extend(bytes);
            let straight = json::write_encoded_item(&mut String::new(), &versioned);
            prop_assert_eq!(straight.is_ok(), decode_item(&versioned).is_ok());
            let damaged = EncodedItem::from_stored(versioned);
            let _ = damaged.size();
            let _ = damaged.get("a");
            let _ = damaged.stored_value("a");
            let _ = damaged.with_replaced(&Item::new(), &Item::new().with("a", "b"));
        }

        #[test]
        fn a_truncation_is_detected(value in any_value(), at in any::<prop::sample::Index>()) {
            let bytes = encode_value(&value);
            let cut = at.index(bytes.len());
            prop_assert!(decode_value(&bytes[..cut]).is_err());
        }
    }
}
