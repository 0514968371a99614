//! The HTTP client of the AWS SDK's clients.
//!
//! The client uses `ring` for TLS instead of the SDK's default, `aws-lc`. `ring` compiles in a
//! third of the time, and the binaries are smaller. The module opens no connection.

use aws_smithy_http_client::Builder;
use aws_smithy_http_client::tls::{Provider, rustls_provider::CryptoMode};
use aws_smithy_runtime_api::client::http::SharedHttpClient;

/// Returns an HTTP client with its own pool of connections, for `http` and `https` endpoints.
#[must_use]
pub fn client() -> SharedHttpClient {
    Builder::new().tls_provider(Provider::Rustls(CryptoMode::Ring)).build_https()
}
