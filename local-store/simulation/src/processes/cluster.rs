//! A store in real processes, for fault injection. It is one process with three nodes, or three processes
//! with one node each and proxies between them.

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddr};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures::future::try_join_all;
use locks::Mutex;
use serde_json::Value;
use tokio::net::TcpListener;

use super::process::{Launch, Process, log_file};
use super::proxy::{LinkState, Proxy};
use super::wire::{Addresses, admin};
use crate::error::HarnessError;

/// The number of processes of a store with one process for each node.
const PROCESSES: usize = 3;
/// The range of ports on which the processes of a store listen for their peers.
const PEER_PORTS: Range<u16> = 21_000..31_000;
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
    /// The proxies, by the positions of the source and the target process.
    proxies: BTreeMap<(usize, usize), Proxy>,
}

/// Returns an address for each process, which the process keeps across restarts. The ports are free
/// at the time of the call. They are below the range of ephemeral ports, so that no outgoing
/// connection can take the port of a process that restarts.
async fn free_addresses() -> Result<Vec<SocketAddr>, HarnessError> {
    let mut held = Vec::new();
    for port in PEER_PORTS {
        if let Ok(listener) = TcpListener::bind((Ipv4Addr::LOCALHOST, port)).await {
            held.push(listener);
        }
        if held.len() == PROCESSES {
            return Ok(held.iter().map(TcpListener::local_addr).collect::<Result<_, _>>()?);
        }
    }
    Err(format!("fewer than {PROCESSES} of the ports {PEER_PORTS:?} are free on 127.0.0.1").into())
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
        Self::of(vec![launch], BTreeMap::new(), arcs)
    }

    /// Creates a store with this number of arcs and a process for each node. Between any two
    /// processes there are two proxies, one for each direction. Does not start the processes.
    ///
    /// # Errors
    /// No ports are free.
    pub async fn of_processes(
        binary: &Path,
        folder: &Path,
        arcs: usize,
    ) -> Result<Self, HarnessError> {
        let targets = free_addresses().await?;
        let mut proxies = BTreeMap::new();
        let mut launches = Vec::new();
        for (from, own) in targets.iter().enumerate() {
            let numbers = [("--node", from + 1), ("--arcs", arcs)];
            let mut arguments: Vec<String> = numbers
                .into_iter()
                .flat_map(|(flag, value)| [flag.to_owned(), value.to_string()])
                .collect();
            for (to, target) in targets.iter().enumerate() {
                let mut address = *own;
                if to != from {
                    let proxy = Proxy::start(*target).await?;
                    address = proxy.address;
                    proxies.insert((from, to), proxy);
                }
                arguments.extend(["--peer".to_owned(), format!("{}={address}", to + 1)]);
            }
            let name = format!("node-{}", from + 1);
            launches.push(Launch {
                binary: binary.to_owned(),
                data: folder.join(&name),
                log: log_file(folder, &name),
                arguments,
            });
        }
        Ok(Self::of(launches, proxies, arcs))
    }

    fn of(launches: Vec<Launch>, proxies: BTreeMap<(usize, usize), Proxy>, arcs: usize) -> Self {
        let addresses = Arc::new(Mutex::new(vec![None; launches.len()]));
        let processes = launches.iter().map(|_| None).collect();
        Self { addresses, arcs, launches, processes, proxies }
    }

    /// Returns the number of processes.
    #[must_use]
    pub fn size(&self) -> usize {
        self.launches.len()
    }

    /// Returns the number of arcs of the store's ring.
    #[must_use]
    pub fn arcs(&self) -> usize {
        self.arcs
    }

    /// Starts every process that is not running.
    ///
    /// # Errors
    /// A process cannot be started.
    pub fn spawn_missing(&mut self) -> Result<(), HarnessError> {
        for (process, launch) in self.processes.iter_mut().zip(&self.launches) {
            if process.is_none() {
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
        let waits = self.processes.iter_mut().flatten().map(Process::wait_until_it_listens);
        let listening = try_join_all(waits).await?;
        *self.known() = listening.into_iter().map(Some).collect();
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

    /// Removes the data directory of a process that was killed.
    ///
    /// # Errors
    /// The directory cannot be removed.
    pub fn wipe(&self, place: usize) -> std::io::Result<()> {
        let Some(launch) = self.launches.get(place) else { return Ok(()) };
        std::fs::remove_dir_all(&launch.data)
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
        for place in (0..self.size()).filter(|place| Some(*place) != without) {
            let Some(status) = self.status(place).await else { continue };
            let mut leaders = leaders(&status);
            leaders.retain(|_, place| Some(*place) != without);
            if leaders.len() == self.arcs {
                return leaders.into_values().next();
            }
        }
        None
    }

    /// Waits until every node votes and is up to date again.
    ///
    /// # Errors
    /// The recovery takes too long.
    pub async fn wait_until_whole(&self) -> Result<(), HarnessError> {
        let begun = Instant::now();
        let mut last = None;
        while begun.elapsed() < HEAL_MAX {
            self.find_addresses();
            let status = self.status(0).await;
            if status.as_ref().is_some_and(|status| is_whole(status, self.arcs)) {
                return Ok(());
            }
            last = status.or(last);
            tokio::time::sleep(5 * LOOK).await;
        }
        Err(format!("the store did not recover completely within {HEAL_MAX:?}: {last:?}").into())
    }

    /// Advances the store's clock.
    ///
    /// # Errors
    /// The store rejects the advance of its clock.
    pub async fn advance_clock(&self, millis: u64) -> Result<(), HarnessError> {
        let address = self.known().first().copied().flatten().ok_or("no process")?;
        let body = format!("{{\"advance_ms\":{millis}}}");
        let answer = admin(address, "POST", "/_weir/clock", &body).await;
        match answer.as_ref().and_then(|answer| answer.get("now_ms")) {
            Some(_) => Ok(()),
            None => Err(format!("cannot advance the clock: {answer:?}").into()),
        }
    }
}

fn replicas(status: &Value) -> impl Iterator<Item = &Value> {
    status.get("replicas").and_then(Value::as_array).into_iter().flatten()
}

fn has_role(replica: &Value, role: &str) -> bool {
    replica.get("role").and_then(Value::as_str) == Some(role)
}

/// Returns, for each arc with a leader, the position of its process.
fn leaders(status: &Value) -> BTreeMap<u64, usize> {
    let leading = replicas(status).filter(|replica| has_role(replica, "leader"));
    let place = |replica: &Value| {
        let node = usize::try_from(replica.get("node")?.as_u64()?).ok()?;
        Some((replica.get("arc")?.as_u64()?, node.checked_sub(1)?))
    };
    leading.filter_map(place).collect()
}

/// Returns whether the store is complete. In each arc, three replicas must be voters, one of them
/// the leader, and none may be damaged, in a rebuild or lag far behind.
fn is_whole(status: &Value, arcs: usize) -> bool {
    let count = |replica: &Value, name: &str| {
        replica.get(name).and_then(Value::as_array).map_or(0, Vec::len)
    };
    let good = |replica: &Value| {
        let lag = replica.get("lag").and_then(Value::as_u64);
        (has_role(replica, "leader") || has_role(replica, "follower"))
            && count(replica, "voters") == PROCESSES
            && count(replica, "learners") == 0
            && replica.get("damaged").and_then(Value::as_bool) == Some(false)
            && lag.is_some_and(|lag| lag < 100)
    };
    let leading = replicas(status).filter(|replica| has_role(replica, "leader")).count();
    replicas(status).count() == PROCESSES * arcs
        && leading == arcs
        && leaders(status).len() == arcs
        && replicas(status).all(good)
}
