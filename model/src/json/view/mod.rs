//! Items that borrow from their JSON, for code that reads an item once and writes most of it
//! unchanged, such as the archive.
//!
//! A view accepts only JSON that `decode` accepts. For any unusual JSON, it returns `None`, and the
//! caller falls back to `decode`, which reports errors with DynamoDB's messages. Members are in the
//! order of their names, as in an [`Item`].

use std::borrow::Cow;
use std::cmp::Ordering;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;

use super::encode::{write_binary, write_list, write_number, write_string};
use super::scan::Scanner;
use crate::attribute_value::{AttributeType, AttributeValue};
use crate::item::Item;
use crate::limits::NESTING_LEVELS_MAX;
use crate::number::Number;

/// The initial capacity for the attributes of an item. Maps have no initial capacity, because there
/// may be many small maps.
const MEMBERS_EXPECTED: usize = 16;
/// The maximum number of members that are sorted with an array on the stack.
const SORTED_AT_ONCE: usize = 32;

/// Attributes by name, in the order of their names.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ItemView<'t>(Vec<Member<'t>>);

/// A reusable buffer for attributes, for code that reads many items.
#[derive(Debug, Default)]
pub(crate) struct MemberBuffer<'t>(Vec<Member<'t>>);

/// An attribute of an item, or a member of a map.
#[derive(Clone, Debug)]
struct Member<'t> {
    /// The first bytes of the name as a number. Most names differ in this number, so most
    /// comparisons are fast.
    start: u64,
    name: Cow<'t, str>,
    value: ValueView<'t>,
    /// The name and the value as raw text, if this is exactly the text that `encode` would write.
    /// The member can then be copied as one string.
    text: Option<&'t str>,
}

impl Member<'_> {
    /// Compares by name. `start` holds the first eight bytes, zero-padded, so names with equal `start`
    /// may differ.
    fn compare(&self, other: &Self) -> Ordering {
        self.start.cmp(&other.start).then_with(|| self.name.cmp(&other.name))
    }
}

impl PartialEq for Member<'_> {
    fn eq(&self, other: &Self) -> bool {
        self.name == other.name && self.value == other.value
    }
}

