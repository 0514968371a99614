//! The pages, one folder each: `view` collects plain data, which is also the page's JSON twin, and `html` shows it.

pub(crate) mod archive;
pub(crate) mod copies;
pub(crate) mod counters;
pub(crate) mod filter;
pub(crate) mod migration;
pub(crate) mod migrations;
pub(crate) mod pipelines;
pub(crate) mod record;
pub(crate) mod stream;
pub(crate) mod versions;
