//! Sends each generated vote to its slot with one `UpdateItem`.

use std::time::Duration;

use aws_sdk_dynamodb::types::AttributeValue as SdkValue;
use rules::counters::Counters;

use super::Place;
use client::addition::{self, Addition};
use client::contention::{Attempts, NotApplied};
use client::endpoint::attempt_limit;
use client::failure::{Result, fatal};
use client::sdk_error::error_text;

/// Maximum attempts to connect. The pauses between them add up to about 1.5 seconds.
const CONNECTIONS_MAX: u32 = 6;
/// Pause before the second attempt. Each further pause is twice as long.
const FIRST_PAUSE: Duration = Duration::from_millis(50);
/// Timeout of a vote's response.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(20);

/// The result of a vote.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum VoteResult {
    /// The vote is counted.
    Counted,
    /// The vote may or may not be counted, for this reason.
    Perhaps(String),
}

/// Adds points to a slot. Retries only attempts that certainly did not count, because a retry of any
/// other attempt could count the vote twice.
///
/// # Errors
/// When the vote is refused, or the store cannot be reached. In both cases the vote is not counted.
pub(super) async fn vote(
    place: &Place,
    counter: &str,
    slot: u32,
    points: i64,
) -> Result<VoteResult> {
    let key = Counters::slot_key_text(counter, slot);
    let mut attempts = Attempts::first();
    let mut connections = 1;
    loop {
        let added = add(place, &key, points).await;
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

/// Sends a vote once. An error contains whether the addition may have been applied, and a description.
async fn add(place: &Place, key: &str, points: i64) -> Result<(), (Addition, String)> {
    let request = place
        .client
        .update_item()
        .table_name(&place.slots_table)
        .key(&place.rule.slot_key, SdkValue::S(key.to_owned()))
        .update_expression("ADD #value :points")
        .expression_attribute_names("#value", &place.rule.slot_value)
        .expression_attribute_values(":points", SdkValue::N(points.to_string()));
    let once = addition::once().timeout_config(attempt_limit(ANSWER_TIMEOUT));
    let sent = request.customize().config_override(once).send().await;
    sent.map(|_| ()).map_err(|error| (Addition::after(&error), error_text(&error)))
}

#[cfg(test)]
mod tests {
    use serde_json::Value;
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
            assert_eq!(vote(&place, "é\"", 3, -1).await, Ok(VoteResult::Counted));
            assert_eq!(vote(&place, "a", 0, 1).await, Ok(VoteResult::Counted));
            let reason = vote(&place, "a", 0, 1).await.unwrap_err().to_string();
            assert_eq!(reason, "a vote was refused: ValidationException: no table");
        };
        let (requests, ()) = tokio::join!(serve(listener, &answers), votes);
        assert_eq!(requests.len(), answers.len());
        let body_of = |request: &str| -> Value {
            serde_json::from_str(request.split_once("\r\n\r\n").unwrap().1).unwrap()
        };
        let expected = serde_json::json!({
            "TableName": "votes",
            "Key": {"sl\"ot": {"S": "é\"#3"}},
            "UpdateExpression": "ADD #value :points",
            "ExpressionAttributeNames": {"#value": "votes"},
            "ExpressionAttributeValues": {":points": {"N": "-1"}},
        });
        assert_eq!(body_of(&requests[0]), expected);
        assert_eq!(body_of(&requests[1]), body_of(&requests[3]));
    }

    /// The vote may have been counted, so a retry could count it twice.
    #[tokio::test]
    async fn a_vote_whose_answer_is_lost_is_sent_once() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let place = place(&format!("http://{}", listener.local_addr().unwrap()));
        let answers = [(500, "{}", true), (503, "", true), (200, "{}", false)];
        let votes = async {
            for _ in 0..2 {
                let cast = vote(&place, "a", 0, 1).await;
                assert!(matches!(cast, Ok(VoteResult::Perhaps(_))), "{cast:?}");
            }
            assert_eq!(vote(&place, "b", 0, 1).await, Ok(VoteResult::Counted));
        };
        let (requests, ()) = tokio::join!(serve(listener, &answers), votes);
        assert!(requests[2].contains("b#0"), "{requests:?}");
        let silent = super::super::testing::place(&proxy::that_closes().await);
        let cast = vote(&silent, "a", 0, 1).await;
        assert!(matches!(cast, Ok(VoteResult::Perhaps(_))), "{cast:?}");
    }

    #[tokio::test]
    async fn a_store_that_is_gone_cannot_be_reached() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let place = place(&format!("http://{}", listener.local_addr().unwrap()));
        drop(listener);
        let error = vote(&place, "a", 0, 1).await.unwrap_err().to_string();
        assert!(error.starts_with("the store cannot be reached: "), "{error}");
    }

    #[tokio::test]
    async fn a_vote_waits_for_the_transaction_that_is_at_its_slot() {
        let conflict = r#"{"__type":"com.amazonaws.dynamodb.v20120810#TransactionConflictException","message":"Transaction is ongoing for the item"}"#;
        // The number of conflicts is greater than the number of retries for other errors.
        let mut answers = vec![(400, conflict, false); 5];
        answers.push((200, "{}", false));
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let place = place(&format!("http://{}", listener.local_addr().unwrap()));
        let vote = async {
            assert_eq!(vote(&place, "a", 0, 1).await, Ok(VoteResult::Counted));
        };
        let (requests, ()) = tokio::join!(serve(listener, &answers), vote);
        assert_eq!(requests.len(), answers.len());
    }
}
