//! The HTML of the page of copies. This module performs no I/O.

use maud::{Markup, html};

use super::view::{Job, Rule, View};
use crate::parts::{cell, message, table};
use crate::query::href;

/// Returns the HTML of the page Copies, without its frame.
pub(crate) fn html(view: &View) -> Markup {
    let table = view.table.as_deref().unwrap_or_default();
    let next =
        view.next.as_deref().map(|after| href(&["copies"], &[("table", table), ("after", after)]));
    html! {
        h1 { "Copies" }
        @if let Some(problem) = &view.problem {
            p.error role="alert" { (problem) }
        } @else if view.table.is_none() {
            (message::empty(
                "No function of the template has the environment variable JOBS_TABLE.",
                &html! { (message::command("weir init fan-out DIRECTORY")) " writes a project that updates copies. For another table of jobs, open " code { "/copies?table=NAME" } "." },
            ))
        } @else if view.read == 0 && view.damaged == 0 {
            (message::empty("No origin has changed yet.", &html! { "A job appears when an origin changes an attribute that a rule copies." }))
        } @else {
            (rules(view))
            (jobs(view))
            @if view.damaged > 0 {
                (message::warning(&format!("{} items of `{table}` are not jobs: check that `{table}` is the table of jobs", view.damaged)))
            }
            (table::pager(None, next.as_deref()))
        }
        @if view.table.is_some() { p.note { "Jobs: " code { (table) } } }
    }
}

fn rules(view: &View) -> Markup {
    let rows: Vec<Vec<Markup>> =
        view.rules.iter().map(|(name, rule)| rule_row(name, *rule)).collect();
    let caption = match view.next {
        Some(_) => format!("Rules, with counts over the {} jobs that were read", view.read),
        None => "Rules".to_owned(),
    };
    table::table(&caption, &["rule", "jobs", "open", "copies written", "failed", "repair"], &rows)
}

fn rule_row(name: &str, rule: Rule) -> Vec<Markup> {
    vec![
        html! { (name) },
        html! { (rule.jobs) },
        html! { @if rule.open > 0 { span.wait { (rule.open) } } @else { span.good { "0" } } },
        html! { (rule.copies) },
        html! { @if rule.failed > 0 { span.bad { (rule.failed) } } @else { span.good { "0" } } },
        html! {
            @if rule.failed > 0 {
                (message::command("weir logs fan-out")) " shows the failed copies, this command repairs them: "
                (message::command(&format!("weir fan-out repair --rule {}", client::output::shell_word(name))))
            }
        },
    ]
}

fn jobs(view: &View) -> Markup {
    let rows: Vec<Vec<Markup>> = view.jobs.iter().map(job_row).collect();
    let caption = match view.read > rows.len() {
        true => format!("{} of {} jobs, open and failed ones first", rows.len(), view.read),
        false => "Jobs, open and failed ones first".to_owned(),
    };
    let headings = ["origin", "rule", "status", "copies written", "failed", "stamp of the change"];
    table::table(&caption, &headings, &rows)
}

fn job_row(job: &Job) -> Vec<Markup> {
    vec![
        html! { code { (cell::cut(&job.origin, None)) } },
        html! { (job.rule) },
        html! {
            (job.event) ", "
            @if job.done { span.good { "done" } } @else { span.wait { "in progress" } }
        },
        html! { (job.copies) },
        html! { @if job.failed > 0 { span.bad { (job.failed) } } @else { "0" } },
        html! { code { (job.stamp) } },
    ]
}

#[cfg(test)]
mod tests {
    use operations::fan_out::jobs::{JobPage, OriginJob};

    use super::super::of;
    use super::*;

    #[test]
    fn open_and_failed_jobs_come_first() {
        let job = |origin: &str, is_done, refused| OriginJob {
            rule: "products".to_owned(),
            origin: origin.to_owned(),
            is_deleted: false,
            stamp: "l/1".to_owned(),
            is_done,
            copies: 4,
            refused,
        };
        let jobs = vec![job("done", true, 0), job("<failed>", true, 2), job("open", false, 0)];
        let page = JobPage { jobs, damaged: 1, next: Some("k".to_owned()) };
        let view = of(page, View { table: Some("jobs".to_owned()), ..View::default() });
        let origins: Vec<&str> = view.jobs.iter().map(|job| job.origin.as_str()).collect();
        assert_eq!(origins, ["open", "<failed>", "done"]);
        let rule = view.rules.get("products").copied().unwrap();
        assert_eq!(rule, Rule { jobs: 3, open: 1, copies: 12, failed: 2 });
        let page = html(&view).into_string();
        for part in [
            "over the 3 jobs that were read",
            "&lt;failed&gt;",
            "<span class=\"wait\">in progress</span>",
            "<span class=\"bad\">2</span>",
            "weir fan-out repair --rule products",
            "1 items of `jobs` are not jobs",
            "href=\"/copies?table=jobs&amp;after=k\"",
        ] {
            assert!(page.contains(part), "{part}\n{page}");
        }
    }

    #[test]
    fn an_empty_page_says_what_fills_it() {
        let none = View::default();
        let empty = View { table: Some("jobs".to_owned()), ..View::default() };
        let unread = View { problem: Some("no table".to_owned()), ..empty.clone() };
        for (view, part) in [
            (none, "weir init fan-out"),
            (empty, "No origin has changed yet"),
            (unread, "role=\"alert\">no table"),
        ] {
            let page = html(&view).into_string();
            assert!(page.contains(part), "{page}");
        }
    }
}
