//! The proposer: it puts all ready commands into one log entry, and keeps one entry in flight.
//!
//! While an entry is in flight, further proposals queue. Therefore, the busier a node is, the more
//! commands share an entry, its messages and its syncs. A proposer runs on every node, but has work
//! only on the leader.

mod budget;

use std::sync::Arc;

use bytes::Bytes;
use locks::Mutex;
use model::EpochMillis;
use model::limits::REQUEST_BYTES_MAX;
use openraft::errors::ClientWriteError;
use openraft::raft::ClientWriteResult;
use partition::{
    Command, ENTRY_HEAD_BYTES_MAX, EncodedEntry, Entry, EntryEncoder, EntryError, Reply,
    TRANSACTION_TOO_LARGE,
};
use tokio::sync::{Semaphore, mpsc, oneshot};

use crate::clock::Clock;
use crate::error::SubmitError;
use crate::forward::Submission;
use crate::proposer::budget::{Budget, writes_of};
use crate::raft::Raft;
use crate::types::{NodeId, OutcomeCallback, Payload, TypeConfig};

/// The maximum number of proposals in one entry: as many as a node has connections.
const PROPOSALS_PER_ENTRY: usize = 1024;
/// The number of bytes at which an entry accepts no further proposal: a few of the largest items.
const BYTES_PER_ENTRY: usize = 4 * 1024 * 1024;
/// The maximum size of one proposal in bytes. A request of 16 MB fits, unless it uses the same
/// values or long names several times: each use is encoded separately.
pub(super) const PROPOSAL_BYTES_MAX: usize = REQUEST_BYTES_MAX;
/// The maximum size of an entry in bytes. An entry just below [`BYTES_PER_ENTRY`] may still accept
/// a proposal of the largest size.
pub(super) const ENTRY_BYTES_MAX: usize =
    ENTRY_HEAD_BYTES_MAX + BYTES_PER_ENTRY + PROPOSAL_BYTES_MAX;
/// The maximum number of entries in flight: while an entry is synced and applied, the next entry
/// gathers commands. With two entries in flight, entries are smaller: on two cores, a put took a
/// seventh more CPU time, and throughput was lower.
const ENTRIES_UNDER_WAY: usize = 1;
/// The maximum number of waiting proposals. Further requests wait in their connections.
const PROPOSALS_MAX: usize = 4096;

/// The outcome of a proposal: the log index of its entry, and a reply for each command. The index
/// is 0 if the commands were rejected without a proposal.
pub(super) type Outcome = Result<(u64, Vec<Reply>), Unproposed>;

/// The reason why a proposal has no replies.
pub(super) enum Unproposed {
    /// The commands were not proposed, because this node does not lead or because they were too
    /// old. Contains the leader, if known, and the commands.
    NotLeader(Option<NodeId>, Submission),
    /// The proposal failed after it was accepted, or could not be accepted.
    Failed(SubmitError),
}

/// The reason why the leader did not answer a request for the read index.
pub(super) enum Rejection {
    /// This node does not lead.
    NotLeader,
    /// The request for the read index failed.
    Failed(SubmitError),
}

impl From<Unproposed> for Rejection {
    fn from(unproposed: Unproposed) -> Self {
        match unproposed {
            Unproposed::NotLeader(..) => Self::NotLeader,
            Unproposed::Failed(error) => Self::Failed(error),
        }
    }
}

/// The commands of one request, and the channel for their replies.
pub(super) struct Proposal {
    submission: PendingCommands,
    outcome: oneshot::Sender<Outcome>,
}

/// The commands of a request. They are removed when they are added to an entry, or when the client
/// has disconnected: abandoned commands must not stay in memory while there is no majority or the
/// disk is full.
#[derive(Clone)]
struct PendingCommands(Arc<Mutex<Option<Submission>>>);

impl PendingCommands {
    fn new(submission: Submission) -> Self {
        Self(Arc::new(Mutex::new(Some(submission))))
    }

    fn take(&self) -> Option<Submission> {
        self.0.lock().take()
    }
}

/// A guard of a waiting client. When it is dropped, it removes the client's commands from the
/// queue.
struct AbandonGuard(PendingCommands);

impl Drop for AbandonGuard {
    fn drop(&mut self) {
        self.0.take();
    }
}

/// A handle on the proposer.
#[derive(Clone)]
pub(super) struct Proposer {
    proposals: mpsc::Sender<Proposal>,
}

impl Proposer {
    /// Starts the proposer's task, which ends when the last handle is dropped.
    pub(super) fn start(raft: Raft, clock: Arc<Clock>) -> Self {
        let (proposals, waiting) = mpsc::channel(PROPOSALS_MAX);
        tokio::spawn(run(raft, clock, waiting));
        Self { proposals }
    }

