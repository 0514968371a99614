//! DynamoDB's data types as plain values: attribute values, 38-digit numbers, keys, items, stream
//! records, their sizes and limits, and DynamoDB JSON.
//!
//! The crate uses no clock, disk, network or randomness. It is the only crate that parses and
//! writes DynamoDB JSON. Table contents, expressions and requests are in other crates.

pub mod arn;
pub mod attribute_value;
pub mod encoded_item;
pub mod encoding;
pub mod index_key;
pub mod item;
pub mod json;
pub mod key;
pub mod limits;
pub mod number;
pub mod stream_record;
pub mod time;

pub use attribute_value::{AttributeType, AttributeValue};
pub use encoded_item::EncodedItem;
pub use index_key::{IndexKeySchema, IndexKeyValues, StoredIndexKey};
pub use item::Item;
pub use key::{KeyAttribute, KeyAttributeType, KeySchema, KeyValue, PrimaryKey, Token};
pub use number::Number;
pub use stream_record::{EventName, SequenceNumber, StreamRecord, StreamViewType, UserIdentity};
pub use time::EpochMillis;
