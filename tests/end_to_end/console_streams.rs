//! Tests of the console's pages Pipelines, Stream, Record and Filter, requested by a browser and by
//! a program, from a real `weir up` with a function that fails for some records.

use std::process::Command;
use std::time::Duration;

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::console::{Console, encoded};
use crate::process::{LocalStore, Process, TO_BUCKET, Up, binary, pets_project, wait_for, weir};

const LIMIT: Duration = Duration::from_secs(120);

const FUNCTION: &str = r#"
def handler(event, context):
    for record in event["Records"]:
        key = record["dynamodb"]["Keys"]["id"]["S"]
        print("saw", key)
        if key == "bad":
            raise ValueError("no <bad> items")
    return {"batchItemFailures": []}
"#;

/// Creates a project with a table, a bucket, and three functions: one works, one has a misspelt
/// filter, one has a disabled mapping.
fn project() -> TempDir {
    let works = format!("FunctionResponseTypes: [ReportBatchItemFailures]\n{TO_BUCKET}");
    let misspelt = "FilterCriteria: {Filters: [{Pattern: '{\"eventName\":[\"REMOVED\"]}'}]}";
    pets_project(FUNCTION, &[("Works", &works), ("Misspelt", misspelt), ("Off", "Enabled: false")])
}

fn has_python() -> bool {
    let answer = Command::new("python3").arg("--version").output();
    answer.is_ok_and(|answer| answer.status.success())
}

fn put(up: &Up, key: &str) {
    up.store.ok("PutItem", &json!({"TableName": "pets", "Item": {"id": {"S": key}}}));
}

/// Returns the mapping of a function in the JSON version of the page Pipelines.
fn mapping(pipelines: &Value, function: &str) -> Value {
    let mappings = pipelines["mappings"].as_array().unwrap();
    let name = format!("{function}Pets");
    mappings.iter().find(|it| it["mapping"] == *name).expect("the mapping is known").clone()
}

#[test]
fn the_console_shows_why_a_function_ran_or_did_not() {
    if !has_python() {
        println!("left out: `python3` is not on this machine");
        return;
    }
    let up = Up::start_in(project(), &["--chaos", "7"]);
    let console = Console::of(up.folder.path());
    switch_chaos(&console);
    put(&up, "good");
    // Wait, so that the two records are in different batches. Otherwise both would be discarded
    // together.
    wait_for("the first record to be delivered", LIMIT, || {
        let works = mapping(&console.twin("/pipelines"), "Works");
        (works["figures"]["delivered"] == 1).then_some(())
    });
    put(&up, "bad");
    let pipelines = wait_for("both records to have an end", LIMIT, || {
        let twin = console.twin("/pipelines");
        let (works, misspelt) = (mapping(&twin, "Works"), mapping(&twin, "Misspelt"));
        let is_over = works["figures"]["discarded"] == 1 && works["figures"]["delivered"] == 1;
        (is_over && misspelt["figures"]["filtered"] == 2).then_some(twin)
    });
    pipelines_page(&console, &pipelines);
    let bad = stream_page(&console);
    record_page(&up, &console, &bad);
    filter_page(&console);
    redrive(&console, &bad);
    clock(&console);
    refusals(&console, &bad);
}

/// Goal: injected faults can be switched off. The outcome of the rest of the test is then
/// deterministic.
fn switch_chaos(console: &Console) {
    assert!(console.page("/pipelines").contains("Chaos on"));
    let answer = console.press("/pipelines", "/chaos", "to=off");
    assert_eq!(answer.status, 303, "{}", answer.body);
    assert!(console.page("/pipelines").contains("Chaos off"));
}

fn pipelines_page(console: &Console, twin: &Value) {
    assert_eq!(twin["schema"], "weir.console.pipelines/v1");
    assert_eq!(mapping(twin, "Works")["state"], "discarded");
    assert_eq!(mapping(twin, "Works")["failures_to"]["name"], "failures");
    assert_eq!(mapping(twin, "Misspelt")["state"], "all-filtered");
    assert_eq!(
        mapping(twin, "Misspelt")["sentence"],
        "its filter dropped all 2 records that it read"
    );
    assert_eq!(mapping(twin, "Off")["state"], "disabled");
    let page = console.page("/pipelines");
    for part in [
        "1 record was discarded and not redriven",
        "its filter dropped all 2 records that it read",
        "disabled in the template",
        "<svg class=\"map\"",
        "</path></g>",
        "/stream/filter?table=pets&amp;mapping=MisspeltPets",
        "aria-current=\"page\"",
    ] {
        assert!(page.contains(part), "{part}: {page}");
    }
    let events = console.events("/events?kind=figures", "data: {");
    let data = events.last().unwrap().strip_prefix("data: ").unwrap();
    let figures: Value = serde_json::from_str(data).unwrap();
    assert_eq!(figures["MisspeltPets/filtered"], "2", "{figures}");
    assert!(figures["clock"].is_string(), "{figures}");
}

