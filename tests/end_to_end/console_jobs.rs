//! The console's pages Migrations, Archive, Versions, Counters and Copies, asked as a browser and as a program
//! asks them, from a real `weir up`.

use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::process::{Process, Up, root, wait_for, weir};

const LIMIT: Duration = Duration::from_secs(180);
/// The largest page.
const PAGE_BYTES_MAX: usize = 60 * 1024;
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

/// A response of the console.
struct Response {
    status: u16,
    head: String,
    body: String,
}

/// The console of a `weir up`.
struct Console {
    address: String,
}

impl Console {
    fn of(up: &Up) -> Self {
        let running = fs::read_to_string(up.folder.path().join(".weir/running.json")).unwrap();
        let running: Value = serde_json::from_str(&running).unwrap();
        let url = running["console"].as_str().unwrap();
        Self { address: url.strip_prefix("http://").unwrap().to_owned() }
    }

    fn request(&self, method: &str, path: &str, body: &str) -> Response {
        let mut stream = TcpStream::connect(&self.address).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        let head = format!(
            "{method} {path} HTTP/1.1\r\nHost: {}\r\nContent-Type: application/x-www-form-urlencoded\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{body}",
            self.address,
            body.len()
        );
        stream.write_all(head.as_bytes()).unwrap();
        let mut text = String::new();
        stream.read_to_string(&mut text).unwrap();
        let (head, body) = text.split_once("\r\n\r\n").unwrap();
        let status = head.split(' ').nth(1).unwrap().parse().unwrap();
        Response { status, head: head.to_owned(), body: body.to_owned() }
    }

    /// Returns a page, which is small and has no inline style or script.
    fn page(&self, path: &str) -> String {
        let response = self.request("GET", path, "");
        assert_eq!(response.status, 200, "{path}: {}", response.body);
        assert!(response.body.len() <= PAGE_BYTES_MAX, "{path}: {} bytes", response.body.len());
        for inline in ["style=\"", "onclick", "<style"] {
            assert!(!response.body.contains(inline), "{path}: {inline}");
        }
        response.body
    }

    /// Returns the JSON twin of a page.
    fn twin(&self, path: &str) -> Value {
        let (path, query) = path.split_once('?').unwrap_or((path, ""));
        let response = self.request("GET", &format!("{path}.json?{query}"), "");
        assert_eq!(response.status, 200, "{path}: {}", response.body);
        serde_json::from_str(&response.body).unwrap()
    }

    /// Sends a form with the token in a page that has a form with an action.
    fn send(&self, page: &str, action: &str, fields: &str) -> Response {
        let page = self.page(page);
        let (_, token) = page.split_once("name=\"token\" value=\"").unwrap();
        let token = token.split('"').next().unwrap();
        self.request("POST", action, &format!("token={token}&back=/archive&{fields}"))
    }
}

/// Percent-encodes a text for a query.
fn encoded(text: &str) -> String {
    let is_plain = |byte: &u8| byte.is_ascii_alphanumeric();
    let encode = |byte: u8| match is_plain(&byte) {
        true => char::from(byte).to_string(),
        false => format!("%{byte:02X}"),
    };
    text.bytes().map(encode).collect()
}

