//! What the world needs of a running node, whatever it is made of.

use std::sync::Arc;

use futures::future::BoxFuture;
use model::{EpochMillis, Item};
use node::ring::ArcId;
use node::status::Status;
use partition::{Catalogue, Command, Reply, View};

use crate::request::Failure;

/// A state to read from.
pub struct Snapshot {
    /// The tables.
    pub catalogue: Arc<Catalogue>,
    /// Everything else.
    pub view: Box<dyn View + Send + Sync>,
}

/// A running node. After [`Replica::crash`] it answers nobody.
pub trait Replica: Send + Sync {
    /// Carries out commands and gives one reply for each.
    fn submit(&self, commands: Vec<Command>) -> BoxFuture<'static, Result<Vec<Reply>, Failure>>;

    /// A state; if `strong`, one that shows every write acknowledged before this was called.
    fn read(&self, strong: bool) -> BoxFuture<'static, Result<Snapshot, Failure>>;

    /// Items by their keys, as they were at one moment in the order of all transactions.
    fn get_together(
        &self,
        keys: Vec<String>,
    ) -> BoxFuture<'static, Result<Vec<Option<Item>>, Failure>>;

    /// Begins the group of an arc of these nodes, all of which are new.
    fn begin(&self, arc: ArcId, members: Vec<u64>) -> BoxFuture<'static, Result<(), String>>;

    /// Makes these nodes the members of an arc's group, if this one leads it; see
    /// `node::Node::change_members`.
    fn change_members(
        &self,
        arc: ArcId,
        members: Vec<u64>,
    ) -> BoxFuture<'static, Result<(), String>>;

    /// The housekeeping of its own code; `None` if [`super::ticks`] does it.
    fn ticks(&self) -> Option<BoxFuture<'static, ()>>;

    /// What its clock shows.
    fn now(&self) -> EpochMillis;

    /// Whether it believes that it leads an arc, so that its housekeeping is its business.
    fn leads(&self, arc: ArcId) -> bool;

    /// Of each arc, the last log index that its state contains.
    fn applied(&self) -> Vec<u64>;

    /// Of each arc, what it says of itself, for people.
    fn describe(&self) -> String;

    /// Of each arc, how it does.
    fn statuses(&self) -> Vec<Status> {
        Vec::new()
    }

    /// Whether a read has found its state damaged.
    fn is_damaged(&self) -> bool {
        false
    }

    /// Reads all of its state, to find damage that nobody has read.
    fn verify(&self) {}

    /// Whether it coordinates a transaction over several arcs.
    fn coordinates(&self) -> bool;

    /// Ends it at once, as a crash does: nothing of it runs afterwards.
    fn crash(&self);
}
