//! The connection to one peer and the messages on it. If the connection breaks, it is re-established.
//!
//! Queues are bounded. If the queue is full, a message is refused immediately. If the connection breaks, a
//! message that was not written was not executed. The outcome of any other unanswered message is unknown.

use std::collections::BTreeMap;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use bytes::BytesMut;
use locks::Mutex;
use tokio::io::AsyncWriteExt;
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::JoinHandle;

use super::frame::{FrameReader, PAYLOAD_BYTES_MAX, Seal};
use super::handshake::{self, Failure, OpenConnection};
use super::{Answer, Local, Question};
use node::transport::CallError;

/// The maximum number of messages that wait to be written. It is larger than the number of a node's
/// clients.
const QUEUE_MAX: usize = 2048;
/// The maximum number of messages that wait for their answers.
const PENDING_MAX: usize = 4096;
/// The size in bytes at which no further message is added to a write.
const WRITE_BYTES: usize = 256 * 1024;
/// The back-off before reconnecting. The back-off doubles with each attempt, from the first value
/// up to the second value.
const BACK_OFF: (Duration, Duration) = (Duration::from_millis(20), Duration::from_millis(500));
/// The lifetime of a connection after which the back-off is reset.
const GOOD_CONNECTION: Duration = Duration::from_secs(1);
/// The interval between two warnings about the same peer.
const WARNING_PAUSE: Duration = Duration::from_secs(30);

type Outcome = Result<Answer, CallError>;

struct Job {
    payload: Vec<u8>,
    outcome: oneshot::Sender<Outcome>,
}

/// The state of the connection.
#[derive(Clone, Debug, PartialEq, Eq)]
enum State {
    Up,
    Down(String),
    /// This node or the peer refuses the connection, because one of the two nodes is misconfigured.
    Refused(String),
}

/// A handle on the connection to one peer.
pub(super) struct Peer {
    jobs: mpsc::Sender<Job>,
    state: watch::Receiver<State>,
    task: JoinHandle<()>,
}

impl Drop for Peer {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Peer {
    pub(super) fn connect(
        local: Arc<Local>,
        slot: u64,
        address: SocketAddr,
        silence_max: Duration,
    ) -> Self {
        let (jobs, waiting) = mpsc::channel(QUEUE_MAX);
        let not_yet = format!("node {slot} at {address} is not connected yet");
        let (state, watched) = watch::channel(State::Down(not_yet));
        let line = PeerLine { local, slot, address, silence_max, state };
        Self { jobs, state: watched, task: tokio::spawn(line.keep_up(waiting)) }
    }

    /// Returns the reason if this node or the peer refuses the connection.
    pub(super) fn refusal(&self) -> Option<String> {
        match &*self.state.borrow() {
            State::Refused(reason) => Some(reason.clone()),
            State::Up | State::Down(_) => None,
        }
    }

    pub(super) async fn request(&self, question: &Question, timeout: Duration) -> Outcome {
        if let State::Down(reason) | State::Refused(reason) = &*self.state.borrow() {
            return Err(CallError::Unreachable(reason.clone()));
        }
        let unsent = |reason: String| CallError::Unreachable(reason);
        let payload = postcard::to_stdvec(question).map_err(|error| unsent(error.to_string()))?;
        if payload.len() > PAYLOAD_BYTES_MAX {
            return Err(unsent(format!("a message of {} bytes is too large", payload.len())));
        }
        let (outcome, received) = oneshot::channel();
        let full = |_| unsent("the connection's send queue is full".to_owned());
        self.jobs.try_send(Job { payload, outcome }).map_err(full)?;
        match tokio::time::timeout(timeout, received).await {
            Ok(Ok(outcome)) => outcome,
            Ok(Err(_)) => Err(CallError::Lost("the connection broke".to_owned())),
            Err(_) => Err(CallError::Lost(format!("the peer did not respond within {timeout:?}"))),
        }
    }
}

/// The task that keeps a connection to a peer open.
struct PeerLine {
    local: Arc<Local>,
    slot: u64,
    address: SocketAddr,
    silence_max: Duration,
    state: watch::Sender<State>,
}

/// An unanswered message: the sender of its outcome, and the time when the message was sent.
struct UnansweredMessage {
    since: Instant,
    outcome: oneshot::Sender<Outcome>,
}

/// The unanswered messages by id. Ids increase, so the message with the smallest id is the oldest.
#[derive(Default)]
struct Pending(Mutex<BTreeMap<u64, UnansweredMessage>>);

impl Pending {
    fn lock(&self) -> std::sync::MutexGuard<'_, BTreeMap<u64, UnansweredMessage>> {
        self.0.lock()
    }

