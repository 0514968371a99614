//! DynamoDB JSON in both directions, lossless, and the plain JSON tree of requests.
//!
//! - `tree` parses any JSON. It keeps duplicate names, which other parsers lose.
//! - `decode` decodes parts of a tree to items with DynamoDB's checks and messages. `fault`
//!   contains DynamoDB's current wording of these messages, and the wording until mid-2026.
//! - `view` reads valid items without a tree, and `stored` encodes them for storage.
//! - `encode` writes items as JSON, and `encoded` writes their stored form as JSON.
//!
//! The server defines the requests and responses of the operations.

mod decode;
mod encode;
mod encoded;
mod fault;
mod stored;
mod tree;
mod view;

pub use decode::{
    DecodeError, attribute_value_from_str, decode_attribute_value, decode_item,
    decode_placeholder_value, item_from_str,
};
pub use encode::{
    item_to_string, write_attribute_value, write_attributes, write_item, write_list, write_string,
};
pub use encoded::write_encoded_item;
pub use fault::ValueFault;
pub use tree::{ANY_NAME, Json, JsonError, parse, parse_request, parse_with_items};
pub use view::{ItemView, ValueView};
