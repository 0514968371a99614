//! Key: `[8] table-id:u64 index:u32 token:u64 index-partition index-sort item-token:u64 partition sort`.
//! Value: the projected item.
//!
//! A string or binary part is escaped, so that it is self-delimiting and order-preserving: a zero
//! byte is written as `00 ff`, and the part ends with `00 01`. A number part is self-delimiting
//! already. `index-partition` and `index-sort` have one part for each attribute of the index's key.
//!
//! The token is the hash of the index's partition key. Therefore a Query of an index, or a segment
//! of a parallel scan, reads one range. The item's token is the hash of the table's partition key.
//! DynamoDB does not define the order of entries with equal index keys. This store orders them like
//! their items, so that fetching the items of consecutive entries is sequential.
//!
//! An entry's value contains all key attributes, so no function decodes a key.

use model::encoded_item::StoredKeyValue;
use model::{KeyAttributeType, KeyValue, PrimaryKey, StoredIndexKey, Token};

use super::{Family, take};
use crate::table::identifiers::{IndexNumber, TableId};
use crate::table::index::IndexKey;

/// Returns the prefix of all entries of an index.
pub(crate) fn index_prefix(table: TableId, index: IndexNumber) -> Vec<u8> {
    let mut key = Family::IndexEntry.of_table(table);
    key.extend_from_slice(&index.0.to_be_bytes());
    key
}

/// Returns the first possible key of entries at or after a token.
pub(crate) fn token_prefix(table: TableId, index: IndexNumber, token: Token) -> Vec<u8> {
    let mut key = Vec::with_capacity(64);
    append_token_prefix(&mut key, table, index, token);
    key
}

/// Length of [`token_prefix`]: family, table, index and token.
const PREFIX_BYTES: usize = 1 + 8 + 4 + TOKEN_BYTES;
const TOKEN_BYTES: usize = size_of::<Token>();

fn append_token_prefix(key: &mut Vec<u8>, table: TableId, index: IndexNumber, token: Token) {
    Family::IndexEntry.append_of_table(key, table);
    key.extend_from_slice(&index.0.to_be_bytes());
    key.extend_from_slice(&token.0.to_be_bytes());
}

/// Returns the prefix of all entries with one partition key of the index.
pub(crate) fn prefix(table: TableId, index: IndexNumber, partition: &[KeyValue]) -> Vec<u8> {
    let mut key = token_prefix(table, index, Token::of_parts(partition));
    partition.iter().for_each(|part| append(&mut key, part));
    key
}

pub(crate) fn encode(table: TableId, index: IndexNumber, place: &IndexKey) -> Vec<u8> {
    let IndexKey { index: values, table: primary } = place;
    let mut key = prefix(table, index, &values.partition);
    values.sort.iter().for_each(|part| append(&mut key, part));
    append_primary(&mut key, primary);
    key
}

/// Returns the key of the entry of an item in its stored form, and its token.
pub(crate) fn encode_stored(
    table: TableId,
    index: IndexNumber,
    values: &StoredIndexKey<'_>,
    primary: &PrimaryKey,
) -> (Vec<u8>, Token) {
    let token = values.token();
    let stored_bytes = |part: &StoredKeyValue<'_>| part.ordered.len() + END.len();
    let bytes = |part: &KeyValue| part.ordered_bytes_max() + END.len();
    let room = PREFIX_BYTES
        + values.partition().iter().chain(values.sort()).map(stored_bytes).sum::<usize>()
        + TOKEN_BYTES
        + bytes(&primary.partition)
        + primary.sort.as_ref().map_or(0, bytes);
    let mut key = Vec::with_capacity(room);
    append_token_prefix(&mut key, table, index, token);
    values.partition().iter().chain(values.sort()).for_each(|part| append_stored(&mut key, part));
    append_primary(&mut key, primary);
    (key, token)
}

fn append_primary(key: &mut Vec<u8>, PrimaryKey { partition, sort }: &PrimaryKey) {
    key.extend_from_slice(&Token::of(partition).0.to_be_bytes());
    append(key, partition);
    sort.iter().for_each(|part| append(key, part));
}

/// Returns the token in the key of an entry, as [`encode_stored`] encodes it.
pub(crate) fn token_of(key: &[u8]) -> Token {
    let token = key.get(13..).and_then(take::<8>).map(|(token, _)| u64::from_be_bytes(token));
    Token(token.unwrap_or(0))
}

/// Appends a part and its terminator.
pub(crate) fn append(key: &mut Vec<u8>, part: &KeyValue) {
    append_open(key, part);
    if !matches!(part, KeyValue::N(_)) {
        key.extend_from_slice(&END);
    }
}

/// The terminator of a string or binary part.
const END: [u8; 2] = [0, 1];

