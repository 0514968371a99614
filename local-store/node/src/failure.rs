//! Handles the failure of a node that cannot continue.

use std::sync::Arc;

use storage::disk::Damage;

/// Called once when a node's disk or state failed: the process has to end, because what was not
/// acknowledged may or may not be on disk.
pub type OnFatal = Arc<dyn Fn(&str) + Send + Sync>;

/// Ends a failed node: alone if its disk is damaged and its peers can rebuild it, together with its
/// process otherwise.
#[derive(Clone)]
pub struct FailureHandler {
    damage: Damage,
    on_fatal: OnFatal,
}

impl FailureHandler {
    /// Makes the handler of a node that records damage in `damage` and ends its process by `on_fatal`.
    #[must_use]
    pub fn new(damage: Damage, on_fatal: OnFatal) -> Self {
        Self { damage, on_fatal }
    }

    /// Returns the damage that is known.
    pub(super) fn damage(&self) -> &Damage {
        &self.damage
    }

    /// Ends the process, unless the store can continue without the node.
    pub(super) fn report(&self, reason: &str) {
        if self.damage.is_survivable() {
            tracing::warn!(reason, "a damaged node waits to be rebuilt from its peers");
        } else {
            (self.on_fatal)(reason);
        }
    }

    /// Reports as [`FailureHandler::report`] does, and returns when the node ends. Until then the node
    /// applies nothing, but votes and keeps its log, so what a majority with it acknowledges is safe.
    pub(super) async fn report_and_wait(&self, reason: &str) {
        self.report(reason);
        if self.damage.is_survivable() {
            self.damage.stopped().await;
        }
    }
}

/// The only node of a store.
impl From<OnFatal> for FailureHandler {
    fn from(on_fatal: OnFatal) -> Self {
        Self::new(Damage::of_only_node(), on_fatal)
    }
}
