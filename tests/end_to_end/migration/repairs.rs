//! Tests of the reaction of a migration to unexpected states: damaged targets, a changed plan, a
//! stream that lags far behind.

use std::fs;

use serde_json::{Value, json};

use crate::migration::driver::{LIMIT, Migrating, PLAN, SECOND_MS};
use crate::migration::whole::visible;
use crate::process::{LocalStore, wait_for};

/// The output of a comparison without differences.
const EQUAL: &str = "0 missing, 0 different, 0 extra";
const MINUTES_MS: u64 = 10 * 60 * SECOND_MS;

#[test]
fn damaged_targets_are_found_and_repaired() {
    let folder = tempfile::tempdir().unwrap();
    let store = LocalStore::start(folder.path());
    let migrating = Migrating { folder: folder.path(), store: &store };
    migrating.prepare(1_000, PLAN);
    (0..30).for_each(|number| migrating.put(number, 10));
    let mut worker = migrating.work("start", "plan.yaml");
    migrating.wait_for_phase("tailing", &mut worker, |_| {});
    let said = migrating.ok(&["verify", "move"]);
    assert!(said.contains(EQUAL) && said.contains("0 repaired"), "{said}");

    let key = |name: &str| json!({"p": {"S": name}});
    // One target is missing, one is different, and one is extra: its mark names a source item that
    // never existed.
    store.endpoint.ok("DeleteItem", &json!({"TableName": "pets", "Key": key("n003")}));
    store.endpoint.ok(
        "UpdateItem",
        &json!({
            "TableName": "pets", "Key": key("n004"), "UpdateExpression": "SET #t = :t",
            "ExpressionAttributeNames": {"#t": "text"},
            "ExpressionAttributeValues": {":t": {"S": "damaged"}},
        }),
    );
    let pets = store.endpoint.scan("pets");
    let mut extra = pets.iter().find(|item| item["p"]["S"] == "n005").unwrap().clone();
    extra["p"] = json!({"S": "m005"});
    let from = extra["_weir"]["M"]["from"]["S"].as_str().unwrap().replace("n005", "m005");
    extra["_weir"]["M"]["from"] = json!({"S": from});
    store.endpoint.ok("PutItem", &json!({"TableName": "pets", "Item": extra}));

    let (code, said) = migrating.verb(&["verify", "move"]);
    assert!(code == 3 && said.contains("1 missing, 1 different, 1 extra"), "{code}: {said}");
    for sample in ["n003", "n004", "m005"] {
        assert!(said.contains(sample), "{sample}: {said}");
    }
    assert_eq!(migrating.status()["phase"], "tailing");
    let (code, said) = migrating.verb(&["cutover", "move"]);
    assert_eq!(code, 4, "{said}");

    let said = migrating.ok(&["verify", "move", "--repair"]);
    assert!(said.contains("1 missing, 1 different, 1 extra"), "{said}");
    assert!(said.contains("3 repaired") && said.contains(EQUAL), "{said}");
    let said = migrating.ok(&["verify", "move"]);
    assert!(said.contains(EQUAL) && said.contains("0 repaired"), "{said}");
    assert_eq!(visible(&store.endpoint, "pets"), visible(&store.endpoint, "cats"));
    // The worker applies changes of repaired items.
    migrating.put(4, 20);
    store.endpoint.ok("DeleteItem", &json!({"TableName": "cats", "Key": key("n003")}));
    migrating.ok(&["verify", "move"]);
    migrating.ok(&["cutover", "move"]);
    assert_eq!(visible(&store.endpoint, "pets"), visible(&store.endpoint, "cats"));
    assert_eq!(visible(&store.endpoint, "pets").len(), 29);
}

