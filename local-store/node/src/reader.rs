//! The reader: concurrent strong reads share one round of messages.
//!
//! A strong read requires that no other node leads. Therefore the leader contacts a majority after
//! the read began (read index, Ongaro 2014, section 6.4). Responses to earlier messages do not
//! count. Therefore the result does not depend on clocks, and a paused leader serves no stale data.

use openraft::ReadPolicy;
use openraft::errors::{LinearizableReadError, RaftError};
use tokio::sync::{mpsc, oneshot};

use crate::error::SubmitError;
use crate::proposer::Rejection;
use crate::raft::Raft;

/// The maximum number of waiting reads. Further requests wait in their connections.
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

    /// Returns the log index that a read must see if it begins now. Fails if this node does not
    /// lead.
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
            // The client may have disconnected, in which case it needs no answer.
            let _ = read.send(answer);
        }
    }
}
