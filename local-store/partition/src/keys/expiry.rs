//! Expiry entries. Key: `[5] table-id:u64 expires-at-seconds:u64 token:u64 length:u16 partition-key
//! sort-key`. Value: empty.

use model::{KeySchema, PrimaryKey};

use super::{Family, item, take};
use crate::storage::ReadError;
use crate::table::identifiers::TableId;

/// Returns the first possible key of a table's expiry entries with an expiry time of at least
/// `expires_at`.
pub(crate) fn time_prefix(table: TableId, expires_at: u64) -> Vec<u8> {
    let mut key = Family::Expiry.of_table(table);
    key.extend_from_slice(&expires_at.to_be_bytes());
    key
}

pub(crate) fn encode(table: TableId, expires_at: u64, primary: &PrimaryKey) -> Vec<u8> {
    let mut key = time_prefix(table, expires_at);
    key.extend(item::encode(table, primary).into_iter().skip(9));
    key
}

pub(crate) fn decode(schema: &KeySchema, key: &[u8]) -> Result<(u64, PrimaryKey), ReadError> {
    let suffix = key.get(9..).unwrap_or(&[]);
    take::<8>(suffix)
        .and_then(|(expires_at, rest)| {
            Some((u64::from_be_bytes(expires_at), item::decode_suffix(schema, rest)?))
        })
        .ok_or_else(|| ReadError(format!("damaged expiry key: {key:02x?}")))
}

#[cfg(test)]
mod tests {
    use model::{KeyAttribute, KeyAttributeType, KeyValue};

    use super::*;

    #[test]
    fn round_trip_and_order() {
        let attribute = |name: &str| KeyAttribute {
            name: name.to_owned(),
            attribute_type: KeyAttributeType::B,
        };
        let schema = KeySchema { partition: attribute("p"), sort: Some(attribute("s")) };
        let primary =
            PrimaryKey { partition: KeyValue::B(vec![0xff; 3]), sort: Some(KeyValue::B(vec![0])) };
        let key = |at| encode(TableId(9), at, &primary);
        assert_eq!(decode(&schema, &key(300)), Ok((300, primary.clone())));
        assert!(key(9) < key(300));
        assert!(time_prefix(TableId(9), 300) <= key(300));
        assert!(key(299) < time_prefix(TableId(9), 300));
    }
}
