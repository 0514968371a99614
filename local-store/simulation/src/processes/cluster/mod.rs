//! A store in real processes, for fault injection. It is one process with three nodes, or several processes
//! with one node each and proxies between them.

mod membership;
mod rest;

use std::collections::{BTreeMap, BTreeSet};
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures::future::join_all;
use locks::Mutex;
use serde_json::{Value, json};
use tokio::net::TcpListener;

use self::rest::{is_whole, leaders, ring, ring_is_at_rest};
use super::process::{Launch, Process, log_file};
use super::proxy::{LinkState, Proxy};
use super::wire::{Addresses, admin};
use crate::error::HarnessError;

/// The maximum number of nodes of a store with one process for each node. With three more nodes than an arc has
/// replicas, a node can join while others leave.
pub const PLACES: usize = 6;
/// The first port on which a process of a store may listen for its peers.
const FIRST_PEER_PORT: u16 = 21_000;
/// The number of ports on which the processes of a store may listen for their peers.
const PEER_PORTS: u16 = 10_000;
/// The pause between two checks of a recovering store.
pub(super) const LOOK: Duration = Duration::from_millis(10);
/// The maximum time until the store has recovered completely.
const HEAL_MAX: Duration = Duration::from_secs(60);

/// A running store.
pub struct Cluster {
    /// The addresses of the processes for clients.
    pub addresses: Addresses,
    /// The number of arcs of the store's ring. Each arc is a group with its own leader.
    arcs: usize,
    launches: Vec<Launch>,
    processes: Vec<Option<Process>>,
    /// The places of the processes that run when no fault is under way. Node *i* + 1 has place *i*.
    members: BTreeSet<usize>,
    /// The nodes that leave the ring, with a version of the ring that still has them.
    leaving: BTreeMap<usize, u64>,
    /// For each place, the places of the nodes in the flags of its process.
    named: Vec<BTreeSet<usize>>,
    /// The addresses at which the nodes listen for their peers; empty if one process runs all nodes.
    peer_addresses: Vec<SocketAddr>,
    /// The proxies, by the positions of the source and the target process.
    proxies: BTreeMap<(usize, usize), Proxy>,
}

/// Returns an address for each place, which its process keeps across restarts. The ports are free
/// at the time of the call. They are below the range of ephemeral ports, so that no outgoing
/// connection can take the port of a process that restarts.
async fn free_addresses() -> Result<Vec<SocketAddr>, HarnessError> {
    let mut held = Vec::new();
    // Another simulation on this computer begins at another port, so it does not take the port of a process that
    // does not run yet.
    let begin = u16::try_from(std::process::id() % u32::from(PEER_PORTS)).unwrap_or(0);
    for number in 0..PEER_PORTS {
        let port = FIRST_PEER_PORT + (begin + number) % PEER_PORTS;
        if let Ok(listener) = TcpListener::bind((Ipv4Addr::LOCALHOST, port)).await {
            held.push(listener);
        }
        if held.len() == PLACES {
            return Ok(held.iter().map(TcpListener::local_addr).collect::<Result<_, _>>()?);
        }
    }
    Err(format!("fewer than {PLACES} of {PEER_PORTS} ports from {FIRST_PEER_PORT} on are free")
        .into())
}

impl Cluster {
    /// Creates a store of one process that runs all nodes, with the given number of arcs. Does not
    /// start the process.
    #[must_use]
    pub fn embedded(binary: &Path, folder: &Path, arcs: usize) -> Self {
        let launch = Launch {
            binary: binary.to_owned(),
            data: folder.join("data"),
            log: log_file(folder, "local-store"),
            arguments: vec!["--arcs".to_owned(), arcs.to_string()],
        };
        Self::of(vec![launch], 1, arcs)
    }

    /// Creates a store with this number of arcs, and a process for each of its first nodes. Between any two
    /// places of nodes there are two proxies, one for each direction. Does not start the processes.
    ///
    /// # Errors
    /// No ports are free.
    pub async fn of_processes(
        binary: &Path,
        folder: &Path,
        founders: usize,
        arcs: usize,
    ) -> Result<Self, HarnessError> {
        let launch = |place: usize| {
            let name = format!("node-{}", place + 1);
            Launch {
                binary: binary.to_owned(),
                data: folder.join(&name),
                log: log_file(folder, &name),
                arguments: Vec::new(),
            }
        };
        let mut cluster = Self::of((0..PLACES).map(launch).collect(), founders, arcs);
        cluster.peer_addresses = free_addresses().await?;
        for from in 0..PLACES {
            for (to, target) in cluster.peer_addresses.iter().enumerate() {
                if to != from {
                    cluster.proxies.insert((from, to), Proxy::start(*target).await?);
                }
            }
        }
        let founders = cluster.members.clone();
        for place in &founders {
            cluster.set_flags(*place, &founders, &["--arcs".to_owned(), arcs.to_string()]);
        }
        Ok(cluster)
    }

