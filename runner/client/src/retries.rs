//! Decides how often a request to DynamoDB is retried: for up to 30 seconds while the store
//! throttles it, and for two seconds while the endpoint accepts no connection.
//!
//! The SDK's default of three attempts ends within two seconds, so a throttled table would end a
//! long command.

use std::sync::{Arc, MutexGuard};
use std::time::{Duration, Instant};

use aws_sdk_dynamodb::config::retry::RetryConfig;
use aws_smithy_runtime_api::client::interceptors::context::InterceptorContext;
use aws_smithy_runtime_api::client::retries::classifiers::{
    ClassifyRetry, RetryAction, RetryClassifierPriority,
};
use locks::Mutex;

use crate::output::say;

/// Maximum attempts of a request, including the first. The pauses below add up to about 15 seconds, at
/// most 30 seconds.
const ATTEMPTS_MAX: u32 = 10;
/// The first pause. Each later pause is twice as long as the previous pause, randomly shortened.
const FIRST_PAUSE: Duration = Duration::from_millis(200);
/// The longest pause between two attempts.
const PAUSE_MAX: Duration = Duration::from_secs(5);
/// The maximum time that an endpoint may be unreachable before retries end. It is long enough for a
/// store to restart, and short enough to report a wrong address soon.
const ABSENCE_MAX: Duration = Duration::from_secs(2);

/// Returns the SDK's retry configuration with these attempts and pauses.
pub fn config() -> RetryConfig {
    RetryConfig::standard()
        .with_max_attempts(ATTEMPTS_MAX)
        .with_initial_backoff(FIRST_PAUSE)
        .with_max_backoff(PAUSE_MAX)
}

/// The result of an attempt, as far as it shows whether the endpoint is reachable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum AttemptResult {
    /// Any response, including an error response.
    Answer,
    /// No connection was accepted.
    Refused,
    /// A connection was accepted, but no response arrived.
    NoAnswer,
}

/// Ends retries after an endpoint was unreachable for [`ABSENCE_MAX`]. Also reports an endpoint that
/// accepts connections without responding. Clones share their state.
#[derive(Clone, Debug, Default)]
pub struct Absence(Arc<Mutex<EndpointState>>);

#[derive(Debug, Default)]
struct EndpointState {
    /// The endpoint and the timeout of an attempt, for messages; `None` if no message is wanted.
    attempt: Option<(String, Duration)>,
    /// The time since which the endpoint accepts no connection.
    refusing_since: Option<Instant>,
    /// The time since which the endpoint accepts connections without responding.
    silent_since: Option<Instant>,
    is_reported: bool,
    /// The maximum time without a response before a call fails; `None` means that a call fails
    /// after its last attempt.
    silence_max: Option<Duration>,
    /// Number of attempts without a response.
    unanswered: u64,
}

impl Absence {
    /// Returns the state for an endpoint; `attempt` is the timeout of an attempt.
    pub fn of(endpoint: &str, attempt: Duration) -> Self {
        let attempt = Some((endpoint.to_owned(), attempt));
        Self(Arc::new(Mutex::new(EndpointState { attempt, ..EndpointState::default() })))
    }

    /// Makes calls fail once the endpoint has sent no response for `silence_max`.
    pub fn bound(&self, silence_max: Duration) {
        self.known().silence_max = Some(silence_max);
    }

    /// Returns true if the last attempt got no response.
    pub fn is_silent(&self) -> bool {
        self.known().silent_since.is_some()
    }

    /// Returns the number of attempts without a response so far.
    pub fn unanswered(&self) -> u64 {
        self.known().unanswered
    }

    fn known(&self) -> MutexGuard<'_, EndpointState> {
        self.0.lock()
    }

    fn judge(&self, heard: AttemptResult, now: Instant) -> RetryAction {
        let mut known = self.known();
        match heard {
            AttemptResult::Answer => {
                (known.refusing_since, known.silent_since, known.is_reported) = (None, None, false);
                RetryAction::NoActionIndicated
            }
            AttemptResult::Refused => {
                known.unanswered += 1;
                let first = *known.refusing_since.get_or_insert(now);
                known.silent_since = None;
                forbidden_if(now.duration_since(first) > ABSENCE_MAX)
            }
            AttemptResult::NoAnswer => {
                known.unanswered += 1;
                let Some((endpoint, attempt)) = known.attempt.clone() else {
                    return RetryAction::NoActionIndicated;
                };
                let begun = now.checked_sub(attempt).unwrap_or(now);
                let silence = now.duration_since(*known.silent_since.get_or_insert(begun));
                if !known.is_reported {
                    known.is_reported = true;
                    let seconds = silence.as_secs();
                    say(&format!("`{endpoint}` has not answered for {seconds} s"));
                }
                forbidden_if(known.silence_max.is_some_and(|most| silence >= most))
            }
        }
    }
}

