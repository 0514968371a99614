//! Tests of requests for items that a transaction over several arcs has locked.

use serde_json::{Value, json};

use super::*;
use crate::api;

async fn answer(store: &Store, operation: &str, body: &Value) -> (u16, Value) {
    let target = format!("DynamoDB_20120810.{operation}");
    let response = api::handle(store, &target, body.to_string().as_bytes()).await;
    (response.status, serde_json::from_str(&response.body).unwrap())
}

/// Returns a store with two items in two arcs. A transaction has locked the second item.
async fn store_with_a_lock(folder: &Path) -> (Store, u64, u64) {
    // Without ticks, unfinished transactions are not recovered.
    let on_fatal = Box::new(|reason: &str| panic!("{reason}"));
    let store = Store::open_without_ticks(config(folder, ARCS), on_fatal).await.unwrap();
    create(&store).await;
    let (free, locked) = names_apart(&store);
    for name in [free, locked] {
        store.submit(vec![Command::Write(Box::new(put(name, 10)))]).await.unwrap();
    }
    let prepare = Prepare {
        id: TransactionId::new([7, 7], Some(&store.request_token("token"))),
        deciding_arc: ArcId(0),
        began: store.now(),
        operations: vec![change(locked, '+', 1)],
        return_items: false,
    };
    let replica = store.group(table(&store).arc_of(&key(locked)));
    let replies = replica.submit(vec![Command::Prepare(Box::new(prepare))]).await.unwrap();
    assert!(matches!(replies[..], [Reply::Prepared { .. }]));
    (store, free, locked)
}

/// Goal: a request for a locked item gets DynamoDB's conflict error. Reads still return the previous state.
#[tokio::test(flavor = "multi_thread")]
async fn a_conflict_is_reported_for_each_operation() {
    let folder = tempfile::tempdir().unwrap();
    let (store, free, locked) = store_with_a_lock(folder.path()).await;
    let key = |name: u64| json!({"p": {"S": format!("k{name}")}});
    let put = |name: u64| json!({"TableName": "things", "Item": key(name)});
    let of = |name: u64| json!({"TableName": "things", "Key": key(name)});
    let update = json!({"TableName": "things", "Key": key(locked), "UpdateExpression": "REMOVE g"});
    let statement = json!({"Statement": format!(r#"DELETE FROM "things" WHERE p = 'k{locked}'"#)});
    for (operation, body) in [
        ("PutItem", put(locked)),
        ("UpdateItem", update),
        ("DeleteItem", of(locked)),
        ("ExecuteStatement", statement.clone()),
    ] {
        let (status, said) = answer(&store, operation, &body).await;
        let kind = said["__type"].as_str().unwrap();
        assert_eq!(status, 400, "{operation}: {said}");
        assert!(kind.ends_with("#TransactionConflictException"), "{operation}: {said}");
        assert_eq!(said["message"], "Transaction is ongoing for the item", "{operation}");
    }
    let write = json!({"TransactItems": [{"Put": put(free)}, {"Put": put(locked)}]});
    let read = json!({"TransactItems": [{"Get": of(free)}, {"Get": of(locked)}]});
    for (operation, body) in [("TransactWriteItems", write), ("TransactGetItems", read)] {
        let (status, said) = answer(&store, operation, &body).await;
        assert_eq!(status, 400, "{operation}: {said}");
        assert_eq!(
            said["Message"],
            "Transaction cancelled, please refer cancellation reasons for specific reasons [None, TransactionConflict]",
            "{operation}: {said}"
        );
        assert_eq!(said["CancellationReasons"][0], json!({"Code": "None"}), "{operation}");
        assert_eq!(
            said["CancellationReasons"][1],
            json!({"Code": "TransactionConflict", "Message": "Transaction is ongoing for the item"}),
            "{operation}"
        );
    }
    // A batch returns the write as unprocessed, and a statement gets the conflict error.
    let requests =
        json!([{"PutRequest": {"Item": key(free)}}, {"PutRequest": {"Item": key(locked)}}]);
    let batch = json!({"RequestItems": {"things": requests}});
    let (status, said) = answer(&store, "BatchWriteItem", &batch).await;
    let left = json!({"things": [{"PutRequest": {"Item": key(locked)}}]});
    assert_eq!((status, &said["UnprocessedItems"]), (200, &left), "{said}");
    let (status, said) =
        answer(&store, "BatchExecuteStatement", &json!({"Statements": [statement]})).await;
    assert_eq!(status, 200);
    assert_eq!(said["Responses"][0]["Error"]["Code"], "TransactionConflict", "{said}");

    // Reads outside of transactions return the previous state.
    for consistent in [false, true] {
        let mut read = of(locked);
        read["ConsistentRead"] = json!(consistent);
        let (status, said) = answer(&store, "GetItem", &read).await;
        assert_eq!((status, &said["Item"]["n"]), (200, &json!({"N": "10"})), "{said}");
    }
}

/// Goal: if an earlier attempt of the same request has locked the items, the repeated request gets the error
/// for a transaction in progress. Any other request gets a conflict.
#[tokio::test(flavor = "multi_thread")]
async fn a_running_earlier_attempt_is_reported() {
    let folder = tempfile::tempdir().unwrap();
    let (store, free, locked) = store_with_a_lock(folder.path()).await;
    for (token, kind) in [
        (Some("token"), "#TransactionInProgressException"),
        (Some("other"), "#TransactionCanceledException"),
        (None, "#TransactionCanceledException"),
    ] {
        let put = |name: u64| json!({"Put": {"TableName": "things", "Item": {"p": {"S": format!("k{name}")}}}});
        let mut write = json!({"TransactItems": [put(free), put(locked)]});
        if let Some(token) = token {
            write["ClientRequestToken"] = json!(token);
        }
        let (status, said) = answer(&store, "TransactWriteItems", &write).await;
        assert_eq!(status, 400, "{token:?}: {said}");
        assert!(said["__type"].as_str().unwrap().ends_with(kind), "{token:?}: {said}");
        // The same requests, sent to the store without the API.
        let token = token.map(|token| store.request_token(token));
        let replies = store.submit(vec![transfer(free, locked, 1, token)]).await.unwrap();
        let conflict = vec![CancellationReason::None, CancellationReason::Conflict];
        let expected = match kind {
            "#TransactionInProgressException" => Reply::TransactionInProgress,
            _ => Reply::TransactionCancelled(conflict),
        };
        assert_eq!(replies, [expected]);
    }
}
