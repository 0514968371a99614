//! What DynamoDB throttles, seen in every attempt of every request: the SDK repeats a throttled
//! request by itself, and its caller never hears of it.
//!
//! A backfill makes fewer writes at the same time while that is so. Who tells people is not known
//! here.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use aws_sdk_dynamodb::config::interceptors::FinalizerInterceptorContextRef;
use aws_sdk_dynamodb::config::{ConfigBag, Intercept, RuntimeComponents};
use aws_sdk_dynamodb::error::BoxError;
use serde::Deserialize;

use super::targets::WRITES_AT_ONCE;

/// Writes that a backfill makes more at the same time after each page without throttling: it is
/// back at all of them after some pages.
const STEP_UP: usize = 4;
/// Error codes of throttling. Source: AWS, DynamoDB developer guide, "Error handling".
const CODES: [&str; 3] =
    ["ProvisionedThroughputExceededException", "ThrottlingException", "RequestLimitExceeded"];

/// What was throttled in this process so far.
#[derive(Clone, Debug, Default)]
pub(crate) struct Throttling(Arc<Mutex<Seen>>);

#[derive(Debug)]
struct Seen {
    /// Attempts that were throttled.
    attempts: u64,
    /// By table, why: what nobody was told yet.
    untold: BTreeMap<String, String>,
    /// Writes that a backfill makes at the same time.
    width: usize,
}

impl Default for Seen {
    fn default() -> Self {
        Self { attempts: 0, untold: BTreeMap::new(), width: WRITES_AT_ONCE }
    }
}

/// The members of an error's body that matter here.
#[derive(Deserialize)]
struct ErrorBody {
    #[serde(rename = "__type", default)]
    error_type: String,
    // The two exceptions spell it differently (AWS API reference).
    #[serde(rename = "ThrottlingReasons", alias = "throttlingReasons", default)]
    reasons: Vec<Reason>,
}

#[derive(Deserialize)]
struct Reason {
    #[serde(default)]
    reason: String,
}

#[derive(Deserialize)]
struct RequestBody {
    #[serde(rename = "TableName", default)]
    table: String,
}

/// The table of a request that was throttled, and why, in words; none if it was not. `operation` is
/// the header `X-Amz-Target`.
fn throttled(operation: &str, request: &[u8], answer: &[u8]) -> Option<(String, String)> {
    let body: ErrorBody = serde_json::from_slice(answer).ok()?;
    let code = body.error_type.rsplit('#').next().unwrap_or_default();
    if !CODES.contains(&code) {
        return None;
    }
    let operation = operation.rsplit('.').next().unwrap_or_default();
    // A batch names its tables elsewhere.
    let table = serde_json::from_slice::<RequestBody>(request).map_or(String::new(), |r| r.table);
    let reasons: Vec<&str> = body.reasons.iter().map(|reason| reason.reason.as_str()).collect();
    let of = if table.is_empty() { String::new() } else { format!(" on `{table}`") };
    let why = if reasons.is_empty() { String::new() } else { format!(", {}", reasons.join(", ")) };
    Some((table, format!("DynamoDB throttles {operation}{of}: {code}{why}")))
}

impl Throttling {
    fn seen(&self) -> MutexGuard<'_, Seen> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn saw(&self, table: String, why: String) {
        let mut seen = self.seen();
        seen.attempts += 1;
        seen.untold.insert(table, why);
    }

    /// Attempts that were throttled so far.
    pub(crate) fn attempts(&self) -> u64 {
        self.seen().attempts
    }

    /// By table, why requests were throttled, since this was asked last.
    pub(crate) fn take_untold(&self) -> BTreeMap<String, String> {
        std::mem::take(&mut self.seen().untold)
    }

    /// Writes that a backfill makes at the same time now: at least one.
    pub(crate) fn width(&self) -> usize {
        self.seen().width
    }

    /// Adapts the number of writes at the same time after a page: half as many if attempts were
    /// throttled since `attempts` was what [`Throttling::attempts`] gave, else some more.
    pub(crate) fn adapt(&self, attempts: u64) {
        let mut seen = self.seen();
        seen.width = if seen.attempts > attempts {
            (seen.width / 2).max(1)
        } else {
            (seen.width + STEP_UP).min(WRITES_AT_ONCE)
        };
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
        let (Some(request), Some(response)) = (context.request(), context.response()) else {
            return Ok(());
        };
        if response.status().is_success() {
            return Ok(());
        }
        let bodies = request.body().bytes().zip(response.body().bytes());
        let operation = request.headers().get("x-amz-target").unwrap_or_default();
        if let Some((request, answer)) = bodies
            && let Some((table, why)) = throttled(operation, request, answer)
        {
            self.saw(table, why);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_throttled_is_told_with_its_reason() {
        let put = "DynamoDB_20120810.PutItem";
        let pets = br#"{"TableName":"pets","Item":{"p":{"S":"a"}}}"#;
        let told = |operation, request: &[u8], answer: &str| {
            throttled(operation, request, answer.as_bytes()).map(|(_, why)| why)
        };
        let provisioned = r#"{"__type":"com.amazonaws.dynamodb.v20120810#ProvisionedThroughputExceededException","message":"m","ThrottlingReasons":[{"reason":"TableWriteProvisionedThroughputExceeded","resource":"r"}]}"#;
        assert_eq!(
            told(put, pets, provisioned).as_deref(),
            Some(
                "DynamoDB throttles PutItem on `pets`: ProvisionedThroughputExceededException, TableWriteProvisionedThroughputExceeded"
            )
        );
        let on_demand = r#"{"__type":"com.amazon.coral.availability#ThrottlingException","throttlingReasons":[{"reason":"TableWriteKeyRangeThroughputExceeded"}]}"#;
        assert_eq!(
            told(put, pets, on_demand).as_deref(),
            Some(
                "DynamoDB throttles PutItem on `pets`: ThrottlingException, TableWriteKeyRangeThroughputExceeded"
            )
        );
        let bare = r#"{"__type":"com.amazon.coral.availability#ThrottlingException"}"#;
        let batch = br#"{"RequestItems":{}}"#;
        assert_eq!(
            told("DynamoDB_20120810.BatchGetItem", batch, bare).as_deref(),
            Some("DynamoDB throttles BatchGetItem: ThrottlingException")
        );
        for other in [
            r#"{"__type":"com.amazonaws.dynamodb.v20120810#ConditionalCheckFailedException"}"#,
            "{}",
            "no JSON",
        ] {
            assert_eq!(told(put, pets, other), None, "{other}");
        }
    }

    #[test]
    fn writes_at_the_same_time_halve_and_grow_within_bounds() {
        let throttling = Throttling::default();
        assert_eq!(throttling.width(), WRITES_AT_ONCE);
        for expected in [32, 16, 8, 4, 2, 1, 1] {
            let before = throttling.attempts();
            throttling.saw("pets".to_owned(), "why".to_owned());
            throttling.adapt(before);
            assert_eq!(throttling.width(), expected);
        }
        for _ in 0..WRITES_AT_ONCE {
            throttling.adapt(throttling.attempts());
            assert!((1..=WRITES_AT_ONCE).contains(&throttling.width()));
        }
        assert_eq!(throttling.width(), WRITES_AT_ONCE);
        assert_eq!(throttling.take_untold().len(), 1);
        assert_eq!(throttling.take_untold().len(), 0);
    }
}
