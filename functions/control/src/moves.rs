//! Every move of a migration that its journal records. A move is a state transition: the phases in
//! which it may begin, the phase that follows, and the changes of the state.
//!
//! A caller reads the state, applies a move, and writes the result and the journal line in one
//! transaction. The transaction is conditional on the state that was read. Only these moves change
//! a phase.

use rules::migration::plan::Kind;
use rules::migration::{Direction, Phase};

use crate::state::State;
use crate::state::Verified;
use crate::switch::Switch;
use crate::verbs::{Verb, phases_of};

/// A move of a migration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Move {
    /// A command starts the migration, or takes over a start that another command began. Later
    /// steps of the earlier command are refused.
    Prepare {
        /// The name of the command.
        holder: String,
        /// The fingerprint of the plan.
        fingerprint: String,
        /// Items per second that the backfill may read; 0 for no limit.
        rate: u64,
    },
    /// Functions follow the streams, and the backfill begins.
    Copy,
    /// The backfill has read every segment.
    Tail {
        /// The time of the move in seconds since 1970, by the store's clock.
        at: i64,
    },
    /// The backfill is paused.
    Pause(Kind),
    /// The backfill is resumed.
    Resume(Kind),
    /// A comparison of sources and targets before a cut-over has ended.
    Verified(Verified),
    /// A comparison in the reverse direction has ended.
    VerifiedBack(Verified),
    /// A command claims the migration for a switch, even if a command that died still holds it.
    Claim {
        /// The switch.
        switch: Switch,
        /// The name of the command.
        holder: String,
        /// Whether the command may also claim a migration that has no holder.
        is_first: bool,
    },
    /// A switch is rolled back, and nothing is committed.
    RollBack(Switch),
    /// A switch is committed. It can no longer be rolled back, only finished.
    Commit {
        /// The switch.
        switch: Switch,
        /// The number of drained shards.
        shards: usize,
        /// The time in seconds since 1970 after which functions apply records of the targets;
        /// `Some` only for a cut-over.
        back_since: Option<i64>,
        /// The wall-clock time of the switch, in seconds since 1970.
        switched_at: u64,
    },
    /// A committed switch is finished.
    Finish {
        /// The switch.
        switch: Switch,
        /// The number of drained shards; `None` if another command committed the switch.
        shards: Option<usize>,
        /// The epoch of the route: its revision.
        epoch: u64,
    },
    /// Every item has been restored to the old shape in place.
    RevertedInPlace {
        /// The number of items that were restored to the old shape.
        items: u64,
        /// The number of drained shards.
        shards: usize,
        /// The epoch of the route: its revision.
        epoch: u64,
    },
    /// A migration between tables stops applying changes of the targets to the sources, so it can
    /// no longer be reverted.
    Close,
    /// A migration in place can no longer be reverted, or a purge is about to end. Contains the
    /// result of the comparison, if one was run.
    CloseInPlace(Option<Verified>),
    /// The migration is completed.
    Complete,
    /// The migration is aborted.
    Abort {
        /// The kind of the migration.
        kind: Kind,
        /// Whether the backfill touches items, so that the migration must remove marks.
        touches: bool,
    },
}

impl Move {
    /// Returns the phases in which the move may begin.
    #[must_use]
    pub fn phases(&self) -> Vec<Phase> {
        match self {
            Self::Prepare { .. } => vec![Phase::None, Phase::Preparing],
            Self::Copy => vec![Phase::Preparing],
            Self::Tail { .. } => vec![Phase::Copying],
            Self::Pause(kind) => phases_of(*kind, Verb::Pause),
            Self::Resume(kind) => phases_of(*kind, Verb::Resume),
            Self::Verified(_) => vec![Phase::Tailing, Phase::Ready],
            Self::VerifiedBack(_) => vec![Phase::CutOver],
            Self::Claim { switch, is_first: true, .. } => {
                vec![switch.before(), switch.claimed_phase()]
            }
            Self::Claim { switch, is_first: false, .. } => vec![switch.claimed_phase()],
            Self::RollBack(switch) | Self::Commit { switch, .. } => vec![switch.claimed_phase()],
            Self::Finish { switch, .. } => vec![switch.committed()],
            Self::RevertedInPlace { .. } => vec![Phase::Reverting],
            Self::Close => vec![Phase::CutOver, Phase::Completing],
            Self::CloseInPlace(_) => vec![Phase::Ready, Phase::CutOver, Phase::Completing],
            Self::Complete => vec![Phase::Completing],
            Self::Abort { kind, .. } => phases_of(*kind, Verb::Abort),
        }
    }

