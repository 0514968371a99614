//! Sends each generated vote to its slot with one `UpdateItem`.
//!
//! A local store is called with plain HTTP, other endpoints through the SDK. The SDK takes several
//! times the processor time of a local store, so a measurement on one machine would mostly measure
//! the SDK.

use std::error::Error;
use std::time::Duration;

use aws_sdk_dynamodb::types::AttributeValue as SdkValue;
use bytes::Bytes;
use http::header::{AUTHORIZATION, CONTENT_TYPE, HeaderValue};
use http::{HeaderMap, HeaderName, Method, Request, StatusCode, Uri};
use http_body_util::{BodyExt as _, Full};
use hyper_util::client::legacy::Client as HttpClient;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use model::json::write_string;
use model::{AttributeValue, Number};
use rules::counters::Counters;
use serde_json::Value;

use super::Place;
use client::addition::{self, Addition};
use client::attribute::to_sdk_value;
use client::contention::{Attempts, NotApplied};
use client::endpoint::attempt_limit;
use client::error_cause::innermost;
use client::failure::{Result, fatal};
use client::keys;
use client::sdk_error::error_text;

/// Maximum attempts to connect. The pauses between them add up to about 1.5 seconds.
const CONNECTIONS_MAX: u32 = 6;
/// Pause before the second attempt. Each further pause is twice as long.
const FIRST_PAUSE: Duration = Duration::from_millis(50);
const PLACEHOLDER: &str = "AWS4-HMAC-SHA256 Credential=local/20260101/us-east-1/dynamodb/aws4_request, \
    SignedHeaders=content-type;host;x-amz-date;x-amz-target, \
    Signature=0000000000000000000000000000000000000000000000000000000000000000";
/// Timeout of a vote's response.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(20);

/// A sender of votes, one vote per request.
pub(super) enum VoteSender<'p> {
    /// To a plain HTTP endpoint.
    Plain(Box<Plain>),
    /// To any other endpoint.
    Sdk(&'p Place),
}

/// A client with its own connection, and the parts that are the same in every request.
pub(super) struct Plain {
    client: HttpClient<HttpConnector, Full<Bytes>>,
    uri: Uri,
    headers: HeaderMap,
    /// The parts of the body: before the slot's key, between key and points, and after the points.
    body: [String; 3],
}

/// The result of a vote.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum VoteResult {
    /// The vote is counted.
    Counted,
    /// The vote may or may not be counted, for this reason.
    Perhaps(String),
}

/// A failed attempt: whether the addition may have been applied, and a description.
type Failed = (Addition, String);

impl<'p> VoteSender<'p> {
    /// Returns a sender for the place's slots. The sender does not connect yet.
    pub(super) fn to(place: &'p Place) -> Self {
        match plain_uri(&place.endpoint).filter(|_| !keys::are_own(&place.endpoint)) {
            Some(uri) => Self::Plain(Box::new(Plain::to(uri, place))),
            None => Self::Sdk(place),
        }
    }

    /// Adds points to a slot. Retries only attempts that certainly did not count, because a retry
    /// of any other attempt could count the vote twice.
    ///
    /// # Errors
    /// When the vote is refused, or the store cannot be reached. In both cases the vote is not
    /// counted.
    pub(super) async fn add(
        &mut self,
        counter: &str,
        slot: u32,
        points: i64,
    ) -> Result<VoteResult> {
        let key = Counters::slot_key_text(counter, slot);
        let mut attempts = Attempts::first();
        let mut connections = 1;
        loop {
            let added = match self {
                Self::Plain(plain) => plain.add(&key, points).await,
                Self::Sdk(place) => add_by_sdk(place, &key, points).await,
            };
            let Err((what, reason)) = added else { return Ok(VoteResult::Counted) };
            let again = match what {
                Addition::Perhaps => return Ok(VoteResult::Perhaps(reason)),
                Addition::Contended => attempts.next().await,
                Addition::Throttled => attempts.after(NotApplied::Throttled).await,
                Addition::Unsent if connections < CONNECTIONS_MAX => {
                    tokio::time::sleep(FIRST_PAUSE * 2u32.pow(connections - 1)).await;
                    connections += 1;
                    true
                }
                Addition::Unsent | Addition::Refused => false,
            };
            if !again {
                return Err(match what {
                    Addition::Unsent => fatal!(
                        "the store cannot be reached: {reason}; start the store, then use another --seed, because the votes before the failure were counted"
                    ),
                    _ => fatal!("a vote was refused: {reason}"),
                });
            }
        }
    }
}

/// Returns the address of an endpoint that is called with plain HTTP; `None` for an endpoint that
/// needs the SDK.
fn plain_uri(endpoint: &str) -> Option<Uri> {
    let uri: Uri = endpoint.parse().ok()?;
    let is_plain = uri.scheme_str() == Some("http")
        && matches!(uri.path(), "" | "/")
        && !uri.host()?.ends_with(".amazonaws.com");
    is_plain.then_some(uri)
}

