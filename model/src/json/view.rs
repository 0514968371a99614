//! Items that borrow from the text they were read from: for who looks at an item once and writes
//! most of it on, as the archive does.
//!
//! Read from text they are what `decode` reads, and nothing that it refuses; what is not plainly
//! right answers `None`, and is to be read by `decode`, which says what is wrong in DynamoDB's
//! words. Members stand in the order of their names, as in an [`Item`].

use std::borrow::Cow;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;

use super::encode::{write_binary, write_string};
use super::scan::Scanner;
use crate::attribute_value::{AttributeType, AttributeValue};
use crate::item::Item;
use crate::limits::NESTING_LEVELS_MAX;
use crate::number::Number;

/// Attributes that most items have at most. Maps may be many and small.
const MEMBERS_EXPECTED: usize = 16;

/// Attributes by name, in the order of their names.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ItemView<'t>(Vec<Member<'t>>);

/// An attribute of an item, or a member of a map.
#[derive(Clone, Debug)]
struct Member<'t> {
    name: Cow<'t, str>,
    value: ValueView<'t>,
    /// Name and value as they stand in the text, if that is how they are written; most are, and
    /// need not be written piece by piece.
    text: Option<&'t str>,
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
    /// Number, as [`Number`] writes it.
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
    /// The view of an item.
    #[must_use]
    pub fn of(item: &'t Item) -> Self {
        Self::of_members(item)
    }

    fn of_members(members: &'t std::collections::BTreeMap<String, AttributeValue>) -> Self {
        let member = |(name, value): (&'t String, &'t AttributeValue)| Member {
            name: Cow::Borrowed(name.as_str()),
            value: ValueView::of(value),
            text: None,
        };
        Self(members.iter().map(member).collect())
    }

    /// Reads an item from a text that is nothing else.
    pub(crate) fn from_text(text: &'t str) -> Option<Self> {
        let mut scanner = Scanner::new(text);
        let item = Self::read(&mut scanner)?;
        scanner.is_at_end().then_some(item)
    }

    /// Reads an item from the next value.
    pub(crate) fn read(scanner: &mut Scanner<'t>) -> Option<Self> {
        Self::read_members(scanner, 1)
    }

    /// `level` is that of the members: 1 in an item, one more in each map or list.
    fn read_members(scanner: &mut Scanner<'t>, level: usize) -> Option<Self> {
        let expected = if level == 1 { MEMBERS_EXPECTED } else { 0 };
        let mut members = Vec::with_capacity(expected);
        scanner.members((b'{', b'}'), |scanner| {
            let ((name, value), text) = scanner.as_written(|scanner| {
                let name = scanner.name()?;
                Some((name, ValueView::read(scanner, level)?))
            })?;
            members.push(Member { name, value, text });
            Some(())
        })?;
        sort_unique(scanner, &mut members, |member| &member.name).then_some(Self(members))
    }

    /// The attributes, in the order of their names.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = (&str, &ValueView<'t>)> {
        self.0.iter().map(|member| (member.name.as_ref(), &member.value))
    }

    /// Number of attributes.
    #[must_use]
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether there is no attribute.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The value of an attribute.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&ValueView<'t>> {
        self.find(name).map(|(_, value)| value)
    }

    /// The place of an attribute, from 0, and its value.
    #[must_use]
    pub fn find(&self, name: &str) -> Option<(usize, &ValueView<'t>)> {
        let at = self.0.binary_search_by(|member| member.name.as_ref().cmp(name)).ok()?;
        self.0.get(at).map(|member| (at, &member.value))
    }

    /// As [`ItemView::find`], for who knows where the attribute may be.
    #[must_use]
    pub fn find_near(&self, place: usize, name: &str) -> Option<(usize, &ValueView<'t>)> {
        match self.0.get(place) {
            Some(member) if member.name == name => Some((place, &member.value)),
            _ => self.find(name),
        }
    }

    /// The item.
    #[must_use]
    pub fn into_item(self) -> Item {
        let members = self.0.into_iter();
        members.map(|member| (member.name.into_owned(), member.value.into_value())).collect()
    }

    /// Bytes of the attributes whose text is known.
    #[must_use]
    pub fn text_len(&self) -> usize {
        self.0.iter().map(|member| member.text.map_or(0, |text| text.len() + ",".len())).sum()
    }

    /// Appends DynamoDB JSON, as `write_item` does.
    pub fn write(&self, out: &mut String) {
        self.write_and_tell(out, |_, _| {});
    }

    /// The same, and tells between which bytes of `out` each value stands.
    pub fn write_and_tell(&self, out: &mut String, mut tell: impl FnMut(usize, usize)) {
        out.push('{');
        for (position, Member { name, value, text }) in self.0.iter().enumerate() {
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
            // The text is a number's own, so it is one.
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

    /// `level` is the value's own.
    fn read(scanner: &mut Scanner<'t>, level: usize) -> Option<Self> {
        if level > NESTING_LEVELS_MAX {
            return None;
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
            AttributeType::M => Self::M(ItemView::read_members(scanner, level + 1)?),
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

    /// The type.
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

    /// The number, if this is one.
    #[must_use]
    pub fn as_number(&self) -> Option<Number> {
        match self {
            Self::N(text) => text.parse().ok(),
            _ => None,
        }
    }

    /// The members, if this is a map.
    #[must_use]
    pub fn as_map(&self) -> Option<&ItemView<'t>> {
        match self {
            Self::M(members) => Some(members),
            _ => None,
        }
    }

    /// Appends DynamoDB JSON, as `write_attribute_value` does.
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
            Self::Ns(numbers) => {
                write_list(out, numbers, |out, number| write_plain(out, &number.to_string()));
            }
            Self::Bs(all) => write_list(out, all, |out, bytes| write_binary(out, bytes)),
        }
        out.push('}');
    }
}

