//! Tests of authentication and connection limits at every listener of the product.
//!
//! Goal: a page in a browser can change nothing at any listener, no client can block others by idle
//! connections, and other users of the machine can read nothing below `.weir`. Method: raw requests
//! as a browser sends them, a thousand connections to a process that may open 256 files, and a walk
//! over the folder.

use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use serde_json::{Value, json};

use crate::process::{LocalStore, Process, Up, limited, wait_for};
use crate::wire::Endpoint;

/// The maximum number of file descriptors of the process under test.
const LIMIT: u32 = 256;
/// The number of idle connections of a client.
const IDLE: usize = 1_000;

/// Sends a raw request, and returns the status and the body of the answer.
fn send(address: &str, head: &str, body: &str) -> (u16, String) {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
    let length = body.len();
    let request = format!("{head}\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n{body}");
    stream.write_all(request.as_bytes()).unwrap();
    let mut bytes = Vec::new();
    stream.read_to_end(&mut bytes).unwrap();
    let text = String::from_utf8_lossy(&bytes).into_owned();
    (text.split(' ').nth(1).unwrap().parse().unwrap(), text)
}

/// Waits until a function of this `weir up` runs, and returns an environment variable of its
/// process.
fn variable_of_function(store: &str, name: &str) -> String {
    wait_for("a function to run", Duration::from_secs(60), || {
        for entry in fs::read_dir("/proc").unwrap().flatten() {
            let Ok(bytes) = fs::read(entry.path().join("environ")) else { continue };
            let text = String::from_utf8_lossy(&bytes).into_owned();
            let value_of = |name: &str| text.split('\0').find_map(|v| v.strip_prefix(name));
            if value_of("AWS_ENDPOINT_URL_DYNAMODB=") == Some(&format!("http://{store}"))
                && let Some(value) = value_of(&format!("{name}="))
            {
                return Some(value.to_owned());
            }
        }
        None
    })
}

fn address_of(running: &Value, name: &str) -> String {
    running[name].as_str().unwrap().strip_prefix("http://").unwrap().to_owned()
}

/// Collects every file and folder below `folder` that other users can access.
fn open_to_others(folder: &Path, found: &mut Vec<String>) {
    for entry in fs::read_dir(folder).unwrap() {
        let entry = entry.unwrap();
        let (path, metadata) = (entry.path(), entry.metadata().unwrap());
        let mode = metadata.permissions().mode() & 0o777;
        if !metadata.is_symlink() && mode & 0o077 != 0 {
            found.push(format!("{mode:o} {}", path.display()));
        }
        if metadata.is_dir() {
            open_to_others(&path, found);
        }
    }
}