    fn of(launches: Vec<Launch>, members: usize, arcs: usize) -> Self {
        let places = launches.len();
        Self {
            addresses: Arc::new(Mutex::new(vec![None; places])),
            arcs,
            launches,
            processes: (0..places).map(|_| None).collect(),
            members: (0..members).collect(),
            leaving: BTreeMap::new(),
            named: vec![BTreeSet::new(); places],
            peer_addresses: Vec::new(),
            proxies: BTreeMap::new(),
        }
    }

    /// Sets the flags of a process: the number of its node, the addresses of some nodes, and `rest`. The process
    /// reaches each other node through a proxy.
    fn set_flags(&mut self, place: usize, nodes: &BTreeSet<usize>, rest: &[String]) {
        let own = self.peer_addresses.get(place).map(|address| (place, *address));
        let proxy = |to: &usize| Some((*to, self.proxies.get(&(place, *to))?.address));
        let peers: BTreeMap<usize, SocketAddr> =
            nodes.iter().filter_map(proxy).chain(own).collect();
        let peers = peers
            .iter()
            .flat_map(|(to, address)| ["--peer".to_owned(), format!("{}={address}", to + 1)]);
        let node = ["--node".to_owned(), (place + 1).to_string()];
        let arguments = node.into_iter().chain(peers).chain(rest.iter().cloned()).collect();
        if let (Some(launch), Some(named)) =
            (self.launches.get_mut(place), self.named.get_mut(place))
        {
            launch.arguments = arguments;
            named.clone_from(nodes);
        }
    }

    /// Returns the number of arcs of the store's ring.
    #[must_use]
    pub fn arcs(&self) -> usize {
        self.arcs
    }

    /// Starts every process of a member that is not running.
    ///
    /// # Errors
    /// A process cannot be started.
    pub fn spawn_missing(&mut self) -> Result<(), HarnessError> {
        for (place, (process, launch)) in self.processes.iter_mut().zip(&self.launches).enumerate()
        {
            if process.is_none() && self.members.contains(&place) {
                *process = Some(Process::spawn(launch)?);
            }
        }
        Ok(())
    }

    /// Waits until every process accepts requests, and publishes the addresses to the clients.
    ///
    /// # Errors
    /// A process does not accept requests in time.
    pub async fn wait_until_all_listen(&mut self) -> Result<(), HarnessError> {
        let processes = self.processes.iter_mut().enumerate();
        let waits = processes.filter_map(|(place, process)| Some((place, process.as_mut()?)));
        let wait = async |(place, process): (usize, &mut Process)| {
            (place, process.wait_until_it_listens().await)
        };
        let results = join_all(waits.map(wait)).await;
        self.release_left().await?;
        for (place, listens) in results {
            // A process ends if its node has left the ring before it had started.
            if self.members.contains(&place) {
                listens?;
            }
        }
        self.find_addresses();
        Ok(())
    }

