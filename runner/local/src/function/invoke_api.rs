//! Lambda's Invoke operation: `aws lambda invoke --endpoint-url ...`.
//!
//! There is one endpoint for all functions. Requests are not authenticated, so the endpoint listens only on
//! loopback. An asynchronous invocation (`Event`) is attempted once; Lambda would retry it twice.
//!
//! Source: AWS Lambda API reference, Invoke.

use std::{collections::BTreeMap, convert::Infallible, net::SocketAddr, time::Duration};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use bytes::Bytes;
use http::{HeaderValue, Method, Request, Response, StatusCode};
use http_body_util::{BodyExt, Full, Limited};
use serde_json::json;
use server::gate::{
    AllowList, BoundListener, Dialect, Listener, Progress, RequestBody, Service,
    Settings as ListenerSettings,
};

use super::{Function, InvokeOutcome, REQUEST_BYTES_MAX, log};
use crate::poller::request_id;

/// The time that a client has to send a request's head.
const HEADER_TIMEOUT: Duration = Duration::from_secs(90);

/// The time that running requests have to end at shutdown.
const SHUTDOWN_GRACE: Duration = Duration::from_secs(1);

/// The maximum number of bytes from the end of an invocation's log that a response contains.
/// Source: AWS Lambda API reference, Invoke, `LogType`.
const LOG_TAIL_BYTES: usize = 4 * 1_024;

/// A running endpoint. Dropping it closes its connections.
#[derive(Debug)]
pub struct InvokeEndpoint {
    listener: Listener,
}

impl InvokeEndpoint {
    /// Serves the functions by their names. Accepts this machine's own host names, and the hosts and
    /// origins in `allowed`.
    pub fn start(
        functions: impl IntoIterator<Item = Function>,
        bound: BoundListener,
        allowed: AllowList,
    ) -> Self {
        let functions =
            functions.into_iter().map(|function| (function.name().to_owned(), function));
        let service = Invocable(functions.collect());
        let settings = ListenerSettings::new(allowed, Some(HEADER_TIMEOUT));
        Self { listener: Listener::serve(bound, settings, service) }
    }

    /// Returns the address with the port that was bound.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.listener.address()
    }

    /// Returns the value for `--endpoint-url`.
    #[must_use]
    pub fn url(&self) -> String {
        format!("http://{}", self.address())
    }

    /// Stops accepting requests, and waits at most a second for running requests.
    pub async fn shutdown(self) {
        // Requests that are still running after the grace period are dropped.
        let _in_order = self.listener.shutdown(SHUTDOWN_GRACE).await;
    }
}

/// The functions, by their names.
struct Invocable(BTreeMap<String, Function>);

impl Service for Invocable {
    type Body = Full<Bytes>;
    type Error = Infallible;

    fn dialect(&self) -> Dialect {
        Dialect::Json
    }

    async fn answer(
        &self,
        request: Request<RequestBody>,
        _: &Progress,
    ) -> Result<Response<Full<Bytes>>, Infallible> {
        Ok(answer(&self.0, request).await)
    }
}

async fn answer(
    functions: &BTreeMap<String, Function>,
    request: Request<RequestBody>,
) -> Response<Full<Bytes>> {
    let path = request.uri().path();
    let named = path
        .strip_prefix("/2015-03-31/functions/")
        .and_then(|path| path.strip_suffix("/invocations"))
        .map(function_name);
    let (&Method::POST, Some(name)) = (request.method(), named) else {
        let message = "this endpoint supports only POST /2015-03-31/functions/NAME/invocations";
        return problem(StatusCode::NOT_FOUND, "UnknownOperationException", message);
    };
    let Some(function) = functions.get(&name).cloned() else {
        let known: Vec<&str> = functions.keys().map(String::as_str).collect();
        let message = format!("Function not found: {name}; functions are: {}", known.join(", "));
        return problem(StatusCode::NOT_FOUND, "ResourceNotFoundException", &message);
    };
    let header = |name: &str| request.headers().get(name).and_then(|value| value.to_str().ok());
    let kind = header("x-amz-invocation-type").unwrap_or("RequestResponse").to_owned();
    let wants_tail = header("x-amz-log-type") == Some("Tail");
    let Ok(body) = Limited::new(request.into_body(), REQUEST_BYTES_MAX).collect().await else {
        let message = format!("the payload is larger than {REQUEST_BYTES_MAX} bytes or incomplete");
        return problem(StatusCode::PAYLOAD_TOO_LARGE, "RequestTooLargeException", &message);
    };
    let mut payload = body.to_bytes();
    if payload.is_empty() {
        payload = Bytes::from_static(b"{}");
    }
    if let Err(error) = serde_json::from_slice::<serde::de::IgnoredAny>(&payload) {
        let message = format!("Could not parse request body into json: {error}");
        return problem(StatusCode::BAD_REQUEST, "InvalidRequestContentException", &message);
    }
    match kind.as_str() {
        "RequestResponse" => invoke(&function, payload, wants_tail).await,
        "Event" => {
            tokio::spawn(async move { function.invoke(payload).await });
            empty(StatusCode::ACCEPTED)
        }
        "DryRun" => empty(StatusCode::NO_CONTENT),
        _ => {
            let message =
                format!("invocation type=`{kind}` is not RequestResponse, Event or DryRun");
            problem(StatusCode::BAD_REQUEST, "InvalidParameterValueException", &message)
        }
    }
}

