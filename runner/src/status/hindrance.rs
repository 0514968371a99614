//! What keeps a `weir up` that runs from writing down what it does: as its status says it, or because
//! that is not written any more.
//!
//! Whether a `weir up` runs is not looked at here.

use std::path::Path;

use serde_json::Value;

use super::{FILE, machine_ms, read};

/// How old a status may be, in milliseconds: it is written twice a second, on a busy machine less often.
const AGE_MS_MAX: i64 = 10_000;

/// What hinders the `weir up` that runs on a data folder, and what to do about it.
pub(crate) fn now(directory: &Path) -> Option<String> {
    of(read(directory).as_ref(), directory, machine_ms())
}

/// The same, of a status that was read at this time by the machine's clock.
fn of(status: Option<&Value>, directory: &Path, now_ms: i64) -> Option<String> {
    let file = directory.join(FILE);
    let file = file.display();
    let advice = "make room on its disk, or let the user of `weir up` write there";
    let Some(status) = status else {
        return Some(format!(
            "`weir up` has not written `{file}` yet: it has only begun, or it cannot write; {advice}"
        ));
    };
    let taken_ms = status.get("taken_ms").and_then(Value::as_i64).unwrap_or(now_ms);
    if now_ms.saturating_sub(taken_ms) > AGE_MS_MAX {
        let taken = jiff::Timestamp::from_millisecond(taken_ms).unwrap_or_default();
        return Some(format!(
            "`weir up` runs and has not written `{file}` since {taken:.0}, so what is said here is from then: {advice}"
        ));
    }
    status.get("journal_fault").and_then(Value::as_str).map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_is_not_written_is_said_with_what_to_do() {
        let fault = "the journal cannot be written";
        for (status, expected) in [
            (None, Some("has not written `up/status.json` yet")),
            (Some(json!({"taken_ms": 1_000_000})), None),
            (Some(json!({"taken_ms": 1_000_000, "journal_fault": null})), None),
            (Some(json!({"taken_ms": 1_000_000, "journal_fault": fault})), Some(fault)),
            (
                Some(json!({"taken_ms": 900_000, "journal_fault": fault})),
                Some("1970-01-01T00:15:00Z"),
            ),
            (Some(json!({})), None),
        ] {
            let said = of(status.as_ref(), Path::new("up"), 1_000_000 + AGE_MS_MAX);
            match (&said, expected) {
                (None, None) => {}
                (Some(said), Some(expected)) => assert!(said.contains(expected), "{said}"),
                _ => panic!("{status:?}: {said:?}"),
            }
        }
    }
}