#[test]
fn no_listener_takes_what_a_page_in_a_browser_sends() {
    let up = Up::start(&[]);
    let text = fs::read_to_string(up.folder.path().join(".weir/running.json")).unwrap();
    let running: Value = serde_json::from_str(&text).unwrap();
    let (store, s3) = (up.store.address().to_owned(), address_of(&running, "s3"));
    let lambda = address_of(&running, "lambda");
    let bucket = running["buckets"][0].as_str().unwrap();
    let object = format!("/{bucket}/victim");
    assert_eq!(send(&s3, &format!("PUT {object} HTTP/1.1\r\nHost: {s3}"), "here").0, 200);
    up.store.create_table("victims");
    up.store.ok("PutItem", &json!({"TableName": "victims", "Item": {"p": {"S": "here"}}}));
    let functions = running["functions"].as_object().unwrap();
    let function = functions.values().next().unwrap().as_str().unwrap();
    let invoke = format!("/2015-03-31/functions/{function}/invocations");
    // After this request, the function's process is running, even if the function fails.
    send(&lambda, &format!("POST {invoke} HTTP/1.1\r\nHost: {lambda}"), "{}");
    let runtime = variable_of_function(&store, "AWS_LAMBDA_RUNTIME_API");
    let delete = r#"{"TableName":"victims","Key":{"p":{"S":"here"}}}"#;
    let erase = "<Delete><Object><Key>victim</Key></Object></Delete>";
    let target = "\r\nX-Amz-Target: DynamoDB_20120810.DeleteItem";
    let requests = [
        (&store, "POST /".to_owned(), target, delete),
        (&store, "POST /_weir/clock".to_owned(), "", r#"{"freeze":true}"#),
        (&s3, format!("POST /{bucket}?delete"), "", erase),
        (&s3, format!("POST /{bucket}"), "", "form"),
        (&s3, format!("DELETE {object}"), "", ""),
        (&lambda, format!("POST {invoke}"), "\r\nX-Amz-Invocation-Type: DryRun", "{}"),
        (&runtime, "POST /2018-06-01/runtime/invocation/none/response".to_owned(), "", "{}"),
    ];
    for (listener, request, extra, body) in &requests {
        let own = format!("Host: {listener}");
        for (headers, part) in [
            ("Host: evil.example".to_owned(), "--allow-host"),
            (format!("{own}\r\nOrigin: http://evil.example"), "--allow-origin"),
            (format!("{own}\r\nOrigin: null\r\nContent-Type: text/plain"), "--allow-origin"),
            (format!("{own}\r\nSec-Fetch-Site: cross-site"), "--allow-origin"),
            (format!("{own}\r\nHost: evil.example"), "exactly one `Host`"),
        ] {
            let head = format!("{request} HTTP/1.1\r\n{headers}{extra}");
            let (status, text) = send(listener, &head, body);
            assert!(status == 403 && text.contains(part), "{head}: {text}");
        }
        let (status, text) = send(listener, &format!("{request} HTTP/1.0"), body);
        assert_eq!(status, 403, "{request} without a host: {text}");
    }
    assert_eq!(send(&s3, &format!("GET {object} HTTP/1.1\r\nHost: {s3}"), "").0, 200);
    assert_eq!(up.store.scan("victims").len(), 1);
    // The same requests from a program succeed, so the requests above were rejected because of the
    // headers that a browser adds.
    for (listener, request, extra, body) in &requests {
        let head = format!("{request} HTTP/1.1\r\nHost: {listener}{extra}");
        let (status, text) = send(listener, &head, body);
        assert_ne!(status, 403, "{head}: {text}");
    }
    assert_eq!(up.store.scan("victims").len(), 0);
    let mut found = Vec::new();
    open_to_others(&up.folder.path().join(".weir"), &mut found);
    assert!(found.is_empty(), "others can use these:\n{}", found.join("\n"));
}

/// Raises the limit of file descriptors of the test's process, and opens idle connections.
fn idle(address: &str, count: usize) -> Vec<TcpStream> {
    let process = std::process::id().to_string();
    let raised = Command::new("prlimit").args(["--pid", &process, "--nofile=8192:"]).status();
    assert!(raised.unwrap().success());
    (0..count).map(|_| TcpStream::connect(address).unwrap()).collect()
}

/// Puts items of 350 KB with these numbers, which follow the numbers of existing items.
fn put_large_items(store: &Endpoint, numbers: std::ops::Range<usize>) {
    let text = "x".repeat(350 * 1024);
    let count = numbers.end;
    for number in numbers {
        let item = json!({"p": {"S": number.to_string()}, "text": {"S": text}});
        store.ok("PutItem", &json!({"TableName": "large", "Item": item}));
    }
    assert_eq!(store.scan("large").len(), count);
}

fn open_descriptors(process: &Process) -> usize {
    fs::read_dir(format!("/proc/{}/fd", process.id())).unwrap().count()
}

#[test]
fn idle_connections_do_not_block_a_store() {
    for key in [None, Some(("AKIAIDLE", "secret"))] {
        let folder = tempfile::tempdir().unwrap();
        let keys = folder.path().join("keys");
        let mut flags = Vec::new();
        if let Some((id, secret)) = key {
            let text = format!("[a]\naws_access_key_id={id}\naws_secret_access_key={secret}\n");
            let mut file = fs::File::options();
            let mut file = file.create_new(true).write(true).mode(0o600).open(&keys).unwrap();
            file.write_all(text.as_bytes()).unwrap();
            flags.extend(["--access-keys", keys.to_str().unwrap()]);
        }
        let store = LocalStore::start_limited(folder.path(), &flags, LIMIT);
        let endpoint = match key {
            Some(key) => store.endpoint.clone().signing(key),
            None => store.endpoint.clone(),
        };
        endpoint.create_table("large");
        let before = idle(endpoint.address(), IDLE);
        put_large_items(&endpoint, 0..60);
        // Clients that send a partial head or body do not block others either.
        let mut partial = idle(endpoint.address(), 200);
        for (number, stream) in partial.iter_mut().enumerate() {
            let text =
                ["POST / HT", "POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9\r\n\r\n{"];
            // The connection may already be closed.
            let _ = stream.write_all(text[number % 2].as_bytes());
        }
        put_large_items(&endpoint, 60..65);
        assert!(open_descriptors(&store.process) < LIMIT as usize);
        assert!(!store.process.log().contains("Too many open files"), "{}", store.process.log());
        drop(before);
    }
}

/// A table and a bucket, without functions to build.
const TEMPLATE: &str = "Resources:
  Large:
    Type: AWS::DynamoDB::Table
    Properties:
      TableName: large
      BillingMode: PAY_PER_REQUEST
      AttributeDefinitions: [{AttributeName: p, AttributeType: S}]
      KeySchema: [{AttributeName: p, KeyType: HASH}]
  Bucket:
    Type: AWS::S3::Bucket
    Properties:
      BucketName: bucket
";

#[test]
fn idle_connections_to_any_listener_leave_the_store_of_weir_up_alone() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("template.yaml"), TEMPLATE).unwrap();
    let up = Up::start_limited(folder, LIMIT);
    let text = fs::read_to_string(up.folder.path().join(".weir/running.json")).unwrap();
    let running: Value = serde_json::from_str(&text).unwrap();
    for name in ["s3", "lambda", "dynamodb"] {
        let address = address_of(&running, name);
        let _open = idle(&address, IDLE);
        put_large_items(&up.store, 0..60);
        let s3 = address_of(&running, "s3");
        let put = format!("PUT /bucket/{name} HTTP/1.1\r\nHost: {s3}");
        assert_eq!(send(&s3, &put, "content").0, 200, "{name}");
    }
    assert!(open_descriptors(&up.process) < LIMIT as usize);
    let log = up.process.log();
    assert!(!log.contains("Too many open files"), "{log}");
}

/// Goal: a limit that is too low is rejected with an instruction. This also validates `limited`.
#[test]
fn a_limit_that_is_too_low_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let mut command = crate::process::binary("local-store");
    command.args(["--port", "0", "--data"]).arg(folder.path().join("data"));
    let output = limited(&command, 64).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(!output.status.success() && said.contains("may open 64"), "{said}");
    assert!(said.contains("ulimit -Hn"), "{said}");
}
