//! `weir fan-out jobs` and `status`: show the jobs of origins and the progress of their copies.
//!
//! This module writes nothing.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use aws_sdk_dynamodb::Client;
use aws_sdk_dynamodb::error::{ProvideErrorMetadata, SdkError};
use aws_sdk_dynamodb::types::AttributeValue as SdkValue;
use model::{AttributeValue, Item};
use rules::fan_out::{JOB_KEY, Job, Origin};
use serde_json::json;

use client::attribute::from_sdk_item;
use client::exit::Exit;
use client::failure::{Context, Failure, Result, fatal};
use client::output::{self, Output, counted, say};
use client::sdk_error::is_not_found;

/// Advice on how to name a different table of jobs.
const JOBS_FLAG: &str =
    "name the table of jobs with --jobs-table, for example --jobs-table fan-out-jobs";

/// Shows the jobs of all rules, or of one rule. `rules` are the rules of the template, if known.
///
/// # Errors
/// When the table cannot be read, or the rule is unknown: neither the template nor any job has it.
pub(super) async fn list(
    client: &Client,
    table: &str,
    only_open: bool,
    (rule, rules): (Option<&str>, &[String]),
    output: Output,
) -> Result<Exit> {
    let (mut rows, mut damaged) = (Vec::new(), 0);
    let mut known: BTreeSet<String> = rules.iter().cloned().collect();
    each(client, table, |key, job| {
        let Some((origin, job)) = Origin::from_job_key(key).zip(job) else {
            damaged += 1;
            return;
        };
        if !known.contains(&origin.rule) {
            known.insert(origin.rule.clone());
        }
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
    if let Some(rule) = rule.filter(|rule| !known.contains(*rule)) {
        let known: Vec<String> = known.into_iter().collect();
        let known = if known.is_empty() { "none".to_owned() } else { known.join(", ") };
        return Err(fatal!("unknown rule `{rule}`; rules are: {known}"));
    }
    let headings =
        ["rule", "origin", "event", "stamp", "done", "copies written", "refused", "revision"];
    output::rows(output, &headings, &rows);
    Ok(end(damaged, false))
}

/// Counts the jobs of each rule.
///
/// # Errors
/// When the table cannot be read.
pub(super) async fn status(client: &Client, table: &str, output: Output) -> Result<Exit> {
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
        let items =
            counted(damaged, "item of the table is not a job", "items of the table are not jobs");
        say(&format!("{items}: check that it is the table of jobs; {JOBS_FLAG}"));
    }
    if damaged > 0 || is_open { Exit::Differences } else { Exit::Done }
}

/// Visits every job with its key. An item that is not a job is visited as `None`.
pub(super) async fn each(
    client: &Client,
    table: &str,
    mut visit: impl FnMut(&str, Option<Job>),
) -> Result<()> {
    let mut items =
        client.scan().table_name(table).consistent_read(true).into_paginator().items().send();
    while let Some(item) = items.next().await {
        let read = item.map_err(unread).and_then(entry);
        let (key, job) = read.context(|| format!("cannot read table `{table}`"))?;
        visit(&key, job);
    }
    Ok(())
}

/// Returns why the table of jobs cannot be read.
fn unread<E>(error: SdkError<E>) -> Failure
where
    E: std::error::Error + ProvideErrorMetadata + 'static,
{
    let is_missing = is_not_found(&error);
    Failure::from(error).with(|text| if is_missing { format!("{text}; {JOBS_FLAG}") } else { text })
}

/// Returns the key of an item of the table, and its job.
fn entry(item: HashMap<String, SdkValue>) -> Result<(String, Option<Job>)> {
    let item: Item = from_sdk_item(item)?;
    let key = item.get(JOB_KEY).and_then(AttributeValue::as_str).unwrap_or_default();
    Ok((key.to_owned(), Job::from_item(&item).ok()))
}

/// The job of an origin, for a program that displays it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OriginJob {
    /// The rule.
    pub rule: String,
    /// The key of the origin in DynamoDB JSON.
    pub origin: String,
    /// True if the origin was deleted.
    pub is_deleted: bool,
    /// The stamp of the origin's state that the copies must have.
    pub stamp: String,
    /// True if every copy was processed.
    pub is_done: bool,
    /// Number of copies that were written.
    pub copies: u64,
    /// Number of copies that could not be written.
    pub refused: u64,
}

/// A page of jobs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct JobPage {
    /// The jobs, in the order of the table.
    pub jobs: Vec<OriginJob>,
    /// Number of items of the table that are not jobs.
    pub damaged: u64,
    /// The key after which the next page begins.
    pub next: Option<String>,
}

/// Reads one page of the table of jobs, with at most `at_most` items.
///
/// # Errors
/// When the table cannot be read.
pub async fn page(
    client: &Client,
    table: &str,
    after: Option<&str>,
    at_most: u16,
) -> Result<JobPage> {
    let doing = || format!("cannot read table `{table}`");
    let start =
        after.map(|after| HashMap::from([(JOB_KEY.to_owned(), SdkValue::S(after.to_owned()))]));
    let request = client.scan().table_name(table).consistent_read(true).limit(at_most.into());
    let answer = request.set_exclusive_start_key(start).send().await;
    let answer = answer.map_err(unread).context(doing)?;
    let mut page = JobPage::default();
    for item in answer.items.unwrap_or_default() {
        let (key, job) = entry(item).context(doing)?;
        let Some((origin, job)) = Origin::from_job_key(&key).zip(job) else {
            page.damaged += 1;
            continue;
        };
        page.jobs.push(OriginJob {
            rule: origin.rule,
            origin: origin.key,
            is_deleted: job.state.deleted,
            stamp: job.state.stamp.to_string(),
            is_done: job.done,
            copies: job.copies,
            refused: job.refused,
        });
    }
    let next = answer.last_evaluated_key.and_then(|mut key| key.remove(JOB_KEY));
    page.next = next.and_then(|key| key.as_s().ok().cloned());
    Ok(page)
}

#[cfg(test)]
mod tests {
    use super::*;
    use testing::store::TestStore;

    #[tokio::test]
    async fn jobs_of_a_rule_that_there_is_not_are_refused() {
        let store = TestStore::open().await;
        store.table("jobs").await;
        let put = store.client.put_item().table_name("jobs");
        put.item("p", SdkValue::S("x".to_owned())).send().await.unwrap();
        let rules = ["products".to_owned()];
        let list =
            async |rule| list(&store.client, "jobs", false, (rule, &rules), Output::Json).await;
        assert!(list(Some("products")).await.is_ok() && list(None).await.is_ok());
        let said = list(Some("nosuch")).await.unwrap_err().to_string();
        assert_eq!(said, "unknown rule `nosuch`; rules are: products");
        let said = status(&store.client, "nowhere", Output::Json).await.unwrap_err().to_string();
        assert!(said.starts_with("cannot read table `nowhere`: "), "{said}");
        assert!(
            said.ends_with(
                "; name the table of jobs with --jobs-table, for example --jobs-table fan-out-jobs"
            ),
            "{said}"
        );
    }
}
