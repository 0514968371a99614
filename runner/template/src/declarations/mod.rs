//! The declarations of a template and the references to them. This module evaluates nothing.

pub(crate) mod generated;
pub(crate) mod globals;
pub(crate) mod references;
pub(crate) mod resource;
