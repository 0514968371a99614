//! The handshake of a connection: both nodes identify themselves, and accept or refuse each other.
//!
//! Each node sends eight magic bytes, with which no other protocol begins, and the version of this
//! protocol. The connecting node then sends its identity and the identity that it expects. The accepting
//! node accepts or refuses the connection. If there is a secret, both nodes prove that they have it, and
//! every later frame has a MAC. The key of the MAC depends on random numbers from both nodes. The first
//! frame with a MAC is empty. It proves that the sender did not replay a recorded handshake.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use bytes::BytesMut;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};

use super::frame::{FrameReader, Seal};
use super::{Local, PeerIdentity};
use node::slot_of;

/// The first bytes of every connection, in both directions.
const MAGIC: [u8; 8] = *b"WEIRPEER";
/// The version of the protocol, which increases with every change of a message. Nodes of different
/// versions refuse each other.
const VERSION: u32 = 15;
/// The length of the magic bytes and the version.
const PREAMBLE_BYTES: usize = 12;
/// The time-out for connecting, including the handshake. A busy computer responds within this time;
/// a paused process does not.
const TIMEOUT: Duration = Duration::from_secs(2);

type Nonce = [u8; 16];

/// The message of the connecting node.
#[derive(Debug, Serialize, Deserialize)]
struct Hello {
    /// The slot of the sender.
    slot: u64,
    /// The expected slot of the receiver.
    to: u64,
    /// The slots of the sender's cluster in its `--peer` flags.
    slots: Vec<u64>,
    /// Whether the sender is a new node that joins a running cluster.
    joins: bool,
    settings: String,
    identity: Option<PeerIdentity>,
    nonce: Nonce,
    /// The MAC that proves that the sender has the secret; `None` if the cluster has no secret.
    proof: Option<[u8; 16]>,
}

/// The response of the accepting node.
#[derive(Debug, Serialize, Deserialize)]
enum Welcome {
    Accepted { identity: Option<PeerIdentity>, nonce: Nonce, proof: Option<[u8; 16]> },
    Refused(String),
}

/// A connection after its handshake.
pub(super) struct OpenConnection {
    /// The slot of the peer.
    pub(super) slot: u64,
    /// The identity of the peer in its cluster.
    pub(super) identity: Option<PeerIdentity>,
    pub(super) reader: FrameReader<OwnedReadHalf>,
    pub(super) writer: OwnedWriteHalf,
    /// The integrity check of written frames.
    pub(super) seal: Seal,
    /// The counter of the bytes that this process sends to its peers.
    pub(super) sent_bytes: Arc<AtomicU64>,
}

/// The reason why a handshake failed.
#[derive(Debug)]
pub(super) enum Failure {
    /// The peer cannot be reached, or responds too slowly.
    Io(String),
    /// The peer responded, but one of the two nodes is misconfigured.
    Refused(String),
}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        Self::Io(error.to_string())
    }
}

/// Connects to the peer in a slot.
pub(super) async fn connect(
    local: &Local,
    slot: u64,
    address: SocketAddr,
) -> Result<OpenConnection, Failure> {
    let connect = async {
        let stream = TcpStream::connect(address).await?;
        greet(local, slot, address, stream).await
    };
    let slow = |_| Failure::Io("no response to the handshake".to_owned());
    tokio::time::timeout(TIMEOUT, connect).await.map_err(slow)?
}

