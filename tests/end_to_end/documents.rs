//! Test that runs the commands of README.md and of every subcommand's help, one after the other, in
//! a shell next to a running `weir up`. A newcomer who copies a command gets the result that the
//! document describes.
//!
//! The test excludes third-party programs, and commands that run endlessly or for minutes: `up`,
//! commands that follow a stream, and `demo`, which the checks before a change run separately.

use std::collections::BTreeSet;
use std::fs;
use std::io::Read as _;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::json;

use crate::process::{Process, Up, binary, root, shell, wait_for};

const LIMIT: Duration = Duration::from_secs(90);
/// The time-out of one command. Commands compile nothing, and the slowest take a few seconds.
const COMMAND_LIMIT: Duration = Duration::from_secs(300);

/// Examples that may fail in this test, with their allowed exit codes and expected messages.
const OTHERWISE: &[(&str, &[i32], &str)] = &[
    ("weir streams explain 1000000000000002400005", &[1], "is in no stream"),
    ("weir streams redrive --since", &[0], "no failure object is left"),
    ("weir streams redrive ", &[1], "no file `"),
    ("weir archive get --key", &[0, 1], ""),
    ("weir logs archive --request 6c1f0d9c", &[1], "no line of request"),
    ("weir mcp --directory /srv/", &[1], "No such file or directory"),
    // In this test, no item of `orders` is archived, so the archive has no such table.
    ("weir archive erase --table orders", &[4], "has no table `orders`"),
    ("weir status --exit-code", &[0, 3], ""),
    // Examples that advance time by days let the stream trim changes before the function reads them.
    ("weir versions check --table movies", &[0, 3], ""),
    // The folder of an S3 export, which an example names, does not exist.
    ("AWSDynamoDB/", &[1], "AWSDynamoDB/"),
    // No store listens at the endpoints of these examples. The tests of `copy` run the command.
    ("weir copy --from http://127.0.0.1:8000", &[1], "does not answer"),
    // The slots into which an example of `load` has counted remain, so the exit code may be 3.
    ("weir counters fold --to 5", &[0, 3], ""),
    // The examples of single subcommands run after the migration has ended. The target contains
    // what the migration of this test copied.
    ("weir migrate plan shop.yaml", &[0, 3], ""),
    ("weir migrate start shop.yaml --dry-run", &[0, 3, 4], ""),
    ("weir migrate start shop.yaml", &[0, 4], ""),
    ("weir migrate status shop --exit-code", &[0, 3, 4], ""),
    ("weir migrate verify shop --repair", &[4], ""),
    ("weir migrate cutover shop --", &[4], ""),
    ("weir migrate wait shop --for reverted", &[1], "is completed"),
    ("weir migrate revert shop", &[4], "the migration has ended"),
];

/// The files that the examples of fan-out and of migrations read.
const RULES: &str = "- name: products
  from: products
  to: order-lines
  index: by-product
  key: {productID: productID}
  attributes: {productName: productName}
  on-delete: keep
";
const PLAN: &str = "migration: shop
kind: restructure
from:
  - table: orders
    items:
      - to: shop
        transform: '. + {kind: \"order\"}'
        key: {pk: 'ORDER#{orderID}'}
inverse:
  - table: shop
    items:
      - to: orders
        transform: del(.kind, .pk)
gate_seconds: 1
function_seconds: 20
";

/// Commands that this test does not run. The user's home is not changed.
const LEFT_OUT: &[&str] =
    &["weir up", "weir demo", "weir console", "--follow", "~/", "json --keep", "export --region"];

/// The command that starts a migration with its workers. It runs concurrently with the following
/// commands.
const WORKER: &str = "weir migrate start";

