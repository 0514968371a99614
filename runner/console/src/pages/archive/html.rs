//! The HTML of the page of the archive. This module performs no I/O.

use maud::{Markup, html};

use super::view::{Day, EraseForm, Erasure, Restore, RestoreForm, Rows, View};
use super::{BUTTON_ROWS_MAX, DAYS};
use crate::context::Writes;
use crate::parts::{cell, form, message, table};
use crate::query::href;
use crate::tasks::{Task, TaskState};

/// The maximum number of tasks that the page shows. The JSON version has all tasks that are in the
/// console's memory.
const TASKS_MAX: usize = 3;
/// The maximum number of characters of a task's result that the page shows.
const ANSWER_MAX: usize = 4_000;

/// Returns the HTML of the page Archive, without its frame.
pub(crate) fn html(view: &View, writes: Writes<'_>) -> Markup {
    html! {
        h1 { "Archive" }
        @for task in view.tasks.iter().take(TASKS_MAX) { (result(task)) }
        @match &view.location {
            None => {
                (empty(view.nothing.as_deref().unwrap_or("There is no archive.")))
                form method="get" action="/archive" {
                    (form::field("bucket", "bucket", "Bucket", view.bucket.as_deref().unwrap_or_default(), "my-archive"))
                    button type="submit" { "Show" }
                }
            },
            Some(location) if view.tables.is_empty() => {
                p { "At " code { (location) } }
                (empty("Nothing is archived yet."))
            },
            Some(location) => {
                p { "At " code { (location) } }
                (days(view))
                @if let Some(found) = &view.rows { (rows(view, found)) }
                (restore(view, writes))
                (erasure(view, writes))
            },
        }
    }
}

/// Returns the HTML of an empty or missing archive.
fn empty(what: &str) -> Markup {
    message::empty(
        what,
        &html! {
            "The function " code { "archive" } " writes the first object when TTL deletes an item: "
            (message::command("weir clock advance 24h")) ", then " (message::command("weir ttl sweep"))
        },
    )
}

/// Returns the HTML of the result of a task that a button has started.
fn result(task: &Task) -> Markup {
    html! {
        section aria-label=(format!("Task {}", task.id)) role="status" {
            @match &task.state {
                TaskState::Running => p.note { "Task " (task.id) ": " (task.what) ": running" },
                TaskState::Done(answer) => {
                    p.good { "Task " (task.id) ": " (task.what) ": done" }
                    pre { (answer.chars().take(ANSWER_MAX).collect::<String>()) }
                    p.note { "If you need the receipt, save it: the console keeps receipts only until it ends." }
                },
                TaskState::Failed(reason) => p.error { "Task " (task.id) ": " (task.what) " failed: " (reason) },
            }
        }
    }
}

/// Returns the address of this page with additional query fields.
fn at(view: &View, fields: &[(&str, &str)]) -> String {
    let bucket = view.bucket.as_deref().unwrap_or_default();
    href(&["archive"], &[&[("bucket", bucket)], fields].concat())
}

fn days(view: &View) -> Markup {
    let rows: Vec<Vec<Markup>> = view.days.iter().map(|day| row(view, day)).collect();
    let wanted = view.table.as_deref().unwrap_or_default();
    let page = |skip: usize| at(view, &[("table", wanted), ("skip", &skip.to_string())]);
    let before = (view.skipped > 0).then(|| match view.skipped.saturating_sub(DAYS) {
        0 => at(view, &[("table", wanted)]),
        skip => page(skip),
    });
    let after = (view.left_out > 0).then(|| page(view.skipped + view.days.len()));
    let headings = ["day", "table", "objects", "rows", "bytes", "first delete", "last delete"];
    html! {
        form method="get" action="/archive" {
            @if let Some(bucket) = &view.bucket { input type="hidden" name="bucket" value=(bucket); }
            (form::choice("table", "table", "Table", wanted, &tables(view, "all tables")))
            button type="submit" { "Show" }
        }
        @if rows.is_empty() {
            (message::empty("The archive does not contain this day.", &html! { a href=(at(view, &[])) { "Show all days" } }))
        } @else {
            (table::table("Days, newest first", &headings, &rows))
        }
        (table::pager(before.as_deref(), after.as_deref()))
        @for reason in &view.damaged { (message::warning(reason)) }
    }
}

