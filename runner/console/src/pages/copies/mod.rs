//! Copies: the fan-out jobs, which update the copies of an origin after it changed.

mod html;
mod view;

use std::collections::BTreeMap;

use operations::fan_out::{self, jobs};

pub(crate) use self::html::html;
use self::view::{Job, Rule, View};
use crate::context::Context;
use crate::error::PageError;
use crate::query::Query;

/// The number of jobs that a page reads. Each origin that ever changed has a job.
const READ: u16 = 500;
/// The maximum number of jobs that a page shows.
const SHOWN: usize = 30;

/// Collects the data of the page Copies.
///
/// # Errors
/// Never: if the jobs cannot be read, the page contains the reason.
pub(crate) async fn view(context: &Context, query: &Query) -> Result<View, PageError> {
    let view = View { schema: "weir.console.copies/v1", ..View::default() };
    let named = context.stack().and_then(|stack| fan_out::jobs_table(&stack).ok());
    let Some(table) = query.get("table").map(str::to_owned).or(named) else { return Ok(view) };
    let page = jobs::page(context.dynamodb(), &table, query.get("after"), READ).await;
    let view = View { table: Some(table), ..view };
    Ok(match page {
        Ok(page) => of(page, view),
        Err(problem) => View { problem: Some(problem.to_string()), ..view },
    })
}

fn of(page: jobs::JobPage, view: View) -> View {
    let mut rules: BTreeMap<String, Rule> = BTreeMap::new();
    for job in &page.jobs {
        let rule = rules.entry(job.rule.clone()).or_default();
        rule.jobs += 1;
        rule.open += u64::from(!job.is_done);
        rule.copies += job.copies;
        rule.failed += job.refused;
    }
    let read = page.jobs.len();
    let job = |job: jobs::OriginJob| Job {
        rule: job.rule,
        origin: job.origin,
        event: if job.is_deleted { "deleted" } else { "changed" },
        done: job.is_done,
        copies: job.copies,
        failed: job.refused,
        stamp: job.stamp,
    };
    let mut jobs: Vec<Job> = page.jobs.into_iter().map(job).collect();
    // The sort is stable, so jobs of equal rank keep the order of the table.
    jobs.sort_by_key(|job| (job.done, job.failed == 0));
    jobs.truncate(SHOWN);
    View { rules, read, jobs, damaged: page.damaged, next: page.next, ..view }
}
