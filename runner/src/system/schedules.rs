//! The schedules of a template: each invokes its function when the store's time says so.
//!
//! A time that passes while the runner is off, or that a leap of the clock skips, is made up for
//! once, as the function's own reconciliation does not count how often it runs.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tokio::task::JoinSet;

use super::backing::Clock;
use crate::function::Function;
use crate::mapping::InvokeOutcome;
use crate::schedule::{EventSource, scheduled_event};
use crate::template::{Schedule, Stack};

/// How often the clock is looked at: schedules have a resolution of a minute.
const LOOK: Duration = Duration::from_millis(200);

/// Schedules that are running.
pub(crate) struct RunningSchedules {
    tasks: JoinSet<()>,
    shutdown: watch::Sender<bool>,
}

impl RunningSchedules {
    /// Stops after the invocations that are under way.
    pub(crate) async fn stop(mut self) {
        let _ = self.shutdown.send(true);
        while self.tasks.join_next().await.is_some() {}
    }
}

/// Starts every schedule that is enabled.
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

async fn run(
    schedule: Schedule,
    (region, account): (String, String),
    function: Arc<Function>,
    clock: Clock,
    mut shutdown: watch::Receiver<bool>,
) {
    let start_ms = clock();
    let mut due = schedule.expression.next_after(start_ms, start_ms);
    let mut count = 0u64;
    while let Some(due_ms) = due {
        tokio::select! {
            _ = shutdown.changed() => return,
            () = tokio::time::sleep(LOOK) => {}
        }
        if clock() < due_ms {
            continue;
        }
        count += 1;
        let source = EventSource { rule: &schedule.logical_id, account: &account, region: &region };
        let id = format!("{:08x}-0000-4000-8000-{count:012x}", due_ms.unsigned_abs() & 0xffff_ffff);
        let event = match &schedule.input {
            Some(input) => input.clone(),
            None => scheduled_event(&source, &id, due_ms).to_string(),
        };
        match function.invoke(event.into()).await {
            InvokeOutcome::Ok(_) => tracing::debug!("schedule {}: done", schedule.logical_id),
            InvokeOutcome::FunctionError { message, .. } => {
                tracing::warn!("schedule {}: {message}", schedule.logical_id);
            }
            InvokeOutcome::NotInvoked(reason) => {
                tracing::warn!("schedule {}: not invoked: {reason}", schedule.logical_id);
            }
        }
        due = schedule.expression.next_after(start_ms, clock());
    }
}
