//! Maintenance of a replica. It reports failures, persists the state, truncates the log, frees disk
//! space in quiet times, and transfers leadership when the disk is damaged.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use openraft::async_runtime::watch::WatchReceiver;
use openraft::errors::Fatal;
use tokio::time::{Instant, MissedTickBehavior};

use crate::failure::FailureHandler;
use crate::node_log::NodeLog;
use crate::raft::Raft;
use crate::replica::{self, recent_entries::RecentBoundary};
use crate::ring::ArcId;
use crate::transport::{Envelope, Request, Response, Transport};
use crate::types::{NodeId, TypeConfig};

/// The interval at which a node checks whether its arc prevents the truncation of the log, and
/// whether no writes arrive.
const LOG_CHECK_INTERVAL: Duration = Duration::from_secs(2);
/// The interval between attempts of a damaged node to transfer leadership. It is also the time-out
/// of a status request to a peer.
const HAND_OVER_RETRY: Duration = Duration::from_millis(300);
/// The size of the log's files, in bytes, above which the log keeps only entries that the persisted
/// state lacks. A peer that lags behind then needs a snapshot.
const LOG_BYTES_KEPT: u64 = 256 * 1024 * 1024;

/// The parts of a replica that its maintenance uses.
pub(super) struct Maintenance {
    pub(super) raft: Raft,
    pub(super) arc: ArcId,
    /// The notification that the state must be persisted.
    pub(super) due: Arc<tokio::sync::Notify>,
    pub(super) log: NodeLog,
    pub(super) state: Arc<replica::Shared>,
    /// Time without a new entry after which disk space is freed: see [`crate::Settings::quiet`].
    pub(super) quiet: Duration,
    pub(super) before_recent: RecentBoundary,
    /// Number of applied entries to keep in the log: see [`crate::Settings::entries_kept`].
    pub(super) entries_kept: u64,
    pub(super) transport: Arc<dyn Transport>,
    pub(super) id: NodeId,
}

/// Maintains a node until it stops. Reports an unexpected end of the consensus library, because a
/// node must never run without it. Persists the state when a large part of the state is not
/// durable.
pub(super) async fn run(maintenance: Maintenance, on_failure: FailureHandler) {
    let Maintenance { raft, arc, due, log, .. } = &maintenance;
    let damage = on_failure.damage();
    let mut hand_over = None;
    let mut lull = Lull::new();
    // Unlike the replication metrics, these metrics do not change with each entry.
    let (metrics, mut changes) = (raft.metrics(), raft.server_metrics());
    let mut log_check = tokio::time::interval(LOG_CHECK_INTERVAL.min(maintenance.quiet));
    log_check.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        let state = metrics.borrow_watched().running_state.clone();
        match state {
            Ok(()) => {}
            Err(Fatal::Stopped) => return,
            Err(error) => return on_failure.report(&format!("Raft stopped: {error}")),
        }
        tokio::select! {
            biased;
            changed = changes.changed() => {
                // If the consensus library ends without a panic, it reports an error state, which
                // is checked above.
                if changed.is_err() && metrics.borrow_watched().running_state.is_ok() {
                    return on_failure.report("Raft panicked, which is a bug in this program");
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
                    tracing::debug!(%error, "a node stopped before its state was persisted");
                }
            }
            // An arc with few writes must not prevent the truncation of the common log. This check
            // also covers entries that were written before the node started, which the other
            // triggers do not count.
            _ = log_check.tick() => {
                let checked = if log.usage().file_bytes > LOG_BYTES_KEPT && log.is_held_by(*arc) {
                    make_durable(&maintenance).await
                } else {
                    lull.check(&maintenance).await
                };
                if let Err(error) = checked {
                    tracing::debug!(%error, "a node stopped before its state was persisted");
                }
            }
        }
    }
}

/// Waits for the next tick of an interval, or forever if there is no interval.
async fn next_tick(interval: &mut Option<tokio::time::Interval>) {
    match interval {
        Some(interval) => {
            interval.tick().await;
        }
        None => std::future::pending().await,
    }
}

impl Maintenance {
    fn progress(&self) -> Progress {
        let metrics = self.raft.metrics();
        let metrics = metrics.borrow_watched();
        let purged = metrics.purged.as_ref().map(|at| at.index);
        let peers = metrics.replication.iter().flat_map(BTreeMap::values);
        let matched = peers.map(|matched| matched.as_ref().map_or(0, |at| at.index)).min();
        Progress {
            last_log: metrics.last_log_index,
            applied: metrics.last_applied.as_ref().map(|at| at.index),
            snapshot: metrics.snapshot.as_ref().map(|at| at.index),
            purged,
            matched: matched.unwrap_or(u64::MAX),
        }
    }

