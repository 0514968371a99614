//! Warnings about settings that are probably unintended or not emulated. They never reject a
//! template.

pub(crate) mod elsewhere;
pub(crate) mod grants;
pub(crate) mod lint;
