//! Tests of `weir init`: each kind of project, for tables of several shapes, passes `check` without
//! a warning, and its own script `test` passes.
//!
//! Functions in Rust are compiled by `tests/cargo_lambda/run`, and the templates are linted by
//! `tests/infra/run`.

use std::fs;
use std::process::{Command, Output};

use serde_json::json;
use tempfile::TempDir;

use crate::process::{LocalStore, shell, weir};

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr)
}

/// Writes a project into an empty folder and checks its template.
fn project(arguments: &str) -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    let made = shell(folder.path(), &format!("weir init {arguments}")).output().unwrap();
    assert!(made.status.success(), "{arguments}: {}", said(&made));
    let checked = shell(folder.path(), "weir check --deny-warnings").output().unwrap();
    assert!(checked.status.success(), "{arguments}: {}", said(&checked));
    folder
}

/// Writes a project, and runs its own test.
fn passes(arguments: &str) {
    let folder = project(arguments);
    let tested = shell(folder.path(), "sh test").output().unwrap();
    assert!(tested.status.success(), "{arguments}: {}", said(&tested));
    assert!(said(&tested).contains("\npassed: "), "{arguments}: {}", said(&tested));
    // The test uses a separate folder, so a `weir up` of the project and its data are not changed.
    assert!(!folder.path().join(".weir").exists(), "{arguments}");
}

#[test]
fn an_archive_archives() {
    passes("archive");
}

#[test]
fn an_archive_of_a_table_with_another_key_archives() {
    passes("archive --table My.Table_1 --key 'user id:N' --sort größe:B --ttl gone");
}

#[test]
fn counters_count() {
    passes("counters");
}

#[test]
fn counters_in_other_tables_count() {
    passes("counters --table points-slots --key s --totals points --slots 3");
}

#[test]
fn counters_whose_key_would_be_the_count_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let refused = weir(folder.path(), &["init", "counters", "--key", "votes"]);
    assert_eq!(refused.status.code(), Some(1), "{}", said(&refused));
    assert!(said(&refused).contains("use a table with a different key"), "{}", said(&refused));
    assert!(!folder.path().join("template.yaml").exists());
}

#[test]
fn versions_are_kept() {
    passes("versions --table documents --key owner:S --sort number:N --ttl until");
}

#[test]
fn copies_follow_their_origin() {
    passes("fan-out");
    passes(
        "fan-out --key p:N --copies-key order:B --copies-sort p:N --reference p --attribute title",
    );
}

#[test]
fn a_migration_switches() {
    passes("migration --table Orders.1 --key customer:S --sort number:N");
}

#[test]
fn functions_have_templates_without_warnings() {
    for language in ["rust", "python", "node"] {
        project(&format!("function --language {language}"));
    }
}

#[test]
fn functions_of_each_interpreter_process_items() {
    for (language, interpreter) in [("python", "python3"), ("node", "node")] {
        if Command::new(interpreter).arg("--version").output().is_err() {
            println!("SKIPPED: this machine has no `{interpreter}`");
            continue;
        }
        passes(&format!("function --language {language} --key name:S --sort at:N"));
    }
}

#[test]
fn key_and_ttl_are_those_of_a_live_table() {
    let folder = tempfile::tempdir().unwrap();
    let store = LocalStore::start(folder.path());
    let table = json!({
        "TableName": "sessions", "BillingMode": "PAY_PER_REQUEST",
        "AttributeDefinitions": [
            {"AttributeName": "user", "AttributeType": "S"},
            {"AttributeName": "at", "AttributeType": "N"},
        ],
        "KeySchema": [
            {"AttributeName": "user", "KeyType": "HASH"}, {"AttributeName": "at", "KeyType": "RANGE"},
        ],
    });
    store.endpoint.ok("CreateTable", &table);
    let url = format!("http://{}", store.endpoint.address());
    let of_live = ["init", "archive", "--from-table", "sessions", "--endpoint", &url];
    let refused = weir(folder.path(), &of_live);
    assert_eq!(refused.status.code(), Some(1));
    assert!(said(&refused).contains("name a TTL attribute with --ttl"), "{}", said(&refused));
    let specification = json!({"AttributeName": "until", "Enabled": true});
    let on = json!({"TableName": "sessions", "TimeToLiveSpecification": specification});
    store.endpoint.ok("UpdateTimeToLive", &on);
    let made = weir(folder.path(), &of_live);
    assert!(made.status.success(), "{}", said(&made));
    let template = fs::read_to_string(folder.path().join("template.yaml")).unwrap();
    for part in [
        r#"{AttributeName: "at", AttributeType: N}"#,
        r#"{AttributeName: "at", KeyType: RANGE}"#,
        r#"ARCHIVE_TTL_ATTRIBUTE: "until""#,
        r#"TableName: "sessions""#,
    ] {
        assert!(template.contains(part), "{part}:\n{template}");
    }
    let again = weir(folder.path(), &of_live);
    assert_eq!(again.status.code(), Some(4), "{}", said(&again));
    assert!(said(&again).contains("template.yaml`, "), "{}", said(&again));
    let fan_out = ["init", "fan-out", "other", "--from-table", "sessions", "--endpoint", &url];
    let refused = weir(folder.path(), &fan_out);
    assert_eq!(refused.status.code(), Some(1));
    assert!(said(&refused).contains("cannot hold origins"), "{}", said(&refused));
    assert!(!folder.path().join("other").exists());
}
