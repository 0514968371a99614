//! The time of a DynamoDB endpoint, from the `Date` header of its responses.
//!
//! DynamoDB writes the time of its own clock into stream records. Therefore the age of a record is
//! measured by that clock.

use std::sync::Arc;
use std::time::Instant;

use aws_sdk_dynamodb::config::interceptors::BeforeDeserializationInterceptorContextRef;
use aws_sdk_dynamodb::config::{ConfigBag, Intercept, RuntimeComponents};
use aws_sdk_dynamodb::error::BoxError;
use aws_sdk_dynamodb::primitives::{DateTime, DateTimeFormat};
use locks::Mutex;

/// The date of the last response, and the time when the response arrived.
#[derive(Clone, Debug, Default)]
pub(super) struct ServerDate(Arc<Mutex<Option<(u64, Instant)>>>);

impl ServerDate {
    /// Returns the endpoint's time in seconds since 1970; `None` before the first response with a
    /// date.
    pub(super) fn seconds(&self) -> Option<u64> {
        let told = *self.0.lock();
        told.map(|(seconds, at)| seconds + at.elapsed().as_secs())
    }
}

impl Intercept for ServerDate {
    fn name(&self) -> &'static str {
        "ServerDate"
    }

    fn read_before_deserialization(
        &self,
        context: &BeforeDeserializationInterceptorContextRef<'_>,
        _: &RuntimeComponents,
        _: &mut ConfigBag,
    ) -> Result<(), BoxError> {
        let date = context.response().headers().get("date");
        let date = date.and_then(|date| DateTime::from_str(date, DateTimeFormat::HttpDate).ok());
        if let Some(seconds) = date.and_then(|date| u64::try_from(date.secs()).ok()) {
            *self.0.lock() = Some((seconds, Instant::now()));
        }
        Ok(())
    }
}
