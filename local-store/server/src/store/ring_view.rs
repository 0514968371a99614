//! A view of the states of all arcs.
//!
//! A key or a range is looked up in its arc. The view of an arc is taken at the first access, so a request
//! for one arc takes only one view. The view of each arc is a snapshot, but the snapshots of different arcs
//! may be from different points in time. `transactions` reads several arcs at one point in time.

use std::sync::{Arc, OnceLock};

use partition::{
    ArcRange, Catalogue, Location, ReadError, Value, View, Visit, cut, locate, sum_values,
};

use super::Store;
use node::remote::RemoteView;
use node::ring::ArcId;

/// The view of one arc.
type ArcState = Box<dyn View + Send + Sync>;

/// A view of all arcs of a ring.
pub struct RingView {
    catalogue: Arc<Catalogue>,
    /// The store whose replicas the views are of; `None` if all views were given.
    store: Option<Store>,
    /// The view of each arc, in the order of the arcs.
    arcs: Vec<OnceLock<ArcState>>,
}

impl RingView {
    /// Creates a view over the arcs of a store.
    pub(super) fn new(store: &Store) -> Self {
        let arcs = store.arcs().map(|_| OnceLock::new()).collect();
        Self { catalogue: store.catalogue(), store: Some(store.clone()), arcs }
    }

    /// Creates a view over existing states, one for each arc in their order.
    #[must_use]
    pub fn of_states(catalogue: Arc<Catalogue>, states: Vec<Box<dyn View + Send + Sync>>) -> Self {
        Self { catalogue, store: None, arcs: states.into_iter().map(OnceLock::from).collect() }
    }

    fn is_missing(&self) -> bool {
        self.store.as_ref().is_some_and(Store::is_missing)
    }

    fn arc(&self, arc: ArcId) -> Result<&ArcState, ReadError> {
        let place = usize::try_from(arc.0).unwrap_or(usize::MAX);
        let missing = || ReadError(format!("there is no {arc}"));
        let state = self.arcs.get(place).ok_or_else(missing)?;
        match (state.get(), &self.store) {
            (Some(state), _) => Ok(state),
            (None, Some(store)) => Ok(state.get_or_init(|| store.arc_view(arc))),
            (None, None) => Err(missing()),
        }
    }
}

/// The view of a handle on an arc that only other processes have.
pub(super) struct SharedView(pub(super) Arc<RemoteView>);

impl View for SharedView {
    fn get(&self, key: &[u8]) -> Result<Option<Value>, ReadError> {
        self.0.get(key)
    }

    fn fetch(&self, keys: &mut dyn Iterator<Item = &[u8]>) {
        self.0.fetch(keys);
    }

    fn scan(
        &self,
        from: &[u8],
        to: &[u8],
        reverse: bool,
        visit: &mut Visit<'_>,
    ) -> Result<(), ReadError> {
        self.0.scan(from, to, reverse, visit)
    }
}

/// The view of an arc that cannot be read without messages, by a handle that cannot send them.
pub(super) struct NoView(pub(super) ArcId);

impl NoView {
    fn error<T>(&self) -> Result<T, ReadError> {
        Err(ReadError(format!("{} is on other nodes", self.0)))
    }
}

impl View for NoView {
    fn get(&self, _: &[u8]) -> Result<Option<Value>, ReadError> {
        self.error()
    }

    fn scan(&self, _: &[u8], _: &[u8], _: bool, _: &mut Visit<'_>) -> Result<(), ReadError> {
        self.error()
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
            // If a part of this arc must be fetched first, the pairs of the next arc would not follow.
            if stopped || self.is_missing() {
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
