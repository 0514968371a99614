//! The HTML of the page. Pure.

use maud::{Markup, html};

use super::view::View;
use crate::parts::{message, table};

/// Returns the content of the page.
pub(crate) fn html(view: &View) -> Markup {
    let rows: Vec<Vec<Markup>> = view
        .streams
        .iter()
        .map(|stream| vec![html! { (stream.table) }, html! { code { (stream.arn) } }])
        .collect();
    html! {
        h1 { "Pipelines" }
        @if !view.runs { (message::note("no `weir up` reads these streams on this machine")) }
        @if rows.is_empty() {
            (message::empty("No table has a stream.", &html! { "Add a StreamSpecification to a table." }))
        } @else {
            (table::table("Streams", &["table", "ARN"], &rows))
        }
    }
}
