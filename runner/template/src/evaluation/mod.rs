//! The values of a template: its parameters, functions and conditions evaluated, and properties read by name.
//! It knows no type of resource.

pub(crate) mod condition;
pub(crate) mod extensions;
pub(crate) mod parameters;
pub(crate) mod properties;
pub(crate) mod resolver;
pub(crate) mod value;
