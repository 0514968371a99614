//! The flags for a node whose peers run in other processes: `--node`, `--peer`, `--cluster-secret`.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::PathBuf;

use clap::Args;

use node::ring::{NODES_MAX, REPLICAS};
use node::transfer::BYTES_PER_SECOND;
use server::fatal::{Fatal, fatal};
use server::gate;
use server::peer::ClusterSecret;
use server::store::Member;

/// The highest slot of a node. The slot is stored in eight bits of a node's id.
const SLOT_MAX: u64 = 255;

/// The flags for a process that runs a single node.
#[derive(Debug, Args)]
#[command(next_help_heading = "One process per node")]
pub(super) struct Flags {
    /// Run only the node with this number, from 1 to 255, in a store of several processes whose
    /// addresses --peer specifies; to replace a lost node, restart its process, with an empty
    /// directory if necessary
    #[arg(long, value_name = "NUMBER", requires = "peer", conflicts_with = "replicas")]
    #[arg(value_parser = clap::value_parser!(u64).range(1..=SLOT_MAX))]
    node: Option<u64>,
    /// Address at which the node with this number listens for its peers; repeat the flag for each
    /// node, three or more, including this node, with the same values on every node
    #[arg(long, value_name = "NUMBER=ADDRESS", requires = "node", value_parser = parse_peer)]
    peer: Vec<(u64, SocketAddr)>,
    /// Join a running store as a new node; --peer names this node and at least one node of the store, which
    /// tells the addresses of the others
    #[arg(long, requires = "node")]
    join: bool,
    /// File with a secret that all nodes share; required if a peer does not have a loopback address;
    /// it authenticates messages between nodes, but does not encrypt them
    #[arg(long, value_name = "FILE", requires = "node", env = "LOCAL_STORE_CLUSTER_SECRET")]
    cluster_secret: Option<PathBuf>,
    /// Bandwidth in MB per second for states that this process sends to nodes that join or are rebuilt
    #[arg(long, value_name = "MB", requires = "node", default_value_t = BYTES_PER_SECOND / MB)]
    #[arg(value_parser = clap::value_parser!(u64).range(1..=100_000))]
    transfer_rate: u64,
}

const MB: u64 = 1_000_000;

fn parse_peer(text: &str) -> Result<(u64, SocketAddr), Fatal> {
    let wrong = || fatal!("expected a node's number and address, such as 2=127.0.0.1:9002");
    let (slot, address) = text.split_once('=').ok_or_else(wrong)?;
    let slot: u64 = slot.parse().map_err(|_| wrong())?;
    let address: SocketAddr = address.parse().map_err(|_| wrong())?;
    if !(1..=SLOT_MAX).contains(&slot) {
        return Err(fatal!("the number of a node must be from 1 to {SLOT_MAX}"));
    }
    if address.port() == 0 {
        return Err(fatal!(
            "port 0 is not allowed: specify the port at which peers reach the node"
        ));
    }
    Ok((slot, address))
}

/// The number of arcs of a new store with more nodes than replicas: several for each node, so that the nodes
/// have equal shares.
const ARCS_OF_SEVERAL_NODES: u32 = 24;

impl Flags {
    /// Returns the number of arcs of a new store if the user does not choose it.
    pub(super) fn default_arcs(&self) -> u32 {
        if self.peer.len() > REPLICAS { ARCS_OF_SEVERAL_NODES } else { 1 }
    }

    /// Returns the node of this process after binding its port for peers; `None` if all nodes run
    /// in this process.
    pub(super) async fn member(self) -> Result<Option<Member>, Fatal> {
        let secret = self.cluster_secret.as_deref().map(ClusterSecret::read).transpose()?;
        let Some(slot) = self.node else { return Ok(None) };
        let addresses = check_peers(slot, &self.peer, self.join, secret.is_some())?;
        let no_address = || fatal!("the address of this node is missing; add it with --peer");
        let own = addresses.get(&slot).copied().ok_or_else(no_address)?;
        let listener = gate::take_port("port for peers", own).await.map_err(Fatal::new)?;
        let transfer_bytes_per_second = self.transfer_rate * MB;
        let joins = self.join;
        Ok(Some(Member { slot, addresses, joins, secret, transfer_bytes_per_second, listener }))
    }
}

fn check_peers(
    slot: u64,
    peers: &[(u64, SocketAddr)],
    joins: bool,
    has_secret: bool,
) -> Result<BTreeMap<u64, SocketAddr>, Fatal> {
    let addresses: BTreeMap<u64, SocketAddr> = peers.iter().copied().collect();
    if addresses.len() != peers.len() {
        return Err(fatal!("--peer names a node twice; name each node once"));
    }
    if joins && addresses.len() < 2 {
        return Err(fatal!(
            "--join needs --peer for this node, and for at least one node of the store"
        ));
    }
    if !joins && !(REPLICAS..=NODES_MAX).contains(&addresses.len()) {
        return Err(fatal!(
            "{} named with --peer; name all nodes of the store, {REPLICAS} to {NODES_MAX}, including this one",
            match addresses.len() {
                1 => "1 node is".to_owned(),
                nodes => format!("{nodes} nodes are"),
            }
        ));
    }
    if !addresses.contains_key(&slot) {
        return Err(fatal!("--peer {slot}=ADDRESS is missing: name the address of this node too"));
    }
    if let Some(outside) = addresses.values().find(|address| !address.ip().is_loopback())
        && !has_secret
    {
        return Err(fatal!(
            "refusing to use {outside} without --cluster-secret: anyone who can reach it could \
             read and change everything; use loopback addresses, or --cluster-secret FILE"
        ));
    }
    Ok(addresses)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wrong_peers_are_refused() {
        let peers =
            |text: &str| text.split(' ').map(|p| parse_peer(p).unwrap()).collect::<Vec<_>>();
        let three = "1=127.0.0.1:1 2=127.0.0.1:2 3=127.0.0.1:3";
        assert_eq!(check_peers(2, &peers(three), false, false).unwrap().len(), 3);
        for (slot, text, expected) in [
            (1, "1=127.0.0.1:1 1=127.0.0.1:2 3=127.0.0.1:3", "names a node twice"),
            (1, "1=127.0.0.1:1 2=127.0.0.1:2", "2 nodes are named"),
            (1, "1=127.0.0.1:1", "1 node is named"),
            (4, three, "--peer 4=ADDRESS is missing"),
            (1, "1=127.0.0.1:1 2=127.0.0.1:2 3=10.0.0.1:3", "10.0.0.1:3 without --cluster-secret"),
        ] {
            let error = check_peers(slot, &peers(text), false, false).unwrap_err().to_string();
            assert!(error.contains(expected), "{error}");
        }
        assert!(
            check_peers(1, &peers("1=10.0.0.1:1 2=10.0.0.2:1 3=10.0.0.3:1"), false, true).is_ok()
        );
        for text in [
            "127.0.0.1:1",
            "x=127.0.0.1:1",
            "0=127.0.0.1:1",
            "256=127.0.0.1:1",
            "1=127.0.0.1:0",
            "1=host:1",
        ] {
            assert!(parse_peer(text).is_err(), "{text}");
        }
    }
}
