//! Records of the control table as an event brings them that has not the template's filter.

use super::*;

/// Goal: what the function notes itself does not invoke it for ever.
#[tokio::test]
async fn a_record_of_the_control_table_that_is_no_work_makes_none() {
    let task = task_of(&moved_plan(), "backfill", "src", 0);
    let with = |member: &str, value: Value| {
        let mut task = task.clone();
        task[member] = value;
        task
    };
    let entry = |migration: &str, entry: &str| {
        let (migration, entry) = (json!({"S": migration}), json!({"S": entry}));
        json!({"migration": migration, "entry": entry, "at": {"N": "1"}, "revision": {"N": "1"}})
    };
    let mut removed = record("control", &task);
    removed["dynamodb"].as_object_mut().unwrap().remove("NewImage");
    let mut keys_only = removed.clone();
    keys_only["dynamodb"]["StreamViewType"] = json!("KEYS_ONLY");
    let images = [
        entry("*", "FOLLOWED#control"),
        entry("*", "LAG#src"),
        entry("*", "ACTIVE"),
        entry("m", "STATE"),
        entry("m", "JOURNAL#0000000001"),
        entry("m/tombstones/00", "TOMBSTONE#tgt#0"),
        with("owner", json!({"S": "w"})),
        with("aside", json!({"BOOL": true})),
        with("done", json!({"BOOL": true})),
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
        // From its answer on the function knows what time it is, and so may write notes.
        let first = record("other", &json!({"k": {"S": "v"}}));
        for record in [first].into_iter().chain(records).chain([removed, keys_only]) {
            let payload = json!({"Records": [record]}).to_string();
            let Ok(Event::Batch(batch)) = decode(&payload) else { panic!("{payload}") };
            let deadline = Deadline::after(Duration::from_secs(60));
            match function.begin(&batch, deadline).await.unwrap() {
                Begun::Done(answer) => assert!(answer.batch_item_failures.is_empty(), "{payload}"),
                Begun::Frame(_) => assert!(payload.contains("table/other"), "{payload}"),
            }
        }
    };
    tokio::select! {
        () = done => {}
        () = serving => panic!("nothing was answered"),
    }
    assert_eq!(asked.len(), 1, "{asked:?}");
}
