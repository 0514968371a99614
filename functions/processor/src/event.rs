//! The events that Lambda delivers to a function, and the responses, as JSON.
//!
//! Each record is decoded separately, when it is needed. So a record that cannot be decoded does
//! not affect other records. The module does not interpret records. Source: AWS Lambda guide,
//! `with-ddb`, `services-ddb-batchfailurereporting`.

use std::sync::OnceLock;

use model::stream_record::{LambdaRecord, RecordError, RecordView, lambda_record_from_str};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use crate::failure::Failure;

/// An invocation's event.
#[derive(Debug)]
pub enum Event<'p> {
    /// A batch of stream records, in order.
    Batch(Vec<BatchRecord<'p>>),
    /// An event without `Records`, such as the event of a schedule.
    Other,
}

/// One record of a batch.
#[derive(Debug)]
pub struct BatchRecord<'p> {
    /// The record's JSON, unchanged.
    pub raw: &'p str,
    /// The decoded record, if it was kept. It is boxed, because most functions keep few decoded
    /// records.
    decoded: OnceLock<Box<Result<LambdaRecord, RecordError>>>,
}

#[derive(Deserialize)]
struct Envelope<'p> {
    #[serde(borrow, rename = "Records")]
    records: Option<Vec<&'p RawValue>>,
}

/// Decodes an event.
///
/// # Errors
/// Fatal when the event is not an object, or when its `Records` is not an array.
pub fn decode(payload: &str) -> Result<Event<'_>, Failure> {
    if !payload.trim_start().starts_with('{') {
        return Err(Failure::Fatal("the event is not a JSON object".to_owned()));
    }
    let envelope: Envelope<'_> = serde_json::from_str(payload).map_err(|error| {
        Failure::Fatal(format!("the event's `Records` cannot be read: {error}"))
    })?;
    Ok(match envelope.records {
        None => Event::Other,
        Some(records) => {
            Event::Batch(records.into_iter().map(|raw| BatchRecord::of(raw.get())).collect())
        }
    })
}

