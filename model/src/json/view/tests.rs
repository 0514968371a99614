//! Tests that views equal the results of `decode`, and reject everything that `decode` rejects.

use proptest::prelude::*;

use super::*;
use crate::json::{item_from_str, item_to_string};

/// Returns the item of the view if the text contains nothing else.
fn direct(text: &str) -> Option<Item> {
    let view = ItemView::from_text(text)?;
    let mut written = String::new();
    view.write(&mut written);
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
fn names_are_sorted_whatever_their_beginning() {
    let names = [
        "",
        "\0",
        "\0\0",
        "a",
        "a\0",
        "abcdefg",
        "abcdefg\0",
        "abcdefgh",
        "abcdefgh\0",
        "abcdefgha",
        "abcdefghb",
        "b",
        "z",
        "é",
        "éééé",
        "ééééé",
        "日本語",
    ];
    for (position, name) in names.iter().enumerate() {
        for (other_position, other) in names.iter().enumerate() {
            let text = format!(r#"{{"{name}":{{"S":"1"}},"{other}":{{"S":"2"}}}}"#);
            let text = text.replace('\0', "\\u0000");
            let expected = (position != other_position)
                .then(|| [*name.min(other), *name.max(other)].map(str::to_owned).to_vec());
            let read = ItemView::from_text(&text);
            let found = read
                .as_ref()
                .map(|item| item.iter().map(|(name, _)| name.to_owned()).collect::<Vec<_>>());
            assert_eq!(found, expected, "{text}");
            let item = read.unwrap_or_default();
            assert_eq!(item.get(name).is_some(), !item.is_empty());
            assert_eq!(item.get("abcdefgx"), None);
        }
    }
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
        let read = read::canonical(Cow::Borrowed(text));
        assert_eq!(read.as_deref(), expected.as_deref(), "{text}");
        assert!(
            !read::is_canonical(text.as_bytes()) || expected.as_deref() == Some(text),
            "{text}"
        );
    }
    assert!([&b"-120.05"[..], b"0", b"1000"].into_iter().all(read::is_canonical));
}

proptest! {
    #[test]
    fn members_come_in_any_order(
        names in prop::collection::btree_set("[ab]{0,10}", 0..64)
            .prop_map(|names| names.into_iter().collect::<Vec<_>>())
            .prop_shuffle(),
    ) {
        let members = names.iter().map(|name| format!(r#""{name}":{{"S":"{name}"}}"#));
        let text = format!("{{{}}}", members.collect::<Vec<_>>().join(","));
        prop_assert_eq!(direct(&text), item_from_str(&text).ok());
    }

    #[test]
    fn canonical_texts_are_what_numbers_write(text in "-?[0-9]{1,3}(\\.[0-9]{1,3})?") {
        if read::is_canonical(text.as_bytes()) {
            prop_assert_eq!(text.parse::<Number>().unwrap().to_string(), text);
        }
    }
}

#[test]
fn values_that_the_tree_rejects_are_rejected() {
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
            prop::collection::btree_map(any::<String>(), inner, 0..4).prop_map(AttributeValue::M),
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
