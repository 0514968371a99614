//! The counts of a mapping's records since `weir up` started.
//!
//! A shard counts as caught up if its records were delivered, and also if a filter dropped all of them.
//! The counts show which case applies.

use client::output::counted;
use serde_json::{Value, json};

/// The names of the counts, in the order of [`of`].
pub(super) const HEADINGS: [&str; 5] =
    ["read", "filtered", "delivered", "failed invocations", "discarded"];

/// The names of the counts in the status file.
const TOTALS: [&str; 5] = ["read", "filtered", "done", "failures", "discarded"];

fn total(mapping: &Value, name: &str) -> u64 {
    mapping.pointer(&format!("/totals/{name}")).and_then(Value::as_u64).unwrap_or(0)
}

/// Returns the counts of a mapping in the status file.
pub(super) fn of(mapping: &Value) -> Vec<Value> {
    TOTALS.iter().map(|name| json!(total(mapping, name))).collect()
}

/// Returns a remark about a mapping whose filter matched no record. This is intended, for example,
/// for a function that waits for items to expire; otherwise a pattern probably has a mistake.
pub(super) fn remark(mapping: &Value) -> Option<String> {
    let (read, filtered) = (total(mapping, "read"), total(mapping, "filtered"));
    if read == 0 || filtered < read {
        return None;
    }
    let text = |name: &str| mapping.get(name).and_then(Value::as_str).unwrap_or_default();
    let lacks = mapping.get("filter_lacks").and_then(Value::as_str);
    let lacks = lacks.map(|lacks| format!(": {lacks}")).unwrap_or_default();
    Some(format!(
        "{}: the mapping's filter dropped {}, so function `{}` received no record{lacks}; if this is not intended, `weir streams explain --table TABLE --key KEY` shows the part of the pattern that a record does not match",
        text("mapping"),
        match read {
            1 => "the only record that it read".to_owned(),
            _ => format!("all {} that it read", counted(read, "record", "records")),
        },
        text("function"),
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_filter_that_drops_every_record_is_reported() {
        for (read, filtered, said) in [
            (0, 0, None),
            (5, 4, None),
            (
                5,
                5,
                Some(
                    "M: the mapping's filter dropped all 5 records that it read, so function `F` received no record",
                ),
            ),
            (1, 1, Some("M: the mapping's filter dropped the only record that it read")),
        ] {
            let totals = json!({"read": read, "filtered": filtered});
            let mapping = json!({"mapping": "M", "function": "F", "totals": totals});
            let remark = remark(&mapping);
            assert_eq!(remark.is_some(), said.is_some(), "{read} {filtered}");
            assert!(remark.unwrap_or_default().starts_with(said.unwrap_or_default()));
        }
        let lacks = "the first record has no `a.b`; did you mean `c`?";
        let totals = json!({"read": 5, "filtered": 5});
        let said = remark(&json!({"totals": totals, "filter_lacks": lacks})).unwrap();
        assert!(said.contains("received no record: the first record has no `a.b`;"), "{said}");
    }

    #[test]
    fn each_count_has_a_heading() {
        let totals = json!({"read": 9, "filtered": 3, "done": 4, "failures": 1, "discarded": 2});
        assert_eq!(of(&json!({"totals": totals})), [9, 3, 4, 1, 2]);
        assert_eq!(of(&json!({})), [0; HEADINGS.len()]);
    }
}
