//! Measures the lag of a migration behind its streams: the number of records that are applied to
//! the targets, and the age of the oldest waiting record.
//!
//! The measurement uses the same drain proof as a cut-over, and reads each record once. After a
//! cut-over, this module records the time up to which all writes have been copied back. It writes
//! nothing else.

use std::time::{Duration, Instant};

use control::State;
use rules::migration::plan::{Direction, Plan};
use rules::migration::{Migration, Phase};
use serde_json::{Value, json};

use crate::migrate::context::{Context, LOOK_EVERY};
use crate::migrate::drain::followers;
use crate::migrate::drain::open::{InverseUse, drain};
use crate::migrate::drain::proof::{Drain, DrainPass, RecordSelection};
use crate::migrate::failure::{Failure, Result};
use crate::migrate::plan::tables;
use crate::migrate::report::throttling;
use crate::migrate::switch::inverse_check;
use client::keys;

/// Seconds for which a stream keeps its records, 24 hours. Records that are not read within this
/// time are lost. Source: DynamoDB developer guide, "Change data capture for DynamoDB Streams".
const RETENTION_SECONDS: i64 = 24 * 3600;
/// Maximum seconds that a function normally needs to apply a record. A longer delay suggests that
/// no function reads the stream.
pub(crate) const FOLLOWED_SECONDS_MAX: i64 = 10;
const FOLLOWED_MAX: Duration = Duration::from_secs(10);
/// Default time limit of a pass over the streams, in seconds. Facts that the pass has not found out
/// by then are not reported.
const LOOK_SECONDS: u64 = 10;
/// Default time limit of a pass on AWS, in seconds. Each shard takes about ten seconds because of
/// pauses, and not all shards are read concurrently.
const LOOK_SECONDS_ON_AWS: u64 = 30;

/// Minimum time for which changes are watched before a report that none is being applied.
const IDLE_SEEN: Duration = Duration::from_secs(3);

/// Returns the time limit of a pass in seconds: `said`, the operator's value, or else the default
/// for this kind of endpoint.
pub(crate) fn look_seconds(said: Option<u64>, on_aws: bool) -> u64 {
    said.unwrap_or(if on_aws { LOOK_SECONDS_ON_AWS } else { LOOK_SECONDS })
}

/// Returns the time limit of a pass over an endpoint's streams.
pub(crate) fn look_limit(endpoint: &str, said: Option<u64>) -> Duration {
    Duration::from_secs(look_seconds(said, keys::are_own(endpoint)))
}

/// A reader of a migration's streams, which stores its stream positions between passes.
pub(crate) struct Watcher {
    limit: Duration,
    /// The direction of the streams that were read, and the second of the last comparison. Refused
    /// items are reported if they were written after this second.
    followed: Option<(Direction, i64)>,
    drain: Option<Drain>,
    applied: Applied,
}

/// The result of a pass over the streams.
#[derive(Clone, Debug, Default)]
pub(crate) struct Streams {
    /// The facts about the streams as JSON; null if the migration reads no stream in its current
    /// phase, or the pass failed.
    pub(crate) told: Value,
    /// The time limit in seconds, if the streams could not be read completely within the limit.
    pub(crate) unread_seconds: Option<u64>,
    /// The reason why the streams cannot be read; `None` if they can.
    pub(crate) problem: Option<String>,
    /// True if the plan no longer fits its tables, so that its streams cannot be read.
    pub(crate) is_unfit: bool,
}

/// The number of changes that were seen as applied, and the time of the last such change.
#[derive(Debug, Default)]
pub(crate) struct Applied {
    seen: Option<(u64, Instant)>,
    has_grown: bool,
}

impl Applied {
    /// Records the result of a pass.
    pub(crate) fn hear(&mut self, looked: &DrainPass, now: Instant) {
        let applied = looked.records.saturating_sub(looked.waiting);
        match self.seen {
            Some((most, _)) if applied <= most => {}
            seen => {
                self.has_grown |= seen.is_some();
                self.seen = Some((applied, now));
            }
        }
    }

    /// Returns true if changes are being applied; `None` if none was seen as applied, but changes
    /// were watched for less than `IDLE_SEEN`.
    pub(crate) fn is_followed(&self, now: Instant) -> Option<bool> {
        let (_, since) = self.seen?;
        let idle = now.saturating_duration_since(since);
        let most = if self.has_grown { FOLLOWED_MAX } else { IDLE_SEEN };
        match idle < most {
            true => self.has_grown.then_some(true),
            false => Some(false),
        }
    }

    /// Returns the number of seconds since a change was last seen applied.
    pub(crate) fn idle_seconds(&self, now: Instant) -> u64 {
        self.seen.map_or(0, |(_, since)| now.saturating_duration_since(since).as_secs())
    }
}