    /// Returns the time when the oldest unanswered message was sent.
    fn oldest(&self) -> Option<Instant> {
        self.lock().first_key_value().map(|(_, waiting)| waiting.since)
    }

    /// Records an unanswered message. Returns false if there are too many.
    fn add(&self, id: u64, outcome: oneshot::Sender<Outcome>) -> bool {
        let mut pending = self.lock();
        if pending.len() >= PENDING_MAX {
            pending.retain(|_, waiting| !waiting.outcome.is_closed());
        }
        if pending.len() >= PENDING_MAX {
            let _ = outcome.send(Err(CallError::Unreachable(
                "the connection has too many unanswered messages".to_owned(),
            )));
            return false;
        }
        pending.insert(id, UnansweredMessage { since: Instant::now(), outcome });
        true
    }
}

impl PeerLine {
    /// Connects, and reconnects after every failure.
    async fn keep_up(self, mut jobs: mpsc::Receiver<Job>) {
        let mut back_off = BACK_OFF.0;
        let mut warned: Option<(String, Instant)> = None;
        loop {
            let identity = self.local.identity.subscribe();
            let begun = Instant::now();
            let down = match handshake::connect(&self.local, self.slot, self.address).await {
                Ok(opened) => {
                    self.state.send_replace(State::Up);
                    let reason = self.exchange_messages(opened, &mut jobs, identity).await;
                    if begun.elapsed() > GOOD_CONNECTION {
                        back_off = BACK_OFF.0;
                    }
                    State::Down(format!("node {} at {}: {reason}", self.slot, self.address))
                }
                Err(Failure::Io(reason)) => {
                    State::Down(format!("node {} at {}: {reason}", self.slot, self.address))
                }
                Err(Failure::Refused(reason)) => {
                    let known = |(text, at): &(String, Instant)| {
                        *text == reason && at.elapsed() < WARNING_PAUSE
                    };
                    if !warned.as_ref().is_some_and(known) {
                        // Both connections to a peer are refused for the same reason, so only one of them logs
                        // the refusal.
                        if self.silence_max == super::SILENCE {
                            tracing::warn!("{reason}");
                        }
                        warned = Some((reason.clone(), Instant::now()));
                    }
                    State::Refused(reason)
                }
            };
            let reason = match &down {
                State::Down(reason) | State::Refused(reason) => reason.clone(),
                State::Up => String::new(),
            };
            self.state.send_replace(down);
            // Fails messages that were queued before the connection broke. They were not sent.
            while let Ok(job) = jobs.try_recv() {
                let _ = job.outcome.send(Err(CallError::Unreachable(reason.clone())));
            }
            tokio::time::sleep(back_off).await;
            back_off = (back_off * 2).min(BACK_OFF.1);
        }
    }

    /// Uses a connection until it breaks. Returns the reason why it broke.
    async fn exchange_messages(
        &self,
        opened: OpenConnection,
        jobs: &mut mpsc::Receiver<Job>,
        mut identity: watch::Receiver<Option<super::PeerIdentity>>,
    ) -> String {
        let pending = Pending::default();
        let OpenConnection { reader, writer, seal, sent_bytes, .. } = opened;
        let ended = tokio::select! {
            ended = write(writer, seal, jobs, &pending, &sent_bytes) => ended,
            ended = self.read(reader, &pending) => ended,
            _ = identity.changed() => Ok(()),
        };
        // Dropping the senders notifies the callers that the outcome is unknown.
        match ended {
            Ok(()) => {
                "the identity of this node changed, so it must repeat the handshake".to_owned()
            }
            Err(error) => error.to_string(),
        }
    }

