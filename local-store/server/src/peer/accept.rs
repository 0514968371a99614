//! The port for peers: accepts their connections and answers their messages.

use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use tokio::io::AsyncWriteExt;
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, mpsc, watch};
use tokio::task::{AbortHandle, JoinSet};

use super::frame::{FrameReader, PAYLOAD_BYTES_MAX, Seal};
use super::handshake::{self, Failure, OpenConnection};
use super::{Answer, Handler, Local, PeerIdentity, Question};
use crate::gate::connections::Connections;
use node::ring::NODES_MAX;
use node::transport::Response;
use platform::descriptors::Descriptors;

/// The maximum number of handshakes in progress, many more than the peers of a cluster need. If it
/// is exceeded, the oldest handshake is aborted. That handshake is not from a peer, because a
/// peer's handshake takes only a few milliseconds. If the budget of connections is small, the
/// maximum is an eighth of the budget.
const GREETINGS_MAX: usize = 64;
const GREETINGS_PART: usize = 8;
/// The maximum number of connections of one peer. A peer needs two connections. The maximum is four,
/// because a peer may reconnect before this process has detected the failure of the previous
/// connections.
const CONNECTIONS_PER_PEER: usize = 4;
/// The maximum number of connections of all peers.
const CONNECTIONS_OF_PEERS: usize = (NODES_MAX - 1) * CONNECTIONS_PER_PEER;
/// The maximum number of unanswered messages of one connection. At the maximum, the process stops
/// reading from the connection until it has sent answers.
const QUESTIONS_MAX: usize = 2048;
/// The size in bytes at which no further answer is added to a write.
const WRITE_BYTES: usize = 256 * 1024;
/// The pause after a connection could not be accepted because file descriptors ran out.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);
/// The pause after a connection was refused. It limits the cost of a misconfigured peer that keeps
/// reconnecting.
const REFUSAL_PAUSE: Duration = Duration::from_millis(200);

/// A connection after its handshake, and the identity that this process sent to the peer.
type AcceptedPeer = (OpenConnection, watch::Receiver<Option<PeerIdentity>>);

/// Accepts connections of peers until the returned future is dropped. Clients that send nothing, and
/// broken connections that are not detected yet, cannot prevent a peer from connecting.
pub(crate) async fn serve(listener: TcpListener, local: Arc<Local>, handler: Arc<dyn Handler>) {
    let greetings_max =
        (Descriptors::of_process().connections_max / GREETINGS_PART).clamp(1, GREETINGS_MAX);
    // Reserves connection permits for the peers, so that clients cannot use them.
    let _apart = Connections::of_process().set_apart(greetings_max + CONNECTIONS_OF_PEERS);
    let (greeted, mut opened) = mpsc::channel::<AcceptedPeer>(greetings_max);
    let (mut greetings, mut connections) = (Tasks::default(), BTreeMap::<u64, Tasks>::new());
    loop {
        tokio::select! {
            Some((opened, identity)) = opened.recv() => {
                // The handshake has verified that the slot belongs to a peer.
                let of_peer = connections.entry(opened.slot).or_default();
                of_peer.spawn(CONNECTIONS_PER_PEER, attend(opened, identity, Arc::clone(&handler)));
            }
            accepted = listener.accept() => match accepted {
                Ok((stream, _)) => {
                    let greeting = greet(stream, Arc::clone(&local), greeted.clone());
                    greetings.spawn(greetings_max, greeting);
                }
                Err(error) => {
                    tracing::warn!(%error, "cannot accept a connection from a peer");
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                }
            },
        }
    }
}

/// The running tasks of one kind, the oldest first. Dropping this value aborts them.
#[derive(Default)]
struct Tasks {
    all: JoinSet<()>,
    order: VecDeque<AbortHandle>,
}

impl Tasks {
    /// Starts a task. If `max` tasks are running already, aborts the oldest one.
    fn spawn(&mut self, max: usize, task: impl Future<Output = ()> + Send + 'static) {
        while self.all.try_join_next().is_some() {}
        self.order.retain(|task| !task.is_finished());
        if self.order.len() >= max
            && let Some(oldest) = self.order.pop_front()
        {
            oldest.abort();
        }
        self.order.push_back(self.all.spawn(task));
    }
}

async fn greet(stream: TcpStream, local: Arc<Local>, greeted: mpsc::Sender<AcceptedPeer>) {
    let identity = local.identity.subscribe();
    match handshake::accept(&local, stream).await {
        Ok(opened) => drop(greeted.send((opened, identity)).await),
        Err(Failure::Refused(reason)) => {
            tracing::debug!("{reason}");
            tokio::time::sleep(REFUSAL_PAUSE).await;
        }
        Err(Failure::Io(reason)) => tracing::debug!("the handshake with a peer failed: {reason}"),
    }
}

