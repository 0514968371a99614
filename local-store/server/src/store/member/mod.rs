//! One node of a store whose other nodes are processes of their own: how it comes to be one.
//!
//! A node that holds data goes on with it. One that holds nothing asks its peers: if any of them
//! holds data, the leader gives the node a new identity and fills it; if none of them does and all
//! are there, the node in the lowest slot makes the cluster and invites the others. So a cluster is
//! made once, by one node, and only when there is certainly none. Which slots there are, and where,
//! never changes.

mod membership_repair;
mod peer_service;
mod restart;
mod stale_copy;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures::future::join_all;
use tokio::net::TcpListener;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;

use self::peer_service::{Invited, PeerService};
use super::cluster::{self, Replicas};
use super::directory::{self, HOLDS_NOTHING, Host, Identity, NodeFiles};
use crate::peer::{
    self, Answer, ClockState, ClusterSecret, Invitation, Local, PeerIdentity, PeerTransport, Peers,
    Question, Who,
};
use crate::token_key::TokenKey;
use node::clock::Clock;
use node::status::{Role, Status};
use node::{Node, NodeId, OnFatal, incarnation_of, node_id, slot_of};

/// Time between two rounds of questions while a node waits for its peers.
const ROUND: Duration = Duration::from_millis(100);
/// Time for a peer to say who it is, or how it does.
const QUESTION: Duration = Duration::from_millis(300);
/// Time for a peer to become a node, or for the leader to give out an identity: some slow syncs.
const JOINING: Duration = Duration::from_secs(10);
/// Time between two lines about what is waited for.
const PROGRESS: Duration = Duration::from_secs(2);
/// Time that a node that holds data waits for a leader before it takes requests nevertheless.
const LEADER_WAIT: Duration = Duration::from_secs(10);
/// A wrong peer is given this long to be corrected by a restart of either side.
const REFUSAL_WAIT: Duration = Duration::from_secs(1);

/// Which node of which cluster a process runs.
#[derive(Debug)]
pub struct Member {
    /// The slot of the node.
    pub slot: u64,
    /// Where the node of each slot listens for its peers; of its own slot, what others know it by.
    pub addresses: BTreeMap<u64, SocketAddr>,
    /// What all nodes prove to each other that they know.
    pub secret: Option<ClusterSecret>,
    /// The port for peers.
    pub listener: TcpListener,
}

/// The peers of a running node. What it does for them ends when this is dropped.
pub(super) struct Membership {
    peers: Arc<Peers>,
    /// Held for their end: the port for peers, and the healing of nodes.
    _tasks: JoinSet<()>,
}

impl Membership {
    /// How the replicas of each peer do and what it set aside, or why it does not say.
    pub(super) async fn statuses(&self) -> Vec<(u64, Result<(Vec<Status>, Vec<String>), String>)> {
        let ask = async |slot| {
            let answer = match self.peers.ask(slot, &Question::Status, QUESTION).await {
                Ok(Answer::Status(replicas, set_aside)) => Ok((replicas, set_aside)),
                Ok(other) => Err(format!("a strange answer: {other:?}")),
                Err(error) => Err(error.to_string()),
            };
            (slot, answer)
        };
        join_all(self.peers.slots().map(ask)).await
    }

    /// Sets the clocks of all peers. Gives the slots that did not answer.
    pub(super) async fn set_clocks(&self, state: ClockState) -> Vec<u64> {
        let ask = async |slot| {
            let answer = self.peers.ask(slot, &Question::Clock(state), QUESTION).await;
            (!matches!(answer, Ok(Answer::ClockSet))).then_some(slot)
        };
        join_all(self.peers.slots().map(ask)).await.into_iter().flatten().collect()
    }
}

/// What a node is started with.
pub(super) struct Start<'a> {
    pub(super) data: &'a Path,
    pub(super) member: Member,
    /// What has to be the same on every node.
    pub(super) settings: String,
    /// Arcs of the ring, if the cluster is made now.
    pub(super) arcs: u32,
    pub(super) clock: &'a Arc<Clock>,
    pub(super) host: &'a Host,
    /// Called when the node's disk is damaged and its peers can do without it.
    pub(super) restart: OnFatal,
}