    /// Returns the phase after the move; `None` if the phase does not change.
    #[must_use]
    pub fn to(&self) -> Option<Phase> {
        Some(match self {
            Self::Pause(_) | Self::Resume(_) | Self::VerifiedBack(_) => return None,
            Self::Prepare { .. } => Phase::Preparing,
            Self::Copy => Phase::Copying,
            Self::Tail { .. } => Phase::Tailing,
            Self::Verified(verified) if verified.differences == 0 => Phase::Ready,
            Self::Verified(_) => Phase::Tailing,
            Self::Claim { switch, .. } => switch.claimed_phase(),
            Self::RollBack(switch) => switch.before(),
            Self::Commit { switch, .. } => switch.committed(),
            Self::Finish { switch, .. } => switch.after(),
            Self::RevertedInPlace { .. } => Phase::Reverted,
            Self::Close | Self::CloseInPlace(_) => Phase::Completing,
            Self::Complete => Phase::Completed,
            Self::Abort { .. } => Phase::Aborted,
        })
    }

    /// Applies the move to a state. The caller checks with [`crate::Expect`] that the move may
    /// begin.
    pub fn apply(&self, state: &mut State) {
        state.phase = self.to().unwrap_or(state.phase);
        match self {
            Self::Prepare { holder, fingerprint, rate } => {
                // A start with a different plan under the same name has no effect.
                if state.fingerprint.get_or_insert_with(|| fingerprint.clone()) == fingerprint {
                    (state.rate, state.holder) = (*rate, Some(holder.clone()));
                }
            }
            Self::Copy => state.holder = None,
            Self::Tail { at } => state.copied_at = Some(*at),
            Self::Pause(_) => state.paused = true,
            Self::Resume(_) => state.paused = false,
            Self::Verified(verified) => note(state, *verified),
            Self::VerifiedBack(verified) => {
                state.end_comparison(verified.run);
                state.back_differences = Some(verified.differences);
                if verified.differences == 0 {
                    state.back_at = verified.at;
                }
            }
            Self::Claim { holder, .. } => state.holder = Some(holder.clone()),
            Self::RollBack(_) => (state.holder, state.held_at) = (None, None),
            Self::Commit { back_since, switched_at, .. } => {
                state.back_since = back_since.unwrap_or(state.back_since);
                state.switched_at = Some(*switched_at);
            }
            Self::Finish { switch, .. } => {
                (state.holder, state.held_at) = (None, None);
                state.needs_cleaning |= switch.direction() == Direction::Reverse;
            }
            Self::RevertedInPlace { .. } => state.holder = None,
            Self::CloseInPlace(Some(verified)) => note(state, *verified),
            Self::Close | Self::CloseInPlace(None) | Self::Complete => {}
            Self::Abort { touches, .. } => {
                (state.holder, state.stopped) = (None, true);
                state.needs_cleaning |= *touches;
            }
        }
    }

    /// Returns the reason for the move, as a string for operators in the journal.
    #[must_use]
    pub fn why(&self) -> String {
        match self {
            Self::Prepare { .. } => "started by an operator".to_owned(),
            Self::Copy => "functions follow the streams; the backfill begins".to_owned(),
            Self::Tail { .. } => "the backfill has read every segment".to_owned(),
            Self::Pause(_) => "paused by an operator".to_owned(),
            Self::Resume(_) => "resumed by an operator".to_owned(),
            Self::Verified(Verified { compared, differences, .. }) => {
                format!(
                    "{}, {}",
                    items(*compared, "compared"),
                    count_of(*differences, "difference")
                )
            }
            Self::VerifiedBack(Verified { compared, differences, .. }) => format!(
                "{} in the reverse direction, {}",
                items(*compared, "compared"),
                count_of(*differences, "difference")
            ),
            Self::Claim { switch, .. } => format!("{} by an operator", switch.verb()),
            Self::RollBack(switch) => format!("{} was rolled back", switch.verb()),
            Self::Commit { shards, .. } => drained(*shards),
            Self::Finish { shards: Some(shards), epoch, .. } => {
                format!("{}, epoch {epoch}", drained(*shards))
            }
            Self::Finish { shards: None, epoch, .. } => {
                format!("finished a switch that was already committed, epoch {epoch}")
            }
            Self::RevertedInPlace { items: number, shards, epoch } => {
                format!("{}, {}, epoch {epoch}", items(*number, "reverted"), drained(*shards))
            }
            Self::Close => "the migration can no longer be reverted".to_owned(),
            Self::CloseInPlace(_) => "every pending write is applied".to_owned(),
            Self::Complete => "completed by an operator".to_owned(),
            Self::Abort { .. } => "aborted by an operator".to_owned(),
        }
    }
}

