//! Counters that expire: readers see the sum of the slots, regardless of how often totals are
//! deleted.
//!
//! An absent total counts as 0.

use super::*;

/// One step of a history.
#[derive(Clone, Debug)]
enum Step {
    /// The slots change, and the record of the change is delivered.
    Change,
    /// Enough time passes for TTL to delete every total that has an expiry.
    TimePasses,
    /// A record is delivered again.
    Again(Index),
    /// The reconciler reads every slot.
    Look,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        6 => Just(Step::Change),
        2 => Just(Step::TimePasses),
        2 => any::<Index>().prop_map(Step::Again),
        1 => Just(Step::Look),
    ];
    prop::collection::vec(step, 1..80)
}

/// Returns changes of the slots of two counters. Most slots are deleted at the end, so that many
/// counters expire.
fn votes() -> impl Strategy<Value = Vec<Change>> {
    let key = prop_oneof![0..2_u8, 4..6_u8];
    let change = prop_oneof![
        2 => (key.clone(), any::<i8>()).prop_map(|(key, value)| Change::Put { key, value }),
        1 => key.clone().prop_map(|key| Change::Delete { key }),
        1 => key.prop_map(|key| Change::Expire { key }),
    ];
    prop::collection::vec(change, 1..40)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(cases()))]

    #[test]
    fn sums_of_expiring_counters_converge(changes in votes(), steps in steps()) {
        let rule = counters();
        let mut tables = Tables::default();
        let (mut done, mut forgotten) = (0, false);
        for step in &steps {
            match step {
                Step::Change => {
                    let (_, before) = history_of_first(&changes, done);
                    done = (done + 1).min(changes.len());
                    let (_, records) = history_of_first(&changes, done);
                    for record in &records[before.len()..] {
                        rule.apply(&mut tables, &[record]);
                    }
                }
                Step::TimePasses => {
                    let totals = tables.totals.len();
                    tables.totals.retain(|_, item| item.get("expires_at").is_none());
                    forgotten |= tables.totals.len() < totals;
                }
                Step::Again(index) => {
                    let (table, records) = history_of_first(&changes, done);
                    if records.is_empty() {
                        continue;
                    }
                    rule.apply(&mut tables, &[index.get(&records)]);
                    // After an expiry, an old record may restore a deleted slot. In practice, no
                    // stream and no failure destination keeps records for that long. The next
                    // reconciliation removes the slot.
                    if forgotten {
                        reconcile_all(&mut tables, &table);
                    }
                }
                Step::Look => {
                    let (table, _) = history_of_first(&changes, done);
                    reconcile_all(&mut tables, &table);
                }
            }
            let (table, _) = history_of_first(&changes, done);
            check_totals(&tables, &table);
        }
        // The total of a counter without slots expires at the end. The total of a counter with
        // slots never expires.
        let (table, _) = history_of_first(&changes, done);
        reconcile_all(&mut tables, &table);
        tables.totals.retain(|_, item| item.get("expires_at").is_none());
        let (expected, left) = (sums(&table), tables.totals.keys());
        prop_assert!(left.eq(expected.keys()), "{:?}, {:?}", tables.totals.keys(), expected.keys());
    }
}
