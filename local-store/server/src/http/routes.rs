//! Dispatches HTTP requests to the health check, the admin endpoint or the API.
//!
//! If the store has access keys, a request must be signed with one of these keys; see the module
//! `access`. The health check needs no signature.

use std::borrow::Cow;
use std::convert::Infallible;
use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use bytes::Bytes;
use http::header::{
    CONTENT_ENCODING, CONTENT_TYPE, DATE, HOST, HeaderName, HeaderValue, SERVER, VARY,
};
use http::request::Parts;
use http::uri::PathAndQuery;
use http::{HeaderMap, Method, Request, Response, StatusCode};
use http_body_util::{BodyExt, Full};
use hyper::body::{Body, Frame};
use jiff::Timestamp;
use jiff::fmt::rfc2822::DateTimePrinter;
use model::EpochMillis;
use model::limits::REQUEST_BYTES_MAX;
use tokio::sync::{Semaphore, SemaphorePermit};
use tokio::time::Instant;

use super::coding::{self, Coding, CodingError};
use super::request_id::RequestIds;
use super::{Access, admin};
use crate::access;
use crate::api;
use crate::api::describe_endpoints;
use crate::api::error::ApiError;
use crate::gate::{Dialect, Progress, RequestBody, Service};
use crate::store::Store;
use node::clock::wall_clock;

/// The maximum size of a body in bytes: DynamoDB's maximum, plus 1 MiB for JSON syntax.
const BODY_BYTES_MAX: usize = REQUEST_BYTES_MAX + 1024 * 1024;
/// The maximum size in bytes of a request's path, and of its headers, as in DynamoDB.
const HEADER_BYTES_MAX: usize = 16 * 1024;
/// The time in which a client must send the complete body of a request.
const BODY_TIMEOUT: Duration = Duration::from_secs(60);
/// The time in which a client must send the next piece of a body.
const BODY_IDLE_TIMEOUT: Duration = Duration::from_secs(30);
/// The initial time-out of a large body. Each [`BODY_BYTES_PER_SECOND_MIN`] bytes that arrive add one
/// second. The time-out is short, because other requests wait for the memory that is reserved for the
/// body.
const LARGE_BODY_TIMEOUT: Duration = Duration::from_secs(5);
const BODY_BYTES_PER_SECOND_MIN: usize = 32 * 1024;
/// The maximum size in bytes of a body that is read without waiting. For a larger body, memory must
/// be reserved first.
const SMALL_BODY_BYTES: u64 = 64 * 1024;
/// The total memory for larger bodies, in pieces of [`SMALL_BODY_BYTES`]: 256 MiB. If many clients send
/// large requests, some requests wait, so that memory does not run out.
const LARGE_BODY_PIECES: u32 = 4096;
/// The total memory for parsed larger bodies, in pieces of [`SMALL_BODY_BYTES`]: 256 MiB. A body with many
/// small values may need 26 times its size when it is parsed. While such a body is parsed, no other larger
/// body is parsed.
const PARSED_PIECES: u32 = 4096;
/// The memory in bytes that is reserved for each comma, colon or opening bracket of a larger body, because
/// their number bounds the number of values. A value takes 32 bytes, a member of an object 64, and an
/// allocation up to 16 more. Arrays and objects allocate up to twice the capacity that they use.
const PARSED_BYTES_EACH: u64 = 64;

const REQUEST_ID: HeaderName = HeaderName::from_static("x-amzn-requestid");
const CRC32: HeaderName = HeaderName::from_static("x-amz-crc32");
const TARGET: HeaderName = HeaderName::from_static("x-amz-target");
/// The value of the `Server` header, as in DynamoDB. It reveals nothing about the store.
const SERVER_NAME: HeaderValue = HeaderValue::from_static("Server");
const API_CONTENT_TYPE: HeaderValue = HeaderValue::from_static("application/x-amz-json-1.0");
const JSON_CONTENT_TYPE: HeaderValue = HeaderValue::from_static("application/json");
const TEXT_CONTENT_TYPE: HeaderValue = HeaderValue::from_static("text/plain");
/// DynamoDB's response to an HTTP request that is not an API request.
const NOT_AN_API_REQUEST: &str = "<UnknownOperationException/>\n";

/// The state that all connections share.
pub(super) struct Routes {
    store: Store,
    access: Access,
    request_ids: RequestIds,
    body_memory: Arc<Semaphore>,
    /// The memory for parsed bodies. To prevent deadlocks, a request acquires it after `body_memory`,
    /// never before.
    parsed_memory: Arc<Semaphore>,
}

