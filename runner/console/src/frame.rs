//! The HTML around each page: head, navigation, clock, `<main>`, and the store at the end.

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

/// A page before its frame.
pub(crate) struct Framed<'a> {
    /// The path and query with which the page was requested.
    pub(crate) address: &'a str,
    /// The name of the page.
    pub(crate) title: &'a str,
    /// The content of `<main>`.
    pub(crate) main: Markup,
    /// How the script keeps the page up to date, if it does.
    pub(crate) live: Option<Live>,
    /// The result of the action before this page, if there was one.
    pub(crate) notice: Option<&'a str>,
    /// The clock of the store, if it has one.
    pub(crate) clock: Option<ClockReading>,
}

/// How the script keeps a page up to date.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Live {
    /// It replaces the texts of figures, and loads the page again when more than figures changed.
    Figures,
    /// It loads the page again when new records come one by one, and shows their number when they come fast.
    Records,
    /// It loads the page again every two seconds.
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

/// Returns the whole page.
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
                        "Store " code { (context.endpoint()) }
                        @if matches!(context.writes(), Writes::Refused) { " · read-only" }
                        span id="connection" role="status" {}
                    }
                }
            }
        }
    }
}
