//! Tables: a caption, column headings with scope, rows of cells.

use maud::{Markup, html};

/// Returns a table. The first cell of each row is its heading.
pub(crate) fn table(caption: &str, headings: &[&str], rows: &[Vec<Markup>]) -> Markup {
    html! {
        div.scroll tabindex="0" role="region" aria-label=(caption) {
            table {
                caption { (caption) }
                thead { tr { @for heading in headings { th scope="col" { (heading) } } } }
                tbody {
                    @for row in rows {
                        tr {
                            @for (at, cell) in row.iter().enumerate() {
                                @if at == 0 { th scope="row" { (cell) } } @else { td { (cell) } }
                            }
                        }
                    }
                }
            }
        }
    }
}

/// Returns the links to the page before and after. `None` for a link that does not exist.
pub(crate) fn pager(before: Option<&str>, after: Option<&str>) -> Markup {
    html! {
        @if before.is_some() || after.is_some() {
            nav.pager aria-label="Pages of this list" {
                @if let Some(address) = before { a href=(address) rel="prev" { "Back" } }
                @if let Some(address) = after { a href=(address) rel="next" { "More" } }
            }
        }
    }
}
