//! What becomes of a node that cannot go on.

use crate::OnFatal;
use storage::disk::Damage;

/// The end of a node: alone, where its disk is damaged and its peers can fill it again; with its
/// process otherwise.
#[derive(Clone)]
pub struct Ending {
    damage: Damage,
    on_fatal: OnFatal,
}

impl Ending {
    /// For a node that reports damage there, in a process that ends so.
    #[must_use]
    pub fn new(damage: Damage, on_fatal: OnFatal) -> Self {
        Self { damage, on_fatal }
    }

    /// What is known of damage.
    pub(super) fn damage(&self) -> &Damage {
        &self.damage
    }

    /// Ends the process, unless the store goes on without the node.
    pub(super) fn announce(&self, reason: &str) {
        if self.damage.is_survivable() {
            tracing::warn!(reason, "a damaged node waits to be filled again");
        } else {
            (self.on_fatal)(reason);
        }
    }

    /// As [`Ending::announce`], and returns when the node ends. Until then it still votes and keeps
    /// the log: what a majority with it acknowledges is safe, although it applies nothing any more.
    pub(super) async fn reached(&self, reason: &str) {
        self.announce(reason);
        if self.damage.is_survivable() {
            self.damage.stopped().await;
        }
    }
}

/// The only node of a store.
impl From<OnFatal> for Ending {
    fn from(on_fatal: OnFatal) -> Self {
        Self::new(Damage::of_only_node(), on_fatal)
    }
}