async fn invoke(function: &Function, payload: Bytes, wants_tail: bool) -> Response<Full<Bytes>> {
    let request_id = request_id();
    let (body, failed) = match function.invoke_as(&request_id, payload).await {
        InvokeOutcome::Ok(body) => (body, false),
        InvokeOutcome::FunctionError { payload, .. } => (payload, true),
        InvokeOutcome::NotInvoked(reason) => {
            return problem(StatusCode::INTERNAL_SERVER_ERROR, "ServiceException", &reason);
        }
    };
    let mut response = Response::new(Full::new(body));
    let headers = response.headers_mut();
    headers.insert("content-type", HeaderValue::from_static("application/json"));
    headers.insert("x-amz-executed-version", HeaderValue::from_static("$LATEST"));
    if let Ok(request_id) = HeaderValue::from_str(&request_id) {
        headers.insert("x-amzn-requestid", request_id);
    }
    if wants_tail {
        let settings = function.settings();
        let path = settings.log_folder.join(format!("{}.log", function.name()));
        let tail = log::tail_of(&path, &request_id, LOG_TAIL_BYTES).await;
        if let Ok(tail) = HeaderValue::from_str(&STANDARD.encode(tail)) {
            headers.insert("x-amz-log-result", tail);
        }
    }
    if failed {
        headers.insert("x-amz-function-error", HeaderValue::from_static("Unhandled"));
    }
    response
}

/// Returns the name in `NAME`, `NAME:QUALIFIER`, `ACCOUNT:function:NAME` or an ARN. Colons may be
/// percent-encoded.
fn function_name(reference: &str) -> String {
    let reference = reference.replace("%3A", ":").replace("%3a", ":").replace("%24", "$");
    let mut parts = reference.split(':');
    let after = parts.by_ref().any(|part| part == "function").then(|| parts.next()).flatten();
    let name = after.or_else(|| reference.split(':').next()).unwrap_or_default();
    name.to_owned()
}

fn empty(status: StatusCode) -> Response<Full<Bytes>> {
    let mut response = Response::default();
    *response.status_mut() = status;
    response
}

fn problem(status: StatusCode, kind: &'static str, message: &str) -> Response<Full<Bytes>> {
    let body = json!({ "Type": "User", "Message": message, "message": message }).to_string();
    let mut response = Response::new(Full::new(body.into()));
    *response.status_mut() = status;
    let headers = response.headers_mut();
    headers.insert("content-type", HeaderValue::from_static("application/json"));
    headers.insert("x-amzn-errortype", HeaderValue::from_static(kind));
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_function_is_named_in_each_of_the_ways_of_the_api() {
        let cases = [
            ("archive", "archive"),
            ("archive:$LATEST", "archive"),
            ("archive:%24LATEST", "archive"),
            ("123456789012:function:archive", "archive"),
            ("arn:aws:lambda:us-east-1:123456789012:function:archive", "archive"),
            ("arn%3Aaws%3Alambda%3Aus-east-1%3A123456789012%3Afunction%3Aarchive%3A1", "archive"),
            ("function", "function"),
        ];
        for (reference, name) in cases {
            assert_eq!(function_name(reference), name, "{reference}");
        }
    }
}
