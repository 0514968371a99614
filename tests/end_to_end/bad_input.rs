//! Tests that invalid input over the network and on the command line is rejected with a message
//! that identifies it, and causes no loss of data.

use std::fs;
use std::net::TcpListener;

use serde_json::json;

use crate::process::{LocalStore, binary, weir};

/// A template whose function cannot be built.
const UNBUILDABLE: &str = "Transform: AWS::Serverless-2016-10-31
Resources:
  F:
    Type: AWS::Serverless::Function
    Metadata: {BuildMethod: rust-cargolambda}
    Properties: {CodeUri: nowhere, Handler: bootstrap, Runtime: provided.al2023}
";

/// Returns the body of a `PutItem`.
fn put(item: &serde_json::Value) -> Vec<u8> {
    json!({"TableName": "things", "Item": item}).to_string().into_bytes()
}

/// Returns a `PutItem` of an item of this many bytes, as DynamoDB counts them.
fn item_of_bytes(bytes: usize) -> Vec<u8> {
    // The names and the key take five bytes: `p`, `big` and `d`.
    put(&json!({"p": {"S": "big"}, "d": {"S": "x".repeat(bytes - 5)}}))
}

/// Returns invalid requests: for each the operation, the body, the expected error type, and a part
/// of the expected message.
fn wrong_requests() -> Vec<(&'static str, Vec<u8>, &'static str, &'static str)> {
    let digits = "1".repeat(39);
    let deep = format!("{}{}", "[".repeat(100_000), "]".repeat(100_000)).into_bytes();
    vec![
        ("PutItem", b"{\"TableName\":".to_vec(), "SerializationException", ""),
        ("PutItem", b"\xff\xfe".to_vec(), "SerializationException", ""),
        ("PutItem", deep, "SerializationException", ""),
        ("MakeCoffee", b"{}".to_vec(), "UnknownOperationException", ""),
        (
            "GetItem",
            br#"{"TableName":"nothing","Key":{"p":{"S":"a"}}}"#.to_vec(),
            "ResourceNotFoundException",
            "not found",
        ),
        ("PutItem", br#"{"TableName":7,"Item":{}}"#.to_vec(), "SerializationException", ""),
        (
            "PutItem",
            put(&json!({"p": {"N": "1"}})),
            "ValidationException",
            "Type mismatch for key p expected: S actual: N",
        ),
        (
            "PutItem",
            put(&json!({"q": {"S": "a"}})),
            "ValidationException",
            "Missing the key p in the item",
        ),
        (
            "PutItem",
            put(&json!({"p": {"S": ""}})),
            "ValidationException",
            "cannot contain an empty string value. Key: p",
        ),
        (
            "PutItem",
            put(&json!({"p": {"S": "a"}, "n": {"N": digits}})),
            "ValidationException",
            "more than 38 significant digits",
        ),
        (
            "PutItem",
            put(&json!({"p": {"S": "a"}, "n": {"N": "x"}})),
            "ValidationException",
            "cannot be converted to a numeric value: x",
        ),
        (
            "PutItem",
            item_of_bytes(400 * 1024 + 1),
            "ValidationException",
            "Item size has exceeded the maximum allowed size",
        ),
    ]
}

#[test]
fn requests_that_are_wrong_are_answered_and_change_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let store = LocalStore::start(folder.path());
    let endpoint = &store.endpoint;
    endpoint.create_table("things");
    let kept = put(&json!({"p": {"S": "kept"}}));
    assert_eq!(endpoint.try_send("PutItem", &kept).unwrap().status, 200);

    let fits = item_of_bytes(400 * 1024);
    for (target, body, error, message) in wrong_requests() {
        let shown = String::from_utf8_lossy(body.get(..body.len().min(80)).unwrap()).into_owned();
        let answer = endpoint.try_send(target, &body).unwrap();
        assert_eq!(
            (answer.status, answer.error()),
            (400, error),
            "{target} {shown}: {}",
            answer.body
        );
        assert!(answer.message().contains(message), "{target} {shown}: {}", answer.body);
        assert!(
            answer.head.contains("x-amzn-requestid: ") && answer.head.contains("x-amz-crc32: ")
        );
    }
    assert_eq!(endpoint.scan("things").len(), 1);
    assert_eq!(endpoint.try_send("PutItem", &fits).unwrap().status, 200);
    assert_eq!(endpoint.request("GET", "/", "", b"").unwrap().status, 200, "health check");
    assert_eq!(endpoint.scan("things").len(), 2);
}