/// Returns the direction in which a migration reads streams in its phase, and the selection of
/// records; `None` if the migration reads no stream.
fn followed(state: &State, plan: &Plan) -> Option<(Direction, RecordSelection)> {
    let forward = || {
        let compared = state.verified_at().max(state.since);
        Some((Direction::Forward, RecordSelection::new(state.since, compared)))
    };
    match state.phase {
        Phase::Copying | Phase::Tailing | Phase::Ready | Phase::CuttingOver => forward(),
        Phase::Turning | Phase::CutOver if plan.kind.is_in_place() => forward(),
        Phase::Turning | Phase::CutOver | Phase::Reverting
            if !plan.inverse.is_empty() && !plan.kind.is_in_place() =>
        {
            let counted = RecordSelection::new(state.back_since, state.reverse_known_until());
            Some((Direction::Reverse, counted))
        }
        _ => None,
    }
}

impl Watcher {
    /// Returns a watcher with the time limit `limit` for a pass.
    pub(crate) fn with_limit(limit: Duration) -> Self {
        Self { limit, followed: None, drain: None, applied: Applied::default() }
    }

    /// Returns the time limit of a pass.
    pub(crate) fn limit(&self) -> Duration {
        self.limit
    }

    /// Reads the streams of the migration, and returns the lag and other facts.
    pub(crate) async fn look(
        &mut self,
        context: &Context,
        state: &State,
        plan: &Plan,
        now: i64,
    ) -> Streams {
        let Some((direction, counted)) = followed(state, plan) else { return Streams::default() };
        // Items that were refused after the last comparison are reported. In the reverse direction,
        // a comparison does not change the start of the proof, so no record is read again.
        let compared = if direction == Direction::Forward { counted.compared } else { 0 };
        if self.followed != Some((direction, compared)) {
            (self.followed, self.drain) = (Some((direction, compared)), None);
            self.applied = Applied::default();
        }
        let way_back = match (direction, state.phase) {
            (Direction::Forward, Phase::Copying | Phase::Tailing | Phase::Ready) => {
                InverseUse::Required
            }
            (Direction::Forward, Phase::CuttingOver) => InverseUse::Required,
            _ => InverseUse::Unused,
        };
        let failed =
            |problem: Failure| Streams { problem: Some(problem.into()), ..Streams::default() };
        let mut proof = match self.drain.take() {
            Some(proof) => proof,
            None => match drain(context, plan, direction, counted, way_back).await {
                Ok(proof) => proof,
                Err(problem) => {
                    let is_unfit = is_unfit(context, plan, direction).await;
                    return Streams { is_unfit, ..failed(problem) };
                }
            },
        };
        let looked = match self.looked(&mut proof, now).await {
            // An interrupted pass has no valid positions, so the next pass starts at the beginning
            // of the streams.
            Ok((None, _)) => {
                let unread_seconds = Some(self.limit.as_secs());
                return Streams { unread_seconds, ..Streams::default() };
            }
            Ok((Some(looked), is_whole)) => {
                self.drain = is_whole.then_some(proof);
                looked
            }
            Err(problem) => return failed(problem),
        };
        if direction == Direction::Reverse && !context.is_read_only {
            inverse_check::note(context, plan, state, &looked, now).await;
        }
        let mut is_followed = self.applied.is_followed(Instant::now());
        if let Some(table) = late(&looked, now)
            && is_followed != Some(true)
            && (throttling::is_noted_behind(context, table, now).await
                || followers::is_noted_now(context, table).await)
        {
            // No change was applied, but a function has reported that it reads the stream. The
            // function may be busy with records whose effects are already in the targets.
            is_followed = Some(true);
        }
        let idle_seconds = self.applied.idle_seconds(Instant::now());
        Streams { told: describe(&looked, now, is_followed, idle_seconds), ..Streams::default() }
    }

    /// Reads the streams. If changes have waited longer than a function normally needs, repeats the
    /// read until it is known whether changes are being applied. Returns the last complete result,
    /// and true if the last pass was complete.
    async fn looked(&mut self, proof: &mut Drain, now: i64) -> Result<(Option<DrainPass>, bool)> {
        let begun = Instant::now();
        let mut known = None;
        loop {
            let left = self.limit.saturating_sub(begun.elapsed());
            let Ok(looked) = tokio::time::timeout(left, proof.look()).await else {
                return Ok((known, false));
            };
            let looked = looked?;
            self.applied.hear(&looked, Instant::now());
            let is_told =
                late(&looked, now).is_none() || self.applied.is_followed(Instant::now()).is_some();
            if is_told || begun.elapsed() + LOOK_EVERY >= self.limit {
                return Ok((Some(looked), true));
            }
            known = Some(looked);
            tokio::time::sleep(LOOK_EVERY).await;
        }
    }
}