impl Eq for Member<'_> {}

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
            start: start_of(name),
            name: Cow::Borrowed(name.as_str()),
            value: ValueView::of(value),
            text: None,
        };
        Self(members.iter().map(member).collect())
    }

    /// Reads an item from a text that contains nothing else.
    pub(crate) fn from_text(text: &'t str) -> Option<Self> {
        let mut scanner = Scanner::new(text);
        let item = Self::read(&mut scanner)?;
        scanner.is_at_end().then_some(item)
    }

    /// Reads an item from the next value.
    pub(crate) fn read(scanner: &mut Scanner<'t>) -> Option<Self> {
        Self::read_into(scanner, MemberBuffer::default())
    }

    /// Reads an item into a reused buffer.
    pub(crate) fn read_into(scanner: &mut Scanner<'t>, room: MemberBuffer<'t>) -> Option<Self> {
        let MemberBuffer(mut members) = room;
        members.reserve(MEMBERS_EXPECTED);
        Self::read_members(scanner, 1, members)
    }

    /// Converts the item to an empty buffer with the same capacity.
    pub(crate) fn into_room(mut self) -> MemberBuffer<'t> {
        self.0.clear();
        MemberBuffer(self.0)
    }

    /// Reads members at `level`: 1 in an item, one more in each map or list. `members` is an empty
    /// vector, possibly with capacity.
    fn read_members(
        scanner: &mut Scanner<'t>,
        level: usize,
        mut members: Vec<Member<'t>>,
    ) -> Option<Self> {
        scanner.members((b'{', b'}'), |scanner| {
            let ((name, value), text) = scanner.as_written(|scanner| {
                let name = scanner.name()?;
                Some((name, ValueView::read(scanner, level)?))
            })?;
            members.push(Member { start: start_of(&name), name, value, text });
            Some(())
        })?;
        sort_members(scanner, &mut members).then_some(Self(members))
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
        let start = start_of(name);
        let compare = |member: &Member<'_>| {
            member.start.cmp(&start).then_with(|| member.name.as_ref().cmp(name))
        };
        let at = self.0.binary_search_by(compare).ok()?;
        self.0.get(at).map(|member| (at, &member.value))
    }

    /// Does the same as [`ItemView::find`], but searches from a probable position first.
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

    /// Returns the total length in bytes of the attributes whose raw text is known.
    #[must_use]
    pub fn text_len(&self) -> usize {
        self.0.iter().map(|member| member.text.map_or(0, |text| text.len() + ",".len())).sum()
    }

    /// Appends DynamoDB JSON, like `write_item`.
    pub fn write(&self, out: &mut String) {
        self.write_and_tell(out, |_, _| {});
    }

    /// Does the same as [`ItemView::write`], and calls `tell` with the range of each attribute's
    /// value in `out`.
    pub fn write_and_tell(&self, out: &mut String, mut tell: impl FnMut(usize, usize)) {
        out.push('{');
        for (position, Member { name, value, text, .. }) in self.0.iter().enumerate() {
            if position > 0 {
                out.push(',');
            }
            let start = out.len() + name.len() + "\"\":".len();
            let start = if let Some(text) = text {
                out.push_str(text);
                start
            } else {
                write_string(out, name);
                out.push(':');
                let start = out.len();
                value.write(out);
                start
            };
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

    /// Reads a value at `level`.
    fn read(scanner: &mut Scanner<'t>, level: usize) -> Option<Self> {
        if level > NESTING_LEVELS_MAX {
            return None;
        }
        // Fast path: most values are strings in this form.
        if scanner.exactly(br#"{"S":""#) {
            let text = scanner.string_from_here()?;
            return scanner.expect(b'}').map(|()| Self::S(text));
        }
        if scanner.exactly(br#"{"N":""#) {
            let text = scanner.string_from_here()?;
            let text = canonical(scanner, text)?;
            return scanner.expect(b'}').map(|()| Self::N(text));
        }
        let mut read = None;
        scanner.object(|scanner, descriptor| {
            if read.is_some() {
                return None;
            }
            read =
                Some(Self::read_as(AttributeType::from_descriptor(&descriptor)?, scanner, level)?);
            Some(())
        })?;
        read
    }

    fn read_as(
        attribute_type: AttributeType,
        scanner: &mut Scanner<'t>,
        level: usize,
    ) -> Option<Self> {
        Some(match attribute_type {
            AttributeType::S => Self::S(scanner.string()?),
            AttributeType::N => Self::N(number_text(scanner)?),
            AttributeType::B => Self::B(binary(scanner)?),
            AttributeType::Bool => Self::Bool(scanner.boolean()?),
            AttributeType::Null => scanner.boolean()?.then_some(Self::Null)?,
            AttributeType::M => Self::M(ItemView::read_members(scanner, level + 1, Vec::new())?),
            AttributeType::L => {
                let mut members = Vec::new();
                scanner.array(|scanner| {
                    members.push(Self::read(scanner, level + 1)?);
                    Some(())
                })?;
                Self::L(members)
            }
            AttributeType::Ss => Self::Ss(set(scanner, Scanner::string)?),
            AttributeType::Ns => Self::Ns(set(scanner, |s| number_text(s)?.parse().ok())?),
            AttributeType::Bs => Self::Bs(set(scanner, binary)?),
        })
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

/// Appends a string that needs no escapes.
fn write_plain(out: &mut String, text: &str) {
    out.push('"');
    out.push_str(text);
    out.push('"');
}

/// Reads a number and returns it in canonical form. Most numbers are already in this form, because
/// DynamoDB writes it.
fn number_text<'t>(scanner: &mut Scanner<'t>) -> Option<Cow<'t, str>> {
    let text = scanner.string()?;
    canonical(scanner, text)
}

/// Returns a number in canonical form.
fn canonical<'t>(scanner: &mut Scanner<'t>, text: Cow<'t, str>) -> Option<Cow<'t, str>> {
    if is_canonical(text.as_bytes()) {
        return Some(text);
    }
    scanner.note_unusual();
    text.parse::<Number>().ok().map(|number| Cow::Owned(number.to_string()))
}

/// Returns true if a number is certainly in canonical form. `false` means that it may be in another
/// form.
fn is_canonical(text: &[u8]) -> bool {
    /// The maximum length of the number in bytes. Every number with 38 digits is in range and
    /// exact.
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

fn binary(scanner: &mut Scanner<'_>) -> Option<Vec<u8>> {
    STANDARD.decode(scanner.string()?.as_ref()).ok()
}

/// Reads a set and sorts it. Returns `None` if the set is empty or has a duplicate.
fn set<'t, T: Ord>(
    scanner: &mut Scanner<'t>,
    read: impl Fn(&mut Scanner<'t>) -> Option<T>,
) -> Option<Vec<T>> {
    let mut members = Vec::new();
    scanner.array(|scanner| {
        members.push(read(scanner)?);
        Some(())
    })?;
    (sort_unique(scanner, &mut members, T::cmp) && !members.is_empty()).then_some(members)
}

/// Sorts members. Returns `false` if two members are equal.
fn sort_unique<T>(
    scanner: &mut Scanner<'_>,
    members: &mut [T],
    compare: impl Fn(&T, &T) -> Ordering,
) -> bool {
    let is_sorted = |members: &[T]| members.is_sorted_by(|a, b| compare(a, b).is_lt());
    if is_sorted(members) {
        return true;
    }
    scanner.note_unusual();
    members.sort_unstable_by(&compare);
    is_sorted(members)
}

/// Sorts members by name. First sorts an array of small indexes, so that each large member moves
/// only once.
fn sort_members(scanner: &mut Scanner<'_>, members: &mut [Member<'_>]) -> bool {
    let is_sorted = |members: &[Member<'_>]| members.is_sorted_by(|a, b| a.compare(b).is_lt());
    if is_sorted(members) {
        return true;
    }
    let mut order = [(0, 0); SORTED_AT_ONCE];
    let Some(order) = order.get_mut(..members.len()) else {
        return sort_unique(scanner, members, Member::compare);
    };
    scanner.note_unusual();
    for (place, (position, member)) in order.iter_mut().zip(members.iter().enumerate()) {
        *place = (member.start, position);
    }
    let name = |position: usize| members.get(position).map(|member| &member.name);
    order.sort_unstable_by(|a, b| a.0.cmp(&b.0).then_with(|| name(a.1).cmp(&name(b.1))));
    let from = |position: usize| order.get(position).map_or(position, |(_, from)| *from);
    for position in 0..members.len() {
        // A member that was to the left of this position was moved to the right by earlier swaps.
        // The loop follows these swaps to find it.
        let mut at = from(position);
        while at < position {
            at = from(at);
        }
        members.swap(position, at);
    }
    is_sorted(members)
}

/// Returns the first eight bytes of a name as a number with the same order, padded with zeros.
fn start_of(name: &str) -> u64 {
    match name.as_bytes().first_chunk() {
        Some(start) => u64::from_be_bytes(*start),
        None => {
            let start = name.bytes().fold(0, |start, byte| (start << 8) | u64::from(byte));
            // This branch is only for names of at most seven bytes, so the number of shifted bits
            // is valid. The result for an empty name is zero.
            start << (8 * (8 - name.len().max(1)))
        }
    }
}

#[cfg(test)]
mod tests;
