//! Reads a status of the store: which process leads an arc, which nodes the ring has, and whether the store
//! is at rest. Does not send requests.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

/// The number of replicas of each arc.
pub(super) const REPLICAS: usize = 3;
/// The maximum number of log entries that a replica at rest may be behind. The clients keep writing.
const LAG_MAX: u64 = 100;

fn list<'a>(value: &'a Value, name: &str) -> impl Iterator<Item = &'a Value> + use<'a> {
    value.get(name).and_then(Value::as_array).into_iter().flatten()
}

fn number(value: &Value, name: &str) -> Option<u64> {
    value.get(name).and_then(Value::as_u64)
}

fn is_true(value: &Value, name: &str) -> bool {
    value.get(name).and_then(Value::as_bool) == Some(true)
}

fn has_role(replica: &Value, role: &str) -> bool {
    replica.get("role").and_then(Value::as_str) == Some(role)
}

/// Returns the numbers of the nodes under a member. `None` if a node occurs twice, or if they are not as many
/// as an arc has replicas.
fn members(value: &Value, name: &str) -> Option<BTreeSet<u64>> {
    let nodes: BTreeSet<u64> = list(value, name).filter_map(Value::as_u64).collect();
    (nodes.len() == REPLICAS && list(value, name).count() == REPLICAS).then_some(nodes)
}

/// Returns, for each arc with a leader, the position of its process.
pub(super) fn leaders(status: &Value) -> BTreeMap<u64, usize> {
    let leading = list(status, "replicas").filter(|replica| has_role(replica, "leader"));
    let place = |replica: &Value| {
        let node = usize::try_from(number(replica, "node")?).ok()?;
        Some((number(replica, "arc")?, node.checked_sub(1)?))
    };
    leading.filter_map(place).collect()
}

/// Returns whether the store is complete. In each arc, three replicas on different nodes must be the voters,
/// one of them the leader, and none may be damaged, in a rebuild or far behind. No other replica may exist.
pub(super) fn is_whole(status: &Value, arcs: usize) -> bool {
    let is_good = |replica: &Value, nodes: &BTreeSet<u64>| {
        (has_role(replica, "leader") || has_role(replica, "follower"))
            && members(replica, "voters").as_ref() == Some(nodes)
            && list(replica, "learners").next().is_none()
            && replica.get("damaged").and_then(Value::as_bool) == Some(false)
            && number(replica, "lag").is_some_and(|lag| lag < LAG_MAX)
    };
    let is_arc_whole = |arc: usize| {
        let of_arc = || {
            list(status, "replicas").filter(move |it| number(it, "arc") == u64::try_from(arc).ok())
        };
        let nodes: BTreeSet<u64> = of_arc().filter_map(|replica| number(replica, "node")).collect();
        nodes.len() == REPLICAS
            && of_arc().filter(|replica| has_role(replica, "leader")).count() == 1
            && of_arc().all(|replica| is_good(replica, &nodes))
    };
    list(status, "replicas").count() == REPLICAS * arcs && (0..arcs).all(is_arc_whole)
}

/// Returns the nodes of the ring, and the version of the ring. `None` if the store has no ring yet.
pub(super) fn ring(status: &Value) -> Option<(BTreeSet<u64>, u64)> {
    let ring = status.get("ring")?;
    let nodes = list(ring, "nodes").filter_map(|node| number(node, "node")).collect();
    Some((nodes, number(ring, "version")?))
}

/// Returns whether a node leaves the ring, or an arc moves to other nodes.
pub(super) fn has_moves(status: &Value) -> bool {
    let Some(ring) = status.get("ring") else { return false };
    list(ring, "nodes").any(|node| is_true(node, "leaving"))
        || list(ring, "arcs").any(|arc| is_true(arc, "moves"))
}

/// Returns whether the process reaches exactly the nodes of the ring, none of them leaves, no arc moves, and each arc
/// has three voters, which are the nodes that the ring names for it.
pub(super) fn ring_is_at_rest(status: &Value, arcs: usize) -> bool {
    let Some(ring) = status.get("ring") else { return false };
    let is_settled = |arc: &Value| {
        let voters = members(arc, "voters");
        voters.is_some() && voters == members(arc, "nodes")
    };
    // A process follows a change of the ring after up to half a second. Until then it counts a node that has left.
    let is_reachable = |node: &Value| node.get("unreachable").is_some_and(Value::is_null);
    let slots = |value: &Value| -> BTreeSet<u64> {
        list(value, "nodes").filter_map(|node| number(node, "node")).collect()
    };
    !has_moves(status)
        && list(status, "nodes").all(is_reachable)
        && slots(status) == slots(ring)
        && list(ring, "arcs").count() == arcs
        && list(ring, "arcs").all(is_settled)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// Returns the status of a store with four nodes and one arc at rest.
    fn status() -> Value {
        let replica = |node: u64, role: &str| {
            json!({
                "node": node, "arc": 0, "role": role, "voters": [1, 3, 4], "learners": [],
                "damaged": false, "lag": 0,
            })
        };
        let nodes = [1, 2, 3, 4].map(|node| json!({"node": node, "unreachable": null}));
        let ring_nodes = [1, 2, 3, 4].map(|node| json!({"node": node, "leaving": false}));
        json!({
            "replicas": [replica(1, "follower"), replica(3, "leader"), replica(4, "follower")],
            "nodes": nodes,
            "ring": {
                "version": 7,
                "nodes": ring_nodes,
                "arcs": [{"arc": 0, "nodes": [4, 1, 3], "voters": [1, 3, 4], "moves": false}],
            },
        })
    }

    #[test]
    fn a_store_is_at_rest_only_if_each_arc_has_its_three_voters() {
        let status = status();
        assert_eq!(ring(&status), Some(([1, 2, 3, 4].into(), 7)));
        assert_eq!(leaders(&status), BTreeMap::from([(0, 2)]));
        assert!(is_whole(&status, 1) && ring_is_at_rest(&status, 1) && !has_moves(&status));
        assert!(!is_whole(&status, 2) && !ring_is_at_rest(&status, 2));
        for (place, value) in [
            ("/replicas/0/role", json!("learner")),
            ("/replicas/0/role", json!("leader")),
            ("/replicas/0/node", json!(3)),
            ("/replicas/0/node", json!(2)),
            ("/replicas/0/voters", json!([1, 2, 3])),
            ("/replicas/0/voters", json!([1, 1, 3, 4])),
            ("/replicas/0/learners", json!([2])),
            ("/replicas/0/damaged", json!(true)),
            ("/replicas/0/lag", json!(100)),
            ("/replicas/0/lag", json!(null)),
        ] {
            assert!(!is_whole(&with(&status, place, value.clone()), 1), "{place} {value}");
        }
        for (place, value) in [
            ("/ring/nodes/1/leaving", json!(true)),
            ("/ring/arcs/0/moves", json!(true)),
            ("/nodes/1/unreachable", json!("no answer")),
            ("/nodes/1/node", json!(5)),
            ("/ring/arcs/0/voters", json!(null)),
            ("/ring/arcs/0/voters", json!([1, 2, 3])),
            ("/ring/arcs/0/nodes", json!([1, 3])),
        ] {
            let changed = with(&status, place, value.clone());
            assert!(!ring_is_at_rest(&changed, 1), "{place} {value}");
            assert_eq!(has_moves(&changed), value == json!(true), "{place} {value}");
        }
    }

    fn with(status: &Value, place: &str, value: Value) -> Value {
        let mut changed = status.clone();
        *changed.pointer_mut(place).unwrap() = value;
        changed
    }
}
