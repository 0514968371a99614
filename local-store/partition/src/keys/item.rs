//! Key: `[3] table-id:u64 token:u64 length:u16 partition-key sort-key`. Value: the item.
//!
//! Items are in the order of a Scan (by token) and, within one partition key, of a Query (by sort
//! key). The length before the partition key locates the sort key.

use model::encoding;
use model::{Item, KeySchema, KeyValue, PrimaryKey, Token};

use super::{Family, take};
use crate::storage::ReadError;
use crate::table::identifiers::TableId;

/// Returns the prefix of all items with one partition key.
pub(crate) fn prefix(table: TableId, partition: &KeyValue) -> Vec<u8> {
    let mut key = Family::Item.of_table(table);
    let token_at = key.len();
    key.extend_from_slice(&[0; 10]);
    partition.encode_ordered(&mut key);
    // The token is the hash of the key bytes just written.
    let ordered = key.get(token_at + 10..).unwrap_or_default();
    let token = Token::of_ordered(ordered);
    // A partition key has at most 2,048 bytes, so its length always fits into 16 bits.
    let length = u16::try_from(ordered.len()).unwrap_or(u16::MAX);
    if let Some((place, rest)) = key.get_mut(token_at..).and_then(<[u8]>::split_first_chunk_mut) {
        *place = token.0.to_be_bytes();
        if let Some(place) = rest.first_chunk_mut() {
            *place = length.to_be_bytes();
        }
    }
    key
}

/// Returns the first possible key of items at or after a token.
pub(crate) fn token_prefix(table: TableId, token: Token) -> Vec<u8> {
    let mut key = Family::Item.of_table(table);
    key.extend_from_slice(&token.0.to_be_bytes());
    key
}

pub(crate) fn encode(table: TableId, primary: &PrimaryKey) -> Vec<u8> {
    let mut key = prefix(table, &primary.partition);
    if let Some(sort) = &primary.sort {
        sort.encode_ordered(&mut key);
    }
    key
}

/// Returns the token in a key.
pub(crate) fn decode_token(key: &[u8]) -> Result<Token, ReadError> {
    key.get(9..)
        .and_then(take::<8>)
        .map(|(token, _)| Token(u64::from_be_bytes(token)))
        .ok_or_else(|| ReadError(format!("damaged item key: {key:02x?}")))
}

pub(crate) fn decode(schema: &KeySchema, key: &[u8]) -> Result<PrimaryKey, ReadError> {
    let rest = key.get(9..).unwrap_or(&[]);
    decode_suffix(schema, rest).ok_or_else(|| ReadError(format!("damaged item key: {key:02x?}")))
}

/// Decodes the item's key from the bytes after the table id: token, length, partition key, sort
/// key.
pub(crate) fn decode_suffix(schema: &KeySchema, suffix: &[u8]) -> Option<PrimaryKey> {
    let (_, rest) = take::<8>(suffix)?;
    let (length, rest) = take::<2>(rest)?;
    let (partition, sort) = rest.split_at_checked(usize::from(u16::from_be_bytes(length)))?;
    let partition = KeyValue::decode_ordered(schema.partition.attribute_type, partition)?;
    let sort = match &schema.sort {
        Some(attribute) => Some(KeyValue::decode_ordered(attribute.attribute_type, sort)?),
        None if sort.is_empty() => None,
        None => return None,
    };
    Some(PrimaryKey { partition, sort })
}

pub(crate) fn decode_value(bytes: &[u8]) -> Result<Item, ReadError> {
    encoding::decode_item(bytes).map_err(|error| ReadError(error.to_string()))
}

#[cfg(test)]
mod tests {
    use model::{KeyAttribute, KeyAttributeType, Number};
    use proptest::prelude::*;

    use super::*;

    fn schema(sort: KeyAttributeType) -> KeySchema {
        let attribute =
            |name: &str, attribute_type| KeyAttribute { name: name.to_owned(), attribute_type };
        KeySchema {
            partition: attribute("p", KeyAttributeType::S),
            sort: Some(attribute("s", sort)),
        }
    }

    fn key(partition: String, sort: KeyValue) -> PrimaryKey {
        PrimaryKey { partition: KeyValue::S(partition), sort: Some(sort) }
    }

    proptest! {
        #[test]
        fn round_trip_and_order(partition in ".{1,8}", a in any::<i64>(), b in any::<i64>(), text in ".{1,8}") {
            let a = key(partition.clone(), KeyValue::N(Number::from(a)));
            let b = key(partition.clone(), KeyValue::N(Number::from(b)));
            let (left, right) = (encode(TableId(3), &a), encode(TableId(3), &b));
            prop_assert_eq!(decode(&schema(KeyAttributeType::N), &left), Ok(a.clone()));
            prop_assert_eq!(decode_token(&left), Ok(a.token()));
            prop_assert_eq!(left.cmp(&right), a.sort.cmp(&b.sort));
            let c = key(partition, KeyValue::S(text));
            prop_assert_eq!(decode(&schema(KeyAttributeType::S), &encode(TableId(3), &c)), Ok(c));
        }
    }
}
