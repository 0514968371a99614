//! The reasons why the gate refuses a request, each with the flag that would allow the request.

use bytes::Bytes;
use http::header::{CONNECTION, CONTENT_TYPE};
use http::{HeaderValue, Response, StatusCode};
use model::json;

/// The maximum number of characters of a client's header that an error message quotes.
const QUOTED_CHARACTERS: usize = 80;

/// The reason why the gate refuses a request.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// The request does not have exactly one `Host` header.
    #[error("a request must have exactly one `Host` header, with a name or an address")]
    NoHost,
    /// The `Host` is not a name of this listener.
    #[error(
        "`Host: {0}` is not a name of this machine, so a web page may have sent the request; to allow the name, use --allow-host NAME (`local-store`, `weir up`)"
    )]
    Host(String),
    /// The host in the request line differs from `Host`.
    #[error(
        "the request line has the host `{target}`, but the `Host` header has `{host}`; send the same host in both"
    )]
    HostsDiffer {
        /// The host in the request line.
        target: String,
        /// The host of the header.
        host: String,
    },
    /// A web page of the given origin sent the request.
    #[error(
        "web pages of the origin `{0}` must not send requests; to allow them, use --allow-origin ORIGIN (`local-store`, `weir up`)"
    )]
    Origin(String),
    /// A web page of another site sent the request, according to the header `Sec-Fetch-Site`.
    #[error(
        "`Sec-Fetch-Site: {0}`: web pages of other sites must not send requests; to allow them, use --allow-origin ORIGIN (`local-store`, `weir up`)"
    )]
    Site(String),
    /// A browser sent a form.
    #[error(
        "`Content-Type: {0}` is a content type of web forms, which must not send requests; use a program, or allow the page with --allow-origin ORIGIN (`local-store`, `weir up`)"
    )]
    Form(String),
}

/// The format of errors for the clients of a service.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dialect {
    /// JSON, as in DynamoDB and Lambda.
    Json,
    /// XML, as in S3.
    Xml,
}

/// Returns the value of a client's header for an error message, shortened and without control
/// characters.
pub(super) fn quoted(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes)
        .chars()
        .take(QUOTED_CHARACTERS)
        .flat_map(char::escape_debug)
        .collect()
}

impl Refusal {
    /// Returns the response, with status 403. The connection is closed after it.
    pub(super) fn response<B: From<Bytes>>(&self, dialect: Dialect) -> Response<B> {
        let text = self.to_string();
        let (content_type, body) = match dialect {
            Dialect::Json => {
                let mut body = String::from(r#"{"__type":"AccessDeniedException","message":"#);
                json::write_string(&mut body, &text);
                body.push('}');
                ("application/json", body)
            }
            Dialect::Xml => {
                let text = text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;");
                let head = "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<Error><Code>AccessDenied";
                ("application/xml", format!("{head}</Code><Message>{text}</Message></Error>"))
            }
        };
        let mut response = Response::new(B::from(Bytes::from(body)));
        *response.status_mut() = StatusCode::FORBIDDEN;
        let headers = response.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
        headers.insert("x-amzn-errortype", HeaderValue::from_static("AccessDeniedException"));
        headers.insert(CONNECTION, HeaderValue::from_static("close"));
        response
    }
}
