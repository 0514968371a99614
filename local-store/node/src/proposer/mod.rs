//! The proposer: everything that is ready becomes one log entry, and one entry is under way.
//!
//! While an entry is under way, further proposals gather; so the busier a node is, the more commands
//! share an entry, its messages and its syncs. It runs on every node and has work on the leader only.

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
use crate::types::{CallBack, NodeId, Payload, TypeConfig};

/// Proposals in one entry at most: as many as there are connections.
const PROPOSALS_PER_ENTRY: usize = 1024;
/// Bytes after which an entry takes no further proposal: some of the largest items.
const BYTES_PER_ENTRY: usize = 4 * 1024 * 1024;
/// Bytes of one proposal at most. A request of 16 MB fits unless it says its values, or long names,
/// in several expressions or steps of paths: each of them has its own copy.
pub(super) const PROPOSAL_BYTES_MAX: usize = REQUEST_BYTES_MAX;
/// Bytes of an entry at most: the last proposal may come when there is just room for one.
pub(super) const ENTRY_BYTES_MAX: usize =
    ENTRY_HEAD_BYTES_MAX + BYTES_PER_ENTRY + PROPOSAL_BYTES_MAX;
/// Entries under way at most: while one is synced and applied, the next one gathers. Two would make
/// smaller entries: on two cores a put took a seventh more processor time, and fewer were made.
const ENTRIES_UNDER_WAY: usize = 1;
/// Proposals that wait at most; beyond that, requests wait in their connections.
const PROPOSALS_MAX: usize = 4096;

/// What became of a proposal: the log index of its entry, and a reply for each command. The index is
/// that of the first entry of all when nothing was proposed.
pub(super) type Outcome = Result<(u64, Vec<Reply>), Unproposed>;

/// Why a proposal has no replies.
pub(super) enum Unproposed {
    /// It was not proposed, as this node does not lead, or as it was too old: here is what was to be
    /// proposed.
    NotLeader(Option<NodeId>, Submission),
    /// See there.
    Failed(SubmitError),
}

/// Why a question to the leader has no answer.
pub(super) enum Rejection {
    /// It was not asked, as this node does not lead.
    NotLeader,
    /// See there.
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

/// Commands of one request, and where their replies go.
pub(super) struct Proposal {
    submission: Held,
    outcome: oneshot::Sender<Outcome>,
}

/// The commands of a request, until they are gathered or nobody waits for them any more: without a
/// majority, or on a full disk, what clients gave up must not stay in memory.
#[derive(Clone)]
struct Held(Arc<Mutex<Option<Submission>>>);

impl Held {
    fn new(submission: Submission) -> Self {
        Self(Arc::new(Mutex::new(Some(submission))))
    }

    fn take(&self) -> Option<Submission> {
        self.0.lock().take()
    }
}

/// Takes the commands back when it is dropped.
struct Waiting(Held);

impl Drop for Waiting {
    fn drop(&mut self) {
        self.0.take();
    }
}

/// Where to propose.
#[derive(Clone)]
pub(super) struct Proposer {
    proposals: mpsc::Sender<Proposal>,
}

impl Proposer {
    /// Starts the proposer's task. It ends when no handle is left.
    pub(super) fn start(raft: Raft, clock: Arc<Clock>) -> Self {
        let (proposals, waiting) = mpsc::channel(PROPOSALS_MAX);
        tokio::spawn(run(raft, clock, waiting));
        Self { proposals }
    }

