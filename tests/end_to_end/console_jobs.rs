//! Tests of the console's pages Migrations, Archive, Versions, Counters and Copies, requested by a
//! browser and by a program, from a real `weir up`.

use std::fs;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::console::{Console, Response, encoded};
use crate::process::{Process, Up, root, wait_for, weir};

const LIMIT: Duration = Duration::from_secs(180);
/// The number of source items of the migration.
const ITEMS: usize = 120;

const PLAN: &str = "migration: move
kind: restructure
from:
  - table: cats
    items: [{to: pets, transform: '. + {kind: \"cat\"}'}]
inverse:
  - table: pets
    items: [{to: cats, transform: 'del(.kind)'}]
segments: 2
gate_seconds: 0
function_seconds: 10
";

#[test]
fn a_migration_is_watched_and_adjusted_from_its_page() {
    let up = Up::start(&[]);
    let console = Console::of(up.folder.path());
    assert!(console.page("/migrations").contains("weir migrate start PLAN"));
    assert_eq!(console.request("GET", "/migrations/move", &[], "").status, 404);
    assert_eq!(console.request("GET", "/migrations/move.json", &[], "").status, 404);
    let mut workers = begin(&up);
    let page = "/migrations/move";
    wait_for("the backfill", LIMIT, || {
        assert!(!workers.has_ended(), "{}", workers.log());
        let found = console.request("GET", "/migrations/move.json", &[], "");
        (found.status == 200 && found.body.contains("\"phase\":\"copying\"")).then_some(())
    });
    until_phase(&console, "copying");
    paused_and_resumed(&console, page);
    let done = console.press(page, "/migrations/move/throttle", "rate=0");
    assert_eq!(done.status, 303, "{}", done.body);
    assert_eq!(console.twin(page)["backfill"]["items_per_second_allowed"], Value::Null);
    until_phase(&console, "tailing");
    let twin = console.twin(page);
    assert_eq!(twin["cutover"]["answer"], "no", "{twin}");
    assert!(console.page(page).contains("must find no difference first"));
    verb(&up, &["verify", "move"]);
    safe_to_cut_over(&console, page);
    verb(&up, &["cutover", "move"]);
    let twin = console.twin(page);
    assert_eq!(twin["phase"], "cut-over", "{twin}");
    assert_eq!(twin["last_switch"]["verb"], "cutover");
    assert!(twin["last_switch"]["seconds_at_most"].as_i64().unwrap() < 60, "{twin}");
    assert_eq!(twin["journal"][0]["to"], "cut-over");
    let listed = console.twin("/migrations");
    assert_eq!(listed["migrations"][0]["phase"], "cut-over", "{listed}");
    let started = Instant::now();
    let count = 10;
    for _ in 0..count {
        console.page(page);
    }
    println!("the page of a migration takes {:?}", started.elapsed() / count);
}

/// Starts the migration at a low rate, with workers on this machine.
fn begin(up: &Up) -> Process {
    for table in ["cats", "pets"] {
        up.store.ok(
            "CreateTable",
            &json!({
                "TableName": table, "BillingMode": "PAY_PER_REQUEST",
                "AttributeDefinitions": [{"AttributeName": "p", "AttributeType": "S"}],
                "KeySchema": [{"AttributeName": "p", "KeyType": "HASH"}],
                "StreamSpecification": {"StreamEnabled": true, "StreamViewType": "NEW_AND_OLD_IMAGES"},
            }),
        );
    }
    for number in 0..ITEMS {
        let item = json!({"p": {"S": format!("n{number:03}")}, "name": {"S": "<b>Tom</b>"}});
        up.store.ok("PutItem", &json!({"TableName": "cats", "Item": item}));
    }
    fs::write(up.folder.path().join("plan.yaml"), PLAN).unwrap();
    let package = root().join("functions/processor").display().to_string();
    let mut command = crate::process::binary("weir");
    command.args(["migrate", "start", "plan.yaml", "--rate", "2", "--local-workers", "2"]);
    command.args(["--package", &package]).current_dir(up.folder.path());
    Process::start(command, up.folder.path().join("workers.log"))
}

fn verb(up: &Up, arguments: &[&str]) {
    let ended = weir(up.folder.path(), &[&["migrate"], arguments].concat());
    let said = String::from_utf8_lossy(&ended.stderr);
    assert!(ended.status.success(), "{arguments:?}: {said}");
}

