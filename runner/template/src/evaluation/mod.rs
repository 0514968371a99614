//! Evaluates the parameters, functions and conditions of a template, and reads properties by name.
//! It knows no type of resource.

pub(crate) mod condition;
pub(crate) mod extensions;
pub(crate) mod parameters;
pub(crate) mod properties;
pub(crate) mod resolver;
pub(crate) mod value;
