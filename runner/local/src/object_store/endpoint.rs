//! The HTTP layer of the S3 endpoint. It removes the signature and the `aws-chunked` coding from each
//! request.
//!
//! `operations` has the operations, and `files` the format on disk.

use std::{
    net::SocketAddr,
    sync::atomic::{AtomicU64, Ordering},
    time::Duration,
};

use futures::TryStreamExt;
use http::{HeaderValue, Request, Response, StatusCode, Uri, header};
use http_body_util::StreamBody;
use hyper::body::Frame;
use s3s::{
    Body,
    service::{S3Service, S3ServiceBuilder},
    validation::NameValidation,
};
use server::gate::{
    AllowList, BoundListener, Dialect, Listener, Progress, RequestBody, Service,
    Settings as ListenerSettings,
};

use super::{
    ObjectStore,
    chunked::{self, Trailers},
    operations::Operations,
};

/// The time that a client has to send a request's head, including the idle time before it. SDK clients close
/// idle connections earlier, so a longer time would only keep dead connections.
const HEADER_TIMEOUT: Duration = Duration::from_secs(90);

/// The time that running requests have to end at shutdown.
const SHUTDOWN_GRACE: Duration = Duration::from_secs(5);

/// The query parameters of a presigned URL's signature, versions 4 and 2, in lower case.
const SIGNATURE_PARAMETERS: [&str; 10] = [
    "x-amz-algorithm",
    "x-amz-credential",
    "x-amz-date",
    "x-amz-expires",
    "x-amz-signedheaders",
    "x-amz-signature",
    "x-amz-security-token",
    "awsaccesskeyid",
    "signature",
    "expires",
];

/// A running S3 endpoint. Dropping it closes its connections; `shutdown` first waits for running
/// requests.
#[derive(Debug)]
pub struct Endpoint {
    listener: Listener,
}

impl Endpoint {
    /// Serves `store`. Accepts this machine's own host names, and the hosts and origins in `allowed`.
    /// `region` is the Region that clients see for the buckets.
    pub fn start(
        store: ObjectStore,
        bound: BoundListener,
        allowed: AllowList,
        region: &str,
    ) -> Self {
        let operations = Operations::new(store, region.to_owned());
        let mut builder = S3ServiceBuilder::new(operations);
        builder.set_validation(CheckedLater);
        let service = Signed { s3: builder.build(), requests: AtomicU64::new(1) };
        let settings = ListenerSettings::new(allowed, Some(HEADER_TIMEOUT));
        Self { listener: Listener::serve(bound, settings, service) }
    }

    /// Returns the address with the port that was bound.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.listener.address()
    }

    /// Returns the value for `AWS_ENDPOINT_URL_S3`. Clients must use path-style requests.
    #[must_use]
    pub fn url(&self) -> String {
        format!("http://{}", self.address())
    }

    /// Stops accepting requests, and waits at most five seconds for running requests.
    pub async fn shutdown(self) {
        // Requests that are still running after the grace period are dropped.
        let _in_order = self.listener.shutdown(SHUTDOWN_GRACE).await;
    }
}

/// A validator that accepts all bucket names. The store validates them later, with better error
/// messages.
struct CheckedLater;

impl NameValidation for CheckedLater {
    fn validate_bucket_name(&self, _name: &str) -> bool {
        true
    }
}

/// The service that accepts requests with any signature.
struct Signed {
    s3: S3Service,
    /// The number of the next request.
    requests: AtomicU64,
}

impl Service for Signed {
    type Body = Body;
    type Error = s3s::HttpError;

    fn dialect(&self) -> Dialect {
        Dialect::Xml
    }

    async fn answer(
        &self,
        request: Request<RequestBody>,
        _: &Progress,
    ) -> Result<Response<Body>, s3s::HttpError> {
        let number = self.requests.fetch_add(1, Ordering::Relaxed);
        let request = plain(request);
        let trailers = request.extensions().get::<Trailers>().cloned();
        let mut response = self.s3.call(request).await?;
        // If a request's content ends with an error, the crate `s3s` always responds with a server
        // error.
        if response.status().is_server_error()
            && let Some((code, message)) = trailers.and_then(|trailers| trailers.refusal())
        {
            response = refusal(code, &message);
        }
        if let Ok(value) = HeaderValue::from_str(&format!("{number:016X}")) {
            response.headers_mut().insert("x-amz-request-id", value);
        }
        Ok(response)
    }
}