/// Appends a part without its terminator. The result is the common prefix of the keys of all values
/// that begin with this value.
pub(crate) fn append_open(key: &mut Vec<u8>, part: &KeyValue) {
    match part {
        KeyValue::S(text) => append_escaped(key, text.as_bytes()),
        KeyValue::B(bytes) => append_escaped(key, bytes),
        KeyValue::N(number) => number.encode_ordered(key),
    }
}

/// Appends a part of an item in its stored form, and its terminator.
fn append_stored(key: &mut Vec<u8>, part: &StoredKeyValue<'_>) {
    match part.attribute_type {
        KeyAttributeType::N => key.extend_from_slice(part.ordered),
        KeyAttributeType::S | KeyAttributeType::B => {
            append_escaped(key, part.ordered);
            key.extend_from_slice(&END);
        }
    }
}

fn append_escaped(key: &mut Vec<u8>, bytes: &[u8]) {
    let mut runs = bytes.split(|byte| *byte == 0);
    key.extend_from_slice(runs.next().unwrap_or_default());
    for run in runs {
        key.extend_from_slice(&[0, u8::MAX]);
        key.extend_from_slice(run);
    }
}

#[cfg(test)]
mod tests {
    use model::{EncodedItem, IndexKeySchema, IndexKeyValues, Item, KeyAttribute, Number};
    use proptest::prelude::*;

    use super::*;

    fn any_value(kind: u8) -> BoxedStrategy<KeyValue> {
        match kind {
            0 => {
                prop::collection::vec(prop_oneof![Just(0u8), Just(1), Just(255), any::<u8>()], 1..5)
                    .prop_map(KeyValue::B)
                    .boxed()
            }
            1 => "[\u{0}\u{1}ab\u{10ffff}]{1,4}".prop_map(KeyValue::S).boxed(),
            _ => (-300i64..300).prop_map(|n| KeyValue::N(Number::from(n))).boxed(),
        }
    }

    fn any_place(kinds: (u8, u8, u8)) -> impl Strategy<Value = IndexKey> {
        let (index_sort, partition, sort) = kinds;
        (any_value(index_sort), any_value(partition), any_value(sort)).prop_map(
            |(index_sort, partition, sort)| IndexKey {
                index: IndexKeyValues {
                    partition: vec![KeyValue::S("p".to_owned()), KeyValue::N(Number::from(1u64))],
                    sort: vec![index_sort, KeyValue::S("q".to_owned())],
                },
                table: PrimaryKey { partition, sort: Some(sort) },
            },
        )
    }

    fn two_places() -> impl Strategy<Value = (IndexKey, IndexKey)> {
        (0u8..3, 0u8..3, 0u8..3).prop_flat_map(|kinds| (any_place(kinds), any_place(kinds)))
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(2000))]

        /// Goal: keys sort by the index's key, then by the item's key, and different keys never
        /// collide.
        #[test]
        fn bytes_are_in_the_order_of_the_parts((a, b) in two_places()) {
            let key = |place| encode(TableId(1), IndexNumber(2), place);
            let order = |place: &IndexKey| {
                let IndexKey { index, table } = place.clone();
                (index, Token::of(&table.partition), table)
            };
            prop_assert_eq!(key(&a).cmp(&key(&b)), order(&a).cmp(&order(&b)));
            prop_assert!(key(&a).starts_with(&prefix(TableId(1), IndexNumber(2), &a.index.partition)));
        }

        /// Goal: an item's stored form gives the same key as its values.
        #[test]
        fn stored_items_have_the_same_key(place in (0u8..3, 0u8..3, 0u8..3).prop_flat_map(any_place)) {
            let mut item = Item::new();
            let mut attribute = |name: &str, value: &KeyValue| {
                item.insert(name.to_owned(), value.to_attribute_value());
                KeyAttribute { name: name.to_owned(), attribute_type: value.attribute_type() }
            };
            let names = ["c", "a", "b"];
            let mut attributes = |values: &[KeyValue], side: &str| -> Vec<KeyAttribute> {
                let named = values.iter().zip(names);
                named.map(|(value, name)| attribute(&format!("{name}{side}"), value)).collect()
            };
            let partition = attributes(&place.index.partition, "p");
            let schema = IndexKeySchema { partition, sort: attributes(&place.index.sort, "s") };
            let item = EncodedItem::from(&item);
            let values = schema.values_of_encoded(&item).unwrap().unwrap();
            let (key, token) = encode_stored(TableId(1), IndexNumber(2), &values, &place.table);
            prop_assert_eq!(&key, &encode(TableId(1), IndexNumber(2), &place));
            prop_assert_eq!(token, token_of(&key));
        }

        /// Goal: the encoding is prefix-free.
        #[test]
        fn no_part_is_a_prefix_of_another((a, b) in (0u8..3).prop_flat_map(|k| (any_value(k), any_value(k)))) {
            let bytes = |value: &KeyValue| {
                let mut bytes = Vec::new();
                append(&mut bytes, value);
                bytes
            };
            prop_assert_eq!(bytes(&a).starts_with(&bytes(&b)), a == b);
        }
    }
}