#[test]
fn every_command_of_the_readme_and_of_the_help_works() {
    let up = Up::start(&[]);
    let folder = up.folder.path();
    fixtures(&up);
    let readme = fs::read_to_string(root().join("README.md")).unwrap();
    let mut commands = commands_of_blocks(&readme);
    assert!(commands.len() >= 5, "{commands:?}");
    let mut verbs = Vec::new();
    examples_of_help(&mut Vec::new(), &mut verbs);
    assert!(verbs.len() >= 60, "{verbs:?}");
    commands.extend(verbs);
    let mut seen = BTreeSet::new();
    let mut wrong = Vec::new();
    let mut worker = None;
    for command in commands {
        let follows = command.contains("streams tail") && !command.contains("--no-follow");
        let is_left_out = follows || LEFT_OUT.iter().any(|piece| command.contains(piece));
        if is_left_out || !command.contains("weir ") || !seen.insert(command.clone()) {
            continue;
        }
        let command = as_run_here(&command);
        if command == "weir archive ls" {
            archive_films(folder);
        }
        if command.contains(WORKER) && worker.is_none() {
            let shell = in_shell(folder, &format!("exec {command}"));
            worker = Some(Process::start(shell, folder.join("worker.log")));
            wait_for("the migration to begin", LIMIT, || {
                in_shell(folder, "weir migrate status shop")
                    .output()
                    .unwrap()
                    .status
                    .success()
                    .then_some(())
            });
            continue;
        }
        let otherwise = OTHERWISE.iter().find(|(piece, ..)| command.contains(piece));
        let (codes, words) = otherwise.map_or((&[0][..], ""), |(_, codes, words)| (codes, words));
        let (code, said) = run(in_shell(folder, &command), &command);
        if !codes.contains(&code) || !said.contains(words) {
            wrong.push(format!("{command}: {code}, not {codes:?}\n{said}"));
        }
    }
    assert!(seen.len() >= 60, "only {} commands were run", seen.len());
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    let mut worker = worker.expect("a migration is among the examples");
    wait_for("the worker to end with its migration", LIMIT, || worker.has_ended().then_some(()));
}

/// Returns a command of a document, adapted to this test.
fn as_run_here(command: &str) -> String {
    let package = root().join("functions/processor");
    command
        // The time in a document is in the past, but the item must have existed at that time.
        .replace("2026-11-21T12:00:00Z", "$(date -u +%Y-%m-%dT%H:%M:%SZ)")
        // Reduce the number of votes, so that the test is short.
        .replace("--votes 100000", "--votes 300")
        // The sources of the functions are not in this folder.
        .replace("--local-workers 4", &format!("--local-workers 4 --package {}", package.display()))
}

/// Returns a command as a person would run it, with `weir` on the path.
fn in_shell(folder: &Path, command: &str) -> Command {
    let mut shell = shell(folder, command);
    shell.env("WEIR_TEMPLATE", root().join("template.yaml"));
    shell
}

/// Lets films expire, and waits until the archive contains them. Earlier examples advance time by
/// days, so the stream may have trimmed films that expired earlier.
fn archive_films(folder: &Path) {
    let expire = "weir load --table movies --format json movies.json --expires-in 60 --ttl-attribute expires_at \
                  && weir clock advance 2m && weir ttl sweep";
    assert!(in_shell(folder, expire).status().unwrap().success());
    wait_for("an archive", LIMIT, || {
        in_shell(folder, "weir archive ls").output().unwrap().status.success().then_some(())
    });
}

/// Runs a command to completion, and returns its exit code and its standard error.
///
/// # Panics
/// When the command does not end in time. Add such a command to [`LEFT_OUT`].
fn run(mut shell: Command, command: &str) -> (i32, String) {
    let mut child = shell
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .process_group(0)
        .spawn()
        .unwrap();
    let mut stderr = child.stderr.take().unwrap();
    let reader = std::thread::spawn(move || {
        let mut text = Vec::new();
        stderr.read_to_end(&mut text).unwrap();
        String::from_utf8_lossy(&text).into_owned()
    });
    let deadline = Instant::now() + COMMAND_LIMIT;
    let status = loop {
        if let Some(status) = child.try_wait().unwrap() {
            break status;
        }
        let is_late = Instant::now() > deadline;
        if is_late {
            let group = format!("-{}", child.id());
            let _ = Command::new("kill").args(["-KILL", "--", &group]).status();
        }
        assert!(!is_late, "does not end within {COMMAND_LIMIT:?}: {command}");
        std::thread::sleep(Duration::from_millis(20));
    };
    (status.code().unwrap_or(-1), reader.join().unwrap())
}

