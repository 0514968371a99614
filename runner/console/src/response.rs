//! HTTP responses with the headers that every response of the console has.

use bytes::Bytes;
use http::header::{
    CACHE_CONTROL, CONTENT_DISPOSITION, CONTENT_SECURITY_POLICY, CONTENT_TYPE, HeaderName,
    LOCATION, REFERRER_POLICY, X_CONTENT_TYPE_OPTIONS,
};
use http::{HeaderValue, Response, StatusCode};

use crate::body::Body;

/// The content security policy. It allows only the console's own style, script and forms, and
/// nothing inline.
const POLICY: &str = "default-src 'none'; style-src 'self'; script-src 'self'; img-src 'self' data:; connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'";

const RESOURCE_POLICY: HeaderName = HeaderName::from_static("cross-origin-resource-policy");

/// The content type of a response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Content {
    /// An HTML page.
    Html,
    /// The JSON version of a page.
    Json,
    /// Items as DynamoDB JSON lines.
    JsonLines,
    /// Items as CSV.
    Csv,
    /// The style sheet.
    Css,
    /// The script.
    Script,
    /// The icon.
    Svg,
    /// Server-sent events.
    Events,
}

impl Content {
    fn name(self) -> &'static str {
        match self {
            Self::Html => "text/html; charset=utf-8",
            Self::Json => "application/json",
            Self::JsonLines => "application/x-ndjson",
            Self::Csv => "text/csv; charset=utf-8",
            Self::Css => "text/css; charset=utf-8",
            Self::Script => "text/javascript; charset=utf-8",
            Self::Svg => "image/svg+xml",
            Self::Events => "text/event-stream",
        }
    }
}

/// Returns a response with a body and the common headers.
pub(crate) fn response(status: StatusCode, content: Content, body: Body) -> Response<Body> {
    let mut response = Response::new(body);
    *response.status_mut() = status;
    let headers = response.headers_mut();
    for (name, value) in [
        (CONTENT_TYPE, content.name()),
        (CONTENT_SECURITY_POLICY, POLICY),
        (X_CONTENT_TYPE_OPTIONS, "nosniff"),
        // With `no-referrer` a browser would send its forms with `Origin: null`.
        (REFERRER_POLICY, "same-origin"),
        (RESOURCE_POLICY, "same-origin"),
        (CACHE_CONTROL, "no-store"),
    ] {
        headers.insert(name, HeaderValue::from_static(value));
    }
    response
}

/// Returns a response whose complete body is known.
pub(crate) fn whole(
    status: StatusCode,
    content: Content,
    bytes: impl Into<Bytes>,
) -> Response<Body> {
    response(status, content, Body::from(bytes.into()))
}

/// Returns a file for the browser to save. `name` must not contain a quote.
pub(crate) fn file(content: Content, name: &str, text: String) -> Response<Body> {
    let mut response = whole(StatusCode::OK, content, text);
    if let Ok(value) = HeaderValue::from_str(&format!("attachment; filename=\"{name}\"")) {
        response.headers_mut().insert(CONTENT_DISPOSITION, value);
    }
    response
}

/// Returns a redirect to another page after an action.
pub(crate) fn see_other(address: &str) -> Response<Body> {
    let mut response = whole(StatusCode::SEE_OTHER, Content::Html, Bytes::new());
    let address = HeaderValue::from_str(address).unwrap_or(HeaderValue::from_static("/"));
    response.headers_mut().insert(LOCATION, address);
    response
}
