//! The syntax of a template: its tree, the names of its functions, and syntax errors.

pub mod document;
pub(crate) mod faults;
pub(crate) mod intrinsic;
pub(crate) mod macros;
pub(crate) mod node;
pub(crate) mod plain_scalar;
