//! The ring of a state machine. Only the first arc changes it.

use std::sync::Arc;

use crate::command::reply::Reply;
use crate::keys::ring as ring_key;
use crate::machine::Machine;
use crate::mutation::{self, Mutation};
use crate::ring::Ring;
use crate::ring::change::RingChange;
use crate::ring::refusal::RingRefusal;
use crate::storage::ReadError;
use crate::storage::overlay::Overlay;
use crate::table::placement::{ArcId, ArcPosition};

impl Machine {
    /// Returns the ring as of the last applied entry. It is the default ring, which has no nodes,
    /// before the ring is founded, and in all arcs but the first.
    #[must_use]
    pub fn ring(&self) -> &Arc<Ring> {
        &self.ring
    }

    /// Changes the ring and returns the reply. A refusal changes nothing.
    pub(super) fn change_ring(
        &mut self,
        overlay: &mut Overlay<'_>,
        change: &RingChange,
    ) -> Result<Reply, ReadError> {
        let changed = match change_in(self.arc_position, &self.ring, change) {
            Ok(changed) => changed,
            Err(refusal) => return Ok(Reply::Invalid(refusal.to_string())),
        };
        if changed != *self.ring {
            let is_first = matches!(change, RingChange::Found { .. });
            if is_first || !mutation::is_active(Mutation::ForgetRing) {
                ring_key::write(overlay, &changed)?;
            }
            self.ring = Arc::new(changed.clone());
        }
        Ok(Reply::Ring(Box::new(changed)))
    }
}

/// Returns the ring after a change in an arc.
fn change_in(position: ArcPosition, ring: &Ring, change: &RingChange) -> Result<Ring, RingRefusal> {
    if position.arc != ArcId::FIRST {
        return Err(RingRefusal::OtherArc);
    }
    match change {
        RingChange::Found { arcs, .. } if *arcs != position.arcs => {
            Err(RingRefusal::OtherArcs { asked: *arcs, found: position.arcs })
        }
        change => ring.change(change),
    }
}