#[test]
fn a_port_in_use_and_a_folder_in_use_are_named() {
    let folder = tempfile::tempdir().unwrap();
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port().to_string();
    let data = folder.path().join("other");
    let refused =
        binary("local-store").args(["--port", &port, "--data"]).arg(&data).output().unwrap();
    let said = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(
        !refused.status.success() && said.contains(&format!("port {port} on 127.0.0.1 is in use")),
        "{said}"
    );

    // `weir up` reports the invalid limit before it builds functions; the build of this template
    // would fail.
    fs::write(folder.path().join("template.yaml"), UNBUILDABLE).unwrap();
    for flag in ["--port", "--s3-port", "--invoke-port"] {
        let mut flags = vec!["up", "--port", "0", "--s3-port", "0"];
        match flags.iter().position(|it| *it == flag) {
            Some(place) => flags[place + 1] = &port,
            None => flags.extend([flag, port.as_str()]),
        }
        let refused = weir(folder.path(), &flags);
        let said = String::from_utf8_lossy(&refused.stderr).into_owned();
        assert!(!refused.status.success() && said.contains("is in use"), "{flag}: {said}");
        assert!(said.contains(&port), "{flag}: {said}");
    }

    let store = LocalStore::start(folder.path());
    let second = binary("local-store")
        .args(["--port", "0", "--data"])
        .arg(folder.path().join("data"))
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&second.stderr).into_owned();
    assert!(!second.status.success() && said.contains("stop the other process"), "{said}");
    drop(store);

    let open = binary("local-store").args(["--port", "0", "--host", "0.0.0.0"]).output().unwrap();
    let said = String::from_utf8_lossy(&open.stderr).into_owned();
    assert!(!open.status.success() && said.contains("loopback"), "{said}");
}

#[test]
fn wrong_flags_exit_with_2_first() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("template.yaml"), UNBUILDABLE).unwrap();
    for (flags, wanted) in [
        (&["--parameter", "X", "check"][..], "NAME=VALUE"),
        (&["up", "--port", "8123", "--s3-port", "8123"], "--port and --s3-port are both 8123"),
        (&["up", "--port", "9001"], "--port and --invoke-port are both 9001"),
        (&["up", "--invoke-url", "nonsense"], "write http://HOST:PORT"),
        (&["up", "--store", "aws", "--port", "0"], "--port configures the local store"),
        (
            &["up", "--store", "aws", "--throughput", "enforce"],
            "--throughput configures the local store",
        ),
        (&["counters", "fold", "--to", "5", "--totals-table", "t"], "'--totals-table'"),
        (
            &["counters", "vote", "--poll", "p", "--voter", "v", "--withdraw", "--points", "2"],
            "cannot be used with",
        ),
        (&["fan-out", "repair", "--rule", "r", "--rules", "rules.yaml"], "cannot be used with"),
        (&["fan-out", "repair", "--endpoint", "http://127.0.0.1:1"], "'--endpoint'"),
        (&["streams", "redrive", "o", "--endpoint", "http://127.0.0.1:1"], "'--endpoint'"),
        (&["streams", "redrive"], "name a failure object, or a time"),
    ] {
        let refused = weir(folder.path(), flags);
        let said = String::from_utf8_lossy(&refused.stderr).into_owned();
        assert_eq!(refused.status.code(), Some(2), "{flags:?}: {said}");
        assert!(said.contains(wanted) && !said.contains("warning"), "{flags:?}: {said}");
    }
}

#[test]
fn a_template_with_an_unknown_intrinsic_shows_the_line() {
    let folder = tempfile::tempdir().unwrap();
    let text = "Transform: AWS::Serverless-2016-10-31\nResources:\n  T:\n    Type: AWS::DynamoDB::Table\n    Properties:\n      TableName: !Frobnicate x\n";
    fs::write(folder.path().join("template.yaml"), text).unwrap();
    let refused = weir(folder.path(), &["up", "--port", "0", "--s3-port", "0"]);
    let said = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(!refused.status.success());
    for part in ["template.yaml:6:", "TableName: !Frobnicate x", "help"] {
        assert!(said.contains(part), "`{part}` is not in:\n{said}");
    }
    let missing = weir(folder.path(), &["up", "--template", "nothing.yaml"]);
    assert!(String::from_utf8_lossy(&missing.stderr).contains("cannot read `nothing.yaml`"));
}