    async fn read(
        &self,
        mut reader: FrameReader<OwnedReadHalf>,
        pending: &Pending,
    ) -> io::Result<()> {
        let mut heard = Instant::now();
        let mut patience = self.silence_max;
        loop {
            if let Ok(frame) = tokio::time::timeout(patience, reader.read()).await {
                let (id, payload) = frame?;
                heard = Instant::now();
                patience = self.silence_max;
                let waiting = pending.lock().remove(&id);
                let answer = postcard::from_bytes(&payload).map_err(io::Error::other)?;
                if let Some(waiting) = waiting {
                    // If the caller no longer waits, the answer is discarded.
                    let _ = waiting.outcome.send(Ok(answer));
                }
            } else if let Some(left) =
                patience_left(self.silence_max, heard, pending.oldest(), Instant::now())
            {
                patience = left;
            } else {
                let text = format!("no data for {:?}", self.silence_max);
                return Err(io::Error::new(io::ErrorKind::TimedOut, text));
            }
        }
    }
}

/// Returns how much longer to wait for data; `None` if no data has arrived for too long. The time
/// counts from the last data or from the oldest unanswered message, whichever is later. Without an
/// unanswered message, no data is expected, and the connection stays open.
fn patience_left(
    silence: Duration,
    heard: Instant,
    asked: Option<Instant>,
    now: Instant,
) -> Option<Duration> {
    let Some(asked) = asked else { return Some(silence) };
    let quiet = now.saturating_duration_since(asked.max(heard));
    silence.checked_sub(quiet).filter(|left| !left.is_zero())
}

/// Writes messages. All messages that are ready are combined in one write.
async fn write(
    mut writer: OwnedWriteHalf,
    mut seal: Seal,
    jobs: &mut mpsc::Receiver<Job>,
    pending: &Pending,
    sent_bytes: &AtomicU64,
) -> io::Result<()> {
    let mut buffer = BytesMut::new();
    let mut id = 0;
    while let Some(first) = jobs.recv().await {
        let mut next = Some(first);
        while let Some(Job { payload, outcome }) = next {
            // If the caller no longer waits, the message is not sent.
            if !outcome.is_closed() {
                id += 1;
                if pending.add(id, outcome) {
                    seal.write(id, &payload, &mut buffer)?;
                }
            }
            next = if buffer.len() < WRITE_BYTES { jobs.try_recv().ok() } else { None };
        }
        writer.write_all(&buffer).await?;
        sent_bytes.fetch_add(buffer.len() as u64, Ordering::Relaxed);
        buffer.clear();
        if buffer.capacity() > 4 * WRITE_BYTES {
            buffer = BytesMut::new();
        }
    }
    std::future::pending().await
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: a message that is sent after a long pause has as much time for its answer as any other message.
    #[test]
    fn silence_is_counted_from_when_an_answer_is_due() {
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        for (heard, asked, now, left) in [
            (0, None, 100, Some(4)),
            (0, Some(3), 4, Some(3)),
            (0, Some(0), 3, Some(1)),
            (0, Some(0), 4, None),
            (0, Some(0), 5, None),
            // Another message was answered after this message was sent.
            (2, Some(0), 5, Some(1)),
            (2, Some(0), 6, None),
            // The message was sent a moment ago, or data arrived a moment ago.
            (9, Some(9), 8, Some(4)),
        ] {
            let silence = Duration::from_secs(4);
            let found = patience_left(silence, at(heard), asked.map(at), at(now));
            assert_eq!(found, left.map(Duration::from_secs), "{heard} {asked:?} {now}");
        }
    }
}
