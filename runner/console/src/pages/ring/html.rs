//! The HTML of the page of the ring.

use maud::{Markup, html};

use super::picture;
use super::view::{Replica, View};
use crate::parts::{message, table};
use crate::query::href;

/// The maximum number of replicas that the list shows.
const REPLICAS_MAX: usize = 48;

const HEADINGS: [&str; 9] =
    ["Arc", "Node", "Role", "Term", "Applied", "Lag", "Log", "Verified", "Note"];

/// Returns the HTML of the page Ring, without its frame.
pub(crate) fn html(view: &View) -> Markup {
    html! {
        h1 { "Ring" }
        @if let Some(reason) = &view.unavailable {
            (message::empty("This store shows no nodes.", &html! { (reason) }))
        } @else {
            (nodes(view))
            (picture::ring(view))
            (replicas(view))
        }
    }
}

fn nodes(view: &View) -> Markup {
    html! {
        @for node in &view.nodes {
            @if let Some(reason) = &node.unreachable {
                (message::warning(&format!("node {} is unreachable: {reason}", node.node)))
            }
            @for directory in &node.set_aside {
                (message::warning(&format!(
                    "node {}: the directory {directory} was set aside because it was damaged; see the file `reason` in it",
                    node.node
                )))
            }
        }
    }
}

fn replicas(view: &View) -> Markup {
    let all = view.replicas.len();
    let first = view.first.min(all.saturating_sub(1));
    let rows: Vec<Vec<Markup>> =
        view.replicas.iter().skip(first).take(REPLICAS_MAX).map(replica).collect();
    let address = |first: usize| {
        let first = if first == 0 { String::new() } else { first.to_string() };
        href(&["ring"], &[("first", &first)])
    };
    let before = (first > 0).then(|| address(first.saturating_sub(REPLICAS_MAX)));
    let after = (first + rows.len() < all).then(|| address(first + rows.len()));
    html! {
        h2 { "Replicas" }
        (table::table("The replica of each arc on each node", &HEADINGS, &rows))
        (table::pager(before.as_deref(), after.as_deref()))
        (message::note("Verified is the percentage of a node's files whose checksums were checked in the current or last pass. Lag counts committed entries that are not applied."))
    }
}

fn replica(replica: &Replica) -> Vec<Markup> {
    let or_dash = |number: Option<u64>| number.map_or_else(|| "–".to_owned(), |n| n.to_string());
    let class = match (replica.damaged, replica.role.as_str()) {
        (true, _) => Some("bad"),
        (false, "leader") => Some("good"),
        (false, "follower") => None,
        (false, _) => Some("wait"),
    };
    vec![
        html! { (replica.arc) },
        html! { (replica.node) },
        html! {
            span class=[class] {
                (replica.role)
                @if replica.filled { " (is rebuilt)" }
                @if replica.damaged { " (damaged)" }
            }
        },
        html! { (replica.term) },
        html! { (or_dash(replica.applied)) },
        html! { (or_dash(replica.lag)) },
        html! { (replica.log_bytes / 1_000_000) " MB" },
        html! { (replica.verified) },
        html! { (replica.notes.join("; ")) },
    ]
}
