//! Changes in place against a scripted table: the requests, and which changes are reverted.

use std::sync::Arc;
use std::time::Duration;

use model::json::item_from_str;
use model::{KeyAttribute, KeyAttributeType, KeySchema};
use rules::migration::{Direction, Migration};
use serde_json::{Value, json};

use super::super::Throttling;
use super::super::control_table::Control;
use super::super::window::WorkKind;
use super::*;
use crate::back_off::RetryPolicy;
use crate::tables::scripted::{endpoint, serve};

#[test]
fn changes_are_guarded_by_every_attribute() {
    let item = |text: &str| item_from_str(text).unwrap();
    let key = item(r#"{"id":{"S":"1"}}"#);
    let before = item(r#"{"id":{"S":"1"},"a":{"S":"x"},"b":{"N":"1"},"c":{"NULL":true}}"#);
    let after = item(r#"{"id":{"S":"1"},"b":{"N":"2"},"c":{"NULL":true},"d":{"S":"y"}}"#);
    let absent = ["d", "e"].map(str::to_owned).into();
    let guard = Guard { absent, is_complete: true };
    let change = Change::new(&before, Some(&after), &guard, &key);
    assert_eq!(change.update, "SET #a1 = :c1, #a3 = :c3 REMOVE #a0");
    assert_eq!(
        change.condition,
        "attribute_exists(#k) AND #a0 = :b0 AND #a1 = :b1 AND #a2 = :b2 AND attribute_not_exists(#a3) AND attribute_not_exists(#a4)"
    );
    assert_eq!(change.names["#a3"], "d");
    assert_eq!(change.values[":c1"], SdkValue::N("2".to_owned()));
    let change = Change::new(&before, None, &guard, &key);
    assert_eq!(change.update, "");
    assert!(change.condition.ends_with("attribute_not_exists(#a4)"), "{}", change.condition);
}

/// Runs a plan of this kind on the item `p`, as after a record or in the backfill. Returns the
/// bodies of the requests, and whether an item was written.
async fn settled(kind: &str, program: &str, answers: &[(&str, &str)]) -> (Vec<Value>, bool) {
    let deadline = Deadline::after(Duration::from_secs(60));
    let (bodies, result) = settled_until(deadline, kind, program, answers).await;
    (bodies, result == Ok(1))
}

/// Does the same as [`settled`] with another deadline.
async fn settled_until(
    deadline: Deadline,
    kind: &str,
    program: &str,
    answers: &[(&str, &str)],
) -> (Vec<Value>, Result<usize, Failure>) {
    let made = json!({"to": "t", "transform": program, "key": {}});
    let source = json!({"table": "t", "items": [made]});
    let plan = json!({
        "migration": "m", "kind": kind, "from": [source], "inverse": [], "backfill": "scan",
        "segments": 1, "gate_seconds": 1,
    });
    let plan = serde_json::from_value(plan).unwrap();
    let attribute_type = KeyAttributeType::S;
    let partition = KeyAttribute { name: "p".to_owned(), attribute_type };
    let schemas = [("t".to_owned(), KeySchema { partition, sort: None })].into();
    let migration = Migration::compile(&plan, Direction::Forward, &schemas).unwrap();
    let key = schemas["t"].key_of_item(&item_from_str(r#"{"p":{"S":"1"}}"#).unwrap()).unwrap();
    let (migration_name, table) = ("m".to_owned(), "t".to_owned());
    let target = Target { migration: migration_name, table, key, adopts: false };
    let rewrites = [(target, Joined { value: (), records: vec![0] })].into();

    let (listener, client) = endpoint().await;
    let control = Control::new(client, "control".to_owned(), Throttling::default());
    let retry = RetryPolicy { delay_base: Duration::ZERO, ..RetryPolicy::CONTENDED };
    let targets = Targets::new(control, &[Arc::new(migration)], retry);
    let window = targets.window(WorkKind::Batch);
    let settling = targets.settle_all(rewrites, &window, deadline);
    let (requests, outcomes) = tokio::join!(serve(listener, answers), settling);
    let bodies = requests.iter().map(|request| request.split_once("\r\n\r\n").unwrap().1);
    let bodies = bodies.map(|body| serde_json::from_str(body).unwrap()).collect();
    (bodies, outcomes[0].result.clone())
}

/// Returns the attribute names of a request, without their placeholders.
fn names(request: &Value) -> Vec<&str> {
    let names = request["ExpressionAttributeNames"].as_object().unwrap();
    names.values().map(|name| name.as_str().unwrap()).collect()
}

const FREE: &str = r#"{"Responses":{"t":[{"p":{"S":"1"},"tenant":{"S":"7"}}]}}"#;
const HELD: &str =
    r#"{"Responses":{"t":[{"p":{"S":"1"},"tenant":{"S":"7"},"hold":{"BOOL":true}}]}}"#;
const HELD_ITEM: &str = r#"{"p":{"S":"1"},"tenant":{"S":"7"},"hold":{"BOOL":true}}"#;
const CONDITION: &str = ".tenant == \"7\" and (.hold != true)";

fn refused(stands: &str) -> String {
    format!(
        r#"{{"__type":"com.amazonaws.dynamodb.v20120810#ConditionalCheckFailedException","message":"m","Item":{stands}}}"#
    )
}

#[tokio::test]
async fn effects_of_an_earlier_version_remove_nothing() {
    let (requests, written) = settled("purge", CONDITION, &[("200 OK", HELD)]).await;
    assert_eq!((requests.len(), written), (1, false));
    assert_eq!(requests[0]["RequestItems"]["t"]["ConsistentRead"], true);
}

#[tokio::test]
async fn an_item_may_be_spared_until_its_removal() {
    let refused = refused(HELD_ITEM);
    let answers = [("200 OK", FREE), ("400 Bad Request", refused.as_str())];
    let (requests, written) = settled("purge", CONDITION, &answers).await;
    assert_eq!((requests.len(), written), (2, false));
    assert_eq!(names(&requests[1]), ["_weir", "hold", "tenant", "p"]);
    let condition = requests[1]["ConditionExpression"].as_str().unwrap();
    assert!(condition.contains("attribute_not_exists(#a1)"), "{condition}");
}

#[tokio::test]
async fn a_wrong_change_is_restored_if_no_condition_prevents_it() {
    let removed = format!(r#"{{"Attributes":{HELD_ITEM}}}"#);
    let program = ".tenant == \"7\" and (any(keys[]; . == \"hold\") | not)";
    let answers = [("200 OK", FREE), ("200 OK", removed.as_str()), ("200 OK", "{}")];
    let (requests, written) = settled("purge", program, &answers).await;
    assert_eq!((requests.len(), written), (3, false));
    assert_eq!(requests[1]["ReturnValues"], "ALL_OLD");
    let item: Value = serde_json::from_str(HELD_ITEM).unwrap();
    assert_eq!(requests[2]["Item"], item);
    assert_eq!(requests[2]["ConditionExpression"], "attribute_not_exists(#k)");
    // If too little time is left to evaluate the response, the item is not removed.
    let late = Deadline::late(Duration::from_secs(59), Duration::from_secs(29));
    let (_, result) = settled_until(late, "purge", program, &[("200 OK", FREE)]).await;
    assert_eq!(result, Err(no_time_for_an_answer()));
    // The removed item has one more attribute than the item that was read, but the purge's condition
    // also selects it. Therefore it is not restored.
    let removed = removed.replace("hold", "n");
    let program = ".tenant == \"7\" and length < 9";
    let answers = [("200 OK", FREE), ("200 OK", removed.as_str())];
    assert!(settled("purge", program, &answers).await.1);
}

#[tokio::test]
async fn a_change_of_another_item_is_reverted() {
    let program = ".state //= (if any(keys[]; . == \"hold\") then \"held\" else \"free\" end)";
    let met = format!(r#"{{"Attributes":{HELD_ITEM}}}"#);
    // Another writer sets the attribute `state` while the change is reverted.
    let other = HELD_ITEM.replace("tenant", "state").replace("hold", "a");
    let refused = refused(&other);
    let made = HELD_ITEM.replace("tenant", "state").replace("\"7\"", "\"free\"");
    let made = format!(r#"{{"Attributes":{made}}}"#);
    let answers =
        [("200 OK", FREE), ("200 OK", met.as_str()), ("200 OK", made.as_str()), ("200 OK", "{}")];
    let (requests, written) = settled("in-place", program, &answers).await;
    assert!(written);
    let update = |request: &Value| {
        let values = request["ExpressionAttributeValues"].to_string();
        (request["UpdateExpression"].as_str().unwrap().trim().to_owned(), values)
    };
    assert!(update(&requests[1]).1.contains("free"));
    assert!(update(&requests[2]).0.starts_with("REMOVE"));
    assert!(update(&requests[2]).1.contains("free"));
    assert!(update(&requests[3]).1.contains("held"));
    let answers =
        [("200 OK", FREE), ("200 OK", met.as_str()), ("400 Bad Request", refused.as_str())];
    let (requests, written) = settled("in-place", program, &answers).await;
    assert_eq!((requests.len(), written), (3, false));
}