fn until_phase(console: &Console, phase: &str) {
    wait_for(phase, LIMIT, || (console.twin("/migrations/move")["phase"] == phase).then_some(()));
}

/// Returns the subcommands of a page's JSON version that have a button, and the subcommands that
/// are only commands.
fn verbs(twin: &Value) -> (Vec<String>, Vec<String>) {
    let actions = twin["actions"].as_array().unwrap().iter();
    let (buttons, commands): (Vec<&Value>, Vec<&Value>) =
        actions.partition(|action| action["button"] == true);
    let text = |action: &Value| action["verb"].as_str().unwrap_or_default().to_owned();
    (buttons.into_iter().map(text).collect(), commands.into_iter().map(text).collect())
}

fn has(verbs: &[String], verb: &str) -> bool {
    verbs.iter().any(|known| known == verb)
}

fn paused_and_resumed(console: &Console, page: &str) {
    let twin = console.twin(page);
    assert_eq!(twin["backfill"]["items_per_second_allowed"], 2, "{twin}");
    let (buttons, commands) = verbs(&twin);
    assert!(has(&buttons, "pause") && has(&buttons, "throttle"), "{twin}");
    assert!(has(&commands, "abort"), "{twin}");
    let html = console.page(page);
    for part in ["aria-current=\"step\"", "2 allowed", "&lt;b&gt;Tom", "started by an operator"] {
        assert!(html.contains(part), "{part}\n{html}");
    }
    // Without the token nothing changes, and a subcommand without a button has no action.
    assert_eq!(console.request("POST", "/migrations/move/pause", &[], "back=/").status, 403);
    assert_eq!(console.press(page, "/migrations/move/cutover", "").status, 404);
    assert_eq!(console.press(page, "/migrations/move/throttle", "rate=fast").status, 400);
    assert_eq!(console.press(page, "/migrations/other/pause", "").status, 404);
    assert_eq!(console.twin(page)["paused"], false);
    let done = console.press(page, "/migrations/move/pause", "");
    assert_eq!(done.status, 303, "{}", done.body);
    let (_, address) = done.head.split_once("location: ").unwrap();
    let shown = console.page(address.lines().next().unwrap());
    assert!(shown.contains("`move` is paused: workers stop the backfill"), "{shown}");
    let twin = console.twin(page);
    assert_eq!(twin["paused"], true, "{twin}");
    assert!(has(&verbs(&twin).0, "resume") && !has(&verbs(&twin).0, "pause"), "{twin}");
    let html = console.page(page);
    assert!(html.contains("copying (paused)"), "{html}");
    assert_eq!(console.press(page, "/migrations/move/resume", "").status, 303);
    assert_eq!(console.twin(page)["paused"], false);
}

/// Waits until a cut-over is safe: after a comparison without differences, when the streams are
/// read.
fn safe_to_cut_over(console: &Console, page: &str) {
    let twin = wait_for("the streams to be read", LIMIT, || {
        let twin = console.twin(page);
        (twin["cutover"]["answer"] == "yes").then_some(twin)
    });
    assert_eq!(twin["phase"], "ready", "{twin}");
    assert_eq!(twin["verified"]["differences"], 0, "{twin}");
    assert_eq!(twin["stream"]["waiting"], 0, "{twin}");
    assert!(has(&verbs(&twin).1, "cutover"), "{twin}");
    let sample = &twin["samples"][0];
    assert_eq!(sample["table"], "cats");
    assert_eq!(sample["after"][0]["stands"], "equal", "{sample}");
    assert_eq!(sample["after"][0]["item"]["kind"]["S"], "cat", "{sample}");
    let html = console.page(page);
    assert!(html.contains("Yes: writers of cats would be blocked"), "{html}");
    assert!(html.contains("<code class=\"command\">weir migrate cutover move</code>"), "{html}");
}

#[test]
fn archive_versions_counters_and_copies_are_shown() {
    let up = Up::start(&[]);
    let console = Console::of(up.folder.path());
    empty_pages_say_what_fills_them(&console);
    counters(&up, &console);
    versions(&up, &console);
    copies(&up, &console);
    archive(&up, &console);
}

