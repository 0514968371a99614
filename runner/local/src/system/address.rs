//! Observes the endpoint of a DynamoDB client, as its SDK determined it from the Region, the environment or a
//! profile.
//!
//! This module changes no request.

use std::sync::{Arc, OnceLock};

use aws_sdk_dynamodb::config::interceptors::BeforeTransmitInterceptorContextRef;
use aws_sdk_dynamodb::config::{ConfigBag, Intercept, RuntimeComponents};
use aws_sdk_dynamodb::error::BoxError;
use http::Uri;

/// The endpoint of the first request. Clones share the value.
#[derive(Clone, Debug, Default)]
pub(super) struct ObservedAddress(Arc<OnceLock<String>>);

impl ObservedAddress {
    /// Returns the endpoint; `None` before the first request.
    pub(super) fn url(&self) -> Option<String> {
        self.0.get().cloned()
    }
}

impl Intercept for ObservedAddress {
    fn name(&self) -> &'static str {
        "ObservedAddress"
    }

    fn read_before_transmit(
        &self,
        context: &BeforeTransmitInterceptorContextRef<'_>,
        _: &RuntimeComponents,
        _: &mut ConfigBag,
    ) -> Result<(), BoxError> {
        if let Some(address) = address_of(context.request().uri()) {
            self.0.get_or_init(|| address);
        }
        Ok(())
    }
}

/// Returns the endpoint of a request. Replaces an account-based host name by the Region's host name,
/// because streams have no account-based endpoints.
fn address_of(uri: &str) -> Option<String> {
    let uri: Uri = uri.parse().ok()?;
    // The user information before the host must not be shown.
    let authority = uri.authority()?;
    let port = authority.port().map(|port| format!(":{port}")).unwrap_or_default();
    let (scheme, authority) = (uri.scheme_str()?, format!("{}{port}", authority.host()));
    let path = uri.path().trim_end_matches('/');
    let of_account = authority.split_once(".ddb.").filter(|(account, _)| {
        !account.is_empty() && account.bytes().all(|byte| byte.is_ascii_digit())
    });
    Some(match of_account {
        Some((_, of_region)) => format!("{scheme}://dynamodb.{of_region}"),
        None => format!("{scheme}://{authority}{path}"),
    })
}

#[cfg(test)]
mod tests {
    use aws_sdk_dynamodb::config::{BehaviorVersion, Credentials, Region};

    use super::*;

    #[test]
    fn an_address_is_that_of_the_region() {
        for (uri, expected) in [
            (
                "https://dynamodb.eu-west-1.amazonaws.com/",
                Some("https://dynamodb.eu-west-1.amazonaws.com"),
            ),
            (
                "https://123456789012.ddb.eu-west-1.amazonaws.com/",
                Some("https://dynamodb.eu-west-1.amazonaws.com"),
            ),
            (
                "https://123456789012.ddb.eu-west-1.api.aws/",
                Some("https://dynamodb.eu-west-1.api.aws"),
            ),
            ("http://my.ddb.example:8000/", Some("http://my.ddb.example:8000")),
            ("http://127.0.0.1:8000", Some("http://127.0.0.1:8000")),
            ("http://me:secret@gateway:80/dynamo/", Some("http://gateway:80/dynamo")),
            ("/", None),
        ] {
            assert_eq!(address_of(uri).as_deref(), expected, "{uri}");
        }
    }

    /// Goal: the endpoint is known even if no server responds.
    #[tokio::test]
    async fn the_address_is_heard_from_the_first_request() {
        let heard = ObservedAddress::default();
        let config = aws_sdk_dynamodb::Config::builder()
            .behavior_version(BehaviorVersion::latest())
            .http_client(client::https::client())
            .region(Region::new("eu-west-1"))
            .credentials_provider(Credentials::new("a", "b", None, None, "test"))
            .endpoint_url("http://127.0.0.1:1")
            .retry_config(aws_sdk_dynamodb::config::retry::RetryConfig::disabled())
            .interceptor(heard.clone());
        let client = aws_sdk_dynamodb::Client::from_conf(config.build());
        assert_eq!(heard.url(), None);
        assert!(client.list_tables().send().await.is_err());
        assert_eq!(heard.url().as_deref(), Some("http://127.0.0.1:1"));
    }
}
