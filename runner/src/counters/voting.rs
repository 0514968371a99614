//! How a generated vote reaches its slot: one `UpdateItem` for each.
//!
//! A local store is sent plain HTTP, because the SDK takes a multiple of the processor time that
//! the store itself does, and a generator on the same machine must not measure itself. Elsewhere
//! the SDK sends. Which votes there are is not known here.

use std::time::Duration;

use aws_sdk_dynamodb::error::ProvideErrorMetadata;
use aws_sdk_dynamodb::types::AttributeValue as SdkValue;
use model::json::write_string;
use model::{AttributeValue, Number};
use rules::counters::Counters;
use serde_json::Value;

use super::Place;
use crate::contention::{Attempts, is_contended};
use crate::keys;
use crate::load::{error_text, to_sdk_value};
use crate::plain_http::{self, Connection, Endpoint};

/// Times that a vote is sent at most, as the SDK does.
const ATTEMPTS_MAX: u32 = 3;
/// Pause before a vote is sent again; it doubles each time.
const FIRST_PAUSE: Duration = Duration::from_millis(50);
/// How long an answer may take.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(20);
/// Errors that say that nothing was done, and that it may be done later.
const LATER: [&str; 3] =
    ["ProvisionedThroughputExceededException", "ThrottlingException", "RequestLimitExceeded"];

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

/// Why a vote was not counted, or not surely.
enum Refused {
    /// A transaction is at its slot, such as one of folding; nothing was counted.
    Contended(String),
    /// It may be counted when it is sent again.
    Later(String),
    /// It will never be.
    Always(String),
}

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

    /// Adds points to a slot. An attempt whose answer is lost may have counted, and the next one
    /// counts again, as with any client that sends `ADD` again.
    ///
    /// # Errors
    /// When the vote is refused, or no attempt was answered.
    pub(super) async fn add(
        &mut self,
        counter: &str,
        slot: u32,
        points: i64,
    ) -> Result<(), String> {
        let key = Counters::slot_key_text(counter, slot);
        let mut attempts = Attempts::first();
        loop {
            let added = match self {
                Self::Plain(plain) => plain.add(&key, points).await,
                Self::Sdk(place) => add_by_sdk(place, &key, points).await,
            };
            match added {
                Ok(()) => return Ok(()),
                Err(Refused::Contended(_)) if attempts.next().await => {}
                Err(
                    Refused::Contended(reason) | Refused::Later(reason) | Refused::Always(reason),
                ) => return Err(format!("a vote was refused: {reason}")),
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

    async fn add(&mut self, key: &str, points: i64) -> Result<(), Refused> {
        self.write(key, points);
        let mut pause = FIRST_PAUSE;
        for attempt in 1.. {
            match self.send().await {
                Ok(()) => break,
                Err(Refused::Later(_)) if attempt < ATTEMPTS_MAX => {}
                Err(refused) => return Err(refused),
            }
            tokio::time::sleep(pause).await;
            pause *= 2;
        }
        Ok(())
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
    async fn send(&mut self) -> Result<(), Refused> {
        let mut connection = match self.connection.take() {
            Some(connection) => connection,
            None => Connection::open(&self.endpoint)
                .await
                .map_err(|error| Refused::Later(format!("cannot connect: {error}")))?,
        };
        let exchange = connection.exchange(self.request.as_bytes());
        let answer = match tokio::time::timeout(ANSWER_TIMEOUT, exchange).await {
            Ok(Ok(answer)) => answer,
            Ok(Err(error)) => return Err(Refused::Later(format!("the connection broke: {error}"))),
            Err(_) => {
                let seconds = ANSWER_TIMEOUT.as_secs();
                return Err(Refused::Later(format!("no answer within {seconds} s")));
            }
        };
        let outcome =
            if answer.status == 200 { Ok(()) } else { Err(refusal(answer.status, answer.body)) };
        if !answer.closes {
            self.connection = Some(connection);
        }
        outcome
    }
}

/// What an answer other than 200 says.
fn refusal(status: u16, body: &[u8]) -> Refused {
    let body: Value = serde_json::from_slice(body).unwrap_or_default();
    let text = |name: &str| body.get(name).and_then(Value::as_str).unwrap_or_default();
    let code = text("__type").rsplit('#').next().unwrap_or_default();
    let reason = format!("HTTP {status} {code}: {}{}", text("message"), text("Message"));
    if is_contended(Some(code), &reason) {
        Refused::Contended(reason)
    } else if status >= 500 || LATER.contains(&code) {
        Refused::Later(reason)
    } else {
        Refused::Always(reason)
    }
}

/// Sends a vote once; the SDK itself sends it again where that may help, but not when a transaction
/// is at the slot.
async fn add_by_sdk(place: &Place, key: &str, points: i64) -> Result<(), Refused> {
    let points = AttributeValue::N(Number::from(points));
    let sent = place
        .client
        .update_item()
        .table_name(&place.slots_table)
        .key(&place.rule.slot_key, SdkValue::S(key.to_owned()))
        .update_expression("ADD #value :points")
        .expression_attribute_names("#value", &place.rule.slot_value)
        .expression_attribute_values(":points", to_sdk_value(&points))
        .send()
        .await;
    let Err(error) = sent else { return Ok(()) };
    let reason = error_text(&error);
    let is_contended = is_contended(error.code(), &reason);
    Err(if is_contended { Refused::Contended(reason) } else { Refused::Always(reason) })
}

#[cfg(test)]
mod tests {
    use tokio::net::TcpListener;

    use super::super::testing::{place, serve};
    use super::*;

    #[tokio::test]
    async fn votes_are_sent_until_they_are_taken_or_refused() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let place = place(&format!("http://{}", listener.local_addr().unwrap()));
        let throttled =
            r#"{"__type":"com.amazonaws.dynamodb.v20120810#ThrottlingException","message":"m"}"#;
        let refused = r##"{"__type":"x#ValidationException","message":"no table"}"##;
        let answers = [
            (200, "{}", false),
            (400, throttled, false),
            (500, "{}", true),
            (200, "{}", true),
            (400, refused, false),
            (503, "", false),
            (503, "", false),
            (503, "", false),
        ];
        let votes = async {
            let mut voting = Voting::to(&place);
            assert_eq!(voting.add("é\"", 3, -1).await, Ok(()));
            assert_eq!(voting.add("a", 0, 1).await, Ok(()));
            let reason = voting.add("a", 0, 1).await.unwrap_err();
            assert_eq!(reason, "a vote was refused: HTTP 400 ValidationException: no table");
            assert!(voting.add("a", 0, 1).await.unwrap_err().contains("HTTP 503"));
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
                assert_eq!(voting.add("a", 0, 1).await, Ok(()));
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
