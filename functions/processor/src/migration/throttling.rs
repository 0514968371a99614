//! Observes throttling by DynamoDB in every attempt of every request. The SDK retries throttled
//! requests itself without reporting the throttling to the caller.
//!
//! Backfills and batches reduce their concurrent writes while requests are throttled. Another
//! module reports the throttling to operators.

use std::collections::BTreeMap;
use std::sync::{Arc, MutexGuard};

use aws_sdk_dynamodb::config::interceptors::FinalizerInterceptorContextRef;
use aws_sdk_dynamodb::config::{ConfigBag, Intercept, RuntimeComponents};
use aws_sdk_dynamodb::error::BoxError;
use locks::Mutex;
use serde::Deserialize;

use super::targets::WRITES_AT_ONCE;

/// Number of concurrent writes that each page without throttling adds, up to the maximum. In a
/// batch, a page counts as many finished writes as may run concurrently.
const STEP_UP: usize = 4;
/// Error codes of throttling. Source: AWS, DynamoDB developer guide, "Error handling".
const CODES: [&str; 3] =
    ["ProvisionedThroughputExceededException", "ThrottlingException", "RequestLimitExceeded"];

/// The throttling that this process has observed.
#[derive(Clone, Debug, Default)]
pub(crate) struct Throttling(Arc<Mutex<ThrottlingState>>);

#[derive(Debug)]
struct ThrottlingState {
    /// Number of throttled attempts.
    attempts: u64,
    /// The reasons for throttling that have not been reported yet, by table.
    unreported: BTreeMap<String, String>,
    /// Current number of concurrent writes.
    concurrency: usize,
}

impl Default for ThrottlingState {
    fn default() -> Self {
        Self { attempts: 0, unreported: BTreeMap::new(), concurrency: WRITES_AT_ONCE }
    }
}

/// The relevant members of the body of an error response.
#[derive(Deserialize)]
struct ErrorBody {
    #[serde(rename = "__type", default)]
    error_type: String,
    // DynamoDB's throttling exceptions spell this member in upper or lower case (AWS API
    // reference).
    #[serde(rename = "ThrottlingReasons", alias = "throttlingReasons", default)]
    reasons: Vec<Reason>,
}

#[derive(Deserialize)]
struct Reason {
    #[serde(default)]
    reason: String,
    /// The ARN of the table or index.
    #[serde(default)]
    resource: String,
}

/// Returns the throttled table and the reason as text; `None` if the response does not report
/// throttling. The table is empty if the response does not name it.
fn throttled(answer: &[u8]) -> Option<(String, String)> {
    let body: ErrorBody = serde_json::from_slice(answer).ok()?;
    let code = body.error_type.rsplit('#').next().unwrap_or_default();
    if !CODES.contains(&code) {
        return None;
    }
    let named = body.reasons.iter().find_map(|reason| reason.resource.split_once(":table/"));
    let table = named.and_then(|(_, path)| path.split('/').next()).unwrap_or_default();
    let reasons: Vec<&str> = body.reasons.iter().map(|reason| reason.reason.as_str()).collect();
    let what = if table.is_empty() { "requests".to_owned() } else { format!("`{table}`") };
    let why = if reasons.is_empty() { String::new() } else { format!(", {}", reasons.join(", ")) };
    Some((table.to_owned(), format!("DynamoDB throttles {what}: {code}{why}")))
}

impl Throttling {
    fn seen(&self) -> MutexGuard<'_, ThrottlingState> {
        self.0.lock()
    }

    fn record_reason(&self, table: String, why: String) {
        let mut seen = self.seen();
        seen.attempts += 1;
        seen.unreported.insert(table, why);
    }

    /// Returns the number of throttled attempts so far.
    pub(crate) fn attempts(&self) -> u64 {
        self.seen().attempts
    }

    /// Returns the reasons, by table, why requests were throttled since the last call.
    pub(crate) fn take_unreported(&self) -> BTreeMap<String, String> {
        std::mem::take(&mut self.seen().unreported)
    }

    /// Returns the current number of concurrent writes, which is at least one.
    pub(crate) fn concurrency(&self) -> usize {
        self.seen().concurrency
    }

    /// Adapts the number of concurrent writes after a page. Halves it if attempts were throttled
    /// since [`Throttling::attempts`] returned `attempts`, otherwise increases it.
    pub(crate) fn adapt(&self, attempts: u64) {
        let mut seen = self.seen();
        seen.concurrency = if seen.attempts > attempts {
            (seen.concurrency / 2).max(1)
        } else {
            (seen.concurrency + STEP_UP).min(WRITES_AT_ONCE)
        };
    }
}

