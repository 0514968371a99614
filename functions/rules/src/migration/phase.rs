//! The phases of a migration, by the names that they have in the control table.
//!
//! What may be done in which of them, and how one becomes another, is not known here.

use serde::{Deserialize, Serialize};

use super::plan::Direction;

/// How far a migration is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Phase {
    /// It was not begun.
    #[default]
    None,
    /// It is being made active.
    Preparing,
    /// Its backfill reads the sources.
    Copying,
    /// All was read; changes come through the stream.
    Tailing,
    /// The last comparison found no difference.
    Ready,
    /// Writers are held up, or are about to be; nothing is decided.
    CuttingOver,
    /// All is drained and changes flow back; only the route to the targets is still to be opened.
    Turning,
    /// Readers and writers use the targets.
    CutOver,
    /// Writers are held up on the way back, or items are changed back in place.
    Reverting,
    /// All that came back is drained; only the route to the sources is still to be opened.
    Returning,
    /// Readers and writers use the sources again.
    Reverted,
    /// The way back is closed, marks are taken off.
    Completing,
    /// It has come to its end.
    Completed,
    /// It was given up.
    Aborted,
}

impl Phase {
    /// Every phase.
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

    /// Its name.
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

    /// The phase with a name; none if there is no such phase.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|phase| phase.as_str() == name)
    }

    /// Whether nothing of it is under way any more.
    #[must_use]
    pub fn has_ended(self) -> bool {
        matches!(self, Self::Reverted | Self::Completed | Self::Aborted)
    }

    /// Whether what a comparison in this direction repairs is the migration's own. The targets are,
    /// until somebody cuts over: later they are the writers', and what the sources say is old. The
    /// sources are from then on, until somebody switches back. A repair that began in the middle of
    /// a switch could be at work when the route is opened.
    #[must_use]
    pub fn may_repair(self, direction: Direction) -> bool {
        match direction {
            Direction::Forward => matches!(self, Self::Tailing | Self::Ready),
            Direction::Reverse => self == Self::CutOver,
        }
    }

    /// Whether nothing that a comparison in this direction would repair is the migration's own any
    /// more, now or later: the switch is decided. Before that it may still come to nothing, and then
    /// repairs go on.
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
    fn a_repair_waits_while_a_switch_is_not_decided() {
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
