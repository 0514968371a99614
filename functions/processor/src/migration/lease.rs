//! Leases: which worker owns a task, and until when other workers must not take it.
//!
//! A lease is short, because a crashed worker blocks its task until the lease ends. But a page may
//! take as long as an invocation, so a worker renews the lease while it processes the task. The
//! worker ends the slice and saves nothing in three cases: another worker has leased the task, the
//! task has ended, or the lease expired before it could be renewed. Other workers may then process
//! the same task, which is safe. Requests in flight are not cancelled, because their responses must
//! be evaluated: a delete may have removed an item that must be restored.

use std::pin::pin;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use control::Task;
use futures::future::{Either, select};
use tokio::time::{Instant, timeout_at};

use super::control_table::Control;
use super::task::RecheckReason;
use crate::failure::Failure;

/// Duration of a lease that is not renewed.
pub(super) const LEASE: Duration = Duration::from_secs(8);
/// Interval of renewals. It is longer than a typical slice, which then needs no renewal, and short
/// enough to retry a failed renewal.
const RENEW_EVERY: Duration = Duration::from_secs(3);
/// Timeout of one renewal request. Another request fits into the rest of the lease.
const RENEWAL_MAX: Duration = Duration::from_secs(2);
/// The wait before a failed renewal is retried. Several waits fit into a lease.
const RENEWAL_PAUSE: Duration = Duration::from_millis(500);

/// A leased task, or the reason why the worker must check the task again; `Err(None)` if the record
/// needs no more work.
pub(super) type Leased = Result<Task, Option<RecheckReason>>;

/// Returns the end of a lease that begins now, in milliseconds since 1970.
fn lease_end() -> u64 {
    now_ms() + u64::try_from(LEASE.as_millis()).unwrap_or(0)
}

/// Returns how long to wait for another worker's lease of the task; `None` if no other worker
/// leases the task.
pub(super) fn held_by_another(task: &Task, name: &str, now: u64) -> Option<RecheckReason> {
    // The clock of the other worker may be wrong by any amount, but no lease is longer than
    // `LEASE`.
    let left = Duration::from_millis(task.leased_until.saturating_sub(now)).min(LEASE);
    let reason = "another worker has this task".to_owned();
    task.is_leased_by_another(name, now).then_some(RecheckReason { reason, at_most: Some(left) })
}

/// Leases the task of a record to the worker `name`.
///
/// # Errors
/// When the control table cannot be read or written.
pub(super) async fn lease(
    control: &Control,
    offered: &Task,
    name: &str,
) -> Result<Leased, Failure> {
    let Some(mut task) = control.reread(offered).await?.filter(|task| !task.outdates(offered))
    else {
        return Ok(Err(None));
    };
    if let Some(later) = held_by_another(&task, name, now_ms()) {
        return Ok(Err(Some(later)));
    }
    task.lease(name, lease_end());
    let leased = control.replace(task).await?;
    Ok(leased.ok_or_else(|| Some("another worker leased this task".into())))
}

/// Runs `work` on a leased task, and renews the lease meanwhile. Returns the result of the work and
/// the current task. Returns `None` if another worker has leased the task meanwhile, or the task
/// has ended. Even then, the work runs to completion.
///
/// # Errors
/// When the lease could not be renewed before it expired.
pub(super) async fn while_held<T, E>(
    control: &Control,
    task: &Task,
    work: impl Future<Output = Result<T, E>>,
) -> Result<Option<(Result<T, E>, Task)>, Failure> {
    renewed_every(RENEW_EVERY, control, task, work).await
}

