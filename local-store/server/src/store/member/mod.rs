//! The start of a node whose peers are separate processes.
//!
//! - A node with data starts from its data.
//! - If the node has no data, but a peer has, the leader gives the node a new identity and sends it the
//!   data.
//! - If no node has data and all nodes are reachable, the node in the lowest slot creates the cluster and
//!   invites the others. Therefore only one node can create a cluster, and only if no cluster exists.
//!
//! A new node joins a running cluster only on request. The ring, which the first arc stores, has the slots and the
//! addresses of all nodes from then on.

mod addresses;
mod admission;
mod founding;
mod membership;
mod peer_service;
mod progress;
mod restart;
mod stale_copy;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use futures::future::join_all;
use partition::{RingChange, Slot};
use tokio::net::TcpListener;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;

use self::founding::{begin_when_all_have_joined, found_ring};
pub(super) use self::membership::Membership;
use self::peer_service::{PeerService, PendingInvitation};
use self::progress::{WaitReport, waiting_for};
use super::cluster;
use super::directory::{self, HOLDS_NOTHING, Host, Identity, NodeFiles, Problem};
use crate::fatal::{Fatal, fatal};
use crate::peer::{
    self, Answer, ClusterSecret, Invitation, Local, PeerIdentity, PeerTransport, Peers, Question,
    Unanswered, Who,
};
use crate::token_key::TokenKey;
use node::clock::Clock;
use node::ring::{REPLICAS, holders};
use node::status::{Role, Status};
use node::transfer::Transfers;
use node::{
    Node, NodeId, NodeParts, OnFatal, Replicas, Settings, incarnation_of, node_id, random_seed,
    slot_of,
};

/// The interval at which a node that is waiting to start sends messages to its peers.
const ROUND: Duration = Duration::from_millis(100);
/// The time-out of the request for a peer's identity or status.
const QUESTION: Duration = Duration::from_millis(300);
/// The time-out for a peer to become a node, or for the leader to assign an identity. It is long
/// enough for some slow syncs.
const JOINING: Duration = Duration::from_secs(10);
/// The interval between two log lines of a node that is waiting to start.
const PROGRESS: Duration = Duration::from_secs(2);
/// The maximum time for which the start of a node with data waits for a leader. After this time, the
/// node serves requests even if there is no leader.
const LEADER_WAIT: Duration = Duration::from_secs(10);
/// The time after which the start fails because a peer is misconfigured. In this time, either process
/// can be restarted with a corrected configuration.
const REFUSAL_WAIT: Duration = Duration::from_secs(1);

/// The node that a process runs.
#[derive(Debug)]
pub struct Member {
    /// The slot of the node.
    pub slot: u64,
    /// The address at which each node listens for its peers, by slot. It includes this node.
    pub addresses: BTreeMap<u64, SocketAddr>,
    /// Whether the node joins a running cluster, if it has no data.
    pub joins: bool,
    /// The secret of the cluster, if it has one.
    pub secret: Option<ClusterSecret>,
    /// The bandwidth for states that this process sends to other nodes, in bytes per second.
    pub transfer_bytes_per_second: u64,
    /// The port for peers.
    pub listener: TcpListener,
}

/// The parameters of a node's start.
pub(super) struct Start<'a> {
    pub(super) data: &'a Path,
    pub(super) member: Member,
    /// The settings that must be equal on every node.
    pub(super) settings: String,
    /// The number of arcs of the ring, for a new cluster.
    pub(super) arcs: u32,
    pub(super) clock: &'a Arc<Clock>,
    pub(super) host: &'a Host,
    /// Called when the node's disk is damaged and its peers can continue without the node.
    pub(super) restart: OnFatal,
}