    fn known(&self) -> std::sync::MutexGuard<'_, Vec<Option<SocketAddr>>> {
        self.addresses.lock()
    }

    /// Checks that every process that was started is running.
    ///
    /// # Errors
    /// A process has ended without being killed. The error contains its output.
    pub fn check_that_all_run(&mut self) -> Result<(), HarnessError> {
        self.processes.iter_mut().flatten().try_for_each(Process::check_that_it_runs)
    }

    /// Kills some processes with `kill -9`, all at the same time.
    pub fn kill(&mut self, places: &[usize]) {
        for place in places {
            if let Some(known) = self.known().get_mut(*place) {
                *known = None;
            }
        }
        for place in places {
            if let Some(mut process) = self.processes.get_mut(*place).and_then(Option::take) {
                process.kill();
            }
        }
    }

    /// Pauses a process, or resumes it.
    ///
    /// # Errors
    /// The signal cannot be sent.
    pub fn pause(&self, place: usize, on: bool) -> std::io::Result<()> {
        match self.processes.get(place).and_then(Option::as_ref) {
            Some(process) => process.pause(on),
            None => Ok(()),
        }
    }

    /// Cuts or opens the connections between a process and all other processes.
    pub fn cut_off(&self, place: usize, way: LinkState) {
        for ((from, to), proxy) in &self.proxies {
            if *from == place || *to == place {
                proxy.set(way);
            }
        }
    }

    /// Returns the directory of the node of a process. Each process must have one node.
    #[must_use]
    pub fn node_folder(&self, place: usize) -> PathBuf {
        let data = self.launches.get(place).map(|launch| launch.data.clone()).unwrap_or_default();
        data.join(format!("node-{}", place + 1))
    }

    /// Returns whether a node's directory was set aside because it is damaged.
    #[must_use]
    pub fn has_set_aside(&self, place: usize) -> bool {
        self.set_aside(place).exists()
    }

    fn set_aside(&self, place: usize) -> PathBuf {
        self.node_folder(place).with_extension("set-aside-1")
    }

    /// Removes the directory that was set aside. The store does not rebuild a node that has several
    /// set-aside directories.
    ///
    /// # Errors
    /// The directory cannot be removed.
    pub fn remove_set_aside(&self, place: usize) -> Result<(), HarnessError> {
        let folder = self.set_aside(place);
        let fail = |error| format!("{}: {error}", folder.display()).into();
        std::fs::remove_dir_all(&folder).map_err(fail)
    }

    /// Publishes the addresses of the running processes to the clients. A process that restarted
    /// itself because of damage has a new address.
    pub fn find_addresses(&self) {
        for (known, process) in self.known().iter_mut().zip(&self.processes) {
            if let Some(process) = process {
                *known = process.address();
            }
        }
    }

    /// Returns the address of a process.
    #[must_use]
    pub fn address(&self, place: usize) -> Option<SocketAddr> {
        self.known().get(place).copied().flatten()
    }

    /// Returns the status of the store, as a process reports it; `None` if the process does not
    /// answer.
    async fn status(&self, place: usize) -> Option<Value> {
        let address = self.address(place)?;
        admin(address, "GET", "/_weir/status", "").await
    }

    /// Returns the position of the process that leads the first arc. Returns `None` while an arc
    /// has no known leader. Ignores the process `without`.
    pub async fn leader(&self, without: Option<usize>) -> Option<usize> {
        for place in self.members.iter().filter(|place| Some(**place) != without) {
            let Some(status) = self.status(*place).await else { continue };
            let mut leaders = leaders(&status);
            leaders.retain(|_, place| Some(*place) != without);
            if leaders.len() == self.arcs {
                return leaders.into_values().next();
            }
        }
        None
    }

    /// Returns whether a node leaves or an arc moves, according to the first process that answers.
    pub async fn has_moves(&self) -> bool {
        for place in &self.members {
            if let Some(status) = self.status(*place).await {
                return rest::has_moves(&status);
            }
        }
        false
    }

    /// Waits until the store is at rest: every node votes and is up to date again, and no replica moves. Ends the
    /// processes whose nodes have left the ring.
    ///
    /// # Errors
    /// The recovery takes too long, or a process has ended by itself.
    pub async fn wait_until_whole(&mut self) -> Result<(), HarnessError> {
        let begun = Instant::now();
        let mut last = None;
        while begun.elapsed() < HEAL_MAX {
            self.find_addresses();
            self.release_left().await?;
            self.check_that_all_run()?;
            last = self.find_unrest().await;
            if last.is_none() {
                return Ok(());
            }
            tokio::time::sleep(5 * LOOK).await;
        }
        Err(format!("the store did not recover completely within {HEAL_MAX:?}: {last:?}").into())
    }

    /// Returns what shows that the store is not at rest. `None` if all processes report that it is, with the same
    /// ring of exactly the nodes that shall be in it.
    async fn find_unrest(&self) -> Option<Value> {
        let has_ring = !self.proxies.is_empty();
        let nodes: BTreeSet<u64> =
            self.members.iter().filter_map(|place| u64::try_from(place + 1).ok()).collect();
        let mut versions = BTreeSet::new();
        for place in &self.members {
            let Some(status) = self.status(*place).await else {
                return Some(json!(format!("no status of the process at place {place}")));
            };
            let ring = ring(&status);
            let has_nodes = ring.as_ref().is_some_and(|(found, _)| *found == nodes);
            let is_settled = !has_ring || (has_nodes && ring_is_at_rest(&status, self.arcs));
            if !is_whole(&status, self.arcs) || !is_settled {
                return Some(status);
            }
            versions.extend(ring.map(|(_, version)| version));
        }
        let leaving = self.leaving();
        let is_at_rest = versions.len() <= 1 && leaving.is_empty();
        (!is_at_rest).then(|| json!({"versions": versions, "leaving": leaving}))
    }

    /// Advances the store's clock.
    ///
    /// # Errors
    /// The store rejects the advance of its clock.
    pub async fn advance_clock(&self, millis: u64) -> Result<(), HarnessError> {
        let address = self.known().iter().flatten().next().copied().ok_or("no process")?;
        let body = format!("{{\"advance_ms\":{millis}}}");
        let answer = admin(address, "POST", "/_weir/clock", &body).await;
        match answer.as_ref().and_then(|answer| answer.get("now_ms")) {
            Some(_) => Ok(()),
            None => Err(format!("cannot advance the clock: {answer:?}").into()),
        }
    }
}
