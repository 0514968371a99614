//! The pages, with a folder for each. `view` defines the data of the page, which is also its JSON
//! version. `html` renders the data as HTML.

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
