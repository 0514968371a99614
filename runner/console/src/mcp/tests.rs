//! Tests of the catalog's completeness, of the conversion of calls to requests, and of a complete
//! exchange with a client.

use std::collections::BTreeSet;
use std::path::Path;

use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt, duplex, split};

use super::tool::placeholder;
use super::*;
use crate::context::Place;
use crate::query::href;

/// Actions without a tool. They belong to the `weir up` that serves the console, or a person must
/// see what they change. `*` stands for a name.
const NOT_OFFERED: [&str; 7] = [
    "/chaos",
    "/tables/*/item/save",
    "/tables/*/item/create",
    "/tables/*/item/delete",
    "/partitions/*/split",
    "/archive/restore",
    "/archive/erase",
];

/// Returns the paths that a function of `service` matches, with `*` for each name.
fn matched_by(function: &str) -> Vec<String> {
    let source = include_str!("../service.rs");
    let (_, behind) = source.split_once(&format!("async fn {function}(")).unwrap();
    let (body, _) = behind.split_once("\n}\n").unwrap();
    let lines = body.lines().map(str::trim).filter(|line| line.starts_with('['));
    let patterns = lines.filter_map(|line| line.split_once(" =>")).map(|(patterns, _)| patterns);
    let mut paths = Vec::new();
    for pattern in patterns.flat_map(|patterns| patterns.split(" | ")) {
        let inner = pattern.strip_prefix('[').unwrap().strip_suffix(']').unwrap();
        let segments = inner.split(", ").filter(|segment| !segment.is_empty());
        let segment = |segment: &str| {
            let literal = segment.strip_prefix('"').and_then(|rest| rest.strip_suffix('"'));
            format!("/{}", literal.unwrap_or("*"))
        };
        paths.extend(Some(segments.map(segment).collect::<String>()).filter(|it| !it.is_empty()));
    }
    paths
}

/// Returns the paths of a tool, with `*` for each parameter. If the last parameter is optional,
/// also returns the path without it.
fn paths_of(tool: &Tool) -> Vec<String> {
    let star = |segment: &'static str| placeholder(segment).map_or(segment, |_| "*");
    let whole: String = tool.segments().map(|segment| format!("/{}", star(segment))).collect();
    let is_optional =
        |name: &str| tool.parameters.iter().any(|it| it.name == name && !it.is_required);
    match tool.segments().last().and_then(placeholder) {
        Some(last) if is_optional(last) => {
            vec![whole.strip_suffix("/*").unwrap().to_owned(), whole]
        }
        _ => vec![whole],
    }
}

fn tool(name: &str) -> &'static Tool {
    CATALOG.iter().find(|tool| tool.name == name).unwrap()
}

#[test]
fn every_page_is_a_tool() {
    let pages = matched_by("page");
    assert!(pages.len() >= 4, "{pages:?}");
    let readers = CATALOG.iter().filter(|tool| tool.effect == Effect::Reads);
    let offered: BTreeSet<String> = readers.flat_map(paths_of).collect();
    let forgotten: Vec<_> = pages.iter().filter(|path| !offered.contains(*path)).collect();
    assert!(forgotten.is_empty(), "without an entry in `catalog`: {forgotten:?}");
}

#[test]
fn every_action_is_a_tool_or_needs_a_person() {
    let actions = matched_by("act");
    assert!(actions.len() >= 4, "{actions:?}");
    let changers = CATALOG.iter().filter(|tool| tool.effect != Effect::Reads);
    let offered: Vec<String> = changers.flat_map(paths_of).collect();
    // One match arm may cover several subcommands.
    let fits = |pattern: &str, path: &str| {
        let (pattern, path): (Vec<_>, Vec<_>) =
            (pattern.split('/').collect(), path.split('/').collect());
        pattern.len() == path.len() && pattern.iter().zip(&path).all(|(a, b)| *a == "*" || a == b)
    };
    let is_known = |action: &str| {
        NOT_OFFERED.contains(&action) || offered.iter().any(|path| fits(action, path))
    };
    let forgotten: Vec<_> = actions.iter().filter(|action| !is_known(action)).collect();
    assert!(forgotten.is_empty(), "neither in `catalog` nor in NOT_OFFERED: {forgotten:?}");
}

