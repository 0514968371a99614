//! Evaluates the parameters, intrinsic functions and conditions of a template, and reads properties
//! by name. The evaluation does not depend on the resource type.

pub(crate) mod condition;
pub(crate) mod extensions;
pub(crate) mod parameters;
pub(crate) mod properties;
pub(crate) mod resolver;
pub(crate) mod value;
