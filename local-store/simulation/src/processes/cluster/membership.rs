//! Membership: processes that join and leave the ring of a running store. The store moves the replicas.
//!
//! This module chooses no fault: see `faults`.

use std::collections::BTreeSet;
use std::io::ErrorKind;
use std::net::SocketAddr;

use super::rest::ring;
use super::{Cluster, HEAL_MAX, LOOK, PLACES};
use crate::error::HarnessError;
use crate::processes::wire::admin;

impl Cluster {
    /// Returns the places of the processes that run when no fault is under way.
    #[must_use]
    pub fn members(&self) -> Vec<usize> {
        self.members.iter().copied().collect()
    }

    /// Returns the places of the nodes that leave the ring.
    #[must_use]
    pub fn leaving(&self) -> Vec<usize> {
        self.leaving.keys().copied().collect()
    }

    /// Returns the places of the nodes that stay in the ring.
    #[must_use]
    pub fn staying(&self) -> Vec<usize> {
        let stays = |place: &&usize| !self.leaving.contains_key(*place);
        self.members.iter().filter(stays).copied().collect()
    }

    /// Returns the places without a node.
    #[must_use]
    pub fn vacant(&self) -> Vec<usize> {
        let is_vacant =
            |place: &usize| !self.members.contains(place) && !self.leaving.contains_key(place);
        (0..PLACES).filter(is_vacant).collect()
    }

    /// Returns the places of the processes that can be cut off completely as senders: every other process is in
    /// their flags, and so behind a proxy. The node that joined last is always one of them.
    ///
    /// A process reaches a node that joined later at the node's own address. If the process led an arc with
    /// such nodes, it would continue to lead them while it is cut off from all others.
    #[must_use]
    pub fn separable(&self) -> Vec<usize> {
        let is_separable = |place: &&usize| {
            let others = self.members.iter().filter(|other| other != place);
            self.named
                .get(**place)
                .is_some_and(|named| others.into_iter().all(|it| named.contains(it)))
        };
        self.members.iter().filter(is_separable).copied().collect()
    }

    /// Returns the places of the processes that can lose their disks: they leave, or their flags name a node that
    /// stays in the ring, so that they find the store again without the addresses on their disks.
    #[must_use]
    pub fn replaceable(&self) -> Vec<usize> {
        let staying = self.staying();
        let is_replaceable = |place: &&usize| {
            let finds = |named: &BTreeSet<usize>| {
                staying.iter().any(|other| other != *place && named.contains(other))
            };
            self.leaving.contains_key(*place) || self.named.get(**place).is_some_and(finds)
        };
        self.members.iter().filter(is_replaceable).copied().collect()
    }

    /// Starts a process at a vacant place, whose node joins the ring. Its flags name all nodes of the ring.
    ///
    /// # Errors
    /// The process cannot be started.
    pub fn join(&mut self, place: usize) -> Result<(), HarnessError> {
        self.set_flags(place, &self.members.clone(), &["--join".to_owned()]);
        self.members.insert(place);
        self.spawn_missing()
    }

    /// Requests that a node leaves the ring. Its arcs move afterwards.
    ///
    /// # Errors
    /// The store does not accept the request in time, or refuses it.
    pub async fn leave(&mut self, place: usize) -> Result<(), HarnessError> {
        let begun = std::time::Instant::now();
        let body = format!("{{\"node\":{}}}", place + 1);
        let mut last = None;
        while begun.elapsed() < HEAL_MAX {
            let addresses: Vec<SocketAddr> = self.known().iter().flatten().copied().collect();
            for address in addresses {
                let Some(status) = admin(address, "GET", "/_weir/status", "").await else {
                    continue;
                };
                let Some((_, version)) = ring(&status).filter(|(nodes, _)| has(nodes, place))
                else {
                    continue;
                };
                // An unanswered request may have been executed, so the node counts as leaving from now on.
                self.leaving.entry(place).or_insert(version);
                let answer = admin(address, "POST", "/_weir/ring/leave", &body).await;
                if answer.as_ref().is_some_and(|answer| answer.get("version").is_some()) {
                    return Ok(());
                }
                last = answer.or(last);
            }
            tokio::time::sleep(LOOK).await;
        }
        Err(format!("node {} cannot leave the ring: {last:?}", place + 1).into())
    }

    /// Ends the processes whose nodes have left the ring, and removes their directories.
    ///
    /// # Errors
    /// A directory cannot be removed.
    pub async fn release_left(&mut self) -> Result<(), HarnessError> {
        if self.leaving.is_empty() {
            return Ok(());
        }
        let mut rings = Vec::new();
        for place in self.members() {
            rings.extend(self.status(place).await.as_ref().and_then(ring));
        }
        for (place, since) in self.leaving.clone() {
            // A process that does not know yet that the node has joined does not have the node either.
            if rings.iter().any(|(nodes, version)| *version > since && !has(nodes, place)) {
                self.kill(&[place]);
                self.wipe(place)?;
                self.members.remove(&place);
                self.leaving.remove(&place);
            }
        }
        Ok(())
    }

    /// Removes the data directory of a process that was killed. The process of a node that leaves is not
    /// started again.
    ///
    /// # Errors
    /// The directory cannot be removed.
    pub fn wipe(&mut self, place: usize) -> Result<(), HarnessError> {
        let Some(launch) = self.launches.get(place) else { return Ok(()) };
        match std::fs::remove_dir_all(&launch.data) {
            // A process that ran only for a short time has not created its directory yet.
            Err(error) if error.kind() != ErrorKind::NotFound => {
                return Err(format!("{}: {error}", launch.data.display()).into());
            }
            _ => {}
        }
        if self.leaving.contains_key(&place) {
            self.members.remove(&place);
        }
        Ok(())
    }
}

/// Returns whether the ring has the node of a place.
fn has(nodes: &BTreeSet<u64>, place: usize) -> bool {
    u64::try_from(place + 1).is_ok_and(|node| nodes.contains(&node))
}
