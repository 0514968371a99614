//! Log positions as a type of the consensus library.

use openraft::impls::leader_id_std::LeaderId;
use openraft::vote::RaftLeaderId;

use crate::ring::NodeId;

pub(crate) type LogId = openraft::LogId<<LeaderId<u64, NodeId> as RaftLeaderId>::Committed>;

/// Returns the position of an entry from its term and index.
pub(crate) fn log_id(term: u64, index: u64) -> LogId {
    openraft::LogId::new(LeaderId::new(term, 0).to_committed(), index)
}