    /// Purges log entries that the persisted state contains and that no peer needs. Keeps the
    /// recent entries, unless the log is large: the log reuses freed files, whereas it must fill
    /// new files with zeros first.
    ///
    /// The purge policy of openraft is disabled. While its purge waits for a replication that reads
    /// the log, it may move the end of the purge back, which fails an assertion in development
    /// builds.
    async fn purge(&self) -> Result<(), Fatal<TypeConfig>> {
        let Progress { snapshot: Some(snapshot), purged, matched, .. } = self.progress() else {
            return Ok(());
        };
        let before = match self.log.usage().file_bytes > LOG_BYTES_KEPT {
            true => snapshot,
            false => snapshot
                .min(self.before_recent.index())
                .min(matched)
                .max(snapshot.saturating_sub(self.entries_kept)),
        };
        if before > 0 && Some(before) > purged {
            self.raft.trigger().purge_log(before).await?;
        }
        Ok(())
    }

    /// Transfers leadership from this node, if it leads, to the most up-to-date peer with an
    /// undamaged disk. If there is no such peer, this node continues to lead, so that it can serve
    /// its undamaged data.
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
        let sound = peers.into_iter().map(|(peer, at)| async move {
            (is_sound(&*self.transport, self.arc, (self.id, peer)).await, at, peer)
        });
        let sound = futures::future::join_all(sound).await;
        let best = sound.into_iter().filter(|(is_sound, ..)| *is_sound).max();
        if let Some((_, _, to)) = best
            && let Err(error) = self.raft.trigger().transfer_leader(to).await
        {
            tracing::debug!(%error, "a damaged node stopped before it transferred leadership");
        }
    }
}

/// Returns whether a peer of a node responds and reports that its disk is undamaged.
pub(super) async fn is_sound(
    transport: &dyn Transport,
    arc: ArcId,
    (node, peer): (NodeId, NodeId),
) -> bool {
    let message = Envelope { from: node, to: peer, arc, request: Request::Status };
    let answer = transport.call(message, HAND_OVER_RETRY).await;
    matches!(answer, Ok(Response::Status(status)) if !status.is_damaged)
}

/// The time since the last new entry of a replica.
struct Lull {
    last_log: Option<u64>,
    since: Instant,
    /// Whether no work remains until the next entry.
    is_done: bool,
}

impl Lull {
    fn new() -> Self {
        Self { last_log: None, since: Instant::now(), is_done: false }
    }

    /// Frees disk space once the replica has had no new entries for the time `quiet`: persists the
    /// state, purges log entries that no peer needs, and merges the files of the state.
    async fn check(&mut self, maintenance: &Maintenance) -> Result<(), Fatal<TypeConfig>> {
        let Maintenance { raft, log, state, quiet, .. } = maintenance;
        maintenance.purge().await?;
        let Progress { last_log, applied, snapshot, matched, .. } = maintenance.progress();
        if last_log != self.last_log {
            *self = Self { last_log, since: Instant::now(), is_done: false };
        }
        if self.is_done || self.since.elapsed() < *quiet || applied != last_log {
            return Ok(());
        }
        if !log.is_small() {
            if snapshot < applied {
                // The next check continues the work.
                return raft.trigger().snapshot().await;
            }
            if let Some(before) = snapshot.map(|snapshot| snapshot.min(matched)) {
                raft.trigger().purge_log(before).await?;
            }
            if let Err(error) = log.shrink().await {
                tracing::debug!(%error, "a node stopped before its log was truncated");
            }
        }
        state.storage().reclaim();
        self.is_done = true;
        Ok(())
    }
}

/// Log indexes of a replica.
struct Progress {
    last_log: Option<u64>,
    applied: Option<u64>,
    /// The entry up to which the state is persisted.
    snapshot: Option<u64>,
    /// The last entry that was purged.
    purged: Option<u64>,
    /// On a leader, the last entry that every peer has acknowledged. A peer needs all later
    /// entries: if they are purged, the peer needs a snapshot, and perhaps a second one after it.
    matched: u64,
}

/// Persists the state, and purges the log entries that an earlier call made unnecessary.
async fn make_durable(maintenance: &Maintenance) -> Result<(), Fatal<TypeConfig>> {
    maintenance.purge().await?;
    maintenance.raft.trigger().snapshot().await
}
