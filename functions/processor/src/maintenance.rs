//! Requests and responses of the function `archive-maintenance`: compaction on a schedule or on
//! request, erasure on request.
//!
//! `archive_sink::{compaction, erasure}` implement both. The function has a reserved concurrency of
//! one, so no two of these operations run at the same time.

use std::collections::BTreeMap;

use futures::future::LocalBoxFuture;
use model::json;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use crate::archive_sink::compaction::{
    AGE_SECONDS_DEFAULT, AGE_SECONDS_MIN, CompactionReport, Compactor, Selection,
};
use crate::archive_sink::erasure::{Condition, Eraser, ErasureSummary, Subject};
use crate::back_off::Deadline;
use crate::failure::Failure;
use crate::object_store::ObjectMaintenance;

/// The requested operation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Request {
    /// Compaction.
    Compact {
        /// The table to compact; all tables if `None`.
        table: Option<String>,
        /// Minimum age of a part in seconds.
        age_seconds: u64,
    },
    /// Erasure.
    Erase {
        /// The table whose archive is changed.
        table: String,
        /// The rows to erase.
        subject: Subject,
        /// The erasure's name, under which it can be resumed.
        name: Option<String>,
    },
}

/// The result of an operation.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum Answer {
    /// The result of a compaction.
    Compacted(CompactionReport),
    /// The result of an erasure.
    Erased(ErasureSummary),
}

/// The values of `source` in the events of schedules: EventBridge rules and EventBridge Scheduler.
/// Source: Amazon EventBridge user guide, "Scheduled events"; EventBridge Scheduler user guide.
const SCHEDULES: [&str; 2] = ["aws.events", "aws.scheduler"];

/// The members of an event that identify its sender.
#[derive(Deserialize)]
struct Origin {
    source: Option<String>,
}

/// A request by an operator. Unknown members are rejected, so that a mistyped request does not run
/// a different operation than intended.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Event<'e> {
    compact: Option<CompactEvent>,
    #[serde(borrow)]
    erase: Option<EraseEvent<'e>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct CompactEvent {
    table: Option<String>,
    age_seconds: Option<u64>,
    #[serde(default)]
    nothing_is_archiving: bool,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct EraseEvent<'e> {
    table: String,
    #[serde(borrow)]
    equals: Option<&'e RawValue>,
    #[serde(default)]
    begins_with: BTreeMap<String, String>,
    /// A condition in jq that selects the items to erase.
    r#where: Option<String>,
    name: Option<String>,
}

/// Decodes an event: `{"compact":{…}}`, `{"erase":{…}}`, or the event of a schedule, which requests
/// a compaction.
///
/// # Errors
/// Returns what is wrong with the event, and what to write instead.
pub fn decode(event: &str) -> Result<Request, Failure> {
    let wrong = |reason: String| {
        Failure::Fatal(format!(
            "invalid event: {reason}; send {{\"compact\":{{}}}} or {{\"erase\":{{\"table\":\"movies\",\"equals\":{{\"title\":{{\"S\":\"Rush\"}}}}}}}}"
        ))
    };
    let origin: Origin = serde_json::from_str(event).map_err(|error| wrong(error.to_string()))?;
    if origin.source.is_some_and(|source| SCHEDULES.contains(&source.as_str())) {
        return Ok(Request::Compact { table: None, age_seconds: AGE_SECONDS_DEFAULT });
    }
    let event: Event<'_> = serde_json::from_str(event).map_err(|error| wrong(error.to_string()))?;
    match (event.compact, event.erase) {
        (Some(_), Some(_)) => Err(wrong("`compact` and `erase` are both present".to_owned())),
        (None, None) => Err(wrong("neither `compact` nor `erase` is present".to_owned())),
        (Some(compact), None) => {
            let age_seconds = compact.age_seconds.unwrap_or(AGE_SECONDS_DEFAULT);
            if age_seconds < AGE_SECONDS_MIN && !compact.nothing_is_archiving {
                return Err(wrong(format!(
                    "ageSeconds={age_seconds} is below {AGE_SECONDS_MIN}, so a writer may still be using the parts; send a larger ageSeconds, or add \"nothingIsArchiving\":true if no invocation of `archive` is running"
                )));
            }
            Ok(Request::Compact { table: compact.table, age_seconds })
        }
        (None, Some(erase)) => {
            let equals = erase.equals.map_or("{}", RawValue::get);
            let equals = json::item_from_str(equals)
                .map_err(|error| wrong(format!("`equals` is not DynamoDB JSON: {error}")))?;
            let begins_with: Vec<_> = erase.begins_with.into_iter().collect();
            let condition = erase.r#where.as_deref().map(Condition::parse).transpose();
            let condition =
                condition.map_err(|error| wrong(format!("`where`: {}", error.reason)))?;
            let subject = Subject { equals, begins_with, condition };
            if subject.is_empty() {
                return Err(wrong(
                    "`erase` has none of `equals`, `beginsWith` and `where`".to_owned(),
                ));
            }
            let is_name = |name: &String| {
                !name.is_empty() && name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-')
            };
            if let Some(name) = erase.name.as_ref().filter(|name| !is_name(name)) {
                return Err(wrong(format!(
                    "`name` may contain only letters, digits and `-`, not `{name}`"
                )));
            }
            Ok(Request::Erase { table: erase.table, subject, name: erase.name })
        }
    }
}