async fn greet(
    local: &Local,
    slot: u64,
    address: SocketAddr,
    stream: TcpStream,
) -> Result<OpenConnection, Failure> {
    let (mut reader, mut writer) = split(stream)?;
    let hello = Hello {
        slot: local.slot,
        to: slot,
        slots: local.slots.iter().copied().collect(),
        joins: local.joins,
        settings: local.settings.clone(),
        identity: local.identity.borrow().clone(),
        nonce: random_nonce()?,
        proof: None,
    };
    let proof = local
        .secret
        .as_ref()
        .map(|secret| secret.derive("hello", &[&hello.nonce]).mac(&[&hello.slot.to_le_bytes()]));
    let hello = Hello { proof, ..hello };
    writer.write_all(&preamble()).await?;
    let sent = send(&mut writer, &hello).await?;
    check_preamble(address, &reader.read_raw().await?)?;
    let (_, answer) = reader.read().await?;
    let (identity, nonce, proof) = match decode(&answer)? {
        Welcome::Accepted { identity, nonce, proof } => (identity, nonce, proof),
        Welcome::Refused(reason) => {
            return Err(Failure::Refused(format!(
                "node {slot} at {address} refuses this node: {reason}"
            )));
        }
    };
    let mut seal = Seal::Checksum;
    if let Some(secret) = &local.secret {
        let key = secret.derive("welcome", &[&hello.nonce, &nonce]);
        if !proof.is_some_and(|proof| key.verify(&[], &proof)) {
            return Err(Failure::Refused(format!(
                "{address} has a different cluster secret: give every node the same --cluster-secret"
            )));
        }
        let key = |direction| secret.derive(direction, &[&sent, &answer]);
        reader.set_seal(Seal::Mark { key: key("to the connecting side"), number: 0 });
        seal = Seal::Mark { key: key("from the connecting side"), number: 0 };
    }
    let mut confirmation = BytesMut::new();
    seal.write(0, &[], &mut confirmation)?;
    writer.write_all(&confirmation).await?;
    reader.trust();
    let sent_bytes = Arc::clone(&local.sent_bytes);
    Ok(OpenConnection { slot, identity, reader, writer, seal, sent_bytes })
}

/// Answers the handshake of an accepted connection.
pub(super) async fn accept(local: &Local, stream: TcpStream) -> Result<OpenConnection, Failure> {
    let slow = |_| Failure::Io("the peer did not identify itself in time".to_owned());
    tokio::time::timeout(TIMEOUT, answer(local, stream)).await.map_err(slow)?
}

async fn answer(local: &Local, stream: TcpStream) -> Result<OpenConnection, Failure> {
    let address = stream.peer_addr()?;
    let (mut reader, mut writer) = split(stream)?;
    writer.write_all(&preamble()).await?;
    check_preamble(address, &reader.read_raw().await?)?;
    let (_, received) = reader.read().await?;
    let hello: Hello = decode(&received)?;
    let identity = local.identity.borrow().clone();
    if let Some(reason) = objection(local, identity.as_ref(), &hello) {
        send(&mut writer, &Welcome::Refused(reason.clone())).await?;
        return Err(Failure::Refused(format!(
            "node {} at {address} was refused: {reason}",
            hello.slot
        )));
    }
    let nonce = random_nonce()?;
    let proof = local
        .secret
        .as_ref()
        .map(|secret| secret.derive("welcome", &[&hello.nonce, &nonce]).mac(&[]));
    let sent = send(&mut writer, &Welcome::Accepted { identity, nonce, proof }).await?;
    let mut seal = Seal::Checksum;
    if let Some(secret) = &local.secret {
        let key = |direction| secret.derive(direction, &[&received, &sent]);
        reader.set_seal(Seal::Mark { key: key("from the connecting side"), number: 0 });
        seal = Seal::Mark { key: key("to the connecting side"), number: 0 };
    }
    reader.read().await?;
    reader.trust();
    let (Hello { slot, identity, .. }, sent_bytes) = (hello, Arc::clone(&local.sent_bytes));
    Ok(OpenConnection { slot, identity, reader, writer, seal, sent_bytes })
}

/// Returns the reason why the connecting node must be refused; `None` if it is accepted.
fn objection(local: &Local, identity: Option<&PeerIdentity>, hello: &Hello) -> Option<String> {
    let secret = match (&local.secret, &hello.proof) {
        (None, None) => true,
        (Some(secret), Some(proof)) => {
            secret.derive("hello", &[&hello.nonce]).verify(&[&hello.slot.to_le_bytes()], proof)
        }
        _ => false,
    };
    if !secret {
        return Some(
            "the cluster secrets differ: give every node the same --cluster-secret".to_owned(),
        );
    }
    let (other, own) = (hello.slot, local.slot);
    if let Some(identity) = hello.identity.as_ref().filter(|it| slot_of(it.node) != other) {
        return Some(format!(
            "node {other} has the directory of node {}: move each directory back to its node",
            slot_of(identity.node)
        ));
    }
    if hello.to != own {
        return Some(format!(
            "a connection to node {0} reached node {own}: check the address of node {0} in --peer",
            hello.to
        ));
    }
    if let Some(reason) = objection_to_slot(local, identity.is_some(), hello) {
        return Some(reason);
    }
    if hello.settings != local.settings {
        return Some(format!(
            "node {other} runs with {}, but node {own} with {}: give every node the same --region \
             and --account",
            hello.settings, local.settings
        ));
    }
    let (own_cluster, other_cluster) = (&identity?.cluster, &hello.identity.as_ref()?.cluster);
    (own_cluster != other_cluster).then(|| {
        format!(
            "node {other} is in cluster {other_cluster}, but node {own} in cluster {own_cluster}: \
             one of their --data directories belongs to another store"
        )
    })
}

