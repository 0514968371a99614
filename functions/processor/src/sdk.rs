//! The configuration of the AWS SDK's clients: their HTTP client, timeouts and retries.
//!
//! The HTTP client encrypts with `ring`, which compiles in a third of the time of `aws-lc`, the SDK's
//! default, and gives smaller binaries. This module opens no connection.

use std::time::Duration;

use aws_config::environment::EnvironmentVariableCredentialsProvider;
use aws_config::retry::RetryConfig;
use aws_config::stalled_stream_protection::StalledStreamProtectionConfig;
use aws_config::timeout::TimeoutConfig;
use aws_config::{BehaviorVersion, Region, SdkConfig};
use aws_smithy_http_client::Builder;
use aws_smithy_http_client::tls::{Provider, rustls_provider::CryptoMode};
use aws_smithy_runtime_api::client::http::SharedHttpClient;

use crate::settings::Lookup;

/// Maximum number of attempts of the SDK for one request. The SDK retries throttled and interrupted
/// requests. This crate decides about further retries, because they depend on the invocation's
/// deadline.
const SDK_ATTEMPTS: u32 = 3;
/// Upper bound of the SDK's wait between two attempts.
const SDK_BACK_OFF_MAX: Duration = Duration::from_secs(1);
/// Timeout of one attempt. The largest requests, 16 MB, take about a second.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(10);
/// Upper bound of the time that the SDK takes for one request, including its retries.
pub(crate) const ANSWER_TIME_MAX: Duration =
    REQUEST_TIMEOUT.saturating_add(SDK_BACK_OFF_MAX).saturating_mul(SDK_ATTEMPTS);
const CONNECT_TIMEOUT: Duration = Duration::from_secs(3);

/// Returns the configuration, with region, credentials and endpoints from the environment. If region
/// and credentials are environment variables, as on Lambda, the SDK's other providers are not built,
/// because each would have its own HTTP client.
pub(crate) async fn config(environment_variable: Lookup<'_>) -> SdkConfig {
    let retries =
        RetryConfig::standard().with_max_attempts(SDK_ATTEMPTS).with_max_backoff(SDK_BACK_OFF_MAX);
    let timeouts = TimeoutConfig::builder()
        .connect_timeout(CONNECT_TIMEOUT)
        .operation_attempt_timeout(REQUEST_TIMEOUT)
        .build();
    let mut config = aws_config::defaults(BehaviorVersion::latest())
        .http_client(client())
        .retry_config(retries)
        .timeout_config(timeouts)
        // The request timeout already ends stalled requests, and the object store's timeout ends
        // stalled downloads.
        .stalled_stream_protection(StalledStreamProtectionConfig::disabled());
    if let Some(region) = environment_variable("AWS_REGION") {
        config = config.region(Region::new(region));
    }
    let is_set = |name: &str| environment_variable(name).is_some_and(|value| !value.is_empty());
    if is_set("AWS_ACCESS_KEY_ID") && is_set("AWS_SECRET_ACCESS_KEY") {
        config = config.credentials_provider(EnvironmentVariableCredentialsProvider::new());
    }
    config.load().await
}

/// Returns an HTTP client with its own pool of connections, for `http` and `https` endpoints.
pub(crate) fn client() -> SharedHttpClient {
    Builder::new().tls_provider(Provider::Rustls(CryptoMode::Ring)).build_https()
}