/// Carries out the request.
///
/// # Errors
/// Returns why the operation failed.
pub async fn carry_out<O: ObjectMaintenance>(
    request: Request,
    compactor: &Compactor<O>,
    eraser: &Eraser<O>,
    now_seconds: u64,
    deadline: Deadline,
) -> Result<Answer, Failure> {
    // The futures are boxed, because nested futures exceed the compiler's recursion limit.
    match request {
        Request::Compact { table, age_seconds } => {
            let selection = Selection { table, now_seconds, age_seconds };
            let report: LocalBoxFuture<'_, _> = Box::pin(compactor.run(&selection, deadline));
            report.await.map(Answer::Compacted)
        }
        Request::Erase { table, subject, name } => {
            let name = name.as_deref();
            let erased: LocalBoxFuture<'_, _> =
                Box::pin(eraser.erase(&table, &subject, name, now_seconds, deadline));
            erased.await.map(|receipt| Answer::Erased(receipt.into()))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events() {
        for (event, expected) in [
            (r#"{"source":"aws.events","detail":{}}"#, Ok((None, AGE_SECONDS_DEFAULT))),
            (r#"{"version":"0","source":"aws.scheduler"}"#, Ok((None, AGE_SECONDS_DEFAULT))),
            (r#"{"source":"aws.s3","detail":{}}"#, Err("unknown field `source`")),
            ("{}", Err("neither `compact` nor `erase` is present")),
            (r#"{"Erase":{"table":"t"}}"#, Err("unknown field `Erase`")),
            (r#"{"compact":{},"Erase":{"table":"t"}}"#, Err("unknown field `Erase`")),
            (r#"{"compact":{"table":"movies"}}"#, Ok((Some("movies"), AGE_SECONDS_DEFAULT))),
            (r#"{"compact":{"ageSeconds":900}}"#, Ok((None, 900))),
            (r#"{"compact":{"ageSeconds":0,"nothingIsArchiving":true}}"#, Ok((None, 0))),
            (r#"{"compact":{"ageSeconds":0}}"#, Err("ageSeconds=0 is below 900")),
            (r#"{"compact":{"days":3}}"#, Err("unknown field `days`")),
            (
                r#"{"compact":{},"erase":{"table":"t"}}"#,
                Err("`compact` and `erase` are both present"),
            ),
            (
                r#"{"erase":{"table":"t"}}"#,
                Err("`erase` has none of `equals`, `beginsWith` and `where`"),
            ),
            (r#"{"erase":{"table":"t","beginsWith":{"pk":""}}}"#, Err("`erase` has none of")),
            (r#"{"erase":{"table":"t","equals":{"a":1}}}"#, Err("`equals` is not DynamoDB JSON")),
            (r#"{"erase":{"table":"t","where":".a =="}}"#, Err("`where`: ")),
            (r#"{"erase":{"table":"t","where":".a","name":"a/b"}}"#, Err("not `a/b`")),
            ("[]", Err("invalid event")),
        ] {
            match (decode(event), expected) {
                (Ok(Request::Compact { table, age_seconds }), Ok(expected)) => {
                    assert_eq!((table.as_deref(), age_seconds), expected, "{event}");
                }
                (Err(Failure::Fatal(found)), Err(expected)) => {
                    assert!(found.contains(expected), "{event}: {found}");
                }
                (found, expected) => panic!("{event}: {found:?} {expected:?}"),
            }
        }
        let event = r#"{"erase":{"table":"t","equals":{"a":{"S":"x"}},"beginsWith":{"pk":"T#1#"},"where":".off | not"}}"#;
        let Ok(Request::Erase { table, subject, name: None }) = decode(event) else {
            panic!("erase")
        };
        assert_eq!(table, "t");
        for (item, is_meant) in [
            (r#"{"a":{"S":"x"},"pk":{"S":"T#1#9"}}"#, true),
            (r#"{"a":{"S":"x"},"pk":{"S":"T#10"}}"#, false),
            (r#"{"a":{"S":"y"},"pk":{"S":"T#1#9"}}"#, false),
            (r#"{"a":{"S":"x"},"pk":{"S":"T#1#9"},"off":{"BOOL":true}}"#, false),
            (r#"{"pk":{"S":"T#1#9"}}"#, false),
        ] {
            let found = subject.is_met_by(&json::item_from_str(item).unwrap());
            assert_eq!(found, Ok(is_meant), "{item}");
        }
    }
}
