//! The HTML of the page of migrations. This module performs no I/O.

use maud::{Markup, html};

use super::view::{Listed, View};
use crate::parts::{message, table, time};
use crate::query::href;

/// Returns the HTML of the page Migrations, without its frame.
pub(crate) fn html(view: &View) -> Markup {
    let rows: Vec<Vec<Markup>> = view.migrations.iter().map(row).collect();
    html! {
        h1 { "Migrations" }
        @if rows.is_empty() {
            (message::empty(
                "No migration was started in this store.",
                &html! { (message::command("weir migrate plan PLAN")) " checks a plan, " (message::command("weir migrate start PLAN")) " starts it." },
            ))
        } @else {
            (table::table("Migrations", &["migration", "phase", "begun (UTC)", "differences"], &rows))
            @if view.left_out > 0 { p.note { (view.left_out) " more: " (message::command("weir migrate list")) } }
        }
        p.note { "Control table: " code { (view.control_table) } }
    }
}

fn row(migration: &Listed) -> Vec<Markup> {
    vec![
        html! { a href=(href(&["migrations", &migration.name], &[])) { (migration.name) } },
        html! {
            (migration.phase)
            @if migration.paused { " (paused)" }
            @if migration.writers_blocked { " " span.bad { "writers are blocked" } }
        },
        html! { @match migration.begun { Some(begun) => (time::seconds(begun)), None => "–" } },
        html! {
            @match migration.differences {
                Some(0) => span.good { "0" },
                Some(found) => span.bad { (found) },
                None => span.absent { "never compared" },
            }
        },
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_names_each_migration_and_its_state() {
        let listed = |name: &str, differences| Listed {
            name: name.to_owned(),
            phase: "copying",
            paused: true,
            ended: false,
            writers_blocked: differences == Some(2),
            begun: Some(0),
            differences,
        };
        let view = View {
            schema: "weir.console.migrations/v1",
            control_table: "weir-migrations".to_owned(),
            migrations: vec![listed("a/<b>", Some(2)), listed("c", None), listed("d", Some(0))],
            left_out: 3,
        };
        let page = html(&view).into_string();
        for part in [
            "<a href=\"/migrations/a%2F%3Cb%3E\">a/&lt;b&gt;</a>",
            "copying (paused) <span class=\"bad\">writers are blocked</span>",
            "<span class=\"bad\">2</span>",
            "never compared",
            "1970-01-01 00:00:00",
            "3 more",
        ] {
            assert!(page.contains(part), "{part}\n{page}");
        }
        let page = html(&View { migrations: Vec::new(), left_out: 0, ..view }).into_string();
        assert!(page.contains("weir migrate start PLAN"), "{page}");
    }
}