/// Returns the headers of every request. The signature is a placeholder, which a local store
/// without access keys accepts.
fn headers() -> HeaderMap {
    HeaderMap::from_iter([
        (CONTENT_TYPE, HeaderValue::from_static("application/x-amz-json-1.0")),
        (AUTHORIZATION, HeaderValue::from_static(PLACEHOLDER)),
        (HeaderName::from_static("x-amz-date"), HeaderValue::from_static("20260101T000000Z")),
        (
            HeaderName::from_static("x-amz-target"),
            HeaderValue::from_static("DynamoDB_20120810.UpdateItem"),
        ),
    ])
}

impl Plain {
    fn to(uri: Uri, place: &Place) -> Self {
        let quoted = |text: &str| {
            let mut quoted = String::new();
            write_string(&mut quoted, text);
            quoted
        };
        let body = [
            format!(
                r##"{{"UpdateExpression":"ADD #value :points","TableName":{},"ExpressionAttributeNames":{{"#value":{}}},"Key":{{{}:{{"S":"##,
                quoted(&place.slots_table),
                quoted(&place.rule.slot_value),
                quoted(&place.rule.slot_key),
            ),
            r#"}},"ExpressionAttributeValues":{":points":{"N":""#.to_owned(),
            r#""}}}"#.to_owned(),
        ];
        let mut connector = HttpConnector::new();
        connector.set_nodelay(true);
        let client = HttpClient::builder(TokioExecutor::new()).build(connector);
        Self { client, uri, headers: headers(), body }
    }

    fn request(&self, key: &str, points: i64) -> Request<Full<Bytes>> {
        let [start, middle, end] = &self.body;
        let mut body = start.clone();
        write_string(&mut body, key);
        body.push_str(middle);
        body.push_str(&points.to_string());
        body.push_str(end);
        let mut request = Request::new(Full::from(body));
        *request.method_mut() = Method::POST;
        request.uri_mut().clone_from(&self.uri);
        request.headers_mut().clone_from(&self.headers);
        request
    }

    /// Sends a vote once. The client resends it only if the store closed the connection before any
    /// byte was sent.
    async fn add(&self, key: &str, points: i64) -> Result<(), Failed> {
        let exchange = async {
            let sent = self.client.request(self.request(key, points)).await;
            let (head, body) = sent
                .map_err(|error| match error.is_connect() {
                    true => (Addition::Unsent, innermost(&error)),
                    false => broken(&error),
                })?
                .into_parts();
            let body = body.collect().await.map_err(|error| broken(&error))?;
            match head.status {
                StatusCode::OK => Ok(()),
                status => Err(failure(status.as_u16(), &body.to_bytes())),
            }
        };
        tokio::time::timeout(ANSWER_TIMEOUT, exchange).await.unwrap_or_else(|_| {
            let reason = format!("no response within {} s", ANSWER_TIMEOUT.as_secs());
            Err((Addition::Perhaps, reason))
        })
    }
}

