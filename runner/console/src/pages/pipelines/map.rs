//! The map: table, mapping, function and target of each mapping, from left to right, as SVG.
//!
//! The page contains the same facts as text, so a screen reader treats the map as one picture.

use std::collections::BTreeMap;

use maud::{Markup, html};

use super::figures::{figure_texts, name};
use super::status::Target;
use super::view::Mapping;

/// The height of the row of a mapping.
const ROW: i64 = 78;
/// The minimum distance between the centres of two nodes of a column.
const GAP: i64 = 40;
/// The left edge and the width of each column: tables, mappings, functions, targets.
const COLUMNS: [(i64, i64); 4] = [(4, 170), (230, 330), (616, 190), (862, 170)];
/// The width of the picture.
const WIDTH: i64 = 1036;
/// The maximum number of characters of a name that fit into a node of a column.
const CHARACTERS: [usize; 4] = [22, 44, 25, 22];

/// The nodes of a column: the vertical centre of each node, by name.
type Nodes = BTreeMap<String, i64>;

/// Returns the map of the mappings; empty if there are no mappings.
pub(super) fn map(mappings: &[Mapping]) -> Markup {
    let mut sorted: Vec<&Mapping> = mappings.iter().collect();
    sorted.sort_by_key(|it| (it.table.clone(), it.mapping.clone()));
    let rows: Vec<(&Mapping, i64)> =
        sorted.into_iter().zip(0_i64..).map(|(it, at)| (it, at * ROW + ROW / 2)).collect();
    let tables = nodes(&rows, |it| vec![table_of(it)]);
    let functions = nodes(&rows, |it| vec![it.function.clone()]);
    let targets = nodes(&rows, |it| it.targets.iter().map(label).collect());
    let ends = [&tables, &functions, &targets].into_iter().flat_map(|nodes| nodes.values());
    let lowest = ends.copied().chain(rows.iter().map(|(_, y)| *y + ROW / 2 - GAP)).max();
    let height = lowest.unwrap_or(0) + GAP;
    html! {
        svg.map viewBox=(format!("0 0 {WIDTH} {height}")) role="img" aria-labelledby="map-title" {
            title id="map-title" { "From table to mapping to function to target; the table below has the same figures" }
            @for (mapping, y) in &rows { (edges(mapping, *y, &tables, &functions, &targets)) }
            @for (name, y) in &tables { (node(0, "table", name, *y)) }
            @for (mapping, y) in &rows { (mapping_node(mapping, *y)) }
            @for (name, y) in &functions { (node(2, "function", name, *y)) }
            @for (name, y) in &targets { (node(3, "target", name, *y)) }
        }
    }
}

fn table_of(mapping: &Mapping) -> String {
    mapping.table.clone().unwrap_or_else(|| "unknown table".to_owned())
}

fn label(target: &Target) -> String {
    format!("{} {}", target.kind, target.name)
}

/// Places the nodes of a column without overlaps. Each node is at the mean height of its mappings,
/// or below.
fn nodes(rows: &[(&Mapping, i64)], names: impl Fn(&Mapping) -> Vec<String>) -> Nodes {
    let mut wanted: BTreeMap<String, Vec<i64>> = BTreeMap::new();
    for (mapping, y) in rows {
        for name in names(mapping) {
            wanted.entry(name).or_default().push(*y);
        }
    }
    let middle = |places: &Vec<i64>| {
        let count = i64::try_from(places.len()).unwrap_or(i64::MAX).max(1);
        places.iter().sum::<i64>() / count
    };
    let mut order: Vec<(i64, String)> =
        wanted.iter().map(|(name, places)| (middle(places), name.clone())).collect();
    order.sort();
    let mut free = GAP / 2;
    let mut placed = Nodes::new();
    for (middle, name) in order {
        let y = middle.max(free);
        free = y + GAP;
        placed.insert(name, y);
    }
    placed
}

/// Returns the x coordinates of the left and right edges of a column.
fn column(at: usize) -> (i64, i64) {
    COLUMNS.get(at).map_or((0, 0), |(left, width)| (*left, left + width))
}

/// Returns the lines of a mapping, with the CSS class of its state.
fn edges(mapping: &Mapping, y: i64, tables: &Nodes, functions: &Nodes, targets: &Nodes) -> Markup {
    let place = |nodes: &Nodes, name: &str| nodes.get(name).copied().unwrap_or(y);
    let function = place(functions, &mapping.function);
    let mut lines = vec![
        line((column(0).1, place(tables, &table_of(mapping))), (column(1).0, y)),
        line((column(1).1, y), (column(2).0, function)),
    ];
    for target in &mapping.targets {
        lines.push(line((column(2).1, function), (column(3).0, place(targets, &label(target)))));
    }
    html! { g class=(format!("edges {}", mapping.state.level().class())) { @for line in lines { (line) } } }
}

