//! Records of the control table that reach the function although the template's event filter should
//! drop them.

use control::{JournalLine, Tombstone};

use super::*;

/// The entries that the function itself writes do not invoke it in an endless loop.
#[tokio::test]
async fn a_record_of_the_control_table_that_is_no_work_makes_none() {
    let task = task_of(&moved_plan(), Work::Backfill, "src", 0);
    let line = JournalLine {
        migration: "m".to_owned(),
        line: 1,
        from: Phase::Preparing,
        to: Phase::Copying,
        why: String::new(),
        at: 1,
        by: "ada".to_owned(),
    };
    let mut damaged = json_of(&task);
    damaged["work"] = json!({"S": "juggle"});
    let mut removed = record("control", &json_of(&task));
    removed["dynamodb"].as_object_mut().unwrap().remove("NewImage");
    let mut keys_only = removed.clone();
    keys_only["dynamodb"]["StreamViewType"] = json!("KEYS_ONLY");
    let images = [
        json_of(&FollowedTable { table: "control".to_owned(), at: 1 }),
        json_of(&Lag { table: "src".to_owned(), seconds: 90, at: 1 }),
        json_of(&active("m", &moved_plan())),
        json_of(&tailing(0)),
        json_of(&line),
        json_of(&Tombstone::new("m", "tgt", "{}", "/1")),
        json_of(&Task { owner: Some("w".to_owned()), ..task.clone() }),
        json_of(&Task { aside: true, ..task.clone() }),
        json_of(&Task { done: true, ..task }),
        damaged,
    ];
    let records = images.iter().map(|image| record("control", image));

    let (listener, client) = endpoint().await;
    let control = Control::new(client, "control".to_owned(), Throttling::default());
    let store = Arc::new(InMemoryObjectStore::default());
    let retry = RetryPolicy { attempts_max: 1, ..RetryPolicy::CONTENDED };
    let aside = Quarantine::new(store, "q/".to_owned(), "migration", retry);
    let function = Migrations::new(control, aside, retry);
    let mut asked = Vec::new();
    let serving = serve_as(listener, |operation, body| {
        asked.push(format!("{operation} {body}"));
        ("200 OK", json!({}))
    });
    let done = async {
        // This answer contains the time, so afterwards the function could write entries that contain
        // the time.
        let first = record("other", &json!({"k": {"S": "v"}}));
        for record in [first].into_iter().chain(records).chain([removed, keys_only]) {
            let payload = json!({"Records": [record]}).to_string();
            let Ok(Event::Batch(batch)) = decode(&payload) else { panic!("{payload}") };
            let deadline = Deadline::after(Duration::from_secs(60));
            match function.begin(&batch, deadline).await.unwrap() {
                BatchStart::Done(answer) => {
                    assert!(answer.batch_item_failures.is_empty(), "{payload}");
                }
                BatchStart::Frame(_) => assert!(payload.contains("table/other"), "{payload}"),
            }
        }
    };
    tokio::select! {
        () = done => {}
        () = serving => panic!("nothing was answered"),
    }
    assert_eq!(asked.len(), 1, "{asked:?}");
}
