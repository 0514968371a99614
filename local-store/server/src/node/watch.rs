//! What a replica does beside its requests: it notices its own end, and keeps the log short.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use openraft::async_runtime::watch::WatchReceiver;
use openraft::errors::Fatal;

use super::recent::Before;
use super::types::TypeConfig;
use super::{NodeLog, OnFatal, Raft};
use crate::ring::ArcId;

/// How often a node looks whether its arc holds up the log.
const LOG_LOOK: Duration = Duration::from_secs(1);
/// Log files beyond this size are shortened to what the state lacks, even if a peer is behind and
/// then has to be sent a snapshot.
const LOG_BYTES_KEPT: u64 = 256 * 1024 * 1024;

/// What is watched of a replica.
pub(super) struct Watched {
    pub(super) raft: Raft,
    pub(super) arc: ArcId,
    /// Told when the state is to be made durable.
    pub(super) due: Arc<tokio::sync::Notify>,
    pub(super) log: NodeLog,
    pub(super) before_recent: Before,
}

/// Watches over a node until it ends: reports a consensus that ended by itself, as a node is never
/// half alive, and has the state made durable when much of it is not.
pub(super) async fn watch_over(watched: Watched, on_fatal: OnFatal) {
    let Watched { raft, arc, due, log, .. } = &watched;
    let mut metrics = raft.metrics();
    let mut look = tokio::time::interval(LOG_LOOK);
    look.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        let state = metrics.borrow_watched().running_state.clone();
        match state {
            Ok(()) => {}
            Err(Fatal::Stopped) => return,
            Err(error) => return on_fatal(&format!("the consensus ended: {error}")),
        }
        tokio::select! {
            biased;
            changed = metrics.changed() => {
                // A consensus that ends otherwise says so first, and that is seen above.
                if changed.is_err() && metrics.borrow_watched().running_state.is_ok() {
                    return on_fatal("the consensus ended by a panic, a defect of this program");
                }
            }
            () = due.notified() => {
                if let Err(error) = make_durable(&watched).await {
                    tracing::debug!(%error, "a node ended before its state was made durable");
                }
            }
            // An arc that is rarely written to must not keep the log of all from being shortened;
            // and what a log holds that is long when the node starts nothing else counts.
            _ = look.tick() => {
                if log.usage().1 > LOG_BYTES_KEPT
                    && log.is_held_by(*arc)
                    && let Err(error) = make_durable(&watched).await
                {
                    tracing::debug!(%error, "a node ended before its state was made durable");
                }
            }
        }
    }
}

/// Has the state made durable, and the log shortened further than by the number of its entries when
/// they are large, or when it is: files that are given back are used again, and others have to be filled
/// with zeros first.
async fn make_durable(watched: &Watched) -> Result<(), Fatal<TypeConfig>> {
    let Watched { raft, log, before_recent, .. } = watched;
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