#[cfg(test)]
impl Throttling {
    /// Simulates a throttled attempt.
    pub(super) fn throttle(&self) {
        self.record_reason(String::new(), String::new());
    }

    /// Returns a state with this many concurrent writes, as after throttled pages.
    pub(super) fn narrowed_to(concurrency: usize) -> Self {
        Self(Arc::new(Mutex::new(ThrottlingState { concurrency, ..ThrottlingState::default() })))
    }
}

impl Intercept for Throttling {
    fn name(&self) -> &'static str {
        "Throttling"
    }

    fn read_after_attempt(
        &self,
        context: &FinalizerInterceptorContextRef<'_>,
        _: &RuntimeComponents,
        _: &mut ConfigBag,
    ) -> Result<(), BoxError> {
        let Some(response) = context.response() else { return Ok(()) };
        if !response.status().is_success()
            && let Some((table, why)) = response.body().bytes().and_then(throttled)
        {
            self.record_reason(table, why);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn throttling_is_reported_with_its_reason() {
        let told = |answer: &str| throttled(answer.as_bytes());
        let some = |table: &str, why: &str| Some((table.to_owned(), why.to_owned()));
        assert_eq!(
            told(
                r#"{"__type":"com.amazonaws.dynamodb.v20120810#ProvisionedThroughputExceededException","message":"m","ThrottlingReasons":[{"reason":"TableWriteProvisionedThroughputExceeded","resource":"arn:aws:dynamodb:us-east-1:000000000000:table/pets"}]}"#
            ),
            some(
                "pets",
                "DynamoDB throttles `pets`: ProvisionedThroughputExceededException, TableWriteProvisionedThroughputExceeded"
            )
        );
        assert_eq!(
            told(
                r#"{"__type":"com.amazon.coral.availability#ThrottlingException","throttlingReasons":[{"reason":"IndexWriteKeyRangeThroughputExceeded","resource":"arn:aws:dynamodb:us-east-1:000000000000:table/pets/index/by-age"}]}"#
            ),
            some(
                "pets",
                "DynamoDB throttles `pets`: ThrottlingException, IndexWriteKeyRangeThroughputExceeded"
            )
        );
        assert_eq!(
            told(r#"{"__type":"com.amazon.coral.availability#ThrottlingException"}"#),
            some("", "DynamoDB throttles requests: ThrottlingException")
        );
        for other in [
            r#"{"__type":"com.amazonaws.dynamodb.v20120810#ConditionalCheckFailedException"}"#,
            "{}",
            "no JSON",
        ] {
            assert_eq!(told(other), None, "{other}");
        }
    }

    #[test]
    fn writes_at_the_same_time_halve_and_grow_within_bounds() {
        let throttling = Throttling::default();
        assert_eq!(throttling.concurrency(), WRITES_AT_ONCE);
        for expected in [32, 16, 8, 4, 2, 1, 1] {
            let before = throttling.attempts();
            throttling.record_reason("pets".to_owned(), "why".to_owned());
            throttling.adapt(before);
            assert_eq!(throttling.concurrency(), expected);
        }
        for _ in 0..WRITES_AT_ONCE {
            throttling.adapt(throttling.attempts());
            assert!((1..=WRITES_AT_ONCE).contains(&throttling.concurrency()));
        }
        assert_eq!(throttling.concurrency(), WRITES_AT_ONCE);
        assert_eq!(throttling.take_unreported().len(), 1);
        assert_eq!(throttling.take_unreported().len(), 0);
    }
}
