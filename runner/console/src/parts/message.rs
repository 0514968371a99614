//! Messages within a page: a note, a warning, and what an empty page says.

use maud::{Markup, html};

/// Returns a note.
pub(crate) fn note(text: &str) -> Markup {
    html! { p.note { (text) } }
}

/// Returns a warning about something that stands still or is lost.
pub(crate) fn warning(text: &str) -> Markup {
    html! { p.warning { strong { "Attention: " } (text) } }
}

/// Returns the text of a list without entries: what is missing, and what fills it.
pub(crate) fn empty(what: &str, remedy: &Markup) -> Markup {
    html! { div.empty { p { (what) } p { (remedy) } } }
}

/// Returns a command for a shell.
pub(crate) fn command(text: &str) -> Markup {
    html! { code.command { (text) } }
}