fn empty_pages_say_what_fills_them(console: &Console) {
    for (path, part) in [
        ("/archive", "weir ttl sweep"),
        ("/versions", "Key of the item"),
        ("/counters", "weir counters generate"),
        ("/copies", "No origin has changed yet"),
    ] {
        let page = console.page(path);
        assert!(page.contains(part), "{path}: {page}");
    }
    for path in ["/versions?table=movies&key=%7B", "/versions?table=nosuch&key=%7B%22a%22%3A1%7D"] {
        let page = console.page(path);
        assert!(page.contains("role=\"alert\""), "{path}: {page}");
    }
    for path in ["/archive?skip=x", "/archive?do=burn"] {
        assert_eq!(console.request("GET", path, &[], "").status, 400, "{path}");
    }
}

fn counters(up: &Up, console: &Console) {
    for (slot, votes) in [("poll#0", 5), ("poll#3", 2)] {
        let item = json!({"slot": {"S": slot}, "votes": {"N": votes.to_string()}});
        up.store.ok("PutItem", &json!({"TableName": "votes", "Item": item}));
    }
    let counter = wait_for("the total", LIMIT, || {
        let twin = console.twin("/counters?counter=poll");
        let counter = twin["counters"][0].clone();
        (counter["total"] == "7").then_some(counter)
    });
    assert_eq!((&counter["sum"], &counter["difference"]), (&json!("7"), &Value::Null));
    // Simulate another program that changes the total.
    let update = json!({
        "TableName": "totals", "Key": {"counter": {"S": "poll"}},
        "UpdateExpression": "SET #t = :t", "ExpressionAttributeNames": {"#t": "total"},
        "ExpressionAttributeValues": {":t": {"N": "99"}},
    });
    up.store.ok("UpdateItem", &update);
    let page = console.page("/counters");
    assert!(
        page.contains("another program set the total to `99`") && page.contains("equal"),
        "{page}"
    );
}