/// Checks the page of the stream. Returns the sequence number of the record that the function
/// cannot process.
fn stream_page(console: &Console) -> String {
    let twin = console.twin("/stream?table=pets");
    let records = twin["records"].as_array().unwrap();
    assert_eq!(records.len(), 2, "{twin}");
    let bad = &records[0];
    assert_eq!(bad["keys"]["id"]["S"], "bad", "newest first");
    let verdict = |name: &str| {
        let mappings = bad["mappings"].as_array().unwrap();
        let name = format!("{name}Pets");
        mappings.iter().find(|it| it["mapping"] == *name).unwrap().clone()
    };
    assert_eq!(verdict("Works")["outcome"], "discarded");
    assert!(verdict("Works")["redrive"].is_string());
    assert_eq!(verdict("Misspelt")["outcome"], "filtered out");
    assert!(verdict("Misspelt")["detail"].as_str().unwrap().contains("eventName"));
    assert_eq!(verdict("Off")["outcome"], "not delivered");
    let page = console.page("/stream");
    assert!(page.contains("Redrive") && page.contains("pattern 1 of 1 does not match"), "{page}");
    let key = encoded(r#"{"id":"good"}"#);
    let found = console.twin(&format!("/stream?table=pets&key={key}"));
    assert_eq!(found["records"].as_array().unwrap().len(), 1, "{found}");
    assert_eq!(found["records"][0]["mappings"].as_array().unwrap().len(), 3);
    let none = console.page(&format!("/stream?table=pets&key={}", encoded(r#"{"id":"<x>"}"#)));
    assert!(none.contains("None of the 2 records") && none.contains("&lt;x&gt;"), "{none}");
    bad["sequence"].as_str().unwrap().to_owned()
}

/// Goal: the page of a record shows the same explanation as `weir streams explain`, and the log of
/// the attempt.
fn record_page(up: &Up, console: &Console, bad: &str) {
    let twin = console.twin(&format!("/stream/{bad}?table=pets"));
    let said = weir(up.folder.path(), &["streams", "explain", bad, "--output", "json"]);
    let explained: Value = serde_json::from_slice(&said.stdout).unwrap();
    assert_eq!(twin["explanation"], explained);
    let works = twin["mappings"].as_array().unwrap().iter().find(|it| it["mapping"] == "WorksPets");
    let attempt = &works.unwrap()["attempts"][0];
    let log = attempt["log"].to_string();
    assert!(attempt["request"].is_string() && log.contains("saw bad"), "{twin}");
    let page = console.page(&format!("/stream/{bad}"));
    for part in ["no &lt;bad&gt; items", "saw bad", "discarded", "NewImage"] {
        assert!(page.contains(part), "{part}: {page}");
    }
}

fn filter_page(console: &Console) {
    let of_mapping = console.page("/stream/filter?table=pets&mapping=MisspeltPets");
    assert!(
        of_mapping.contains("REMOVED") && of_mapping.contains("0 of 2 records match"),
        "{of_mapping}"
    );
    assert!(of_mapping.contains("Attention"), "no record can match: {of_mapping}");
    let pattern = encoded(r#"{"eventName":["INSERT"],"dynamodb":{"Keys":{"id":{"S":["bad"]}}}}"#);
    let twin = console.twin(&format!("/stream/filter?table=pets&pattern={pattern}"));
    let matches: Vec<_> =
        twin["records"].as_array().unwrap().iter().map(|it| &it["matches"]).collect();
    assert_eq!(matches, [&json!(true), &json!(false)]);
    assert!(
        twin["records"][1]["why"][0].as_str().unwrap().contains("`dynamodb.Keys.id.S`"),
        "{twin}"
    );
    for (pattern, part) in [("{", "not JSON"), (r#"{"a":1}"#, "write instead")] {
        let path = format!("/stream/filter.json?table=pets&pattern={}", encoded(pattern));
        let answer = console.request("GET", &path, &[], "");
        assert!(answer.status == 400 && answer.body.contains(part), "{}", answer.body);
    }
}

fn redrive(console: &Console, bad: &str) {
    let page = format!("/stream/{bad}");
    let twin = console.twin(&page);
    let mappings = twin["mappings"].as_array().unwrap();
    let object = mappings.iter().find_map(|it| it["redrive"].as_str()).unwrap();
    let answer = console.press(&page, "/stream/redrive", &format!("object={}", encoded(object)));
    assert_eq!(answer.status, 303, "{}", answer.body);
    let (_, location) = answer.head.split_once("location: ").unwrap();
    let shown = console.page(location.lines().next().unwrap());
    assert!(shown.contains("was invoked again with 1 record: failed"), "{shown}");
    assert!(shown.contains("; the redrive at "), "{shown}");
}

fn clock(console: &Console) {
    let answer = console.press("/pipelines", "/clock/advance", "by=1h");
    assert_eq!(answer.status, 303, "{}", answer.body);
    let token = console.token("/pipelines");
    let swept = console.request("POST", "/clock/sweep.json", &[("X-Weir-Token", &token)], "");
    assert_eq!(swept.status, 200, "{}", swept.body);
    assert!(swept.body.contains("0 expired items deleted"), "{}", swept.body);
    let wrong =
        console.request("POST", "/clock/advance.json", &[("X-Weir-Token", &token)], "by=1y");
    assert!(wrong.status == 400 && wrong.body.contains("1h or 1d"), "{}", wrong.body);
}

/// Goal: requests from another site, with a wrong token or with invalid input change nothing, and
/// get an answer.
fn refusals(console: &Console, bad: &str) {
    let token = console.token("/pipelines");
    let form = ("Content-Type", "application/x-www-form-urlencoded");
    for (headers, body) in [
        (vec![form], "by=1h".to_owned()),
        (vec![form], format!("by=1h&token={}", "0".repeat(token.len()))),
        (vec![form, ("Origin", "http://evil.test")], format!("by=1h&token={token}")),
        (vec![form, ("Origin", "null")], format!("by=1h&token={token}")),
        (vec![form, ("User-Agent", "Mozilla/5.0")], format!("by=1h&token={token}")),
    ] {
        let answer = console.request("POST", "/clock/advance", &headers, &body);
        assert_eq!(answer.status, 403, "{headers:?} {}", answer.body);
    }
    for (path, status) in [
        ("/nothing", 404),
        ("/pipelines/x.json", 404),
        ("/stream?limit=0", 400),
        ("/stream?key=%7B", 400),
        ("/stream?table=%ff", 400),
        ("/stream?table=none", 404),
        ("/stream/7.json", 404),
        ("/assets/none", 404),
        ("/assets/console.js", 200),
    ] {
        assert_eq!(console.request("GET", path, &[], "").status, status, "{path}");
    }
    assert_eq!(console.request("DELETE", "/pipelines", &[], "").status, 400);
    assert_eq!(console.request("HEAD", &format!("/stream/{bad}"), &[], "").status, 200);
}

/// Goal: for a store that another program runs, the console reads, shows which data is unavailable,
/// and writes nothing.
#[test]
fn a_console_of_another_store_only_reads() {
    let folder = tempfile::tempdir().unwrap();
    let store = LocalStore::start(folder.path());
    store.endpoint.create_table("still");
    store.endpoint.ok(
        "CreateTable",
        &json!({
            "TableName": "flows", "BillingMode": "PAY_PER_REQUEST",
            "AttributeDefinitions": [{"AttributeName": "p", "AttributeType": "S"}],
            "KeySchema": [{"AttributeName": "p", "KeyType": "HASH"}],
            "StreamSpecification": {"StreamEnabled": true, "StreamViewType": "NEW_IMAGE"},
        }),
    );
    store.endpoint.ok("PutItem", &json!({"TableName": "flows", "Item": {"p": {"S": "a"}}}));
    let url = format!("http://{}", store.endpoint.address());
    let mut command = binary("weir");
    command.args(["console", "--endpoint", &url, "--port", "0"]).current_dir(folder.path());
    let mut process = Process::start(command, folder.path().join("console.log"));
    let address = wait_for("the console", LIMIT, || {
        assert!(!process.has_ended(), "{}", process.log());
        Some(process.log().lines().next()?.split(' ').next()?.to_owned())
    });
    let console = Console::at(&address);
    let page = console.page("/pipelines");
    for part in ["cannot show", "flows", "weir up --store aws", "read-only"] {
        assert!(page.contains(part), "{part}: {page}");
    }
    assert!(!page.contains("name=\"token\"") && !page.contains(">still<"), "{page}");
    let twin = console.twin("/stream");
    assert_eq!(twin["knows_verdicts"], false);
    assert_eq!(twin["records"][0]["keys"]["p"]["S"], "a", "{twin}");
    let refused = console.request("POST", "/clock/advance.json", &[], "by=1h");
    assert!(refused.status == 403 && refused.body.contains("--allow-writes"), "{}", refused.body);
    drop(store);
    let gone = console.request("GET", "/pipelines", &[], "");
    assert!(gone.status == 502 && gone.body.contains("does not answer"), "{}", gone.body);
}