    /// Proposes commands, in order, in one entry, and waits until it is applied here.
    pub(super) async fn propose(&self, submission: Submission) -> Outcome {
        let (outcome, received) = oneshot::channel();
        let stopping =
            || Unproposed::Failed(SubmitError::NotDone("the node is stopping".to_owned()));
        let submission = Held::new(submission);
        let _waiting = Waiting(submission.clone());
        self.proposals.send(Proposal { submission, outcome }).await.map_err(|_| stopping())?;
        let unknown = "the node stopped before the outcome was known".to_owned();
        received.await.unwrap_or(Err(Unproposed::Failed(SubmitError::Unknown(unknown))))
    }
}

/// Who waits for the replies of an entry.
struct Waiter {
    /// How many of the entry's commands are its own.
    commands: usize,
    /// When they were asked for.
    asked_at: EpochMillis,
    outcome: oneshot::Sender<Outcome>,
}

/// What was gathered: an entry, its bytes, and who waits for it, in the order of their commands.
struct Gathered {
    entry: Arc<Entry>,
    bytes: Bytes,
    waiters: Vec<Waiter>,
    /// How many items its commands may make.
    writes: usize,
}

async fn run(raft: Raft, clock: Arc<Clock>, mut waiting: mpsc::Receiver<Proposal>) {
    let under_way = Arc::new(Semaphore::new(ENTRIES_UNDER_WAY));
    let budget = Arc::new(Budget::new());
    let mut bytes_before = 0;
    while let Some(first) = waiting.recv().await {
        let Ok(permit) = Arc::clone(&under_way).acquire_owned().await else { return };
        // The last entry says how much room this one is likely to need.
        let encoder = EntryEncoder::with_room(bytes_before);
        let gathered = gather(encoder, first, &mut waiting, &clock, budget.writes_max());
        let Gathered { entry, bytes, waiters, writes } = match gathered {
            Ok(gathered) => gathered,
            Err(error) => {
                // A defect of ours: nothing was proposed, and the waiters learn it by the drop.
                tracing::error!(%error, "commands cannot be encoded");
                continue;
            }
        };
        if waiters.is_empty() {
            continue;
        }
        bytes_before = bytes.len();
        let payload = Payload::of(bytes, Arc::clone(&entry));
        let learner = Arc::clone(&budget);
        let answer = CallBack::new(move |result: ClientWriteResult<TypeConfig>| {
            if let Ok(response) = &result {
                learner.learn(writes, &response.data.0);
            }
            drop(permit);
            distribute(result, &entry, waiters);
        });
        // If it fails, the node has stopped, and dropping the waiters tells them.
        if raft.client_write_ff(payload, Some(answer)).await.is_err() {
            tracing::debug!("a proposal came after the end");
        }
    }
}

/// Takes proposals into an entry until none is ready or it is large enough: the last one brings it to
/// `writes_max`, or to its bytes.
fn gather(
    mut encoder: EntryEncoder,
    first: Proposal,
    waiting: &mut mpsc::Receiver<Proposal>,
    clock: &Clock,
    writes_max: usize,
) -> Result<Gathered, EntryError> {
    let (mut commands, mut waiters) = (Vec::new(), Vec::new());
    let mut writes = 0;
    let mut next = Some(first);
    while let Some(Proposal { submission, outcome }) = next {
        let Some(submission) = submission.take().filter(|_| !outcome.is_closed()) else {
            // Nobody waits for it any more, and nobody was told that it was made.
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
        // The bytes are kept for a while: not with the room that this entry did not need.
        bytes.shrink_to_fit();
    }
    let bytes = Bytes::from(bytes).slice(begins_at..);
    let entry = Arc::new(Entry { now, commands });
    Ok(Gathered { entry, bytes, waiters, writes })
}

/// What commands are answered with that no entry has room for.
pub(super) fn refuse_as_too_large(commands: &[Command]) -> Vec<Reply> {
    let refuse = |command: &Command| match command {
        Command::Transaction(_) | Command::Prepare(_) => TRANSACTION_TOO_LARGE.to_owned(),
        _ => format!(
            "The request is too large: its values and names take more than {PROPOSAL_BYTES_MAX} \
             bytes, counted once for each expression that they stand in"
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
                // A requester that has gone away needs no reply.
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
                        // It is proposed elsewhere.
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

    /// Goal: updates that say little, and may make much, do not all come into one entry.
    #[test]
    fn an_entry_is_full_when_it_has_its_writes() {
        let (proposals, mut waiting) = mpsc::channel(PROPOSALS_MAX);
        let clock = Clock::with_source(EpochMillis(0), Box::new(|| EpochMillis(1_000)));
        let mut outcomes = Vec::new();
        for _ in 0..41 {
            let (outcome, received) = oneshot::channel();
            let commands = vec![transaction(100)];
            let submission = Held::new(Submission { asked_at: clock.now(), commands });
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

    /// Goal: what nobody waits for any more takes no memory, however long the queue stands still.
    #[tokio::test]
    async fn commands_are_taken_back_when_nobody_waits() {
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
