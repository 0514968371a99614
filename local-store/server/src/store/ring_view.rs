//! A view of the states of all arcs.
//!
//! A key or a range is looked up in its arc. The view of an arc is taken at the first access, so a request
//! for one arc takes only one view. The view of each arc is a snapshot, but the snapshots of different arcs
//! may be from different points in time. `transactions` reads several arcs at one point in time.

use std::sync::{Arc, OnceLock};

use partition::{
    ArcRange, Catalogue, Location, ReadError, Value, View, Visit, cut, locate, sum_values,
};

use node::Node;
use node::ring::ArcId;

/// The view of one arc.
type ArcState = Box<dyn View + Send + Sync>;

/// A view of all arcs of a ring.
pub struct RingView {
    catalogue: Arc<Catalogue>,
    /// The replica and the view of each arc, in the order of the arcs.
    arcs: Vec<(Option<Node>, OnceLock<ArcState>)>,
}

impl RingView {
    /// Creates a view over `replicas`, one for each arc.
    pub(super) fn new(catalogue: Arc<Catalogue>, replicas: impl Iterator<Item = Node>) -> Self {
        Self { catalogue, arcs: replicas.map(|node| (Some(node), OnceLock::new())).collect() }
    }

    /// Creates a view over existing states, one for each arc in their order.
    #[must_use]
    pub fn of_states(catalogue: Arc<Catalogue>, states: Vec<Box<dyn View + Send + Sync>>) -> Self {
        Self { catalogue, arcs: states.into_iter().map(|state| (None, state.into())).collect() }
    }

    fn arc(&self, arc: ArcId) -> Result<&ArcState, ReadError> {
        let place = usize::try_from(arc.0).unwrap_or(usize::MAX);
        let missing = || ReadError(format!("there is no {arc}"));
        let (node, state) = self.arcs.get(place).ok_or_else(missing)?;
        match (state.get(), node) {
            (Some(state), _) => Ok(state),
            (None, Some(node)) => Ok(state.get_or_init(|| node.view())),
            (None, None) => Err(missing()),
        }
    }
}

impl View for RingView {
    fn get(&self, key: &[u8]) -> Result<Option<Value>, ReadError> {
        match locate(&self.catalogue, key)? {
            Location::In(arc) => self.arc(arc)?.get(key),
            Location::Everywhere => {
                let mut values = Vec::new();
                for arc in (0..).map(ArcId).take(self.arcs.len()) {
                    values.extend(self.arc(arc)?.get(key)?);
                }
                sum_values(&values)
            }
        }
    }

    fn scan(
        &self,
        from: &[u8],
        to: &[u8],
        reverse: bool,
        visit: &mut Visit<'_>,
    ) -> Result<(), ReadError> {
        let mut pieces = cut(&self.catalogue, from, to)?;
        if reverse {
            pieces.reverse();
        }
        for ArcRange { arc, from, to } in pieces {
            let mut stopped = false;
            self.arc(arc)?.scan(&from, &to, reverse, &mut |key, value| {
                let flow = visit(key, value);
                stopped = flow.is_break();
                flow
            })?;
            if stopped {
                break;
            }
        }
        Ok(())
    }
}

/// A cache of the merged catalogues of all arcs, valid until one of these catalogues changes.
#[derive(Default)]
pub(super) struct MergedCatalogue {
    cached: locks::Mutex<Option<Merged>>,
}

struct Merged {
    parts: Vec<Arc<Catalogue>>,
    catalogue: Arc<Catalogue>,
}

impl MergedCatalogue {
    /// Returns the merged catalogue of the catalogues in `parts`.
    pub(super) fn of(&self, parts: Vec<Arc<Catalogue>>) -> Arc<Catalogue> {
        let mut kept = self.cached.lock();
        let same = |merged: &Merged| {
            merged.parts.len() == parts.len()
                && merged.parts.iter().zip(&parts).all(|(one, other)| Arc::ptr_eq(one, other))
        };
        if let Some(merged) = kept.as_ref().filter(|merged| same(merged)) {
            return Arc::clone(&merged.catalogue);
        }
        let whole = Arc::new(Catalogue::merge(&parts));
        *kept = Some(Merged { parts, catalogue: Arc::clone(&whole) });
        whole
    }
}
