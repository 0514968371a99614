//! Tests of a purge of a tenant's items, including expired items in the archive, with one receipt.
//! The first `complete` may be killed between the erasure in the archive and the receipt.

use std::fs;
use std::path::Path;
use std::time::Duration;

use serde_json::{Value, json};

use crate::parquet_rows;
use crate::process::{Up, root, wait_for, weir, weir_on};

const LIMIT: Duration = Duration::from_secs(240);
const FILMS: usize = 20;
const PLAN: &str = r#"migration: studio-leaves
kind: purge
from:
  - table: movies
    where: '.studio == "A"'
    archive: true
segments: 2
gate_seconds: 0
"#;

fn run(up: &Up, arguments: &[&str]) -> String {
    let output = weir(up.folder.path(), arguments);
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{arguments:?}: {} {error}", output.status);
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// Returns the studios of the archived items, with duplicates.
fn archived(up: &Up) -> Vec<String> {
    let rows = parquet_rows::of_table(up, "movies");
    rows.iter().map(|row| row["_item"]["studio"]["S"].as_str().unwrap().to_owned()).collect()
}

/// Puts films of two studios alternately; the first half of them expires.
fn prepare(up: &Up) {
    let clock = up.store.request("GET", "/_weir/clock", "", b"").unwrap().body;
    let now = clock["now_ms"].as_u64().unwrap() / 1000;
    for film in 0..FILMS {
        let studio = if film % 2 == 0 { "A" } else { "B" };
        let expires = now + if film < FILMS / 2 { 3600 } else { 1_000_000 };
        let item = json!({
            "year": {"N": "2026"}, "title": {"S": format!("Film {film}")},
            "studio": {"S": studio}, "expires_at": {"N": expires.to_string()},
        });
        up.store.ok("PutItem", &json!({"TableName": "movies", "Item": item}));
    }
    up.store.advance_clock(2 * 3_600_000);
    wait_for("half of the films to be archived", LIMIT, || {
        (archived(up).len() == FILMS / 2).then_some(())
    });
}

/// Checks that an invalid condition is reported before the purge begins, and removes nothing.
fn slips_are_refused(up: &Up) {
    for (slip, words) in [
        (".studio = \"A\"", "the condition yielded an object"),
        ("select(.studio == \"A\")", "the condition yielded "),
    ] {
        let plan = PLAN.replace(".studio == \"A\"", slip);
        assert_ne!(plan, PLAN);
        fs::write(up.folder.path().join("slip.yaml"), plan).unwrap();
        for (verb, code) in [("plan", 3), ("start", 4)] {
            let output = weir(up.folder.path(), &["migrate", verb, "slip.yaml"]);
            let said = [output.stdout, output.stderr].concat();
            let said = String::from_utf8_lossy(&said);
            assert_eq!(output.status.code(), Some(code), "{slip}: {said}");
            assert!(said.contains(words), "{slip}: {said}");
        }
    }
    assert_eq!(up.store.scan("movies").len(), FILMS / 2);
}

/// Checks that an archive which `complete` cannot erase is reported before the purge begins.
fn an_archive_elsewhere_is_refused(up: &Up, plan: &Path) {
    let elsewhere = tempfile::tempdir().unwrap();
    for (verb, code) in [("plan", 3), ("start", 4)] {
        let mut command = weir_on(&up.store);
        command.current_dir(elsewhere.path()).args(["migrate", verb]).arg(plan);
        let output = command.output().unwrap();
        let said = [output.stdout, output.stderr].concat();
        let said = String::from_utf8_lossy(&said);
        assert_eq!(output.status.code(), Some(code), "{said}");
        assert!(said.contains("`archive: true` of `movies`: no `weir up`"), "{said}");
    }
}

#[test]
fn a_tenant_is_purged_with_one_receipt() {
    let up = Up::start(&["--duplicate-deliveries"]);
    prepare(&up);
    slips_are_refused(&up);
    let plan = up.folder.path().join("plan.yaml");
    fs::write(&plan, PLAN).unwrap();
    an_archive_elsewhere_is_refused(&up, &plan);
    let said = run(&up, &["migrate", "plan", "plan.yaml"]);
    assert!(said.contains("5 of 10 sampled items would be removed"), "{said}");
    run(&up, &["migrate", "start", "plan.yaml"]);
    run(&up, &["migrate", "wait", "studio-leaves", "--timeout", "240"]);
    run(&up, &["migrate", "verify", "studio-leaves"]);

    // Simulate a `complete` that was killed before it wrote the receipt.
    let event =
        json!({"erase": {"table": "movies", "where": ".studio == \"A\"", "name": "studio-leaves"}});
    fs::write(up.folder.path().join("event.json"), event.to_string()).unwrap();
    run(&up, &["invoke", "ArchiveMaintenanceFunction", "--event", "event.json"]);
    assert_eq!(archived(&up), vec!["B"; FILMS / 4]);

    let receipt: Value =
        serde_json::from_str(run(&up, &["migrate", "complete", "studio-leaves"]).trim()).unwrap();
    let gone = json!(FILMS / 4);
    assert_eq!(receipt["schema"], "weir.migration.receipt/v1");
    assert_eq!(receipt["tables"]["movies"]["removed"], gone, "{receipt}");
    assert_eq!(receipt["archive"]["movies"]["rows"], gone, "{receipt}");
    assert_eq!(
        receipt["archive"]["movies"]["receipt"], "erasures/table=movies/studio-leaves.json",
        "{receipt}"
    );
    assert_eq!(receipt["left"], 0);
    let places = receipt["kept"].as_array().unwrap();
    assert!(
        places.len() > 5 && places.iter().all(|place| place["remove"].is_string()),
        "{receipt}"
    );
    assert_eq!(places[0]["found"], 0, "no jobs of fan-out: {receipt}");
    let left = up.store.scan("movies");
    assert!(left.iter().all(|item| item["studio"]["S"] == "B"), "{left:?}");
    assert_eq!((left.len(), archived(&up).len()), (FILMS / 4, FILMS / 4));

    // The control table contains the receipt, and repeating `complete` changes nothing.
    let key = json!({"migration": {"S": "studio-leaves"}, "entry": {"S": "RECEIPT"}});
    let request = json!({"TableName": "weir-migrations", "Key": key, "ConsistentRead": true});
    let kept = || up.store.ok("GetItem", &request)["Item"]["receipt"]["S"].clone();
    let text = kept();
    assert_eq!(serde_json::from_str::<Value>(text.as_str().unwrap()).unwrap(), receipt);
    run(&up, &["migrate", "complete", "studio-leaves"]);
    assert_eq!(kept(), text);
    assert!(!text.as_str().unwrap().contains("Film"), "{text}");
}

const PLAN_WITH_HISTORIES: &str = r#"migration: studio-leaves
kind: purge
from:
  - table: movies
    where: '.studio == "A"'
  - table: movies-history
    where: '.item | contains("\"A-")'
segments: 2
gate_seconds: 0
"#;

/// Returns the project's template, with a stream on the table of histories that the function
/// `migration` follows. The guide requires this stream for a purge of histories.
fn template_with_history_stream() -> String {
    let text = fs::read_to_string(root().join("template.yaml")).unwrap();
    let package = format!("CodeUri: {}/", root().join("functions/processor").display());
    let text = text.replace("CodeUri: functions/processor/", &package);
    let stream = "      StreamSpecification: {StreamViewType: NEW_AND_OLD_IMAGES}\n";
    let (before, table) = text.split_once("  HistoryTable:\n").unwrap();
    let (head, rest) = table.split_once("      TimeToLiveSpecification:").unwrap();
    let text =
        format!("{before}  HistoryTable:\n{head}{stream}      TimeToLiveSpecification:{rest}");
    let (before, function) = text.split_once("  MigrationFunction:\n").unwrap();
    let (head, changed) = function.split_once("        Changed:\n").unwrap();
    let (changed, rest) = changed.split_once("\n\n").unwrap();
    let histories = changed.replace("MoviesTable.StreamArn", "HistoryTable.StreamArn");
    assert_ne!(histories, changed);
    format!(
        "{before}  MigrationFunction:\n{head}        Changed:\n{changed}\n        Histories:\n{histories}\n\n{rest}"
    )
}

/// Goal: the purge also removes the versions that deleting a tenant's films adds to their
/// histories.
#[test]
fn histories_of_a_tenant_are_purged_although_the_purge_itself_adds_to_them() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("template.yaml"), template_with_history_stream()).unwrap();
    let up = Up::start_in(folder, &["--duplicate-deliveries"]);
    for edit in 0..2 {
        for film in 0..FILMS {
            let studio = if film % 2 == 0 { "A" } else { "B" };
            let item = json!({
                "year": {"N": "2026"}, "title": {"S": format!("{studio}-{film}")},
                "studio": {"S": studio}, "edit": {"N": edit.to_string()},
            });
            up.store.ok("PutItem", &json!({"TableName": "movies", "Item": item}));
        }
    }
    let histories = |studio: &str| -> Vec<(String, String)> {
        let begins = format!("\"{studio}-");
        let text = |item: &Value, name: &str| item[name]["S"].as_str().unwrap().to_owned();
        let items = up.store.scan("movies-history");
        let mut found: Vec<_> =
            items.iter().map(|item| (text(item, "item"), text(item, "version"))).collect();
        found.retain(|(item, _)| item.contains(&begins));
        found.sort();
        found
    };
    // Each film has a head and two versions.
    let whole = FILMS / 2 * 3;
    wait_for("every edit to be a version", LIMIT, || {
        (histories("A").len() == whole && histories("B").len() == whole).then_some(())
    });
    let others = histories("B");

    fs::write(up.folder.path().join("plan.yaml"), PLAN_WITH_HISTORIES).unwrap();
    run(&up, &["migrate", "start", "plan.yaml"]);
    run(&up, &["migrate", "wait", "studio-leaves", "--timeout", "240"]);
    // The deletes have become versions when the function `versions` has processed the stream.
    let marker = json!({"year": {"N": "2026"}, "title": {"S": "B-marker"}, "studio": {"S": "B"}});
    up.store.ok("PutItem", &json!({"TableName": "movies", "Item": marker}));
    wait_for("the last change to be a version", LIMIT, || {
        (histories("B").len() == others.len() + 2).then_some(())
    });
    wait_for("the histories to be gone", LIMIT, || histories("A").is_empty().then_some(()));
    run(&up, &["migrate", "verify", "studio-leaves"]);
    let receipt: Value =
        serde_json::from_str(run(&up, &["migrate", "complete", "studio-leaves"]).trim()).unwrap();
    assert_eq!(receipt["tables"]["movies"]["removed"], json!(FILMS / 2), "{receipt}");
    // The deletes of films changed the heads of histories. The stream delivered these heads to the
    // purge.
    let removed = receipt["tables"]["movies-history"]["removed"].as_u64().unwrap();
    assert!(removed > 0, "{receipt}");
    assert_eq!(receipt["left"], 0, "{receipt}");

    assert_eq!(histories("A"), []);
    let left: Vec<_> =
        histories("B").into_iter().filter(|(item, _)| !item.contains("marker")).collect();
    assert_eq!(left, others);
    let films = up.store.scan("movies");
    assert!(films.iter().all(|item| item["studio"]["S"] == "B"), "{films:?}");
    assert_eq!(films.len(), FILMS / 2 + 1);
}
