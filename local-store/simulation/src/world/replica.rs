//! What the world needs of a running node, whatever it is made of.

use std::sync::Arc;

use futures::future::BoxFuture;
use model::EpochMillis;
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

    /// Begins a group of these nodes, all of which are new.
    fn begin(&self, members: Vec<u64>) -> BoxFuture<'static, Result<(), String>>;

    /// Makes these nodes the members of the group, if this one leads it; see
    /// `server::node::Node::change_members`.
    fn change_members(&self, members: Vec<u64>) -> BoxFuture<'static, Result<(), String>>;

    /// What its clock shows.
    fn now(&self) -> EpochMillis;

    /// Whether it believes that it leads, so that housekeeping is its business.
    fn leads(&self) -> bool;

    /// The last log index that its state contains.
    fn applied(&self) -> u64;

    /// Ends it at once, as a crash does: nothing of it runs afterwards.
    fn crash(&self);
}
