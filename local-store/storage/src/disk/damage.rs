//! The record of damage on the disk of one node, which connects the reads that detect damage with
//! the store that reacts to it.
//!
//! The log and all states of a node share one record. Code that encounters a wrong checksum or a
//! failed read reports it here. The store then sets the node aside and rebuilds it, while the other
//! nodes continue.

use std::sync::{Arc, OnceLock};

use tokio::sync::watch;

/// The condition of a node, from best to worst.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Condition {
    Sound,
    Damaged,
    Stopped,
}

#[derive(Debug)]
struct Shared {
    has_peers: bool,
    reason: OnceLock<String>,
    condition: watch::Sender<Condition>,
}

/// The record of damage of one node. Clones share the record.
#[derive(Clone, Debug)]
pub struct Damage(Arc<Shared>);

impl Damage {
    /// Creates the record of a node that other nodes can rebuild.
    #[must_use]
    pub fn of_one_among_peers() -> Self {
        Self::new(true)
    }

    /// Creates the record of the only node of a store, which no other node can rebuild.
    #[must_use]
    pub fn of_only_node() -> Self {
        Self::new(false)
    }

    fn new(has_peers: bool) -> Self {
        let condition = watch::Sender::new(Condition::Sound);
        Self(Arc::new(Shared { has_peers, reason: OnceLock::new(), condition }))
    }

    /// Returns whether other nodes can rebuild this node.
    #[must_use]
    pub fn has_peers(&self) -> bool {
        self.0.has_peers
    }

    /// Reports damage. Only the first reason is kept.
    pub fn report(&self, reason: &str) {
        if self.0.reason.set(reason.to_owned()).is_ok() {
            tracing::error!(reason, "the disk of a node is damaged");
            self.raise(Condition::Damaged);
        }
    }

    /// Returns the reason of the damage, or `None` if the node is not damaged.
    #[must_use]
    pub fn reason(&self) -> Option<&str> {
        self.0.reason.get().map(String::as_str)
    }

    /// Returns whether the store can continue if this node fails.
    #[must_use]
    pub fn is_survivable(&self) -> bool {
        self.0.has_peers && self.reason().is_some()
    }

    /// Marks the node as stopped, which wakes the tasks that wait for it.
    pub fn stop(&self) {
        self.raise(Condition::Stopped);
    }

    /// Returns whether the node is stopping or has stopped.
    #[must_use]
    pub fn is_stopped(&self) -> bool {
        *self.0.condition.borrow() == Condition::Stopped
    }

    /// Waits until damage is reported, or the node stops.
    pub async fn found(&self) {
        self.reached(Condition::Damaged).await;
    }

    /// Waits until the node stops.
    pub async fn stopped(&self) {
        self.reached(Condition::Stopped).await;
    }

    fn raise(&self, to: Condition) {
        self.0.condition.send_if_modified(|condition| {
            let is_later = *condition < to;
            *condition = (*condition).max(to);
            is_later
        });
    }

    async fn reached(&self, wanted: Condition) {
        let mut condition = self.0.condition.subscribe();
        // Waiting fails only if the sender is dropped, which `self` prevents.
        let _ = condition.wait_for(|condition| *condition >= wanted).await;
    }
}

impl Default for Damage {
    fn default() -> Self {
        Self::of_only_node()
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt;

    use super::*;

    #[test]
    fn the_first_reason_is_kept_and_a_stop_is_final() {
        for (damage, is_survivable) in
            [(Damage::of_only_node(), false), (Damage::of_one_among_peers(), true)]
        {
            assert!(!damage.is_survivable() && damage.found().now_or_never().is_none());
            damage.report("rot");
            damage.report("more rot");
            assert_eq!(damage.reason(), Some("rot"));
            assert_eq!(damage.is_survivable(), is_survivable);
            assert!(damage.found().now_or_never().is_some() && !damage.is_stopped());
            damage.stop();
            damage.report("even more");
            assert!(damage.is_stopped() && damage.stopped().now_or_never().is_some());
        }
    }
}
