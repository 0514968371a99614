//! The nodes of this process, and the replicas or groups that a handle on the store reads from.
//!
//! A rebuild replaces a damaged node in the set with a new node. A handle can be pinned, so that its later
//! reads never see an older state than its earlier reads. `ring_view` reads from the arcs.

use std::sync::Arc;

use futures::FutureExt as _;
use partition::mutation::{self, Mutation};
use partition::{ARCS_MAX, ReadError, View};
use tokio::sync::watch;

use super::group::Group;
use super::ring_view::{NoView, SharedView};
use super::{Store, Unavailable};
use node::remote::{RemoteGroup, RemoteView};
use node::ring::ArcId;
use node::{Node, SubmitError};

/// The replicas of each node, in the order of the arcs; the nodes are in the order of their slots. A process
/// with all nodes has every arc on each node.
pub(super) type Nodes = Arc<Vec<Vec<Node>>>;

/// The current nodes of a process, with notifications about replaced nodes. The set is never empty while
/// the store runs.
pub(super) type NodeSet = watch::Sender<Nodes>;

/// Creates a node set with the nodes of a new store.
pub(super) fn node_set(nodes: Vec<Vec<Node>>) -> NodeSet {
    watch::Sender::new(Arc::new(nodes))
}

/// The nodes that a handle is pinned to, and for each arc the position of the node to read from.
#[derive(Clone)]
pub(super) struct Pinned {
    nodes: Nodes,
    places: [u8; ARCS_MAX as usize],
    /// For each arc, what the handle has read from other processes; empty if this process has every arc.
    remote: Vec<Arc<RemoteView>>,
}

/// Returns a node's replica of an arc.
pub(super) fn replica_of(replicas: &[Node], arc: ArcId) -> Option<&Node> {
    let place = replicas.binary_search_by_key(&arc, Node::arc).ok()?;
    replicas.get(place)
}

/// Returns the position of the node to read an arc from. Prefers the leader, if it is known and in this
/// process, then a node with complete data, and last a node with a damaged disk.
fn place(nodes: &[Vec<Node>], arc: ArcId) -> usize {
    if nodes.len() < 2 {
        return 0;
    }
    let find = |is_meant: &dyn Fn(&Node) -> bool| {
        nodes.iter().position(|node| {
            replica_of(node, arc)
                .is_some_and(|replica| replica.damage().reason().is_none() && is_meant(replica))
        })
    };
    let is_filled = |replica: &Node| replica.status().voters.contains(&replica.id());
    find(&Node::leads).or_else(|| find(&is_filled)).unwrap_or(0)
}

fn index_of(arc: ArcId) -> usize {
    usize::try_from(arc.0).unwrap_or(usize::MAX)
}

impl Store {
    /// Returns the nodes of this process, or the nodes that this handle is pinned to.
    pub(super) fn current_nodes(&self) -> Nodes {
        match &self.pinned {
            Some(pinned) => Arc::clone(&pinned.nodes),
            None => Arc::clone(&self.shared.nodes.borrow()),
        }
    }

    /// Returns the replica of an arc that this handle uses: the leader, if it is in this process, and
    /// otherwise another replica of this process. Returns `None` if only other processes have replicas.
    pub(crate) fn replica(&self, arc: ArcId) -> Option<Node> {
        let nodes = self.current_nodes();
        let pinned = self.pinned.as_ref().and_then(|pinned| pinned.places.get(index_of(arc)));
        let place = pinned.map_or_else(|| place(&nodes, arc), |place| usize::from(*place));
        replica_of(nodes.get(place)?, arc).cloned()
    }

    /// Returns the group of an arc.
    pub(crate) fn group(&self, arc: ArcId) -> Group {
        match self.replica(arc) {
            Some(node) => Group::Here(node),
            None => Group::Elsewhere(Arc::clone(self.remote_group(arc))),
        }
    }