/// Goal: no parameter is misspelt. A page ignores unknown fields, so a misspelt parameter would
/// have no effect.
#[test]
fn every_parameter_is_read_by_its_page() {
    let pages = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/pages");
    let mut count = 0;
    for tool in CATALOG.iter().filter(|tool| tool.effect == Effect::Reads) {
        let mut source = String::new();
        let mut folders = vec![pages.join(tool.name)];
        while let Some(folder) = folders.pop() {
            for entry in std::fs::read_dir(folder).into_iter().flatten() {
                let path = entry.unwrap().path();
                match path.is_dir() {
                    true => folders.push(path),
                    false => source.push_str(&std::fs::read_to_string(path).unwrap()),
                }
            }
        }
        let in_path = |name: &str| tool.segments().any(|it| placeholder(it) == Some(name));
        for parameter in tool.parameters.iter().filter(|it| !in_path(it.name)) {
            let is_read = source.is_empty() || source.contains(&format!("\"{}\"", parameter.name));
            assert!(is_read, "the page `{}` does not read `{}`", tool.name, parameter.name);
            count += usize::from(!source.is_empty());
        }
    }
    assert!(count >= 8, "only {count} parameters found");
}

#[test]
fn the_catalog_is_sound() {
    let names: BTreeSet<&str> = CATALOG.iter().map(|tool| tool.name).collect();
    assert_eq!(names.len(), CATALOG.len());
    let page = include_str!("../../../../docs/mcp.md");
    let absent: Vec<_> = names.iter().filter(|it| !page.contains(&format!("`{it}`"))).collect();
    assert!(absent.is_empty(), "not in docs/mcp.md: {absent:?}");
    for tool in CATALOG {
        let own: BTreeSet<&str> = tool.parameters.iter().map(|it| it.name).collect();
        assert_eq!(own.len(), tool.parameters.len(), "{}", tool.name);
        assert!(
            tool.description.ends_with('.') && !tool.description.ends_with(".."),
            "{}",
            tool.name
        );
        let segments: Vec<_> = tool.segments().collect();
        for (place, name) in
            segments.iter().enumerate().filter_map(|(at, it)| Some((at, placeholder(it)?)))
        {
            let parameter = tool.parameters.iter().find(|it| it.name == name).unwrap();
            // Only the last segment may be optional: if an earlier one is omitted, the segments
            // after it move forward.
            assert!(parameter.is_required || place + 1 == segments.len(), "{}", tool.name);
        }
    }
}

/// Calls, and the address or the error that results from each.
const CALLS: &str = r#"
pipelines {} => /pipelines
stream {"limit":5,"table":"a b","key":{"id":"x"}} => /stream?table=a%20b&key=%7B%22id%22%3A%22x%22%7D&limit=5
stream {"key":"{\"id\":1}","table":null} => /stream?key=%7B%22id%22%3A1%7D
record {"record":"a/b.json"} => /stream/a%2Fb%2Ejson
item {"table":"t","key":{"n":{"N":"1.5"}}} => /tables/t/item?key=%7B%22n%22%3A%7B%22N%22%3A%221%2E5%22%7D%7D
table {"table":"t","consistent":true,"sk_op":"<"} => /tables/t?sk_op=%3C&consistent=1
table {"table":"t","consistent":false,"pk":""} => /tables/t
partitions {} => /partitions
partitions {"table":"t"} => /partitions/t
migration_throttle {"name":"m","rate":0} => /migrations/m/throttle?rate=0
ring {"x":1} => the arguments: `ring` has no argument `x`; write instead: no argument
stream {"tabel":"t"} => the arguments: `stream` has no argument `tabel`; write instead: table, key, limit
stream {"limit":"5"} => limit: it is a string; write instead: a whole number from 1 to 100
stream {"limit":-5} => limit: it is a negative or fractional number; write instead: a whole number from 1 to 100
stream {"key":{"id":1.5}} => key: a number may have lost digits because it is a JSON number; write instead: numbers as DynamoDB JSON: {"id":{"N":"1.5"}}
stream {"key":["a"]} => key: it is a list; write instead: a JSON object: {"id":"a"}
record {"record":17} => record: it is a number; write instead: a string, in quotes
record {"record":""} => record: not given; write instead: Sequence number or event id, as `stream` lists it, in quotes
table {"table":"t","consistent":"yes"} => consistent: it is a string; write instead: true or false
clock_advance {"by":1} => by: it is a number; write instead: 1h or 1d
"#;

#[test]
fn a_call_becomes_a_request_or_says_what_to_write() {
    for line in CALLS.trim().lines() {
        let (call, expected) = line.split_once(" => ").unwrap();
        let (name, arguments) = call.split_once(' ').unwrap();
        let made = match tool(name).request(&serde_json::from_str(arguments).unwrap()) {
            Ok(Request { path, query }) => {
                let path: Vec<&str> = path.iter().map(String::as_str).collect();
                href(&path, &query.fields().collect::<Vec<_>>())
            }
            Err(error) => error.to_string(),
        };
        assert_eq!(made, expected, "{call}");
    }
}

