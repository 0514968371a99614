//! From an HTTP request to its answer: the health check, the admin endpoint, the API.
//!
//! A request is authenticated by nobody: any signature is taken, and none as well. That is why the
//! store listens on a loopback address only.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::header::{CONTENT_TYPE, HOST, HeaderName, HeaderValue};
use http::{Method, Request, Response, StatusCode};
use http_body_util::{BodyExt, Full, LengthLimitError, Limited};
use hyper::body::{Body, Incoming};
use model::limits::REQUEST_BYTES_MAX;
use tokio::sync::{Semaphore, SemaphorePermit};

use super::admin;
use super::request_id::RequestIds;
use crate::api;
use crate::api::describe_endpoints;
use crate::api::error::ApiError;
use crate::store::Store;

/// Largest body: what the service takes, and some room for JSON's own characters.
const BODY_BYTES_MAX: usize = REQUEST_BYTES_MAX + 1024 * 1024;
/// Time that a client has to send a request's body.
const BODY_TIMEOUT: Duration = Duration::from_secs(60);
/// Bodies up to this size are read at once. Larger ones wait until there is memory for them.
const SMALL_BODY_BYTES: u64 = 64 * 1024;
/// Memory for larger bodies, in pieces of [`SMALL_BODY_BYTES`]: 256 MiB, so that many clients with
/// large requests become slow and not fatal.
const LARGE_BODY_PIECES: u32 = 4096;

const REQUEST_ID: HeaderName = HeaderName::from_static("x-amzn-requestid");
const CRC32: HeaderName = HeaderName::from_static("x-amz-crc32");
const TARGET: HeaderName = HeaderName::from_static("x-amz-target");
const API_CONTENT_TYPE: HeaderValue = HeaderValue::from_static("application/x-amz-json-1.0");
const JSON_CONTENT_TYPE: HeaderValue = HeaderValue::from_static("application/json");
const TEXT_CONTENT_TYPE: HeaderValue = HeaderValue::from_static("text/plain");
/// What the service answers when a request is no API request at all.
const NOT_AN_API_REQUEST: &str = "<UnknownOperationException/>\n";

/// What every connection shares.
pub(super) struct Routes {
    store: Store,
    request_ids: RequestIds,
    body_memory: Arc<Semaphore>,
}

/// Why a body was not read.
enum BodyError {
    TooLarge,
    TooSlow,
    Broken,
}

impl Routes {
    pub(super) fn new(store: Store) -> Self {
        let pieces = usize::try_from(LARGE_BODY_PIECES).unwrap_or(Semaphore::MAX_PERMITS);
        Self {
            store,
            request_ids: RequestIds::new(),
            body_memory: Arc::new(Semaphore::new(pieces)),
        }
    }

    /// Answers one request. Whatever is wrong with it is an answer too.
    pub(super) async fn answer(
        &self,
        request: Request<Incoming>,
    ) -> Result<Response<Full<Bytes>>, Infallible> {
        let mut response = self.route(request).await;
        let id = HeaderValue::from_bytes(&self.request_ids.next());
        response.headers_mut().extend(id.ok().map(|id| (REQUEST_ID, id)));
        Ok(response)
    }

    async fn route(&self, request: Request<Incoming>) -> Response<Full<Bytes>> {
        let (head, body) = request.into_parts();
        let memory = self.reserve(&body).await;
        let path = head.uri.path();
        if let Some(path) = path.strip_prefix(admin::PREFIX) {
            let answer = match read_body(body).await {
                Ok(body) => admin::answer(&self.store, &head, path, &body).await,
                Err(error) => admin::refuse_body(status_of(&error)),
            };
            return text_response(answer.status, JSON_CONTENT_TYPE, answer.body);
        }
        if head.method == Method::GET && path == "/" {
            let text = format!("healthy: dynamodb.{}.amazonaws.com", self.store.region());
            return text_response(StatusCode::OK, TEXT_CONTENT_TYPE, text);
        }
        if head.method != Method::POST {
            let text = NOT_AN_API_REQUEST.to_owned();
            return text_response(StatusCode::NOT_FOUND, TEXT_CONTENT_TYPE, text);
        }
        let target = head.headers.get(TARGET).and_then(|value| value.to_str().ok());
        let answer = match read_body(body).await {
            Ok(_) if target == Some(describe_endpoints::TARGET) => {
                let host = head.headers.get(HOST).and_then(|value| value.to_str().ok());
                describe_endpoints::describe_endpoints(host.unwrap_or_default())
            }
            Ok(body) => api::handle(&self.store, target.unwrap_or_default(), &body).await,
            Err(BodyError::TooLarge) => ApiError::request_too_large(BODY_BYTES_MAX).to_response(),
            Err(error) => {
                let response =
                    ApiError::serialization("The request's body did not arrive").to_response();
                api::Response { status: status_of(&error).as_u16(), ..response }
            }
        };
        drop(memory);
        api_response(answer)
    }

    /// Waits for the memory that a large body will take. A body that does not say how long it is
    /// may become as long as is allowed; one that is too long will not be read.
    async fn reserve(&self, body: &Incoming) -> Option<SemaphorePermit<'_>> {
        let max = u64::try_from(BODY_BYTES_MAX).unwrap_or(u64::MAX);
        let bytes = body.size_hint().upper().unwrap_or(max).min(max);
        if bytes <= SMALL_BODY_BYTES {
            return None;
        }
        let pieces = u32::try_from(bytes.div_ceil(SMALL_BODY_BYTES)).unwrap_or(LARGE_BODY_PIECES);
        self.body_memory.acquire_many(pieces).await.ok()
    }
}

async fn read_body(body: Incoming) -> Result<Bytes, BodyError> {
    let max = u64::try_from(BODY_BYTES_MAX).unwrap_or(u64::MAX);
    if body.size_hint().lower() > max {
        return Err(BodyError::TooLarge);
    }
    let whole = Limited::new(body, BODY_BYTES_MAX).collect();
    match tokio::time::timeout(BODY_TIMEOUT, whole).await {
        Ok(Ok(body)) => Ok(body.to_bytes()),
        Ok(Err(error)) if error.is::<LengthLimitError>() => Err(BodyError::TooLarge),
        Ok(Err(_)) => Err(BodyError::Broken),
        Err(_) => Err(BodyError::TooSlow),
    }
}

fn status_of(error: &BodyError) -> StatusCode {
    match error {
        BodyError::TooLarge => StatusCode::PAYLOAD_TOO_LARGE,
        BodyError::TooSlow => StatusCode::REQUEST_TIMEOUT,
        BodyError::Broken => StatusCode::BAD_REQUEST,
    }
}

/// An answer of the API, with the checksum that SDKs compare.
fn api_response(answer: api::Response) -> Response<Full<Bytes>> {
    let checksum = crc32fast::hash(answer.body.as_bytes());
    let status = StatusCode::from_u16(answer.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let mut response = text_response(status, API_CONTENT_TYPE, answer.body);
    response.headers_mut().insert(CRC32, HeaderValue::from(checksum));
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
