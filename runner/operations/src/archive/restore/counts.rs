//! Counts the results of a restore or a dry run.

use std::sync::atomic::{AtomicU64, Ordering};

use locks::Mutex;

use serde_json::json;

use super::newest::{KeepReason, RowResult};
use client::exit::Exit;
use client::output::counted;

/// Maximum number of skipped rows in the answer.
const SKIPPED_NAMED_MAX: usize = 10;

/// The counted results; in a dry run, the predicted results.
#[derive(Debug, Default)]
pub(super) struct Counts {
    rows: AtomicU64,
    restored: AtomicU64,
    /// Number of restored rows that replaced the item of an older row, or a tombstone.
    replaced: AtomicU64,
    kept: AtomicU64,
    /// Number of rows that were not put, because another writer wrote or changed the table's item.
    written: AtomicU64,
    skipped: AtomicU64,
    /// Rows of a migration's tombstones (markers of deleted items), which are not items.
    tombstones: AtomicU64,
    /// Event ids of the first skipped rows, and the reasons.
    skipped_rows: Mutex<Vec<(String, String)>>,
}

impl Counts {
    /// Returns the number of selected rows so far.
    pub(super) fn rows(&self) -> u64 {
        self.rows.load(Ordering::Relaxed)
    }

    /// Counts a row that the selection contains.
    pub(super) fn selected(&self) {
        add_one(&self.rows);
    }

    /// Counts a row of a tombstone.
    pub(super) fn tombstone(&self) {
        add_one(&self.tombstones);
    }

    /// Counts the result of a row.
    pub(super) fn add(&self, event_id: &str, fate: RowResult) {
        match fate {
            RowResult::Restored { replaces } => {
                add_one(&self.restored);
                if replaces {
                    add_one(&self.replaced);
                }
            }
            RowResult::Kept(kept) => {
                add_one(&self.kept);
                if kept == KeepReason::Written {
                    add_one(&self.written);
                }
            }
            RowResult::Skipped(reason) => {
                add_one(&self.skipped);
                let mut rows = self.skipped_rows.lock();
                if rows.len() < SKIPPED_NAMED_MAX {
                    rows.push((event_id.to_owned(), reason));
                }
            }
        }
    }

    /// Returns the answer and the exit code. The answer of a dry run counts the items that would be
    /// restored.
    pub(super) fn answer(&self, table: &str, dry_run: bool) -> (String, Exit) {
        let count = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let rows = self.skipped_rows.lock();
        let rows =
            rows.iter().map(|(event_id, reason)| json!({"event_id": event_id, "reason": reason}));
        let restored = count(&self.restored);
        let mut answer = json!({
            "table": table,
            "dry_run": dry_run,
            "rows": self.rows(),
            "restored": if dry_run { 0 } else { restored },
            "replaced": if dry_run { 0 } else { count(&self.replaced) },
            "kept_as_they_are": count(&self.kept),
            "written_by_others": count(&self.written),
            "skipped": count(&self.skipped),
            "tombstones": count(&self.tombstones),
            "skipped_rows": rows.collect::<Vec<_>>(),
        });
        if let (true, Some(answer)) = (dry_run, answer.as_object_mut()) {
            answer.insert("would_restore".to_owned(), json!(restored));
            answer.insert("would_replace".to_owned(), json!(count(&self.replaced)));
        }
        let code = match (self.rows(), count(&self.skipped)) {
            (0, _) => Exit::Failed,
            (_, 0) => Exit::Done,
            _ => Exit::Differences,
        };
        (answer.to_string(), code)
    }

    /// Describes the results of a dry run.
    pub(super) fn foretold(&self, table: &str) -> String {
        let count = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let rows = |number: u64| counted(number, "row", "rows");
        let mut said = format!(
            "{}: {} would be put into `{table}`",
            rows(self.rows()),
            counted(count(&self.restored), "item", "items")
        );
        let replaced = count(&self.replaced);
        if replaced > 0 {
            said.push_str(&format!(
                ", {replaced} of them in place of an item of an older row or a tombstone"
            ));
        }
        let written = count(&self.written);
        for (number, why) in [
            (
                count(&self.kept) - written,
                "not put, because the table's item is from the same row or a newer one",
            ),
            (written, "not put, because another writer wrote or changed the item"),
            (count(&self.skipped), "skipped; `skipped_rows` has the reasons"),
            (count(&self.tombstones), "tombstones of a migration, which are not items"),
        ] {
            if number > 0 {
                said.push_str(&format!("; {} {why}", rows(number)));
            }
        }
        said.push_str("; nothing was written");
        said
    }
}

fn add_one(counter: &AtomicU64) {
    counter.fetch_add(1, Ordering::Relaxed);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_dry_run_reports_the_counts_of_a_restore() {
        let put = |replaces| RowResult::Restored { replaces };
        let skipped = || RowResult::Skipped("too large".to_owned());
        for (fates, expected) in [
            (vec![], "0 rows: 0 items would be put into `t`; nothing was written"),
            (vec![put(false)], "1 row: 1 item would be put into `t`; nothing was written"),
            (
                vec![put(true), put(false), RowResult::Kept(KeepReason::Newer)],
                "3 rows: 2 items would be put into `t`, 1 of them in place of an item of an older row or a tombstone; 1 row not put, because the table's item is from the same row or a newer one; nothing was written",
            ),
            (
                vec![
                    RowResult::Kept(KeepReason::Written),
                    RowResult::Kept(KeepReason::Written),
                    skipped(),
                ],
                "3 rows: 0 items would be put into `t`; 2 rows not put, because another writer wrote or changed the item; 1 row skipped; `skipped_rows` has the reasons; nothing was written",
            ),
        ] {
            let counts = Counts::default();
            for fate in fates {
                counts.selected();
                counts.add("e", fate);
            }
            assert_eq!(counts.foretold("t"), expected);
        }
    }
}