/// Returns the response to a request whose content is invalid. `code` and `message` must not need
/// escapes in XML.
fn refusal(code: &str, message: &str) -> Response<Body> {
    let text = format!(
        "<?xml version=\"1.0\" encoding=\"UTF-8\"?><Error><Code>{code}</Code><Message>{message}</Message></Error>"
    );
    let mut response = Response::new(Body::from(text));
    *response.status_mut() = StatusCode::BAD_REQUEST;
    let xml = HeaderValue::from_static("application/xml");
    response.headers_mut().insert(header::CONTENT_TYPE, xml);
    response
}

/// Returns the request without its signature and content coding.
fn plain(request: Request<RequestBody>) -> Request<Body> {
    let (mut parts, body) = request.into_parts();
    parts.headers.remove(header::AUTHORIZATION);
    if let Some(uri) = without_signature(&parts.uri) {
        parts.uri = uri;
    }
    let hash = parts.headers.remove("x-amz-content-sha256");
    let chunked = hash.is_some_and(|hash| hash.as_bytes().starts_with(b"STREAMING-"));
    if !chunked {
        return Request::from_parts(parts, Body::http_body_unsync(body));
    }
    if let Some(length) = parts.headers.remove("x-amz-decoded-content-length") {
        parts.headers.insert(header::CONTENT_LENGTH, length);
    } else {
        parts.headers.remove(header::CONTENT_LENGTH);
    }
    if let Some(coding) = parts.headers.remove(header::CONTENT_ENCODING)
        && let Some(coding) = without_chunked(&coding)
    {
        parts.headers.insert(header::CONTENT_ENCODING, coding);
    }
    let (stream, trailers) = chunked::decode(body);
    parts.extensions.insert(trailers);
    let body = Body::http_body_unsync(StreamBody::new(stream.map_ok(Frame::data)));
    Request::from_parts(parts, body)
}

/// Returns the content coding without `aws-chunked`; `None` if nothing remains.
fn without_chunked(coding: &HeaderValue) -> Option<HeaderValue> {
    let codings = coding.to_str().ok()?.split(',').map(str::trim);
    let left: Vec<&str> = codings.filter(|coding| *coding != "aws-chunked").collect();
    if left.is_empty() { None } else { HeaderValue::from_str(&left.join(", ")).ok() }
}

/// Returns the URI of a presigned request without its signature; `None` if it is not presigned.
fn without_signature(uri: &Uri) -> Option<Uri> {
    let name =
        |parameter: &str| parameter.split('=').next().unwrap_or_default().to_ascii_lowercase();
    let parameters: Vec<&str> = uri.query()?.split('&').collect();
    let signed = parameters.iter().any(|p| matches!(&*name(p), "x-amz-signature" | "signature"));
    if !signed {
        return None;
    }
    let left: Vec<&str> = parameters
        .into_iter()
        .filter(|parameter| !SIGNATURE_PARAMETERS.contains(&&*name(parameter)))
        .collect();
    let path = match left.is_empty() {
        true => uri.path().to_owned(),
        false => format!("{}?{}", uri.path(), left.join("&")),
    };
    path.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn presigned_requests_lose_their_signature_only() {
        let cases = [
            ("/b/k?x-id=GetObject", None),
            ("/b/k", None),
            (
                "/b/k%20?X-Amz-Algorithm=A&X-Amz-Credential=C&X-Amz-Signature=S&x-id=GetObject&partNumber=2",
                Some("/b/k%20?x-id=GetObject&partNumber=2"),
            ),
            ("/b/k?AWSAccessKeyId=a&Signature=s&Expires=9", Some("/b/k")),
        ];
        for (uri, expected) in cases {
            let plain = without_signature(&uri.parse().unwrap()).map(|uri| uri.to_string());
            assert_eq!(plain.as_deref(), expected);
        }
    }
}
