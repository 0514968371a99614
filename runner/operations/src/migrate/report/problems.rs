//! Recorded problems: entries of the control table in which workers report problems to the
//! operator. A status shows the unsolved problems.
//!
//! A comparison without a difference proves that all earlier problems are solved, so their entries
//! are removed. Entries about documents that could not be assembled are not removed, because a
//! revert checks each of these documents again.

use std::collections::BTreeMap;

use aws_sdk_dynamodb::types::AttributeValue as Sdk;
use control::{Entry as _, PARTITION_KEY, Problem, ProblemKind, SORT_KEY, State};
use futures::StreamExt as _;
use rules::migration::Phase;
use rules::migration::plan::Kind;

use crate::migrate::context::Context;
use crate::migrate::failure::Result;

/// Number of entries that are deleted concurrently.
const AT_ONCE: usize = 16;
/// Seconds by which the time of an entry may be too early, because times are rounded down to
/// seconds and the clocks of DynamoDB's machines differ.
const EARLY_SECONDS: i64 = 5;

/// Maximum number of problems that a status describes.
const PROBLEMS_SHOWN: usize = 5;

/// The recorded problems of a migration.
pub(crate) struct ProblemNotes {
    /// Unsolved problems.
    standing: Vec<Problem>,
    /// Problems that are solved.
    gone: Vec<Problem>,
}

impl ProblemNotes {
    /// Separates a migration's recorded problems into unsolved and solved problems, by the phase. A
    /// cut-over, a revert, and the end of an in-place change are refused while a problem remains.
    /// So after a revert or the end of an in-place change, all problems are solved. After a
    /// cut-over, all problems from before the cut-over are solved. `abort`, and `complete` of other
    /// kinds of plans, do not check for problems. `are_whole` is true if every document can be
    /// assembled.
    pub(crate) fn of(
        notes: Vec<Problem>,
        state: &State,
        kind: Option<Kind>,
        are_whole: bool,
    ) -> Self {
        let is_in_place = kind.is_some_and(Kind::is_in_place);
        let is_reverted = state.phase == Phase::Reverted;
        let has_gone_through = is_reverted || (state.phase == Phase::Completed && is_in_place);
        // `back_since` is 0 until the cut-over is committed. For in-place changes, the field has
        // another meaning, so it is not used.
        let way_back_since = if is_in_place { 0 } else { state.back_since };
        let is_before = |note: &Problem| {
            let at = note.at.and_then(|at| i64::try_from(at).ok());
            at.is_some_and(|at| at < way_back_since - EARLY_SECONDS)
        };
        let is_gone = |note: &Problem| match is_of_document(note) {
            true => has_gone_through || are_whole,
            false => has_gone_through || is_before(note),
        };
        let (gone, standing) = notes.into_iter().partition(is_gone);
        Self { standing, gone }
    }

    pub(crate) fn are_none(&self) -> bool {
        self.standing.is_empty()
    }

    /// Returns the number of unsolved problems by kind.
    pub(crate) fn by_kind(&self) -> BTreeMap<String, u64> {
        by_kind(&self.standing)
    }

    /// Returns the number of solved problems by kind.
    pub(crate) fn gone_by_kind(&self) -> BTreeMap<String, u64> {
        by_kind(&self.gone)
    }

    /// Describes the first unsolved problems, for the operator.
    pub(crate) fn samples(&self) -> Vec<String> {
        let told = |Problem { kind, table, key, reason, .. }: &Problem| {
            format!("{}: {table} {key}: {reason}", kind.word())
        };
        self.standing.iter().map(told).take(PROBLEMS_SHOWN).collect()
    }
}

fn by_kind(problems: &[Problem]) -> BTreeMap<String, u64> {
    let mut by_kind: BTreeMap<String, u64> = BTreeMap::new();
    for problem in problems {
        *by_kind.entry(problem.kind.word().to_owned()).or_default() += 1;
    }
    by_kind
}

fn is_of_document(note: &Problem) -> bool {
    note.kind == ProblemKind::Unassembled
}

/// Removes a migration's recorded problems that are older than the second `before`, by the clock of
/// DynamoDB's responses. An entry that was written again after this second is not removed. If the
/// removal of an entry fails, the next comparison removes the entry.
///
/// # Errors
/// When the control table cannot be read.
pub(crate) async fn forget(context: &Context, name: &str, before: i64) -> Result<()> {
    let notes = context.control.list::<Problem>(name, Problem::PREFIX).await?;
    let before = u64::try_from(before - EARLY_SECONDS).unwrap_or(0);
    futures::stream::iter(notes.iter().filter(|note| !is_of_document(note)))
        .for_each_concurrent(AT_ONCE, |note| remove(context, note, before))
        .await;
    Ok(())
}

async fn remove(context: &Context, note: &Problem, before: u64) {
    let request = context.control.client.delete_item().table_name(&context.control.table);
    let request = request
        .key(PARTITION_KEY, Sdk::S(note.partition()))
        .key(SORT_KEY, Sdk::S(note.name()))
        // An entry has no time if the worker could not read the time.
        .condition_expression("attribute_not_exists(#at) OR #at < :before")
        .expression_attribute_names("#at", "at")
        .expression_attribute_values(":before", Sdk::N(before.to_string()));
    let _ = request.send().await;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn problems_that_a_switch_has_passed_are_not_shown() {
        let note = |kind, key: &str, at| Problem {
            migration: "move".to_owned(),
            kind,
            table: "pets".to_owned(),
            key: key.to_owned(),
            reason: String::new(),
            at: Some(at),
        };
        // The cut-over was committed in second 100.
        let notes = vec![
            note(ProblemKind::Collision, "1", 90),
            note(ProblemKind::Collision, "2", 101),
            note(ProblemKind::Unassembled, "3", 90),
        ];
        for (phase, kind, are_whole, standing, gone) in [
            (Phase::Ready, Kind::Split, false, 3, 0),
            // The cut-over has proved that the first collision is solved.
            (Phase::CutOver, Kind::Split, false, 2, 1),
            (Phase::CutOver, Kind::Split, true, 1, 2),
            (Phase::Reverting, Kind::Split, false, 2, 1),
            (Phase::Reverted, Kind::Split, false, 0, 3),
            (Phase::Completed, Kind::InPlace, false, 0, 3),
            // The migration was completed while problems were unsolved.
            (Phase::Completed, Kind::Split, false, 2, 1),
            (Phase::Completed, Kind::Restructure, false, 2, 1),
            // Problems of an aborted migration stay unsolved.
            (Phase::Aborted, Kind::InPlace, false, 3, 0),
        ] {
            let is_switched = !matches!(phase, Phase::Ready | Phase::Aborted);
            let back_since = if is_switched { 100 } else { 0 };
            let state = State { phase, back_since, ..State::new("move") };
            let problems = ProblemNotes::of(notes.clone(), &state, Some(kind), are_whole);
            let sum = |kinds: BTreeMap<String, u64>| kinds.values().sum::<u64>();
            let found = (sum(problems.by_kind()), sum(problems.gone_by_kind()));
            assert_eq!(found, (standing, gone), "{phase:?}");
            assert_eq!(problems.samples().len() as u64, standing);
            assert_eq!(problems.are_none(), standing == 0);
        }
    }
}