async fn renewed_every<T, E>(
    every: Duration,
    control: &Control,
    task: &Task,
    work: impl Future<Output = Result<T, E>>,
) -> Result<Option<(Result<T, E>, Task)>, Failure> {
    let mut work = pin!(work);
    // The reads before the work have used up a part of the lease.
    let left = Duration::from_millis(task.leased_until.saturating_sub(now_ms())).min(LEASE);
    let (mut task, mut ends) = (task.clone(), Instant::now() + left);
    loop {
        tokio::select! {
            biased;
            done = &mut work => return Ok(Some((done, task))),
            () = tokio::time::sleep(every) => {}
        }
        let begun = Instant::now();
        let renewing = Box::pin(renewed(control, &task, ends));
        // After successful work, a renewal in progress is awaited, because its outcome determines
        // the revision with which the task is saved. After failed work, the renewal is not awaited:
        // the task is read again before it is saved, and the invocation may be about to end.
        let (renewed, done) = match select(&mut work, renewing).await {
            Either::Left((Err(failed), _)) => return Ok(Some((Err(failed), task.clone()))),
            Either::Left((done, renewing)) => (renewing.await, Some(done)),
            Either::Right((renewed, _)) => (renewed, None),
        };
        match (renewed, done) {
            (Ok(Some(renewed)), None) => (task, ends) = (renewed, begun + LEASE),
            (Ok(Some(renewed)), Some(done)) => return Ok(Some((done, renewed))),
            (lost, done) => {
                if done.is_none() {
                    // Another worker owns the task now, so the result is not saved.
                    let _ = work.await;
                }
                return lost.map(|_| None);
            }
        }
    }
}

/// Renews the lease of a task. Returns the current task; `None` if another worker has leased the
/// task or the task has ended.
async fn renewed(control: &Control, task: &Task, ends: Instant) -> Result<Option<Task>, Failure> {
    let mut failure = "the control table did not respond in time".to_owned();
    while Instant::now() < ends {
        match timeout_at(ends.min(Instant::now() + RENEWAL_MAX), renew(control, task)).await {
            Ok(Err(Failure::Retry(reason))) => failure = reason,
            Ok(ended) => return ended,
            // The request may take effect later. The next attempt detects a late effect.
            Err(_) => {}
        }
        tokio::time::sleep(RENEWAL_PAUSE).await;
    }
    Err(Failure::Retry(format!("the lease of the task could not be renewed: {failure}")))
}

async fn renew(control: &Control, task: &Task) -> Result<Option<Task>, Failure> {
    let next = Task { leased_until: lease_end(), ..task.clone() };
    if let Some(renewed) = control.replace(next).await? {
        return Ok(Some(renewed));
    }
    // The table has a different revision. An earlier attempt may have succeeded although its
    // response was lost.
    let found = control.reread(task).await?;
    Ok(found.filter(|found| !found.done && found.owner.is_some() && found.owner == task.owner))
}

