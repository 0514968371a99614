//! The Lambda Runtime API of one instance: gives the instance its invocation and accepts the response.
//!
//! This module starts no process and has no timeout. `instance` determines the outcome of an invocation.
//!
//! Source: AWS Lambda developer guide, "Using the Lambda runtime API for custom runtimes".

use std::{
    convert::Infallible,
    net::{Ipv4Addr, SocketAddr},
    sync::{
        Arc, MutexGuard,
        atomic::{AtomicU32, Ordering},
    },
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use bytes::Bytes;
use http::{Method, Request, Response, StatusCode};
use http_body_util::{BodyExt, Full, Limited};
use locks::Mutex;
use serde_json::json;
use server::gate::{
    AllowList, BindError, BoundListener, Dialect, Listener, Progress, RequestBody, Service,
    Settings as ListenerSettings,
};
use tokio::sync::{Notify, mpsc, oneshot};

use super::{InvokeOutcome, RESPONSE_BYTES_MAX, outcome};

/// An invocation, with the channels that report its receipt and its response.
#[derive(Debug)]
pub(super) struct Delivery {
    pub(super) request_id: String,
    pub(super) function_arn: String,
    /// The maximum time, counted from when the instance receives the invocation.
    pub(super) timeout: Duration,
    pub(super) payload: Bytes,
    /// Notified when the instance receives the invocation.
    pub(super) received: oneshot::Sender<()>,
    /// The channel for the response of the instance.
    pub(super) reply: oneshot::Sender<InvokeOutcome>,
}

/// The mailbox between an instance's Runtime API and its caller. It holds at most one invocation.
#[derive(Debug)]
pub(super) struct Mailbox {
    state: Mutex<State>,
    changed: Notify,
    /// Sends the signal to kill the process, in order to drop a response.
    kill: mpsc::Sender<()>,
    /// The number of responses to drop. All instances of the function share it.
    answers_to_drop: Arc<AtomicU32>,
}

#[derive(Debug, Default)]
struct State {
    /// Whether the instance has requested an invocation at least once.
    ready: bool,
    /// Whether the instance is being killed and gets no more invocations.
    closed: bool,
    pending: Option<Delivery>,
    current: Option<Current>,
    /// The request id of the last answered invocation.
    answered: Option<String>,
    init_error: Option<InvokeOutcome>,
}

#[derive(Debug)]
struct Current {
    request_id: String,
    reply: oneshot::Sender<InvokeOutcome>,
}

impl Mailbox {
    pub(super) fn new(kill: mpsc::Sender<()>, answers_to_drop: Arc<AtomicU32>) -> Self {
        Self { state: Mutex::default(), changed: Notify::new(), kill, answers_to_drop }
    }

    /// Stores an invocation for the instance's next request. An instance that reported that it cannot
    /// start will send no request. For such an instance the invocation is dropped, which notifies the
    /// caller.
    pub(super) fn put(&self, delivery: Delivery) {
        let mut state = self.state();
        if state.ready || state.init_error.is_none() {
            state.pending = Some(delivery);
        }
        drop(state);
        self.changed.notify_waiters();
    }

    /// Removes an invocation that the instance has not received.
    pub(super) fn withdraw(&self) {
        self.state().pending = None;
    }

    /// Stops giving invocations to the instance, which is being killed and would lose them.
    pub(super) fn close(&self) {
        self.state().closed = true;
    }

    /// Returns whether the instance gets no more invocations.
    pub(super) fn is_closed(&self) -> bool {
        self.state().closed
    }

    /// Returns whether the instance has ever requested an invocation.
    pub(super) fn is_ready(&self) -> bool {
        self.state().ready
    }

    /// Returns the request id of the current invocation.
    pub(super) fn current(&self) -> Option<String> {
        self.state().current.as_ref().map(|current| current.request_id.clone())
    }

    /// Returns the request id to which a line of the instance belongs: the current invocation, otherwise
    /// the last answered invocation. A line is sent through a pipe, so it may arrive later than the
    /// response.
    pub(super) fn writes_for(&self) -> Option<String> {
        let state = self.state();
        let current = state.current.as_ref().map(|current| &current.request_id);
        current.or(state.answered.as_ref()).cloned()
    }

    /// Returns the instance's report of why it could not start.
    pub(super) fn init_error(&self) -> Option<InvokeOutcome> {
        self.state().init_error.clone()
    }

    /// Stores the instance's report of why it cannot start, and drops the waiting invocation. If the
    /// instance has already requested an invocation, only stores the report.
    fn fail_init(&self, outcome: InvokeOutcome) {
        let mut state = self.state();
        if !state.ready {
            state.pending = None;
        }
        state.init_error = Some(outcome);
        drop(state);
        self.changed.notify_waiters();
    }

    /// Waits until the instance has requested its first invocation, or has reported that it cannot start.
    pub(super) async fn init_ended(&self) {
        loop {
            let changed = self.changed.notified();
            {
                let state = self.state();
                if state.ready || state.init_error.is_some() {
                    return;
                }
            }
            changed.await;
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }

    /// Waits for an invocation. Returns `None` if the instance has not responded to the last invocation
    /// yet.
    async fn next(&self) -> Option<Delivery> {
        loop {
            let changed = self.changed.notified();
            {
                let mut state = self.state();
                if state.current.is_some() {
                    return None;
                }
                if !std::mem::replace(&mut state.ready, true) {
                    self.changed.notify_waiters();
                }
                if !state.closed
                    && let Some(delivery) = state.pending.take()
                {
                    return Some(delivery);
                }
            }
            changed.await;
        }
    }

    /// Passes the response to the caller. Returns false if the response is not for the current
    /// invocation.
    fn reply(&self, request_id: &str, outcome: InvokeOutcome) -> bool {
        let current = {
            let mut state = self.state();
            let current = state.current.take_if(|current| current.request_id == request_id);
            let Some(current) = current else { return false };
            state.answered = Some(request_id.to_owned());
            current
        };
        let lose = |left: u32| left.checked_sub(1);
        if self.answers_to_drop.fetch_update(Ordering::Relaxed, Ordering::Relaxed, lose).is_ok() {
            // The channel holds one signal. One signal is enough, so a full channel does not
            // matter.
            let _sent = self.kill.try_send(());
            // The caller must notice the end of the process and not a closed channel, so the channel is kept
            // open.
            self.state().current = Some(current);
            return true;
        }
        // The caller may no longer wait for the response.
        let _received = current.reply.send(outcome);
        true
    }
}

/// Serves an instance's Runtime API on a free loopback port.
pub(super) async fn serve(mailbox: Arc<Mailbox>) -> Result<Listener, BindError> {
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
    let bound = BoundListener::new("Lambda Runtime API", address).await?;
    // A function's connection may be idle for as long as an invocation lasts, so the listener has no
    // timeout.
    let settings = ListenerSettings::new(AllowList::default(), None);
    Ok(Listener::serve(bound, settings, Instance(mailbox)))
}

/// The HTTP service of an instance's Runtime API.
struct Instance(Arc<Mailbox>);

impl Service for Instance {
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

async fn answer(mailbox: &Mailbox, request: Request<RequestBody>) -> Response<Full<Bytes>> {
    let path = request.uri().path().to_owned();
    let path = path.strip_prefix("/2018-06-01/runtime/").unwrap_or_default();
    let segments: Vec<&str> = path.split('/').collect();
    match (request.method(), segments.as_slice()) {
        (&Method::GET, ["invocation", "next"]) => next(mailbox).await,
        (&Method::POST, ["invocation", id, "response"]) => response(mailbox, id, request).await,
        (&Method::POST, ["invocation", id, "error"]) => {
            let outcome = reported(request).await;
            accepted(mailbox.reply(id, outcome))
        }
        (&Method::POST, ["init", "error"]) => {
            let outcome = reported(request).await;
            mailbox.fail_init(outcome);
            accepted(true)
        }
        _ => problem(StatusCode::NOT_FOUND, "NotFound", "unknown operation of the Runtime API"),
    }
}

async fn next(mailbox: &Mailbox) -> Response<Full<Bytes>> {
    let Some(delivery) = mailbox.next().await else {
        let message = "the previous invocation has no response yet";
        return problem(StatusCode::FORBIDDEN, "InvalidStateTransition", message);
    };
    let Delivery { request_id, function_arn, timeout, payload, received, reply } = delivery;
    let deadline = SystemTime::now() + timeout;
    let deadline_ms = deadline.duration_since(UNIX_EPOCH).unwrap_or_default().as_millis();
    let built = Response::builder()
        .header("content-type", "application/json")
        .header("lambda-runtime-aws-request-id", &request_id)
        .header("lambda-runtime-deadline-ms", deadline_ms.to_string())
        .header("lambda-runtime-invoked-function-arn", function_arn)
        .header("lambda-runtime-trace-id", trace_id(&request_id))
        .body(Full::new(payload));
    let Ok(response) = built else {
        let message = "the headers of the invocation are invalid";
        return problem(StatusCode::INTERNAL_SERVER_ERROR, "InternalError", message);
    };
    mailbox.state().current = Some(Current { request_id, reply });
    // If the caller no longer waits, the response of the instance is not needed.
    let _told = received.send(());
    response
}

async fn response(
    mailbox: &Mailbox,
    id: &str,
    request: Request<RequestBody>,
) -> Response<Full<Bytes>> {
    match Limited::new(request.into_body(), RESPONSE_BYTES_MAX).collect().await {
        Ok(body) => accepted(mailbox.reply(id, InvokeOutcome::Ok(body.to_bytes()))),
        Err(error) if error.is::<http_body_util::LengthLimitError>() => {
            mailbox.reply(id, outcome::response_too_large());
            let message =
                format!("Exceeded maximum allowed payload size ({RESPONSE_BYTES_MAX} bytes).");
            problem(StatusCode::PAYLOAD_TOO_LARGE, "RequestEntityTooLarge", &message)
        }
        // The process aborted its request. The exit of the process determines the outcome.
        Err(_) => problem(StatusCode::BAD_REQUEST, "IncompleteBody", "the response is incomplete"),
    }
}

/// Returns the failure that the function reports.
async fn reported(request: Request<RequestBody>) -> InvokeOutcome {
    let kind = request.headers().get("lambda-runtime-function-error-type");
    let kind = kind.and_then(|kind| kind.to_str().ok()).map(str::to_owned);
    match Limited::new(request.into_body(), RESPONSE_BYTES_MAX).collect().await {
        Ok(body) => outcome::reported(kind.as_deref(), body.to_bytes()),
        Err(error) if error.is::<http_body_util::LengthLimitError>() => {
            let what = format!("is larger than {RESPONSE_BYTES_MAX} bytes");
            outcome::report_lost(kind.as_deref(), &what)
        }
        Err(error) => outcome::report_lost(kind.as_deref(), &format!("is incomplete: {error}")),
    }
}

fn accepted(known: bool) -> Response<Full<Bytes>> {
    if !known {
        return problem(StatusCode::BAD_REQUEST, "InvalidRequestID", "Invalid request ID");
    }
    json_response(StatusCode::ACCEPTED, json!({ "status": "OK" }).to_string())
}

fn problem(status: StatusCode, kind: &str, message: &str) -> Response<Full<Bytes>> {
    json_response(status, json!({ "errorType": kind, "errorMessage": message }).to_string())
}

fn json_response(status: StatusCode, body: String) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(body.into()));
    *response.status_mut() = status;
    let json = http::HeaderValue::from_static("application/json");
    response.headers_mut().insert(http::header::CONTENT_TYPE, json);
    response
}

/// Returns a trace id in X-Ray's form, not sampled. It is derived from the request id.
fn trace_id(request_id: &str) -> String {
    let digits: String = request_id.chars().filter(char::is_ascii_hexdigit).collect();
    let (time, rest) = digits.split_at_checked(8).unwrap_or(("00000000", ""));
    let parent: String = rest.chars().rev().take(16).collect();
    format!("Root=1-{time}-{rest:0>24.24};Parent={parent:0>16};Sampled=0")
}

#[cfg(test)]
mod tests {
    use hyper_util::{client::legacy, rt::TokioExecutor};

    use super::*;

    struct Fixture {
        mailbox: Arc<Mailbox>,
        listener: Listener,
        killed: mpsc::Receiver<()>,
        http: legacy::Client<legacy::connect::HttpConnector, Full<Bytes>>,
    }

    impl Fixture {
        async fn start(losses: u32) -> Self {
            let (kill, killed) = mpsc::channel(1);
            let mailbox = Arc::new(Mailbox::new(kill, Arc::new(AtomicU32::new(losses))));
            let listener = serve(mailbox.clone()).await.unwrap();
            let http = legacy::Client::builder(TokioExecutor::new()).build_http();
            Self { mailbox, listener, killed, http }
        }

        fn deliver(&self, id: &str) -> (oneshot::Receiver<()>, oneshot::Receiver<InvokeOutcome>) {
            let (received, was_taken) = oneshot::channel();
            let (reply, replied) = oneshot::channel();
            self.mailbox.put(Delivery {
                request_id: id.to_owned(),
                function_arn: "arn:aws:lambda:us-east-1:000000000000:function:f".to_owned(),
                timeout: Duration::from_secs(60),
                payload: Bytes::from_static(b"{\"n\":1}"),
                received,
                reply,
            });
            (was_taken, replied)
        }

        async fn send(
            &self,
            method: &str,
            path: &str,
            body: Bytes,
        ) -> (u16, http::HeaderMap, Bytes) {
            let uri = format!("http://{}/2018-06-01/runtime/{path}", self.listener.address());
            let request = Request::builder().method(method).uri(uri).body(Full::new(body)).unwrap();
            let (parts, body) = self.http.request(request).await.unwrap().into_parts();
            (parts.status.as_u16(), parts.headers, body.collect().await.unwrap().to_bytes())
        }
    }

    #[tokio::test]
    async fn an_invocation_is_handed_over_and_answered() {
        let fixture = Fixture::start(0).await;
        assert!(!fixture.mailbox.is_ready());
        let (taken, replied) = fixture.deliver("5fb3b0a8-0000-4000-8000-000000000001");
        let (status, headers, body) = fixture.send("GET", "invocation/next", Bytes::new()).await;
        assert_eq!((status, &body[..]), (200, &b"{\"n\":1}"[..]));
        taken.await.unwrap();
        let header = |name: &str| headers[name].to_str().unwrap().to_owned();
        let id = header("lambda-runtime-aws-request-id");
        assert_eq!(id, "5fb3b0a8-0000-4000-8000-000000000001");
        assert!(header("lambda-runtime-invoked-function-arn").ends_with(":function:f"));
        assert!(
            header("lambda-runtime-trace-id")
                .starts_with("Root=1-5fb3b0a8-000040008000000000000001;")
        );
        let now_ms = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_millis();
        let deadline_ms: u128 = header("lambda-runtime-deadline-ms").parse().unwrap();
        assert!((1..=60_000).contains(&(deadline_ms - now_ms)));
        assert_eq!(fixture.mailbox.current().as_ref(), Some(&id));

        let (status, _, _) = fixture.send("GET", "invocation/next", Bytes::new()).await;
        assert_eq!(status, 403, "one invocation at a time");
        let path = format!("invocation/{id}/response");
        let (status, _, _) = fixture.send("POST", "invocation/other/response", "no".into()).await;
        assert_eq!(status, 400);
        let (status, _, _) = fixture.send("POST", &path, "yes".into()).await;
        assert_eq!(status, 202);
        assert_eq!(replied.await.unwrap(), InvokeOutcome::Ok("yes".into()));
        let (status, _, _) = fixture.send("POST", &path, "again".into()).await;
        assert_eq!(status, 400, "a second response to the same invocation");
    }

    #[tokio::test]
    async fn errors_and_responses_that_are_too_large() {
        let fixture = Fixture::start(0).await;
        let error = r#"{"errorType":"MyError","errorMessage":"why"}"#;
        let large = Bytes::from(vec![b'x'; RESPONSE_BYTES_MAX + 1]);
        let fitting = Bytes::from(vec![b'x'; RESPONSE_BYTES_MAX]);
        let cases = [
            ("error", Bytes::from(error), 202, "MyError"),
            ("error", large.clone(), 202, "Runtime.Unknown"),
            ("response", large, 413, "Function.ResponseSizeTooLarge"),
            ("response", fitting, 202, ""),
        ];
        for (operation, body, expected, kind) in cases {
            let (_taken, replied) = fixture.deliver("id");
            fixture.send("GET", "invocation/next", Bytes::new()).await;
            let path = format!("invocation/id/{operation}");
            let (status, _, _) = fixture.send("POST", &path, body).await;
            assert_eq!(status, expected);
            match replied.await.unwrap() {
                InvokeOutcome::FunctionError { payload, .. } => {
                    let payload: serde_json::Value = serde_json::from_slice(&payload).unwrap();
                    assert_eq!(payload["errorType"], kind);
                }
                InvokeOutcome::Ok(_) => assert_eq!(kind, ""),
                outcome => panic!("{outcome:?}"),
            }
        }
        let (status, _, _) = fixture.send("POST", "init/error", error.into()).await;
        assert_eq!(status, 202);
        assert!(matches!(fixture.mailbox.init_error(), Some(InvokeOutcome::FunctionError { .. })));
        let (status, _, _) = fixture.send("GET", "restore/next", Bytes::new()).await;
        assert_eq!(status, 404);
    }

    /// An instance that reports that it cannot start never requests an invocation. The caller must
    /// not wait for the instance, whether the report arrives before or after the invocation.
    #[tokio::test]
    async fn an_instance_that_cannot_start_is_not_waited_for() {
        for is_said_before in [true, false] {
            let fixture = Fixture::start(0).await;
            let say = || fixture.send("POST", "init/error", Bytes::from_static(b"{}"));
            if is_said_before {
                assert_eq!(say().await.0, 202);
            }
            let (was_taken, _replied) = fixture.deliver("id");
            if !is_said_before {
                assert_eq!(say().await.0, 202);
            }
            assert!(was_taken.await.is_err());
            assert!(fixture.mailbox.init_error().is_some());
        }
    }

    /// Goal: if an error report does not arrive, the outcome has the reason. Method: one report is
    /// too large, and the connection of another report ends in the middle.
    #[tokio::test]
    async fn an_error_report_that_does_not_arrive_is_told_as_one() {
        let fixture = Fixture::start(0).await;
        let told = |replied: oneshot::Receiver<InvokeOutcome>| async {
            match replied.await.unwrap() {
                InvokeOutcome::FunctionError { message, .. } => message,
                outcome => panic!("{outcome:?}"),
            }
        };
        let (_taken, replied) = fixture.deliver("id");
        fixture.send("GET", "invocation/next", Bytes::new()).await;
        let large = Bytes::from(vec![b'x'; RESPONSE_BYTES_MAX + 1]);
        fixture.send("POST", "invocation/id/error", large).await;
        let message = told(replied).await;
        assert_eq!(message, "the function's error report is larger than 6291556 bytes");

        let (_taken, replied) = fixture.deliver("id");
        fixture.send("GET", "invocation/next", Bytes::new()).await;
        let mut broken = tokio::net::TcpStream::connect(fixture.listener.address()).await.unwrap();
        let head = "POST /2018-06-01/runtime/invocation/id/error HTTP/1.1\r\nhost: localhost\r\n\
            content-length: 100\r\n\r\n{\"errorMessage\":";
        tokio::io::AsyncWriteExt::write_all(&mut broken, head.as_bytes()).await.unwrap();
        tokio::io::AsyncWriteExt::shutdown(&mut broken).await.unwrap();
        let message = told(replied).await;
        assert!(message.contains("error report is incomplete"), "{message}");
    }

    #[tokio::test]
    async fn an_answer_that_is_to_be_lost_ends_the_process_instead() {
        let mut fixture = Fixture::start(1).await;
        let (_taken, mut replied) = fixture.deliver("id");
        fixture.send("GET", "invocation/next", Bytes::new()).await;
        fixture.send("POST", "invocation/id/response", "lost".into()).await;
        fixture.killed.recv().await.unwrap();
        assert!(replied.try_recv().is_err(), "the caller received a response");
    }

    #[test]
    fn trace_identifiers_have_their_form_for_any_request_identifier() {
        for id in ["", "5fb3", "not hexadecimal", "5fb3b0a8-1111-4222-8333-444444444444"] {
            let trace = trace_id(id);
            assert_eq!(trace.len(), 7 + 8 + 1 + 24 + 8 + 16 + 10, "{trace}");
        }
    }
}