    /// Proposes commands, in order, in one entry, and waits until this node has applied the entry.
    pub(super) async fn propose(&self, submission: Submission) -> Outcome {
        let (outcome, received) = oneshot::channel();
        let stopping =
            || Unproposed::Failed(SubmitError::NotDone("the node is stopping".to_owned()));
        let submission = PendingCommands::new(submission);
        let _waiting = AbandonGuard(submission.clone());
        self.proposals.send(Proposal { submission, outcome }).await.map_err(|_| stopping())?;
        let unknown = "the node stopped before the outcome was known".to_owned();
        received.await.unwrap_or(Err(Unproposed::Failed(SubmitError::Unknown(unknown))))
    }
}

/// A request that waits for the replies of an entry.
struct Waiter {
    /// The number of the request's commands in the entry.
    commands: usize,
    /// The time of the submission.
    asked_at: EpochMillis,
    outcome: oneshot::Sender<Outcome>,
}

/// An entry, its bytes, and the requests that wait for it, in the order of their commands.
struct EntryDraft {
    entry: Arc<Entry>,
    bytes: Bytes,
    waiters: Vec<Waiter>,
    /// The maximum number of items that the entry's commands may write.
    writes: usize,
}

async fn run(raft: Raft, clock: Arc<Clock>, mut waiting: mpsc::Receiver<Proposal>) {
    let under_way = Arc::new(Semaphore::new(ENTRIES_UNDER_WAY));
    let budget = Arc::new(Budget::new());
    let mut bytes_before = 0;
    while let Some(first) = waiting.recv().await {
        let Ok(permit) = Arc::clone(&under_way).acquire_owned().await else { return };
        // The size of the last entry is the best estimate for the next entry.
        let encoder = EntryEncoder::with_room(bytes_before);
        let gathered = gather(encoder, first, &mut waiting, &clock, budget.writes_max());
        let EntryDraft { entry, bytes, waiters, writes } = match gathered {
            Ok(gathered) => gathered,
            Err(error) => {
                // Encoding failed because of a defect. No entry was proposed. Dropping the waiters
                // reports this to the requests.
                tracing::error!(%error, "cannot encode commands, which is a bug in this program");
                continue;
            }
        };
        if waiters.is_empty() {
            continue;
        }
        bytes_before = bytes.len();
        let payload = Payload::of(bytes, Arc::clone(&entry));
        let learner = Arc::clone(&budget);
        let answer = OutcomeCallback::new(move |result: ClientWriteResult<TypeConfig>| {
            if let Ok(response) = &result {
                learner.learn(writes, &response.data.0);
            }
            drop(permit);
            distribute(result, &entry, waiters);
        });
        // Proposing fails only if the node has stopped. Dropping the waiters reports this to the
        // requests.
        if raft.client_write_ff(payload, Some(answer)).await.is_err() {
            tracing::debug!("dropped a proposal because the node had stopped");
        }
    }
}

/// Adds proposals to an entry until no proposal is ready, or the entry reaches `writes_max` writes
/// or its limit of proposals or bytes. The last proposal may exceed these limits.
fn gather(
    mut encoder: EntryEncoder,
    first: Proposal,
    waiting: &mut mpsc::Receiver<Proposal>,
    clock: &Clock,
    writes_max: usize,
) -> Result<EntryDraft, EntryError> {
    let (mut commands, mut waiters) = (Vec::new(), Vec::new());
    let mut writes = 0;
    let mut next = Some(first);
    while let Some(Proposal { submission, outcome }) = next {
        let Some(submission) = submission.take().filter(|_| !outcome.is_closed()) else {
            // The client has disconnected. Its commands can be skipped, because they were never
            // acknowledged.
            next = waiting.try_recv().ok();
            continue;
        };
        if submission.is_too_old(clock.now()) {
            let _ = outcome.send(Err(Unproposed::NotLeader(None, submission)));
            next = waiting.try_recv().ok();
            continue;
        }
        let Submission { asked_at, commands: own } = submission;
        let Some(bytes) = encoder.push(&own, PROPOSAL_BYTES_MAX)? else {
            let _ = outcome.send(Ok((0, refuse_as_too_large(&own))));
            next = waiting.try_recv().ok();
            continue;
        };
        writes += own.iter().map(writes_of).sum::<usize>();
        waiters.push(Waiter { commands: own.len(), asked_at, outcome });
        commands.extend(own);
        let full = writes >= writes_max
            || waiters.len() >= PROPOSALS_PER_ENTRY
            || bytes >= BYTES_PER_ENTRY;
        next = if full { None } else { waiting.try_recv().ok() };
    }
    let now = clock.now();
    let EncodedEntry { mut bytes, begins_at } = encoder.finish(now)?;
    if bytes.capacity() / 2 > bytes.len() {
        // The log caches the bytes, so unused capacity is freed.
        bytes.shrink_to_fit();
    }
    let bytes = Bytes::from(bytes).slice(begins_at..);
    let entry = Arc::new(Entry { now, commands });
    Ok(EntryDraft { entry, bytes, waiters, writes })
}

