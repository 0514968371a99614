//! The pages, one folder each: `view` collects plain data, which is also the page's JSON twin, and `html` shows it.

pub(crate) mod archive;
pub(crate) mod copies;
pub(crate) mod counters;
pub(crate) mod filter;
pub(crate) mod item;
pub(crate) mod migration;
pub(crate) mod migrations;
pub(crate) mod partitions;
pub(crate) mod pipelines;
pub(crate) mod record;
pub(crate) mod ring;
pub(crate) mod stream;
pub(crate) mod table;
pub(crate) mod tables;
pub(crate) mod versions;
