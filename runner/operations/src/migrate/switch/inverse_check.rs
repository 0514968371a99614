//! Tracks the proved time after a cut-over: all writes to the targets up to this time have been
//! copied back to the sources. A revert requires a recent proof.
//!
//! There are three proofs: the cut-over itself, a comparison without a difference, and a pass over
//! the streams that finds all records applied. A pass is a proof only if the streams still have all
//! records since the previous proved time. Streams trim records after 24 hours, so a pass every 12
//! hours is sufficient. If no pass was made in time, a comparison is required.

use control::{COMPARISON_SECONDS, Expect, State};
use jiff::Timestamp;
use rules::migration::Phase;
use rules::migration::plan::{Kind, Plan};
use serde_json::{Value, json};

use crate::migrate::context::Context;
use crate::migrate::drain::proof::DrainPass;
use client::output::counted;

/// Minimum seconds between two recorded proved times, so that not every pass writes to the control
/// table.
const NOTED_EVERY_SECONDS: i64 = 600;

/// Returns the seconds since the last proved time.
pub(crate) fn age(state: &State, now: i64) -> i64 {
    now.saturating_sub(state.reverse_known_until())
}

/// Returns true if a plan has a proved time: its migration copies writes to the targets back to the
/// sources.
pub(crate) fn has_one(plan: &Plan) -> bool {
    matches!(plan.kind, Kind::Restructure | Kind::Split) && !plan.inverse.is_empty()
}

/// Returns the message that streams may have trimmed records that were not copied back; `None` if
/// the last proof is recent enough.
pub(crate) async fn forgotten(
    context: &Context,
    name: &str,
    plan: &Plan,
    state: &State,
) -> Option<String> {
    if !matches!(plan.kind, Kind::Restructure | Kind::Split) || state.phase == Phase::Returning {
        return None;
    }
    let age = age(state, context.now().await);
    if age <= COMPARISON_SECONDS {
        return None;
    }
    let hours = age / 3600;
    Some(format!(
        "some writes to the targets of `{name}` in the last {} may not have been copied back, because a stream keeps records for 24 hours and no check ran meanwhile: run `weir migrate verify {name}`",
        counted(hours, "hour", "hours")
    ))
}

/// Returns a message about the differences that the last comparison after the cut-over found, and
/// that block a revert; `None` without differences.
pub(crate) fn differences(state: &State) -> Option<String> {
    let (name, found) = (&state.migration, state.back_differences.filter(|found| *found > 0)?);
    Some(format!(
        "the last comparison of `{name}` after the cut-over found {}: run `weir migrate verify {name} --repair` first; if the targets can no longer be used, `weir migrate revert {name} --with-differences` reverts and loses the differences",
        counted(found, "difference", "differences")
    ))
}

/// Records the time that a pass over the streams has proved. The pass began at `began`.
pub(crate) async fn note(
    context: &Context,
    plan: &Plan,
    state: &State,
    looked: &DrainPass,
    began: i64,
) {
    // The proved time is earlier than `began`, because a record may appear late in the stream, and
    // record times are rounded down.
    let until = began - i64::from(plan.settle_seconds) - 1 - looked.behind;
    if state.phase != Phase::CutOver || !proves(state.reverse_known_until(), looked, until, began) {
        return;
    }
    let expect = Expect::phases(&[Phase::CutOver]);
    let later = |state: &mut State| {
        let is_later = state.reverse_known_until() < until;
        if is_later {
            state.back_at = until;
        }
        is_later
    };
    // A failed write of the proved time is ignored, because the next pass proves a later time.
    let _ = context.control.change_state(&plan.migration, expect, later).await;
}

/// Returns true if a pass proves that all writes up to `until` were copied back. All writes up to
/// `known` are already proved.
fn proves(known: i64, looked: &DrainPass, until: i64, began: i64) -> bool {
    let is_all_applied = looked.missing.is_none() && looked.hopeless.is_none();
    is_all_applied
        && looked.waiting == 0
        && !looked.is_partial
        && began.saturating_sub(known) <= COMPARISON_SECONDS
        && until.saturating_sub(known) >= NOTED_EVERY_SECONDS
}

/// Returns the proved time as JSON for a status; null if the phase copies no writes back.
pub(crate) fn describe(state: &State, plan: Option<&Plan>, now: i64) -> Value {
    if !plan.is_some_and(has_one) || state.phase != Phase::CutOver {
        return Value::Null;
    }
    let known = state.reverse_known_until();
    json!({
        "known_at": known,
        "differences": state.back_differences,
        "next_check_by": known.saturating_add(COMPARISON_SECONDS),
        "may_be_trimmed": age(state, now) > COMPARISON_SECONDS,
    })
}

/// Describes the proved time for people.
pub(crate) fn line(way_back: &Value) -> Option<String> {
    let time = |name: &str| {
        let seconds = way_back.get(name).and_then(Value::as_i64)?;
        Timestamp::from_second(seconds).ok()
    };
    let (known, until) = (time("known_at")?, time("next_check_by")?);
    let differences =
        way_back.get("differences").and_then(Value::as_u64).filter(|found| *found > 0);
    if let Some(differences) = differences {
        return Some(format!(
            "all writes up to {known} were copied back, but the last comparison found {}",
            counted(differences, "difference", "differences")
        ));
    }
    // If records may have been trimmed, passes over the streams prove nothing.
    if way_back.get("may_be_trimmed").and_then(Value::as_bool) == Some(true) {
        return Some(format!(
            "all writes up to {known} were copied back; streams may have trimmed the records of later writes"
        ));
    }
    Some(format!(
        "all writes up to {known} were copied back; check again by {until}: run `verify`, or `status` while no change is waiting"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_read_proves_only_what_the_streams_still_had() {
        let (known, hour) = (1_000_000, 3600);
        let all = DrainPass { shards: 4, records: 9, ..DrainPass::default() };
        let proves = |looked: &DrainPass, began: i64| proves(known, looked, began - 6, began);
        assert!(proves(&all, known + hour));
        assert!(proves(&all, known + 23 * hour));
        // Records may have been trimmed.
        assert!(!proves(&all, known + 23 * hour + 1));
        // The time is too close to the last proved time to be recorded.
        assert!(!proves(&all, known + 605));
        let waits = DrainPass { waiting: 1, missing: Some("a record".into()), ..all.clone() };
        let never = DrainPass { hopeless: Some("an item".into()), ..all.clone() };
        let partial = DrainPass { is_partial: true, ..all };
        assert!([waits, never, partial].iter().all(|looked| !proves(looked, known + hour)));
    }

    #[test]
    fn the_later_of_cut_over_and_proof_counts() {
        for (back_since, back_at, known) in [(0, 0, 0), (5, 0, 5), (5, 7, 7)] {
            let state = State { back_since, back_at, ..State::new("shop") };
            assert_eq!(state.reverse_known_until(), known);
        }
        let told = line(&json!({ "known_at": 0, "next_check_by": 82_800 })).unwrap();
        assert!(told.contains("up to 1970-01-01T00:00:00Z") && told.contains("T23:00:00Z"));
        assert_eq!(line(&Value::Null), None);
        let forgotten = json!({ "known_at": 0, "next_check_by": 82_800, "may_be_trimmed": true });
        let told = line(&forgotten).unwrap();
        assert!(told.contains("may have trimmed") && !told.contains("check again"), "{told}");
    }
}
