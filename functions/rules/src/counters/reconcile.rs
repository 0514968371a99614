//! The reconciler's decision: which cells of a total differ from a direct read of all its slots.
//!
//! **Why this is a join and converges with pending stream records.** The reconciler reads the total
//! first and then every slot, with strongly consistent reads. If the total has a value of slot *i*
//! as of stamp *s*, the change with stamp *s* was committed before the total was read. The value
//! that is read from the slot is therefore the value as of *s* or later. It may replace the value
//! as of *s*, but not the value of a later record. The stamp `s+<revision>` expresses this: it is
//! after *s* and before every later record. A late stream record with a stamp up to *s* does not
//! replace the value that was read. A record with a later stamp replaces it. If the slot's last
//! record is lost, the value that was read stays.
//!
//! Two runs at the same revision could read two values for one stamp. The cells are therefore
//! written only if the total still has the revision that was read. Otherwise, the total and the
//! slots are read again.
//!
//! A difference may be an error, or only a record that is still pending. The repair is correct in both
//! cases. The caller reads and writes the items.
//!
//! **Order of runs.** A run may end before it has processed all counters. Each run therefore begins at
//! a different counter, so that the runs leave out different counters.

use std::collections::{BTreeMap, BTreeSet};

use model::Number;

use super::total::{Cell, Cells, Total};
use crate::stamp::Stamp;

/// The golden section of a circle of 2^64 steps. Any number of steps of this size covers the circle
/// as evenly as possible.
const GOLDEN_SECTION: u64 = 0x9E37_79B9_7F4A_7C15;

/// Returns the index of the counter with which the run in this minute begins, below `count`. If each run
/// processes one *n*-th of the counters, 2*n* successive runs process them all.
#[must_use]
pub fn first_in_turn(minute: u64, count: usize) -> usize {
    let count_wide = u128::try_from(count).unwrap_or(u128::MAX >> 64);
    let first = (u128::from(place_in_turn(minute)) * count_wide) >> 64;
    usize::try_from(first).unwrap_or(0)
}

/// Returns the key after which the run in this minute begins to scan for counters. No item needs to
/// have this key, because a scan follows the hashes of keys.
#[must_use]
pub fn scan_in_turn(minute: u64) -> String {
    format!("{:016x}", place_in_turn(minute))
}

fn place_in_turn(minute: u64) -> u64 {
    minute.wrapping_mul(GOLDEN_SECTION)
}

/// Returns the slots that must be read to reconcile `total`: all configured slots, and further
/// slots that the total contains.
#[must_use]
pub fn slots_needed(total: &Total, slot_count: u32) -> BTreeSet<u32> {
    (0..slot_count).chain(total.cells.iter().map(|(slot, _)| slot)).collect()
}

/// Returns the cells of `total` that must change; empty if nothing differs. `slots` holds the values of
/// the existing slots among [`slots_needed`], read after the total. An absent slot counts as 0 and as
/// deleted at `now`, in seconds since 1970. The cells of slots in `unreadable` stay unchanged.
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
            // An existing slot without a cell gets a cell even if its value is 0, so that its
            // counter gets a total.
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
    fn partial_runs_process_every_counter() {
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
        // A later record replaces the repaired value, and an earlier record does not.
        assert!(repaired.joined(&Cells::from([(1, cell("2", 7))])).is_none());
        assert_eq!(
            repaired.joined(&Cells::from([(1, cell("3", 10))])).unwrap().cells.get(1),
            Some(&cell("3", 10))
        );
    }

    #[test]
    fn a_slot_with_the_value_zero_has_a_total() {
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