fn row(view: &View, day: &Day) -> Vec<Markup> {
    let address = at(view, &[("table", &day.table), ("day", &day.day)]);
    let optional = |text: &Option<String>| html! { (text.as_deref().unwrap_or("–")) };
    vec![
        html! { a href=(address) { (day.day) } },
        html! { (day.table) },
        html! {
            (day.parts)
            @if day.damaged_parts > 0 { " (" span.bad { (day.damaged_parts) " cannot be read" } ")" }
        },
        html! { @match day.rows { Some(rows) => (rows), None => span.absent title="not counted" { "–" } } },
        html! { (day.bytes) },
        optional(&day.first_deleted_at),
        optional(&day.last_deleted_at),
    ]
}

/// The maximum number of tables that the list offers. A query may name any table.
const TABLES_MAX: usize = 50;

/// Returns the options of the list of tables.
fn tables<'v>(view: &'v View, all: &'v str) -> Vec<(&'v str, &'v str)> {
    let none = (!all.is_empty()).then_some(("", all));
    let tables = view.tables.iter().take(TABLES_MAX).map(|table| (table.as_str(), table.as_str()));
    none.into_iter().chain(tables).collect()
}

fn rows(view: &View, found: &Rows) -> Markup {
    let table = view.table.as_deref().unwrap_or_default();
    let twin = href(&["archive"], &[]) + ".json";
    let fields = [("table", table), ("day", &found.day)];
    let whole = format!("{twin}{}", href(&[], &fields));
    let lines: Vec<Vec<Markup>> = found
        .rows
        .iter()
        .map(|row| {
            vec![
                html! { span.time { (row.deleted_at) } },
                html! { (row.deleted_by) },
                html! { code { (cell::cut(row.columns.get(), Some(&whole))) } },
            ]
        })
        .collect();
    let caption = match found.has_more {
        true => format!("First {} rows of {table} on {}", found.rows.len(), found.day),
        false => format!("All {} rows of {table} on {}", found.rows.len(), found.day),
    };
    html! {
        h2 id="rows" { "Rows" }
        (table::table(&caption, &["deleted (UTC)", "by", "row"], &lines))
        p { a href=(whole) { "These rows as JSON" } @if found.has_more { ". For all rows: " (message::command("weir archive ddl --engine duckdb")) } }
    }
}

fn restore(view: &View, writes: Writes<'_>) -> Markup {
    let known = RestoreForm::default();
    let filled = view.restore.as_ref().map_or(&known, |restore| &restore.form);
    let table = if filled.table.is_empty() { view.table.as_deref() } else { Some(&*filled.table) };
    let text = |text: &Option<String>| text.clone().unwrap_or_default();
    html! {
        h2 { "Restore" }
        p.note { "Restores archived items to their table, except items of which the table has a newer version. The preview writes nothing." }
        form method="get" action="/archive" {
            input type="hidden" name="do" value="restore";
            @if let Some(bucket) = &view.bucket { input type="hidden" name="bucket" value=(bucket); }
            (form::choice("restore-table", "table", "Table", table.unwrap_or_default(), &tables(view, "")))
            (form::field("restore-key", "key", "Key", &text(&filled.key), "{\"year\":2013,\"title\":\"Rush\"}"))
            (form::field("restore-where", "where", "Condition", &text(&filled.condition), "year >= 2000"))
            (form::field("restore-dt", "dt", "Day of the delete", &text(&filled.day), "2026-11-21"))
            (form::field("restore-as-of", "as_of", "As of", &text(&filled.as_of), "2026-11-21T12:00:00Z"))
            (form::field("restore-ttl", "ttl", "TTL (strip, or seconds)", if filled.ttl.is_empty() { "strip" } else { &filled.ttl }, "strip, or seconds"))
            div.field { label for="restore-all" { "All items" } input id="restore-all" name="all" type="checkbox" value="yes" checked[filled.all]; }
            button type="submit" { "Preview" }
        }
        @if let Some(restore) = &view.restore { (restore_preview(view, restore, writes)) }
    }
}

