//! The function `migration` over a scripted control table.

mod touches;
mod unfiltered;

use std::time::Duration;

use control::{Active, Entry, State, Task, Work};
use rules::migration::Phase;
use serde_json::{Value, json};

use super::control_table::tests::{entry_of, json_of};
use super::*;
use crate::event::{Event, decode};
use crate::object_store::in_memory::InMemoryObjectStore;
use crate::tables::scripted::{SECOND, endpoint, serve_as};

/// Returns the function's answer to a batch of one record. `decide` gives the answers of the
/// tables.
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
    let done = async {
        match function.begin(&batch, deadline).await? {
            BatchStart::Done(response) => Ok(response),
            BatchStart::Frame(frame) => {
                Ok(function.follow(&frame, &batch, deadline).await?.response)
            }
        }
    };
    tokio::select! {
        done = done => done,
        () = serving => panic!("nothing was answered"),
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

/// Returns the table's answer to a read of this entry.
fn item(entry: &impl Entry) -> Value {
    json!({"Item": json_of(entry)})
}

fn plan_entry(migration: &str, plan: &str) -> PlanEntry {
    PlanEntry { migration: migration.to_owned(), revision: 1, plan: plan.to_owned() }
}

/// Returns the entry of active migrations, with this migration in the forward direction.
fn active(migration: &str, plan: &str) -> Active {
    let (direction, fingerprint) = (Direction::Forward, Plan::fingerprint(plan));
    let active = [(migration.to_owned(), Followed { direction, fingerprint, since: 0 })].into();
    Active { revision: 1, active, ..Active::default() }
}

#[tokio::test]
async fn a_leased_task_is_checked_again_before_the_answer() {
    // Another worker still leases the task, for a short time.
    let task = Task { revision: 4, ..Task::new("m", 1, Work::CheckSource, "src") };
    let mut leased = task.clone();
    leased.lease("other", lease::now_ms() + 60_000);
    let done = Task { done: true, ..leased.clone() };
    let told = record("control", &json_of(&task));
    for (seconds, looks_wanted, left) in [(60, 2, 0), (2, 1, 1)] {
        let mut looks = 0;
        let deadline = Deadline::after(Duration::from_secs(seconds));
        let answer = begun(&told, deadline, |operation, body| {
            if body["Item"]["entry"]["S"] == "FOLLOWED#control" {
                return ("200 OK", json!({}));
            }
            assert_eq!(operation, "getitem");
            if body["Key"]["entry"]["S"] == "STATE" {
                return ("200 OK", json!({}));
            }
            looks += 1;
            let task = if looks == 1 { &leased } else { &done };
            ("200 OK", item(task))
        });
        let failures = answer.await.unwrap().batch_item_failures;
        assert_eq!((looks, failures.len()), (looks_wanted, left));
    }
}

#[tokio::test]
async fn an_unreadable_table_of_a_plan_is_reported_with_its_migration() {
    let made = json!({"to": "tgt", "transform": "{id: .id}", "key": {"pk": "T#{id}"}});
    let plan = json!({
        "migration": "shop", "kind": "restructure", "from": [{"table": "src", "items": [made]}],
        "inverse": [], "backfill": "scan", "segments": 1, "gate_seconds": 1,
    });
    let plan = plan.to_string();
    for (table, is_read) in [("src", true), ("other", false)] {
        let deadline = Deadline::after(Duration::from_secs(60));
        let record = record(table, &json!({}));
        let answer = begun(&record, deadline, |operation, body| {
            if operation == "describetable" {
                return ("400 Bad Request", error("AccessDeniedException"));
            }
            (
                "200 OK",
                match body["Key"]["entry"]["S"].as_str() {
                    Some("ACTIVE") => item(&active("shop", &plan)),
                    Some("PLAN") => item(&plan_entry("shop", &plan)),
                    _ => json!({}),
                },
            )
        });
        match answer.await {
            Err(Failure::Fatal(reason)) if is_read => {
                let told = "migration `shop`: DescribeTable on table=`src`";
                assert!(reason.starts_with(told), "{reason}");
                assert!(!reason.contains("CONTROL_TABLE"), "{reason}");
            }
            // The migration does not block a table that it does not read.
            other => assert!(other.is_ok() && !is_read, "{table}: {other:?}"),
        }
    }
}

/// Returns a reversible plan that splits the documents of `src` into parts in `tgt`.
fn split_plan() -> String {
    let made = |to: &str, key: Value| json!({"to": to, "transform": ".", "key": key});
    let split = json!({
        "profile": "PROFILE",
        "list": [{"name": "PLOT", "path": "plot", "cut": "whole"}],
    });
    let there = json!({
        "table": "src", "items": [made("tgt", json!({"pk": "D#{id}"}))], "split": split,
    });
    let back = json!({"table": "tgt", "items": [made("src", json!({}))]});
    let plan = json!({
        "migration": "m", "kind": "split", "from": [there], "inverse": [back],
        "backfill": "scan", "segments": 1, "gate_seconds": 1,
    });
    plan.to_string()
}

/// Returns a reversible plan that moves the items of `src` to `tgt`. In both directions, an item
/// whose `v` is not a number cannot be transformed.
fn moved_plan() -> String {
    let made = |to: &str, transform: &str, key: Value| json!({"to": to, "transform": transform, "key": key});
    let there = made("tgt", "{id, v: (.v | tonumber)}", json!({"pk": "D#{id}", "sk": "S"}));
    let back = made("src", "{id, v: (.v | tonumber | tostring)}", json!({}));
    let plan = json!({
        "migration": "m", "kind": "restructure",
        "from": [{"table": "src", "items": [there]}],
        "inverse": [{"table": "tgt", "items": [back]}],
        "backfill": "scan", "segments": 1, "gate_seconds": 1,
    });
    plan.to_string()
}

fn split_task(work: Work, table: &str, run: u64) -> Task {
    task_of(&split_plan(), work, table, run)
}

/// Returns a repairing task of a plan.
fn task_of(plan: &str, work: Work, table: &str, run: u64) -> Task {
    let fingerprint = Plan::fingerprint(plan);
    Task { revision: 1, fingerprint, repairs: true, ..Task::new("m", run, work, table) }
}

/// Returns the state of a migration in a phase, with the number of its last run.
fn state(phase: Phase, run: u64) -> State {
    State { revision: 1, phase, run, ..State::new("m") }
}

/// Returns the state of a migration whose backfill has ended, with the number of its last run.
fn tailing(run: u64) -> State {
    State { rate: 100, ..state(Phase::Tailing, run) }
}

/// Calls `worked_in` for the plan that splits documents.
async fn worked(
    task: Task,
    last_run: u64,
    tables: impl FnMut(&str, &Value) -> (&'static str, Value),
) -> (Task, Vec<Value>, usize) {
    worked_in(&split_plan(), &tailing(last_run), task, tables).await
}

/// Processes a task of a plan. Returns the task's entry, the other entries that were written, and
/// the number of records to redeliver. `tables` gives the answers of all tables except the control
/// table.
async fn worked_in(
    plan: &str,
    state: &State,
    mut task: Task,
    mut tables: impl FnMut(&str, &Value) -> (&'static str, Value),
) -> (Task, Vec<Value>, usize) {
    let (told, mut others) = (record("control", &json_of(&task)), Vec::new());
    let deadline = Deadline::after(Duration::from_secs(60));
    let answer = begun(&told, deadline, |operation, body| match operation {
        "getitem" => {
            let item = match body["Key"]["entry"]["S"].as_str() {
                Some("STATE") => item(state),
                Some("PLAN") => item(&plan_entry("m", plan)),
                Some("ACTIVE") => json!({}),
                _ => item(&task),
            };
            ("200 OK", item)
        }
        "query" if body["TableName"] == "control" => ("200 OK", json!({"Items": [json_of(&task)]})),
        "putitem" if body["TableName"] == "control" => {
            match body["Item"]["entry"]["S"] == task.name() {
                true => task = entry_of(&body["Item"]).unwrap(),
                false if body["Item"]["entry"]["S"] == "FOLLOWED#control" => {}
                false => others.push(body["Item"].clone()),
            }
            ("200 OK", json!({}))
        }
        "describetable" if body["TableName"] == "src" => described(&["id"]),
        "describetable" => match tables(operation, body) {
            (status, answer) if status != "200 OK" => (status, answer),
            _ => described(&["pk", "sk"]),
        },
        _ => tables(operation, body),
    });
    let left = answer.await.unwrap().batch_item_failures.len();
    assert_eq!(task.share, None, "{task:?}");
    (task, others, left)
}

fn described(key: &[&str]) -> (&'static str, Value) {
    let types = ["HASH", "RANGE"].into_iter();
    let schema = key.iter().zip(types).map(|(k, t)| json!({"AttributeName": k, "KeyType": t}));
    let schema: Vec<_> = schema.collect();
    let attribute = |k: &&str| json!({"AttributeName": k, "AttributeType": "S"});
    let attributes: Vec<_> = key.iter().map(attribute).collect();
    let table = json!({"KeySchema": schema, "AttributeDefinitions": attributes});
    ("200 OK", json!({"Table": table}))
}

fn error(name: &str) -> Value {
    json!({"__type": format!("com.amazonaws.dynamodb.v20120810#{name}"), "message": "m"})
}

#[tokio::test]
async fn a_foreign_item_among_the_parts_of_a_document_is_a_difference() {
    let mark = json!({"M": {
        "from": {"S": r#"src|{"id":{"S":"1"}}"#}, "at": {"S": format!("/{}", "0".repeat(40))},
    }});
    let part = |pk: &str, sk: &str| json!({"pk": {"S": pk}, "sk": {"S": sk}});
    let mut profile = part("D#1", "PROFILE");
    profile["id"] = json!({"S": "1"});
    profile["_weir"] = mark;
    let foreign = part("D#1", "PLOT#9");
    // The document has a part with this key, so the comparison of the sources finds the item.
    let in_the_way = part("D#1", "PLOT");
    let elsewhere = part("OTHER", "PLOT#9");
    let mut asked = Vec::new();
    let (task, notes, left) =
        worked(split_task(Work::CheckTarget, "tgt", 1), 1, |operation, body| {
            asked.push(operation.to_owned());
            (
                "200 OK",
                match operation {
                    "scan" => json!({"Items": [profile, foreign, in_the_way, elsewhere]}),
                    "batchgetitem" if body["RequestItems"]["tgt"].is_object() => {
                        json!({"Responses": {"tgt": [profile]}})
                    }
                    "batchgetitem" => {
                        json!({"Responses": {"src": [{"id": {"S": "1"}, "plot": {"S": "a"}}]}})
                    }
                    _ => json!({}),
                },
            )
        })
        .await;
    assert_eq!((task.done, left), (true, 0), "{task:?}");
    assert_eq!((task.counts["occupied"], task.counts["foreign"]), (1, 1), "{task:?}");
    let told = task.samples.join(" ");
    assert!(told.contains("PLOT#9") && told.contains("delete or move the item"), "{told}");
    // The item is reported, but not repaired.
    assert!(!asked.iter().any(|operation| operation.starts_with("delete")), "{asked:?}");
    let noted: Vec<_> = notes.iter().map(|note| note["key"]["S"].as_str().unwrap()).collect();
    let key = |sk: &str| format!(r#"{{"pk":{{"S":"D#1"}},"sk":{{"S":"{sk}"}}}}"#);
    assert_eq!(noted, [key("PLOT#9"), key("PLOT")]);
    assert!(notes[0]["entry"]["S"].as_str().unwrap().starts_with("PROBLEM#foreign#tgt#"));
}

#[tokio::test]
async fn an_outdated_comparison_ends_without_reading_the_tables() {
    let never = |operation: &str, _: &Value| panic!("{operation}");
    let (task, _, left) = worked(split_task(Work::CheckSource, "src", 1), 2, never).await;
    assert_eq!((task.done, task.superseded, left), (true, true, 0), "{task:?}");
}

#[tokio::test]
async fn a_task_without_its_table_is_set_aside_and_blocks_no_other() {
    let gone = |_: &str, _: &Value| ("400 Bad Request", error("ResourceNotFoundException"));
    let (task, _, left) = worked(split_task(Work::CheckSource, "src", 1), 1, gone).await;
    assert_eq!(left, 0, "its record would block the records of other migrations");
    assert_eq!((task.aside, task.done), (true, false));
    assert!(task.failing.as_ref().unwrap().contains("`tgt` does not exist"), "{task:?}");
    assert_eq!(task.owner, None, "{task:?}");
    // The record of this failure needs no work, but the record that `resume` causes does.
    let never = |operation: &str, _: &Value| panic!("{operation}");
    let (unchanged, _, left) = worked(task.clone(), 1, never).await;
    assert_eq!((&unchanged, left), (&task, 0));
    let resumed = Task { aside: false, ..task };
    let empty = |_: &str, _: &Value| ("200 OK", json!({"Items": []}));
    let (task, _, _) = worked(resumed, 1, empty).await;
    assert!(task.done && task.failing.is_none() && task.failed == 0, "{task:?}");
}

#[tokio::test]
async fn a_failed_page_is_retried_after_others_and_smaller() {
    let documents: Vec<_> = (0..8).map(|id| json!({"id": {"S": id.to_string()}})).collect();
    let (task, _, left) =
        worked(split_task(Work::Backfill, "src", 0), 0, |operation, _| match operation {
            "scan" => ("200 OK", json!({"Items": documents})),
            "describetable" => ("200 OK", json!({})),
            _ => ("400 Bad Request", error("ItemCollectionSizeLimitExceededException")),
        })
        .await;
    assert_eq!(left, 0);
    assert_eq!((task.page, task.failed), (Some(4), 1), "{task:?}");
    assert!(task.owner.is_none() && !task.aside, "{task:?}");
    // Leasing the task and taking a share of the rate have already increased the revision.
    assert_eq!(task.revision, 4, "each revision has its own record");
}

#[tokio::test]
async fn a_waiting_task_gets_a_later_record_unless_leased() {
    let open = split_task(Work::Backfill, "src", 0);
    let (mut held, mut left) = (open.clone(), open.clone());
    held.lease("w", u64::MAX);
    left.lease("w", 0);
    for (task, expected, writes) in [
        (open.clone(), true, 1),
        (Task { done: true, ..open.clone() }, true, 0),
        // The task has a later record.
        (Task { revision: 2, ..open.clone() }, true, 0),
        (held, false, 0),
        // The task's worker has crashed, and its lease has expired.
        (left, true, 1),
    ] {
        let (listener, client) = endpoint().await;
        let control = Control::new(client, "control".to_owned(), Throttling::default());
        let mut written = 0;
        let serving = serve_as(listener, |operation, body| {
            if operation == "getitem" {
                return ("200 OK", item(&task));
            }
            written += 1;
            assert_eq!(body["Item"]["revision"], json!({"N": "2"}));
            assert_eq!(body["Item"].get("owner"), None);
            ("200 OK", json!({}))
        });
        let is_done = tokio::select! {
            answer = retry::put_behind(&control, &open) => answer.unwrap(),
            () = serving => panic!("nothing was answered"),
        };
        assert_eq!((is_done, written), (expected, writes), "{task:?}");
    }
}

#[tokio::test]
async fn targets_of_an_item_that_cannot_be_transformed_are_a_difference() {
    let mark = json!({"M": {
        "from": {"S": r#"src|{"id":{"S":"1"}}"#}, "at": {"S": format!("/{}", "0".repeat(40))},
    }});
    let source = |v: &str| json!({"id": {"S": "1"}, "v": {"S": v}});
    let mut made = json!({"pk": {"S": "D#1"}, "sk": {"S": "S"}, "id": {"S": "1"}, "v": {"N": "1"}});
    let mut changed = made.clone();
    changed["v"] = json!({"S": "bad"});
    made["_weir"] = mark;
    let of = |table: &str, direction: Direction| {
        let task = task_of(&moved_plan(), Work::CheckTarget, table, 1);
        Task { direction, repairs: false, ..task }
    };
    // `stands` is the item in the checked table, `origin` the item in its source table.
    let look = async |task: Task, stands: Value, origin: Option<Value>| {
        let table = task.table.clone();
        let (mut task, _, left) = worked_in(&moved_plan(), &tailing(1), task, |operation, body| {
            let page = json!([stands]);
            let answer = match operation {
                "scan" => json!({"Items": page}),
                "batchgetitem" => {
                    let (name, _) =
                        body["RequestItems"].as_object().unwrap().iter().next().unwrap();
                    let items = if *name == table { page } else { json!(origin.as_slice()) };
                    json!({"Responses": {name: items}})
                }
                _ => json!({}),
            };
            ("200 OK", answer)
        })
        .await;
        assert_eq!((task.done, left), (true, 0), "{task:?}");
        task.counts.retain(|kind, _| kind != "read" && kind != "repaired");
        (task.counts, task.samples.join(" "))
    };
    let one = |kind: &str| BTreeMap::from([(kind.to_owned(), 1)]);
    let (there, back) = (of("tgt", Direction::Forward), of("src", Direction::Reverse));
    let (bad, gone, good, back_bad, back_gone, back_good) = tokio::join!(
        look(there.clone(), made.clone(), Some(source("bad"))),
        look(there.clone(), made.clone(), None),
        look(there, made.clone(), Some(source("1"))),
        look(back.clone(), source("1"), Some(changed)),
        look(back.clone(), source("1"), None),
        look(back, source("1"), Some(made)),
    );
    // The refused source is reported with the target, because the source may be deleted before its
    // own page is read.
    assert_eq!(bad.0, one("refused"), "{bad:?}");
    assert!(bad.1.contains("refused: tgt ") && bad.1.contains("from src|"), "{bad:?}");
    assert_eq!(back_bad.0, one("refused"), "{back_bad:?}");
    assert!(back_bad.1.contains("refused: src ") && back_bad.1.contains("from tgt|"));
    assert_eq!((gone.0, back_gone.0), (one("extra"), one("extra")));
    assert_eq!((good.0, back_good.0), (BTreeMap::new(), BTreeMap::new()));
}

#[tokio::test]
async fn counts_of_a_failed_page_are_counted_once() {
    let source = |id: &str, v: &str| json!({"id": {"S": id}, "v": {"S": v}});
    let task = task_of(&moved_plan(), Work::Backfill, "src", 0);
    let (task, _, _) = worked_in(&moved_plan(), &tailing(0), task, |operation, body| {
        if operation == "scan" {
            let last = source("1", "1");
            return match body.get("ExclusiveStartKey") {
                None => {
                    let next = json!({"id": {"S": "1"}});
                    ("200 OK", json!({"Items": [last], "LastEvaluatedKey": next}))
                }
                Some(_) => ("200 OK", json!({"Items": [source("2", "bad"), source("3", "3")]})),
            };
        }
        match operation {
            "describetable" => ("200 OK", json!({})),
            // The first page is written, the second fails.
            _ if body.to_string().contains("D#1") => ("200 OK", json!({"Responses": [{}]})),
            _ => ("400 Bad Request", error("ItemCollectionSizeLimitExceededException")),
        }
    })
    .await;
    assert_eq!(task.cursor.as_deref(), Some(r#"{"id":{"S":"1"}}"#), "{task:?}");
    let counts = ["read", "stated", "written"].map(|name| (name.to_owned(), 1));
    assert_eq!((&task.counts, task.samples.len()), (&BTreeMap::from(counts), 0), "{task:?}");
}

#[tokio::test]
async fn a_stream_lags_if_old_records_needed_work() {
    let mut old = record("src", &json!({"id": {"S": "1"}, "v": {"S": "1"}}));
    old["dynamodb"]["Keys"] = json!({"id": {"S": "1"}});
    let mut stands: Option<Value> = None;
    // The first host applies an old record, the second receives the same record later, and the
    // third cannot write. The last record is not old.
    for (age, is_broken, is_noted) in
        [(300, false, true), (300, false, false), (300, true, true), (30, true, false)]
    {
        old["dynamodb"]["ApproximateCreationDateTime"] = json!(SECOND - age);
        let mut notes = Vec::new();
        let deadline = Deadline::after(Duration::from_secs(60));
        let answer = begun(&old, deadline, |operation, body| match operation {
            "describetable" if body["TableName"] == "src" => described(&["id"]),
            "describetable" => described(&["pk", "sk"]),
            "getitem" => match body["Key"]["entry"]["S"].as_str() {
                Some("ACTIVE") => ("200 OK", item(&active("m", &moved_plan()))),
                _ => ("200 OK", item(&plan_entry("m", &moved_plan()))),
            },
            "putitem" if body["TableName"] == "control" => {
                notes.push(body["Item"]["entry"]["S"].as_str().unwrap().to_owned());
                ("200 OK", json!({}))
            }
            _ if is_broken => ("400 Bad Request", error("InternalServerError")),
            _ => match &stands {
                Some(item) => {
                    let mut failed = error("ConditionalCheckFailedException");
                    failed["Item"] = item.clone();
                    ("400 Bad Request", failed)
                }
                None => {
                    stands = Some(body["Item"].clone());
                    ("200 OK", json!({}))
                }
            },
        });
        let left = answer.await.unwrap().batch_item_failures.len();
        assert_eq!(left, usize::from(is_broken), "{age}");
        let expected = if is_noted { &["FOLLOWED#src", "LAG#src"][..] } else { &["FOLLOWED#src"] };
        assert_eq!(notes, expected, "{age} {is_broken}");
    }
}

#[tokio::test]
async fn followed_tables_are_noted_even_without_work() {
    // The targets are followed even before the reverse direction is used. The other table does not
    // belong to a migration.
    for (table, is_noted) in [("tgt", true), ("other", false)] {
        let mut notes = Vec::new();
        let deadline = Deadline::after(Duration::from_secs(60));
        let record = record(table, &json!({"pk": {"S": "D#1"}, "sk": {"S": "S"}}));
        let answer = begun(&record, deadline, |operation, body| match operation {
            "describetable" if body["TableName"] == "src" => described(&["id"]),
            "describetable" => described(&["pk", "sk"]),
            "putitem" => {
                assert!(body["Item"]["at"]["N"].is_string(), "{body}");
                notes.push(body["Item"]["entry"]["S"].as_str().unwrap().to_owned());
                // This failure has no effect on the batch.
                ("400 Bad Request", error("AccessDeniedException"))
            }
            _ => match body["Key"]["entry"]["S"].as_str() {
                Some("ACTIVE") => ("200 OK", item(&active("m", &moved_plan()))),
                _ => ("200 OK", item(&plan_entry("m", &moved_plan()))),
            },
        });
        assert_eq!(answer.await.unwrap().batch_item_failures.len(), 0, "{table}");
        // The client retries some requests.
        notes.dedup();
        let expected: &[&str] = if is_noted { &["FOLLOWED#tgt"] } else { &[] };
        assert_eq!(notes, expected, "{table}");
    }
}

#[tokio::test]
async fn no_task_outlives_its_migration() {
    let never = |operation: &str, _: &Value| panic!("{operation}");
    let task_of = |work: Work, table: &str, direction: Direction| {
        let task = task_of(&moved_plan(), work, table, 3);
        Task { direction, repairs: false, ..task }
    };
    let unmark = |table: &str| task_of(Work::Unmark, table, Direction::Forward);
    let reverse = task_of(Work::Backfill, "src", Direction::Reverse);
    for (task, state) in [
        (unmark("tgt"), state(Phase::Completing, 4)),
        (unmark("tgt"), state(Phase::Completed, 3)),
        (unmark("src"), state(Phase::Reverted, 3)),
        (reverse.clone(), state(Phase::Reverting, 4)),
        (reverse, state(Phase::Reverted, 3)),
    ] {
        let (task, _, left) = worked_in(&moved_plan(), &state, task, never).await;
        assert_eq!((task.done, task.superseded, left), (true, true, 0), "{state:?}");
    }
    // Marks that remain after a reverse migration must be removed too.
    let empty = |_: &str, _: &Value| ("200 OK", json!({"Items": []}));
    let unswept = State { needs_cleaning: true, ..state(Phase::Reverted, 3) };
    let (task, ..) = worked_in(&moved_plan(), &unswept, unmark("src"), empty).await;
    assert_eq!((task.done, task.superseded), (true, false));
}
