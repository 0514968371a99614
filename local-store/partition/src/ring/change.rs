//! The changes of the ring, as values, and their effect.
//!
//! Each change states what shall be true, so a repeated change that is already true has no effect.
//! The exception is [`RingChange::Join`]: a node that exists may be another machine.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::mutation::{self, Mutation};
use crate::ring::placement::{place, place_first};
use crate::ring::refusal::{ADDRESS_BYTES_MAX, RingRefusal};
use crate::ring::{NODES_MAX, REPLICAS, Ring, RingNode, Slot};
use crate::table::placement::ARCS_MAX;

/// A change of the ring.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum RingChange {
    /// Sets the first ring of a cluster.
    Found {
        /// The nodes, each with the address at which it listens for its peers.
        nodes: BTreeMap<Slot, Option<String>>,
        /// The number of arcs: 1 to [`ARCS_MAX`]. It never changes.
        arcs: u32,
    },
    /// Adds a node and moves its share of the arcs to it.
    Join {
        /// A slot without a node.
        slot: Slot,
        /// The address at which the node listens for its peers.
        address: Option<String>,
    },
    /// Marks a node as leaving and moves its arcs to the other nodes.
    Leave {
        /// The node.
        slot: Slot,
    },
    /// Removes a leaving node. The caller must know that no arc has a replica on the node.
    Forget {
        /// The node.
        slot: Slot,
    },
    /// Gives the next incarnation to a node that lost its disk. The node keeps its arcs.
    Readmit {
        /// The node.
        slot: Slot,
        /// The incarnation that lost its disk. If the node already has a later one, nothing
        /// changes.
        lost: u64,
    },
    /// Changes the address of a node.
    Readdress {
        /// The node.
        slot: Slot,
        /// The address at which the node listens for its peers.
        address: Option<String>,
    },
}

impl Ring {
    /// Returns the ring after a change. If the change is already true, returns an equal ring;
    /// otherwise, the version increases by 1.
    ///
    /// # Errors
    /// When the change is not valid for this ring.
    pub fn change(&self, change: &RingChange) -> Result<Self, RingRefusal> {
        let mut changed = self.clone();
        match change {
            RingChange::Found { nodes, arcs } => changed.found(nodes, *arcs)?,
            _ if !self.is_founded() => return Err(RingRefusal::NotFounded),
            RingChange::Join { slot, address } => changed.join(*slot, address.as_ref())?,
            RingChange::Leave { slot } => changed.leave(*slot)?,
            RingChange::Forget { slot } => changed.forget(*slot)?,
            RingChange::Readmit { slot, lost } => changed.readmit(*slot, *lost)?,
            RingChange::Readdress { slot, address } => {
                changed.readdress(*slot, address.as_ref())?;
            }
        }
        if changed != *self {
            changed.version += 1;
        }
        Ok(changed)
    }

    fn found(
        &mut self,
        nodes: &BTreeMap<Slot, Option<String>>,
        arcs: u32,
    ) -> Result<(), RingRefusal> {
        if self.is_founded() {
            let own = self.nodes.iter().map(|(slot, node)| (slot, &node.address));
            let is_same = own.eq(nodes) && u32::try_from(self.replicas.len()) == Ok(arcs);
            let other = RingRefusal::OtherRing { version: self.version };
            return if is_same { Ok(()) } else { Err(other) };
        }
        if nodes.is_empty() {
            return Err(RingRefusal::NoNodes);
        }
        if !(1..=ARCS_MAX).contains(&arcs) {
            return Err(RingRefusal::InvalidArcs(arcs));
        }
        for (slot, address) in nodes {
            self.check_address(*slot, address.as_ref())?;
            self.nodes.insert(*slot, new_node(0, address.as_ref()));
        }
        self.replicas = place_first(arcs, &self.members());
        Ok(())
    }

    fn join(&mut self, slot: Slot, address: Option<&String>) -> Result<(), RingRefusal> {
        match self.nodes.get(&slot) {
            Some(node) if node.is_leaving => return Err(RingRefusal::Leaving(slot)),
            Some(_) => return Err(RingRefusal::NodeExists(slot)),
            None if self.nodes.len() >= NODES_MAX => return Err(RingRefusal::TooManyNodes(slot)),
            None => self.check_address(slot, address)?,
        }
        let incarnation = self.forgotten.remove(&slot).map_or(0, |last| last + 1);
        self.nodes.insert(slot, new_node(incarnation, address));
        self.replicas = place(&self.replicas, &self.members());
        Ok(())
    }

    fn leave(&mut self, slot: Slot) -> Result<(), RingRefusal> {
        let node = self.nodes.get_mut(&slot).ok_or(RingRefusal::UnknownNode(slot))?;
        if node.is_leaving {
            return Ok(());
        }
        node.is_leaving = true;
        let members = self.members();
        if members.len() < REPLICAS {
            return Err(RingRefusal::TooFewNodes { slot, remain: members.len() });
        }
        self.replicas = place(&self.replicas, &members);
        Ok(())
    }

    fn forget(&mut self, slot: Slot) -> Result<(), RingRefusal> {
        match self.nodes.get(&slot) {
            Some(node) if node.is_leaving => {
                self.forgotten.insert(slot, node.incarnation);
                self.nodes.remove(&slot);
                Ok(())
            }
            Some(_) => Err(RingRefusal::NotLeaving(slot)),
            None if self.forgotten.contains_key(&slot) => Ok(()),
            None => Err(RingRefusal::UnknownNode(slot)),
        }
    }

    fn readmit(&mut self, slot: Slot, lost: u64) -> Result<(), RingRefusal> {
        let node = self.nodes.get_mut(&slot).ok_or(RingRefusal::UnknownNode(slot))?;
        if node.is_leaving {
            return Err(RingRefusal::Leaving(slot));
        }
        if lost > node.incarnation {
            let (asked, found) = (lost, node.incarnation);
            return Err(RingRefusal::UnknownIncarnation { slot, asked, found });
        }
        if lost == node.incarnation && !mutation::is_active(Mutation::ReuseIncarnation) {
            node.incarnation += 1;
        }
        Ok(())
    }

    fn readdress(&mut self, slot: Slot, address: Option<&String>) -> Result<(), RingRefusal> {
        self.check_address(slot, address)?;
        let node = self.nodes.get_mut(&slot).ok_or(RingRefusal::UnknownNode(slot))?;
        node.address = address.cloned();
        Ok(())
    }

    /// Checks that a node can have an address.
    fn check_address(&self, slot: Slot, address: Option<&String>) -> Result<(), RingRefusal> {
        let Some(address) = address else { return Ok(()) };
        let bytes = address.len();
        if !(1..=ADDRESS_BYTES_MAX).contains(&bytes) {
            return Err(RingRefusal::InvalidAddress { slot, bytes });
        }
        let has_it = |other: &(&Slot, &RingNode)| {
            *other.0 != slot && other.1.address.as_ref() == Some(address)
        };
        match self.nodes.iter().find(has_it) {
            Some((slot, _)) => {
                Err(RingRefusal::AddressInUse { slot: *slot, address: address.clone() })
            }
            None => Ok(()),
        }
    }
}

fn new_node(incarnation: u64, address: Option<&String>) -> RingNode {
    RingNode { incarnation, address: address.cloned(), is_leaving: false }
}