fn restore_preview(view: &View, restore: &Restore, writes: Writes<'_>) -> Markup {
    let mut fields = restore.form.fields();
    fields.extend(view.bucket.as_deref().map(|bucket| ("bucket", bucket)));
    let back = at(view, &[&[("do", "restore")], restore.form.fields().as_slice()].concat());
    html! {
        @if let Some(problem) = &restore.problem { p.error role="alert" { (problem) } }
        @for note in &restore.notes { p { strong { "Preview: " } (note) } }
        p.note { code { "--ttl " (restore.form.ttl) } ": " (ttl_effect(&restore.form.ttl)) }
        @if let Some(counts) = &restore.counts { details { summary { "counts" } pre { (counts.get()) } } }
        @if restore.button {
            (form::button(writes, "/archive/restore", &back, "Restore these items", &fields))
        } @else if restore.problem.is_none() {
            p.note { "There is no button, because the preview selects no item or more than " (BUTTON_ROWS_MAX) " rows. Run this command instead:" }
        }
        p { (message::command(&restore.command)) }
    }
}

/// Returns the effect of the option `--ttl` on restored items.
fn ttl_effect(ttl: &str) -> &'static str {
    match ttl {
        "strip" => {
            "restored items lose their TTL attribute, unless it is part of the key, so they do not expire again."
        }
        _ => "restored items expire this number of seconds after the restore.",
    }
}

fn erasure(view: &View, writes: Writes<'_>) -> Markup {
    let known = EraseForm::default();
    let filled = view.erasure.as_ref().map_or(&known, |erasure| &erasure.form);
    let table = if filled.table.is_empty() { view.table.as_deref() } else { Some(&*filled.table) };
    let text = |text: &Option<String>| text.clone().unwrap_or_default();
    html! {
        h2 { "Erase" }
        p.note { "Erases all rows of a key or a tenant from the archive, permanently, and writes a receipt." }
        form method="get" action="/archive" {
            input type="hidden" name="do" value="erase";
            @if let Some(bucket) = &view.bucket { input type="hidden" name="bucket" value=(bucket); }
            (form::choice("erase-table", "table", "Table", table.unwrap_or_default(), &tables(view, "")))
            (form::field("erase-equals", "equals", "Attributes equal", &text(&filled.equals), "{\"title\":\"Rush\"}"))
            (form::field("erase-begins", "begins_with", "Attribute begins with", &text(&filled.begins_with), "pk=TENANT#7#"))
            button type="submit" { "Preview" }
        }
        @if let Some(erasure) = &view.erasure { (erase_preview(view, erasure, writes)) }
    }
}

