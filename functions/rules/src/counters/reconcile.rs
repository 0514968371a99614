//! The reconciler's decision: what a total must learn from a direct look at all of its slots.
//!
//! **Why this is a join and converges with stream records that are still on their way.** The total
//! is read first, every slot after it, both strongly consistent. If the total knows slot *i* as of
//! stamp *s*, the change with stamp *s* was committed before the total was read; so the value that
//! is then read from the slot is the slot's value as of *s* or of something later. It may replace
//! what is known as of *s*, and nothing that is known as of any later record: exactly what the
//! stamp `s+<revision>` says, which lies after *s* and before every later record. A stream record
//! that comes late with a stamp up to *s* loses against it, and rightly; one with a later stamp
//! wins, and the last record of the slot always does. If that record was lost, the value that was
//! read from the slot stands.
//! Two looks at one revision could see two values under one stamp. Therefore a reconciler's cells
//! are written only while the total still has the revision that they were decided from; if it has
//! not, both are read again.
//!
//! Lag and drift look alike from here: a difference may be a record that is still on its way.
//! Repairing it is right in either case. Nothing is read or written here.
//!
//! **Whose turn it is.** A run that has no time for all counters begins elsewhere than the run
//! before, so that the counters at an end are not always those that are left out.

use std::collections::{BTreeMap, BTreeSet};

use model::Number;

use super::total::{Cell, Cells, Total};
use crate::stamp::Stamp;

/// The golden section of a circle of 2^64 steps. Of all steps, turns by this one spread what they
/// meet most evenly, however many there are.
const GOLDEN_SECTION: u64 = 0x9E37_79B9_7F4A_7C15;

/// With which of `count` counters in a row the run of a minute begins. Runs minute by minute that
/// get through one part in *n* each have met every counter after 2*n* of them.
#[must_use]
pub fn first_in_turn(minute: u64, count: usize) -> usize {
    let count_wide = u128::try_from(count).unwrap_or(u128::MAX >> 64);
    let first = (u128::from(place_in_turn(minute)) * count_wide) >> 64;
    usize::try_from(first).unwrap_or(0)
}

/// A key behind which the run of a minute begins to look for counters. There need not be such an
/// item: tables are scanned in the order of the hashes of their keys, and every text has one.
#[must_use]
pub fn scan_in_turn(minute: u64) -> String {
    format!("{:016x}", place_in_turn(minute))
}

fn place_in_turn(minute: u64) -> u64 {
    minute.wrapping_mul(GOLDEN_SECTION)
}

/// The slots that must be read to reconcile `total`: all configured ones, and those that the total
/// knows beyond them.
#[must_use]
pub fn slots_needed(total: &Total, slot_count: u32) -> BTreeSet<u32> {
    (0..slot_count).chain(total.cells.iter().map(|(slot, _)| slot)).collect()
}

/// What `total` must learn. `slots` holds the value of every slot of [`slots_needed`] whose item
/// exists, read after the total; a slot that is not there counts 0 and is gone as of `now`, in
/// seconds since 1970. Slots in `unreadable` are left as they are. Empty when nothing differs.
#[must_use]
pub fn decide(
    total: &Total,
    slots: &BTreeMap<u32, Number>,
    unreadable: &BTreeSet<u32>,
    now: u64,
) -> Cells {
    let known = total.cells.iter().map(|(slot, _)| slot);
    let every: BTreeSet<u32> = known.chain(slots.keys().copied()).collect();
    every
        .difference(unreadable)
        .filter_map(|slot| {
            let found = slots.get(slot).copied();
            let value = found.unwrap_or(Number::ZERO);
            let cell = total.cells.get(*slot);
            // A slot that holds 0 and is not known yet still makes its counter have a total.
            let is_known = match cell {
                Some(cell) => cell.value == value && cell.gone_at.is_some() == found.is_none(),
                None => found.is_none(),
            };
            if is_known {
                return None;
            }
            let gone_at = found.is_none().then_some(now);
            let base = cell.map_or_else(Stamp::lowest, |cell| cell.stamp.clone());
            Some((*slot, Cell { stamp: base.reconciled(total.revision), value, gone_at }))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cell(sequence: &str, value: i64) -> Cell {
        Cell {
            stamp: Stamp::of_record("l", &sequence.parse().unwrap()),
            value: Number::from(value),
            gone_at: None,
        }
    }

    fn looked_at(sequence: &str, value: i64) -> Cell {
        Cell { stamp: cell(sequence, 0).stamp.reconciled(6), ..cell(sequence, value) }
    }

    #[test]
    fn runs_that_get_through_a_part_meet_every_counter() {
        for count in [1_usize, 7, 1000, 4321] {
            for parts in [1_usize, 2, 5, 20] {
                let met_in_a_run = count.div_ceil(parts);
                for minute in [0, 29_920_469, u64::MAX] {
                    let mut met = BTreeSet::new();
                    for run in 0..2 * u64::try_from(parts).unwrap() {
                        let first = first_in_turn(minute.wrapping_add(run), count);
                        assert!(first < count);
                        met.extend((first..first + met_in_a_run).map(|place| place % count));
                    }
                    assert_eq!(met.len(), count, "one part in {parts} from minute {minute} on");
                }
            }
        }
        assert_eq!(first_in_turn(5, 0), 0);
    }

    #[test]
    fn only_what_differs_is_decided() {
        let total = Total {
            cells: Cells::from([
                (0, cell("1", 5)),
                (1, cell("2", 7)),
                (2, cell("3", 9)),
                (40, cell("4", 1)),
            ]),
            revision: 6,
        };
        assert_eq!(slots_needed(&total, 4), BTreeSet::from([0, 1, 2, 3, 40]));
        let slots = BTreeMap::from([
            (0, Number::from(5i64)),
            (1, Number::from(8i64)),
            (3, Number::from(2i64)),
            (40, Number::from(1i64)),
        ]);
        let cells = decide(&total, &slots, &BTreeSet::new(), 99);
        let expected = Cells::from([
            (1, looked_at("2", 8)),
            (2, Cell { gone_at: Some(99), ..looked_at("3", 0) }),
            (3, Cell { stamp: Stamp::lowest().reconciled(6), ..cell("1", 2) }),
        ]);
        assert_eq!(cells, expected);
        let repaired = total.joined(&cells).unwrap();
        assert!(decide(&repaired, &slots, &BTreeSet::new(), 100).is_empty());
        // A later record wins over the repair, an earlier one does not.
        assert!(repaired.joined(&Cells::from([(1, cell("2", 7))])).is_none());
        assert_eq!(
            repaired.joined(&Cells::from([(1, cell("3", 10))])).unwrap().cells.get(1),
            Some(&cell("3", 10))
        );
    }

    #[test]
    fn a_slot_of_zero_has_a_total_too() {
        let slots = BTreeMap::from([(0, Number::ZERO)]);
        let cells = decide(&Total::default(), &slots, &BTreeSet::new(), 99);
        assert_eq!(cells.get(0).map(|cell| cell.value), Some(Number::ZERO));
        let total = Total::default().joined(&cells).unwrap();
        assert!(decide(&total, &slots, &BTreeSet::new(), 99).is_empty());
    }

    #[test]
    fn unreadable_slots_are_left_alone() {
        let total = Total { cells: Cells::from([(0, cell("1", 5))]), revision: 1 };
        assert!(decide(&total, &BTreeMap::new(), &BTreeSet::from([0]), 99).is_empty());
    }
}
