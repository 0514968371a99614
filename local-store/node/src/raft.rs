//! The handle of the consensus library, with the types of this crate.

use crate::replica::Replica;
use crate::types::TypeConfig;

/// A handle on the consensus of one group.
pub(crate) type Raft = openraft::Raft<TypeConfig, Replica>;
