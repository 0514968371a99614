//! Tests of `weir up` on a store that it does not own. A `local-store` is used in place of
//! DynamoDB: it accepts only requests that are signed with its access key. `weir` finds it like
//! AWS, by endpoint, region and credentials from the environment.

use std::fs;
use std::path::Path;
use std::time::Duration;

use serde_json::json;

use crate::migration::driver::{Migrating, PLAN};
use crate::process::{LocalStore, Up, binary, root, wait_for, weir, weir_on};
use crate::wire::{Endpoint, Key};

const LIMIT: Duration = Duration::from_secs(90);
const KEY: Key = ("AKIAEXAMPLE", "example/secret+key");
const FLAGS: [&str; 6] = ["--store", "aws", "--region", "us-east-1", "--invoke-port", "0"];

/// Starts a store that is used in place of AWS, on a folder's data.
fn stand_in(folder: &Path) -> LocalStore {
    let keys = folder.join("keys");
    let text = format!("[a]\naws_access_key_id={}\naws_secret_access_key={}\n", KEY.0, KEY.1);
    fs::write(&keys, text).unwrap();
    let mut store = LocalStore::start_with(folder, &["--access-keys", keys.to_str().unwrap()]);
    let unsigned = store.endpoint.send("ListTables", &json!({}));
    assert_eq!(unsigned.error(), "MissingAuthenticationTokenException");
    store.endpoint = store.endpoint.signing(KEY);
    store
}

/// Returns the error message of `weir up`, which must fail.
fn refusal(folder: &Path, url: &str, secret: &str) -> String {
    let mut up = binary("weir");
    up.args(["up", "--s3-port", "0", "--template"]).arg(root().join("template.yaml")).args(FLAGS);
    up.env("AWS_ENDPOINT_URL_DYNAMODB", url).env("AWS_ACCESS_KEY_ID", KEY.0);
    let ended = up.env("AWS_SECRET_ACCESS_KEY", secret).current_dir(folder).output().unwrap();
    assert_eq!(ended.status.code(), Some(1));
    String::from_utf8_lossy(&ended.stderr).into_owned()
}

#[test]
fn undeployed_or_unsigned_requests_are_refused_without_effect() {
    let folder = tempfile::tempdir().unwrap();
    let store = stand_in(folder.path());
    let url = format!("http://{}", store.endpoint.address());
    let said = refusal(folder.path(), &url, KEY.1);
    assert!(
        said.contains("table `movies` (MoviesTable): the table does not exist; deploy"),
        "{said}"
    );
    let said = refusal(folder.path(), &url, "another");
    assert!(said.contains("InvalidSignatureException"), "{said}");
    assert_eq!(store.endpoint.ok("ListTables", &json!({}))["TableNames"], json!([]));
}

#[test]
fn functions_here_follow_the_streams_of_a_store_that_stands_in_for_aws() {
    // A first `weir up` deploys the tables. Then this test starts a store on the data of the first
    // `weir up`.
    let folder = tempfile::tempdir().unwrap();
    let mut deployed = Up::start_in(folder, &[]);
    assert!(deployed.process.interrupt());
    fs::rename(deployed.path("state"), deployed.folder.path().join("data")).unwrap();
    let store = stand_in(deployed.folder.path());
    let url = format!("http://{}", store.endpoint.address());
    let environment = [
        ("AWS_ENDPOINT_URL_DYNAMODB", url.as_str()),
        ("AWS_ENDPOINT_URL_DYNAMODB_STREAMS", url.as_str()),
        ("AWS_ACCESS_KEY_ID", KEY.0),
        ("AWS_SECRET_ACCESS_KEY", KEY.1),
    ];
    let vote = |slot: &str| {
        let request = json!({
            "TableName": "votes", "Key": {"slot": {"S": slot}},
            "UpdateExpression": "ADD votes :one",
            "ExpressionAttributeValues": {":one": {"N": "1"}},
        });
        store.endpoint.ok("UpdateItem", &request);
    };
    vote("poll#1");
    let up = Up::start_elsewhere(tempfile::tempdir().unwrap(), &FLAGS, &environment);
    vote("poll#2");
    wait_for("the total", LIMIT, || {
        let items = store.endpoint.scan("totals");
        items.iter().any(|item| item["total"]["N"] == "2").then_some(())
    });
    assert!(up.process.log().contains("the functions write to real tables"));
    // On a foreign store, `weir streams explain` works, because this machine has the journal. `weir
    // clock` fails, because the clock of AWS cannot be advanced.
    let explained = weir(up.folder.path(), &["streams", "explain", "--last"]);
    assert!(explained.status.success(), "{}", String::from_utf8_lossy(&explained.stderr));
    let said = String::from_utf8_lossy(&explained.stdout).into_owned();
    // `weir up` is running, but `weir streams explain` has no keys to read the store's streams.
    assert!(said.contains("(from the journal only: ") && said.contains("WEIR_KEYS"), "{said}");
    assert!(!said.contains("no `weir up`"), "{said}");
    for arguments in [&["streams", "explain", "--last", "--table", "votes"][..], &["streams", "ls"]]
    {
        let mut command = binary("weir");
        command.env("WEIR_KEYS", "own").env("AWS_ACCESS_KEY_ID", KEY.0);
        command.env("AWS_SECRET_ACCESS_KEY", KEY.1).current_dir(up.folder.path());
        let ended = command.args(arguments).output().unwrap();
        let said = String::from_utf8_lossy(&ended.stdout).into_owned();
        assert!(ended.status.success() && said.contains("votes"), "{ended:?}");
        assert!(!said.contains("from the journal only"), "{said}");
    }
    let clock = weir(up.folder.path(), &["clock", "show"]);
    assert_eq!(clock.status.code(), Some(1));
    let said = String::from_utf8_lossy(&clock.stderr).into_owned();
    assert!(said.contains("uses DynamoDB on AWS") && said.contains(&url), "{said}");
}

