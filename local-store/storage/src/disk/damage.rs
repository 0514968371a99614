//! What is known of damage on the disk of one node: found by a read, then acted upon by the store.
//!
//! The log and all states of a node share one. Whoever meets a wrong checksum or a failed read
//! reports it, and the store has the node set aside and filled again, while the others go on.

use std::sync::{Arc, OnceLock};

use tokio::sync::watch;

/// How far a node is on the way from sound to gone.
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

/// See the module. Clones are the same.
#[derive(Clone, Debug)]
pub struct Damage(Arc<Shared>);

impl Damage {
    /// For a node that others can fill again.
    #[must_use]
    pub fn of_one_among_peers() -> Self {
        Self::new(true)
    }

    /// For the only node of a store: what it loses, nobody has.
    #[must_use]
    pub fn of_only_node() -> Self {
        Self::new(false)
    }

    fn new(has_peers: bool) -> Self {
        let condition = watch::Sender::new(Condition::Sound);
        Self(Arc::new(Shared { has_peers, reason: OnceLock::new(), condition }))
    }

    /// Whether other nodes can fill this one again.
    #[must_use]
    pub fn has_peers(&self) -> bool {
        self.0.has_peers
    }

    /// Notes damage. The first reason counts.
    pub fn report(&self, reason: &str) {
        if self.0.reason.set(reason.to_owned()).is_ok() {
            tracing::error!(reason, "a node's disk is damaged");
            self.raise(Condition::Damaged);
        }
    }

    /// What was found, if anything was.
    #[must_use]
    pub fn reason(&self) -> Option<&str> {
        self.0.reason.get().map(String::as_str)
    }

    /// Whether the store goes on without this node, instead of ending, when the node cannot.
    #[must_use]
    pub fn is_survivable(&self) -> bool {
        self.0.has_peers && self.reason().is_some()
    }

    /// Tells whoever waits for the node that it ends.
    pub fn stop(&self) {
        self.raise(Condition::Stopped);
    }

    /// Whether the node ends or has ended.
    #[must_use]
    pub fn is_stopped(&self) -> bool {
        *self.0.condition.borrow() == Condition::Stopped
    }

    /// Returns when damage was found, or the node ends.
    pub async fn found(&self) {
        self.reached(Condition::Damaged).await;
    }

    /// Returns when the node ends.
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
        // It fails only when the sender is gone, which `self` keeps.
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
    fn the_first_reason_counts_and_a_stop_is_the_end() {
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
