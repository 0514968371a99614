//! Messages within a page: notes, warnings, and the message of an empty list.

use maud::{Markup, html};

/// Returns the HTML of a remark.
pub(crate) fn note(text: &str) -> Markup {
    html! { p.note { (text) } }
}

/// Returns a warning about blocked progress or lost data.
pub(crate) fn warning(text: &str) -> Markup {
    html! { p.warning { strong { "Attention: " } (text) } }
}

/// Returns the message of an empty list: what is missing, and how to fill the list.
pub(crate) fn empty(what: &str, remedy: &Markup) -> Markup {
    html! { div.empty { p { (what) } p { (remedy) } } }
}

/// Returns a command for a shell.
pub(crate) fn command(text: &str) -> Markup {
    html! { code.command { (text) } }
}
