//! How a generated vote reaches its slot: one `UpdateItem` for each.
//!
//! A local store is sent plain HTTP, because the SDK takes a multiple of the processor time that
//! the store itself does, and a generator on the same machine must not measure itself. Elsewhere
//! the SDK sends. Which votes there are is not known here.

use std::time::Duration;

use aws_sdk_dynamodb::types::AttributeValue as SdkValue;
use model::json::write_string;
use model::{AttributeValue, Number};
use rules::counters::Counters;
use serde_json::Value;

use super::Place;
use crate::addition::{self, Addition};
use client::attribute::to_sdk_value;
use client::contention::{Attempts, Undone};
use client::endpoint::attempt_limit;
use client::keys;
use client::plain_http::{self, Connection, Endpoint};
use client::sdk_error::error_text;

/// Times that a connection is asked for: about a second and a half with the pauses between them.
const CONNECTIONS_MAX: u32 = 6;
/// Pause before it is asked for again; it doubles each time.
const FIRST_PAUSE: Duration = Duration::from_millis(50);
/// How long an answer may take.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(20);

/// Sends votes, one after the other.
pub(super) enum Voting<'p> {
    /// To an endpoint of plain HTTP.
    Plain(Box<Plain>),
    /// To any other.
    Sdk(&'p Place),
}

/// A connection of its own, and what every request has.
pub(super) struct Plain {
    endpoint: Endpoint,
    connection: Option<Connection>,
    head: String,
    /// The body up to the slot's key, from there to the points, and from there on.
    body: [String; 3],
    request: String,
}

/// What became of a vote that was sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Cast {
    /// It is counted.
    Counted,
    /// It may or may not be counted, because of this.
    Perhaps(String),
}

/// Why an attempt did not surely count: what is known of it, and the words for a person.
type Failed = (Addition, String);

impl<'p> Voting<'p> {
    /// A way to the place's slots. It does not connect yet.
    pub(super) fn to(place: &'p Place) -> Self {
        let plain = Endpoint::parse(&place.endpoint).ok();
        match plain.filter(|endpoint| {
            !endpoint.authority.contains(".amazonaws.com") && !keys::are_own(&place.endpoint)
        }) {
            Some(endpoint) => Self::Plain(Box::new(Plain::to(endpoint, place))),
            None => Self::Sdk(place),
        }
    }

    /// Adds points to a slot. An attempt that was certainly not counted is made again where that may
    /// help; one that may have been is not, because it would count twice.
    ///
    /// # Errors
    /// When the vote is refused, or nobody takes it; it is not counted then.
    pub(super) async fn add(
        &mut self,
        counter: &str,
        slot: u32,
        points: i64,
    ) -> Result<Cast, String> {
        let key = Counters::slot_key_text(counter, slot);
        let mut attempts = Attempts::first();
        let mut connections = 1;
        loop {
            let added = match self {
                Self::Plain(plain) => plain.add(&key, points).await,
                Self::Sdk(place) => add_by_sdk(place, &key, points).await,
            };
            let Err((what, reason)) = added else { return Ok(Cast::Counted) };
            let again = match what {
                Addition::Perhaps => return Ok(Cast::Perhaps(reason)),
                Addition::Contended => attempts.next().await,
                Addition::Throttled => attempts.after(Undone::Throttled).await,
                Addition::Unsent if connections < CONNECTIONS_MAX => {
                    tokio::time::sleep(FIRST_PAUSE * 2u32.pow(connections - 1)).await;
                    connections += 1;
                    true
                }
                Addition::Unsent | Addition::Refused => false,
            };
            if !again {
                return Err(format!("a vote was refused: {reason}"));
            }
        }
    }
}

impl Plain {
    fn to(endpoint: Endpoint, place: &Place) -> Self {
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
        let head = plain_http::head(&endpoint.authority, "DynamoDB_20120810.UpdateItem");
        Self { endpoint, connection: None, head, body, request: String::new() }
    }

    async fn add(&mut self, key: &str, points: i64) -> Result<(), Failed> {
        self.write(key, points);
        self.send().await
    }

    /// Makes the request.
    fn write(&mut self, key: &str, points: i64) {
        let Self { head, body: [start, middle, end], request, .. } = self;
        let mut body =
            String::with_capacity(start.len() + middle.len() + end.len() + key.len() + 32);
        body.push_str(start);
        write_string(&mut body, key);
        body.push_str(middle);
        body.push_str(&points.to_string());
        body.push_str(end);
        request.clear();
        request.push_str(head);
        request.push_str(&body.len().to_string());
        request.push_str("\r\n\r\n");
        request.push_str(&body);
    }