/// Returns a curve between two points.
fn line((x1, y1): (i64, i64), (x2, y2): (i64, i64)) -> Markup {
    let middle = i64::midpoint(x1, x2);
    html! { path d=(format!("M{x1} {y1} C{middle} {y1} {middle} {y2} {x2} {y2}")) {} }
}

/// Returns a node that shows a name.
fn node(at: usize, kind: &str, name: &str, y: i64) -> Markup {
    let (left, right) = column(at);
    html! {
        g class=(format!("node {kind}")) {
            title { (name) }
            rect x=(left) y=(y - 14) width=(right - left) height="28" rx="3" {}
            text x=(left + 8) y=(y + 4) { (cut(name, at)) }
        }
    }
}

/// Returns the node of a mapping, with its name, state and figures.
fn mapping_node(mapping: &Mapping, y: i64) -> Markup {
    let (left, right) = column(1);
    let level = mapping.state.level().class();
    html! {
        g class=(format!("node mapping {level}")) {
            title { (mapping.mapping) ": " (mapping.sentence) }
            rect x=(left) y=(y - 32) width=(right - left) height="64" rx="3" {}
            text.name x=(left + 8) y=(y - 15) { (cut(&mapping.mapping, 1)) }
            text.state x=(left + 8) y=(y + 4) {
                (mapping.state.word())
                @if let Some(figures) = &mapping.figures {
                    @for (figure, text) in figure_texts(figures).into_iter().take(2) {
                        " · " (figure) " "
                        tspan data-figure=(name(mapping, figure)) { (text) }
                    }
                }
            }
            @if let Some(figures) = &mapping.figures {
                text.counts x=(left + 8) y=(y + 22) {
                    @for (at, (figure, text)) in figure_texts(figures).into_iter().skip(3).enumerate() {
                        @if at > 0 { " · " }
                        (figure.split(' ').next().unwrap_or(figure)) " "
                        tspan data-figure=(name(mapping, figure)) { (text) }
                    }
                }
            }
        }
    }
}

/// Truncates a name so that it fits into a node.
fn cut(name: &str, at: usize) -> String {
    let most = CHARACTERS.get(at).copied().unwrap_or(20);
    match name.char_indices().nth(most) {
        None => name.to_owned(),
        Some(_) => name.chars().take(most.saturating_sub(1)).chain(['…']).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nodes_are_beside_their_mappings_and_do_not_overlap() {
        let mapping = |table: &str, function: &str| {
            let other = super::super::status::OtherMapping {
                mapping: format!("{table}{function}"),
                function: function.to_owned(),
                table: Some(table.to_owned()),
                reason: None,
            };
            Mapping::disabled(&other)
        };
        let mappings = [mapping("a", "f"), mapping("a", "g"), mapping("b", "f")];
        let rows: Vec<(&Mapping, i64)> =
            mappings.iter().zip([ROW / 2, 3 * ROW / 2, 5 * ROW / 2]).collect();
        let tables = nodes(&rows, |it| vec![table_of(it)]);
        assert_eq!(tables["a"], ROW);
        assert_eq!(tables["b"], 5 * ROW / 2);
        // The mappings of both functions have the same mean height.
        let functions = nodes(&rows, |it| vec![it.function.clone()]);
        assert_eq!(functions["g"] - functions["f"], GAP);
        let svg = map(&mappings).into_string();
        assert!(!svg.contains("style="), "inline style is forbidden by the policy");
        assert_eq!(svg.matches("<path ").count(), 6);
        // An SVG element that is not closed would contain the elements that follow it.
        for element in ["path", "rect", "text", "g", "tspan"] {
            let opened = svg.matches(&format!("<{element} ")).count();
            assert_eq!(svg.matches(&format!("</{element}>")).count(), opened, "{element}: {svg}");
        }
        assert!(map(&[mapping("<x>", "f")]).into_string().contains("&lt;x&gt;"));
    }

    #[test]
    fn long_names_are_cut() {
        assert_eq!(cut("short", 0), "short");
        let name = "ü".repeat(60);
        assert_eq!(cut(&name, 0).chars().count(), CHARACTERS[0]);
    }
}