/// Returns true if the plan does not fit its tables; false if the plan fits, or the tables cannot
/// be described.
async fn is_unfit(context: &Context, plan: &Plan, direction: Direction) -> bool {
    let found = tables::describe(&context.control.client, plan).await;
    found.is_ok_and(|found| Migration::compile(plan, direction, &tables::schemas(&found)).is_err())
}

/// Returns the age in seconds of the oldest waiting change.
fn lag(looked: &DrainPass, now: i64) -> i64 {
    looked.oldest.as_ref().map_or(0, |(oldest, _)| now.saturating_sub(*oldest).max(0))
}

/// Returns the table of the oldest waiting change, if the change has waited longer than a function
/// normally needs.
fn late(looked: &DrainPass, now: i64) -> Option<&str> {
    let oldest = looked.oldest.as_ref().filter(|_| lag(looked, now) > FOLLOWED_SECONDS_MAX);
    oldest.map(|(_, table)| table.as_str())
}

fn describe(looked: &DrainPass, now: i64, is_followed: Option<bool>, idle_seconds: u64) -> Value {
    let (lag, late) = (lag(looked, now), late(looked, now));
    let applied = looked.records.saturating_sub(looked.waiting);
    let converged = (applied * 100).checked_div(looked.records).unwrap_or(100);
    json!({
        "shards": looked.shards,
        "records": looked.records,
        "waiting": looked.waiting,
        "converged_percent": looked.hopeless.is_none().then_some(converged),
        "hopeless": looked.hopeless,
        "lag_seconds": lag,
        "late": late,
        "followed": late.and(is_followed),
        "idle_seconds": late.map(|_| idle_seconds),
        "unfollowed": late.filter(|_| is_followed == Some(false)),
        "horizon_seconds": RETENTION_SECONDS - lag,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_horizon_is_that_of_the_oldest_record_that_waits() {
        let looked = |records, waiting, oldest| {
            let oldest: Option<i64> = oldest;
            let oldest = oldest.map(|second| (second, "orders".to_owned()));
            let looked = DrainPass { shards: 4, records, waiting, oldest, ..DrainPass::default() };
            let known = describe(&looked, 100_000, Some(false), 3);
            let number = |name: &str| known[name].as_i64().unwrap();
            let late = (number("lag_seconds") > FOLLOWED_SECONDS_MAX).then_some("orders");
            let table = |known: &Value, name: &str| known[name].as_str().map(str::to_owned);
            assert_eq!(table(&known, "unfollowed").as_deref(), late);
            // The age of waiting changes does not show whether other changes are being applied.
            for is_followed in [Some(true), None] {
                let known = describe(&looked, 100_000, is_followed, 0);
                assert_eq!(table(&known, "late").as_deref(), late);
                assert_eq!(known["unfollowed"], Value::Null);
                assert_eq!(known["followed"].as_bool(), late.and(is_followed));
            }
            (number("converged_percent"), number("lag_seconds"), number("horizon_seconds"))
        };
        assert_eq!(looked(0, 0, None), (100, 0, 86_400));
        assert_eq!(looked(1_000, 0, None), (100, 0, 86_400));
        // The percentage is 100 only if all changes are applied.
        assert_eq!(looked(1_000, 1, Some(99_990)), (99, 10, 86_390));
        assert_eq!(looked(8, 8, Some(20_000)), (0, 80_000, 6_400));
        // The store's clock was set back, so the time of the oldest change is in the future.
        assert_eq!(looked(8, 2, Some(100_001)), (75, 0, 86_400));
        let hopeless = Some("an item that cannot be transformed".to_owned());
        let known = describe(&DrainPass { hopeless, ..DrainPass::default() }, 100_000, None, 0);
        assert!(known["converged_percent"].is_null() && known["hopeless"].is_string(), "{known}");
    }

    #[test]
    fn a_stream_without_applied_changes_for_a_while_is_not_followed() {
        let looked = |records, waiting| DrainPass { records, waiting, ..DrainPass::default() };
        let (begun, mut applied) = (Instant::now(), Applied::default());
        let at = |seconds| begun + Duration::from_secs(seconds);
        assert_eq!(applied.is_followed(at(0)), None);
        applied.hear(&looked(9, 9), at(0));
        assert_eq!(applied.is_followed(at(2)), None);
        // The new writes are not applied yet.
        applied.hear(&looked(12, 12), at(3));
        assert_eq!(applied.is_followed(at(3)), Some(false));
        applied.hear(&looked(12, 11), at(4));
        assert_eq!(applied.is_followed(at(13)), Some(true));
        // A shard was trimmed, so the number of records falls.
        applied.hear(&looked(5, 5), at(13));
        assert_eq!((applied.is_followed(at(14)), applied.idle_seconds(at(14))), (Some(false), 10));
    }
}
