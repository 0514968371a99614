//! Clients that vote in the slots of a counter, in two ways. The outcome of an `ADD` may stay
//! unknown. A transaction with a token is retried until its outcome is known, and its vote must
//! then be counted exactly once.

use super::{Client, number, update};
use crate::checkers::totals::COUNT;
use crate::history::WriteOutcome;
use crate::request::{Answer, Endpoint, Expression, Request};

/// The number of slots of the counter.
const SLOTS: usize = 4;

/// Runs until the signal to end.
pub async fn run<E: Endpoint>(mut client: Client<E>) {
    while client.pause().await {
        let slot = format!("slot-{}", client.choose(SLOTS - 1));
        let id = client.history.write_id();
        let vote = Expression::new(&format!(" ADD {COUNT} :one")).with(":one", number(1));
        let vote = update(&slot, id, &vote, None);
        let insists = client.choose(1) == 0;
        let call = client.history.tick();
        let (fate, told) = if insists {
            (client.retry_transaction(format!("vote-{id}"), vec![vote]).await, None)
        } else {
            match client.send(Request::Write(vote)).await {
                Ok(Answer::Written { new, .. }) => {
                    let count = new.and_then(|item| item.get(COUNT)?.as_number()?.to_i128());
                    (WriteOutcome::Acknowledged, count)
                }
                Ok(other) => {
                    client.record_defect("a vote", &other);
                    continue;
                }
                Err(fate) => (fate, None),
            }
        };
        let end = client.history.tick();
        client.history.wrote(id, &slot, fate);
        let mut records = client.history.records();
        let votes = records.votes.entry(slot).or_default();
        match fate {
            WriteOutcome::Acknowledged => votes.counted += 1,
            WriteOutcome::Unknown => votes.unknown += 1,
            WriteOutcome::NotApplied => {}
        }
        votes.acknowledged_counts.extend(told.map(|count| (call, end, count)));
    }
}
