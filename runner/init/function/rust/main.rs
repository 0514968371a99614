//! Processes the changes of a table, in order, and reports the first one that fails.

use std::collections::{HashSet, VecDeque};
use std::sync::Mutex;

use lambda_runtime::{Error, LambdaEvent, service_fn, tracing};
use serde_json::{Value, json};

const REMEMBERED_MAX: usize = 10_000;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Error> {
    tracing::init_default_subscriber();
    let remembered = Mutex::new(Remembered::default());
    let handler = async |event: LambdaEvent<Value>| {
        let mut remembered = remembered.lock().map_err(|_| "an earlier invocation panicked")?;
        handle(&event.payload, &mut remembered, process)
    };
    lambda_runtime::run(service_fn(handler)).await
}

/// Does the work for one change. Another instance may get the same change once more: make an effect
/// outside of this process idempotent, such as by a write on condition that `event_id` is new.
fn process(event_id: &str, name: &str, change: &Value) -> Result<(), Error> {
    tracing::info!("{name} {event_id} {}", change["Keys"]);
    Ok(())
}

/// Processes a batch. Returns the record to retry from, so that Lambda does not deliver the whole batch
/// again.
fn handle(
    event: &Value,
    remembered: &mut Remembered,
    mut process: impl FnMut(&str, &str, &Value) -> Result<(), Error>,
) -> Result<Value, Error> {
    for record in event["Records"].as_array().ok_or("an event without records")? {
        let text = |name: &str| record[name].as_str().ok_or(format!("a record without {name}"));
        let (event_id, change) = (text("eventID")?, &record["dynamodb"]);
        if remembered.has(event_id) {
            continue;
        }
        if let Err(error) = process(event_id, text("eventName")?, change) {
            tracing::error!("{event_id}: {error}");
            let failure = json!({"itemIdentifier": change["SequenceNumber"]});
            return Ok(json!({"batchItemFailures": [failure]}));
        }
        remembered.add(event_id);
    }
    Ok(json!({"batchItemFailures": []}))
}

/// The event IDs of the last records that this instance has processed.
#[derive(Default)]
struct Remembered {
    ids: HashSet<String>,
    order: VecDeque<String>,
}

impl Remembered {
    fn has(&self, id: &str) -> bool {
        self.ids.contains(id)
    }

    fn add(&mut self, id: &str) {
        self.ids.insert(id.to_owned());
        self.order.push_back(id.to_owned());
        if self.order.len() > REMEMBERED_MAX
            && let Some(oldest) = self.order.pop_front()
        {
            self.ids.remove(&oldest);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(numbers: &[u32]) -> Value {
        let record = |number: &u32| {
            json!({"eventID": format!("event-{number}"), "eventName": "INSERT",
                "dynamodb": {"Keys": {"id": {"S": "1"}}, "SequenceNumber": number.to_string()}})
        };
        json!({"Records": numbers.iter().map(record).collect::<Vec<_>>()})
    }

    /// Runs a batch; gives what was processed, and what Lambda is to retry from.
    fn run(remembered: &mut Remembered, numbers: &[u32], failing: &str) -> (Vec<String>, Value) {
        let mut processed = Vec::new();
        let answer = handle(&event(numbers), remembered, |event_id, _, _| {
            if event_id == failing {
                return Err("it fails".into());
            }
            processed.push(event_id.to_owned());
            Ok(())
        });
        (processed, answer.unwrap()["batchItemFailures"].clone())
    }

    #[test]
    fn the_first_failure_is_where_lambda_retries_from() {
        let mut remembered = Remembered::default();
        let (processed, failures) = run(&mut remembered, &[1, 2, 3], "event-2");
        assert_eq!(processed, ["event-1"]);
        assert_eq!(failures, json!([{"itemIdentifier": "2"}]));
        let (processed, failures) = run(&mut remembered, &[2, 3], "");
        assert_eq!((processed.len(), failures), (2, json!([])));
    }

    #[test]
    fn a_record_that_is_delivered_twice_is_processed_once() {
        let mut remembered = Remembered::default();
        run(&mut remembered, &[1, 2], "");
        let (processed, _) = run(&mut remembered, &[1, 2, 3], "");
        assert_eq!(processed, ["event-3"]);
    }
}
