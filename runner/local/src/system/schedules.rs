//! Runs the schedules of a template. Each schedule invokes its function at the times of its expression, by
//! the store's clock.
//!
//! If an advance of the clock skips several scheduled times, the function is invoked once for all of them. A
//! rate counts from the start of `weir up`, and times at which `weir up` was not running are skipped. A
//! failed invocation is retried as often as the template specifies. Retries that are waiting when
//! `weir up` ends are lost.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tokio::task::JoinSet;

use super::backing::Clock;
use crate::function::Function;
use mapping::InvokeOutcome;
use template::schedule_expression::{EventSource, scheduled_event};
use template::{Schedule, Stack};

/// The interval at which the clock is checked. Schedules have a resolution of a minute.
const LOOK: Duration = Duration::from_millis(200);

/// The maximum time that the shutdown waits for an invocation in progress, as for mappings.
const STOP_MAX: Duration = Duration::from_secs(10);

/// Lambda waits a minute before the second attempt of an asynchronous invocation, and two minutes before
/// the third (AWS Lambda guide, "How Lambda handles errors and retries with asynchronous invocation").
/// `weir` measures the waits by the store's clock.
const RETRY_WAIT_MS: i64 = 60_000;

/// The maximum number of invocations of one schedule that wait for a retry. A schedule that runs
/// once a minute has at most three waiting invocations.
const WAITING_MAX: usize = 16;

/// The running schedules of a template.
pub(crate) struct RunningSchedules {
    tasks: JoinSet<()>,
    shutdown: watch::Sender<bool>,
}

impl RunningSchedules {
    /// Waits for the invocations in progress, up to `STOP_MAX`, and stops the schedules.
    pub(crate) async fn stop(mut self) {
        let _ = self.shutdown.send(true);
        let all = async { while self.tasks.join_next().await.is_some() {} };
        if tokio::time::timeout(STOP_MAX, all).await.is_err() {
            tracing::warn!(
                "a scheduled invocation did not finish within {} s of the shutdown and is aborted",
                STOP_MAX.as_secs()
            );
            // Dropping an invocation kills its instance.
            self.tasks.shutdown().await;
        }
    }
}

/// Starts every enabled schedule.
pub(crate) fn start(
    stack: &Stack,
    functions: &BTreeMap<String, Arc<Function>>,
    clock: &Clock,
) -> RunningSchedules {
    let (shutdown, _) = watch::channel(false);
    let mut tasks = JoinSet::new();
    for schedule in stack.schedules.iter().filter(|schedule| schedule.enabled) {
        let Some(function) = functions.get(&schedule.function) else {
            continue;
        };
        let source = (stack.region.clone(), stack.account_id.clone());
        tasks.spawn(run(
            schedule.clone(),
            source,
            Arc::clone(function),
            Arc::clone(clock),
            shutdown.subscribe(),
        ));
    }
    RunningSchedules { tasks, shutdown }
}

/// A scheduled invocation: its event, and the number of attempts so far.
struct Invocation {
    event: String,
    due_ms: i64,
    attempts: u32,
}

/// The failed invocations, which are retried as Lambda retries asynchronous invocations.
struct Retries {
    waiting: Vec<Invocation>,
    retries_max: u32,
}

impl Retries {
    /// Schedules the retry of a failed invocation. Returns the time until the retry, or `None` if
    /// the failed attempt was the last.
    fn failed(&mut self, mut invocation: Invocation, now_ms: i64) -> Option<i64> {
        let attempts = invocation.attempts;
        if attempts > self.retries_max || self.waiting.len() >= WAITING_MAX {
            return None;
        }
        let wait_ms = i64::from(attempts) * RETRY_WAIT_MS;
        invocation.due_ms = now_ms.saturating_add(wait_ms);
        self.waiting.push(invocation);
        Some(wait_ms)
    }

    /// Removes and returns an invocation whose retry is due.
    fn due(&mut self, now_ms: i64) -> Option<Invocation> {
        let place = self.waiting.iter().position(|waiting| waiting.due_ms <= now_ms)?;
        Some(self.waiting.remove(place))
    }
}

