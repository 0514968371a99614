//! Leases: who has a task, and for how long others leave it to them.
//!
//! A lease is short, because a worker that has died holds its task up until the lease ends; and a page
//! may take as long as an invocation. So a lease is renewed while its task is worked on. Whoever finds
//! it taken or ended by somebody else, or could not renew it until its end, ends the slice and notes
//! nothing of it: others may work on the task from then on, which does no harm. What is under way is
//! not cut off: a delete whose answer nobody reads may have met an item that has to be put back.

use std::pin::pin;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use futures::future::{Either, select};
use model::{AttributeValue, Item, Number};
use tokio::time::{Instant, timeout_at};

use super::control::{Control, SHARE, Task};
use super::task::{Idle, Later};
use crate::failure::Failure;

/// How long others leave a task to its worker, unless that renews it.
pub(super) const LEASE: Duration = Duration::from_secs(8);
/// How often a lease is renewed: longer than a usual slice, which then needs no renewal, and so often
/// that one which fails can be made again.
const RENEW_EVERY: Duration = Duration::from_secs(3);
/// How long one request of a renewal may take, so that another one fits into what is left of the lease.
const RENEWAL_MAX: Duration = Duration::from_secs(2);
/// The wait before a renewal that failed is made again; until the end of a lease that is some times.
const RENEWAL_PAUSE: Duration = Duration::from_millis(500);

/// Writes into a task's entry that its owner has it from now on.
fn lend(item: &mut Item) {
    let until = now_ms() + u64::try_from(LEASE.as_millis()).unwrap_or(0);
    item.insert("leased_until".to_owned(), AttributeValue::N(Number::from(until)));
}

/// For how long another worker has a task, if one has.
pub(super) fn held_by_another(task: &Task, name: &str, now: u64) -> Option<Later> {
    let is_held = task.leased_until > now && task.owner.as_deref() != Some(name);
    // A clock may be wrong by any amount; no lease is longer than this.
    let left = Duration::from_millis(task.leased_until.saturating_sub(now)).min(LEASE);
    let reason = "another worker has this task".to_owned();
    is_held.then_some(Later { reason, at_most: Some(left) })
}

/// Takes the lease of the task that a record told of.
///
/// # Errors
/// When the control table cannot be read or written.
pub(crate) async fn lease(
    control: &Control,
    migration: &str,
    entry: &str,
    told_revision: u64,
    name: &str,
) -> Result<Result<Task, Idle>, Failure> {
    let Some(task) = control.get(migration, entry).await?.as_ref().and_then(Task::from_item) else {
        return Ok(Err(Idle::NothingToDo));
    };
    let now = now_ms();
    // A later revision without an owner has a record of its own. With one, its worker may have
    // died after it took the lease; then this record is the only one that is delivered again.
    if task.done || (task.revision > told_revision && task.owner.is_none()) {
        return Ok(Err(Idle::NothingToDo));
    }
    if let Some(later) = held_by_another(&task, name, now) {
        return Ok(Err(Idle::Later(later)));
    }
    let leased = task.next(|item| {
        item.insert("owner".to_owned(), AttributeValue::from(name));
        // A worker that died may have left its share.
        item.remove(SHARE);
        lend(item);
    });
    if !control.replace(&leased, task.revision).await? {
        return Ok(Err(Idle::Later("another worker took this task".into())));
    }
    Ok(Task::from_item(&leased).ok_or(Idle::NothingToDo))
}

/// Does `work` on a task that was leased, and renews its lease meanwhile. Gives what the work came to,
/// and the task as it stands then; none if somebody else has the task by then, or has ended it. The
/// work is awaited in any case.
///
/// # Errors
/// When the lease could not be renewed until its end.
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
    // What was read before the work begins takes of the lease.
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
        // A renewal is not left half-way where the task has to be given back: whoever does not know
        // whether it was written does not know the revision for that. What failed is put off, for which
        // the task is read anew, and there may be no time to wait.
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
                    // Whether it failed or not, it is not this worker's to note.
                    let _ = work.await;
                }
                return lost.map(|_| None);
            }
        }
    }
}

/// Renews the lease of a task; gives the task as it stands then, none if it is somebody else's.
async fn renewed(control: &Control, task: &Task, ends: Instant) -> Result<Option<Task>, Failure> {
    let mut failure = "nobody answered".to_owned();
    while Instant::now() < ends {
        match timeout_at(ends.min(Instant::now() + RENEWAL_MAX), renew(control, task)).await {
            Ok(Err(Failure::Retry(reason))) => failure = reason,
            Ok(ended) => return ended,
            // It may be written late; then the next one finds that.
            Err(_) => {}
        }
        tokio::time::sleep(RENEWAL_PAUSE).await;
    }
    Err(Failure::Retry(format!("the lease of the task could not be renewed: {failure}")))
}

async fn renew(control: &Control, task: &Task) -> Result<Option<Task>, Failure> {
    let next = task.next(lend);
    if control.replace(&next, task.revision).await? {
        return Ok(Task::from_item(&next));
    }
    // An earlier attempt may have written it whose answer did not come.
    let found = control.get(&task.migration, task.entry()).await?;
    let found = found.as_ref().and_then(Task::from_item);
    Ok(found.filter(|found| !found.done && found.owner.is_some() && found.owner == task.owner))
}

pub(super) fn now_ms() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use model::json::item_from_str;
    use serde_json::{Value, json};
    use tokio::sync::Notify;

    use super::super::Throttling;
    use super::*;
    use crate::tables::scripted::{endpoint, serve_as};

    /// A task that the worker `w` has.
    fn entry(owner: &str, revision: u64) -> Value {
        json!({
            "migration": {"S": "shop"}, "entry": {"S": "TASK#3#check-source#cats#0000"},
            "work": {"S": "check-source"}, "table": {"S": "cats"}, "segment": {"N": "0"},
            "segments": {"N": "1"}, "fingerprint": {"S": "f"}, "revision": {"N": revision.to_string()},
            "done": {"BOOL": false}, "owner": {"S": owner}, "leased_until": {"N": "9"},
        })
    }

    /// A task that the worker `w` has just leased.
    fn held() -> Task {
        let leased_until = now_ms() + u64::try_from(LEASE.as_millis()).unwrap();
        Task { leased_until, ..task(&entry("w", 4)) }
    }

    fn task(entry: &Value) -> Task {
        Task::from_item(&item_from_str(&entry.to_string()).unwrap()).unwrap()
    }

    /// The revision at the end of work that lasts for some renewals, over a table that answers as
    /// `decide` does; none if the task was lost.
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
        let task = task(&entry("w", 4));
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

    /// Goal: what a worker has under way is ended and judged, also when it has lost its task.
    #[tokio::test]
    async fn who_lost_a_task_ends_what_is_under_way_and_gives_nothing_back() {
        let mut done = entry("w", 5);
        done["done"] = json!({"BOOL": true});
        let mut free = entry("w", 5);
        free.as_object_mut().unwrap().remove("owner");
        for stands in [entry("v", 5), done, free] {
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
            _ => ("200 OK", json!({"Item": entry("w", 5)})),
        });
        assert!(found.await.is_some_and(|revision| revision >= 6));
    }

    #[tokio::test]
    async fn what_failed_is_told_without_a_renewal_that_nobody_answers() {
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
