//! The beginning of a connection: both sides say who they are, and either goes on or says why not.
//!
//! Each side sends eight bytes that no other protocol begins with, and the version of this one. Then
//! the one that connects says who it is and whom it means; the other accepts or refuses. With a
//! secret, both prove that they know it, and every frame after that is marked with a key that both
//! sides' random numbers went into. The first such frame says nothing: it is there so that a greeting
//! that somebody recorded and says again is none.

use std::io;
use std::net::SocketAddr;
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

/// What every connection begins with, in both directions.
const MAGIC: [u8; 8] = *b"WEIRPEER";
/// Raised whenever a message changes: nodes of different versions do not talk to each other.
const VERSION: u32 = 13;
/// Magic and version.
const PREAMBLE_BYTES: usize = 12;
/// Time for a connection and a handshake: a busy machine has it, a paused process does not.
const TIMEOUT: Duration = Duration::from_secs(2);

type Nonce = [u8; 16];

/// What the side that connects says.
#[derive(Debug, Serialize, Deserialize)]
struct Hello {
    /// Its slot, and the one that it means.
    slot: u64,
    to: u64,
    /// The slots of its cluster.
    slots: Vec<u64>,
    settings: String,
    identity: Option<PeerIdentity>,
    nonce: Nonce,
    /// With a secret: a mac that only those who know it can make.
    proof: Option<[u8; 16]>,
}

/// What the other side answers.
#[derive(Debug, Serialize, Deserialize)]
enum Welcome {
    Accepted { identity: Option<PeerIdentity>, nonce: Nonce, proof: Option<[u8; 16]> },
    Refused(String),
}

/// A connection after its handshake.
pub(super) struct Opened {
    /// The slot of the other side.
    pub(super) slot: u64,
    /// Its place in a cluster.
    pub(super) identity: Option<PeerIdentity>,
    pub(super) reader: FrameReader<OwnedReadHalf>,
    pub(super) writer: OwnedWriteHalf,
    /// How frames that are written are checked.
    pub(super) seal: Seal,
}

/// Why a handshake came to nothing.
#[derive(Debug)]
pub(super) enum Failure {
    /// The other side is not there, or slow.
    Io(String),
    /// It is there, and one of the two is set up wrongly.
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
) -> Result<Opened, Failure> {
    let connect = async {
        let stream = TcpStream::connect(address).await?;
        greet(local, slot, address, stream).await
    };
    let slow = |_| Failure::Io("it does not answer".to_owned());
    tokio::time::timeout(TIMEOUT, connect).await.map_err(slow)?
}

async fn greet(
    local: &Local,
    slot: u64,
    address: SocketAddr,
    stream: TcpStream,
) -> Result<Opened, Failure> {
    let (mut reader, mut writer) = split(stream)?;
    let hello = Hello {
        slot: local.slot,
        to: slot,
        slots: local.slots.iter().copied().collect(),
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
            return Err(Failure::Refused(format!("{address} does not know the cluster's secret")));
        }
        let key = |direction| secret.derive(direction, &[&sent, &answer]);
        reader.set_seal(Seal::Mark { key: key("to the connecting side"), number: 0 });
        seal = Seal::Mark { key: key("from the connecting side"), number: 0 };
    }
    let mut confirmation = BytesMut::new();
    seal.write(0, &[], &mut confirmation)?;
    writer.write_all(&confirmation).await?;
    reader.trust();
    Ok(Opened { slot, identity, reader, writer, seal })
}

/// Answers the handshake of a connection that somebody opened.
pub(super) async fn accept(local: &Local, stream: TcpStream) -> Result<Opened, Failure> {
    let slow = |_| Failure::Io("the other side does not say who it is".to_owned());
    tokio::time::timeout(TIMEOUT, answer(local, stream)).await.map_err(slow)?
}

async fn answer(local: &Local, stream: TcpStream) -> Result<Opened, Failure> {
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
    Ok(Opened { slot: hello.slot, identity: hello.identity, reader, writer, seal })
}

/// Why the side that connects is not the one that may.
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
            "the cluster's secret differs: give every node the same --cluster-secret".to_owned(),
        );
    }
    let (other, own) = (hello.slot, local.slot);
    if let Some(identity) = hello.identity.as_ref().filter(|it| slot_of(it.node) != other) {
        return Some(format!(
            "node {other} has the directory of node {}: put each directory back in its place",
            slot_of(identity.node)
        ));
    }
    if hello.to != own {
        return Some(format!(
            "this is node {own}, not node {}: check its address in --peer",
            hello.to
        ));
    }
    if other == own || !hello.slots.iter().copied().eq(local.slots.iter().copied()) {
        return Some(format!(
            "node {other} was given the nodes {:?}, and node {own} {:?}: give every node the same \
             --peer flags",
            hello.slots,
            local.slots.iter().collect::<Vec<_>>()
        ));
    }
    if hello.settings != local.settings {
        return Some(format!(
            "node {other} runs with {}, and node {own} with {}: give every node the same --region \
             and --account",
            hello.settings, local.settings
        ));
    }
    let (own_cluster, other_cluster) = (&identity?.cluster, &hello.identity.as_ref()?.cluster);
    (own_cluster != other_cluster).then(|| {
        format!(
            "node {other} is of cluster {other_cluster}, and node {own} of cluster {own_cluster}: \
             one of their --data directories belongs to another store"
        )
    })
}

fn split(stream: TcpStream) -> io::Result<(FrameReader<OwnedReadHalf>, OwnedWriteHalf)> {
    // Messages are complete when they are written: waiting for more only costs time.
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
            "{address} does not speak the nodes' protocol: is it the port of clients?"
        )));
    }
    if version != VERSION.to_le_bytes() {
        return Err(Failure::Refused(format!(
            "{address} speaks another version of the nodes' protocol than {VERSION}: run the same \
             version of local-store everywhere"
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
    let wrong = |error| Failure::Io(format!("a handshake that cannot be read: {error}"));
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

    /// Goal: who reads the page on the protocol finds the version that is spoken.
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
