//! Restarts a process whose only node has a damaged disk. After the restart, the directory is set aside,
//! and the node is rebuilt from its peers.

use std::path::Path;
use std::sync::Weak;
use std::time::{Duration, Instant};

use futures::future::join_all;

use super::QUESTION;
use crate::peer::{Answer, Peers, Question};
use crate::store::directory::{self, NotYet};
use node::status::Status;
use node::{Node, OnFatal, Replicas, check_redundancy, slot_of};

/// The interval between two checks of the peers.
const CHECK_INTERVAL: Duration = Duration::from_millis(200);
/// The interval between two log lines with the reason why the node waits.
const LOG_INTERVAL: Duration = Duration::from_secs(30);

/// Waits until the node with the given replicas is damaged and its peers can continue without the
/// node. Then restarts the process.
pub(super) async fn run(
    replicas: Weak<Replicas>,
    peers: Weak<Peers>,
    data: Box<Path>,
    restart: OnFatal,
) {
    let mut logged_at: Option<Instant> = None;
    loop {
        tokio::time::sleep(CHECK_INTERVAL).await;
        let (Some(own), Some(peers)) = (replicas.upgrade(), peers.upgrade()) else { return };
        let Some(reason) = own.damage().reason() else { continue };
        let checked = match directory::check_room_beside(&data, slot_of(own.id())) {
            Ok(()) => check_peers(&peers, &own.running()).await,
            Err(why) => Err(why),
        };
        match checked {
            Ok(()) => return restart(reason),
            Err(why) if logged_at.is_none_or(|at| at.elapsed() > LOG_INTERVAL) => {
                tracing::warn!(
                    reason,
                    why = why.to_string(),
                    "this node is damaged, but its directory cannot be set aside yet"
                );
                logged_at = Some(Instant::now());
            }
            Err(_) => {}
        }
    }
}

/// Checks whether this node's peers can continue without it.
///
/// # Errors
/// The reason why the peers cannot continue without the node.
async fn check_peers(peers: &Peers, own: &[Node]) -> Result<(), NotYet> {
    let ask = async |slot| (slot, peers.ask(slot, &Question::Status, QUESTION).await);
    let mut others = Vec::new();
    for (slot, answer) in join_all(peers.slots().map(ask)).await {
        match answer {
            Ok(Answer::Status(replicas, _)) => others.extend(replicas),
            _ => return Err(NotYet::Silent(slot)),
        }
    }
    let own: Vec<Status> = own.iter().map(Node::status).collect();
    Ok(check_redundancy(&own, &others)?)
}
