//! Until when all that was written to the targets is known to have come back to the sources.
//!
//! It is known of the moment of the cut-over, of one at which a comparison found no difference, and of
//! one at which everything in the streams was applied, if they still kept all that was written since
//! the moment before. Streams forget after 24 hours, so who looks once a day knows it all the time,
//! and who does not has to compare.

use control::{COMPARISON_SECONDS, Expect, State};
use jiff::Timestamp;
use rules::migration::Phase;
use rules::migration::plan::{Kind, Plan};
use serde_json::{Value, json};

use crate::migrate::context::Context;
use crate::migrate::drain::proof::Drained;
use client::output::counted;

/// A later moment is written down when it is so much later, so that a look is mostly no write.
const NOTED_EVERY_SECONDS: i64 = 600;

/// Seconds since the last moment up to which it is known.
pub(crate) fn age(state: &State, now: i64) -> i64 {
    now.saturating_sub(state.back_known_at())
}

/// Whether a plan has a way back on which that matters.
pub(crate) fn has_one(plan: &Plan) -> bool {
    matches!(plan.kind, Kind::Restructure | Kind::Split) && !plan.inverse.is_empty()
}

/// That streams may have forgotten what is not known to have come back, and what to do; none if they
/// have not.
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
        "what was written to the targets of `{name}` in the last {} may not all have come back, as a stream keeps records for 24 and nobody looked meanwhile: `weir migrate verify {name}` compares",
        counted(hours, "hour", "hours")
    ))
}

/// Why a revert is refused because of what the last comparison of the way back found, and what to do.
pub(crate) fn differences(state: &State) -> Option<String> {
    let (name, found) = (&state.migration, state.back_differences.filter(|found| *found > 0)?);
    Some(format!(
        "the last comparison of what came back of `{name}` found {}: `weir migrate verify {name} --repair` first; where the targets cannot be used any longer, `weir migrate revert {name} --with-differences` goes back without what differs",
        counted(found, "difference", "differences")
    ))
}

/// Notes what a look at the streams, begun at `began`, has proved.
pub(crate) async fn note(
    context: &Context,
    plan: &Plan,
    state: &State,
    looked: &Drained,
    began: i64,
) {
    // Later records may show a time that was rounded down to before it.
    let until = began - i64::from(plan.settle_seconds) - 1 - looked.behind;
    if state.phase != Phase::CutOver || !proves(state.back_known_at(), looked, until, began) {
        return;
    }
    let expect = Expect::phases(&[Phase::CutOver]);
    let later = |state: &mut State| {
        let is_later = state.back_known_at() < until;
        if is_later {
            state.back_at = until;
        }
        is_later
    };
    // What cannot be noted now is proved again by the next look.
    let _ = context.control.change_state(&plan.migration, expect, later).await;
}

/// Whether all that was written up to `until` has come back, if that is so of what was written up to
/// `known`.
fn proves(known: i64, looked: &Drained, until: i64, began: i64) -> bool {
    let is_all_applied = looked.missing.is_none() && looked.hopeless.is_none();
    is_all_applied
        && looked.waiting == 0
        && !looked.is_partial
        && began.saturating_sub(known) <= COMPARISON_SECONDS
        && until.saturating_sub(known) >= NOTED_EVERY_SECONDS
}

/// What a status says of it; null unless there is something to go back from.
pub(crate) fn describe(state: &State, plan: Option<&Plan>, now: i64) -> Value {
    if !plan.is_some_and(has_one) || state.phase != Phase::CutOver {
        return Value::Null;
    }
    let known = state.back_known_at();
    json!({
        "known_at": known,
        "differences": state.back_differences,
        "look_again_by": known.saturating_add(COMPARISON_SECONDS),
        "is_forgotten": age(state, now) > COMPARISON_SECONDS,
    })
}

/// The same for people.
pub(crate) fn line(way_back: &Value) -> Option<String> {
    let time = |name: &str| {
        let seconds = way_back.get(name).and_then(Value::as_i64)?;
        Timestamp::from_second(seconds).ok()
    };
    let (known, until) = (time("known_at")?, time("look_again_by")?);
    let differences =
        way_back.get("differences").and_then(Value::as_u64).filter(|found| *found > 0);
    if let Some(differences) = differences {
        return Some(format!(
            "all that was written until {known} has come back, and the last comparison found {}",
            counted(differences, "difference", "differences")
        ));
    }
    // A time that is over would only mislead: looks prove nothing any more.
    if way_back.get("is_forgotten").and_then(Value::as_bool) == Some(true) {
        return Some(format!(
            "all that was written until {known} has come back; of what came later, streams may have forgotten some"
        ));
    }
    Some(format!("all that was written until {known} has come back, look again by {until}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_look_proves_only_what_the_streams_still_kept() {
        let (known, hour) = (1_000_000, 3600);
        let all = Drained { shards: 4, records: 9, ..Drained::default() };
        let proves = |looked: &Drained, began: i64| proves(known, looked, began - 6, began);
        assert!(proves(&all, known + hour));
        assert!(proves(&all, known + 23 * hour));
        // Something may be forgotten.
        assert!(!proves(&all, known + 23 * hour + 1));
        // Too little later to be worth a write.
        assert!(!proves(&all, known + 605));
        let waits = Drained { waiting: 1, missing: Some("a record".into()), ..all.clone() };
        let never = Drained { hopeless: Some("an item".into()), ..all.clone() };
        let partial = Drained { is_partial: true, ..all };
        assert!([waits, never, partial].iter().all(|looked| !proves(looked, known + hour)));
    }

    #[test]
    fn the_later_of_cut_over_and_proof_counts() {
        for (back_since, back_at, known) in [(0, 0, 0), (5, 0, 5), (5, 7, 7)] {
            let state = State { back_since, back_at, ..State::new("shop") };
            assert_eq!(state.back_known_at(), known);
        }
        let told = line(&json!({ "known_at": 0, "look_again_by": 82_800 })).unwrap();
        assert!(told.contains("until 1970-01-01T00:00:00Z") && told.contains("T23:00:00Z"));
        assert_eq!(line(&Value::Null), None);
        let forgotten = json!({ "known_at": 0, "look_again_by": 82_800, "is_forgotten": true });
        let told = line(&forgotten).unwrap();
        assert!(told.contains("may have forgotten") && !told.contains("look again"), "{told}");
    }
}