#[test]
fn a_schema_names_type_bounds_and_what_is_required() {
    assert_eq!(
        Value::Object(tool("clock_advance").schema()),
        json!({
            "type": "object",
            "properties": {
                "by": {"type": "string", "enum": ["1h", "1d"], "description": "An hour or a day"},
            },
            "required": ["by"],
            "additionalProperties": false,
        })
    );
    let stream = Value::Object(tool("stream").schema());
    assert_eq!(stream["required"], json!([]));
    assert_eq!(stream["properties"]["key"]["type"], "object");
    let limit = &stream["properties"]["limit"];
    assert_eq!((&limit["type"], &limit["maximum"]), (&json!("integer"), &json!(100)));
    let table = Value::Object(tool("table").schema());
    assert_eq!(table["properties"]["consistent"]["type"], "boolean");
}

#[test]
fn a_page_that_shows_a_problem_is_an_error_for_an_assistant() {
    for (page, is_error) in [
        (json!({"schema": "s", "problem": {"what": "no", "where": "pk", "instead": "1"}}), true),
        (json!({"schema": "s", "problem": "no such table"}), true),
        (json!({"schema": "s", "problem": null}), false),
        (json!({"schema": "s", "items": [{"problem": "of an item"}]}), false),
    ] {
        let answer = answer(Ok(page.to_string()));
        assert_eq!(answer.is_error, Some(is_error), "{page}");
    }
}

/// Sends messages as a client, closes its output, and returns all answers, ordered by id.
async fn exchange(allow_writes: bool, messages: &[Value]) -> Vec<Value> {
    let place = Place {
        endpoint: "http://127.0.0.1:9".to_owned(),
        s3: None,
        own: None,
        directory: None,
        chaos: None,
        allow_writes,
    };
    let (client, server) = duplex(256 * 1024);
    let (input, output) = split(server);
    let served = tokio::spawn(serve_over(Context::new(place).unwrap(), input, output));
    let (mut answers, mut sent) = split(client);
    for message in messages {
        sent.write_all(format!("{message}\n").as_bytes()).await.unwrap();
    }
    sent.shutdown().await.unwrap();
    let mut text = String::new();
    answers.read_to_string(&mut text).await.unwrap();
    served.await.unwrap().unwrap();
    let mut answers: Vec<Value> =
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    answers.sort_by_key(|answer| answer["id"].as_u64());
    answers
}

fn opening() -> Vec<Value> {
    vec![
        json!({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {
            "protocolVersion": "2025-06-18", "capabilities": {},
            "clientInfo": {"name": "test", "version": "1"}}}),
        json!({"jsonrpc": "2.0", "method": "notifications/initialized"}),
        json!({"jsonrpc": "2.0", "id": 2, "method": "tools/list"}),
    ]
}

fn call(id: u64, name: &str, arguments: &Value) -> Value {
    json!({"jsonrpc": "2.0", "id": id, "method": "tools/call",
        "params": {"name": name, "arguments": arguments}})
}

#[tokio::test]
async fn a_client_sees_only_pages_unless_writes_are_allowed() {
    let mut messages = opening();
    messages.push(call(3, "stream", &json!({"limit": 101})));
    messages.push(call(4, "clock_advance", &json!({"by": "2h"})));
    messages.push(call(5, "erase", &json!({})));
    for allow_writes in [false, true] {
        let answers = exchange(allow_writes, &messages).await;
        let [opened, listed, limit, clock, unknown] = answers.as_slice() else {
            panic!("{answers:?}")
        };
        assert_eq!(opened["result"]["serverInfo"]["name"], "weir");
        assert!(opened["result"]["instructions"].as_str().unwrap().contains("`pipelines`"));
        let tools = listed["result"]["tools"].as_array().unwrap();
        let reading = |tool: &&Value| tool["annotations"]["readOnlyHint"] == true;
        let pages = CATALOG.iter().filter(|tool| tool.effect == Effect::Reads).count();
        assert_eq!(tools.iter().filter(reading).count(), pages);
        assert_eq!(tools.len(), if allow_writes { CATALOG.len() } else { pages });
        let text = |answer: &Value| {
            assert_eq!(answer["result"]["isError"], true, "{answer}");
            answer["result"]["content"][0]["text"].as_str().unwrap().to_owned()
        };
        assert!(
            text(limit)
                .contains("`101` is not a number in the allowed range; write instead: 1 to 100")
        );
        let refused = if allow_writes { "write instead: 1h or 1d" } else { "--allow-writes" };
        assert!(text(clock).contains(refused), "{clock}");
        let message = unknown["error"]["message"].as_str().unwrap();
        assert!(message.starts_with("unknown tool `erase`; use one of pipelines, "), "{message}");
        assert_eq!(message.contains("redrive"), allow_writes);
    }
}

#[tokio::test]
async fn an_input_without_a_request_ends_the_server() {
    assert!(exchange(false, &[]).await.is_empty());
}