fn broken(error: &(dyn Error + 'static)) -> Failed {
    (Addition::Perhaps, format!("the connection failed: {}", innermost(error)))
}

/// Interprets a response other than 200.
fn failure(status: u16, body: &[u8]) -> Failed {
    let body: Value = serde_json::from_slice(body).unwrap_or_default();
    let text = |name: &str| body.get(name).and_then(Value::as_str).unwrap_or_default();
    let code = text("__type").rsplit('#').next().filter(|code| !code.is_empty());
    let message = format!("{}{}", text("message"), text("Message"));
    let reason = match code {
        Some(code) => format!("HTTP {status} {code}: {message}"),
        None => format!("HTTP {status} without an error code"),
    };
    (Addition::answered(code, status), reason)
}

/// Sends a vote once.
async fn add_by_sdk(place: &Place, key: &str, points: i64) -> Result<(), Failed> {
    let points = AttributeValue::N(Number::from(points));
    let request = place
        .client
        .update_item()
        .table_name(&place.slots_table)
        .key(&place.rule.slot_key, SdkValue::S(key.to_owned()))
        .update_expression("ADD #value :points")
        .expression_attribute_names("#value", &place.rule.slot_value)
        .expression_attribute_values(":points", to_sdk_value(&points));
    let once = addition::once().timeout_config(attempt_limit(ANSWER_TIMEOUT));
    let sent = request.customize().config_override(once).send().await;
    sent.map(|_| ()).map_err(|error| (Addition::after(&error), error_text(&error)))
}

#[cfg(test)]
mod tests {
    use tokio::net::TcpListener;

    use super::super::testing::{place, serve};
    use super::*;
    use testing::proxy;

    #[tokio::test]
    async fn votes_are_sent_until_accepted_or_refused() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let place = place(&format!("http://{}", listener.local_addr().unwrap()));
        let throttled =
            r#"{"__type":"com.amazonaws.dynamodb.v20120810#ThrottlingException","message":"m"}"#;
        let refused = r##"{"__type":"x#ValidationException","message":"no table"}"##;
        let answers = [
            (200, "{}", false),
            (400, throttled, true),
            (400, throttled, false),
            (200, "{}", true),
            (400, refused, false),
        ];
        let votes = async {
            let mut voting = VoteSender::to(&place);
            assert_eq!(voting.add("é\"", 3, -1).await, Ok(VoteResult::Counted));
            assert_eq!(voting.add("a", 0, 1).await, Ok(VoteResult::Counted));
            let reason = voting.add("a", 0, 1).await.unwrap_err().to_string();
            assert_eq!(reason, "a vote was refused: HTTP 400 ValidationException: no table");
        };
        let (requests, ()) = tokio::join!(serve(listener, &answers), votes);
        assert_eq!(requests.len(), answers.len());
        let (head, body) = requests[0].split_once("\r\n\r\n").unwrap();
        assert!(head.contains("x-amz-target: DynamoDB_20120810.UpdateItem"), "{head}");
        assert!(head.contains(&format!("content-length: {}", body.len())), "{head}");
        let body: Value = serde_json::from_str(body).unwrap();
        let expected = serde_json::json!({
            "TableName": "votes",
            "Key": {"sl\"ot": {"S": "é\"#3"}},
            "UpdateExpression": "ADD #value :points",
            "ExpressionAttributeNames": {"#value": "votes"},
            "ExpressionAttributeValues": {":points": {"N": "-1"}},
        });
        assert_eq!(body, expected);
        assert_eq!(requests[1], requests[3]);
    }

    /// The vote may have been counted, so a retry could count it twice.
    #[tokio::test]
    async fn a_vote_whose_answer_is_lost_is_sent_once() {
        for by_sdk in [false, true] {
            let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
            let place = place(&format!("http://{}", listener.local_addr().unwrap()));
            let answers = [(500, "{}", true), (503, "", true), (200, "{}", false)];
            let votes = async {
                let mut voting =
                    if by_sdk { VoteSender::Sdk(&place) } else { VoteSender::to(&place) };
                for expected in ["500", "503"] {
                    let cast = voting.add("a", 0, 1).await.unwrap();
                    let VoteResult::Perhaps(reason) = cast else { panic!("{expected}: counted") };
                    assert!(by_sdk || reason.contains(expected), "{reason}");
                }
                assert_eq!(voting.add("b", 0, 1).await, Ok(VoteResult::Counted));
            };
            let (requests, ()) = tokio::join!(serve(listener, &answers), votes);
            assert!(requests[2].contains("b#0"), "{requests:?}");
            let silent = super::super::testing::place(&proxy::that_closes().await);
            let mut voting =
                if by_sdk { VoteSender::Sdk(&silent) } else { VoteSender::to(&silent) };
            let cast = voting.add("a", 0, 1).await;
            assert!(matches!(cast, Ok(VoteResult::Perhaps(_))), "{cast:?}");
        }
    }

    #[tokio::test]
    async fn a_store_that_is_gone_cannot_be_reached() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let place = place(&format!("http://{}", listener.local_addr().unwrap()));
        drop(listener);
        let error = VoteSender::to(&place).add("a", 0, 1).await.unwrap_err().to_string();
        assert!(error.starts_with("the store cannot be reached: "), "{error}");
    }

    #[tokio::test]
    async fn a_vote_waits_for_the_transaction_that_is_at_its_slot() {
        let conflict = r#"{"__type":"com.amazonaws.dynamodb.v20120810#TransactionConflictException","message":"Transaction is ongoing for the item"}"#;
        // The number of conflicts is greater than the number of retries for other errors.
        let mut answers = vec![(400, conflict, false); 5];
        answers.push((200, "{}", false));
        for by_sdk in [false, true] {
            let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
            let place = place(&format!("http://{}", listener.local_addr().unwrap()));
            let vote = async {
                let mut voting =
                    if by_sdk { VoteSender::Sdk(&place) } else { VoteSender::to(&place) };
                assert_eq!(voting.add("a", 0, 1).await, Ok(VoteResult::Counted));
            };
            let (requests, ()) = tokio::join!(serve(listener, &answers), vote);
            assert_eq!(requests.len(), answers.len());
        }
    }

    #[test]
    fn only_plain_http_is_sent_plainly() {
        for (endpoint, plain) in [
            ("http://127.0.0.1:8000", true),
            ("https://dynamodb.eu-west-1.amazonaws.com", false),
            ("http://dynamodb.eu-west-1.amazonaws.com", false),
            ("http://127.0.0.1:8000/path", false),
        ] {
            let place = place(endpoint);
            assert_eq!(matches!(VoteSender::to(&place), VoteSender::Plain(_)), plain, "{endpoint}");
        }
    }
}
