//! The reader: concurrent strong reads share one round of messages.
//!
//! A strong read has to know that no other node leads. Therefore the leader asks a majority after
//! the read began (read index, Ongaro 2014, section 6.4). Responses to earlier messages do not
//! count, so no clock has to be trusted, and a paused leader serves no stale data.

use openraft::ReadPolicy;
use openraft::errors::{LinearizableReadError, RaftError};
use tokio::sync::{mpsc, oneshot};

use crate::error::SubmitError;
use crate::proposer::Rejection;
use crate::raft::Raft;

/// The most reads that wait; beyond that, requests wait in their connections.
const READS_MAX: usize = 4096;

type Answer = Result<u64, Rejection>;

/// A handle on the reader.
#[derive(Clone)]
pub(super) struct Reader {
    reads: mpsc::Sender<oneshot::Sender<Answer>>,
}

impl Reader {
    /// Starts the reader's task, which ends when the last handle is dropped.
    pub(super) fn start(raft: Raft) -> Self {
        let (reads, waiting) = mpsc::channel(READS_MAX);
        tokio::spawn(run(raft, waiting));
        Self { reads }
    }

    /// Returns the log index that a read which begins now must see, if this node leads.
    pub(super) async fn read_index(&self) -> Answer {
        let (answer, received) = oneshot::channel();
        let stopping =
            || Rejection::Failed(SubmitError::NotDone("the node is stopping".to_owned()));
        self.reads.send(answer).await.map_err(|_| stopping())?;
        received.await.unwrap_or_else(|_| Err(stopping()))
    }
}

async fn run(raft: Raft, mut waiting: mpsc::Receiver<oneshot::Sender<Answer>>) {
    let mut reads = Vec::new();
    // One round of messages answers only the reads that arrived before it began.
    while waiting.recv_many(&mut reads, READS_MAX).await > 0 {
        let found = raft.get_read_log_id(ReadPolicy::ReadIndex).await;
        for read in reads.drain(..) {
            let answer = match &found {
                Ok((at, _)) => Ok(at.index()),
                Err(RaftError::APIError(LinearizableReadError::ForwardToLeader(_))) => {
                    Err(Rejection::NotLeader)
                }
                Err(error) => Err(Rejection::Failed(SubmitError::NotDone(error.to_string()))),
            };
            // The client may have gone, in which case it needs no answer.
            let _ = read.send(answer);
        }
    }
}
