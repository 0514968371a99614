//! Evaluates the parameters, functions and conditions of a template, and reads properties by name. The
//! evaluation is the same for all resource types.

pub(crate) mod condition;
pub(crate) mod extensions;
pub(crate) mod parameters;
pub(crate) mod properties;
pub(crate) mod resolver;
pub(crate) mod value;