/// Returns the reason why this process does not connect with a node in the sender's slot; `None` if it does.
fn objection_to_slot(local: &Local, has_identity: bool, hello: &Hello) -> Option<String> {
    let (other, own) = (hello.slot, local.slot);
    let ring = local.ring.borrow();
    if other == own {
        return Some(format!("node {other} runs already: give each node its own number"));
    }
    if let Some(ring) = &*ring {
        let has_left = !ring.contains_key(&other) && !hello.joins;
        return has_left.then(|| {
            format!(
                "node {other} does not belong to the store: start it with --join on an empty directory to add it"
            )
        });
    }
    // The nodes that create a cluster must agree about its nodes. Later, a node may know only some of them.
    let creates = !has_identity && hello.identity.is_none() && !hello.joins && !local.joins;
    if creates && !hello.slots.iter().copied().eq(local.slots.iter().copied()) {
        return Some(format!(
            "node {other} has the nodes {:?} in --peer, but node {own} has {:?}: give every node the same \
             --peer flags",
            hello.slots,
            local.slots.iter().collect::<Vec<_>>()
        ));
    }
    None
}

fn split(stream: TcpStream) -> io::Result<(FrameReader<OwnedReadHalf>, OwnedWriteHalf)> {
    // Every write contains complete messages, so waiting for more data (Nagle's algorithm) would
    // only delay them.
    stream.set_nodelay(true)?;
    let (reader, writer) = stream.into_split();
    Ok((FrameReader::new(reader, Seal::Checksum), writer))
}

fn preamble() -> [u8; PREAMBLE_BYTES] {
    let mut bytes = [0; PREAMBLE_BYTES];
    let (magic, version) = bytes.split_at_mut(MAGIC.len());
    magic.copy_from_slice(&MAGIC);
    version.copy_from_slice(&VERSION.to_le_bytes());
    bytes
}

fn check_preamble(address: SocketAddr, found: &[u8; PREAMBLE_BYTES]) -> Result<(), Failure> {
    let (magic, version) = found.split_at(MAGIC.len());
    if magic != MAGIC {
        return Err(Failure::Refused(format!(
            "{address} does not speak the nodes' protocol: give the peer's port in --peer, not its port for clients"
        )));
    }
    if version != VERSION.to_le_bytes() {
        return Err(Failure::Refused(format!(
            "{address} does not speak version {VERSION} of the nodes' protocol: run the same version of local-store on every node"
        )));
    }
    Ok(())
}

async fn send(writer: &mut OwnedWriteHalf, message: &impl Serialize) -> Result<Vec<u8>, Failure> {
    let payload = postcard::to_stdvec(message).map_err(|error| Failure::Io(error.to_string()))?;
    let mut bytes = BytesMut::new();
    Seal::Checksum.write(0, &payload, &mut bytes)?;
    writer.write_all(&bytes).await?;
    Ok(payload)
}

fn decode<T: DeserializeOwned>(payload: &[u8]) -> Result<T, Failure> {
    let wrong = |error| Failure::Io(format!("invalid handshake: {error}"));
    postcard::from_bytes(payload).map_err(wrong)
}

fn random_nonce() -> io::Result<Nonce> {
    let mut nonce = Nonce::default();
    getrandom::fill(&mut nonce).map_err(|error| io::Error::other(error.to_string()))?;
    Ok(nonce)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: `docs/formats/peer-protocol.md` has the current magic bytes and version.
    #[test]
    fn the_page_on_the_protocol_has_the_first_bytes() {
        let page = include_str!("../../../../docs/formats/peer-protocol.md");
        let hex = |bytes: &[u8]| {
            bytes.iter().map(|byte| format!("{byte:02x}")).collect::<Vec<_>>().join(" ")
        };
        let preamble = preamble();
        let (magic, version) = preamble.split_at(MAGIC.len());
        let line = format!("both sides:        {}   {}\n", hex(magic), hex(version));
        assert!(page.contains(&line), "{line}");
    }
}
