//! The interface of a running node to the world.

use std::sync::Arc;

use futures::future::BoxFuture;
use model::{EpochMillis, Item};
use node::ring::ArcId;
use node::status::Status;
use partition::{Catalogue, Command, Reply, View};

use crate::request::Failure;

/// A state to read.
pub struct Snapshot {
    /// The tables.
    pub catalogue: Arc<Catalogue>,
    /// A view of the storage.
    pub view: Box<dyn View + Send + Sync>,
}

/// A running node. After [`Replica::crash`] it answers no request.
pub trait Replica: Send + Sync {
    /// Applies commands and returns one reply for each.
    fn submit(&self, commands: Vec<Command>) -> BoxFuture<'static, Result<Vec<Reply>, Failure>>;

    /// Returns a state; if `strong`, one that shows every write acknowledged before the call.
    fn read(&self, strong: bool) -> BoxFuture<'static, Result<Snapshot, Failure>>;

    /// Returns items by key, in one snapshot of all transactions.
    fn get_together(
        &self,
        keys: Vec<String>,
    ) -> BoxFuture<'static, Result<Vec<Option<Item>>, Failure>>;

    /// Begins the group of an arc with these nodes, all of which are new.
    fn begin(&self, arc: ArcId, members: Vec<u64>) -> BoxFuture<'static, Result<(), String>>;

    /// Makes these nodes the members of an arc's group, if this one leads it; see
    /// `node::Node::change_members`.
    fn change_members(
        &self,
        arc: ArcId,
        members: Vec<u64>,
    ) -> BoxFuture<'static, Result<(), String>>;

    /// Returns its own background work; `None` if [`super::ticks`] does it.
    fn ticks(&self) -> Option<BoxFuture<'static, ()>>;

    /// Returns the time of its clock.
    fn now(&self) -> EpochMillis;

    /// Returns whether it believes that it leads an arc, and therefore does its background work.
    fn leads(&self, arc: ArcId) -> bool;

    /// Returns, for each arc, the last log index that its state contains.
    fn applied(&self) -> Vec<u64>;

    /// Describes the replica of each arc, for people.
    fn describe(&self) -> String;

    /// Returns the status of the replica of each arc.
    fn statuses(&self) -> Vec<Status> {
        Vec::new()
    }

    /// Returns whether a read has found damage in its state.
    fn is_damaged(&self) -> bool {
        false
    }

    /// Reads all of its state, to find damage that no read has found.
    fn verify(&self) {}

    /// Returns whether it coordinates a transaction over several arcs.
    fn coordinates(&self) -> bool;

    /// Ends it at once, like a crash: none of its code runs afterwards.
    fn crash(&self);
}