/// Creates the files and items that the examples use.
fn fixtures(up: &Up) {
    let folder = up.folder.path();
    let write = |name: &str, text: &str| fs::write(folder.join(name), text).unwrap();
    write(
        "movies.json",
        r#"[{"year":2013,"title":"Rush","info":{"rating":8.3}},{"year":2013,"title":"Prisoners"}]"#,
    );
    write(
        "points.csv",
        "year,round,kind,contestant,voter,points\n2026,final,jury,Weir,a,12\n2026,final,jury,Weir,b,10\n",
    );
    write("orders.csv", "orderID,name\n1,Ada\n2,NULL\n");
    write("orders.txt", "orderID^name\n3^Eve\n");
    let gzip = in_shell(folder, "gzip -k orders.csv").status().unwrap();
    assert!(gzip.success());
    write("event.json", r#"{"Records":[]}"#);
    write("rules.yaml", RULES);
    write("shop.yaml", PLAN);
    let model =
        fs::read_to_string(root().join("examples/patterns/one_to_many/model.json")).unwrap();
    write("model.json", &model);
    write("model.yaml", &model);
    table(up, "orders", "orderID", "N");
    table(up, "shop", "pk", "S");
    table(up, "ballots", "ballot", "S");
    up.store.ok(
        "CreateTable",
        &json!({
            "TableName": "editions", "BillingMode": "PAY_PER_REQUEST",
            "AttributeDefinitions": [
                {"AttributeName": "edition", "AttributeType": "S"},
                {"AttributeName": "item", "AttributeType": "S"},
            ],
            "KeySchema": [
                {"AttributeName": "edition", "KeyType": "HASH"},
                {"AttributeName": "item", "KeyType": "RANGE"},
            ],
        }),
    );
    let product =
        json!({"productID": {"N": "7"}, "productName": {"S": "Chai"}, "price": {"N": "10"}});
    up.store.ok("PutItem", &json!({"TableName": "products", "Item": product}));
    for votes in 1..=3 {
        let vote = json!({
            "TableName": "votes", "Item": {"slot": {"S": "poll-1#0"}, "votes": {"N": votes.to_string()}},
        });
        up.store.ok("PutItem", &vote);
        let film = json!({
            "TableName": "movies", "Item": {
                "year": {"N": "2013"}, "title": {"S": "Rush"}, "edit": {"N": votes.to_string()},
            },
        });
        up.store.ok("PutItem", &film);
    }
    wait_for("the total", LIMIT, || (!up.store.scan("totals").is_empty()).then_some(()));
}

/// Creates a table with a stream.
fn table(up: &Up, name: &str, key: &str, kind: &str) {
    let table = json!({
        "TableName": name, "BillingMode": "PAY_PER_REQUEST",
        "AttributeDefinitions": [{"AttributeName": key, "AttributeType": kind}],
        "KeySchema": [{"AttributeName": key, "KeyType": "HASH"}],
        "StreamSpecification": {"StreamEnabled": true, "StreamViewType": "NEW_AND_OLD_IMAGES"},
    });
    up.store.ok("CreateTable", &table);
}

/// Returns the commands in a document's code blocks, with `weir` in place of `cargo run --`.
fn commands_of_blocks(text: &str) -> Vec<String> {
    let mut commands = Vec::new();
    for block in text.split("```").skip(1).step_by(2) {
        for line in block.replace("\\\n", " ").lines().skip(1) {
            if line.starts_with("cargo run -- ") || line.starts_with("weir ") {
                commands.push(line.replace("cargo run -- ", "weir "));
            }
        }
    }
    commands
}

/// Returns the examples of a subcommand's help and of its subcommands' help.
fn examples_of_help(path: &mut Vec<String>, found: &mut Vec<String>) {
    let output = binary("weir").args(&*path).arg("--help").output().unwrap();
    let help = String::from_utf8(output.stdout).unwrap();
    let behind = help.split_once("Examples:\n").map_or("", |(_, behind)| behind);
    let examples: Vec<&str> = behind.lines().take_while(|line| !line.is_empty()).collect();
    for line in examples.join("\n").replace("\\\n", " ").lines() {
        let line = line.trim();
        // Explanations follow the command after two or more spaces.
        let command = line.split("  ").next().unwrap_or_default();
        found.push(if line.contains(" --count-into") { line } else { command }.to_owned());
    }
    let verbs = help.split_once("Commands:\n").map_or("", |(_, behind)| behind);
    for line in verbs.lines().take_while(|line| !line.is_empty()) {
        let verb = line.split_whitespace().next().unwrap_or_default();
        if line.starts_with("  ") && !line.starts_with("   ") && verb != "help" {
            path.push(verb.to_owned());
            examples_of_help(path, found);
            path.pop();
        }
    }
}
