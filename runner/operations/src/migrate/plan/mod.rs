//! Parses plan files, checks plans against their tables, and estimates effects and costs. These
//! modules write nothing.

pub(crate) mod archives;
pub(crate) mod check;
pub(crate) mod compile;
pub(crate) mod cost;
pub(crate) mod estimate;
pub(crate) mod indexes;
pub(crate) mod lost_writes;
pub(crate) mod neighbours;
pub(crate) mod plan_file;
pub(crate) mod tables;
pub(crate) mod targets;
pub(crate) mod unmatched;
pub(crate) mod value_copies;