/// Starts the node, as soon as it is known who it is, and waits for a leader.
pub(super) async fn start(start: Start<'_>) -> Result<(Replicas, TokenKey, Membership), String> {
    let Start { data, member, settings, arcs, clock, host, restart } = start;
    let files = open_files(data, member.slot, host).await?;
    let has_data = files.as_ref().is_some_and(|files| !files.log.is_fresh());
    let identity = files.as_ref().map(|files| identity_of(&files.identity));
    let local = Arc::new(Local {
        slot: member.slot,
        slots: member.addresses.keys().copied().collect(),
        settings,
        secret: member.secret,
        identity: watch::Sender::new(identity.filter(|_| has_data)),
    });
    let peers = Arc::new(Peers::connect(&local, &member.addresses));
    let (peer_service, invited) = PeerService::new(
        Arc::clone(&local),
        data,
        Arc::clone(clock),
        Arc::downgrade(&peers),
        has_data,
    );
    let mut tasks = JoinSet::new();
    tasks.spawn(peer::serve(member.listener, Arc::clone(&local), peer_service.clone()));
    let begin = Begin { data: data.to_owned(), local, peers, peer_service, arcs, clock, host };
    let replicas = match files {
        Some(files) if has_data => begin.start_member(files).await?,
        files => begin.join(files, invited).await?,
    };
    for replica in &replicas {
        tasks.spawn(membership_repair::run(
            replica.downgrade(),
            Arc::downgrade(&begin.peer_service),
        ));
    }
    let (nodes, peers) = (replicas.iter().map(Node::downgrade), Arc::downgrade(&begin.peers));
    tasks.spawn(restart::run(nodes.collect(), peers, data.into(), restart));
    begin.wait_for_leaders(&replicas).await?;
    let token_key = TokenKey::of_member(data)?;
    Ok((replicas, token_key, Membership { peers: begin.peers, _tasks: tasks }))
}

/// Why no new cluster is made of a node whose directories were set aside.
fn set_aside_before(aside: &[String]) -> String {
    format!(
        "this node had data, which was damaged and set aside ({}): it waits to be filled from its peers, \
         and makes no new cluster; to begin anew, move what was set aside away",
        aside.join(", ")
    )
}

fn identity_of(identity: &Identity) -> PeerIdentity {
    PeerIdentity { cluster: identity.cluster.clone(), node: identity.node }
}

/// Opens the node's directory; `None` if it holds nothing. A damaged one is set aside.
async fn open_files(data: &Path, slot: u64, host: &Host) -> Result<Option<NodeFiles>, String> {
    let Some(files) = cluster::open_slot(data, slot, host).await? else {
        return match directory::find_node_beside(data, slot) {
            None => Ok(None),
            Some(other) => Err(format!(
                "`{}` is the data of another node, `{other}`, and this is node {slot}: give each node its \
                 own --data",
                data.display()
            )),
        };
    };
    if files.log.is_fresh() && !files.has_empty_states()? {
        // It voted once and has forgotten for whom: it must not vote again.
        drop(files);
        cluster::set_aside(data, slot, "its log is gone")?;
        return Ok(None);
    }
    Ok(Some(files))
}

/// A node that is about to be.
struct Begin<'a> {
    data: PathBuf,
    local: Arc<Local>,
    peers: Arc<Peers>,
    peer_service: Arc<PeerService>,
    arcs: u32,
    clock: &'a Arc<Clock>,
    host: &'a Host,
}

/// What the peers say of themselves, by slot.
type Answers = BTreeMap<u64, Result<Who, String>>;

