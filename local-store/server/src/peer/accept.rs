//! The port for peers: takes their connections and answers their questions.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use tokio::io::AsyncWriteExt;
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, mpsc};

use super::frame::{FrameReader, Seal};
use super::handshake::{self, Failure, Opened};
use super::{Handler, Local, PeerIdentity, Question};

/// Connections that are taken at once: a few times what the peers of a cluster need.
const CONNECTIONS_MAX: usize = 64;
/// Questions of one connection that are being answered at most; then no more are read.
const QUESTIONS_MAX: usize = 2048;
/// Bytes after which no further answer is put into the same write.
const WRITE_BYTES: usize = 256 * 1024;
/// Time to wait when no connection can be accepted, because file descriptors ran out.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);
/// Time to wait after a connection was refused, so that a wrong peer costs little.
const REFUSAL_PAUSE: Duration = Duration::from_millis(200);

/// Takes connections of peers for as long as it is not dropped.
pub(crate) async fn serve(listener: TcpListener, local: Arc<Local>, handler: Arc<dyn Handler>) {
    let room = Arc::new(Semaphore::new(CONNECTIONS_MAX));
    let mut connections = tokio::task::JoinSet::new();
    loop {
        let Ok(permit) = Arc::clone(&room).acquire_owned().await else { return };
        while connections.try_join_next().is_some() {}
        match listener.accept().await {
            Ok((stream, _)) => {
                let (local, handler) = (Arc::clone(&local), Arc::clone(&handler));
                connections.spawn(async move {
                    attend(stream, &local, &handler).await;
                    drop(permit);
                });
            }
            Err(error) => {
                tracing::warn!(%error, "a peer's connection could not be accepted");
                tokio::time::sleep(ACCEPT_PAUSE).await;
            }
        }
    }
}

async fn attend(stream: TcpStream, local: &Local, handler: &Arc<dyn Handler>) {
    let mut identity = local.identity.subscribe();
    match handshake::accept(local, stream).await {
        Ok(opened) => {
            let slot = opened.slot;
            tokio::select! {
                ended = converse(opened, handler) => {
                    tracing::debug!(slot, ?ended, "a peer's connection ended");
                }
                // The peer was told another identity than the one that this process now has.
                _ = identity.changed() => {}
            }
        }
        Err(Failure::Refused(reason)) => {
            tracing::debug!("{reason}");
            tokio::time::sleep(REFUSAL_PAUSE).await;
        }
        Err(Failure::Io(reason)) => tracing::debug!("a peer did not connect: {reason}"),
    }
}

/// Answers what one connection asks, until it ends.
async fn converse(opened: Opened, handler: &Arc<dyn Handler>) -> io::Result<()> {
    let Opened { slot, identity, reader, writer, seal } = opened;
    let (answers, waiting) = mpsc::channel(QUESTIONS_MAX);
    tokio::select! {
        ended = write(writer, seal, waiting) => ended,
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
    // What is being answered when the connection ends is answered to nobody, but goes on: it may
    // have begun to be carried out.
    loop {
        let (id, payload) = reader.read().await?;
        let question = decode(&payload, identity.as_ref())?;
        let Ok(permit) = Arc::clone(&room).acquire_owned().await else { return Ok(()) };
        let (handler, answers) = (Arc::clone(handler), answers.clone());
        tokio::spawn(async move {
            let answer = handler.answer(slot, question).await;
            match postcard::to_stdvec(&answer) {
                // A connection that has ended needs no answer.
                Ok(payload) => drop(answers.send((id, payload)).await),
                Err(error) => tracing::error!(%error, "an answer cannot be encoded"),
            }
            drop(permit);
        });
    }
}

/// A question, of the node that the connection is of.
fn decode(payload: &Bytes, identity: Option<&PeerIdentity>) -> io::Result<Question> {
    let question: Question = postcard::from_bytes(payload).map_err(io::Error::other)?;
    if let Question::Node(message) = &question
        && identity.is_none_or(|identity| identity.node != message.from)
    {
        return Err(io::Error::other("a message in the name of another node"));
    }
    Ok(question)
}

async fn write(
    mut writer: OwnedWriteHalf,
    mut seal: Seal,
    mut waiting: mpsc::Receiver<(u64, Vec<u8>)>,
) -> io::Result<()> {
    let mut buffer = BytesMut::new();
    while let Some(first) = waiting.recv().await {
        let mut next = Some(first);
        while let Some((id, payload)) = next {
            // An answer that is too large ends the connection: what was asked may have been done,
            // and the peer learns that nobody knows.
            seal.write(id, &payload, &mut buffer)?;
            next = if buffer.len() < WRITE_BYTES { waiting.try_recv().ok() } else { None };
        }
        writer.write_all(&buffer).await?;
        buffer.clear();
        if buffer.capacity() > 4 * WRITE_BYTES {
            buffer = BytesMut::new();
        }
    }
    Ok(())
}
