//! Waits until a migration reaches a phase, and reports its progress.
//!
//! This module has one side effect: it changes the phase from `copying` to `tailing` once every
//! segment is read.

use std::time::{Duration, Instant};

use indicatif::HumanDuration;
use rules::migration::Phase;
use serde_json::{Value, json};

use crate::migrate::context::{Context, LOOK_EVERY, TOLD_EVERY};
use crate::migrate::failure::{Result, fatal};
use crate::migrate::report::backfill::advance;
use crate::migrate::report::failure_tolerance::{FailureTolerance, UNSEEN_MAX};
use crate::migrate::report::pointer::at;
use crate::migrate::report::progress::Progress;
use crate::migrate::report::status::describe;
use crate::migrate::report::status_line::line;
use crate::migrate::start::workers;
use client::exit::Exit;
use client::interruption;
use client::output::say;

/// Time without progress after which a waiting subcommand reports the lack of progress. A page of
/// the backfill normally takes less than a second.
const UNMOVED: Duration = Duration::from_secs(30);

/// A reporter of a migration's progress. It reports every change, and reports once if nothing has
/// changed for the time `UNMOVED`.
struct ProgressReporter {
    last_line: String,
    last_change: Instant,
    is_warned: bool,
}

impl ProgressReporter {
    fn new() -> Self {
        Self { last_line: String::new(), last_change: Instant::now(), is_warned: false }
    }

    fn report(&mut self, status: &Value) {
        // The estimate of the remaining time always changes. So the command does not report a
        // status in which only this estimate has changed.
        let progress = at(status, "/backfill").to_string() + &at(status, "/phase").to_string();
        interruption::reached(line(status));
        if progress != self.last_line {
            say(&line(status));
            (self.last_line, self.last_change, self.is_warned) = (progress, Instant::now(), false);
        } else if !self.is_warned
            && self.last_change.elapsed() > UNMOVED
            && at(status, "/phase") == "copying"
        {
            let why = at(status, "/throttled")
                .as_str()
                .map_or_else(|| workers::advice_of(status), str::to_owned);
            say(&format!("no progress for {} s: {why}", UNMOVED.as_secs()));
            self.is_warned = true;
        } else if !self.is_warned
            && self.last_change.elapsed() > UNMOVED
            && at(status, "/phase") == "preparing"
            && let Some(advice) = of_preparing(status)
        {
            say(&advice);
            self.is_warned = true;
        }
    }
}

/// Returns how to resume a start whose command was probably killed; `None` while the command may
/// still run.
fn of_preparing(status: &Value) -> Option<String> {
    let seconds = at(status, "/preparing_seconds").as_i64()?;
    let step = at(status, "/next_steps/0/command").as_str();
    let command = step.filter(|command| command.contains(" start "))?;
    Some(format!(
        "the command that started the migration has been inactive for {seconds} s: run `{command}` (PLAN is the plan file) to resume; it replaces the inactive command if that is still running"
    ))
}

/// Reports the backfill's progress until the migration is in one of `phases`.
pub(crate) async fn until(context: &Context, name: &str, phases: &[&str]) -> Result<()> {
    let (mut teller, mut patience) = (ProgressReporter::new(), FailureTolerance::new(UNSEEN_MAX));
    loop {
        // The streams are not read, because reading them would slow the workers down.
        if let Some(status) = patience.seen(describe(context, name, None).await)? {
            teller.report(&status);
            // Workers have to run until they have removed all marks.
            let is_swept = at(&status, "/unswept") != &json!(true);
            let phase = at(&status, "/phase").as_str();
            if is_swept && phase.is_some_and(|phase| phases.contains(&phase)) {
                return Ok(());
            }
        }
        tokio::time::sleep(TOLD_EVERY).await;
    }
}

/// Returns true if the migration is in the wanted phase, or in a later phase of the same direction.
fn is_reached(wanted: Phase, now: Phase) -> bool {
    let is_back = |phase: Phase| (Phase::Reverting..=Phase::Reverted).contains(&phase);
    now == wanted || (now > wanted && now != Phase::Aborted && is_back(now) == is_back(wanted))
}

/// Waits until a migration reaches a phase or a later phase.
pub(crate) async fn wait(context: &Context, name: &str, phase: &str, timeout: u64) -> Result<Exit> {
    let wanted = Phase::from_name(phase).filter(|phase| *phase != Phase::None);
    let wanted = wanted.ok_or_else(|| {
        let known: Vec<_> = Phase::ALL.iter().skip(1).map(|phase| phase.as_str()).collect();
        fatal!("unknown phase `{phase}`; phases are {}", known.join(", "))
    })?;
    let (started, mut teller, mut now) = (Instant::now(), ProgressReporter::new(), Phase::None);
    let (mut told, mut backfill) = (None::<Instant>, Progress::default());
    let limit = Duration::from_secs(timeout);
    let (mut patience, mut for_status) =
        (FailureTolerance::after_first(limit), FailureTolerance::new(limit));
    loop {
        if let Some((state, seen)) = patience.seen(advance(context, name).await)? {
            (now, backfill) = (state.phase, seen);
        }
        let phase = now.as_str();
        if is_reached(wanted, now) {
            say(&format!("`{name}` is {phase} after {}", HumanDuration(started.elapsed())));
            return Ok(Exit::Done);
        }
        if now.has_ended() {
            return Err(fatal!("`{name}` is {phase}"));
        }
        if started.elapsed() > limit {
            let advice = match now {
                Phase::Copying => format!("; {}", workers::advice(name, &backfill)),
                Phase::Preparing => {
                    "; if no other command is starting the migration, resume with `weir migrate start PLAN` (PLAN is the plan file)"
                        .to_owned()
                }
                _ => String::new(),
            };
            say(&format!("`{name}` is still {phase} after {timeout} s{advice}"));
            return Ok(Exit::TimedOut);
        }
        // The status is read less often than the phase, because a read of the phase takes one
        // request, and a read of the status several.
        if told.is_none_or(|told| told.elapsed() > TOLD_EVERY) {
            if let Some(status) = for_status.seen(describe(context, name, None).await)? {
                teller.report(&status);
            }
            told = Some(Instant::now());
        }
        tokio::time::sleep(LOOK_EVERY).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_phase_can_be_waited_for_and_is_reached_by_later_ones() {
        for phase in Phase::ALL.into_iter().filter(|phase| *phase != Phase::None) {
            assert!(is_reached(phase, phase), "{phase:?}");
        }
        for (wanted, now, expected) in [
            (Phase::Tailing, Phase::Copying, false),
            (Phase::Tailing, Phase::CutOver, true),
            (Phase::Turning, Phase::CutOver, true),
            (Phase::Reverting, Phase::CutOver, false),
            (Phase::Reverting, Phase::Returning, true),
            (Phase::Reverting, Phase::Reverted, true),
            (Phase::CutOver, Phase::Reverting, false),
            (Phase::Aborted, Phase::Reverted, false),
        ] {
            assert_eq!(is_reached(wanted, now), expected, "{wanted:?} {now:?}");
        }
    }

    #[test]
    fn a_wait_for_a_start_reports_how_to_resume_it() {
        let mut status = json!({
            "preparing_seconds": 7, "next_steps": [{ "command": "weir migrate wait shop" }],
        });
        assert_eq!(of_preparing(&status), None);
        status["next_steps"][0]["command"] = json!("weir migrate start PLAN");
        status["preparing_seconds"] = json!(90);
        let said = of_preparing(&status).unwrap();
        assert!(said.contains("inactive for 90 s: run `weir migrate start PLAN`"), "{said}");
    }
}
