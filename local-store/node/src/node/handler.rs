//! Handling of messages from other nodes.

use std::sync::atomic::Ordering;

use futures::future::BoxFuture;
use partition::mutation::{self, Mutation};

use super::Node;
use crate::error::SubmitError;
use crate::forward::{Submission, decode, decode_submission, encode, encode_replies};
use crate::proposer::Rejection;
use crate::remote::Wanted;
use crate::remote::read::find;
use crate::transport::{Envelope, FORWARD_TIMEOUT, Request, Response};

impl Node {
    async fn answer_submit(&self, submission: Submission) -> Response {
        match self.inner.proposer.propose(submission).await {
            Ok((index, replies)) => match encode_replies(&replies) {
                Ok(replies) => Response::Submitted { index, replies },
                Err(error) => Response::Unknown(error.to_string()),
            },
            Err(unproposed) => Rejection::from(unproposed).into(),
        }
    }

    /// Reads keys and ranges for a node that has no replica of the group.
    async fn answer_read(&self, wanted: &Wanted) -> Response {
        let is_strong = wanted.is_strong && !mutation::is_active(Mutation::RemoteReadWithoutIndex);
        let index = match is_strong {
            true => match self.inner.reader.read_index().await {
                Ok(index) => index.max(wanted.at_least),
                Err(rejection) => return rejection.into(),
            },
            false => wanted.at_least,
        };
        let index = if mutation::is_active(Mutation::RemoteReadUnapplied) { 0 } else { index };
        // The sender waits only this long.
        match tokio::time::timeout(FORWARD_TIMEOUT, self.applied(index)).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => return Response::Refused(error.to_string()),
            Err(_) => return Response::Refused(format!("entry {index} is not applied yet")),
        }
        let replica = &self.inner.replica;
        // The version is read before the view, so the view contains the tables of this version.
        let versions = replica.versions();
        let found = find(&*replica.view(), wanted, versions).map_err(|error| error.to_string());
        match found.and_then(|found| encode(&found).map_err(|error| error.to_string())) {
            Ok(bytes) => Response::Read(bytes),
            Err(reason) => Response::Refused(reason),
        }
    }

    /// Handles a message from another node, and returns the response.
    pub fn handle(&self, message: Envelope) -> BoxFuture<'_, Response> {
        Box::pin(self.handle_inner(message))
    }

    async fn handle_inner(&self, message: Envelope) -> Response {
        let is_for_this = message.to == self.inner.id || message.request.is_of_client();
        if !is_for_this || message.arc != self.inner.arc {
            let (to, arc) = (message.to, message.arc);
            return Response::Refused(format!(
                "this is node {} of {}, not node {to} of {arc}",
                self.inner.id, self.inner.arc
            ));
        }
        let raft = &self.inner.raft;
        let stopped = |error: &dyn std::error::Error| Response::Refused(error.to_string());
        match message.request {
            Request::Append(request) => {
                self.inner.has_heard_leader.store(true, Ordering::Relaxed);
                match raft.append_entries(request).await {
                    Ok(response) => Response::Append(response),
                    Err(error) => stopped(&error),
                }
            }
            Request::Vote(mut request) => {
                // After a start, the library rejects votes for a while to protect the leader that
                // the node last knew. A node that has not heard from a leader since its start has
                // no leader to protect, so it votes immediately.
                request.leadership_transfer |= !self.inner.has_heard_leader.load(Ordering::Relaxed);
                match raft.vote(request).await {
                    Ok(response) => Response::Vote(response),
                    Err(error) => stopped(&error),
                }
            }
            Request::PreVote(request) => match raft.pre_vote(request).await {
                Ok(response) => Response::Vote(response),
                Err(error) => stopped(&error),
            },
            Request::Snapshot(part) => self.inner.receiver.take(raft, message.from, *part).await,
            Request::Submit(bytes) => match decode_submission(&bytes) {
                Ok(submission) => {
                    let now = self.inner.clock.now();
                    if submission.is_too_old(now) {
                        return Response::TooOld { now };
                    }
                    // The sender waits only this long. A submission that waits longer would only
                    // occupy memory.
                    let answer = self.answer_submit(submission);
                    let answer = tokio::time::timeout(FORWARD_TIMEOUT, answer).await;
                    let late = || Response::Unknown("not applied in time".to_owned());
                    answer.unwrap_or_else(|_| late())
                }
                Err(error) => Response::Refused(error.to_string()),
            },
            Request::ReadIndex => match self.inner.reader.read_index().await {
                Ok(index) => Response::ReadIndex { index },
                Err(rejection) => rejection.into(),
            },
            Request::Read(bytes) => match decode(&bytes) {
                Ok(wanted) => self.answer_read(&wanted).await,
                Err(error) => Response::Refused(error.to_string()),
            },
            Request::Status => Response::Status(Box::new(self.status())),
            Request::TransferLeader(request) => match raft.handle_transfer_leader(request).await {
                // A node that cannot lead does not start an election.
                Ok(_) => Response::LeaderTransferred,
                Err(error) => stopped(&error),
            },
        }
    }
}

impl From<Rejection> for Response {
    fn from(rejection: Rejection) -> Self {
        match rejection {
            Rejection::NotLeader => Self::NotLeader,
            Rejection::Failed(SubmitError::NotDone(reason)) => Self::Refused(reason),
            Rejection::Failed(SubmitError::Unknown(reason)) => Self::Unknown(reason),
        }
    }
}