/// Appends a text that has nothing to escape.
fn write_plain(out: &mut String, text: &str) {
    out.push('"');
    out.push_str(text);
    out.push('"');
}

fn write_list<T>(out: &mut String, members: &[T], write: impl Fn(&mut String, &T)) {
    out.push('[');
    for (position, member) in members.iter().enumerate() {
        if position > 0 {
            out.push(',');
        }
        write(out, member);
    }
    out.push(']');
}

/// The number's own text: most come so, as DynamoDB writes them so.
fn number_text<'t>(scanner: &mut Scanner<'t>) -> Option<Cow<'t, str>> {
    let text = scanner.string()?;
    if is_canonical(text.as_bytes()) {
        return Some(text);
    }
    scanner.note_unusual();
    text.parse::<Number>().ok().map(|number| Cow::Owned(number.to_string()))
}

/// Whether this surely is what [`Number`] would write. `false` says nothing.
fn is_canonical(text: &[u8]) -> bool {
    /// Any number of so many digits fits.
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

/// A set that is not empty, in order.
fn set<'t, T: Ord>(
    scanner: &mut Scanner<'t>,
    read: impl Fn(&mut Scanner<'t>) -> Option<T>,
) -> Option<Vec<T>> {
    let mut members = Vec::new();
    scanner.array(|scanner| {
        members.push(read(scanner)?);
        Some(())
    })?;
    (sort_unique(scanner, &mut members, |member| member) && !members.is_empty()).then_some(members)
}

/// Sorts; `false` if two are alike.
fn sort_unique<T, K: Ord + ?Sized>(
    scanner: &mut Scanner<'_>,
    members: &mut [T],
    key: impl Fn(&T) -> &K,
) -> bool {
    let is_sorted = |members: &[T]| members.is_sorted_by(|a, b| key(a) < key(b));
    if is_sorted(members) {
        return true;
    }
    scanner.note_unusual();
    members.sort_unstable_by(|a, b| key(a).cmp(key(b)));
    is_sorted(members)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::json::{item_from_str, item_to_string};

    /// What the view is of, if it is one and nothing else.
    fn direct(text: &str) -> Option<Item> {
        let mut scanner = Scanner::new(text);
        let view = ItemView::read(&mut scanner).filter(|_| scanner.is_at_end())?;
        let mut written = String::new();
        view.write(&mut written);
        let is_plain = text == written && !text.contains('\\');
        assert!(!is_plain || view.0.iter().all(|member| member.text.is_some()), "{text}");
        let mut values = Vec::new();
        view.write_and_tell(&mut String::new(), |start, end| values.push(&written[start..end]));
        for (written, value) in values.into_iter().zip(view.iter().map(|(_, value)| value)) {
            let mut expected = String::new();
            value.write(&mut expected);
            assert_eq!(written, expected);
        }
        let item = view.clone().into_item();
        assert_eq!(written, item_to_string(&item));
        assert_eq!(view, ItemView::of(&item));
        Some(item)
    }

    #[test]
    fn numbers_are_written_as_numbers_write_them() {
        for text in [
            "0",
            "-0",
            "00",
            "7",
            "-7",
            "07",
            "0.5",
            "-0.5",
            "1.50",
            "1.",
            ".5",
            "+5",
            "1e3",
            "100",
            "0.0",
            "-0.0",
            "123456789012345678901234567890123456789",
            "0.05",
            "1.5.5",
            "-",
            "--1",
        ] {
            let expected = text.parse::<Number>().ok().map(|number| number.to_string());
            let quoted = format!("\"{text}\"");
            let read = number_text(&mut Scanner::new(&quoted));
            assert_eq!(read.as_deref(), expected.as_deref(), "{text}");
            assert!(!is_canonical(text.as_bytes()) || expected.as_deref() == Some(text), "{text}");
        }
        assert!(is_canonical(b"-120.05") && is_canonical(b"0") && is_canonical(b"1000"));
    }

    proptest! {
        #[test]
        fn texts_that_are_canonical_are_what_numbers_write(text in "-?[0-9]{1,3}(\\.[0-9]{1,3})?") {
            if is_canonical(text.as_bytes()) {
                prop_assert_eq!(text.parse::<Number>().unwrap().to_string(), text);
            }
        }
    }

    #[test]
    fn what_the_tree_refuses_is_refused() {
        for value in [
            "{}",
            r#"{"X":"1"}"#,
            r#"{"S":"a","N":"1"}"#,
            r#"{"S":"a","S":"a"}"#,
            r#"{"N":1}"#,
            r#"{"N":"abc"}"#,
            r#"{"N":""}"#,
            r#"{"S":true}"#,
            r#"{"S":null}"#,
            r#"{"NULL":false}"#,
            r#"{"SS":[]}"#,
            r#"{"SS":["a","a"]}"#,
            r#"{"NS":["1","1.0"]}"#,
            r#"{"BS":["YQ==","YQ=="]}"#,
            r#"{"M":{"a":{"S":"x"},"a":{"S":"y"}}}"#,
            r#"{"M":[]}"#,
            r#"{"L":{}}"#,
            r#"{"B":"!"}"#,
            r#""a""#,
            "null",
            r#"{"S":"\ud800"}"#,
        ] {
            let text = format!(r#"{{"a":{value}}}"#);
            assert!(item_from_str(&text).is_err(), "{text}");
            assert_eq!(direct(&text), None, "{text}");
        }
        for (levels, good) in [(31, true), (32, false)] {
            let deep = "{\"L\":[".repeat(levels) + "{\"S\":\"x\"}" + &"]}".repeat(levels);
            let text = format!(r#"{{"a":{deep}}}"#);
            assert_eq!(item_from_str(&text).is_ok(), good);
            assert_eq!(direct(&text).is_some(), good);
        }
    }

    fn values() -> impl Strategy<Value = AttributeValue> + Clone {
        let number = any::<i64>().prop_map(Number::from);
        let leaf = prop_oneof![
            any::<String>().prop_map(AttributeValue::S),
            number.clone().prop_map(AttributeValue::N),
            any::<Vec<u8>>().prop_map(AttributeValue::B),
            any::<bool>().prop_map(AttributeValue::Bool),
            Just(AttributeValue::Null),
            prop::collection::btree_set(any::<String>(), 1..4).prop_map(AttributeValue::Ss),
            prop::collection::btree_set(number, 1..4).prop_map(AttributeValue::Ns),
            prop::collection::btree_set(any::<Vec<u8>>(), 1..4).prop_map(AttributeValue::Bs),
        ];
        leaf.prop_recursive(4, 24, 4, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..4).prop_map(AttributeValue::L),
                prop::collection::btree_map(any::<String>(), inner, 0..4)
                    .prop_map(AttributeValue::M),
            ]
        })
    }

    proptest! {
        #[test]
        fn items_are_read_as_through_the_tree(
            members in prop::collection::btree_map(any::<String>(), values(), 0..5),
        ) {
            let item = Item(members);
            let text = item_to_string(&item);
            prop_assert_eq!(direct(&text), Some(item));
        }

        #[test]
        fn damaged_texts_are_read_as_through_the_tree_or_not_at_all(
            members in prop::collection::btree_map("[ab]", values(), 1..3),
            at in any::<prop::sample::Index>(),
            with in prop::sample::select(b"\"{}[],:0tnS\\".to_vec()),
        ) {
            let mut bytes = item_to_string(&Item(members)).into_bytes();
            let at = at.index(bytes.len());
            bytes[at] = with;
            if let Ok(text) = std::str::from_utf8(&bytes) {
                let read = direct(text);
                prop_assert!(read.is_none() || read == item_from_str(text).ok(), "{}", text);
            }
        }
    }
}