fn forbidden_if(is_over: bool) -> RetryAction {
    if is_over { RetryAction::RetryForbidden } else { RetryAction::NoActionIndicated }
}

impl ClassifyRetry for Absence {
    fn classify_retry(&self, context: &InterceptorContext) -> RetryAction {
        let heard = match context.output_or_error() {
            Some(Err(error)) if error.is_connector_error() => AttemptResult::Refused,
            Some(Err(error)) if error.is_timeout_error() => AttemptResult::NoAnswer,
            Some(Ok(_) | Err(_)) | None => AttemptResult::Answer,
        };
        self.judge(heard, Instant::now())
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
    use std::sync::atomic::{AtomicU32, Ordering};

    use futures::FutureExt as _;

    use super::*;
    use crate::endpoint::{client, client_with_limit, streams_client};
    use testing::proxy::{self, refusal};
    use testing::store::TestStore;

    #[test]
    fn an_unreachable_endpoint_is_retried_for_two_seconds() {
        let (absence, begun) = (Absence::default(), Instant::now());
        let at =
            |heard, milliseconds| absence.judge(heard, begun + Duration::from_millis(milliseconds));
        let (nobody, answer) = (AttemptResult::Refused, AttemptResult::Answer);
        assert_eq!(at(nobody, 0), RetryAction::NoActionIndicated);
        assert_eq!(at(nobody, 2_000), RetryAction::NoActionIndicated);
        assert_eq!(at(nobody, 2_001), RetryAction::RetryForbidden);
        assert_eq!(at(answer, 2_500), RetryAction::NoActionIndicated);
        assert_eq!(at(nobody, 9_000), RetryAction::NoActionIndicated, "it was reachable meanwhile");
        assert_eq!(at(nobody, 11_001), RetryAction::RetryForbidden);
        assert_eq!(absence.unanswered(), 5);
    }

    #[test]
    fn a_silent_endpoint_is_retried_as_long_as_a_command_may_take() {
        let absence = Absence::of("http://127.0.0.1:1", Duration::from_secs(10));
        let begun = Instant::now();
        let at = |heard, seconds| absence.judge(heard, begun + Duration::from_secs(seconds));
        for seconds in [10, 20, 100] {
            assert_eq!(at(AttemptResult::NoAnswer, seconds), RetryAction::NoActionIndicated);
        }
        assert!(absence.is_silent());
        at(AttemptResult::Answer, 100);
        assert!(!absence.is_silent());
        // The limit applies to all clones.
        absence.clone().bound(Duration::from_secs(15));
        assert_eq!(at(AttemptResult::NoAnswer, 110), RetryAction::NoActionIndicated);
        assert_eq!(at(AttemptResult::NoAnswer, 120), RetryAction::RetryForbidden);
        assert_eq!(absence.unanswered(), 5);
    }

    #[tokio::test]
    async fn a_client_knows_whether_it_is_answered() {
        // The operating system accepts connections, but no process responds.
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let (client, absence) = client_with_limit(&url, Duration::from_millis(20));
        absence.bound(Duration::ZERO);
        let problem = client.list_tables().send().await.unwrap_err();
        assert!(problem.as_service_error().is_none(), "{problem:?}");
        assert!(absence.is_silent());
        assert_eq!(absence.unanswered(), 1);

        let store = TestStore::open().await;
        let (client, absence) = client_with_limit(&store.url, Duration::from_secs(600));
        absence.judge(AttemptResult::NoAnswer, Instant::now());
        assert!(absence.is_silent());
        client.list_tables().send().await.unwrap();
        assert!(!absence.is_silent());
    }

    /// Goal: the number of attempts is larger than the SDK's default.
    #[tokio::test]
    async fn throttled_requests_to_tables_and_streams_are_retried() {
        const REFUSED: u32 = 4;
        let store = TestStore::open().await;
        for code in ["ProvisionedThroughputExceededException", "LimitExceededException"] {
            let asked = Arc::new(AtomicU32::new(0));
            let counted = Arc::clone(&asked);
            let url = proxy::before(&store.url, move |operation, _| {
                let place = counted.fetch_add(1, Ordering::Relaxed);
                let answer = match operation {
                    "ListTables" | "ListStreams" if place % (REFUSED + 1) < REFUSED => {
                        refusal(400, code)
                    }
                    _ => None,
                };
                async move { answer }.boxed()
            })
            .await;
            client(&url).list_tables().send().await.unwrap();
            streams_client(&url).list_streams().send().await.unwrap();
            assert_eq!(asked.load(Ordering::Relaxed), 2 * (REFUSED + 1), "{code}");
        }
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
