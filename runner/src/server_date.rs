//! The time of a DynamoDB endpoint: the `Date` header of its answers.
//!
//! DynamoDB times stream records by its own clock, and this machine's may be wrong.

use std::sync::{Arc, Mutex, PoisonError};

use aws_sdk_dynamodb::Client;
use aws_sdk_dynamodb::config::interceptors::BeforeDeserializationInterceptorContextRef;
use aws_sdk_dynamodb::config::{ConfigBag, Intercept, RuntimeComponents};
use aws_sdk_dynamodb::error::BoxError;
use aws_sdk_dynamodb::primitives::{DateTime, DateTimeFormat};

/// Keeps the header of the last answer.
#[derive(Clone, Debug, Default)]
struct KeepDate(Arc<Mutex<Option<String>>>);

impl Intercept for KeepDate {
    fn name(&self) -> &'static str {
        "KeepDate"
    }

    fn read_before_deserialization(
        &self,
        context: &BeforeDeserializationInterceptorContextRef<'_>,
        _: &RuntimeComponents,
        _: &mut ConfigBag,
    ) -> Result<(), BoxError> {
        let date = context.response().headers().get("date").map(str::to_owned);
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = date;
        Ok(())
    }
}

/// The endpoint's time in whole seconds since 1970; none if it does not tell.
pub(crate) async fn seconds(client: &Client) -> Option<i64> {
    let kept = KeepDate::default();
    let request = client.list_tables().limit(1).customize().interceptor(kept.clone());
    // An answer that is an error has the header as well.
    let _ = request.send().await;
    let date = kept.0.lock().unwrap_or_else(PoisonError::into_inner).take()?;
    DateTime::from_str(&date, DateTimeFormat::HttpDate).ok().map(|time| time.secs())
}
