//! The data of the page `copies`, which is served as HTML and as JSON.

use std::collections::BTreeMap;

use serde::Serialize;

/// The data of the page Copies.
#[derive(Clone, Debug, Default, Serialize)]
pub(crate) struct View {
    /// The name and version of the JSON schema.
    pub(crate) schema: &'static str,
    /// The table of jobs; `None` if the template names none.
    pub(crate) table: Option<String>,
    /// The totals of the read jobs, by rule.
    pub(crate) rules: BTreeMap<String, Rule>,
    /// The number of jobs that were read.
    pub(crate) read: usize,
    /// The jobs of the page, open and failed jobs first.
    pub(crate) jobs: Vec<Job>,
    /// The number of items of the table that are not jobs.
    pub(crate) damaged: u64,
    /// The key after which the next page begins.
    pub(crate) next: Option<String>,
    /// The reason why the jobs cannot be read.
    pub(crate) problem: Option<String>,
}

/// The totals of a rule.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub(crate) struct Rule {
    pub(crate) jobs: u64,
    /// The number of jobs that are not done.
    pub(crate) open: u64,
    /// The number of copies that were written.
    pub(crate) copies: u64,
    /// The number of copies that could not be written.
    pub(crate) failed: u64,
}

/// A job: the copies of one origin.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Job {
    pub(crate) rule: String,
    /// The key of the origin in DynamoDB JSON.
    pub(crate) origin: String,
    /// `changed` or `deleted`.
    pub(crate) event: &'static str,
    /// Whether every copy was visited.
    pub(crate) done: bool,
    /// The number of copies that were written.
    pub(crate) copies: u64,
    /// The number of copies that could not be written.
    pub(crate) failed: u64,
    /// The stamp of the origin's change.
    pub(crate) stamp: String,
}