async fn attend(
    opened: OpenConnection,
    mut identity: watch::Receiver<Option<PeerIdentity>>,
    handler: Arc<dyn Handler>,
) {
    let slot = opened.slot;
    tokio::select! {
        ended = converse(opened, &handler) => {
            tracing::debug!(slot, ?ended, "a peer's connection ended");
        }
        // The identity of this process has changed since the handshake, so the connection ends.
        _ = identity.changed() => {}
    }
}

/// Answers the messages of one connection until the connection ends.
async fn converse(opened: OpenConnection, handler: &Arc<dyn Handler>) -> io::Result<()> {
    let OpenConnection { slot, identity, reader, writer, seal, sent_bytes } = opened;
    let (answers, waiting) = mpsc::channel(QUESTIONS_MAX);
    tokio::select! {
        ended = write(writer, seal, waiting, &sent_bytes) => ended,
        ended = read(reader, slot, identity, handler, answers) => ended,
    }
}

async fn read(
    mut reader: FrameReader<OwnedReadHalf>,
    slot: u64,
    identity: Option<PeerIdentity>,
    handler: &Arc<dyn Handler>,
    answers: mpsc::Sender<(u64, Vec<u8>)>,
) -> io::Result<()> {
    let room = Arc::new(Semaphore::new(QUESTIONS_MAX));
    // When the connection ends, messages without an answer are still executed, because their
    // execution may have begun.
    loop {
        let (id, payload) = reader.read().await?;
        let question = decode(&payload, identity.as_ref())?;
        let Ok(permit) = Arc::clone(&room).acquire_owned().await else { return Ok(()) };
        let (handler, answers) = (Arc::clone(handler), answers.clone());
        tokio::spawn(async move {
            let answer = handler.answer(slot, question).await;
            match encode(&answer) {
                // If the connection has ended, the answer is discarded.
                Ok(payload) => drop(answers.send((id, payload)).await),
                Err(error) => tracing::error!(%error, "cannot encode an answer to a peer"),
            }
            drop(permit);
        });
    }
}

/// Encodes an answer. If the answer is too large for a frame, encodes the answer that the outcome is
/// unknown, because the message may have been executed. The connection stays open, because it also
/// carries other messages.
fn encode(answer: &Answer) -> Result<Vec<u8>, postcard::Error> {
    let payload = postcard::to_stdvec(answer)?;
    if payload.len() <= PAYLOAD_BYTES_MAX || !matches!(answer, Answer::Node(_)) {
        return Ok(payload);
    }
    let reason =
        format!("the answer of {} bytes is too large for a message to another node", payload.len());
    postcard::to_stdvec(&Answer::Node(Box::new(Response::Unknown(reason))))
}

/// Decodes a message, and checks that its sender is the node that opened the connection.
fn decode(payload: &Bytes, identity: Option<&PeerIdentity>) -> io::Result<Question> {
    let question: Question = postcard::from_bytes(payload).map_err(io::Error::other)?;
    if let Question::Node(message) = &question
        && identity.is_none_or(|identity| identity.node != message.from)
    {
        return Err(io::Error::other("a message names a sender that is not the connected node"));
    }
    Ok(question)
}

async fn write(
    mut writer: OwnedWriteHalf,
    mut seal: Seal,
    mut waiting: mpsc::Receiver<(u64, Vec<u8>)>,
    sent_bytes: &AtomicU64,
) -> io::Result<()> {
    let mut buffer = BytesMut::new();
    while let Some(first) = waiting.recv().await {
        let mut next = Some(first);
        while let Some((id, payload)) = next {
            seal.write(id, &payload, &mut buffer)?;
            next = if buffer.len() < WRITE_BYTES { waiting.try_recv().ok() } else { None };
        }
        writer.write_all(&buffer).await?;
        sent_bytes.fetch_add(buffer.len() as u64, Ordering::Relaxed);
        buffer.clear();
        if buffer.capacity() > 4 * WRITE_BYTES {
            buffer = BytesMut::new();
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_too_large_for_a_frame_is_an_unknown_outcome() {
        let fits = Answer::Node(Box::new(Response::Refused("no".to_owned())));
        assert_eq!(encode(&fits).unwrap(), postcard::to_stdvec(&fits).unwrap());
        let large = Response::Refused("x".repeat(PAYLOAD_BYTES_MAX));
        let payload = encode(&Answer::Node(Box::new(large))).unwrap();
        let Ok(Answer::Node(said)) = postcard::from_bytes(&payload) else { panic!("no answer") };
        assert!(matches!(*said, Response::Unknown(reason) if reason.contains("too large")));
    }
}
