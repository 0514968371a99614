//! The interface of a running node to the world.

use std::sync::Arc;

use futures::future::BoxFuture;
use model::{EpochMillis, Item};
use node::ring::ArcId;
use node::status::Status;
use partition::{Catalogue, Command, Reply, Ring, View};
use server::store::Store;

use crate::error::HarnessError;
use crate::request::Failure;

/// The state of a node, for reads.
pub struct Snapshot {
    /// The tables.
    pub catalogue: Arc<Catalogue>,
    /// A view of the storage.
    pub view: Box<dyn View + Send + Sync>,
    /// The store that fetches from other nodes what the view is missing; `None` if the view has every arc.
    pub store: Option<Store>,
}

impl Snapshot {
    /// Reads from the view. Reads again while other nodes have what the read needs.
    ///
    /// # Errors
    /// The read fails, or no other node answers in time.
    pub async fn read<T>(&self, read: impl Fn(&Self) -> Result<T, Failure>) -> Result<T, Failure> {
        loop {
            let found = read(self);
            match &self.store {
                Some(store) if store.fetch_missing().await.map_err(Failure::from)? => {}
                _ => return found,
            }
        }
    }
}

/// A running node. After [`Replica::crash`], the node no longer answers requests.
pub trait Replica: Send + Sync {
    /// Applies commands, and returns one reply for each command.
    fn submit(&self, commands: Vec<Command>) -> BoxFuture<'static, Result<Vec<Reply>, Failure>>;

    /// Returns a state. If `strong` is true, it contains every write that was acknowledged before the call.
    fn read(&self, strong: bool) -> BoxFuture<'static, Result<Snapshot, Failure>>;

    /// Returns the state of an arc, or `None` if the node has no such arc.
    fn view(&self, arc: ArcId) -> Option<Box<dyn View + Send + Sync>>;

    /// Returns items by key, in one snapshot of all transactions.
    fn get_together(
        &self,
        keys: Vec<String>,
    ) -> BoxFuture<'static, Result<Vec<Option<Item>>, Failure>>;

    /// Creates the group of an arc. All members are new nodes.
    fn begin(&self, arc: ArcId, members: Vec<u64>) -> BoxFuture<'static, Result<(), HarnessError>>;

    /// Returns the ring as far as the node knows it; `None` if it knows none.
    fn ring(&self) -> Option<Arc<Ring>> {
        None
    }

    /// Returns the node's own background work; `None` if [`super::ticks`] must run it.
    fn ticks(&self) -> Option<BoxFuture<'static, ()>>;

    /// Returns the time of the node's clock.
    fn now(&self) -> EpochMillis;

    /// Returns whether the node believes that it leads an arc, in which case it does the arc's
    /// background work.
    fn leads(&self, arc: ArcId) -> bool;

    /// Returns the last log index that the state of an arc contains, or `None` if the node has no such arc.
    fn applied(&self, arc: ArcId) -> Option<u64>;

    /// Returns a readable description of the replica of each arc.
    fn describe(&self) -> String;

    /// Returns the status of the replica of each arc.
    fn statuses(&self) -> Vec<Status> {
        Vec::new()
    }

    /// Returns the damage that a read has found in the node's state.
    fn damage(&self) -> Option<String> {
        None
    }

    /// Reads the entire state, so that damage is found even if no other read finds it.
    fn verify(&self) {}

    /// Returns whether the node coordinates a transaction over several arcs.
    fn coordinates(&self) -> bool;

    /// Ends the node immediately, like a crash. None of its code runs afterwards.
    fn crash(&self);
}