fn versions(up: &Up, console: &Console) {
    for edit in 1..=3 {
        let film =
            json!({"year": {"N": "2013"}, "title": {"S": "Rush"}, "edit": {"N": edit.to_string()}});
        up.store.ok("PutItem", &json!({"TableName": "movies", "Item": film}));
    }
    let key = encoded(r#"{"year":2013,"title":"Rush"}"#);
    let path = format!("/versions?table=movies&key={key}");
    let twin = wait_for("the versions", LIMIT, || {
        let twin = console.twin(&path);
        (twin["versions"].as_array().is_some_and(|versions| versions.len() == 3)).then_some(twin)
    });
    assert_eq!(twin["versions"][0]["item"]["edit"]["N"], "3", "{twin}");
    let twin = console.twin(&format!("{path}&from=1&to=3"));
    let attributes = &twin["difference"]["attributes"];
    assert_eq!(attributes[0]["path"], "edit", "{twin}");
    assert_eq!(
        (&attributes[0]["from"]["N"], &attributes[0]["to"]["N"]),
        (&json!("1"), &json!("3"))
    );
    let page = console.page(&format!("{path}&from=1"));
    assert!(page.contains("Version 1 compared with version 3"), "{page}");
    assert!(console.page(&format!("{path}&from=9")).contains("no version 9"));
    assert_eq!(console.request("GET", &format!("{path}&from=x"), &[], "").status, 400);
    assert!(console.page("/versions?table=movies").contains("Examples of items with a history"));
}

fn copies(up: &Up, console: &Console) {
    let product = |name: &str| {
        let item = json!({"productID": {"N": "7"}, "productName": {"S": name}});
        up.store.ok("PutItem", &json!({"TableName": "products", "Item": item}));
    };
    product("Chai");
    let line = json!({"orderID": {"N": "1"}, "productID": {"N": "7"}});
    up.store.ok("PutItem", &json!({"TableName": "order-lines", "Item": line}));
    product("Chai & <Co>");
    // Each change of the origin restarts its job, so the page is read after the last change. A
    // record of the copy can make the function write the values before the job visits the copy. The
    // job then writes fewer copies, so the test reads the number that the job wrote from the table.
    let job = wait_for("the job", LIMIT, || {
        let job = up.store.scan("fan-out-jobs").into_iter().next()?;
        let is_last = job["values"]["M"]["productName"]["S"] == "Chai & <Co>";
        (is_last && job["done"]["BOOL"] == true).then_some(job)
    });
    assert_eq!(up.store.scan("order-lines")[0]["productName"]["S"], "Chai & <Co>");
    let twin = console.twin("/copies");
    assert_eq!(twin["jobs"][0]["done"], true, "{twin}");
    assert_eq!(
        twin["jobs"][0]["copies"].to_string(),
        job["copies"]["N"].as_str().unwrap(),
        "{twin}"
    );
    assert_eq!(twin["rules"]["products"]["open"], 0, "{twin}");
    let page = console.page("/copies");
    assert!(page.contains("products") && page.contains("done"), "{page}");
    assert!(console.page("/copies?table=nosuch").contains("role=\"alert\""));
}

fn archive(up: &Up, console: &Console) {
    let clock = up.store.request("GET", "/_weir/clock", "", b"").unwrap().body;
    let expires = clock["now_ms"].as_u64().unwrap() / 1000 + 600;
    for title in ["Weir", "Dam"] {
        let film = json!({
            "year": {"N": "2026"}, "title": {"S": title}, "expires_at": {"N": expires.to_string()},
        });
        up.store.ok("PutItem", &json!({"TableName": "movies", "Item": film}));
    }
    up.store.advance_clock(2 * 3600 * 1000);
    let day = wait_for("the archive", LIMIT, || {
        let twin = console.twin("/archive");
        let rows: u64 =
            twin["days"].as_array()?.iter().filter_map(|day| day["rows"].as_u64()).sum();
        (rows == 2).then(|| twin["days"][0]["day"].as_str().unwrap().to_owned())
    });
    let rows = console.twin(&format!("/archive?table=movies&day={day}"));
    let rows = rows["rows"]["rows"].as_array().unwrap().clone();
    assert!(rows.iter().any(|row| row["columns"]["title"] == "Weir"), "{rows:?}");
    assert!(console.page(&format!("/archive?table=movies&day={day}")).contains("Weir"));
    assert_eq!(console.request("GET", "/archive?table=movies&day=1999-01-01", &[], "").status, 404);
    restored(up, console);
    erased(console);
}

/// Waits until the task that a response started has ended, and returns it.
fn task_of(console: &Console, response: &Response) -> Value {
    assert_eq!(response.status, 303, "{}", response.body);
    wait_for("the task", LIMIT, || {
        let task = console.twin("/archive")["tasks"][0].clone();
        (task["state"] != "running").then_some(task)
    })
}

fn restored(up: &Up, console: &Console) {
    let fields = format!("table=movies&where={}&ttl=strip", encoded("title = Weir"));
    let preview = format!("/archive?do=restore&{fields}");
    let twin = console.twin(&preview);
    assert_eq!(twin["restore"]["counts"]["would_restore"], 1, "{twin}");
    assert!(up.store.scan("movies").iter().all(|item| item["title"]["S"] != "Weir"));
    assert_eq!(console.request("POST", "/archive/restore", &[], &fields).status, 403);
    let task = task_of(console, &console.press(&preview, "/archive/restore", &fields));
    assert!(task["state"]["done"].as_str().unwrap().contains("\"restored\":1"), "{task}");
    assert!(up.store.scan("movies").iter().any(|item| item["title"]["S"] == "Weir"));
    let twin = console.twin(&preview);
    assert_eq!(twin["restore"]["counts"]["would_restore"], 0, "{twin}");
    assert_eq!(twin["restore"]["button"], false, "{twin}");
    let twin = console.twin("/archive?do=restore&table=movies");
    let problem = twin["restore"]["problem"].as_str().unwrap();
    assert!(problem.starts_with("no rows are selected"), "{twin}");
}

fn erased(console: &Console) {
    let fields = format!("table=movies&begins_with={}", encoded("title=Da"));
    let preview = format!("/archive?do=erase&{fields}");
    let twin = console.twin(&preview);
    assert_eq!(twin["erasure"]["rows"], 1, "{twin}");
    assert!(console.page(&preview).contains("this would erase 1 row of `movies`"));
    // The form must repeat the table's name.
    assert_eq!(console.press(&preview, "/archive/erase", &fields).status, 400);
    let confirmed = format!("{fields}&confirm=movies");
    let task = task_of(console, &console.press(&preview, "/archive/erase", &confirmed));
    let receipt = task["state"]["done"].as_str().unwrap_or_default();
    assert!(receipt.contains("\"erased\"") && receipt.contains("\"rows\":1"), "{task}");
    assert_eq!(console.twin(&preview)["erasure"]["rows"], 0);
}
