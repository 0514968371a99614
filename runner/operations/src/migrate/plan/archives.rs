//! Finds archives that a purge could not erase, before the purge starts. Without this check, the
//! purge would fail only at its end, because `complete` erases archives after the items are
//! removed.
//!
//! For tables on AWS this module checks nothing, because there the operator sends the erasure event
//! to the function archive-maintenance.

use client::aws_host::is_on_aws;
use client::failure::Result;
use client::running::Running;
use rules::migration::plan::Plan;

use crate::archive::maintenance::FUNCTION;

/// Returns a message for each table of a purge whose archive `complete` could not erase if the
/// operator ran it in the current folder.
pub(crate) fn unreachable(plan: &Plan, endpoint: &str) -> Vec<String> {
    let tables = plan.from.iter().filter(|source| source.archive);
    if is_on_aws(endpoint) {
        return Vec::new();
    }
    let Err(problem) = Running::read().and_then(|running| check(&running)) else {
        return Vec::new();
    };
    let line = |table: &str| {
        format!(
            "`archive: true` of `{table}`: {problem}; `complete` erases the archive through the function archive-maintenance, so run all commands of this migration in the folder of the `weir up` that archives `{table}`; if the table has no archive, remove `archive: true`"
        )
    };
    tables.map(|source| line(&source.table)).collect()
}

/// Checks that a running `weir up` runs the function archive-maintenance.
fn check(running: &Running) -> Result<()> {
    running.function(FUNCTION).map(drop)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use rules::migration::plan::{Kind, Source};

    use super::*;
    use crate::migrate::report::next_steps::tests::plan;

    #[test]
    fn an_archive_needs_its_function() {
        let running = |name: &str| Running {
            functions: BTreeMap::from([(name.to_owned(), "f".to_owned())]),
            ..Running::default()
        };
        assert_eq!(check(&running(FUNCTION)), Ok(()));
        assert!(check(&running("Other")).is_err());
    }

    #[test]
    fn each_archive_that_cannot_be_erased_is_named() {
        let source = |table: &str, archive| Source {
            table: table.to_owned(),
            items: Vec::new(),
            split: None,
            archive,
        };
        let from = vec![source("orders", true), source("lines", false)];
        let plan = Plan { from, ..plan(Kind::Purge, false) };
        // No `weir up` runs in the folder of this test.
        let found = unreachable(&plan, "http://127.0.0.1:1");
        assert_eq!(found.len(), 1, "{found:?}");
        assert!(found[0].starts_with("`archive: true` of `orders`: no `weir up`"), "{found:?}");
        assert!(unreachable(&plan, "https://dynamodb.eu-west-3.amazonaws.com").is_empty());
    }
}
