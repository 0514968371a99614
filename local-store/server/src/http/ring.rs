//! The ring on the admin endpoint: its nodes and arcs, the moves under way, and the request that a node leaves.

use std::collections::BTreeSet;

use http::StatusCode;
use partition::{Command, Reply, Ring, RingChange, Slot};
use serde::Deserialize;
use serde_json::{Value, json};

use super::admin_answer::{Answer, refusal, success};
use crate::store::{NodeReport, Store};
use node::slot_of;
use node::status::{Role, Status};

const PLACE: &str = "POST /_weir/ring/leave";
const LEAVE: &str = "{\"node\":N}, with the number of a node of the ring";

/// The body of a request that a node leaves.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Leave {
    node: u8,
}

/// Lets a node leave the ring. The answer is the ring; the arcs move afterwards.
pub(super) async fn leave(store: &Store, body: &[u8]) -> Answer {
    let slot = match serde_json::from_slice(body) {
        Ok(Leave { node }) => Slot::new(node),
        Err(error) => return refusal(StatusCode::BAD_REQUEST, &error.to_string(), PLACE, LEAVE),
    };
    let Some(slot) = slot else {
        return refusal(StatusCode::BAD_REQUEST, "there is no node 0", PLACE, LEAVE);
    };
    if store.ring().is_none() {
        let what = "this store has no ring: all its nodes are in one process";
        let instead = "a request to a store with a process for each node";
        return refusal(StatusCode::CONFLICT, what, PLACE, instead);
    }
    let leave = Command::ChangeRing(Box::new(RingChange::Leave { slot }));
    match store.submit(vec![leave]).await.map(|replies| replies.into_iter().next()) {
        Ok(Some(Reply::Ring(ring))) => success(describe(&ring, &store.nodes().await).to_string()),
        Ok(Some(Reply::Invalid(reason))) => refusal(StatusCode::CONFLICT, &reason, PLACE, LEAVE),
        Ok(_) => unavailable("unexpected reply"),
        Err(error) => unavailable(&error.to_string()),
    }
}

fn unavailable(what: &str) -> Answer {
    refusal(StatusCode::SERVICE_UNAVAILABLE, what, PLACE, "the same request in a few seconds")
}

/// Returns the nodes of the ring, the nodes that shall have each arc, and the arcs that other nodes still have.
pub(super) fn describe(ring: &Ring, reports: &[NodeReport]) -> Value {
    let arcs: Vec<Value> = ring
        .replicas
        .iter()
        .zip(0_u32..)
        .map(|(slots, arc)| {
            let target: BTreeSet<u64> = slots.iter().map(|slot| u64::from(slot.number())).collect();
            let voters = voters_of(arc, reports);
            let moves = voters.as_ref().is_some_and(|voters| *voters != target);
            let target: Vec<u8> = slots.iter().map(|slot| slot.number()).collect();
            json!({ "arc": arc, "nodes": target, "voters": voters, "moves": moves })
        })
        .collect();
    let nodes: Vec<Value> = ring
        .nodes
        .iter()
        .map(|(slot, node)| {
            let arcs = ring.replicas.iter().filter(|slots| slots.contains(slot)).count();
            json!({
                "node": slot.number(),
                "incarnation": node.incarnation,
                "address": node.address,
                "leaving": node.is_leaving,
                "arcs": arcs,
            })
        })
        .collect();
    json!({ "version": ring.version, "nodes": nodes, "arcs": arcs })
}

/// Returns the slots of an arc's voters according to its leader; `None` if no reachable node leads it.
fn voters_of(arc: u32, reports: &[NodeReport]) -> Option<BTreeSet<u64>> {
    let statuses = reports.iter().flat_map(|report| &report.replicas);
    let leads = |status: &&Status| status.arc.0 == arc && status.role == Role::Leader;
    let leader = statuses.filter(leads).max_by_key(|status| status.term)?;
    Some(leader.voters.iter().copied().map(slot_of).collect())
}
