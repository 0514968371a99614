//! Forms: buttons that change something, and fields of a query.

use maud::{Markup, html};

use crate::context::{READ_ONLY, Writes};

/// Returns a button that sends hidden fields to an action. After the action, the browser returns to
/// `back`. In a read-only console, the button is disabled, with the reason.
pub(crate) fn button(
    writes: Writes<'_>,
    action: &str,
    back: &str,
    label: &str,
    fields: &[(&str, &str)],
) -> Markup {
    html! {
        @match writes {
            Writes::Allowed(_) => form.action method="post" action=(action) {
                (hidden(writes, back))
                @for (name, value) in fields { input type="hidden" name=(name) value=(value); }
                button type="submit" { (label) }
            },
            Writes::Refused => button type="button" disabled title=(READ_ONLY) { (label) },
        }
    }
}

/// Returns the hidden fields that every form with an action must have: the token, and the page to
/// return to.
pub(crate) fn hidden(writes: Writes<'_>, back: &str) -> Markup {
    html! {
        @if let Writes::Allowed(token) = writes {
            input type="hidden" name="token" value=(token.as_str());
        }
        input type="hidden" name="back" value=(back);
    }
}

/// Returns a labelled text field of a query. `id` must be unique on the page.
pub(crate) fn field(id: &str, name: &str, label: &str, value: &str, hint: &str) -> Markup {
    html! {
        div.field {
            label for=(id) { (label) }
            input id=(id) name=(name) value=(value) placeholder=(hint) autocomplete="off" spellcheck="false";
        }
    }
}

/// Returns a labelled drop-down list of a query. Each option has a value and a label.
pub(crate) fn choice(
    id: &str,
    name: &str,
    label: &str,
    chosen: &str,
    options: &[(&str, &str)],
) -> Markup {
    html! {
        div.field {
            label for=(id) { (label) }
            select id=(id) name=(name) {
                @for (value, text) in options {
                    option value=(value) selected[*value == chosen] { (text) }
                }
            }
        }
    }
}