#[test]
fn a_migration_is_watched_and_adjusted_from_its_page() {
    let up = Up::start(&[]);
    let console = Console::of(&up);
    assert!(console.page("/migrations").contains("weir migrate start PLAN"));
    assert_eq!(console.request("GET", "/migrations/move", "").status, 404);
    assert_eq!(console.request("GET", "/migrations/move.json", "").status, 404);
    let mut workers = begin(&up);
    let page = "/migrations/move";
    wait_for("the backfill", LIMIT, || {
        assert!(!workers.has_ended(), "{}", workers.log());
        let found = console.request("GET", "/migrations/move.json", "");
        (found.status == 200 && found.body.contains("\"phase\":\"copying\"")).then_some(())
    });
    paused_and_resumed(&console, page);
    let done = console.send(page, "/migrations/move/throttle", "rate=0");
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

/// Returns the verbs of a twin that have a button, and those that are commands.
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
    for part in ["aria-current=\"step\"", "2 allowed", "&lt;b&gt;Tom", "started by a person"] {
        assert!(html.contains(part), "{part}\n{html}");
    }
    // Without the token nothing changes, and what has no button has no action.
    assert_eq!(console.request("POST", "/migrations/move/pause", "back=/").status, 403);
    assert_eq!(console.send(page, "/migrations/move/cutover", "").status, 404);
    assert_eq!(console.send(page, "/migrations/move/throttle", "rate=fast").status, 400);
    assert_eq!(console.send(page, "/migrations/other/pause", "").status, 404);
    assert_eq!(console.twin(page)["paused"], false);
    let done = console.send(page, "/migrations/move/pause", "");
    assert_eq!(done.status, 303, "{}", done.body);
    assert!(done.head.to_lowercase().contains("location: /archive"), "{}", done.head);
    let twin = console.twin(page);
    assert_eq!(twin["paused"], true, "{twin}");
    assert!(has(&verbs(&twin).0, "resume") && !has(&verbs(&twin).0, "pause"), "{twin}");
    assert!(console.page(page).contains("copying (paused)"));
    assert_eq!(console.send(page, "/migrations/move/resume", "").status, 303);
    assert_eq!(console.twin(page)["paused"], false);
}

/// After a comparison without differences, and once the streams were read, a cut-over is safe.
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
    let console = Console::of(&up);
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
        assert_eq!(console.request("GET", path, "").status, 400, "{path}");
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
    // Another program writes the total.
    let update = json!({
        "TableName": "totals", "Key": {"counter": {"S": "poll"}},
        "UpdateExpression": "SET #t = :t", "ExpressionAttributeNames": {"#t": "total"},
        "ExpressionAttributeValues": {":t": {"N": "99"}},
    });
    up.store.ok("UpdateItem", &update);
    let page = console.page("/counters");
    assert!(page.contains("another program wrote `99`") && page.contains("equal"), "{page}");
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
    assert_eq!(console.request("GET", &format!("{path}&from=x"), "").status, 400);
    assert!(console.page("/versions?table=movies").contains("Some items with a history"));
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
    let twin = wait_for("the job", LIMIT, || {
        let twin = console.twin("/copies");
        let is_done = twin["jobs"][0]["done"] == true && twin["jobs"][0]["copies"] == 1;
        is_done.then_some(twin)
    });
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
    assert_eq!(console.request("GET", "/archive?table=movies&day=1999-01-01", "").status, 404);
    restored(up, console);
    erased(console);
}

/// Waits until the task that a response started has ended, and returns it.
fn task_of(console: &Console, response: &Response) -> Value {
    assert_eq!(response.status, 303, "{}", response.body);
    let (_, id) = response.head.split_once("task=").unwrap();
    let id = id.lines().next().unwrap().trim();
    wait_for("the task", LIMIT, || {
        let task = console.twin(&format!("/archive?task={id}"))["task"].clone();
        (task["state"] != "running").then_some(task)
    })
}

fn restored(up: &Up, console: &Console) {
    let fields = format!("table=movies&where={}&ttl=strip", encoded("title = Weir"));
    let preview = format!("/archive?do=restore&{fields}");
    let twin = console.twin(&preview);
    assert_eq!(twin["restore"]["counts"]["would_restore"], 1, "{twin}");
    assert!(up.store.scan("movies").iter().all(|item| item["title"]["S"] != "Weir"));
    assert_eq!(console.request("POST", "/archive/restore", &fields).status, 403);
    let task = task_of(console, &console.send(&preview, "/archive/restore", &fields));
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
    // The form has to repeat the table's name.
    assert_eq!(console.send(&preview, "/archive/erase", &fields).status, 400);
    let confirmed = format!("{fields}&confirm=movies");
    let task = task_of(console, &console.send(&preview, "/archive/erase", &confirmed));
    let receipt = task["state"]["done"].as_str().unwrap_or_default();
    assert!(receipt.contains("\"erased\"") && receipt.contains("\"rows\":1"), "{task}");
    assert_eq!(console.twin(&preview)["erasure"]["rows"], 0);
}