/// Stores the result of a comparison for a cut-over in the state.
fn note(state: &mut State, verified: Verified) {
    state.end_comparison(verified.run);
    state.verified = Some(verified);
}

fn items(number: u64, what: &str) -> String {
    format!("{} {what}", count_of(number, "item"))
}

fn drained(shards: usize) -> String {
    format!("{} drained", count_of(u64::try_from(shards).unwrap_or(u64::MAX), "shard"))
}

/// Returns a number with its unit, in the singular or plural.
fn count_of(number: u64, thing: &str) -> String {
    format!("{number} {thing}{}", if number == 1 { "" } else { "s" })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns every move with its name in `testdata/moves.txt`.
    fn moves() -> Vec<(&'static str, Move)> {
        let (holder, fingerprint) = ("h".to_owned(), "f".to_owned());
        let claim = |switch, is_first| Move::Claim { switch, holder: holder.clone(), is_first };
        let commit = |switch| Move::Commit { switch, shards: 1, back_since: None, switched_at: 0 };
        let finish = |switch| Move::Finish { switch, shards: None, epoch: 1 };
        let found = |differences| Verified { differences, ..Verified::default() };
        let kind = Kind::Restructure;
        vec![
            ("prepare", Move::Prepare { holder: holder.clone(), fingerprint, rate: 0 }),
            ("copy", Move::Copy),
            ("tail", Move::Tail { at: 1 }),
            ("pause", Move::Pause(kind)),
            ("resume", Move::Resume(kind)),
            ("verified", Move::Verified(found(0))),
            ("verified, differences", Move::Verified(found(2))),
            ("verified back", Move::VerifiedBack(found(0))),
            ("claim cutover", claim(Switch::CUTOVER, true)),
            ("claim cutover again", claim(Switch::CUTOVER, false)),
            ("roll back cutover", Move::RollBack(Switch::CUTOVER)),
            ("commit cutover", commit(Switch::CUTOVER)),
            ("finish cutover", finish(Switch::CUTOVER)),
            ("claim revert", claim(Switch::REVERT, true)),
            ("claim revert again", claim(Switch::REVERT, false)),
            ("roll back revert", Move::RollBack(Switch::REVERT)),
            ("commit revert", commit(Switch::REVERT)),
            ("finish revert", finish(Switch::REVERT)),
            ("reverted in place", Move::RevertedInPlace { items: 1, shards: 1, epoch: 1 }),
            ("close", Move::Close),
            ("close in place", Move::CloseInPlace(None)),
            ("complete", Move::Complete),
            ("abort", Move::Abort { kind, touches: false }),
        ]
    }

    #[test]
    fn every_move_from_every_phase() {
        let mut table = String::new();
        for (name, it) in moves() {
            table.push_str(&format!("{name}: {}\n", it.why()));
            for phase in it.phases() {
                let mut state = State { phase, ..State::new("shop") };
                it.apply(&mut state);
                table.push_str(&format!("  {} -> {}\n", phase.as_str(), state.phase.as_str()));
            }
        }
        assert_eq!(table, include_str!("../testdata/moves.txt"));
    }

    /// Goal: a state has a holder exactly in the phases in which a command holds the migration.
    #[test]
    fn a_holder_is_there_while_a_migration_is_held() {
        for (name, it) in moves() {
            for phase in it.phases() {
                let holder = Some("old".to_owned());
                let held_at = Some(7);
                let mut state = State { phase, holder, held_at, ..State::new("shop") };
                it.apply(&mut state);
                let is_held = matches!(
                    state.phase,
                    Phase::Preparing
                        | Phase::CuttingOver
                        | Phase::Turning
                        | Phase::Reverting
                        | Phase::Returning
                );
                let moved = it.to().is_some_and(|to| to != phase);
                if moved && !matches!(it, Move::Tail { .. } | Move::Verified(_)) {
                    let ends = matches!(
                        it,
                        Move::Copy
                            | Move::RollBack(_)
                            | Move::Finish { .. }
                            | Move::RevertedInPlace { .. }
                            | Move::Abort { .. }
                    );
                    assert_eq!(state.holder.is_none(), ends, "{name} from {phase:?}");
                    assert!(!ends || !is_held, "{name} from {phase:?}");
                }
            }
        }
    }
}
