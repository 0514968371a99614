//! The AWS credentials with which a function's instances are started.
//!
//! A process keeps its keys, so a process whose keys expire soon is replaced. `pool` starts and ends the
//! processes.

use std::time::{Duration, Instant, SystemTime};

use aws_credential_types::provider::{ProvideCredentials as _, SharedCredentialsProvider};
use tokio::sync::Mutex;
use tokio::time::timeout;

use super::Credentials;
use client::error_cause::innermost;
use client::failure::{Result, fatal};

/// The reserve that is added to the maximum time of an invocation. Keys are renewed when less than
/// this total remains until they expire. SDKs use the same reserve.
const RENEW_BEFORE: Duration = Duration::from_secs(60);
/// The minimum time between two requests to a source that had no newer keys, because a source may use
/// the network.
const ASK_AGAIN_AFTER: Duration = Duration::from_secs(5);
/// The maximum time that a source of keys may take. A source may run a program, or use single sign-on
/// over the network.
const ASK_MAX: Duration = Duration::from_secs(30);
/// The maximum time that a source may take while the current keys are still valid. It is shorter,
/// because invocations wait for the source.
const ASK_MAX_WHILE_GOOD: Duration = Duration::from_secs(5);

/// The AWS keys of one function, and their renewal.
#[derive(Debug)]
pub(super) struct Signing {
    source: Option<SharedCredentialsProvider>,
    /// The maximum time of an invocation.
    invocation: Duration,
    cached: Mutex<CachedKeys>,
}

#[derive(Debug)]
struct CachedKeys {
    keys: Credentials,
    /// The time before their expiry at which the keys are renewed.
    margin: Duration,
    last_failure: Option<Instant>,
}

impl Signing {
    /// Starts with the keys that the caller found. `invocation` is the maximum time of an
    /// invocation.
    pub(super) fn new(
        credentials: Credentials,
        source: Option<SharedCredentialsProvider>,
        invocation: Duration,
    ) -> Self {
        let margin = credentials.margin(invocation);
        let held = CachedKeys { keys: credentials, margin, last_failure: None };
        Self { source, invocation, cached: Mutex::new(held) }
    }

    /// Returns the keys for the next invocation.
    ///
    /// # Errors
    /// The current keys have expired, and the source has no newer keys.
    pub(super) async fn keys(&self) -> Result<Credentials> {
        let mut held = self.cached.lock().await;
        let Some(source) = &self.source else { return Ok(held.keys.clone()) };
        if held.keys.last_until(SystemTime::now() + held.margin) {
            return Ok(held.keys.clone());
        }
        let is_early = held.last_failure.is_some_and(|at| at.elapsed() < ASK_AGAIN_AFTER);
        let mut reason = "their source has no newer credentials".to_owned();
        if !is_early {
            let before = held.keys.clone();
            let are_good = before.last_until(SystemTime::now());
            let limit = if are_good { ASK_MAX_WHILE_GOOD } else { ASK_MAX };
            match timeout(limit, source.provide_credentials()).await {
                Ok(Ok(found)) => {
                    held.keys = (&found).into();
                    held.margin = held.keys.margin(self.invocation);
                }
                Ok(Err(error)) => reason = innermost(&error),
                Err(_) => {
                    reason = format!("no response from their source within {} s", limit.as_secs());
                }
            }
            held.last_failure = (held.keys == before).then(Instant::now);
        }
        if held.keys.last_until(SystemTime::now()) {
            return Ok(held.keys.clone());
        }
        Err(fatal!(
            "the AWS credentials have expired: {reason}; renew the credentials, for example with `aws sso login`"
        ))
    }
}

impl Credentials {
    /// Returns the time before the expiry at which keys are renewed: the maximum time of an invocation,
    /// plus a reserve. Keys with a shorter lifetime are used for half of it.
    fn margin(&self, invocation: Duration) -> Duration {
        let life =
            self.expires.map(|end| end.duration_since(SystemTime::now()).unwrap_or_default());
        let wanted = RENEW_BEFORE + invocation;
        life.map_or(wanted, |life| wanted.min(life / 2))
    }

