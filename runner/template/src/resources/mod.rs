//! Parsers of the emulated resources, one for each type.

pub mod binary;
pub(crate) mod bucket;
pub(crate) mod code;
pub(crate) mod destination;
pub mod entrypoint;
pub(crate) mod event;
pub(crate) mod function;
pub(crate) mod global_table;
pub(crate) mod index;
pub(crate) mod mapping;
pub(crate) mod origin;
pub(crate) mod package;
pub(crate) mod policies;
pub(crate) mod runtimes;
pub(crate) mod schedule;
pub(crate) mod script;
pub mod sources;
pub(crate) mod table;
pub(crate) mod table_parts;
