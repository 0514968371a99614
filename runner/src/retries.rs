//! How often a request to DynamoDB is made again: patiently while a store refuses it for the moment,
//! and not for long while nobody answers.
//!
//! The SDK's own three attempts end within a second or two, which a table that is throttled for a
//! moment outlasts; a long command would end with it. It decides nothing about what a request means.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use aws_sdk_dynamodb::config::retry::RetryConfig;
use aws_smithy_runtime_api::client::interceptors::context::InterceptorContext;
use aws_smithy_runtime_api::client::retries::classifiers::{
    ClassifyRetry, RetryAction, RetryClassifierPriority,
};

/// Attempts of a request, the first one included: with the pauses below about a quarter of a minute,
/// and never more than half a one.
const ATTEMPTS_MAX: u32 = 10;
/// The first pause; each is twice as long as the one before, by chance less.
const FIRST_PAUSE: Duration = Duration::from_millis(200);
/// The longest pause.
const PAUSE_MAX: Duration = Duration::from_secs(5);
/// How long nobody may answer: a store that is started again is there within this time, and who
/// named a wrong address wants to know.
const ABSENCE_MAX: Duration = Duration::from_secs(2);

/// The attempts and pauses.
pub(crate) fn config() -> RetryConfig {
    RetryConfig::standard()
        .with_max_attempts(ATTEMPTS_MAX)
        .with_initial_backoff(FIRST_PAUSE)
        .with_max_backoff(PAUSE_MAX)
}

/// Ends the attempts when nobody has answered any request of a client for [`ABSENCE_MAX`].
#[derive(Debug, Default)]
pub(crate) struct Absence {
    since: Mutex<Option<Instant>>,
}

impl Absence {
    fn judge(&self, is_away: bool, now: Instant) -> RetryAction {
        let mut since = self.since.lock().unwrap_or_else(PoisonError::into_inner);
        if !is_away {
            *since = None;
            return RetryAction::NoActionIndicated;
        }
        let first = *since.get_or_insert(now);
        if now.duration_since(first) > ABSENCE_MAX {
            RetryAction::RetryForbidden
        } else {
            RetryAction::NoActionIndicated
        }
    }
}

impl ClassifyRetry for Absence {
    fn classify_retry(&self, context: &InterceptorContext) -> RetryAction {
        let is_away = match context.output_or_error() {
            Some(Err(error)) => error.is_connector_error(),
            Some(Ok(_)) | None => false,
        };
        self.judge(is_away, Instant::now())
    }

    fn name(&self) -> &'static str {
        "absence"
    }

    fn priority(&self) -> RetryClassifierPriority {
        RetryClassifierPriority::run_after(RetryClassifierPriority::transient_error_classifier())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_does_not_answer_is_asked_for_two_seconds() {
        let (absence, begun) = (Absence::default(), Instant::now());
        let at = |is_away, milliseconds| {
            absence.judge(is_away, begun + Duration::from_millis(milliseconds))
        };
        assert_eq!(at(true, 0), RetryAction::NoActionIndicated);
        assert_eq!(at(true, 2_000), RetryAction::NoActionIndicated);
        assert_eq!(at(true, 2_001), RetryAction::RetryForbidden);
        assert_eq!(at(false, 2_500), RetryAction::NoActionIndicated);
        assert_eq!(at(true, 9_000), RetryAction::NoActionIndicated, "it was there meanwhile");
        assert_eq!(at(true, 11_001), RetryAction::RetryForbidden);
    }

    #[test]
    fn pauses_are_bounded() {
        let mut pause = FIRST_PAUSE;
        let mut sum = Duration::ZERO;
        for _ in 1..ATTEMPTS_MAX {
            sum += pause;
            pause = (pause * 2).min(PAUSE_MAX);
        }
        assert!((Duration::from_secs(20)..Duration::from_secs(30)).contains(&sum), "{sum:?}");
    }
}
