//! DynamoDB JSON both ways, lossless, and the plain JSON tree that requests are read from.
//!
//! `tree` reads any JSON without losing what plain parsers lose (duplicate names, number texts);
//! `decode` turns parts of it into items with DynamoDB's checks and words, of which `fault` has two
//! kinds; `scan` and `view` read items without a tree, for texts that are right; `stored` makes of
//! those what is stored, and `request` reads a request, in which they may stand; `encode` writes items,
//! and `encoded` what is stored of them.
//! Requests and responses themselves are known only to the server.

mod decode;
mod encode;
mod encoded;
mod fault;
mod request;
pub(crate) mod scan;
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
pub use request::{ANY_NAME, parse_with_items};
pub use tree::{Json, JsonError, parse, parse_request};
pub use view::{ItemView, ValueView};
