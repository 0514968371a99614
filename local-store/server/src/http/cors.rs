//! Cross-origin requests: pages in a browser may use the store when their origin was named.
//!
//! By default none is, so that no page that happens to be open can read or change a developer's
//! tables. Source: WHATWG, "Fetch", the CORS protocol.

use http::header::{
    ACCESS_CONTROL_ALLOW_HEADERS, ACCESS_CONTROL_ALLOW_METHODS, ACCESS_CONTROL_ALLOW_ORIGIN,
    ACCESS_CONTROL_EXPOSE_HEADERS, ACCESS_CONTROL_MAX_AGE, ORIGIN, VARY,
};
use http::{HeaderMap, HeaderValue, Uri};

/// How long a browser may remember a permission, in seconds: a day.
const MAX_AGE: HeaderValue = HeaderValue::from_static("86400");
const METHODS: HeaderValue = HeaderValue::from_static("POST");
/// What SDKs send.
const HEADERS: HeaderValue = HeaderValue::from_static(
    "authorization, content-type, content-encoding, x-amz-target, x-amz-date, x-amz-content-sha256, x-amz-security-token, x-amz-user-agent, amz-sdk-invocation-id, amz-sdk-request",
);
/// What SDKs read.
const EXPOSED: HeaderValue = HeaderValue::from_static("x-amzn-requestid, x-amz-crc32");

/// The origins whose pages may use the store.
#[derive(Clone, Debug, Default)]
pub struct Origins(Vec<HeaderValue>);

impl Origins {
    /// Takes origins such as `http://localhost:3000`.
    ///
    /// # Errors
    /// For what is no origin, with what to write instead.
    pub fn new(texts: &[String]) -> Result<Self, String> {
        let origins: Result<Vec<HeaderValue>, String> = texts
            .iter()
            .map(|text| {
                let uri: Option<Uri> = text.parse().ok();
                let is_origin = uri.is_some_and(|uri| {
                    matches!(uri.scheme_str(), Some("http" | "https"))
                        && uri
                            .authority()
                            .is_some_and(|authority| !authority.as_str().contains('@'))
                        && uri.path_and_query().is_none_or(|path| path == "/")
                }) && !text.ends_with('/');
                let value = HeaderValue::from_str(text).ok().filter(|_| is_origin);
                value.ok_or_else(|| {
                    format!("`{text}` is no origin; one is written like http://localhost:3000")
                })
            })
            .collect();
        origins.map(Self)
    }

    /// The origin of a request, if its pages may use the store.
    pub(super) fn allowed(&self, request: &HeaderMap) -> Option<HeaderValue> {
        let origin = request.get(ORIGIN)?;
        self.0.iter().find(|allowed| *allowed == origin).cloned()
    }
}

/// Tells a browser that the page may read this answer.
pub(super) fn permit(headers: &mut HeaderMap, origin: HeaderValue) {
    headers.insert(ACCESS_CONTROL_ALLOW_ORIGIN, origin);
    headers.insert(ACCESS_CONTROL_EXPOSE_HEADERS, EXPOSED);
    headers.append(VARY, HeaderValue::from_static("origin"));
}

/// Tells a browser what the page may send.
pub(super) fn permit_request(headers: &mut HeaderMap) {
    headers.insert(ACCESS_CONTROL_ALLOW_METHODS, METHODS);
    headers.insert(ACCESS_CONTROL_ALLOW_HEADERS, HEADERS);
    headers.insert(ACCESS_CONTROL_MAX_AGE, MAX_AGE);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_origins_are_taken_and_only_those_named_are_permitted() {
        for (text, is_origin) in [
            ("http://localhost:3000", true),
            ("https://example.com", true),
            ("*", false),
            ("null", false),
            ("localhost:3000", false),
            ("http://localhost:3000/", false),
            ("http://localhost/path", false),
            ("http://a@b", false),
        ] {
            assert_eq!(Origins::new(&[text.to_owned()]).is_ok(), is_origin, "{text}");
        }
        let origins = Origins::new(&["http://localhost:3000".to_owned()]).unwrap();
        let from = |origin: &'static str| {
            origins.allowed(&HeaderMap::from_iter([(ORIGIN, HeaderValue::from_static(origin))]))
        };
        assert!(from("http://localhost:3000").is_some());
        assert!(
            from("http://localhost:3001").is_none() && from("https://localhost:3000").is_none()
        );
        assert!(origins.allowed(&HeaderMap::new()).is_none());
    }
}
