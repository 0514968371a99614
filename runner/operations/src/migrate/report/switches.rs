//! Finds the last cut-over or revert in the journal, and an upper bound of the time for which it
//! blocked writers.

use control::JournalLine;
use rules::migration::Phase;
use serde::Serialize;

/// A cut-over or revert that has ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct EndedSwitch {
    /// `cutover` or `revert`.
    pub verb: &'static str,
    /// True if the switch was committed; false if it was rolled back.
    pub is_committed: bool,
    /// The time at which the switch ended, in seconds since 1970.
    pub at: i64,
    /// The seconds from the claim of the switch to its end. Writers were blocked for at most this
    /// time.
    pub seconds_at_most: i64,
}

/// Returns the last switch of a journal whose lines are in order; `None` if no switch has ended.
pub(crate) fn last(journal: &[JournalLine]) -> Option<EndedSwitch> {
    let (mut begun, mut last) = (None, None);
    for line in journal {
        match (line.from, line.to) {
            (Phase::Ready, Phase::CuttingOver) => begun = Some(("cutover", line.at)),
            (Phase::CutOver, Phase::Reverting) => begun = Some(("revert", line.at)),
            (_, Phase::CutOver | Phase::Reverted | Phase::Ready | Phase::Aborted) => {
                let Some((verb, at)) = begun.take() else { continue };
                let end = if verb == "cutover" { Phase::CutOver } else { Phase::Reverted };
                let seconds_at_most = line.at.saturating_sub(at).max(0);
                let is_committed = line.to == end;
                last = Some(EndedSwitch { verb, is_committed, at: line.at, seconds_at_most });
            }
            _ => {}
        }
    }
    last
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_switch_counts_from_its_claim_to_its_end() {
        let line = |at: i64, from, to| JournalLine {
            migration: "shop".to_owned(),
            line: 0,
            from,
            to,
            why: String::new(),
            at,
            by: String::new(),
        };
        use Phase::{
            Aborted, Copying, CutOver, CuttingOver, Ready, Returning, Reverted, Reverting, Tailing,
            Turning,
        };
        let mut journal = vec![line(1, Copying, Tailing), line(2, Tailing, Ready)];
        assert_eq!(last(&journal), None);
        journal.extend([line(10, Ready, CuttingOver), line(14, CuttingOver, Ready)]);
        let found = last(&journal).unwrap();
        assert_eq!((found.verb, found.is_committed, found.seconds_at_most), ("cutover", false, 4));
        // Another command takes over from a command that was killed.
        journal.extend([line(20, Ready, CuttingOver), line(25, CuttingOver, CuttingOver)]);
        assert_eq!(last(&journal).unwrap(), found);
        journal.extend([line(27, CuttingOver, Turning), line(28, Turning, CutOver)]);
        let found = last(&journal).unwrap();
        assert_eq!((found.is_committed, found.at, found.seconds_at_most), (true, 28, 8));
        // A comparison after the cut-over.
        journal.push(line(40, CutOver, CutOver));
        assert_eq!(last(&journal).unwrap(), found);
        journal.extend([line(50, CutOver, Reverting), line(53, Reverting, CutOver)]);
        let found = last(&journal).unwrap();
        assert_eq!((found.verb, found.is_committed, found.seconds_at_most), ("revert", false, 3));
        let back = [line(60, CutOver, Reverting), line(61, Reverting, Returning)];
        journal.extend(back);
        journal.push(line(63, Returning, Reverted));
        let found = last(&journal).unwrap();
        assert_eq!((found.verb, found.is_committed, found.seconds_at_most), ("revert", true, 3));
        let aborted = [line(5, Ready, CuttingOver), line(9, CuttingOver, Aborted)];
        assert!(!last(&aborted).unwrap().is_committed);
    }
}
