//! Determines why a running `weir up` cannot write its status or its journal. The status file
//! contains the journal's error. A status file older than ten seconds shows that the file itself
//! cannot be written.
//!
//! This module does not check whether `weir up` is running.

use std::path::Path;

use serde_json::Value;

use super::{FILE, machine_ms, read};

/// The maximum age of a status in milliseconds. `weir up` writes it twice a second, but less often on a
/// busy machine.
const AGE_MS_MAX: i64 = 10_000;

/// Returns the reason why the `weir up` of a data folder cannot write its status or its journal,
/// and the fix.
#[must_use]
pub fn now(directory: &Path) -> Option<String> {
    of_status(read(directory).as_ref(), directory)
}

/// Returns the same as [`now`], for the status that was just read from the data folder.
#[must_use]
pub fn of_status(status: Option<&Value>, directory: &Path) -> Option<String> {
    of(status, directory, machine_ms())
}

/// Checks a status that was read at `now_ms` by this machine's clock.
fn of(status: Option<&Value>, directory: &Path, now_ms: i64) -> Option<String> {
    let file = directory.join(FILE);
    let file = file.display();
    let advice = "free disk space, or grant the user of `weir up` write permission there";
    let Some(status) = status else {
        return Some(format!(
            "`weir up` has not written `{file}` yet: it has just started, or it cannot write the file; {advice}"
        ));
    };
    let taken_ms = status.get("taken_ms").and_then(Value::as_i64).unwrap_or(now_ms);
    if now_ms.saturating_sub(taken_ms) > AGE_MS_MAX {
        let taken = jiff::Timestamp::from_millisecond(taken_ms).unwrap_or_default();
        return Some(format!(
            "`weir up` is running but has not written `{file}` since {taken:.0}, so this output is the state at that time; {advice}"
        ));
    }
    status.get("journal_fault").and_then(Value::as_str).map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn an_old_status_is_reported_with_a_fix() {
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