/// The reason why a body was not read.
enum BodyError {
    TooLarge,
    TooSlow,
    Broken,
}

impl Service for Routes {
    type Body = Full<Bytes>;
    type Error = Infallible;

    fn dialect(&self) -> Dialect {
        Dialect::Json
    }

    fn has_keys(&self) -> bool {
        self.access.keys.is_some()
    }

    /// Executes a valid request. Returns its response, or an error response for an invalid request.
    async fn answer(
        &self,
        request: Request<RequestBody>,
        progress: &Progress,
    ) -> Result<Response<Full<Bytes>>, Infallible> {
        let mut response = self.route(request, progress).await;
        response.headers_mut().insert(SERVER, SERVER_NAME);
        response.headers_mut().extend(self.date().map(|date| (DATE, date)));
        let id = HeaderValue::from_bytes(&self.request_ids.next());
        response.headers_mut().extend(id.ok().map(|id| (REQUEST_ID, id)));
        Ok(response)
    }
}

impl Routes {
    pub(super) fn new(store: Store, access: Access) -> Self {
        let memory = |pieces: u32| {
            let pieces = usize::try_from(pieces).unwrap_or(Semaphore::MAX_PERMITS);
            Arc::new(Semaphore::new(pieces))
        };
        Self {
            store,
            access,
            request_ids: RequestIds::new(),
            body_memory: memory(LARGE_BODY_PIECES),
            parsed_memory: memory(PARSED_PIECES),
        }
    }

    /// Returns the `Date` header with the store's time if the store's clock was changed, because
    /// clients compute the age of stream records from this header. Otherwise returns `None`, and the
    /// HTTP library uses the wall clock.
    fn date(&self) -> Option<HeaderValue> {
        let moved = timestamp(self.store.clock().moved()?)?;
        let text = DateTimePrinter::new().timestamp_to_rfc9110_string(&moved).ok()?;
        HeaderValue::from_str(&text).ok()
    }

    async fn route(
        &self,
        request: Request<RequestBody>,
        progress: &Progress,
    ) -> Response<Full<Bytes>> {
        let (head, body) = request.into_parts();
        let coding = Coding::of_request(&head.headers);
        // The server does not read while the request waits for memory, so the client must not be
        // treated as slow.
        progress.set_arrived(true);
        let memory = self.reserve(&body, coding).await;
        progress.set_arrived(body.is_end_stream());
        let path = head.uri.path();
        if let Some(path) = path.strip_prefix(admin::PREFIX) {
            let answer = match read_body(body, memory.is_some()).await {
                Ok(body) => match self.authenticate(&head, &body, progress) {
                    Ok(store) => admin::answer(&store, &head, path, &body).await,
                    Err(error) => return api_response(&head.headers, error.to_response()),
                },
                Err(error) => admin::refuse_body(status_of(&error)),
            };
            return text_response(answer.status, JSON_CONTENT_TYPE, answer.body);
        }
        if head.method == Method::GET && path == "/" {
            let host = head.headers.get(HOST).and_then(|value| value.to_str().ok());
            let text = format!("healthy: {}", host.unwrap_or_default());
            return text_response(StatusCode::OK, TEXT_CONTENT_TYPE, text);
        }
        if head.method != Method::POST {
            let text = NOT_AN_API_REQUEST.to_owned();
            return text_response(StatusCode::NOT_FOUND, TEXT_CONTENT_TYPE, text);
        }
        let path = head.uri.path_and_query().map_or("", PathAndQuery::as_str);
        if path.len().max(header_bytes(&head)) > HEADER_BYTES_MAX {
            let text = format!(
                "the request's path or headers are larger than {HEADER_BYTES_MAX} bytes; send a shorter path, or fewer or shorter headers"
            );
            return text_response(StatusCode::BAD_REQUEST, TEXT_CONTENT_TYPE, text);
        }
        let target = head.headers.get(TARGET).and_then(|value| value.to_str().ok());
        let answer = match read_body(body, memory.is_some()).await {
            Ok(body) => match self.open_body(&head, coding, body, progress) {
                Ok((_, body)) if target == Some(describe_endpoints::TARGET) => {
                    let host = head.headers.get(HOST).and_then(|value| value.to_str().ok());
                    describe_endpoints::describe_endpoints(host.unwrap_or_default(), &body)
                }
                Ok((store, body)) => {
                    let _parsed = self.reserve_parsed(&body).await;
                    api::handle(&store, target.unwrap_or_default(), &body).await
                }
                Err(error) => error.to_response(),
            },
            Err(BodyError::TooLarge) => ApiError::request_too_large(BODY_BYTES_MAX).to_response(),
            Err(error) => {
                let response =
                    ApiError::serialization("The request's body did not arrive").to_response();
                api::Response { status: status_of(&error).as_u16(), ..response }
            }
        };
        drop(memory);
        api_response(&head.headers, answer)
    }

