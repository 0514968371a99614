//! The reasons why a change of the ring is rejected.

use thiserror::Error;

use crate::ring::{NODES_MAX, REPLICAS, Slot};
use crate::table::placement::ARCS_MAX;

/// The maximum size of a node's address in bytes: a host name of 255 bytes, a colon, and a port.
pub(crate) const ADDRESS_BYTES_MAX: usize = 261;

/// The reason why a change of the ring is rejected. `Display` says what was rejected, why, and what
/// to do instead; it is the text of the reply.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum RingRefusal {
    /// The arc is not the first arc.
    #[error("only the first arc has the ring; send the change to the first arc")]
    OtherArc,
    /// The cluster has no ring yet.
    #[error("the cluster has no ring yet; found the ring first")]
    NotFounded,
    /// The cluster has a ring with other nodes, addresses or arcs.
    #[error(
        "the cluster already has a ring with other nodes, addresses or arcs, at version {version}; \
         read that ring, and change its nodes one by one"
    )]
    OtherRing {
        /// The version of the ring.
        version: u64,
    },
    /// The new ring has no nodes.
    #[error("a ring needs at least one node; name the nodes of the cluster")]
    NoNodes,
    /// The number of arcs is out of range.
    #[error("a ring has 1 to {ARCS_MAX} arcs, not {0}; choose a number in this range")]
    InvalidArcs(u32),
    /// The cluster has another number of arcs, which cannot change.
    #[error("the cluster has {found} arcs, not {asked}; found the ring with {found} arcs")]
    OtherArcs {
        /// The number of arcs in the change.
        asked: u32,
        /// The number of arcs of the cluster.
        found: u32,
    },
    /// The ring has no node with this slot.
    #[error("the ring has no node {0}; name a node of the ring, or let node {0} join")]
    UnknownNode(Slot),
    /// The ring already has a node with this slot.
    #[error(
        "the ring already has a node {0}; choose another slot, readmit node {0} if it lost its \
         disk, or change its address if it has moved"
    )]
    NodeExists(Slot),
    /// The ring has the maximum number of nodes.
    #[error(
        "node {0} cannot join, because a ring has at most {NODES_MAX} nodes; let another node leave first"
    )]
    TooManyNodes(Slot),
    /// The node leaves the ring.
    #[error(
        "node {0} leaves the ring, so it gets no data; wait until no arc has it, forget it, and \
         let it join again"
    )]
    Leaving(Slot),
    /// The node does not leave the ring.
    #[error("node {0} is a member of the ring; let it leave before you forget it")]
    NotLeaving(Slot),
    /// Too few nodes would remain.
    #[error(
        "node {slot} cannot leave, because only {remain} nodes would remain and an arc needs \
         {REPLICAS}; let another node join first"
    )]
    TooFewNodes {
        /// The node.
        slot: Slot,
        /// The number of nodes that would remain.
        remain: usize,
    },
    /// The node never had the incarnation that the change names.
    #[error(
        "node {slot} has incarnation {found}, and never had {asked}; read the ring, and name the \
         incarnation that lost its disk"
    )]
    UnknownIncarnation {
        /// The node.
        slot: Slot,
        /// The incarnation that the change names.
        asked: u64,
        /// The incarnation of the node.
        found: u64,
    },
    /// Another node has the address.
    #[error("node {slot} already has the address; choose another one than `{address}`")]
    AddressInUse {
        /// The node that has the address.
        slot: Slot,
        /// The address.
        address: String,
    },
    /// The address is empty or too long.
    #[error(
        "the address of node {slot} has {bytes} bytes; choose one of 1 to {ADDRESS_BYTES_MAX} bytes"
    )]
    InvalidAddress {
        /// The node.
        slot: Slot,
        /// The size of the address in bytes.
        bytes: usize,
    },
}
