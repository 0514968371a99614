//! The text of a template: its tree, the names of its functions, and what is wrong with a text that is no tree.
//! It evaluates nothing and knows no type of resource.

pub mod document;
pub(crate) mod faults;
pub(crate) mod intrinsic;
pub(crate) mod macros;
pub(crate) mod node;
pub(crate) mod plain_scalar;