/// Decodes an event, and calls `look` for each record of a batch with its position. Returns the event and the
/// value that `look` has accumulated.
///
/// # Errors
/// The same as `decode`.
pub fn decode_each<L: Default>(
    payload: &str,
    mut look: impl FnMut(&mut L, usize, Result<RecordView<'_>, &RecordError>),
) -> Result<(Event<'_>, L), Failure> {
    let (event, mut left) = (decode(payload)?, L::default());
    if let Event::Batch(batch) = &event {
        for (position, delivered) in batch.iter().enumerate() {
            delivered.with_decoded(|record| look(&mut left, position, record));
        }
    }
    Ok((event, left))
}

impl<'p> BatchRecord<'p> {
    fn of(raw: &'p str) -> Self {
        Self { raw, decoded: OnceLock::new() }
    }

    /// Returns the decoded record, or why it cannot be decoded. Decodes the record once and keeps
    /// the result until the batch is dropped.
    pub fn record(&self) -> &Result<LambdaRecord, RecordError> {
        self.decoded.get_or_init(|| Box::new(lambda_record_from_str(self.raw)))
    }

    /// Calls `look` with the decoded record. If the decoded record was not kept, it exists only
    /// during this call and borrows from the JSON: 10,000 decoded records take several times the
    /// memory of their JSON.
    pub fn with_decoded<T>(
        &self,
        look: impl FnOnce(Result<RecordView<'_>, &RecordError>) -> T,
    ) -> T {
        if self.decoded.get().is_none()
            && let Some(view) = RecordView::read(self.raw)
        {
            return look(Ok(view));
        }
        look(self.record().as_ref().map(RecordView::of))
    }

    /// Returns the sequence number, unchanged.
    #[must_use]
    pub fn sequence_number(&self) -> Option<&str> {
        match self.record() {
            Ok(record) => Some(record.record.sequence_number.as_str()),
            Err(error) => error.sequence_number.as_ref().map(|number| number.as_str()),
        }
    }
}

/// The response to a batch. Without failures the whole batch is acknowledged.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct BatchResponse {
    /// The first record to deliver again; Lambda also redelivers all records after it. The list has
    /// at most one entry.
    pub batch_item_failures: Vec<BatchItemFailure>,
}

/// A record to deliver again.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct BatchItemFailure {
    /// The sequence number of the record.
    pub item_identifier: String,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_are_batches_or_other() {
        for other in ["{}", r#"{"source":"aws.events","detail":{}}"#, r#"{"Records":null}"#] {
            assert!(matches!(decode(other), Ok(Event::Other)), "{other}");
        }
        for wrong in ["", "[]", "[[]]", "7", r#"{"Records":{}}"#, r#"{"Records":[}"#] {
            assert!(matches!(decode(wrong), Err(Failure::Fatal(_))), "{wrong}");
        }
        assert!(
            matches!(decode(r#"{"Records":[]}"#), Ok(Event::Batch(records)) if records.is_empty())
        );
    }

    #[test]
    fn a_record_that_cannot_be_read_does_not_spoil_the_others() {
        let payload = r#"{"Records":[7,{"dynamodb":{"SequenceNumber":"12"}},{"eventID":"\ud800"},{"eventID":"e","eventName":"REMOVE","dynamodb":{"SequenceNumber":"13","Keys":{"k":{"S":"v"}},"StreamViewType":"KEYS_ONLY"},"eventSourceARN":"arn:x"}]}"#;
        let Ok(Event::Batch(records)) = decode(payload) else { panic!("a batch") };
        let numbers: Vec<_> = records.iter().map(BatchRecord::sequence_number).collect();
        assert_eq!(numbers, [None, Some("12"), None, Some("13")]);
        let readable: Vec<_> = records.iter().map(|record| record.record().is_ok()).collect();
        assert_eq!(readable, [false, false, false, true]);
        assert_eq!(records[0].raw, "7");
    }

    #[test]
    fn records_are_read_once_and_in_order() {
        let record = |id: &str| {
            format!(
                r#"{{"eventID":"{id}","eventName":"REMOVE","dynamodb":{{"SequenceNumber":"13","Keys":{{"k":{{"S":"v"}}}},"StreamViewType":"KEYS_ONLY"}},"eventSourceARN":"arn:x"}}"#
            )
        };
        let records = format!("[{},7,{}]", record("a"), record("b"));
        // The last event has two members named `Records`; the second member is used.
        for payload in [
            format!(r#"{{"Records":{records}}}"#),
            format!(r#"{{"Rec\u006frds":{records}}}"#),
            format!(r#"{{"more":1,"Records":{records} }}"#),
        ] {
            let (event, seen) = decode_each(&payload, |seen: &mut Vec<_>, position, record| {
                seen.push((position, record.map_or("?".to_owned(), |r| r.event_id.into_owned())));
            })
            .unwrap();
            let Event::Batch(batch) = event else { panic!("{payload}") };
            assert_eq!(batch[1].raw, "7");
            let expected = [(0, "a"), (1, "?"), (2, "b")].map(|(at, id)| (at, id.to_owned()));
            assert_eq!(seen, expected, "{payload}");
        }
        let look = |(): &mut (), _, _: Result<RecordView<'_>, &RecordError>| {};
        assert!(matches!(decode_each("{}", look), Ok((Event::Other, ()))));
        for wrong in ["[]", &format!(r#"{{"Records":[{}"#, record("a"))] {
            assert!(matches!(decode_each(wrong, look), Err(Failure::Fatal(_))), "{wrong}");
        }
    }

    #[test]
    fn responses_are_in_lambdas_words() {
        let text = |response: &BatchResponse| serde_json::to_string(response).unwrap();
        let mut response = BatchResponse::default();
        assert_eq!(text(&response), r#"{"batchItemFailures":[]}"#);
        response.batch_item_failures.push(BatchItemFailure { item_identifier: "12".to_owned() });
        assert_eq!(text(&response), r#"{"batchItemFailures":[{"itemIdentifier":"12"}]}"#);
    }
}
