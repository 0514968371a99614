//! The picture of the ring. Each sector is an arc, and each band a node; the innermost band is the
//! first node.

use std::collections::BTreeMap;
use std::f64::consts::TAU;

use maud::{Markup, html};

use super::view::{Replica, View};

/// The maximum number of arcs in the picture. The table below the picture has all arcs.
const ARCS_MAX: usize = 64;
/// The maximum number of sectors for which a letter fits into a cell.
const LETTERS_MAX: usize = 16;
/// Half of the picture's width in SVG units. `HOLE` is the radius of the hole, and `BAND` the width
/// of a band.
const CENTRE: f64 = 160.0;
const HOLE: f64 = 55.0;
const BAND: f64 = 30.0;

/// The state that a cell of the picture shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Leader,
    Follower,
    Electing,
    Filled,
    Damaged,
    Stopped,
    Unreachable,
}

impl State {
    const ALL: [Self; 7] = [
        Self::Leader,
        Self::Follower,
        Self::Electing,
        Self::Filled,
        Self::Damaged,
        Self::Stopped,
        Self::Unreachable,
    ];

    fn of(replica: Option<&Replica>) -> Self {
        match replica {
            None => Self::Unreachable,
            Some(replica) if replica.damaged => Self::Damaged,
            Some(replica) => match replica.role.as_str() {
                "leader" => Self::Leader,
                "follower" => Self::Follower,
                "learner" => Self::Filled,
                "candidate" => Self::Electing,
                _ => Self::Stopped,
            },
        }
    }

    /// Returns the letter, the CSS class and the description of a state.
    fn marks(self) -> (&'static str, &'static str, &'static str) {
        match self {
            Self::Leader => ("L", "leader", "leader"),
            Self::Follower => ("f", "follower", "follower"),
            Self::Electing => ("e", "electing", "stands for election"),
            Self::Filled => ("r", "filled", "is rebuilt"),
            Self::Damaged => ("!", "damaged", "damaged"),
            Self::Stopped => ("–", "stopped", "stopped"),
            Self::Unreachable => ("?", "unreachable", "unreachable"),
        }
    }
}

/// Returns the picture and its legend.
pub(super) fn ring(view: &View) -> Markup {
    let by_place: BTreeMap<(u64, u64), &Replica> =
        view.replicas.iter().map(|replica| ((replica.arc, replica.node), replica)).collect();
    let mut arcs: Vec<u64> = view.replicas.iter().map(|replica| replica.arc).collect();
    arcs.dedup();
    let all = arcs.len();
    arcs.truncate(ARCS_MAX);
    let mut cells = Vec::new();
    for (sector, arc) in arcs.iter().enumerate() {
        for (band, node) in view.nodes.iter().enumerate() {
            let state = State::of(by_place.get(&(*arc, node.node)).copied());
            let place = (sector, arcs.len(), band);
            cells.push(cell(place, state, &format!("Arc {arc}, node {}", node.node)));
        }
    }
    let text =
        format!("{} nodes and {all} arcs; the table below lists the same states", view.nodes.len());
    html! {
        figure {
            figcaption {
                "Each sector is an arc, clockwise from the top. Each band is a node; the innermost band is the first node."
                @if all > arcs.len() { " The picture shows the first " (arcs.len()) " of " (all) " arcs." }
            }
            svg.ring role="img" aria-label=(text) viewBox="0 0 320 320" width="320" height="320" {
                @for cell in &cells { (cell) }
            }
            ul.legend {
                @for state in State::ALL {
                    @let (letter, class, words) = state.marks();
                    li { span.key.(class) { (letter) } " " (words) }
                }
            }
        }
    }
}

/// Returns a cell: an annular sector, with a letter if it fits.
fn cell((sector, sectors, band): (usize, usize, usize), state: State, name: &str) -> Markup {
    let (letter, class, words) = state.marks();
    let inner = HOLE + BAND * small(band);
    let (from, to) = (small(sector) / small(sectors), small(sector + 1) / small(sectors));
    let title = format!("{name}: {words}");
    let (x, y) = point(inner + BAND / 2.0, f64::midpoint(from, to));
    html! {
        path.(class) d=(outline(inner, inner + BAND - 2.0, from, to)) { title { (title) } }
        @if sectors <= LETTERS_MAX {
            text x=(format!("{x:.0}")) y=(format!("{y:.0}")) { (letter) }
        }
    }
}

/// Returns the outline of an annular sector between two turns, from 0 at the top to 1. A full
/// circle is drawn as two halves, because SVG draws nothing for an arc from a point to itself.
fn outline(inner: f64, outer: f64, from: f64, to: f64) -> String {
    let middle = f64::midpoint(from, to);
    let at = |radius: f64, turn: f64| {
        let (x, y) = point(radius, turn);
        format!("{x:.1} {y:.1}")
    };
    format!(
        "M{}A{outer} {outer} 0 0 1 {}A{outer} {outer} 0 0 1 {}L{}A{inner} {inner} 0 0 0 {}A{inner} {inner} 0 0 0 {}Z",
        at(outer, from),
        at(outer, middle),
        at(outer, to),
        at(inner, to),
        at(inner, middle),
        at(inner, from),
    )
}

fn point(radius: f64, turn: f64) -> (f64, f64) {
    let angle = turn * TAU;
    (CENTRE + radius * angle.sin(), CENTRE - radius * angle.cos())
}

/// Converts a small number to `f64` without loss.
fn small(number: usize) -> f64 {
    u32::try_from(number).map_or(0.0, f64::from)
}
