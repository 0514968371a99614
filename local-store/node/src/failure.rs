//! Handler of a failed node, which cannot continue.

use std::sync::Arc;

use storage::disk::Damage;

/// A callback for the failure of a node's disk or state, called once. The callback must end the
/// process, because it is unknown which unacknowledged writes are on disk.
pub type OnFatal = Arc<dyn Fn(&str) + Send + Sync>;

/// The handler of a failed node. If the node's disk is damaged and its peers can rebuild it, only
/// the node stops. In any other case the process exits.
#[derive(Clone)]
pub struct FailureHandler {
    damage: Damage,
    on_fatal: OnFatal,
}

impl FailureHandler {
    /// Creates the handler of a node. `damage` records the damage of the node's disk, and
    /// `on_fatal` ends the process.
    #[must_use]
    pub fn new(damage: Damage, on_fatal: OnFatal) -> Self {
        Self { damage, on_fatal }
    }

    /// Returns the record of the damage of the node's disk.
    pub(super) fn damage(&self) -> &Damage {
        &self.damage
    }

    /// Reports a failure. Ends the process if the store cannot continue without the node.
    pub(super) fn report(&self, reason: &str) {
        if self.damage.is_survivable() {
            tracing::warn!(reason, "this node is damaged and waits until its peers rebuild it");
        } else {
            (self.on_fatal)(reason);
        }
    }

    /// Reports a failure like [`FailureHandler::report`], and waits until the node stops. While it
    /// waits, the node applies no entries, but it votes and keeps its log. Therefore writes that
    /// were acknowledged by a majority with this node are safe.
    pub(super) async fn report_and_wait(&self, reason: &str) {
        self.report(reason);
        if self.damage.is_survivable() {
            self.damage.stopped().await;
        }
    }
}

/// Creates the handler of the only node of a store.
impl From<OnFatal> for FailureHandler {
    fn from(on_fatal: OnFatal) -> Self {
        Self::new(Damage::of_only_node(), on_fatal)
    }
}
