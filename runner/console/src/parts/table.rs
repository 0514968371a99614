//! HTML tables with a caption, column headings with `scope`, and rows of cells.

use maud::{Markup, html};

/// Returns a table. The first cell of each row is the row's heading.
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

/// The maximum size of a list in bytes, which keeps its page below 60 KB.
const LIST_BYTES_MAX: usize = 46 * 1024;

/// Truncates the rows to those that fit on a page. Returns the number of removed rows.
pub(crate) fn fit(rows: &mut Vec<Vec<Markup>>) -> usize {
    let mut left = LIST_BYTES_MAX;
    let fits = |row: &Vec<Markup>| {
        // The HTML tags of a cell take about 10 bytes.
        let bytes: usize = row.iter().map(|cell| cell.0.len() + 10).sum();
        left = left.saturating_sub(bytes);
        left > 0
    };
    let count = rows.iter().map(fits).take_while(|fits| *fits).count();
    let more = rows.len() - count;
    rows.truncate(count);
    more
}

/// Returns the links to the previous and the next page. `None` means that there is no such page.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_that_do_not_fit_are_counted() {
        let row = || vec![html! { (".".repeat(1_000)) }];
        let mut rows: Vec<Vec<Markup>> = (0..100).map(|_| row()).collect();
        let more = fit(&mut rows);
        assert_eq!(more + rows.len(), 100);
        assert!((40..50).contains(&rows.len()), "{}", rows.len());
        let mut few = vec![row(), row()];
        assert_eq!((fit(&mut few), few.len()), (0, 2));
    }
}