/// Runs a command on a store with these keys, and returns its exit code and output.
fn ended(folder: &Path, store: &Endpoint, arguments: &[&str]) -> (i32, String) {
    let ended = weir_on(store).args(arguments).current_dir(folder).output().unwrap();
    let said = [ended.stdout, ended.stderr].concat();
    (ended.status.code().unwrap(), String::from_utf8_lossy(&said).into_owned())
}

#[test]
fn commands_sign_with_own_keys_where_a_store_verifies_them() {
    let folder = tempfile::tempdir().unwrap();
    let store = stand_in(folder.path());
    for (table, key) in [("votes", "slot"), ("totals", "counter")] {
        let request = json!({
            "TableName": table, "BillingMode": "PAY_PER_REQUEST",
            "AttributeDefinitions": [{"AttributeName": key, "AttributeType": "S"}],
            "KeySchema": [{"AttributeName": key, "KeyType": "HASH"}],
        });
        store.endpoint.ok("CreateTable", &request);
    }
    let own = |arguments: &[&str]| ended(folder.path(), &store.endpoint, arguments);
    let generate = ["counters", "generate", "--votes", "50", "--counters", "1", "--slots", "3"];
    let read = ["counters", "read", "g-1-0", "--how", "exact", "--slots", "3"];
    // Missing keys and wrong keys are both rejected.
    let address = store.endpoint.address();
    let nobodys = Endpoint::new(address);
    let (code, said) = ended(folder.path(), &nobodys, &read);
    assert!(code == 1 && said.contains("WEIR_KEYS=own"), "{code}: {said}");
    let others = Endpoint::new(address).signing((KEY.0, "another"));
    let (code, said) = ended(folder.path(), &others, &read);
    assert!(code == 1 && said.contains("InvalidSignatureException"), "{code}: {said}");
    assert!(!said.contains("WEIR_KEYS"), "{said}");

    let (code, said) = own(&generate);
    assert_eq!(code, 0, "{said}");
    let (code, said) = own(&read);
    assert!(code == 0 && said.contains("g-1-0"), "{code}: {said}");
    // Requests that do not use the SDK are also signed.
    let (code, said) = own(&["clock", "freeze"]);
    assert_eq!(code, 0, "{said}");
    let (code, said) = ended(folder.path(), &nobodys, &["clock", "resume"]);
    assert!(code == 1 && said.contains("WEIR_KEYS=own"), "{code}: {said}");
    let (code, said) = own(&["partitions", "hot", "votes"]);
    assert_eq!(code, 0, "{said}");
}

/// Goal: a migration can be switched and reverted on a store that verifies keys. As on AWS, a shard
/// is read until fifty successive pages were empty.
#[test]
fn a_migration_is_switched_and_switched_back_where_a_store_verifies_keys() {
    let folder = tempfile::tempdir().unwrap();
    let store = stand_in(folder.path());
    let migrating = Migrating { folder: folder.path(), store: &store };
    migrating.prepare(1_000, PLAN);
    (0..20).for_each(|number| migrating.put(number, 10));
    let mut worker = migrating.work("start", "plan.yaml");
    migrating.wait_for_phase("tailing", &mut worker, |_| {});
    (20..40).for_each(|number| migrating.put(number, 10));
    migrating.ok(&["verify", "move"]);
    migrating.ok(&["cutover", "move"]);
    assert_eq!(store.endpoint.scan("pets").len(), 40);
    let written = json!({"TableName": "pets", "Item": {"p": {"S": "n100"}, "text": {"S": "new"}}});
    store.endpoint.ok("PutItem", &written);
    migrating.ok(&["revert", "move"]);
    assert_eq!(store.endpoint.scan("cats").len(), 41);
}