    /// Sends the request once.
    async fn send(&mut self) -> Result<(), Failed> {
        let mut connection = match self.connection.take().filter(|open| !open.is_over()) {
            Some(connection) => connection,
            None => Connection::open(&self.endpoint)
                .await
                .map_err(|error| (Addition::Unsent, format!("cannot connect: {error}")))?,
        };
        let exchange = connection.exchange(self.request.as_bytes());
        let perhaps = |reason: String| Err((Addition::Perhaps, reason));
        let answer = match tokio::time::timeout(ANSWER_TIMEOUT, exchange).await {
            Ok(Ok(answer)) => answer,
            Ok(Err(error)) => return perhaps(format!("the connection broke: {error}")),
            Err(_) => {
                return perhaps(format!("no answer within {} s", ANSWER_TIMEOUT.as_secs()));
            }
        };
        let outcome =
            if answer.status == 200 { Ok(()) } else { Err(failure(answer.status, answer.body)) };
        if !answer.closes {
            self.connection = Some(connection);
        }
        outcome
    }
}

/// What an answer other than 200 says.
fn failure(status: u16, body: &[u8]) -> Failed {
    let body: Value = serde_json::from_slice(body).unwrap_or_default();
    let text = |name: &str| body.get(name).and_then(Value::as_str).unwrap_or_default();
    let code = text("__type").rsplit('#').next().filter(|code| !code.is_empty());
    let message = format!("{}{}", text("message"), text("Message"));
    let reason = match code {
        Some(code) => format!("HTTP {status} {code}: {message}"),
        None => format!("HTTP {status} without the code of an error"),
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
    async fn votes_are_sent_until_they_are_taken_or_refused() {
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
            let mut voting = Voting::to(&place);
            assert_eq!(voting.add("é\"", 3, -1).await, Ok(Cast::Counted));
            assert_eq!(voting.add("a", 0, 1).await, Ok(Cast::Counted));
            let reason = voting.add("a", 0, 1).await.unwrap_err();
            assert_eq!(reason, "a vote was refused: HTTP 400 ValidationException: no table");
        };
        let (requests, ()) = tokio::join!(serve(listener, &answers), votes);
        assert_eq!(requests.len(), answers.len());
        let (head, body) = requests[0].split_once("\r\n\r\n").unwrap();
        assert!(head.contains("x-amz-target: DynamoDB_20120810.UpdateItem"), "{head}");
        assert!(head.ends_with(&format!("content-length: {}", body.len())), "{head}");
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

    /// Whether it was counted is not known, and a second attempt would count again.
    #[tokio::test]
    async fn a_vote_whose_answer_is_lost_is_sent_once() {
        for by_sdk in [false, true] {
            let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
            let place = place(&format!("http://{}", listener.local_addr().unwrap()));
            let answers = [(500, "{}", true), (503, "", true), (200, "{}", false)];
            let votes = async {
                let mut voting = if by_sdk { Voting::Sdk(&place) } else { Voting::to(&place) };
                for expected in ["500", "503"] {
                    let cast = voting.add("a", 0, 1).await.unwrap();
                    let Cast::Perhaps(reason) = cast else { panic!("{expected}: counted") };
                    assert!(by_sdk || reason.contains(expected), "{reason}");
                }
                assert_eq!(voting.add("b", 0, 1).await, Ok(Cast::Counted));
            };
            let (requests, ()) = tokio::join!(serve(listener, &answers), votes);
            assert!(requests[2].contains("b#0"), "{requests:?}");
            let silent = super::super::testing::place(&proxy::that_closes().await);
            let mut voting = if by_sdk { Voting::Sdk(&silent) } else { Voting::to(&silent) };
            let cast = voting.add("a", 0, 1).await;
            assert!(matches!(cast, Ok(Cast::Perhaps(_))), "{cast:?}");
        }
    }

    #[tokio::test]
    async fn a_vote_waits_for_the_transaction_that_is_at_its_slot() {
        let conflict = r#"{"__type":"com.amazonaws.dynamodb.v20120810#TransactionConflictException","message":"Transaction is ongoing for the item"}"#;
        // More of them than a vote is sent for any other reason.
        let mut answers = vec![(400, conflict, false); 5];
        answers.push((200, "{}", false));
        for by_sdk in [false, true] {
            let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
            let place = place(&format!("http://{}", listener.local_addr().unwrap()));
            let vote = async {
                let mut voting = if by_sdk { Voting::Sdk(&place) } else { Voting::to(&place) };
                assert_eq!(voting.add("a", 0, 1).await, Ok(Cast::Counted));
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
            assert_eq!(matches!(Voting::to(&place), Voting::Plain(_)), plain, "{endpoint}");
        }
    }
}