impl Begin<'_> {
    async fn start_node(&self, files: NodeFiles) -> Result<Replicas, String> {
        let identity = identity_of(&files.identity);
        let transport = Arc::new(PeerTransport(Arc::clone(&self.peers)));
        let replicas =
            cluster::start_replicas(files, transport, false, self.clock, self.host).await?;
        self.peer_service.attend(&replicas);
        self.local.identity.send_if_modified(|known| {
            let is_new = known.as_ref() != Some(&identity);
            *known = Some(identity);
            is_new
        });
        Ok(replicas)
    }

    /// Starts a node that was a member from the beginning.
    async fn start_member(&self, files: NodeFiles) -> Result<Replicas, String> {
        TokenKey::of_member(&self.data)?;
        stale_copy::refuse_older_copy(&self.peers, self.local.slot, &files).await?;
        let replicas = self.start_node(files).await?;
        self.begin_groups(&replicas).await?;
        Ok(replicas)
    }

    /// Begins the group of each arc that has none, if this is the node that made the cluster: it may
    /// have died while it did so.
    async fn begin_groups(&self, replicas: &[Node]) -> Result<(), String> {
        let maker = self.local.slots.first().map(|slot| node_id(*slot, 0));
        let members: BTreeSet<NodeId> =
            self.local.slots.iter().map(|slot| node_id(*slot, 0)).collect();
        for replica in replicas.iter().filter(|replica| Some(replica.id()) == maker) {
            replica.initialize(members.clone()).await?;
        }
        Ok(())
    }

    /// Becomes a node of a cluster: of one that is there, or of one that is made now.
    async fn join(
        &self,
        mut files: Option<NodeFiles>,
        mut invited: mpsc::Receiver<Invited>,
    ) -> Result<Replicas, String> {
        let mut progress = Progress::new();
        let mut refused_since = None;
        loop {
            let aside = directory::list_damaged(&self.data, self.local.slot);
            if let Ok((invitation, answer)) = invited.try_recv() {
                // Where this node had data, there is a cluster, and no other one is made beside it.
                if !aside.is_empty() && incarnation_of(invitation.identity.node) == 0 {
                    let _ = answer.send(Answer::Refused(set_aside_before(&aside)));
                    continue;
                }
                let files = self.take_up(&invitation, files)?;
                let replicas = self.start_node(files).await?;
                // A peer that heard nothing asks again.
                let _ = answer.send(Answer::Joined);
                return Ok(replicas);
            }
            let answers = self.ask_all().await;
            if let Some(reason) = self.peers.refusals().first() {
                let since = *refused_since.get_or_insert_with(Instant::now);
                if since.elapsed() > REFUSAL_WAIT {
                    return Err(reason.clone());
                }
            }
            let somebody_has_data = answers.values().flatten().any(|who| who.has_data);
            let all_are_there = answers.values().all(Result::is_ok);
            let is_first = self.local.slots.first() == Some(&self.local.slot);
            if somebody_has_data {
                if let Some(opened) = &files
                    && self.died_at_birth(&answers, &opened.identity).await
                    && let Some(opened) = files.take()
                {
                    tracing::info!("the cluster died while it was made, and is made now");
                    return self.start_member(opened).await;
                }
                match self.rejoin().await {
                    Ok(invitation) => {
                        if files.take().is_some() {
                            cluster::set_aside(&self.data, self.local.slot, HOLDS_NOTHING)?;
                        }
                        tracing::info!("this node is filled from its peers");
                        return self.start_node(self.take_up(&invitation, None)?).await;
                    }
                    Err(reason) => progress.say(&format!("no leader takes this node in: {reason}")),
                }
            } else if !aside.is_empty() {
                progress.say(&set_aside_before(&aside));
            } else if is_first && all_are_there {
                let opened = match files.take() {
                    Some(files) => files,
                    None => self.found()?,
                };
                if self.invite(&answers, &opened.identity, &mut progress).await? {
                    let replicas = self.start_member(opened).await?;
                    tracing::info!("a new cluster of nodes {:?} is made", self.local.slots);
                    return Ok(replicas);
                }
                files = Some(opened);
            } else {
                progress.say(&waiting_for(&answers, is_first));
            }
            tokio::time::sleep(ROUND).await;
        }
    }

    /// Whether the cluster died while it was made, for a node that was invited to it and holds
    /// nothing: everybody is there, and those who heard of the cluster know its members and not a
    /// single entry behind them. So no leader wrote anything, and no vote that this node may have
    /// forgotten matters. Without it nobody leads, and nobody can give it a new identity.
    async fn died_at_birth(&self, answers: &Answers, own: &Identity) -> bool {
        if incarnation_of(own.node) > 0 {
            return false;
        }
        for (slot, who) in answers {
            let Ok(who) = who else { return false };
            let expected = PeerIdentity { cluster: own.cluster.clone(), node: node_id(*slot, 0) };
            if who.has_data
                && (who.identity.as_ref() != Some(&expected)
                    || !self.knows_members_alone(*slot, own.arcs).await)
            {
                return false;
            }
        }
        true
    }

    /// Whether the peer in a slot runs, and none of its replicas leads or knows an entry behind the
    /// members, which have the index 0.
    async fn knows_members_alone(&self, slot: u64, arcs: u32) -> bool {
        let answer = self.peers.ask(slot, &Question::Status, QUESTION).await;
        let Ok(Answer::Status(replicas, _)) = answer else { return false };
        let knows_more = |status: &Status| status.role == Role::Leader || status.last_log > Some(0);
        u32::try_from(replicas.len()) == Ok(arcs) && !replicas.iter().any(knows_more)
    }

    async fn ask_all(&self) -> Answers {
        let ask = async |slot| {
            let who = match self.peers.ask(slot, &Question::Who, QUESTION).await {
                Ok(Answer::Who(who)) => Ok(who),
                Ok(other) => Err(format!("a strange answer: {other:?}")),
                Err(error) => Err(error.to_string()),
            };
            (slot, who)
        };
        join_all(self.peers.slots().map(ask)).await.into_iter().collect()
    }

    /// A new cluster, of which this is the first node.
    fn found(&self) -> Result<NodeFiles, String> {
        TokenKey::open(&self.data)?;
        let node = node_id(self.local.slot, 0);
        let identity = Identity::new(new_cluster()?, node, self.arcs);
        cluster::create_slot(&self.data, self.local.slot, identity, self.host)
    }

    /// Invites those peers that are not yet nodes of the new cluster. Gives whether all are.
    async fn invite(
        &self,
        answers: &Answers,
        own: &Identity,
        progress: &mut Progress,
    ) -> Result<bool, String> {
        let token_key = TokenKey::open(&self.data)?.as_bytes().to_vec();
        let mut all = true;
        for (slot, who) in answers {
            let identity = PeerIdentity { cluster: own.cluster.clone(), node: node_id(*slot, 0) };
            match who.as_ref().ok().and_then(|who| who.identity.as_ref()) {
                Some(known) if *known == identity => continue,
                Some(known) => {
                    return Err(format!(
                        "node {slot} was invited to cluster {}, which was never made: stop it and \
                         remove its `node-{slot}` directory, which holds nothing",
                        known.cluster
                    ));
                }
                None => {}
            }
            all = false;
            let arcs = own.arcs;
            let invitation = Invitation { identity, arcs, token_key: token_key.clone() };
            let asked = self.peers.ask(*slot, &Question::Join(invitation), JOINING).await;
            // The connection ends when the peer takes up its identity, and the answer with it:
            // the next round shows what came of it.
            if let Ok(Answer::Refused(reason)) = asked {
                progress.say(&format!("node {slot} does not join: {reason}"));
            }
        }
        Ok(all)
    }

    /// Asks for a new identity, of whichever peer leads.
    async fn rejoin(&self) -> Result<Invitation, String> {
        let mut reasons = Vec::new();
        for slot in self.peers.slots() {
            let question = Question::Rejoin { slot: self.local.slot };
            match self.peers.ask(slot, &question, JOINING).await {
                Ok(Answer::Rejoined(invitation)) => return Ok(invitation),
                Ok(Answer::Refused(reason)) => reasons.push(reason),
                Ok(other) => reasons.push(format!("a strange answer: {other:?}")),
                Err(error) => reasons.push(error.to_string()),
            }
        }
        Err(reasons.join("; "))
    }

    /// Makes this process the node that it was invited to be, durably.
    fn take_up(
        &self,
        invitation: &Invitation,
        files: Option<NodeFiles>,
    ) -> Result<NodeFiles, String> {
        TokenKey::adopt(&self.data, &invitation.token_key)?;
        if let Some(files) = files {
            let is_same = identity_of(&files.identity) == invitation.identity;
            if is_same && files.identity.arcs == invitation.arcs {
                return Ok(files);
            }
            drop(files);
            cluster::set_aside(&self.data, self.local.slot, HOLDS_NOTHING)?;
        }
        let PeerIdentity { cluster, node } = invitation.identity.clone();
        let identity = Identity::new(cluster, node, invitation.arcs);
        cluster::create_slot(&self.data, self.local.slot, identity, self.host)
    }

    /// Waits until each arc has a leader, for a while.
    async fn wait_for_leaders(&self, replicas: &[Node]) -> Result<(), String> {
        let Some(id) = replicas.first().map(Node::id) else { return Ok(()) };
        let mut progress = Progress::new();
        let begun = Instant::now();
        let mut refused_since = None;
        let read = || join_all(replicas.iter().map(Node::read_index));
        while tokio::time::timeout(ROUND, read()).await.is_err() {
            // If one peer of two differs it may be the wrong one; if both do, it is this node.
            let refusals = self.peers.refusals();
            let waited = begun.elapsed() > LEADER_WAIT;
            if let Some(reason) = refusals.first()
                && (waited || refusals.len() == self.peers.slots().count())
            {
                let since = *refused_since.get_or_insert_with(Instant::now);
                if waited || since.elapsed() > REFUSAL_WAIT {
                    return Err(reason.clone());
                }
            }
            let answers = self.ask_all().await;
            if let Some(other) = self.find_successor(id).await {
                return Err(format!(
                    "this directory is of incarnation {} of node {}, which incarnation {} has \
                     replaced: move `node-{}` away, and the node is filled again",
                    incarnation_of(id),
                    self.local.slot,
                    incarnation_of(other),
                    self.local.slot
                ));
            }
            if waited {
                tracing::warn!(
                    "there is no leader: requests are refused until a majority is there"
                );
                break;
            }
            progress.say(&waiting_for(&answers, true));
        }
        Ok(())
    }

    /// The node that took the place of this one, if the leader of an arc knows one.
    async fn find_successor(&self, own: NodeId) -> Option<NodeId> {
        for slot in self.peers.slots() {
            let answer = self.peers.ask(slot, &Question::Status, QUESTION).await;
            let Ok(Answer::Status(replicas, _)) = answer else { continue };
            for status in replicas.iter().filter(|status| status.role == Role::Leader) {
                let members: BTreeSet<NodeId> =
                    status.voters.iter().chain(&status.learners).copied().collect();
                // An arc that has not taken in this node yet still knows the one before it.
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

/// A name that no other cluster has.
fn new_cluster() -> Result<String, String> {
    let mut bytes = [0; 8];
    getrandom::fill(&mut bytes).map_err(|error| error.to_string())?;
    Ok(format!("{:016x}", u64::from_be_bytes(bytes)))
}

fn waiting_for(answers: &Answers, all_needed: bool) -> String {
    let missing: Vec<String> =
        answers.values().filter_map(|who| who.as_ref().err().map(ToString::to_string)).collect();
    match (missing.is_empty(), all_needed) {
        (false, _) => format!("waiting for peers: {}", missing.join("; ")),
        (true, true) => "waiting for a leader".to_owned(),
        (true, false) => "waiting for the first node to make the cluster".to_owned(),
    }
}

/// Says now and then what is waited for.
struct Progress(Instant);

impl Progress {
    fn new() -> Self {
        Self(Instant::now())
    }

    fn say(&mut self, what: &str) {
        if self.0.elapsed() >= PROGRESS {
            tracing::info!("{what}");
            self.0 = Instant::now();
        }
    }
}
