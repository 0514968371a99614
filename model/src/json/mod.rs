//! DynamoDB JSON both ways, lossless, and the plain JSON tree that requests are read from.
//!
//! `tree` reads any JSON without losing what plain parsers lose (duplicate names, number texts);
//! `decode` turns parts of it into items with DynamoDB's checks and words; `scan` and `view` read
//! items without a tree, for texts that are right; `encode` writes items, and `encoded` what is
//! stored of them.
//! Requests and responses themselves are known only to the server.

mod decode;
mod encode;
mod encoded;
pub(crate) mod scan;
mod tree;
mod view;

pub use decode::{
    DecodeError, attribute_value_from_str, decode_attribute_value, decode_item, item_from_str,
};
pub use encode::{item_to_string, write_attribute_value, write_item, write_string};
pub use encoded::write_encoded_item;
pub use tree::{Json, JsonError, parse};
pub use view::{ItemView, ValueView};
