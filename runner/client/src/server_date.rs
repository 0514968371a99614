//! The time of a DynamoDB endpoint, from the `Date` header of its responses.
//!
//! DynamoDB's own clock determines the times of stream records, and this machine's clock may be wrong.

use std::sync::Arc;
use std::time::{Duration, Instant};

use aws_sdk_dynamodb::Client;
use aws_sdk_dynamodb::config::interceptors::BeforeDeserializationInterceptorContextRef;
use aws_sdk_dynamodb::config::{ConfigBag, Intercept, RuntimeComponents};
use aws_sdk_dynamodb::error::BoxError;
use aws_sdk_dynamodb::primitives::{DateTime, DateTimeFormat};
use locks::Mutex;

/// The tolerance for a response whose time is behind the time of earlier responses. Its header has
/// whole seconds, and the response may have been delayed. A larger difference shows that the times
/// of the earlier responses were wrong.
const BEHIND_MAX: Duration = Duration::from_secs(10);

/// Returns the endpoint's time in whole seconds since 1970; `None` without a `Date` header.
pub async fn seconds(client: &Client) -> Option<i64> {
    let clock = ServerClock::default();
    let request = client.list_tables().limit(1).customize().interceptor(clock.clone());
    // The result does not matter, because an error response has the header too.
    let _ = request.send().await;
    clock.now_ms().map(|ms| ms.div_euclid(1_000))
}

fn seconds_of(date: &str) -> Option<i64> {
    DateTime::from_str(date, DateTimeFormat::HttpDate).ok().map(|time| time.secs())
}

/// The time of an endpoint at any moment, calculated from its responses and a monotonic clock. It is
/// never ahead of the endpoint's clock. After a few responses, it is at most a second behind.
#[derive(Clone, Debug, Default)]
pub struct ServerClock(Arc<Mutex<Option<ReceivedTime>>>);

/// A time of the endpoint, and the local time when it was received.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct ReceivedTime {
    ms: i64,
    received_at: Instant,
}

impl ServerClock {
    /// Returns the endpoint's time in milliseconds since 1970; `None` before the first response.
    pub fn now_ms(&self) -> Option<i64> {
        let told = *self.0.lock();
        told.map(|told| told.now_ms(Instant::now()))
    }

    fn record(&self, date: &str, received_at: Instant) {
        let Some(seconds) = seconds_of(date) else { return };
        let told = ReceivedTime { ms: seconds.saturating_mul(1_000), received_at };
        let mut known = self.0.lock();
        *known = Some(known.map_or(told, |known| known.or_better(told)));
    }
}

impl ReceivedTime {
    fn now_ms(self, now: Instant) -> i64 {
        let passed = now.saturating_duration_since(self.received_at);
        self.ms.saturating_add(i64::try_from(passed.as_millis()).unwrap_or(i64::MAX))
    }

    /// Returns the more exact of two readings. A header has the time at which the response was created,
    /// without fractions of a second, so every reading is too early. The later reading is more exact.
    fn or_better(self, other: Self) -> Self {
        let ahead_ms = self.now_ms(other.received_at).saturating_sub(other.ms);
        let behind_max = i64::try_from(BEHIND_MAX.as_millis()).unwrap_or(i64::MAX);
        if (0..=behind_max).contains(&ahead_ms) { self } else { other }
    }
}

/// Reads the time from every response to a client.
impl Intercept for ServerClock {
    fn name(&self) -> &'static str {
        "ServerClock"
    }

    fn read_before_deserialization(
        &self,
        context: &BeforeDeserializationInterceptorContextRef<'_>,
        _: &RuntimeComponents,
        _: &mut ConfigBag,
    ) -> Result<(), BoxError> {
        if let Some(date) = context.response().headers().get("date") {
            self.record(date, Instant::now());
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_time_is_that_of_the_answer_which_is_furthest_ahead() {
        let clock = ServerClock::default();
        assert_eq!(clock.now_ms(), None);
        let start = Instant::now();
        let base = seconds_of("Wed, 25 Nov 2026 10:00:00 GMT").unwrap() * 1_000;
        // Columns: the arrival time of a response, its header, and the resulting time in
        // milliseconds.
        for (at, date, expected) in [
            (0, "Wed, 25 Nov 2026 10:00:00 GMT", 0),
            (900, "Wed, 25 Nov 2026 10:00:00 GMT", 900),
            (1_200, "Wed, 25 Nov 2026 10:00:02 GMT", 2_000),
            (1_700, "Wed, 25 Nov 2026 10:00:02 GMT", 2_500),
            // The response was delayed by seconds.
            (9_200, "Wed, 25 Nov 2026 10:00:03 GMT", 10_000),
            (9_300, "no date", 10_100),
            // The times of the earlier responses were wrong.
            (10_000, "Wed, 25 Nov 2026 10:59:00 GMT", 3_540_000),
            (11_000, "Wed, 25 Nov 2026 10:00:12 GMT", 12_000),
        ] {
            let at = start + Duration::from_millis(at);
            clock.record(date, at);
            let told = clock.0.lock().unwrap();
            assert_eq!(told.now_ms(at) - base, expected, "{date}");
        }
        assert!(clock.now_ms().unwrap() >= base + 1_000);
    }
}
