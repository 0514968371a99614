//! The connection budget, which all listeners of the process share. Each connection holds one
//! permit.
//!
//! If no permit is free, the connection with the lowest [`Rank`](super::progress::Rank) is closed.
//! Therefore a client that opens connections and sends nothing cannot exclude other clients.

use std::collections::BTreeMap;
use std::pin::pin;
use std::sync::{Arc, MutexGuard, OnceLock};
use std::time::Duration;

use locks::Mutex;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::progress::Progress;
use platform::descriptors::Descriptors;

/// The time to wait for a free permit before another connection is asked to close. An idle
/// connection closes immediately; a connection with an incomplete request may take a second.
const NEXT_AFTER: Duration = Duration::from_millis(100);

/// The permits, and the connections that hold them.
#[derive(Debug)]
pub struct Connections {
    places: Arc<Semaphore>,
    open: Mutex<Open>,
}

#[derive(Debug, Default)]
struct Open {
    next: u64,
    connections: BTreeMap<u64, Arc<Progress>>,
}

/// The permit of one connection. Dropping this value frees the permit.
#[derive(Debug)]
pub struct Place {
    connections: Arc<Connections>,
    number: u64,
    progress: Arc<Progress>,
    _permit: OwnedSemaphorePermit,
}

impl Place {
    /// Returns the progress of the connection's request.
    #[must_use]
    pub fn progress(&self) -> &Arc<Progress> {
        &self.progress
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.connections.open().connections.remove(&self.number);
    }
}

impl Connections {
    /// Returns the budget of this process. The size of the budget depends on the limit of open file
    /// descriptors.
    #[must_use]
    pub fn of_process() -> Arc<Self> {
        static OF_PROCESS: OnceLock<Arc<Connections>> = OnceLock::new();
        let new = || Self::new(Descriptors::of_process().connections_max);
        Arc::clone(OF_PROCESS.get_or_init(new))
    }

    /// Returns a budget of `max` connections.
    #[must_use]
    pub fn new(max: usize) -> Arc<Self> {
        let places = Arc::new(Semaphore::new(max.min(Semaphore::MAX_PERMITS)));
        Arc::new(Self { places, open: Mutex::default() })
    }

    /// Acquires a permit for a connection. While no permit is free, asks connections to close, one
    /// after the other. Returns `None` only if the budget is closed, which never happens.
    pub async fn place(self: &Arc<Self>) -> Option<Place> {
        let mut permit = pin!(Arc::clone(&self.places).acquire_owned());
        let mut patience = Duration::ZERO;
        let permit = loop {
            // The same future is polled again after a timeout, so the caller keeps its position in
            // the queue.
            match tokio::time::timeout(patience, permit.as_mut()).await {
                Ok(permit) => break permit.ok()?,
                Err(_) => self.make_room(),
            }
            patience = NEXT_AFTER;
        };
        let progress = Arc::new(Progress::new());
        let mut open = self.open();
        let number = open.next;
        open.next += 1;
        open.connections.insert(number, Arc::clone(&progress));
        drop(open);
        Some(Place { connections: Arc::clone(self), number, progress, _permit: permit })
    }

    /// Reserves up to `count` permits until the returned value is dropped. The reserved permits
    /// account for connections that have their own limit and therefore acquire no permit.
    #[must_use]
    pub fn set_apart(&self, count: usize) -> Option<OwnedSemaphorePermit> {
        let count = count.min(self.places.available_permits());
        Arc::clone(&self.places).try_acquire_many_owned(u32::try_from(count).ok()?).ok()
    }

    /// Asks the connection with the lowest rank to close, if there is one.
    pub fn make_room(&self) {
        let open = self.open();
        let ranked = open.connections.values().filter_map(|found| Some((found.rank()?, found)));
        if let Some((_, first)) = ranked.min_by_key(|(rank, _)| *rank) {
            first.ask_to_leave();
        }
    }

    fn open(&self) -> MutexGuard<'_, Open> {
        // Ignores a poisoned lock: each change is a single step, so the list is consistent even if a
        // thread panicked while it held the lock.
        self.open.lock()
    }
}