/// Returns the replies to commands that do not fit into any entry.
pub(super) fn refuse_as_too_large(commands: &[Command]) -> Vec<Reply> {
    let refuse = |command: &Command| match command {
        Command::Transaction(_) | Command::Prepare(_) => TRANSACTION_TOO_LARGE.to_owned(),
        _ => format!(
            "The request is too large: its values and names take more than {PROPOSAL_BYTES_MAX} \
             bytes, counted once for each expression that uses them"
        ),
    };
    commands.iter().map(|command| Reply::Invalid(refuse(command))).collect()
}

fn distribute(result: ClientWriteResult<TypeConfig>, entry: &Entry, waiters: Vec<Waiter>) {
    match result {
        Ok(response) => {
            let index = response.log_id.index;
            let mut replies = response.data.0.into_iter();
            for Waiter { commands, outcome, .. } in waiters {
                let own = replies.by_ref().take(commands).collect();
                // A client that has disconnected needs no reply.
                let _ = outcome.send(Ok((index, own)));
            }
        }
        Err(error) => {
            let mut commands: &[Command] = &entry.commands;
            for Waiter { commands: count, asked_at, outcome } in waiters {
                let (own, others) = commands.split_at_checked(count).unwrap_or((commands, &[]));
                commands = others;
                let unproposed = match &error {
                    ClientWriteError::ForwardToLeader(forward) => {
                        // Another node can still propose the commands.
                        let submission = Submission { asked_at, commands: own.to_vec() };
                        Unproposed::NotLeader(forward.leader_id, submission)
                    }
                    other => Unproposed::Failed(SubmitError::Unknown(other.to_string())),
                };
                let _ = outcome.send(Err(unproposed));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use expression::Update;
    use model::{KeyValue, PrimaryKey};
    use partition::{TableId, Transaction, Write, WriteAction};

    use super::*;

    fn transaction(updates: usize) -> Command {
        let update = |number: usize| Write {
            table: TableId(1),
            key: PrimaryKey { partition: KeyValue::S(number.to_string()), sort: None },
            action: WriteAction::Update(Update::default()),
            condition: None,
            return_old: false,
            return_new: false,
            return_on_failure: false,
        };
        let operations = (0..updates).map(update).collect();
        Command::Transaction(Box::new(Transaction { token: None, operations }))
    }

    /// Goal: small updates that may write large items do not all go into one entry.
    #[test]
    fn an_entry_is_full_when_it_has_its_writes() {
        let (proposals, mut waiting) = mpsc::channel(PROPOSALS_MAX);
        let clock = Clock::with_source(EpochMillis(0), Box::new(|| EpochMillis(1_000)));
        let mut outcomes = Vec::new();
        for _ in 0..41 {
            let (outcome, received) = oneshot::channel();
            let commands = vec![transaction(100)];
            let submission = PendingCommands::new(Submission { asked_at: clock.now(), commands });
            proposals.try_send(Proposal { submission, outcome }).ok().unwrap();
            outcomes.push(received);
        }
        for (writes_max, expected) in [(Budget::new().writes_max(), 100), (162, 200), (4096, 3_800)]
        {
            let first = waiting.try_recv().unwrap();
            let encoder = EntryEncoder::with_room(0);
            let gathered = gather(encoder, first, &mut waiting, &clock, writes_max).unwrap();
            assert_eq!(gathered.writes, expected);
            assert_eq!(gathered.waiters.len(), expected / 100);
        }
    }

    /// Goal: abandoned commands do not stay in memory, even if the queue is blocked for a long
    /// time.
    #[tokio::test]
    async fn abandoned_commands_are_taken_back() {
        let (proposals, mut waiting) = mpsc::channel(PROPOSALS_MAX);
        let proposer = Proposer { proposals };
        let commands = vec![transaction(100)];
        let submission = Submission { asked_at: EpochMillis(0), commands };
        let mut asking = Box::pin(proposer.propose(submission));
        assert!(futures::poll!(&mut asking).is_pending());
        let proposal = waiting.try_recv().ok().unwrap();
        drop(asking);
        assert!(proposal.submission.take().is_none());
    }
}