/// Determines the identity of the node, starts the node, and waits for leaders. After an error, the node
/// does not run.
pub(super) async fn start(
    start: Start<'_>,
) -> Result<(Arc<Replicas>, TokenKey, Membership), Problem> {
    let Start { data, member, settings, arcs, clock, host, restart } = start;
    let files = open_files(data, member.slot, host).await?;
    let has_data = files.as_ref().is_some_and(|files| !files.log.is_fresh());
    let identity = files.as_ref().map(|files| identity_of(&files.identity));
    let local = Arc::new(Local {
        slot: member.slot,
        slots: member.addresses.keys().copied().collect(),
        joins: member.joins && !has_data,
        ring: watch::Sender::new(None),
        settings,
        secret: member.secret,
        sent_bytes: Arc::default(),
        identity: watch::Sender::new(identity.filter(|_| has_data)),
    });
    // The flags may name only some of the nodes, and win if they name another address.
    let mut addresses = addresses::read(data);
    addresses.extend(&member.addresses);
    let peers = Arc::new(Peers::connect(&local, &addresses));
    let (peer_service, invited) = PeerService::new(
        Arc::clone(&local),
        data,
        Arc::clone(clock),
        Arc::downgrade(&peers),
        has_data,
    );
    let mut tasks = JoinSet::new();
    let address = member.addresses.get(&member.slot).copied();
    tasks.spawn(peer::serve(member.listener, Arc::clone(&local), peer_service.clone()));
    let begin = StartingMember {
        data: data.to_owned(),
        flags: &member.addresses,
        transfers: Arc::new(Transfers::new(member.transfer_bytes_per_second)),
        local,
        peers,
        peer_service,
        arcs,
        clock,
        host,
    };
    let replicas = match (files, address.filter(|_| begin.local.joins)) {
        (Some(files), _) if has_data => begin.start_member(files).await?,
        (files, Some(address)) => begin.join_ring(files, address).await?,
        (files, None) => begin.join(files, invited).await?,
    };
    let own = Arc::downgrade(&replicas);
    let nodes = member.addresses.iter().filter_map(|(slot, address)| {
        Some((Slot::new(u8::try_from(*slot).ok()?)?, Some(address.to_string())))
    });
    let arcs = begin.peer_service.arcs();
    tasks.spawn(found_ring(Weak::clone(&own), RingChange::Found { nodes: nodes.collect(), arcs }));
    let peers = Arc::downgrade(&begin.peers);
    tasks.spawn(restart::run(Weak::clone(&own), peers, data.into(), restart));
    let ready = begin.wait_for_leaders(&replicas).await.and_then(|()| TokenKey::of_member(data));
    let token_key = stop_on_error(&replicas, ready).await?;
    let peers = begin.peers;
    let (data, flags) = (data.to_owned(), member.addresses);
    Ok((replicas, token_key, Membership { peers, data, flags, own, arcs, _tasks: tasks }))
}

/// Returns `result`. If it is an error, first stops the replicas, which would continue to vote and to lead.
async fn stop_on_error<T>(replicas: &Replicas, result: Result<T, Fatal>) -> Result<T, Fatal> {
    if result.is_err() {
        replicas.shutdown().await;
    }
    result
}

/// Returns the reason why a node with set-aside directories cannot create a cluster.
fn set_aside_before(aside: &[String]) -> String {
    format!(
        "the data of this node was damaged and set aside ({}): the node waits for a rebuild from its peers and creates no new cluster; to start with an empty store, move the set-aside directories elsewhere",
        aside.join(", ")
    )
}

fn identity_of(identity: &Identity) -> PeerIdentity {
    PeerIdentity { cluster: identity.cluster.clone(), node: identity.node }
}

/// Opens the node's directory; `None` if it has no data. A damaged directory is set aside.
async fn open_files(data: &Path, slot: u64, host: &Host) -> Result<Option<NodeFiles>, Problem> {
    let Some(files) = cluster::open_slot(data, slot, host).await? else {
        return match directory::find_node_beside(data, slot) {
            None => Ok(None),
            Some(other) => Err(Problem::Fatal(fatal!(
                "`{}` has the data of another node, `{other}`, but this is node {slot}: give each node its \
                 own --data",
                data.display()
            ))),
        };
    };
    if files.log.is_fresh() && !files.has_empty_states()? {
        // Without its log, the node has lost its votes, so it must not vote with this identity again.
        drop(files);
        cluster::set_aside(data, slot, "the node's log is missing")?;
        return Ok(None);
    }
    Ok(Some(files))
}

/// The state of a process whose node has not started yet.
struct StartingMember<'a> {
    data: PathBuf,
    /// The addresses in the flags of this process.
    flags: &'a BTreeMap<u64, SocketAddr>,
    transfers: Arc<Transfers>,
    local: Arc<Local>,
    peers: Arc<Peers>,
    peer_service: Arc<PeerService>,
    arcs: u32,
    clock: &'a Arc<Clock>,
    host: &'a Host,
}

/// For each slot, the answer of the peer about its identity, or the reason why it did not answer.
type IdentityAnswers = BTreeMap<u64, Result<Who, Unanswered>>;

