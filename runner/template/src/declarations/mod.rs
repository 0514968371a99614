//! What a template declares and what it refers to.
//! It evaluates nothing.

pub(crate) mod generated;
pub(crate) mod globals;
pub(crate) mod references;
pub(crate) mod resource;
