//! The declarations of a template and the references to them. No value is evaluated in this module.

pub(crate) mod generated;
pub(crate) mod globals;
pub(crate) mod references;
pub(crate) mod resource;
