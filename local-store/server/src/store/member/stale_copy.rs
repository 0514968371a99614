//! Detects a data directory that was restored from an older copy.
//!
//! A node that has lost entries that it acknowledged must not vote. Its vote could elect a leader that
//! lacks the same entries, and acknowledged writes would be lost. Only the leader stores which entries
//! each node has acknowledged during the leader's term. Therefore a restored copy is not detected while
//! there is no leader, or after the leader has changed.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use futures::future::join_all;

use super::{QUESTION, ROUND};
use crate::fatal::{Fatal, fatal};
use crate::peer::{Answer, Peers, Question};
use crate::store::directory::NodeFiles;
use node::ring::ArcId;
use node::slot_of;
use node::status::{Role, Status};

/// The maximum time for finding the leaders. After this time, a node with data starts without this check.
/// The start takes this long only if a peer is unreachable and no other node leads.
const WAIT: Duration = Duration::from_secs(1);

/// Refuses to start a node whose log lacks entries that it acknowledged, according to the leaders.
///
/// # Errors
/// According to a leader, the node acknowledged entries that are not in its log.
pub(super) async fn refuse_older_copy(
    peers: &Peers,
    slot: u64,
    files: &NodeFiles,
) -> Result<(), Fatal> {
    for leader in find_leaders(peers, files.identity.arcs as usize).await.values() {
        let (term, last) = files.log.position(leader.arc);
        let Some(acknowledged) = leader.acknowledged.get(&files.identity.node) else { continue };
        // A leader of a later term may have replaced entries that were acknowledged in an earlier term.
        if term > leader.term || last >= Some(*acknowledged) {
            continue;
        }
        let end = match last {
            Some(last) => format!("with entry {last}"),
            None => "before the first entry".to_owned(),
        };
        return Err(fatal!(
            "the directory of node {slot} lacks entries that the node acknowledged: the leader, node {}, has an acknowledgement of entry {acknowledged} of {}, but the log in the directory ends {end}. The directory was restored from an older copy, and a vote of this node could lose acknowledged writes: move `node-{slot}` away so that the node is rebuilt",
            slot_of(leader.node),
            leader.arc,
        ));
    }
    Ok(())
}

/// Returns the status of the leader with the latest term for each arc, if it responds within [`WAIT`].
async fn find_leaders(peers: &Peers, arcs: usize) -> BTreeMap<ArcId, Status> {
    let begun = Instant::now();
    let mut leaders = BTreeMap::new();
    loop {
        let ask = async |peer| peers.ask(peer, &Question::Status, QUESTION).await;
        let mut all_answered = true;
        for answer in join_all(peers.slots().map(ask)).await {
            let Ok(Answer::Status(replicas, _)) = answer else {
                all_answered = false;
                continue;
            };
            let leading = replicas.into_iter().filter(|status| status.role == Role::Leader);
            for status in leading {
                let newest = leaders.entry(status.arc).or_insert_with(|| status.clone());
                if newest.term < status.term {
                    *newest = status;
                }
            }
        }
        if all_answered || leaders.len() >= arcs || begun.elapsed() > WAIT {
            return leaders;
        }
        tokio::time::sleep(ROUND / 4).await;
    }
}
