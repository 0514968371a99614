//! Interprets a function's response to a batch, according to `ReportBatchItemFailures`.
//!
//! `lane` retries and splits the batches.
//!
//! Sources: AWS Lambda guide, "Configuring partial batch response with DynamoDB and Lambda", and
//! LocalStack's tests, recorded on AWS (the only source for an identifier that is not in the batch, and
//! for an empty response).

use std::collections::BTreeMap;

use serde_json::Value;

use super::sequence::SequenceNumber;

/// The result of a batch, according to the function's response.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Answer {
    /// Every record is done.
    Complete,
    /// The records before this index are done. The remaining records must be retried.
    From(usize),
    /// No record is done, because the response is invalid. The value is the reason.
    Failed(String),
}

/// Interprets the response of a function that succeeded.
///
/// `reporting` is true if the mapping has `ReportBatchItemFailures`; without it, every response
/// means success. `batch` contains the sequence numbers of the delivered records, in order.
#[must_use]
pub fn read_answer(payload: &[u8], reporting: bool, batch: &[&SequenceNumber]) -> Answer {
    if !reporting || payload.trim_ascii().is_empty() {
        return Answer::Complete;
    }
    let answer: Value = match serde_json::from_slice(payload) {
        Ok(value) => value,
        Err(error) => {
            return Answer::Failed(format!("the function's response is not JSON: {error}"));
        }
    };
    match answer {
        Value::Null => Answer::Complete,
        Value::String(text) if text.is_empty() => Answer::Complete,
        Value::Array(entries) if entries.is_empty() => Answer::Complete,
        Value::Object(members) => match members.get("batchItemFailures") {
            None | Some(Value::Null) => Answer::Complete,
            Some(Value::Array(failures)) => lowest_failure(failures, batch),
            Some(other) => Answer::Failed(format!("batchItemFailures is not a list: {other}")),
        },
        other => Answer::Failed(format!(
            "the function's response is neither empty nor an object with batchItemFailures: {other}"
        )),
    }
}

/// Returns the `state` in a response, as JSON text; `None` if the response has no `state`. A
/// response within a tumbling window must have a `state`.
#[must_use]
pub(super) fn read_state(payload: &[u8]) -> Option<String> {
    let answer: Value = serde_json::from_slice(payload).ok()?;
    answer.get("state").filter(|state| !state.is_null()).map(Value::to_string)
}

fn lowest_failure(failures: &[Value], batch: &[&SequenceNumber]) -> Answer {
    let places: BTreeMap<&str, usize> =
        batch.iter().enumerate().map(|(place, sequence)| (sequence.as_str(), place)).collect();
    let mut lowest: Option<usize> = None;
    for failure in failures {
        let Some(identifier) = failure.get("itemIdentifier") else {
            return Answer::Failed(format!("a batch item failure lacks itemIdentifier: {failure}"));
        };
        if identifier.is_number() {
            // The message does not quote the number, because parsing may have rounded it.
            let why =
                "an itemIdentifier is a number; return the record's SequenceNumber as a string";
            return Answer::Failed(why.to_owned());
        }
        let Some(&place) = identifier.as_str().and_then(|text| places.get(text)) else {
            return Answer::Failed(format!(
                "itemIdentifier {identifier} is not the sequence number of a record in the batch"
            ));
        };
        // The records are in the order of their sequence numbers, so the lowest index belongs to
        // the lowest sequence number.
        lowest = Some(lowest.map_or(place, |known| known.min(place)));
    }
    lowest.map_or(Answer::Complete, Answer::From)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_window_needs_a_state() {
        for (payload, expected) in [
            (r#"{"state":{"a":"1"}}"#, Some(r#"{"a":"1"}"#)),
            (r#"{"state":{}}"#, Some("{}")),
            (r#"{"state":null}"#, None),
            (r#"{"batchItemFailures":[]}"#, None),
            ("null", None),
            ("", None),
            ("state", None),
        ] {
            assert_eq!(read_state(payload.as_bytes()).as_deref(), expected, "{payload}");
        }
    }

    #[test]
    fn truth_table() {
        let (complete, failed) = ("complete", "failed");
        #[rustfmt::skip]
        let cases = [
            // answer                                                              outcome
            ("",                                                                   complete),
            ("null",                                                               complete),
            (r#""""#,                                                              complete),
            ("[]",                                                                 complete),
            ("{}",                                                                 complete),
            (r#"{"statusCode":200}"#,                                              complete),
            (r#"{"batchItemFailures":[]}"#,                                        complete),
            (r#"{"batchItemFailures":null}"#,                                      complete),
            (r#"{"batchItemFailures":[{"itemIdentifier":"99"}]}"#,                 "from 1"),
            (r#"{"batchItemFailures":[{"itemIdentifier":"100"},{"itemIdentifier":"99"}]}"#, "from 1"),
            (r#"{"batchItemFailures":[{"itemIdentifier":"8"},{"itemIdentifier":"8"}]}"#, "from 0"),
            (r#"{"batchItemFailures":[{"itemIdentifier":""}]}"#,                   failed),
            (r#"{"batchItemFailures":[{"itemIdentifier":null}]}"#,                 failed),
            (r#"{"batchItemFailures":[{"foo":1}]}"#,                               failed),
            (r#"{"batchItemFailures":[{"foo":null}]}"#,                            failed),
            (r#"{"batchItemFailures":[{"itemIdentifier":123}]}"#,                  failed),
            (r#"{"batchItemFailures":[{"itemIdentifier":"123"}]}"#,                failed),
            (r#"{"batchItemFailures":[{"itemIdentifier":"8"},{"itemIdentifier":"123"}]}"#, failed),
            (r#"{"batchItemFailures":[{"itemIdentifier":"099"}]}"#,                failed),
            (r#"{"batchItemFailures":["8"]}"#,                                     failed),
            (r#"{"batchItemFailures":{}}"#,                                        failed),
            (r#""ok""#,                                                            failed),
            ("[1]",                                                                failed),
            ("<html>",                                                             failed),
        ];
        let numbers = ["8", "99", "100"].map(|text| SequenceNumber::parse(text).unwrap());
        let batch: Vec<_> = numbers.iter().collect();
        for (payload, expected) in cases {
            let found = match read_answer(payload.as_bytes(), true, &batch) {
                Answer::Complete => complete.to_owned(),
                Answer::From(index) => format!("from {index}"),
                Answer::Failed(_) => failed.to_owned(),
            };
            assert_eq!(found, expected, "{payload}");
            let ignored = read_answer(payload.as_bytes(), false, &batch);
            assert_eq!(ignored, Answer::Complete, "{payload} without ReportBatchItemFailures");
        }
    }
}
