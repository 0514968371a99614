//! Why a request is refused, in words that say which flag allows it.

use bytes::Bytes;
use http::header::{CONNECTION, CONTENT_TYPE};
use http::{HeaderValue, Response, StatusCode};
use model::json;

/// How much of what a client sent is quoted.
const QUOTED_CHARACTERS: usize = 80;

/// Why the gate does not let a request pass.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// There is not exactly one `Host`.
    #[error("a request has exactly one `Host`, which is a name or an address")]
    NoHost,
    /// The `Host` is not one of this listener.
    #[error(
        "`Host: {0}` is not a name of this machine: a page in a browser may have looked it up; if it is yours, name it with --allow-host NAME (`local-store`, `weir up`)"
    )]
    Host(String),
    /// The address in the request line and `Host` differ.
    #[error("the request line names `{target}` and `Host` names `{host}`; they must be the same")]
    HostsDiffer {
        /// Of the request line.
        target: String,
        /// Of the header.
        host: String,
    },
    /// A page of this origin sent it.
    #[error(
        "pages of the origin `{0}` may not send requests; if the page is yours, name it with --allow-origin ORIGIN (`local-store`, `weir up`)"
    )]
    Origin(String),
    /// A browser says that a page of another site sent it.
    #[error(
        "`Sec-Fetch-Site: {0}`: pages of other sites may not send requests; if the page is yours, name its origin with --allow-origin ORIGIN (`local-store`, `weir up`)"
    )]
    Site(String),
    /// A browser sent a form.
    #[error(
        "a browser's form, `Content-Type: {0}`, changes nothing here; send the request from a program, or name the page's origin with --allow-origin ORIGIN (`local-store`, `weir up`)"
    )]
    Form(String),
}

/// How clients of a service read an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dialect {
    /// JSON, as DynamoDB and Lambda answer.
    Json,
    /// XML, as S3 answers.
    Xml,
}

/// What a client sent, short and without control characters.
pub(super) fn quoted(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes)
        .chars()
        .take(QUOTED_CHARACTERS)
        .flat_map(char::escape_debug)
        .collect()
}

impl Refusal {
    /// Returns the answer, with status 403, after which the connection ends.
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
