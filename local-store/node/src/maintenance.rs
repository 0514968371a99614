//! Maintenance of a replica beside its requests: reports its failure, makes its state durable, shortens
//! the log, and hands leadership over when its disk is damaged.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use openraft::async_runtime::watch::WatchReceiver;
use openraft::errors::Fatal;
use tokio::time::MissedTickBehavior;

use crate::failure::FailureHandler;
use crate::node_log::NodeLog;
use crate::raft::Raft;
use crate::replica::recent_entries::RecentBoundary;
use crate::ring::ArcId;
use crate::transport::{Envelope, Request, Response, Transport};
use crate::types::{NodeId, TypeConfig};

/// How often a node looks whether its arc holds up the log.
const LOG_LOOK: Duration = Duration::from_secs(1);
/// Time between two tries of a damaged node to have another one lead, and for a peer to say how it does.
const HAND_OVER_RETRY: Duration = Duration::from_millis(300);
/// Log files beyond this size are shortened to what the state lacks, even if a peer is behind and
/// then has to be sent a snapshot.
const LOG_BYTES_KEPT: u64 = 256 * 1024 * 1024;

/// What is maintenance of a replica.
pub(super) struct Maintenance {
    pub(super) raft: Raft,
    pub(super) arc: ArcId,
    /// Told when the state is to be made durable.
    pub(super) due: Arc<tokio::sync::Notify>,
    pub(super) log: NodeLog,
    pub(super) before_recent: RecentBoundary,
    pub(super) transport: Arc<dyn Transport>,
    pub(super) id: NodeId,
}

/// Maintains a node until it ends: reports a consensus that ended by itself, as a node is never
/// half alive, and has the state made durable when much of it is not.
pub(super) async fn run(maintenance: Maintenance, on_failure: FailureHandler) {
    let Maintenance { raft, arc, due, log, .. } = &maintenance;
    let damage = on_failure.damage();
    let mut hand_over = None;
    let mut metrics = raft.metrics();
    let mut look = tokio::time::interval(LOG_LOOK);
    look.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        let state = metrics.borrow_watched().running_state.clone();
        match state {
            Ok(()) => {}
            Err(Fatal::Stopped) => return,
            Err(error) => return on_failure.report(&format!("the consensus ended: {error}")),
        }
        tokio::select! {
            biased;
            changed = metrics.changed() => {
                // A consensus that ends otherwise says so first, and that is seen above.
                if changed.is_err() && metrics.borrow_watched().running_state.is_ok() {
                    return on_failure.report("the consensus ended by a panic, a defect of this program");
                }
            }
            () = damage.found(), if hand_over.is_none() && damage.has_peers() => {
                let mut interval = tokio::time::interval(HAND_OVER_RETRY);
                interval.set_missed_tick_behavior(MissedTickBehavior::Delay);
                hand_over = Some(interval);
            }
            () = next_tick(&mut hand_over), if damage.is_survivable() => {
                maintenance.hand_over().await;
            }
            () = due.notified() => {
                if let Err(error) = make_durable(&maintenance).await {
                    tracing::debug!(%error, "a node ended before its state was made durable");
                }
            }
            // An arc that is rarely written to must not keep the log of all from being shortened;
            // and what a log holds that is long when the node starts nothing else counts.
            _ = look.tick() => {
                if log.usage().1 > LOG_BYTES_KEPT
                    && log.is_held_by(*arc)
                    && let Err(error) = make_durable(&maintenance).await
                {
                    tracing::debug!(%error, "a node ended before its state was made durable");
                }
            }
        }
    }
}

/// The next tick of an interval, if there is one.
async fn next_tick(interval: &mut Option<tokio::time::Interval>) {
    match interval {
        Some(interval) => {
            interval.tick().await;
        }
        None => std::future::pending().await,
    }
}

impl Maintenance {
    /// If this node leads: has another one lead whose disk is sound, the one that is furthest. Without
    /// one it goes on leading, as what is not damaged is still served best so.
    async fn hand_over(&self) {
        let peers: Vec<(NodeId, Option<u64>)> = {
            let metrics = self.raft.metrics();
            let metrics = metrics.borrow_watched();
            let (Some(replication), true) =
                (&metrics.replication, metrics.current_leader == Some(self.id))
            else {
                return;
            };
            let voters: BTreeSet<NodeId> =
                metrics.membership_config.membership().voter_ids().collect();
            let is_peer = |peer: &NodeId| *peer != self.id && voters.contains(peer);
            let far = replication.iter().filter(|(peer, _)| is_peer(peer));
            far.map(|(peer, at)| (*peer, at.as_ref().map(|at| at.index))).collect()
        };
        let sound = peers
            .into_iter()
            .map(|(peer, at)| async move { (self.is_sound(peer).await, at, peer) });
        let sound = futures::future::join_all(sound).await;
        let best = sound.into_iter().filter(|(is_sound, ..)| *is_sound).max();
        if let Some((_, _, to)) = best
            && let Err(error) = self.raft.trigger().transfer_leader(to).await
        {
            tracing::debug!(%error, "a damaged node ended before it handed over");
        }
    }

    /// Whether a peer answers, and knows of no damage of its disk.
    async fn is_sound(&self, peer: NodeId) -> bool {
        let request = Request::Status;
        let message = Envelope { from: self.id, to: peer, arc: self.arc, request };
        let answer = self.transport.call(message, HAND_OVER_RETRY).await;
        matches!(answer, Ok(Response::Status(status)) if !status.is_damaged)
    }
}

/// Has the state made durable, and the log shortened further than by the number of its entries when
/// they are large, or when it is: files that are given back are used again, and others have to be filled
/// with zeros first.
async fn make_durable(maintenance: &Maintenance) -> Result<(), Fatal<TypeConfig>> {
    let Maintenance { raft, log, before_recent, .. } = maintenance;
    let (snapshot, matched) = {
        let metrics = raft.metrics();
        let metrics = metrics.borrow_watched();
        // What a peer lacks it would need a snapshot for, and one more when that has come.
        let peers = metrics.replication.iter().flat_map(BTreeMap::values);
        let matched = peers.map(|matched| matched.as_ref().map_or(0, |at| at.index)).min();
        (metrics.snapshot.as_ref().map_or(0, |at| at.index), matched.unwrap_or(u64::MAX))
    };
    let (_, log_bytes) = log.usage();
    let before = match log_bytes > LOG_BYTES_KEPT {
        true => snapshot,
        false => snapshot.min(before_recent.index()).min(matched),
    };
    if before > 0 {
        raft.trigger().purge_log(before).await?;
    }
    raft.trigger().snapshot().await
}