    /// Checks the signature if the store has access keys. Returns the store with the tables of the
    /// requester. A signature may have the time of the wall clock, or of the `Date` header of
    /// responses.
    fn authenticate(
        &self,
        head: &Parts,
        body: &[u8],
        progress: &Progress,
    ) -> Result<Cow<'_, Store>, ApiError> {
        let keys = self.access.keys.as_ref();
        if let Some(keys) = keys {
            let now = timestamp(wall_clock()).unwrap_or(Timestamp::MAX);
            let shown = self.store.clock().moved().and_then(timestamp);
            access::verify(keys, head, body, now, shown)?;
            progress.set_known();
        }
        let store = &self.store;
        if self.access.separate_tables
            && let Some(requester) = access::requester(keys, head)?
        {
            let account = requester.account.as_deref().unwrap_or(store.account());
            return Ok(Cow::Owned(store.of_owner(account, &requester.region)));
        }
        Ok(Cow::Borrowed(store))
    }

    /// Returns the decompressed body of an authenticated request, and the store with the requester's tables.
    fn open_body(
        &self,
        head: &Parts,
        coding: Coding,
        body: Bytes,
        progress: &Progress,
    ) -> Result<(Cow<'_, Store>, Bytes), ApiError> {
        let store = self.authenticate(head, &body, progress)?;
        let body = coding.decode(body, BODY_BYTES_MAX).map_err(|error| match error {
            CodingError::TooLarge => ApiError::request_too_large(BODY_BYTES_MAX),
            CodingError::Damaged => {
                ApiError::serialization("The request's body does not match its Content-Encoding")
            }
            CodingError::Unknown => ApiError::serialization(
                "The request's Content-Encoding is not supported; use gzip, deflate or identity",
            ),
        })?;
        Ok((store, body))
    }

    /// Waits until memory for a large body is reserved. If the length is unknown, reserves memory for
    /// the maximum size. If the body is too long, reserves nothing, because the body is not read.
    async fn reserve(&self, body: &RequestBody, coding: Coding) -> Option<SemaphorePermit<'_>> {
        let max = u64::try_from(BODY_BYTES_MAX).unwrap_or(u64::MAX);
        let sent = body.size_hint().upper().unwrap_or(max).min(max);
        // A compressed body can have the maximum size after decompression.
        let bytes = if coding == Coding::Identity { sent } else { max };
        if bytes <= SMALL_BODY_BYTES {
            return None;
        }
        let pieces = u32::try_from(bytes.div_ceil(SMALL_BODY_BYTES)).unwrap_or(LARGE_BODY_PIECES);
        self.body_memory.acquire_many(pieces).await.ok()
    }

    /// Waits until memory for the parsed values of a larger body is reserved. A body may need all of
    /// this memory.
    async fn reserve_parsed(&self, body: &[u8]) -> Option<SemaphorePermit<'_>> {
        let length = u64::try_from(body.len()).unwrap_or(u64::MAX);
        if length <= SMALL_BODY_BYTES {
            return None;
        }
        let count = body.iter().filter(|byte| matches!(byte, b',' | b':' | b'[' | b'{')).count();
        let bytes = u64::try_from(count).unwrap_or(u64::MAX).saturating_mul(PARSED_BYTES_EACH);
        let pieces = u32::try_from(bytes.div_ceil(SMALL_BODY_BYTES)).unwrap_or(PARSED_PIECES);
        self.parsed_memory.acquire_many(pieces.min(PARSED_PIECES)).await.ok()
    }
}

/// Returns the size of a request's header lines as they were sent, including `: ` and the line
/// ends.
fn header_bytes(head: &Parts) -> usize {
    head.headers.iter().map(|(name, value)| name.as_str().len() + value.len() + 4).sum()
}

fn timestamp(time: EpochMillis) -> Option<Timestamp> {
    Timestamp::from_millisecond(i64::try_from(time.0).ok()?).ok()
}

