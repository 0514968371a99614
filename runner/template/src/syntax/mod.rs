//! The text of a template: its tree, the names of its functions, and errors of texts that are not
//! trees.

pub mod document;
pub(crate) mod faults;
pub(crate) mod intrinsic;
pub(crate) mod macros;
pub(crate) mod node;
pub(crate) mod plain_scalar;
