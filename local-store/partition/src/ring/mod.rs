//! The ring: the nodes of a cluster, their incarnations, and the nodes that shall hold each arc.
//!
//! The ring is state of the first arc: [`crate::Command::ChangeRing`] changes it, and every node
//! reads the same one. It contains the target only. This module does not move data, does not know
//! which node is running, and does not decide when a node joins or leaves.

pub(crate) mod change;
mod exchange;
pub(crate) mod placement;
#[cfg(test)]
mod placement_tests;
pub(crate) mod refusal;
#[cfg(test)]
pub(crate) mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::num::NonZeroU8;

use serde::{Deserialize, Serialize};

/// The number of replicas of an arc, if there are enough nodes.
pub const REPLICAS: usize = 3;

/// The maximum number of nodes. Each node has two connections to every other node, and asks all of them when
/// it looks for the leader of an arc.
pub const NODES_MAX: usize = 15;

/// The number of a node within its cluster, from 1 to 255. A node keeps its slot when its disk is
/// replaced.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Slot(NonZeroU8);

impl Slot {
    /// Creates a slot; `None` for 0.
    #[must_use]
    pub fn new(number: u8) -> Option<Self> {
        NonZeroU8::new(number).map(Self)
    }

    /// Returns the number of the slot.
    #[must_use]
    pub fn number(self) -> u8 {
        self.0.get()
    }
}

impl fmt::Display for Slot {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(formatter)
    }
}

/// A node of the ring.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RingNode {
    /// The number of times that the node's data was rebuilt, or that another node had the slot.
    pub incarnation: u64,
    /// The address at which the node listens for its peers; `None` if all nodes are in one process.
    pub address: Option<String>,
    /// Whether the node leaves the ring. Then no arc shall be on it.
    pub is_leaving: bool,
}

/// The nodes of a cluster, and the placement of its arcs. By default, the ring that exists before
/// [`RingChange::Found`]: without nodes and arcs.
///
/// [`RingChange::Found`]: crate::RingChange::Found
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ring {
    /// The version, which increases by 1 with each change; 0 before the ring is founded.
    pub version: u64,
    /// The nodes by slot, including the leaving ones.
    pub nodes: BTreeMap<Slot, RingNode>,
    /// The nodes that shall hold each arc, in the order of the arcs: [`REPLICAS`] nodes, or all
    /// that do not leave, if they are fewer. The first one is the preferred leader.
    pub replicas: Vec<Vec<Slot>>,
    /// The last incarnation of each slot whose node was forgotten.
    pub(crate) forgotten: BTreeMap<Slot, u64>,
}

impl Ring {
    /// Returns whether the first ring of the cluster was set.
    #[must_use]
    pub fn is_founded(&self) -> bool {
        self.version > 0
    }

    /// Returns the slots of the nodes that do not leave.
    #[must_use]
    pub fn members(&self) -> BTreeSet<Slot> {
        self.nodes.iter().filter(|(_, node)| !node.is_leaving).map(|(slot, _)| *slot).collect()
    }

    /// Returns the id of a node in its consensus groups: its slot in the lowest eight bits, and
    /// its incarnation above them. `None` if the ring has no such node.
    #[must_use]
    pub fn node_id(&self, slot: Slot) -> Option<u64> {
        self.nodes.get(&slot).map(|node| (node.incarnation << 8) | u64::from(slot.number()))
    }
}
