//! Compares the TTL deletes in a table's streams with the rows of the archive.
//!
//! A stream keeps its records for 24 hours; rows of earlier deletes cannot be checked and are not
//! counted. This module does no I/O: `deletes` reads the stream.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};

/// Maximum number of event ids of each kind in a report.
const EXAMPLES_MAX: usize = 10;

/// The TTL deletes in the streams of a table.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Deletes {
    /// The streams that were read, by ARN.
    pub(super) streams: BTreeSet<String>,
    /// Time of each TTL delete in milliseconds since 1970, by event id.
    pub(super) deletes: BTreeMap<String, i64>,
    /// Number of TTL deletes of items that were restored from the compared archive and not changed
    /// since. The archive gets no row for these deletes, because it already has the item's earlier
    /// row, or had that row before an erasure.
    pub(super) restored: usize,
}

/// The values of an archive row that are compared.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Archived {
    pub(super) event_id: String,
    pub(super) stream_arn: String,
    /// Time of the delete, in milliseconds since 1970.
    pub(super) deleted_at: i64,
    /// True if TTL deleted the item; other deletes in the stream are not compared.
    pub(super) is_ttl: bool,
    /// True if the row is in a compacted object.
    pub(super) is_compacted: bool,
}

/// The time range of the comparison, in milliseconds since 1970.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Window {
    /// Start (inclusive). The stream certainly contains all records from this time on.
    pub(super) from: i64,
    /// End (exclusive). Deletes before this time must be archived.
    pub(super) to: i64,
    /// End (exclusive) of the grace period: a delete from `to` on may not be archived yet. A delete
    /// after `end` has a time in the future, because the clock was set back. Its age is unknown, so
    /// it counts as missing.
    pub(super) end: i64,
}

/// The result of comparing one table's deletes with its archive.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Comparison {
    in_stream: usize,
    archived: usize,
    erased: usize,
    pending: usize,
    overlapping: usize,
    missing: Vec<String>,
    extra: Vec<String>,
    duplicates: Vec<String>,
}

/// Compares the deletes with the rows. Rows outside the window, rows of streams that were not read,
/// and rows of deletes other than TTL's are only checked for duplicates. Erased rows do not count
/// as missing. A row that is once in a part and once in a compacted object is no duplicate:
/// compaction writes the object before it removes the parts, and may be killed in between.
pub(super) fn compare(
    deletes: &Deletes,
    rows: impl IntoIterator<Item = Archived>,
    erased: &BTreeSet<String>,
    window: Window,
) -> Comparison {
    let mut comparison = Comparison { in_stream: deletes.deletes.len(), ..Comparison::default() };
    // For each event: whether a part has its row, and whether a compacted object has its row.
    let mut seen: BTreeMap<String, [bool; 2]> = BTreeMap::new();
    for row in rows {
        let [in_part, compacted] = seen.entry(row.event_id.clone()).or_default();
        let (same, other) =
            if row.is_compacted { (compacted, in_part) } else { (in_part, compacted) };
        if std::mem::replace(same, true) {
            comparison.duplicates.push(row.event_id);
        } else if *other {
            comparison.overlapping += 1;
        } else if deletes.deletes.contains_key(&row.event_id) {
            comparison.archived += 1;
        } else if row.is_ttl
            && (window.from..window.to).contains(&row.deleted_at)
            && deletes.streams.contains(&row.stream_arn)
        {
            comparison.extra.push(row.event_id);
        }
    }
    for (event_id, time) in &deletes.deletes {
        if seen.contains_key(event_id) {
            continue;
        }
        if erased.contains(event_id) {
            comparison.erased += 1;
        } else if (window.to..window.end).contains(time) {
            comparison.pending += 1;
        } else {
            comparison.missing.push(event_id.clone());
        }
    }
    comparison
}

impl Comparison {
    /// Returns true if the archive has every delete exactly once, and no other rows.
    pub(super) fn is_equal(&self) -> bool {
        self.missing.is_empty() && self.extra.is_empty() && self.duplicates.is_empty()
    }

    /// Returns the report as JSON.
    pub(super) fn json(&self, table: &str, restored: usize) -> Value {
        let some = |ids: &[String]| ids.iter().take(EXAMPLES_MAX).cloned().collect::<Vec<_>>();
        json!({
            "table": table,
            "equal": self.is_equal(),
            "in_stream": self.in_stream,
            "archived": self.archived,
            "erased": self.erased,
            "restored": restored,
            "pending": self.pending,
            "overlapping": self.overlapping,
            "missing": self.missing.len(),
            "extra": self.extra.len(),
            "duplicates": self.duplicates.len(),
            "missing_event_ids": some(&self.missing),
            "extra_event_ids": some(&self.extra),
            "duplicate_event_ids": some(&self.duplicates),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Parses rows `event@time` or `event@time/stream`; `-` marks a user's delete, `+` a compacted
    /// object.
    fn rows(text: &str) -> Vec<Archived> {
        let row = |word: &str| {
            let (event_id, rest) = word.split_once('@').unwrap();
            let (time, stream) = rest.split_once('/').unwrap_or((rest, "s"));
            Archived {
                event_id: event_id.trim_start_matches(['-', '+']).to_owned(),
                is_ttl: !event_id.starts_with('-'),
                is_compacted: event_id.starts_with('+'),
                stream_arn: stream.to_owned(),
                deleted_at: time.parse().unwrap(),
            }
        };
        text.split_whitespace().map(row).collect()
    }

    #[test]
    fn differences_are_found_and_what_cannot_be_known_is_not() {
        for (stream, archive, expected) in [
            ("", "", (true, 0, "", "", "")),
            ("a@10 b@20", "b@20 a@10", (true, 0, "", "", "")),
            ("a@10 b@20", "a@10", (false, 0, "b", "", "")),
            ("a@10", "a@10 a@10", (false, 0, "", "", "a")),
            ("a@10", "a@10 x@11", (false, 0, "", "x", "")),
            ("a@10", "a@10 -x@11", (true, 0, "", "", "")),
            ("a@10", "a@10 -x@11 -x@11", (false, 0, "", "", "x")),
            ("a@10", "a@10 +a@10", (true, 0, "", "", "")),
            ("a@10", "+a@10 a@10", (true, 0, "", "", "")),
            ("a@10", "+a@10 a@10 a@10", (false, 0, "", "", "a")),
            ("a@10", "+a@10 +a@10", (false, 0, "", "", "a")),
            ("a@10", "a@10 old@4", (true, 0, "", "", "")),
            ("a@10 gone@11", "a@10", (true, 0, "", "", "")),
            ("a@10", "a@10 new@90", (true, 0, "", "", "")),
            ("a@10", "a@10 x@11/other", (true, 0, "", "", "")),
            ("a@10 late@90", "a@10", (true, 1, "", "", "")),
            ("a@10 future@100", "a@10", (false, 0, "future", "", "")),
        ] {
            let deletes = Deletes {
                streams: BTreeSet::from(["s".to_owned()]),
                deletes: rows(stream).into_iter().map(|r| (r.event_id, r.deleted_at)).collect(),
                restored: 0,
            };
            let erased = BTreeSet::from(["gone".to_owned()]);
            let window = Window { from: 5, to: 80, end: 100 };
            let found = compare(&deletes, rows(archive), &erased, window);
            let (missing, extra) = (found.missing.join(" "), found.extra.join(" "));
            let duplicates = found.duplicates.join(" ");
            assert_eq!(
                (found.is_equal(), found.pending, &*missing, &*extra, &*duplicates),
                expected,
                "{stream} against {archive}"
            );
        }
    }
}
