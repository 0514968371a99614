//! `weir fan-out jobs` and `status`: what is known of each origin, and how far its copies are.
//!
//! Nothing is written.

use std::collections::BTreeMap;

use aws_sdk_dynamodb::Client;
use model::{AttributeValue, Item};
use rules::fan_out::{JOB_KEY, Job, Origin};
use serde_json::json;

use crate::exit::Exit;
use crate::load::{error_text, from_sdk_item};
use crate::output::{self, Output, say};

/// Shows jobs.
///
/// # Errors
/// When the table cannot be read.
pub(super) async fn list(
    client: &Client,
    table: &str,
    only_open: bool,
    rule: Option<&str>,
    output: Output,
) -> Result<Exit, String> {
    let (mut rows, mut damaged) = (Vec::new(), 0);
    each(client, table, |key, job| {
        let Some((origin, job)) = Origin::from_job_key(key).zip(job) else {
            damaged += 1;
            return;
        };
        if (only_open && job.done) || rule.is_some_and(|rule| rule != origin.rule) {
            return;
        }
        rows.push(vec![
            json!(origin.rule),
            json!(origin.key),
            json!(if job.state.deleted { "deleted" } else { "changed" }),
            json!(job.state.stamp.as_str()),
            json!(job.done),
            json!(job.copies),
            json!(job.refused),
            json!(job.revision),
        ]);
    })
    .await?;
    let headings =
        ["rule", "origin", "event", "stamp", "done", "copies written", "refused", "revision"];
    output::rows(output, &headings, &rows);
    Ok(end(damaged, false))
}

/// Counts the jobs of each rule.
///
/// # Errors
/// When the table cannot be read.
pub(super) async fn status(client: &Client, table: &str, output: Output) -> Result<Exit, String> {
    #[derive(Default)]
    struct Count {
        jobs: u64,
        open: u64,
        copies: u64,
        refused: u64,
    }
    let mut rules: BTreeMap<String, Count> = BTreeMap::new();
    let mut damaged = 0;
    each(client, table, |key, job| {
        let Some((origin, job)) = Origin::from_job_key(key).zip(job) else {
            damaged += 1;
            return;
        };
        let count = rules.entry(origin.rule).or_default();
        count.jobs += 1;
        count.open += u64::from(!job.done);
        count.copies += job.copies;
        count.refused += job.refused;
    })
    .await?;
    let row = |(rule, count): (&String, &Count)| {
        vec![
            json!(rule),
            json!(count.jobs),
            json!(count.open),
            json!(count.copies),
            json!(count.refused),
        ]
    };
    let rows: Vec<_> = rules.iter().map(row).collect();
    output::rows(output, &["rule", "jobs", "open", "copies written", "refused"], &rows);
    Ok(end(damaged, rules.values().any(|count| count.open > 0)))
}

fn end(damaged: u64, is_open: bool) -> Exit {
    if damaged > 0 {
        say(&format!("{damaged} items of the table are no jobs: is it the table of jobs?"));
    }
    if damaged > 0 || is_open { Exit::Differences } else { Exit::Done }
}

/// Shows every job with its key; `None` for an item that is none.
async fn each(
    client: &Client,
    table: &str,
    mut visit: impl FnMut(&str, Option<Job>),
) -> Result<(), String> {
    let mut items =
        client.scan().table_name(table).consistent_read(true).into_paginator().items().send();
    while let Some(item) = items.next().await {
        let item: Item = item
            .map_err(|error| error_text(&error))
            .and_then(from_sdk_item)
            .map_err(|error| format!("cannot read table `{table}`: {error}"))?;
        let key = item.get(JOB_KEY).and_then(AttributeValue::as_str).unwrap_or_default();
        visit(key, Job::from_item(&item).ok());
    }
    Ok(())
}
