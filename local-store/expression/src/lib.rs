//! DynamoDB's expression language: condition, filter, key condition, projection and update
//! expressions, parsed into values that are cheap to evaluate, with DynamoDB's error messages.
//!
//! The crate is pure: it uses no clock, disk, network or randomness. It processes items and key
//! schemas, but no tables or requests.
//!
//! A request is parsed in this order: [`Placeholders::new`], one `parse_*` per expression, and
//! [`Placeholders::check_all_used`]. Each parser makes four passes and reports the first error of the
//! earliest pass, as DynamoDB does: the grammar (`parser`), words and functions (`check`), in updates
//! the document paths, then placeholders and operand types (`resolve`).
//!
//! Sources: AWS, "Using expressions in DynamoDB" and "Reserved words in DynamoDB". Messages and the
//! order of checks follow DynamoDB's responses, as public conformance suites recorded them.

mod check;
mod comparator;
mod condition;
mod condition_tree;
mod error;
mod key_condition;
mod legacy;
mod parser;
pub mod partiql;
mod path;
mod placeholders;
mod projection;
mod reserved;
mod resolve;
mod set_order;
mod syntax;
mod token;
mod update;
mod update_charge;
mod update_resolve;
mod value_table;

pub use condition::{Condition, OtherValues, parse_condition};
pub use error::{ExpressionError, ExpressionKind, UpdateError};
pub use key_condition::{
    IndexCondition, KeyCondition, KeyExpression, ParsedKeyExpression, SortCondition,
    parse_key_condition,
};
pub use legacy::{LEGACY_VALUES_MAX, LegacyAction, LegacyCondition, LegacyOperator};
pub use path::{Path, PathElement};
pub use placeholders::Placeholders;
pub use projection::{Projection, parse_projection};
pub use resolve::value_text;
pub use set_order::in_set_order;
pub use update::Update;
pub use update_resolve::parse_update;