/// Reads a body. `is_large` is true if memory was reserved for the body.
async fn read_body(mut body: RequestBody, is_large: bool) -> Result<Bytes, BodyError> {
    let max = u64::try_from(BODY_BYTES_MAX).unwrap_or(u64::MAX);
    if body.size_hint().lower() > max {
        return Err(BodyError::TooLarge);
    }
    let first = match come_with_head(&mut body).await {
        Some(Some(Err(_))) => return Err(BodyError::Broken),
        Some(Some(Ok(frame))) => frame.into_data().ok(),
        Some(None) | None => None,
    };
    if let Some(whole) = &first
        && body.is_end_stream()
        && whole.len() <= BODY_BYTES_MAX
    {
        return Ok(whole.clone());
    }
    let read = tokio::time::timeout(BODY_TIMEOUT, read_frames(body, first, is_large)).await;
    read.unwrap_or(Err(BodyError::TooSlow))
}

/// Returns the first piece of a body, or the end of the body, if it arrived together with the head.
/// Most bodies are one such piece, so they need no timer. The HTTP library returns the piece only at
/// the second poll, so this function polls twice.
async fn come_with_head(
    body: &mut RequestBody,
) -> Option<Option<Result<Frame<Bytes>, hyper::Error>>> {
    let mut was_asked = false;
    poll_fn(|context| match Pin::new(&mut *body).poll_frame(context) {
        Poll::Ready(frame) => Poll::Ready(Some(frame)),
        Poll::Pending if was_asked => Poll::Ready(None),
        Poll::Pending => {
            was_asked = true;
            context.waker().wake_by_ref();
            Poll::Pending
        }
    })
    .await
}

/// Reads the rest of a body. `first` is its first piece, if it has already arrived. A body of one
/// piece, which is the usual case, is not copied.
async fn read_frames(
    body: RequestBody,
    mut first: Option<Bytes>,
    is_large: bool,
) -> Result<Bytes, BodyError> {
    let mut body = pin!(body);
    let mut whole = Vec::new();
    let begun = Instant::now();
    loop {
        let come = whole.len() + first.as_ref().map_or(0, Bytes::len);
        let earned = u64::try_from(come / BODY_BYTES_PER_SECOND_MIN).unwrap_or(u64::MAX);
        let until = match is_large {
            true => begun + LARGE_BODY_TIMEOUT + Duration::from_secs(earned),
            false => Instant::now() + BODY_IDLE_TIMEOUT,
        };
        let frame = tokio::time::timeout_at(until, body.frame()).await;
        let data = match frame.map_err(|_| BodyError::TooSlow)? {
            None => break,
            Some(Err(_)) => return Err(BodyError::Broken),
            // A frame without data contains trailers, which are ignored.
            Some(Ok(frame)) => frame.into_data().unwrap_or_default(),
        };
        if come + data.len() > BODY_BYTES_MAX {
            return Err(BodyError::TooLarge);
        }
        match first.take() {
            None if whole.is_empty() => first = Some(data),
            None => whole.extend_from_slice(&data),
            Some(first) => {
                whole.extend_from_slice(&first);
                whole.extend_from_slice(&data);
            }
        }
    }
    Ok(first.unwrap_or_else(|| Bytes::from(whole)))
}

fn status_of(error: &BodyError) -> StatusCode {
    match error {
        BodyError::TooLarge => StatusCode::PAYLOAD_TOO_LARGE,
        BodyError::TooSlow => StatusCode::REQUEST_TIMEOUT,
        BodyError::Broken => StatusCode::BAD_REQUEST,
    }
}

/// Returns an API response with the checksum of its bytes, which SDKs verify.
fn api_response(request: &HeaderMap, answer: api::Response) -> Response<Full<Bytes>> {
    let status = StatusCode::from_u16(answer.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let Some((packing, packed)) = coding::encode(request, answer.body.as_bytes()) else {
        let checksum = crc32fast::hash(answer.body.as_bytes());
        let mut response = text_response(status, API_CONTENT_TYPE, answer.body);
        response.headers_mut().insert(CRC32, HeaderValue::from(checksum));
        return response;
    };
    let checksum = crc32fast::hash(&packed);
    let mut response = text_response(status, API_CONTENT_TYPE, String::new());
    *response.body_mut() = Full::new(Bytes::from(packed));
    let headers = response.headers_mut();
    headers.insert(CRC32, HeaderValue::from(checksum));
    headers.insert(CONTENT_ENCODING, HeaderValue::from_static(packing.name()));
    headers.append(VARY, HeaderValue::from_static("accept-encoding"));
    response
}

fn text_response(
    status: StatusCode,
    content_type: HeaderValue,
    body: String,
) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(Bytes::from(body)));
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, content_type);
    response
}
