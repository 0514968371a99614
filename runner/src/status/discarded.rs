//! The remark about the discarded records of a mapping: the records that were not redriven, and the
//! command that redrives them.

use std::path::Path;

use client::output::counted;
use jiff::Timestamp;
use local::redrive::discarded::{LeftBatches, left};
use local::status::list;
use serde_json::{Value, json};

/// The member of a mapping in the status that names its discarded records.
const LEFT: &str = "left";

fn total(mapping: &Value, name: &str) -> u64 {
    mapping.pointer(&format!("/totals/{name}")).and_then(Value::as_u64).unwrap_or(0)
}

/// Adds to the status, for each mapping, the discarded records that were not redriven. Reads the journal only
/// if there are such records.
pub(super) fn name_left(status: &mut Value, directory: &Path) {
    let has_left = |it: &Value| total(it, "discarded") > total(it, "redriven");
    if !list(status, "mappings").iter().any(has_left) {
        return;
    }
    let left = left(directory);
    let mappings = status.get_mut("mappings").and_then(Value::as_array_mut);
    for mapping in mappings.into_iter().flatten() {
        let own = mapping.get("mapping").and_then(Value::as_str);
        let own = own.and_then(|name| left.get(name));
        if let (Some(own), Value::Object(members)) = (own, mapping) {
            members.insert(LEFT.to_owned(), in_status(own));
        }
    }
}

fn in_status(left: &LeftBatches) -> Value {
    let more = if left.has_more { " and more" } else { "" };
    let since = left.kept_since_ms.map(|since| since.div_euclid(1_000));
    let since = since.and_then(|seconds| Timestamp::from_second(seconds).ok());
    json!({
        "records": format!("{}{more}", left.named.join(", ")),
        "kept_since": since.map(|since| since.to_string()),
    })
}

/// Returns the remark about a mapping that has discarded records.
pub(super) fn remark(mapping: &Value, discarded: u64, redriven: u64) -> String {
    let were = counted(discarded, "record was", "records were");
    let were = format!("{were} discarded since `weir up` started");
    let left = discarded.saturating_sub(redriven);
    if left == 0 {
        return format!("{were}; all of them were redriven and processed");
    }
    let text = |name: &str| mapping.pointer(&format!("/{LEFT}/{name}")).and_then(Value::as_str);
    let named = text("records").map(|records| format!(" ({records})")).unwrap_or_default();
    let which = match redriven {
        0 => named,
        _ => format!("; {redriven} redriven and processed, {left} not{named}"),
    };
    let them = if left == 1 { "it" } else { "them" };
    let advice = match (text("records"), text("kept_since")) {
        (_, Some(since)) => {
            format!("`weir streams redrive --since {since}` delivers {them} again")
        }
        (Some(_), None) => format!(
            "no failure object keeps {them}, so `weir streams redrive` cannot deliver {them} again"
        ),
        (None, None) => {
            "`weir streams explain RECORD` shows where discarded records are kept".to_owned()
        }
    };
    format!("{were}{which}; {advice}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_remark_names_the_records_and_the_next_command() {
        let kept = json!({"records": "41, 43 to 44", "kept_since": "2026-11-30T02:05:07Z"});
        let lost = json!({"records": "41", "kept_since": null});
        for (left, discarded, redriven, expected) in [
            (
                &kept,
                3,
                0,
                "3 records were discarded since `weir up` started (41, 43 to 44); `weir streams redrive --since 2026-11-30T02:05:07Z` delivers them again",
            ),
            (
                &kept,
                3,
                2,
                "3 records were discarded since `weir up` started; 2 redriven and processed, 1 not (41, 43 to 44); `weir streams redrive --since 2026-11-30T02:05:07Z` delivers it again",
            ),
            (
                &lost,
                1,
                0,
                "1 record was discarded since `weir up` started (41); no failure object keeps it, so `weir streams redrive` cannot deliver it again",
            ),
            (
                &Value::Null,
                1,
                0,
                "1 record was discarded since `weir up` started; `weir streams explain RECORD` shows where discarded records are kept",
            ),
            (
                &kept,
                2,
                2,
                "2 records were discarded since `weir up` started; all of them were redriven and processed",
            ),
        ] {
            let mapping = json!({ "left": left });
            assert_eq!(remark(&mapping, discarded, redriven), expected);
        }
    }

    #[test]
    fn the_first_second_of_the_kept_records_is_named() {
        let named = vec!["41".to_owned(), "43".to_owned(), "45".to_owned()];
        let left = LeftBatches { named, has_more: true, kept_since_ms: Some(1_796_004_307_999) };
        let expected =
            json!({"records": "41, 43, 45 and more", "kept_since": "2026-11-30T02:05:07Z"});
        assert_eq!(in_status(&left), expected);
    }
}
