//! What a replica does beside its requests: it notices its own end, and keeps the log short.

use std::sync::Arc;
use std::time::Duration;

use openraft::async_runtime::watch::WatchReceiver;
use openraft::errors::Fatal;

use super::types::TypeConfig;
use super::{NodeLog, OnFatal, Raft};
use crate::ring::ArcId;

/// How often a node looks whether its arc holds up the log.
const LOG_LOOK: Duration = Duration::from_secs(1);
/// Log files beyond this size are shortened to what the last durable state lacks whenever the next one
/// is made, even if a peer is behind and then has to be sent a snapshot. So some 40 to 80 MB stay for
/// peers: the entries that stay anyway may have 16 MB each, and files that grow are written twice, as
/// each is filled with zeros before it is used, where those that were given back are used again.
const LOG_BYTES_KEPT: u64 = 64 * 1024 * 1024;
/// An arc that holds up log files beyond this size has its state made durable, however little was
/// written to it.
const LOG_BYTES_HELD: u64 = 256 * 1024 * 1024;

/// Watches over a node until it ends: reports a consensus that ended by itself, as a node is never
/// half alive, and has the state made durable when much of it is not.
pub(super) async fn watch_over(
    raft: Raft,
    arc: ArcId,
    due: Arc<tokio::sync::Notify>,
    log: NodeLog,
    on_fatal: OnFatal,
) {
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
                if let Err(error) = make_durable(&raft, &log).await {
                    tracing::debug!(%error, "a node ended before its state was made durable");
                }
            }
            // An arc that is rarely written to must not keep the log of all from being shortened;
            // and what a log holds that is long when the node starts nothing else counts.
            _ = look.tick() => {
                if log.usage().1 > LOG_BYTES_HELD
                    && log.is_held_by(arc)
                    && let Err(error) = make_durable(&raft, &log).await
                {
                    tracing::debug!(%error, "a node ended before its state was made durable");
                }
            }
        }
    }
}

/// Has the state made durable, and the log shortened further than usual when it is large.
async fn make_durable(raft: &Raft, log: &NodeLog) -> Result<(), Fatal<TypeConfig>> {
    let snapshot = raft.metrics().borrow_watched().snapshot;
    let (_, log_bytes) = log.usage();
    if let Some(at) = snapshot.filter(|_| log_bytes > LOG_BYTES_KEPT) {
        raft.trigger().purge_log(at.index).await?;
    }
    raft.trigger().snapshot().await
}