async fn run(
    schedule: Schedule,
    (region, account): (String, String),
    function: Arc<Function>,
    clock: Clock,
    mut shutdown: watch::Receiver<bool>,
) {
    let start_ms = clock();
    let mut next = schedule.expression.next_after(start_ms, start_ms);
    let mut count = 0u64;
    let mut retries = Retries { waiting: Vec::new(), retries_max: schedule.retries };
    while next.is_some() || !retries.waiting.is_empty() {
        tokio::select! {
            _ = shutdown.changed() => return,
            () = tokio::time::sleep(LOOK) => {}
        }
        if let Some(again) = retries.due(clock()) {
            invoke(&schedule, &function, again, &mut retries, &clock).await;
        }
        let Some(due_ms) = next.filter(|due_ms| clock() >= *due_ms) else { continue };
        count += 1;
        let source = EventSource { rule: &schedule.logical_id, account: &account, region: &region };
        let id = format!("{:08x}-0000-4000-8000-{count:012x}", due_ms.unsigned_abs() & 0xffff_ffff);
        let event = match &schedule.input {
            Some(input) => input.clone(),
            None => scheduled_event(&source, &id, due_ms).to_string(),
        };
        let invocation = Invocation { event, due_ms, attempts: 0 };
        invoke(&schedule, &function, invocation, &mut retries, &clock).await;
        next = schedule.expression.next_after(start_ms, clock());
    }
}

async fn invoke(
    schedule: &Schedule,
    function: &Function,
    mut invocation: Invocation,
    retries: &mut Retries,
    clock: &Clock,
) {
    let name = &schedule.logical_id;
    invocation.attempts += 1;
    let attempts = invocation.attempts;
    let reason = match function.invoke(invocation.event.clone().into()).await {
        InvokeOutcome::Ok(_) => {
            tracing::debug!("schedule {name}: done");
            return;
        }
        InvokeOutcome::FunctionError { message, .. } => message,
        InvokeOutcome::NotInvoked(reason) => format!("not invoked: {reason}"),
    };
    match retries.failed(invocation, clock()) {
        Some(wait_ms) => {
            let wait_s = wait_ms / 1000;
            tracing::warn!(
                "schedule {name}: attempt {attempts} failed, the next attempt is in {wait_s} s: {reason}"
            );
        }
        None => tracing::warn!(
            "schedule {name}: event discarded after {attempts} failed attempts: {reason}"
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn invocation(attempts: u32) -> Invocation {
        Invocation { event: "{}".to_owned(), due_ms: 0, attempts }
    }

    #[test]
    fn a_failed_invocation_is_tried_again_after_one_minute_and_after_two_more() {
        for (retries_max, waits) in [
            (0, [None, None, None]),
            (1, [Some(60_000), None, None]),
            (2, [Some(60_000), Some(120_000), None]),
        ] {
            let mut retries = Retries { waiting: Vec::new(), retries_max };
            let found = [1, 2, 3].map(|attempts| retries.failed(invocation(attempts), 5));
            assert_eq!(found, waits, "{retries_max}");
        }
    }

    #[test]
    fn a_retry_comes_at_its_time_and_once() {
        let mut retries = Retries { waiting: Vec::new(), retries_max: 2 };
        retries.failed(invocation(2), 0);
        retries.failed(invocation(1), 0);
        let mut due = |now_ms| retries.due(now_ms).map(|found| found.attempts);
        assert_eq!(due(59_999), None);
        assert_eq!(due(60_000), Some(1));
        assert_eq!(due(60_000), None);
        // An advance of the clock ends the wait.
        assert_eq!(due(90_000_000), Some(2));
        assert_eq!(due(90_000_000), None);
    }

    #[test]
    fn not_more_wait_than_can_be_kept() {
        let mut retries = Retries { waiting: Vec::new(), retries_max: 2 };
        for _ in 0..WAITING_MAX {
            assert!(retries.failed(invocation(1), 0).is_some());
        }
        assert_eq!(retries.failed(invocation(1), 0), None);
    }
}
