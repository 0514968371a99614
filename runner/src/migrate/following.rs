//! How far a migration is with the streams that it follows: which of their records have reached the
//! targets, and for how long the oldest that has not is still there.
//!
//! It proves as a cut-over does; a watcher reads each record once. Nothing is written but, after a
//! cut-over, until when all has come back.

use std::time::Duration;

use rules::migration::Phase;
use rules::migration::plan::{Direction, Plan};
use serde_json::{Value, json};

use super::Context;
use super::control::{Entry, number, phase_of};
use super::cutover::drain;
use super::drain::{Counted, Drain, Drained};
use super::way_back;

/// A stream keeps its records for 24 hours; what was not followed by then is lost. Source: DynamoDB
/// developer guide, "Change data capture for DynamoDB Streams".
const RETENTION_SECONDS: i64 = 24 * 3600;
/// Within so many seconds a function that follows a stream applies a record; longer, and perhaps none
/// does.
pub(super) const FOLLOWED_SECONDS_MAX: i64 = 10;
/// How long a look may take, in seconds, unless somebody says otherwise. What is not known by then is
/// not said.
pub(super) const LOOK_SECONDS: u64 = 10;

/// Who looks again and again.
pub(super) struct Watcher {
    limit: Duration,
    direction: Option<Direction>,
    drain: Option<Drain>,
}

impl Default for Watcher {
    fn default() -> Self {
        Self::with_limit(Duration::from_secs(LOOK_SECONDS))
    }
}

/// Which way a migration follows streams in a phase, and which records count; none if it does not.
fn followed(state: &Entry, plan: &Plan) -> Option<(Direction, Counted)> {
    let forward = || {
        let since = number(state, "since");
        let compared = number(state, "verified_at").max(since);
        Some((Direction::Forward, Counted { since, compared }))
    };
    match phase_of(state) {
        Phase::Copying | Phase::Tailing | Phase::Ready | Phase::CuttingOver => forward(),
        Phase::Turning | Phase::CutOver if plan.kind.is_in_place() => forward(),
        Phase::Turning | Phase::CutOver | Phase::Reverting
            if !plan.inverse.is_empty() && !plan.kind.is_in_place() =>
        {
            let since = number(state, "back_since");
            Some((Direction::Reverse, Counted { since, compared: way_back::known_since(state) }))
        }
        _ => None,
    }
}

impl Watcher {
    /// One whose looks may take so long.
    pub(super) fn with_limit(limit: Duration) -> Self {
        Self { limit, direction: None, drain: None }
    }

    /// What is known of the streams, as JSON; null if the migration follows none now, or it could
    /// not be found out in time.
    ///
    /// # Errors
    /// When the streams or the targets cannot be read.
    pub(super) async fn look(
        &mut self,
        context: &Context,
        state: &Entry,
        plan: &Plan,
        now: i64,
    ) -> Result<Value, String> {
        let Some((direction, counted)) = followed(state, plan) else { return Ok(Value::Null) };
        if self.direction != Some(direction) {
            (self.direction, self.drain) = (Some(direction), None);
        }
        let mut proof = match self.drain.take() {
            Some(proof) => proof,
            None => drain(context, plan, direction, counted).await?,
        };
        // A look that is stopped half-way has lost its place: the next one begins anew.
        let Ok(looked) = tokio::time::timeout(self.limit, proof.look()).await else {
            return Ok(Value::Null);
        };
        let looked = looked?;
        self.drain = Some(proof);
        if direction == Direction::Reverse {
            way_back::note(context, plan, state, &looked, now).await;
        }
        Ok(describe(&looked, now))
    }
}

fn describe(looked: &Drained, now: i64) -> Value {
    let lag = looked.oldest.as_ref().map_or(0, |(oldest, _)| now.saturating_sub(*oldest).max(0));
    let unfollowed = looked.oldest.as_ref().filter(|_| lag > FOLLOWED_SECONDS_MAX);
    let applied = looked.records.saturating_sub(looked.waiting);
    let converged = (applied * 100).checked_div(looked.records).unwrap_or(100);
    json!({
        "shards": looked.shards,
        "records": looked.records,
        "waiting": looked.waiting,
        "converged_percent": looked.hopeless.is_none().then_some(converged),
        "hopeless": looked.hopeless,
        "lag_seconds": lag,
        "unfollowed": unfollowed.map(|(_, table)| table),
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
            let looked = Drained { shards: 4, records, waiting, oldest, ..Drained::default() };
            let known = describe(&looked, 100_000);
            let number = |name: &str| known[name].as_i64().unwrap();
            let is_late = number("lag_seconds") > FOLLOWED_SECONDS_MAX;
            assert_eq!(known["unfollowed"].as_str(), is_late.then_some("orders"));
            (number("converged_percent"), number("lag_seconds"), number("horizon_seconds"))
        };
        assert_eq!(looked(0, 0, None), (100, 0, 86_400));
        assert_eq!(looked(1_000, 0, None), (100, 0, 86_400));
        // 100 only when all are applied.
        assert_eq!(looked(1_000, 1, Some(99_990)), (99, 10, 86_390));
        assert_eq!(looked(8, 8, Some(20_000)), (0, 80_000, 6_400));
        // The store's clock was set back.
        assert_eq!(looked(8, 2, Some(100_001)), (75, 0, 86_400));
        let hopeless = Some("an item that cannot be transformed".to_owned());
        let known = describe(&Drained { hopeless, ..Drained::default() }, 100_000);
        assert!(known["converged_percent"].is_null() && known["hopeless"].is_string(), "{known}");
    }
}
