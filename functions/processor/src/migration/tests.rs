//! The function over a scripted control table.

use std::time::Duration;

use serde_json::{Value, json};

use super::*;
use crate::event::{Event, decode};
use crate::object_store::in_memory::InMemoryObjectStore;
use crate::tables::scripted::{endpoint, serve_as};

/// What the function answers to a batch of one record, over a table that answers as `decide` does.
async fn begun(
    record: &Value,
    deadline: Deadline,
    mut decide: impl FnMut(&str, &Value) -> (&'static str, Value),
) -> Result<BatchResponse, Failure> {
    let (listener, client) = endpoint().await;
    let control = Control::new(client, "control".to_owned(), Throttling::default());
    let retry = RetryPolicy { attempts_max: 1, ..RetryPolicy::CONTENDED };
    let store = Arc::new(InMemoryObjectStore::default());
    let aside = Quarantine::new(store, "q/".to_owned(), "migration", retry);
    let function = Migrations::new(control, aside, retry);
    let payload = json!({"Records": [record]}).to_string();
    let Ok(Event::Batch(batch)) = decode(&payload) else { panic!("{payload}") };
    let serving = serve_as(listener, |operation, body| decide(operation, &body));
    let begun = tokio::select! {
        begun = function.begin(&batch, deadline) => begun?,
        () = serving => panic!("nothing was answered"),
    };
    match begun {
        Begun::Done(response) => Ok(response),
        Begun::Frame(_) => panic!("the batch is the frame's"),
    }
}

fn record(table: &str, image: &Value) -> Value {
    json!({
        "eventID": "e", "eventName": "INSERT",
        "dynamodb": {
            "Keys": {"k": {"S": "v"}}, "NewImage": image, "SequenceNumber": "7",
            "StreamViewType": "NEW_AND_OLD_IMAGES",
        },
        "eventSourceARN": format!("arn:aws:dynamodb:r:a:table/{table}/stream/2026"),
    })
}

/// A comparison's task, of which another worker has the lease for a moment yet.
fn leased_task(now_ms: u128) -> Value {
    json!({
        "migration": {"S": "m"}, "entry": {"S": "TASK#1#check-source#src#0000"},
        "work": {"S": "check-source"}, "table": {"S": "src"}, "segment": {"N": "0"},
        "segments": {"N": "1"}, "fingerprint": {"S": "f"}, "revision": {"N": "4"},
        "done": {"BOOL": false}, "owner": {"S": "other"},
        "leased_until": {"N": (now_ms + 60_000).to_string()},
    })
}

#[tokio::test]
async fn a_task_that_another_worker_has_is_looked_at_again_before_it_is_answered() {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
    let leased = leased_task(now.as_millis());
    let mut told = leased.clone();
    told.as_object_mut().unwrap().remove("owner");
    let mut done = leased.clone();
    done["done"] = json!({"BOOL": true});
    let told = record("control", &told);
    for (seconds, looks_wanted, left) in [(60, 2, 0), (2, 1, 1)] {
        let mut looks = 0;
        let deadline = Deadline::after(Duration::from_secs(seconds));
        let answer = begun(&told, deadline, |operation, body| {
            assert_eq!(operation, "getitem");
            if body["Key"]["entry"]["S"] == "STATE" {
                return ("200 OK", json!({}));
            }
            looks += 1;
            let task = if looks == 1 { &leased } else { &done };
            ("200 OK", json!({"Item": task}))
        });
        let failures = answer.await.unwrap().batch_item_failures;
        assert_eq!((looks, failures.len()), (looks_wanted, left));
    }
}

#[tokio::test]
async fn a_table_of_a_plan_that_the_role_may_not_read_is_told_with_its_migration() {
    let made = json!({"to": "tgt", "transform": "{id: .id}", "key": {"pk": "T#{id}"}});
    let plan = json!({
        "migration": "shop", "kind": "restructure", "from": [{"table": "src", "items": [made]}],
        "inverse": [], "backfill": "scan", "segments": 1, "gate_seconds": 1,
    });
    let plan = plan.to_string();
    let active = json!({"M": {"shop": {"M": {
        "direction": {"S": "forward"}, "fingerprint": {"S": Plan::fingerprint(&plan)},
    }}}});
    let deadline = Deadline::after(Duration::from_secs(60));
    let record = record("src", &json!({}));
    let answer = begun(&record, deadline, |operation, body| {
        if operation == "describetable" {
            let error = "com.amazonaws.dynamodb.v20120810#AccessDeniedException";
            return ("400 Bad Request", json!({"__type": error, "message": "m"}));
        }
        (
            "200 OK",
            match body["Key"]["entry"]["S"].as_str() {
                Some("ACTIVE") => json!({"Item": {"active": active}}),
                Some("PLAN") => json!({"Item": {"plan": {"S": plan}}}),
                _ => json!({}),
            },
        )
    });
    let Err(Failure::Fatal(reason)) = answer.await else { panic!("the role may not") };
    assert!(reason.starts_with("migration `shop`: DescribeTable on table=`src`"), "{reason}");
    assert!(!reason.contains("CONTROL_TABLE"), "{reason}");
}
