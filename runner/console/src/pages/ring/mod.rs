//! `/ring`: the nodes and arcs of Weir's own store, with leaders, damage and the progress of
//! verification.
//!
//! All data comes from the store's status at its admin endpoint.

mod html;
mod picture;
mod view;

use client::sdk_error::error_text;
use http::Method;
use local_store::status::{notes, verified};
use serde_json::Value;

pub(crate) use self::html::html;
pub(crate) use self::view::View;

use self::view::Replica;
use crate::context::Context;
use crate::error::PageError;
use crate::query::Query;

const NOT_ON_AWS: &str = "DynamoDB on AWS does not show how it replicates.";

/// Collects the data of the page of the ring.
///
/// # Errors
/// The store does not answer, or its status has an unknown format.
pub(crate) async fn view(context: &Context, query: &Query) -> Result<View, PageError> {
    let first = query.get("first").and_then(|first| first.parse().ok()).unwrap_or_default();
    let empty = View { schema: "weir.console.ring/v1", first, ..View::default() };
    if context.is_on_aws() {
        return Ok(View { unavailable: Some(NOT_ON_AWS.to_owned()), ..empty });
    }
    let asked = client::endpoint::admin(Method::GET, context.endpoint(), "status", &Value::Null);
    match asked.await {
        Ok(status) => read(&status, empty).map_err(|error| {
            PageError::Store(format!("the store describes its nodes in an unknown format: {error}"))
        }),
        // A store that answers a DynamoDB request, but has no admin endpoint, is not Weir's own
        // store.
        Err(reason) => match context.dynamodb().list_tables().limit(1).send().await {
            Ok(_) => Ok(View { unavailable: Some(reason.to_string()), ..empty }),
            Err(error) => Err(PageError::Store(error_text(&error))),
        },
    }
}

/// Converts the store's status to the data of the page. Fields that the status lacks are copied
/// from `empty`.
fn read(status: &Value, empty: View) -> Result<View, serde_json::Error> {
    let nodes = status.get("nodes").cloned().unwrap_or_default();
    let replicas = status.get("replicas").and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
    let mut replicas: Vec<Replica> = replicas.iter().map(replica).collect();
    replicas.sort_by_key(|replica| (replica.arc, replica.node));
    Ok(View { nodes: serde_json::from_value(nodes)?, replicas, ..empty })
}

fn replica(status: &Value) -> Replica {
    let number = |name: &str| status.get(name).and_then(Value::as_u64);
    let text = |name: &str| status.get(name).and_then(Value::as_str).unwrap_or_default().to_owned();
    let role = text("role");
    Replica {
        node: number("node").unwrap_or_default(),
        arc: number("arc").unwrap_or_default(),
        term: number("term").unwrap_or_default(),
        applied: number("applied"),
        lag: number("lag"),
        log_bytes: number("log_bytes").unwrap_or_default(),
        damaged: status.get("damaged").and_then(Value::as_bool).unwrap_or_default(),
        filled: role == "learner",
        verified: verified(status),
        notes: notes(status),
        role,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// Returns the data of a store with each kind of problem.
    fn troubled() -> View {
        let replica = |node: u64, arc: u64, role: &str| {
            json!({"node": node, "arc": arc, "role": role, "incarnation": 0, "term": 3,
                "applied": 70, "lag": 2, "log_bytes": 5_000_000, "damaged": node == 2,
                "silent_ms": if role == "leader" { json!(5_000) } else { json!(null) },
                "scrub": {"passes": 1, "begun_ms": 7, "verified_bytes": 50, "all_bytes": 100}})
        };
        let mut replicas = Vec::new();
        for arc in 0..2 {
            replicas.push(replica(1, arc, "leader"));
            replicas.push(replica(2, arc, "follower"));
        }
        let status = json!({
            "nodes": [
                {"node": 1, "set_aside": [], "unreachable": null},
                {"node": 2, "set_aside": ["node-2.set-aside-1"], "unreachable": null},
                {"node": 3, "set_aside": [], "unreachable": "connection <refused>"},
            ],
            "replicas": replicas,
        });
        read(&status, View::default()).unwrap()
    }

    #[test]
    fn a_page_names_each_trouble_in_words() {
        let page = html(&troubled()).into_string();
        for part in [
            "connection &lt;refused&gt;",
            "node-2.set-aside-1",
            "disk damaged: the node is rebuilt",
            "no majority has responded for 5 s",
            "50 %",
            "<title>Arc 1, node 1: leader</title>",
            "<title>Arc 0, node 2: damaged</title>",
            "<title>Arc 0, node 3: unreachable</title>",
        ] {
            assert!(page.contains(part), "{part}: {page}");
        }
        assert!(!page.contains("style="), "{page}");
    }

    #[test]
    fn a_ring_of_many_arcs_stays_small() {
        let replicas = (0..3 * 256).map(|number| {
            json!({
                "node": number % 3 + 1, "arc": number / 3, "role": "follower", "incarnation": 3,
                "term": u64::MAX, "applied": u64::MAX, "lag": u64::MAX, "log_bytes": u64::MAX,
                "damaged": true, "scrub": {"passes": 1},
            })
        });
        let nodes: Vec<Value> = (1..=3)
            .map(|node| json!({"node": node, "set_aside": [], "unreachable": null}))
            .collect();
        let status = json!({"nodes": nodes, "replicas": replicas.collect::<Vec<_>>()});
        let page = html(&read(&status, View::default()).unwrap()).into_string();
        assert!(page.len() < 55_000, "{}", page.len());
        assert!(page.contains("rel=\"next\""), "{page}");
    }

    #[test]
    fn a_store_without_a_ring_says_why() {
        let page = html(&View { unavailable: Some("gone".to_owned()), ..View::default() });
        let page = page.into_string();
        assert!(page.contains("gone") && !page.contains("<svg"), "{page}");
        assert!(read(&json!({}), View::default()).is_err());
    }
}
