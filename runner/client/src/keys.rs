//! The keys that sign requests: the operator's own keys, or placeholders.
//!
//! The operator's own keys are used for AWS only. WEIR_KEYS=own uses them for every endpoint, for
//! example for `local-store --access-keys`, which verifies them.

use std::error::Error;
use std::ffi::OsStr;
use std::time::SystemTime;

use aws_config::Region;
use aws_config::default_provider::credentials::DefaultCredentialsChain;
use aws_config::imds::client::error::ImdsError;
use aws_config::provider_config::ProviderConfig;
use aws_credential_types::Credentials;
use aws_credential_types::provider::{ProvideCredentials, SharedCredentialsProvider, future};
use aws_sigv4::http_request::{SignableBody, SignableRequest, SigningSettings, sign};
use aws_sigv4::sign::v4;

use crate::aws_host::{is_on_aws, region};
use crate::error_cause::{causes, innermost};
use crate::failure::{Result, fatal};
use crate::https;

/// The placeholder key. A local store accepts any credentials.
const ACCESS_KEY: &str = "local";
const SECRET_KEY: &str = "local";
/// The environment variable that selects the keys for endpoints outside AWS.
const VARIABLE: &str = "WEIR_KEYS";
/// The message when the SDK finds no keys.
pub const NOT_FOUND: &str = "no AWS credentials found: set AWS_PROFILE or AWS_SHARED_CREDENTIALS_FILE, or AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY";
/// The only valid value of [`VARIABLE`].
const OWN: &str = "own";

/// Validates the environment variables for keys.
///
/// # Errors
/// When a value is unknown.
pub fn check_environment() -> Result<()> {
    is_own(std::env::var_os(VARIABLE).as_deref()).map(drop)
}

/// Returns true if the operator's own keys are used for every endpoint.
fn is_own(said: Option<&OsStr>) -> Result<bool> {
    match said {
        Some(value) if value == OWN => Ok(true),
        Some(value) if !value.is_empty() => Err(fatal!(
            "unknown value of {VARIABLE}: `{}`; set it to `{OWN}` to sign with your AWS credentials \
             (default credential chain), or unset {VARIABLE}",
            value.display()
        )),
        _ => Ok(false),
    }
}

/// Returns true if requests to an endpoint are signed with the operator's own keys.
pub fn are_own(endpoint: &str) -> bool {
    is_on_aws(endpoint) || is_own(std::env::var_os(VARIABLE).as_deref()) == Ok(true)
}

/// Returns advice for a rejected signature; empty if own keys are already used for every endpoint.
pub fn advice(code: &str) -> &'static str {
    let is_of_keys = matches!(
        code,
        "UnrecognizedClientException"
            | "InvalidSignatureException"
            | "MissingAuthenticationTokenException"
    );
    let own = is_own(std::env::var_os(VARIABLE).as_deref()) == Ok(true);
    if is_of_keys && !own {
        " (for a store outside AWS that verifies keys, set WEIR_KEYS=own in the environment)"
    } else {
        ""
    }
}

/// Returns the keys for an endpoint. For AWS, the SDK's default chain finds them in the
/// environment, a profile, or the machine's metadata. For a local store they are placeholders, so
/// that the operator's own keys are never sent to it by accident.
pub fn of_endpoint(endpoint: &str) -> SharedCredentialsProvider {
    match are_own(endpoint) {
        true => SharedCredentialsProvider::new(DefaultKeys::of_region(region(endpoint))),
        false => {
            SharedCredentialsProvider::new(Credentials::from_keys(ACCESS_KEY, SECRET_KEY, None))
        }
    }
}

/// The SDK's default chain of credential providers. It is created when a key is first needed,
/// because its creation needs an async runtime.
#[derive(Debug)]
struct DefaultKeys {
    /// The region is set explicitly. Without it, the SDK reads the machine's metadata, which a
    /// laptop does not have.
    region: String,
    chain: tokio::sync::OnceCell<DefaultCredentialsChain>,
}

impl DefaultKeys {
    fn of_region(region: String) -> Self {
        Self { region, chain: tokio::sync::OnceCell::new() }
    }
}

impl ProvideCredentials for DefaultKeys {
    fn provide_credentials<'a>(&'a self) -> future::ProvideCredentials<'a>
    where
        Self: 'a,
    {
        future::ProvideCredentials::new(async {
            let region = Region::new(self.region.clone());
            let provider = ProviderConfig::default().with_http_client(https::client());
            let made =
                || DefaultCredentialsChain::builder().configure(provider).region(region).build();
            self.chain.get_or_init(made).await.provide_credentials().await
        })
    }
}

/// Returns the credentials that this process finds for an endpoint on AWS.
///
/// # Errors
/// When no credentials are found.
pub async fn own(endpoint: &str) -> Result<Credentials> {
    let found = of_endpoint(endpoint).provide_credentials().await;
    found.map_err(|error| fatal!("`{endpoint}`: {}", not_found(&error)))
}

/// Returns the message for keys that the SDK did not find. It contains the SDK's reason. The
/// exception is an error of the machine's metadata service: the SDK queries this service last, and
/// it exists only on AWS.
pub fn not_found(error: &(dyn Error + 'static)) -> String {
    match causes(error).any(|cause| cause.is::<ImdsError>()) {
        true => NOT_FOUND.to_owned(),
        false => format!("{NOT_FOUND} ({})", innermost(error)),
    }
}

/// Returns the headers that sign a request which is not sent by the SDK; none for an endpoint that
/// accepts any keys.
///
/// # Errors
/// When no key is found, or the address is invalid.
pub async fn headers(
    endpoint: &str,
    method: &str,
    url: &str,
    body: &[u8],
) -> Result<Vec<(String, String)>> {
    if !are_own(endpoint) {
        return Ok(Vec::new());
    }
    let failed = |error: &dyn Error| fatal!("cannot sign the request to `{url}`: {error}");
    let identity = own(endpoint).await?.into();
    let region = region(endpoint);
    let parameters = v4::SigningParams::builder()
        .identity(&identity)
        .region(&region)
        .name("dynamodb")
        .time(SystemTime::now())
        .settings(SigningSettings::default())
        .build()
        .map_err(|error| failed(&error))?;
    let request = SignableRequest::new(method, url, [].into_iter(), SignableBody::Bytes(body));
    let request = request.map_err(|error| failed(&error))?;
    let signed = sign(request, &parameters.into()).map_err(|error| failed(&error))?;
    let (instructions, _) = signed.into_parts();
    Ok(instructions.headers().map(|(name, value)| (name.to_owned(), value.to_owned())).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn no_keys_of_a_person_go_to_a_local_store() {
        let local = "http://127.0.0.1:8000";
        assert!(!are_own(local) && are_own("https://dynamodb.eu-west-3.amazonaws.com"));
        assert_eq!(headers(local, "GET", local, b"").await, Ok(Vec::new()));
    }

    #[test]
    fn credentials_come_from_the_environment_or_nowhere() {
        assert_eq!(is_own(None), Ok(false));
        assert_eq!(is_own(Some(OsStr::new(""))), Ok(false));
        assert_eq!(is_own(Some(OsStr::new("own"))), Ok(true));
        let said = is_own(Some(OsStr::new("aws"))).unwrap_err().to_string();
        assert!(said.starts_with("unknown value of WEIR_KEYS: `aws`; set it to `own`"), "{said}");
    }
}