#[test]
fn another_plan_than_it_was_begun_with_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let store = LocalStore::start(folder.path());
    let migrating = Migrating { folder: folder.path(), store: &store };
    migrating.prepare(1_000, PLAN);
    (0..10).for_each(|number| migrating.put(number, 10));
    migrating.ok(&["start", "plan.yaml"]);

    // A plan with the same name as the running migration, but with a different transform.
    let other = PLAN.replace("{to: pets}", "{to: pets, transform: '. + {kind: \"cat\"}'}");
    fs::write(folder.path().join("plan.yaml"), other).unwrap();
    let (code, said) = migrating.verb(&["start", "plan.yaml", "--local-workers", "1"]);
    assert_eq!(code, 4, "{said}");
    assert!(
        said.contains("`move` was started with a different plan")
            && said.contains("give this plan a different name"),
        "{said}"
    );

    // No worker executes a plan that was changed by hand in the control table.
    let entry = json!({"migration": {"S": "move"}, "entry": {"S": "PLAN"}});
    let request = json!({"TableName": "weir-migrations", "Key": entry, "ConsistentRead": true});
    let item = store.endpoint.ok("GetItem", &request)["Item"].clone();
    let plan = item["plan"]["S"].as_str().unwrap().to_owned();
    let set_plan = |plan: &str| {
        store.endpoint.ok(
            "UpdateItem",
            &json!({
                "TableName": "weir-migrations", "Key": entry, "UpdateExpression": "SET #p = :p",
                "ExpressionAttributeNames": {"#p": "plan"},
                "ExpressionAttributeValues": {":p": {"S": plan}},
            }),
        );
    };
    let mut changed: Value = serde_json::from_str(&plan).unwrap();
    changed["from"][0]["items"][0]["transform"] = json!(". + {kind: \"cat\"}");
    set_plan(&changed.to_string());
    let mut worker = migrating.work("work", "move");
    let log = folder.path().join(".weir/migrate/logs/migration.log");
    wait_for("the worker to refuse", LIMIT * 2, || {
        assert!(!worker.has_ended(), "{}", worker.log());
        let said = fs::read_to_string(&log).unwrap_or_default();
        said.contains("the plan has changed since the migration started").then_some(())
    });
    assert_eq!(store.endpoint.scan("pets").len(), 0);

    // After the original plan is restored, `resume` continues the migration.
    wait_for("both segments to be set aside", LIMIT, || {
        (migrating.status()["failing"]["set_aside"] == json!(2)).then_some(())
    });
    set_plan(&plan);
    migrating.ok(&["resume", "move"]);
    migrating.wait_for_phase("tailing", &mut worker, |_| {});
    let said = migrating.ok(&["verify", "move"]);
    assert!(said.contains(EQUAL), "{said}");
    assert_eq!(visible(&store.endpoint, "pets"), visible(&store.endpoint, "cats"));
}

#[test]
fn a_backfill_waits_for_a_lagging_stream() {
    const ITEMS: usize = 400;
    let folder = tempfile::tempdir().unwrap();
    let store = LocalStore::start(folder.path());
    let migrating = Migrating { folder: folder.path(), store: &store };
    migrating.prepare(1_000, PLAN);
    (0..ITEMS).for_each(|number| migrating.put(number, 10));
    migrating.ok(&["start", "plan.yaml"]);
    // Minutes pass after a change that no worker has applied yet. Then the clock is frozen, so that
    // the recorded lag stays recent.
    migrating.put(0, 20);
    store.endpoint.advance_clock(MINUTES_MS);
    migrating.clock(&json!({"freeze": true}));
    // The stream's records have priority: no task may be processed before a record was read.
    migrating.ok(&["pause", "move"]);
    let mut worker = migrating.work("work", "move");
    let behind = |status: &Value| {
        let reason = status["throttled"].as_str().unwrap_or_default().to_owned();
        reason.starts_with("the stream of `cats` is ").then_some(reason)
    };
    let noted = json!({"migration": {"S": "*"}, "entry": {"S": "LAG#cats"}});
    let request = json!({"TableName": "weir-migrations", "Key": noted, "ConsistentRead": true});
    wait_for("the lag to be noted", LIMIT * 2, || {
        assert!(!worker.has_ended(), "{}", worker.log());
        store.endpoint.ok("GetItem", &request).get("Item").is_some().then_some(())
    });
    migrating.ok(&["resume", "move"]);
    let log = folder.path().join(".weir/migrate/logs/migration.log");
    let reason = wait_for("the backfill to wait", LIMIT, || {
        assert!(!worker.has_ended(), "{}", worker.log());
        let waits = fs::read_to_string(&log).unwrap_or_default().contains("task postponed");
        behind(&migrating.status()).filter(|_| waits)
    });
    assert!(reason.ends_with(" s behind"), "{reason}");
    // The target contains only the change from the stream.
    assert_eq!(migrating.status()["backfill"]["done"], 0);
    assert!(store.endpoint.scan("pets").len() <= 1);

    // When the recorded lag is old, the backfill continues.
    migrating.clock(&json!({"resume": true}));
    migrating.wait_for_phase("tailing", &mut worker, |status| {
        if behind(status).is_some() {
            store.endpoint.advance_clock(60 * SECOND_MS);
        }
    });
    assert_eq!(behind(&migrating.status()), None);
    let said = migrating.ok(&["verify", "move"]);
    assert!(said.contains(EQUAL), "{said}");
    assert_eq!(visible(&store.endpoint, "pets"), visible(&store.endpoint, "cats"));
    assert_eq!(visible(&store.endpoint, "pets").len(), ITEMS);
}
