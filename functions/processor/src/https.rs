//! The HTTP client of the AWS SDK's clients.
//!
//! The SDK's own default encrypts with `aws-lc`; this one does with `ring`, which compiles in a third of
//! the time and makes smaller binaries. It opens no connection by itself.

use aws_smithy_http_client::Builder;
use aws_smithy_http_client::tls::{Provider, rustls_provider::CryptoMode};
use aws_smithy_runtime_api::client::http::SharedHttpClient;

/// Makes an HTTP client with a pool of connections of its own, for `http` and `https` endpoints.
pub(crate) fn client() -> SharedHttpClient {
    Builder::new().tls_provider(Provider::Rustls(CryptoMode::Ring)).build_https()
}