    fn last_until(&self, moment: SystemTime) -> bool {
        self.expires.is_none_or(|expires| expires > moment)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex as Lock;

    use aws_credential_types::Credentials as Found;
    use aws_credential_types::provider::{ProvideCredentials, error::CredentialsError, future};

    use super::*;

    /// A source that returns each of its keys once. The vector has the keys in reverse order.
    #[derive(Debug)]
    struct Source(Lock<Vec<Found>>);

    impl ProvideCredentials for Source {
        fn provide_credentials<'a>(&'a self) -> future::ProvideCredentials<'a>
        where
            Self: 'a,
        {
            let found = self.0.lock().unwrap().pop();
            future::ProvideCredentials::ready(
                found.ok_or_else(|| CredentialsError::not_loaded("none")),
            )
        }
    }

    fn found(key: &str, ends_in_s: i64) -> Found {
        let length = Duration::from_secs(ends_in_s.unsigned_abs());
        let now = SystemTime::now();
        let end = if ends_in_s < 0 { now - length } else { now + length };
        Found::new(key, "secret", Some("token".to_owned()), Some(end), "test")
    }

    fn signing(found: Vec<Found>) -> Signing {
        let source = SharedCredentialsProvider::new(Source(Lock::new(found)));
        let expires = Some(SystemTime::UNIX_EPOCH);
        let credentials = Credentials { expires, ..Credentials::local() };
        Signing::new(credentials, Some(source), Duration::from_secs(30))
    }

    async fn key(signing: &Signing) -> Result<String> {
        signing.keys().await.map(|keys| keys.access_key_id)
    }

    #[tokio::test]
    async fn keys_are_followed_by_newer_ones_before_their_end() {
        let first = found("first", 60);
        let signing = signing(vec![found("second", 3_600), first.clone(), first]);
        for _ in 0..3 {
            assert_eq!(key(&signing).await.unwrap(), "first", "cached for half a minute");
        }
        signing.cached.lock().await.margin = Duration::from_secs(60);
        // The source has no other keys, so it is not queried again for a while.
        for _ in 0..3 {
            assert_eq!(key(&signing).await.unwrap(), "first");
        }
        signing.cached.lock().await.margin = Duration::from_secs(60);
        signing.cached.lock().await.last_failure = None;
        assert_eq!(key(&signing).await.unwrap(), "second");
        assert_eq!(key(&signing).await.unwrap(), "second", "good for an hour");
    }

    #[tokio::test]
    async fn what_was_found_at_the_start_is_not_asked_for_again() {
        let source = SharedCredentialsProvider::new(Source(Lock::default()));
        for ends_in_s in [3_600, 300] {
            // The lifetime of these keys is shorter than the maximum time of an invocation.
            let credentials = Credentials::from(&found("first", ends_in_s));
            let signing = Signing::new(credentials, Some(source.clone()), Duration::from_secs(900));
            assert_eq!(key(&signing).await.unwrap(), "first");
            assert_eq!(signing.cached.lock().await.last_failure, None);
        }
    }

    #[tokio::test]
    async fn keys_past_their_end_are_not_used() {
        let signing = signing(vec![found("new", 3_600), found("old", -1)]);
        assert!(key(&signing).await.unwrap_err().to_string().contains("have expired"));
        assert_eq!(key(&signing).await.unwrap(), "new");
        signing.cached.lock().await.keys.expires = Some(SystemTime::now());
        assert!(
            key(&signing).await.unwrap_err().to_string().contains("have expired"),
            "there are no others"
        );
        let local = Signing::new(Credentials::local(), None, Duration::from_secs(3));
        assert_eq!(key(&local).await.unwrap(), "local");
    }
}
