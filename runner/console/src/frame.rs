//! The HTML around each page: head, navigation, clock, `<main>`, and a footer with the store.

use client::endpoint::ClockReading;
use maud::{DOCTYPE, Markup, html};

use crate::clock;
use crate::context::{Context, Writes};

/// The pages in the navigation: path and name.
const PAGES: &[(&str, &str)] = &[
    ("/pipelines", "Pipelines"),
    ("/stream", "Stream"),
    ("/migrations", "Migrations"),
    ("/archive", "Archive"),
    ("/versions", "Versions"),
    ("/counters", "Counters"),
    ("/copies", "Copies"),
    ("/tables", "Tables"),
    ("/partitions", "Partitions"),
    ("/ring", "Ring"),
];

/// The content of a page, and the data of the frame around it.
pub(crate) struct Framed<'a> {
    /// The path and query of the page's request.
    pub(crate) address: &'a str,
    /// The name of the page.
    pub(crate) title: &'a str,
    /// The content of `<main>`.
    pub(crate) main: Markup,
    /// The way in which the script updates the page; `None` if it does not.
    pub(crate) live: Option<Live>,
    /// The result of the action that led to this page, if any.
    pub(crate) notice: Option<&'a str>,
    /// The clock of the store, if it has one.
    pub(crate) clock: Option<ClockReading>,
}

/// The way in which the script updates an open page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Live {
    /// The script replaces the figures, and reloads the page if anything else changed.
    Figures,
    /// The script reloads the page for a few new records, and shows only their number if many
    /// arrive.
    Records,
    /// The script reloads the page every two seconds.
    Reload,
}

impl Live {
    fn address(self) -> &'static str {
        match self {
            Self::Figures => "/events?kind=figures",
            Self::Records => "/events?kind=records",
            Self::Reload => "/events?kind=reload",
        }
    }
}

/// Returns the parts of the footer, joined by " · ".
fn footer(endpoint: &str, writes: Writes<'_>) -> Markup {
    let store = html! { "Store " code { (endpoint) } };
    let read_only = matches!(writes, Writes::Refused).then(|| html! { "read-only" });
    let parts = std::iter::once(store).chain(read_only);
    html! {
        @for (at, part) in parts.enumerate() {
            @if at > 0 { " · " }
            (part)
        }
    }
}

/// Returns the complete HTML document.
pub(crate) fn frame(context: &Context, page: Framed<'_>) -> Markup {
    let Framed { address, title, main, live, notice, clock } = page;
    let path = address.split('?').next().unwrap_or_default();
    let is_current = |page: &str| path == page || path.starts_with(&format!("{page}/"));
    html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                title { (title) " · Weir" }
                meta name="viewport" content="width=device-width, initial-scale=1";
                link rel="stylesheet" href="/assets/console.css";
                link rel="icon" href="/assets/icon.svg" type="image/svg+xml";
                script src="/assets/console.js" defer {}
            }
            body {
                a.skip href="#main" { "Skip to content" }
                header {
                    a.brand href="/pipelines" { "Weir" }
                    nav aria-label="Pages" {
                        ul {
                            @for (page, name) in PAGES {
                                li { a href=(page) aria-current=[is_current(page).then_some("page")] { (name) } }
                            }
                        }
                    }
                    (clock::head(context, clock, address))
                }
                main id="main" tabindex="-1" data-events=[live.map(Live::address)] {
                    @if let Some(notice) = notice { p.notice role="status" { (notice) } }
                    (main)
                }
                footer {
                    p {
                        (footer(context.endpoint(), context.writes()))
                        // The script adds the last part.
                        span id="connection" role="status" {}
                    }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::token::Token;

    #[test]
    fn the_parts_of_the_footer_are_joined_by_dots() {
        let token = Token::random().unwrap();
        for (writes, expected) in [
            (Writes::Allowed(&token), "Store <code>http://s</code>"),
            (Writes::Refused, "Store <code>http://s</code> · read-only"),
        ] {
            assert_eq!(footer("http://s", writes).into_string(), expected);
        }
    }
}