pub(super) fn now_ms() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use control::Work;
    use serde_json::{Value, json};
    use tokio::sync::Notify;

    use super::super::Throttling;
    use super::super::control_table::tests::json_of;
    use super::*;
    use crate::tables::scripted::{endpoint, serve_as};

    /// Returns a task that a worker owns.
    fn task(owner: &str, revision: u64) -> Task {
        let task = Task::new("shop", 3, Work::CheckSource, "cats");
        Task { revision, owner: Some(owner.to_owned()), leased_until: 9, ..task }
    }

    /// Returns a task that the worker `w` leased just now.
    fn held() -> Task {
        Task { leased_until: lease_end(), ..task("w", 4) }
    }

    /// Returns the revision of the task after work during which its lease is renewed; `None` if
    /// another worker has leased the task or it has ended. `decide` gives the table's answers.
    async fn revision_after(
        renewals: u32,
        mut decide: impl FnMut(&str, &Value) -> (&'static str, Value),
    ) -> Option<u64> {
        let (listener, client) = endpoint().await;
        let control = Control::new(client, "control".to_owned(), Throttling::default());
        let (seen, mut renewed) = (Notify::new(), 0);
        let serving = serve_as(listener, |operation, body| {
            let answer = decide(operation, &body);
            renewed += u32::from(operation == "putitem");
            if renewed == renewals {
                seen.notify_one();
            }
            answer
        });
        let work = async {
            seen.notified().await;
            Ok::<(), Failure>(())
        };
        let held = held();
        let work = renewed_every(Duration::from_millis(1), &control, &held, work);
        tokio::select! {
            ended = work => ended.unwrap().map(|(_, task)| task.revision),
            () = serving => panic!("nothing was answered"),
        }
    }

    fn is_refused() -> (&'static str, Value) {
        let name = "com.amazonaws.dynamodb.v20120810#ConditionalCheckFailedException";
        ("400 Bad Request", json!({"__type": name}))
    }

    #[test]
    fn a_task_is_left_to_its_worker_until_its_lease_ends() {
        let task = task("w", 4);
        assert!(held_by_another(&task, "v", 8).is_some_and(|later| later.is_of_a_lease()));
        assert_eq!(held_by_another(&task, "w", 8), None);
        assert_eq!(held_by_another(&task, "v", 9), None);
    }

    #[tokio::test]
    async fn a_lease_is_renewed_for_as_long_as_its_task_is_worked_on() {
        let (mut revision, mut until) = (4, 9);
        let found = revision_after(3, |operation, body| {
            assert_eq!(operation, "putitem");
            let number = |value: &Value| value["N"].as_str().unwrap().parse::<u64>().unwrap();
            assert_eq!(number(&body["ExpressionAttributeValues"][":guard"]), revision);
            revision = number(&body["Item"]["revision"]);
            let lent = number(&body["Item"]["leased_until"]);
            assert!(lent >= until && body["Item"]["owner"]["S"] == "w");
            until = lent;
            ("200 OK", json!({}))
        });
        let found = found.await;
        assert_eq!(found, Some(revision));
        assert!(revision >= 7, "{revision}");
    }

    /// Even if a worker loses its task, its requests in flight are completed and evaluated.
    #[tokio::test]
    async fn a_worker_without_its_task_finishes_requests_and_saves_nothing() {
        let done = Task { done: true, ..task("w", 5) };
        let free = Task { owner: None, ..task("w", 5) };
        for stands in [task("v", 5), done, free] {
            let stands = json_of(&stands);
            let (listener, client) = endpoint().await;
            let control = Control::new(client, "control".to_owned(), Throttling::default());
            let (lost, is_over) = (Notify::new(), std::cell::Cell::new(false));
            let serving = serve_as(listener, |operation, _| match operation {
                "putitem" => is_refused(),
                _ => {
                    lost.notify_one();
                    ("200 OK", json!({"Item": stands}))
                }
            });
            let held = held();
            let work = async {
                lost.notified().await;
                tokio::time::sleep(Duration::from_millis(20)).await;
                is_over.set(true);
                Ok::<(), Failure>(())
            };
            let renewing = renewed_every(Duration::from_millis(1), &control, &held, work);
            let ended = tokio::select! {
                ended = renewing => ended.unwrap(),
                () = serving => panic!("nothing was answered"),
            };
            assert!(ended.is_none() && is_over.get(), "{stands}");
        }
    }

    #[tokio::test]
    async fn a_renewal_whose_answer_was_lost_is_known_as_ones_own() {
        let mut is_first = true;
        let found = revision_after(2, |operation, body| match operation {
            "putitem" if std::mem::take(&mut is_first) => is_refused(),
            "putitem" => {
                assert_eq!(body["ExpressionAttributeValues"][":guard"]["N"], "5");
                ("200 OK", json!({}))
            }
            _ => ("200 OK", json!({"Item": json_of(&task("w", 5))})),
        });
        assert!(found.await.is_some_and(|revision| revision >= 6));
    }

    #[tokio::test]
    async fn a_failure_is_reported_without_waiting_for_a_renewal() {
        let (listener, client) = endpoint().await;
        let control = Control::new(client, "control".to_owned(), Throttling::default());
        let asked = Notify::new();
        let silent = async {
            let _asking = listener.accept().await.unwrap();
            asked.notify_one();
            std::future::pending::<()>().await;
        };
        let held = held();
        let work = async {
            asked.notified().await;
            Err::<(), &str>("no time")
        };
        let renewing = renewed_every(Duration::from_millis(1), &control, &held, work);
        let ended = tokio::select! {
            ended = renewing => ended.unwrap(),
            () = silent => panic!("nothing was answered"),
        };
        assert!(matches!(ended, Some((Err("no time"), _))));
    }
}
