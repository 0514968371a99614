//! The HTTP client of the AWS SDK's clients.
//!
//! The client encrypts with `ring`, which compiles in a third of the time of `aws-lc`, the SDK's
//! default, and gives smaller binaries. This module opens no connection.

use aws_smithy_http_client::Builder;
use aws_smithy_http_client::tls::{Provider, rustls_provider::CryptoMode};
use aws_smithy_runtime_api::client::http::SharedHttpClient;

/// Returns an HTTP client with its own pool of connections, for `http` and `https` endpoints.
pub(crate) fn client() -> SharedHttpClient {
    Builder::new().tls_provider(Provider::Rustls(CryptoMode::Ring)).build_https()
}
