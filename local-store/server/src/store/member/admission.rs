//! Why a node without data has no identity in a cluster yet.

use thiserror::Error;

/// The reason why this node has no identity yet.
#[derive(Debug, Error)]
#[error("{0}")]
pub(super) struct NotAdmitted(pub(super) Refusal);

/// The reasons why the peers give no identity.
#[derive(Debug, Error)]
pub(super) enum Refusal {
    /// No peer leads the first arc, or it does not answer: keep waiting.
    #[error("no leader admits this node: {}", .0.join("; "))]
    NotYet(Vec<String>),
    /// The ring does not admit the node: do not start.
    #[error("{0}")]
    OfRing(String),
}