    pub(super) fn remote_group(&self, arc: ArcId) -> &Arc<RemoteGroup> {
        #[expect(
            clippy::expect_used,
            reason = "a process with all nodes has a replica of every arc, because the store rebuilds one node \
                      at a time; any other process has a client for every arc"
        )]
        self.shared.remote.get(index_of(arc)).expect("an arc is either here or elsewhere")
    }

    /// Waits until the replica that serves requests has applied every acknowledged write. If another node
    /// becomes the leader during the wait, waits for its replica.
    pub(super) async fn wait_for_leader(&self, arc: ArcId) -> Result<(), SubmitError> {
        // The loop has one iteration more than there are nodes, because the leader changes only a
        // few times at the start.
        for _ in 0..=self.shared.nodes.borrow().len() {
            let Some(replica) = self.replica(arc) else { break };
            replica.read_index().await?;
            if self.replica(arc).is_some_and(|now| now.id() == replica.id()) {
                break;
            }
        }
        Ok(())
    }

    /// Returns a handle that always uses the same replicas. A later read with this handle never sees an older
    /// state than an earlier read, even after a leader change.
    #[must_use]
    pub fn pin(&self) -> Self {
        let nodes = self.current_nodes();
        let mut places = [0; ARCS_MAX as usize];
        for (arc, found) in self.arcs().zip(&mut places) {
            *found = u8::try_from(place(&nodes, arc)).unwrap_or(0);
        }
        let remote = self.shared.remote.iter().map(|_| Arc::default()).collect();
        Self { pinned: Some(Pinned { nodes, places, remote }), ..self.clone() }
    }

    /// Returns a view of an arc. If only other processes have replicas of the arc, the caller must read until
    /// [`Store::fetch_missing`] fetches nothing.
    pub(super) fn arc_view(&self, arc: ArcId) -> Box<dyn View + Send + Sync> {
        let remote = || self.pinned.as_ref()?.remote.get(index_of(arc)).cloned();
        match self.replica(arc) {
            Some(replica) => replica.view(),
            None => match remote() {
                Some(view) => Box::new(SharedView(view)),
                None => Box::new(NoView(arc)),
            },
        }
    }

    /// Returns whether the reads with this handle have asked for something that must be fetched from another
    /// process. Then their results are meaningless.
    pub(crate) fn is_missing(&self) -> bool {
        let remote = self.pinned.as_ref().map(|pinned| &pinned.remote);
        remote.is_some_and(|remote| remote.iter().any(|view| view.is_missing()))
    }

    /// Fetches what the reads with this handle could not find in this process. Returns false if there is
    /// nothing to fetch: the reads are complete. Otherwise, the caller reads again from the start.
    ///
    /// # Errors
    /// No process with a replica answers in time.
    pub async fn fetch_missing(&self) -> Result<bool, Unavailable> {
        let Some(pinned) = &self.pinned else { return Ok(false) };
        if !self.is_missing() || mutation::is_active(Mutation::ReadIncomplete) {
            return Ok(false);
        }
        let views = self.shared.remote.iter().zip(pinned.remote.iter());
        let fetches = views.map(|(group, view)| group.complete(view));
        // The future is boxed, so that the futures of requests that need no other process stay small.
        let fetched = futures::future::try_join_all(fetches).boxed().await?;
        Ok(fetched.contains(&true))
    }

    /// Reads from the latest state that this handle can see. Calls `read` again while other processes have
    /// replicas that it needs.
    ///
    /// # Errors
    /// The storage cannot be read, or no process with a replica answers in time.
    pub(crate) async fn read<T>(
        &self,
        read: impl Fn(&dyn View) -> Result<T, ReadError>,
    ) -> Result<T, Unavailable> {
        self.read_view(|store| store.view(), read).await
    }

    /// Reads from one snapshot of an arc; see [`Store::read`].
    pub(super) async fn read_arc<T>(
        &self,
        arc: ArcId,
        read: impl Fn(&dyn View) -> Result<T, ReadError>,
    ) -> Result<T, Unavailable> {
        self.read_view(|store| store.arc_view(arc), read).await
    }

    async fn read_view<T>(
        &self,
        view: impl Fn(&Self) -> Box<dyn View + Send + Sync>,
        read: impl Fn(&dyn View) -> Result<T, ReadError>,
    ) -> Result<T, Unavailable> {
        let mut store = self.pin();
        if let (Some(own), Some(pinned)) = (&mut store.pinned, &self.pinned) {
            own.places = pinned.places;
        }
        loop {
            let found = read(&*view(&store));
            if !store.fetch_missing().await? {
                return found.map_err(|error| Unavailable::NotDone(error.to_string()));
            }
        }
    }

    /// Returns whether this handle reads from a damaged node although the store has other nodes.
    pub(crate) fn reads_damaged(&self) -> bool {
        let is_damaged =
            |replica: Node| replica.damage().reason().is_some() || replica.damage().is_stopped();
        let mut replicas = self.arcs().filter_map(|arc| self.replica(arc));
        self.current_nodes().len() > 1 && replicas.any(is_damaged)
    }

    /// Returns a handle on the same store that is not pinned to any node.
    pub(crate) fn unpinned(&self) -> Self {
        Self { pinned: None, ..self.clone() }
    }
}
