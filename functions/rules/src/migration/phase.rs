//! The phases of a migration and their names in the control table.
//!
//! The crate `control` defines the actions in each phase and the transitions.

use serde::{Deserialize, Serialize};

use super::plan::Direction;

/// The phase of a migration.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Phase {
    /// The migration was not started.
    #[default]
    None,
    /// A command is making the migration active.
    Preparing,
    /// The backfill reads the sources.
    Copying,
    /// The backfill has read every item. Functions apply the changes from the stream.
    Tailing,
    /// The last comparison found no difference.
    Ready,
    /// Writers are blocked, or a command is about to block them. The switch is not committed.
    CuttingOver,
    /// The switch is committed and changes are copied back to the sources. The route to the targets
    /// is not open yet.
    Turning,
    /// Readers and writers use the targets.
    CutOver,
    /// Writers are blocked for the revert, or a revert restores the items in place.
    Reverting,
    /// The revert is committed. The route to the sources is not open yet.
    Returning,
    /// Readers and writers use the sources again.
    Reverted,
    /// A revert is no longer possible, and marks are being removed.
    Completing,
    /// The migration is completed.
    Completed,
    /// The migration was aborted.
    Aborted,
}

impl Phase {
    /// All phases, in the order of their declaration.
    pub const ALL: [Self; 14] = [
        Self::None,
        Self::Preparing,
        Self::Copying,
        Self::Tailing,
        Self::Ready,
        Self::CuttingOver,
        Self::Turning,
        Self::CutOver,
        Self::Reverting,
        Self::Returning,
        Self::Reverted,
        Self::Completing,
        Self::Completed,
        Self::Aborted,
    ];

    /// Returns the name of the phase.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Preparing => "preparing",
            Self::Copying => "copying",
            Self::Tailing => "tailing",
            Self::Ready => "ready",
            Self::CuttingOver => "cutting-over",
            Self::Turning => "turning",
            Self::CutOver => "cut-over",
            Self::Reverting => "reverting",
            Self::Returning => "returning",
            Self::Reverted => "reverted",
            Self::Completing => "completing",
            Self::Completed => "completed",
            Self::Aborted => "aborted",
        }
    }

    /// Returns the phase with a name; `None` if there is no such phase.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|phase| phase.as_str() == name)
    }

    /// Returns whether the migration has ended.
    #[must_use]
    pub fn has_ended(self) -> bool {
        matches!(self, Self::Reverted | Self::Completed | Self::Aborted)
    }

    /// Returns whether a comparison in this direction may repair. Until the cut-over, the migration
    /// may repair the targets. After the cut-over, writers change the targets and the sources are
    /// outdated, so the migration may repair the sources until the revert. No repair may begin
    /// during a switch, because it could still be running when the route is opened.
    #[must_use]
    pub fn may_repair(self, direction: Direction) -> bool {
        match direction {
            Direction::Forward => matches!(self, Self::Tailing | Self::Ready),
            Direction::Reverse => self == Self::CutOver,
        }
    }

    /// Returns true if no later comparison in this direction can repair, because the switch is
    /// committed. Before the commit, the switch may be rolled back, and repairs are allowed again
    /// after the rollback.
    #[must_use]
    pub fn is_past_repair(self, direction: Direction) -> bool {
        match direction {
            Direction::Forward => self >= Self::Turning,
            Direction::Reverse => self >= Self::Returning,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn phases_are_found_by_their_names() {
        for phase in Phase::ALL {
            assert_eq!(Phase::from_name(phase.as_str()), Some(phase));
        }
        assert_eq!(Phase::from_name("cutover"), None);
        let repairs = |direction| -> Vec<_> {
            Phase::ALL.into_iter().filter(|phase| phase.may_repair(direction)).collect()
        };
        assert_eq!(repairs(Direction::Forward), [Phase::Tailing, Phase::Ready]);
        assert_eq!(repairs(Direction::Reverse), [Phase::CutOver]);
    }

    #[test]
    fn a_repair_waits_until_a_switch_is_committed() {
        for direction in [Direction::Forward, Direction::Reverse] {
            let waits: Vec<_> = Phase::ALL
                .into_iter()
                .filter(|phase| !phase.may_repair(direction) && !phase.is_past_repair(direction))
                .collect();
            let expected: &[Phase] = match direction {
                Direction::Forward => {
                    &[Phase::None, Phase::Preparing, Phase::Copying, Phase::CuttingOver]
                }
                Direction::Reverse => &[
                    Phase::None,
                    Phase::Preparing,
                    Phase::Copying,
                    Phase::Tailing,
                    Phase::Ready,
                    Phase::CuttingOver,
                    Phase::Turning,
                    Phase::Reverting,
                ],
            };
            assert_eq!(waits, expected, "{direction:?}");
            let both =
                |phase: &Phase| phase.may_repair(direction) && phase.is_past_repair(direction);
            assert_eq!(Phase::ALL.into_iter().find(both), None, "{direction:?}");
        }
    }
}