fn erase_preview(view: &View, erasure: &Erasure, writes: Writes<'_>) -> Markup {
    let fields = erasure.form.fields();
    let back = at(view, &[]);
    html! {
        @if erasure.rows.is_some() {
            p { strong { "Preview: this would erase " (erasure.text) } }
        } @else {
            p.error role="alert" { (erasure.text) }
        }
        @if erasure.button {
            @match writes {
                Writes::Allowed(_) => form method="post" action="/archive/erase" {
                    (form::hidden(writes, &back))
                    @if let Some(bucket) = &view.bucket { input type="hidden" name="bucket" value=(bucket); }
                    @for (name, value) in fields { input type="hidden" name=(name) value=(value); }
                    (form::field("confirm", "confirm", "Type the table's name to confirm", "", &erasure.form.table))
                    button type="submit" { "Erase permanently" }
                },
                Writes::Refused => (form::button(writes, "/archive/erase", &back, "Erase permanently", &[])),
            }
        }
        p { (message::command(&erasure.command)) }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::value::RawValue;

    use super::super::view::Row;
    use super::*;
    use crate::token::Token;

    fn raw(text: &str) -> Box<RawValue> {
        RawValue::from_string(text.to_owned()).unwrap()
    }

    fn view() -> View {
        View {
            schema: "weir.console.archive/v1",
            location: Some("s3://b/archive".to_owned()),
            tables: vec!["movies".to_owned()],
            table: Some("movies".to_owned()),
            days: vec![Day {
                table: "movies".to_owned(),
                day: "2026-11-21".to_owned(),
                parts: 2,
                bytes: 900,
                rows: Some(7),
                damaged_parts: 1,
                first_deleted_at: None,
                last_deleted_at: Some("2026-11-21T02:00:00Z".to_owned()),
            }],
            left_out: 4,
            damaged: vec!["cannot read part `x`".to_owned()],
            rows: Some(Rows {
                day: "2026-11-21".to_owned(),
                rows: vec![Row {
                    deleted_at: "2026-11-21T02:00:00Z".to_owned(),
                    deleted_by: "ttl".to_owned(),
                    columns: raw(&format!(r#"{{"title":"<b>","pad":"{}"}}"#, "x".repeat(300))),
                }],
                has_more: true,
            }),
            ..View::default()
        }
    }

    #[test]
    fn days_and_rows_are_linked_and_escaped() {
        let page = html(&view(), Writes::Refused).into_string();
        for part in [
            "<a href=\"/archive?table=movies&amp;day=2026-11-21\">2026-11-21</a>",
            "2 (<span class=\"bad\">1 cannot be read</span>)",
            "href=\"/archive?table=movies&amp;skip=1\" rel=\"next\"",
            "First 1 rows of movies on 2026-11-21",
            "&lt;b&gt;",
            "<a href=\"/archive.json?table=movies&amp;day=2026-11-21\">all 324 characters</a>",
            "cannot read part `x`",
            "name=\"do\" value=\"restore\"",
        ] {
            assert!(page.contains(part), "{part}\n{page}");
        }
        assert!(!page.contains("<b>"), "{page}");
    }

    #[test]
    fn a_preview_leads_to_a_button_only_where_writes_are_allowed() {
        let form = RestoreForm {
            table: "movies".to_owned(),
            condition: Some("year = 2013".to_owned()),
            ttl: "strip".to_owned(),
            ..RestoreForm::default()
        };
        let restore = Restore {
            command: form.command(),
            form,
            counts: Some(raw(r#"{"rows":2}"#)),
            notes: vec!["2 rows: 1 item would be put; nothing was written".to_owned()],
            problem: None,
            button: true,
        };
        let form = EraseForm {
            table: "movies".to_owned(),
            begins_with: Some("title=Ru".to_owned()),
            equals: None,
        };
        let erasure = Erasure {
            command: form.command(),
            form,
            rows: Some(2),
            objects: Some(1),
            text: "2 rows of `movies` in 1 object, permanently".to_owned(),
            button: true,
        };
        let view = View { restore: Some(restore), erasure: Some(erasure), ..view() };
        let token = Token::random().unwrap();
        let page = html(&view, Writes::Allowed(&token)).into_string();
        for part in [
            "1 item would be put",
            "action=\"/archive/restore\"",
            "name=\"where\" value=\"year = 2013\"",
            "weir archive restore --table movies --where 'year = 2013' --ttl strip",
            "<code>--ttl strip</code>: restored items lose their TTL attribute",
            "this would erase 2 rows of `movies`",
            "action=\"/archive/erase\"",
            "name=\"begins_with\" value=\"title=Ru\"",
            "name=\"confirm\"",
        ] {
            assert!(page.contains(part), "{part}\n{page}");
        }
        let page = html(&view, Writes::Refused).into_string();
        assert!(!page.contains("method=\"post\"") && page.contains("disabled"), "{page}");
    }

    #[test]
    fn without_an_archive_the_page_says_how_to_fill_it() {
        let view = View { nothing: Some("no bucket has an archive".to_owned()), ..View::default() };
        let page = html(&view, Writes::Refused).into_string();
        assert!(page.contains("name=\"bucket\""), "{page}");
        assert!(
            page.contains("no bucket has an archive") && page.contains("weir ttl sweep"),
            "{page}"
        );
        for (state, part) in [
            (TaskState::Running, "erase rows: running"),
            (TaskState::Done("{\"erased\":{}}".to_owned()), "{&quot;erased&quot;:{}}"),
            (TaskState::Failed("no".to_owned()), "erase rows failed: no"),
        ] {
            let tasks = vec![Task { id: 1, what: "erase rows".to_owned(), state }];
            let view = View { tasks, ..View::default() };
            let page = html(&view, Writes::Refused).into_string();
            assert!(page.contains(part), "{page}");
            assert_eq!(view.is_running(), part.ends_with("running"));
        }
    }
}
