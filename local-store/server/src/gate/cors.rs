//! Cross-origin requests (CORS): web pages may use a listener if the operator allows their origin.
//!
//! By default no origin is allowed, so no web page can read or change anything. Source: WHATWG, "Fetch",
//! the CORS protocol.

use http::header::{
    ACCESS_CONTROL_ALLOW_HEADERS, ACCESS_CONTROL_ALLOW_METHODS, ACCESS_CONTROL_ALLOW_ORIGIN,
    ACCESS_CONTROL_EXPOSE_HEADERS, ACCESS_CONTROL_MAX_AGE, ACCESS_CONTROL_REQUEST_HEADERS, VARY,
};
use http::{HeaderMap, HeaderValue, Uri};

/// The time in seconds for which a browser may cache the response to a preflight: a day.
const MAX_AGE: HeaderValue = HeaderValue::from_static("86400");
const METHODS: HeaderValue = HeaderValue::from_static("GET, HEAD, POST, PUT, DELETE");
/// The request headers that SDKs send. The response to a preflight allows them if the preflight does
/// not name headers.
const HEADERS: HeaderValue = HeaderValue::from_static(
    "authorization, content-type, content-encoding, x-amz-target, x-amz-date, x-amz-content-sha256, x-amz-security-token, x-amz-user-agent, amz-sdk-invocation-id, amz-sdk-request",
);
/// The response headers that SDKs read, which the browser must expose to the page.
const EXPOSED: HeaderValue = HeaderValue::from_static(
    "x-amzn-requestid, x-amz-crc32, x-amz-request-id, etag, x-amzn-errortype, x-amz-function-error, x-amz-log-result, x-amz-executed-version",
);

/// The origins whose pages may use a listener.
#[derive(Clone, Debug, Default)]
pub(super) struct Origins(Vec<HeaderValue>);

impl Origins {
    /// Adds an origin such as `http://localhost:3000`. Returns false if `text` is not an origin.
    pub(super) fn add(&mut self, text: &str) -> bool {
        let uri: Option<Uri> = text.parse().ok();
        let is_origin = uri.is_some_and(|uri| {
            matches!(uri.scheme_str(), Some("http" | "https"))
                && uri.authority().is_some_and(|authority| !authority.as_str().contains('@'))
                && uri.path_and_query().is_none_or(|path| path == "/")
        }) && !text.ends_with('/');
        let value = HeaderValue::from_str(text).ok().filter(|_| is_origin);
        let is_taken = value.is_some();
        self.0.extend(value);
        is_taken
    }

    /// Returns `origin` if its pages may use the listener.
    pub(super) fn allowed(&self, origin: &[u8]) -> Option<HeaderValue> {
        self.0.iter().find(|allowed| allowed.as_bytes() == origin).cloned()
    }
}

/// Adds the headers that permit the page to read this response.
pub(super) fn permit(headers: &mut HeaderMap, origin: HeaderValue) {
    headers.insert(ACCESS_CONTROL_ALLOW_ORIGIN, origin);
    headers.insert(ACCESS_CONTROL_EXPOSE_HEADERS, EXPOSED);
    headers.append(VARY, HeaderValue::from_static("origin"));
}

/// Adds the headers that permit the page to send the request after this preflight.
pub(super) fn permit_request(request: &HeaderMap, headers: &mut HeaderMap) {
    let asked = request.get(ACCESS_CONTROL_REQUEST_HEADERS).cloned();
    headers.insert(ACCESS_CONTROL_ALLOW_METHODS, METHODS);
    headers.insert(ACCESS_CONTROL_ALLOW_HEADERS, asked.unwrap_or(HEADERS));
    headers.insert(ACCESS_CONTROL_MAX_AGE, MAX_AGE);
}