impl StartingMember<'_> {
    async fn start_node(&self, files: NodeFiles) -> Result<Arc<Replicas>, Fatal> {
        let identity = identity_of(&files.identity);
        let NodeFiles { identity: Identity { node, arcs, ref founders, .. }, .. } = files;
        let transfers = Arc::clone(&self.transfers);
        let settings = Settings { has_neighbours: false, arcs, transfers, ..Settings::default() };
        let first = files.identity.first_arcs();
        let parts = NodeParts {
            id: node,
            log: files.log,
            states: files.states,
            worker: files.worker,
            transport: Arc::new(PeerTransport(Arc::clone(&self.peers))),
            clock: Arc::clone(self.clock),
            settings,
            seed: random_seed() ^ node,
            damage: files.damage,
            on_fatal: Arc::clone(&self.host.on_fatal),
        };
        let replicas = Replicas::start(parts, &first).await.map_err(Fatal::new)?;
        self.peer_service.attend(&replicas, arcs, founders);
        self.local.identity.send_if_modified(|known| {
            let is_new = known.as_ref() != Some(&identity);
            *known = Some(identity);
            is_new
        });
        Ok(replicas)
    }

    /// Starts a node that was a member when the cluster was created.
    async fn start_member(&self, files: NodeFiles) -> Result<Arc<Replicas>, Fatal> {
        TokenKey::of_member(&self.data)?;
        stale_copy::refuse_older_copy(&self.peers, self.local.slot, &files).await?;
        self.start_founder(files).await
    }

    /// Starts a node that may have to begin some groups of a new cluster.
    async fn start_founder(&self, files: NodeFiles) -> Result<Arc<Replicas>, Fatal> {
        let founders = files.identity.founders.clone();
        let replicas = self.start_node(files).await?;
        let begun = self.begin_groups(&replicas, &founders).await;
        stop_on_error(&replicas, begun).await?;
        Ok(replicas)
    }

    /// Creates the missing groups of the arcs that this node must begin. The process may have died before it
    /// created all groups.
    ///
    /// The node that created the cluster begins its own arcs, when all nodes have joined. The groups of the other
    /// arcs begin when the first arc has a leader, because all nodes have joined then.
    async fn begin_groups(&self, replicas: &Arc<Replicas>, founders: &[u64]) -> Result<(), Fatal> {
        let slots: Vec<u64> = match founders {
            [] => self.local.slots.iter().copied().collect(),
            founders => founders.to_vec(),
        };
        let (own, maker) = (self.local.slot, slots.first().copied());
        for replica in replicas.running().iter().filter(|node| incarnation_of(node.id()) == 0) {
            let holders = holders(replica.arc(), &slots);
            let is_of_maker = maker.is_some_and(|maker| holders.contains(&maker));
            let members: BTreeSet<NodeId> = holders.iter().map(|slot| node_id(*slot, 0)).collect();
            if is_of_maker && maker == Some(own) {
                replica.initialize(members).await.map_err(Fatal::new)?;
            } else if !is_of_maker && holders.first() == Some(&own) {
                let (node, peers) = (replica.downgrade(), Arc::downgrade(&self.peers));
                let own = Arc::downgrade(replicas);
                tokio::spawn(begin_when_all_have_joined(node, own, peers, members));
            }
        }
        Ok(())
    }

    /// Joins an existing cluster, or creates a new one.
    async fn join(
        &self,
        mut files: Option<NodeFiles>,
        mut invited: mpsc::Receiver<PendingInvitation>,
    ) -> Result<Arc<Replicas>, Problem> {
        let mut progress = WaitReport::new();
        let mut refused_since = None;
        loop {
            let aside = directory::list_damaged(&self.data, self.local.slot);
            if let Ok((invitation, answer)) = invited.try_recv() {
                // A node that had data belongs to an existing cluster, so it must not join a new
                // cluster.
                if !aside.is_empty() && incarnation_of(invitation.identity.node) == 0 {
                    let _ = answer.send(Answer::Refused(set_aside_before(&aside)));
                    continue;
                }
                let files = self.adopt_identity(&invitation, files)?;
                let replicas = self.start_founder(files).await?;
                // If the answer is lost, the peer retries the invitation.
                let _ = answer.send(Answer::Joined);
                return Ok(replicas);
            }
            let answers = self.identify_all().await;
            if let Some(reason) = self.peers.refusals().first() {
                let since = *refused_since.get_or_insert_with(Instant::now);
                if since.elapsed() > REFUSAL_WAIT {
                    return Err(Problem::Fatal(Fatal::new(reason)));
                }
            }
            let somebody_has_data = answers.values().flatten().any(|who| who.has_data);
            let all_are_there = answers.values().all(Result::is_ok);
            let is_first = self.local.slots.first() == Some(&self.local.slot);
            if somebody_has_data {
                if let Some(opened) = &files
                    && self.has_died_early(&answers, &opened.identity).await
                    && let Some(opened) = files.take()
                {
                    tracing::info!("completing the interrupted creation of the cluster");
                    return Ok(self.start_member(opened).await?);
                }
                match self.ask_for_invitation(&Question::Rejoin { slot: self.local.slot }).await {
                    Ok(invitation) => {
                        if files.take().is_some() {
                            cluster::set_aside(&self.data, self.local.slot, HOLDS_NOTHING)?;
                        }
                        tracing::info!("rebuilding this node from its peers");
                        let files = self.adopt_identity(&invitation, None)?;
                        return Ok(self.start_node(files).await?);
                    }
                    Err(error) => progress.log(&error.to_string()),
                }
            } else if !aside.is_empty() {
                progress.log(&set_aside_before(&aside));
            } else if is_first && all_are_there {
                let opened = match files.take() {
                    Some(files) => files,
                    None => self.create_cluster()?,
                };
                if self.invite(&answers, &opened.identity, &mut progress).await? {
                    let replicas = self.start_member(opened).await?;
                    tracing::info!("created a new cluster of the nodes {:?}", self.local.slots);
                    return Ok(replicas);
                }
                files = Some(opened);
            } else {
                progress.log(&waiting_for(&answers, is_first));
            }
            tokio::time::sleep(ROUND).await;
        }
    }

    /// Returns whether the processes died while the cluster was created. Called for a node that has an
    /// identity but no data.
    ///
    /// The result is true if all nodes are reachable, and no node of the cluster has a log entry after
    /// the entry with the members. Then no leader has written anything, and a lost vote of this node
    /// does no harm. The node must start with its identity: without its vote, the other nodes may have
    /// no majority to elect the leader that assigns new identities.
    async fn has_died_early(&self, answers: &IdentityAnswers, own: &Identity) -> bool {
        if incarnation_of(own.node) > 0 {
            return false;
        }
        for (slot, who) in answers {
            let Ok(who) = who else { return false };
            let expected = PeerIdentity { cluster: own.cluster.clone(), node: node_id(*slot, 0) };
            if who.has_data
                && (who.identity.as_ref() != Some(&expected)
                    || !self.knows_members_alone(*slot, own).await)
            {
                return false;
            }
        }
        true
    }

    /// Returns whether the peer in a slot is running, leads no arc, and has only the entry with the
    /// members, whose index is 0.
    async fn knows_members_alone(&self, slot: u64, own: &Identity) -> bool {
        let peer = Identity { node: node_id(slot, 0), ..own.clone() };
        let answer = self.peers.ask(slot, &Question::Status, QUESTION).await;
        let Ok(Answer::Status(replicas, _)) = answer else { return false };
        let knows_more = |status: &Status| status.role == Role::Leader || status.last_log > Some(0);
        replicas.len() == peer.first_arcs().len() && !replicas.iter().any(knows_more)
    }

    async fn identify_all(&self) -> IdentityAnswers {
        let ask = async |slot| {
            let who = match self.peers.ask(slot, &Question::Who, QUESTION).await {
                Ok(Answer::Who(who)) => Ok(who),
                other => Err(Unanswered::of(other)),
            };
            (slot, who)
        };
        join_all(self.peers.slots().map(ask)).await.into_iter().collect()
    }

    /// Creates a cluster whose first node is the node of this process.
    fn create_cluster(&self) -> Result<NodeFiles, Problem> {
        TokenKey::open(&self.data)?;
        let node = node_id(self.local.slot, 0);
        // With more nodes than replicas, each node has only some of the arcs.
        let has_some = self.local.slots.len() > REPLICAS;
        let founders = self.local.slots.iter().copied().filter(|_| has_some).collect();
        let identity = Identity::of_founders(new_cluster()?, node, self.arcs, founders);
        cluster::create_slot(&self.data, self.local.slot, identity, self.host)
    }

    /// Invites the peers that are not yet nodes of the new cluster. Returns true if all have joined.
    async fn invite(
        &self,
        answers: &IdentityAnswers,
        own: &Identity,
        progress: &mut WaitReport,
    ) -> Result<bool, Fatal> {
        let token_key = TokenKey::open(&self.data)?.as_bytes().to_vec();
        let mut all = true;
        for (slot, who) in answers {
            let identity = PeerIdentity { cluster: own.cluster.clone(), node: node_id(*slot, 0) };
            match who.as_ref().ok().and_then(|who| who.identity.as_ref()) {
                Some(known) if *known == identity => continue,
                Some(known) => {
                    return Err(fatal!(
                        "node {slot} was invited to cluster {}, which was never created: stop node {slot} and remove its `node-{slot}` directory, which has no data",
                        known.cluster
                    ));
                }
                None => {}
            }
            all = false;
            let (arcs, founders) = (own.arcs, own.founders.clone());
            let token_key = token_key.clone();
            // The flags of all founders have the same addresses.
            let addresses = BTreeMap::new();
            let invitation = Invitation { identity, arcs, founders, token_key, addresses };
            let asked = self.peers.ask(*slot, &Question::Join(invitation), JOINING).await;
            // A peer that joins adopts an identity, which closes the connection, so the peer's
            // answer may be lost. The next round checks whether the peer has joined.
            if let Ok(Answer::Refused(reason)) = asked {
                progress.log(&format!("node {slot} does not join: {reason}"));
            }
        }
        Ok(all)
    }

    /// Waits until each arc has a leader, up to [`LEADER_WAIT`].
    async fn wait_for_leaders(&self, replicas: &Replicas) -> Result<(), Fatal> {
        let (id, replicas) = (replicas.id(), replicas.running());
        let mut progress = WaitReport::new();
        let begun = Instant::now();
        let mut refused_since = None;
        let read = || join_all(replicas.iter().map(Node::read_index));
        // A node without replicas can serve requests as soon as a peer accepts it.
        let is_alone = || {
            let count = self.peers.slots().count();
            replicas.is_empty() && self.peers.refusals().len() == count
        };
        while tokio::time::timeout(ROUND, read()).await.is_err() || is_alone() {
            // If only one of the two peers refuses this node, the peer may be misconfigured. If both
            // refuse, this node is misconfigured.
            let refusals = self.peers.refusals();
            let waited = begun.elapsed() > LEADER_WAIT;
            if let Some(reason) = refusals.first()
                && (waited || refusals.len() == self.peers.slots().count())
            {
                let since = *refused_since.get_or_insert_with(Instant::now);
                if waited || since.elapsed() > REFUSAL_WAIT {
                    return Err(Fatal::new(reason));
                }
            }
            let answers = self.identify_all().await;
            if let Some(other) = self.find_successor(id).await {
                return Err(fatal!(
                    "this directory belongs to incarnation {} of node {}, but incarnation {} has replaced it: move `node-{}` away so that the node is rebuilt",
                    incarnation_of(id),
                    self.local.slot,
                    incarnation_of(other),
                    self.local.slot
                ));
            }
            if waited {
                tracing::warn!(
                    "there is no leader: requests are refused until a majority is reachable"
                );
                break;
            }
            progress.log(&waiting_for(&answers, true));
        }
        Ok(())
    }

    /// Returns the identity that has replaced the identity of this node, according to the leader of
    /// an arc.
    async fn find_successor(&self, own: NodeId) -> Option<NodeId> {
        for slot in self.peers.slots() {
            let answer = self.peers.ask(slot, &Question::Status, QUESTION).await;
            let Ok(Answer::Status(replicas, _)) = answer else { continue };
            for status in replicas.iter().filter(|status| status.role == Role::Leader) {
                let members: BTreeSet<NodeId> =
                    status.voters.iter().chain(&status.learners).copied().collect();
                // Only later identities count. An arc that has not admitted this node yet has its
                // previous identity.
                let is_later = |member: &NodeId| {
                    slot_of(*member) == slot_of(own)
                        && incarnation_of(*member) > incarnation_of(own)
                };
                if !members.contains(&own)
                    && let Some(later) = members.into_iter().find(is_later)
                {
                    return Some(later);
                }
            }
        }
        None
    }
}

/// Returns a random name for a new cluster.
fn new_cluster() -> Result<String, Fatal> {
    let mut bytes = [0; 8];
    getrandom::fill(&mut bytes).map_err(Fatal::new)?;
    Ok(format!("{:016x}", u64::from_be_bytes(bytes)))
}
