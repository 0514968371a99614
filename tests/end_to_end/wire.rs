//! A minimal client of DynamoDB's protocol, with one request per connection and without an SDK. It
//! signs requests if it has an access key.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::{Duration, SystemTime};

use aws_credential_types::Credentials;
use aws_sigv4::http_request::{SignableBody, SignableRequest, SigningSettings, sign};
use aws_sigv4::sign::v4;
use serde_json::{Value, json};

/// An access key's id and secret.
pub(crate) type Key = (&'static str, &'static str);

/// The address of a store.
#[derive(Clone, Debug)]
pub(crate) struct Endpoint {
    address: String,
    /// The key that signs requests; `None` means unsigned.
    key: Option<Key>,
}

/// An answer.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) head: String,
    pub(crate) body: Value,
}

impl Answer {
    /// Returns the error's name: the part of `__type` after the `#`.
    pub(crate) fn error(&self) -> &str {
        let name = self.body["__type"].as_str().unwrap_or("");
        name.rsplit_once('#').map_or(name, |(_, error)| error)
    }

    pub(crate) fn message(&self) -> &str {
        self.body["message"].as_str().or(self.body["Message"].as_str()).unwrap_or("")
    }
}

impl Endpoint {
    pub(crate) fn new(address: &str) -> Self {
        Self { address: address.to_owned(), key: None }
    }

    pub(crate) fn signing(self, key: Key) -> Self {
        Self { key: Some(key), ..self }
    }

    pub(crate) fn key(&self) -> Option<Key> {
        self.key
    }

    pub(crate) fn address(&self) -> &str {
        &self.address
    }

    /// Sends raw bytes to an operation; `None` if the connection broke.
    pub(crate) fn try_send(&self, target: &str, body: &[u8]) -> Option<Answer> {
        let target = format!("X-Amz-Target: DynamoDB_20120810.{target}\r\n");
        self.request("POST", "/", &target, body)
    }

    pub(crate) fn request(
        &self,
        method: &str,
        path: &str,
        headers: &str,
        body: &[u8],
    ) -> Option<Answer> {
        let mut stream = TcpStream::connect(&self.address).ok()?;
        stream.set_read_timeout(Some(Duration::from_secs(60))).ok()?;
        let signature = self.key.map_or_else(String::new, |key| {
            signature(key, method, &format!("http://{}{path}", self.address), headers, body)
        });
        let head = format!(
            "{method} {path} HTTP/1.1\r\nHost: {}\r\nContent-Type: application/x-amz-json-1.0\r\n{headers}{signature}Content-Length: {}\r\nConnection: close\r\n\r\n",
            self.address,
            body.len()
        );
        // The response may arrive before the store has read the entire body. In this case, writing
        // the rest of the body fails, and the error is ignored.
        let _ = stream.write_all(head.as_bytes()).and_then(|()| stream.write_all(body));
        let mut bytes = Vec::new();
        stream.read_to_end(&mut bytes).ok()?;
        let text = String::from_utf8_lossy(&bytes).into_owned();
        let (head, body) = text.split_once("\r\n\r\n")?;
        let status = head.split(' ').nth(1)?.parse().ok()?;
        let body = serde_json::from_str(body).unwrap_or(Value::Null);
        Some(Answer { status, head: head.to_lowercase(), body })
    }

    pub(crate) fn send(&self, target: &str, body: &Value) -> Answer {
        self.try_send(target, body.to_string().as_bytes()).expect("the store answers")
    }

    /// Sends a request that must succeed.
    pub(crate) fn ok(&self, target: &str, body: &Value) -> Value {
        let answer = self.send(target, body);
        assert_eq!(answer.status, 200, "{target} {body}: {}", answer.body);
        answer.body
    }

    /// Creates a table with the key attribute `p` of type S.
    pub(crate) fn create_table(&self, name: &str) {
        self.ok(
            "CreateTable",
            &json!({
                "TableName": name, "BillingMode": "PAY_PER_REQUEST",
                "AttributeDefinitions": [{"AttributeName": "p", "AttributeType": "S"}],
                "KeySchema": [{"AttributeName": "p", "KeyType": "HASH"}],
            }),
        );
    }

    /// Returns all items of a table.
    pub(crate) fn scan(&self, table: &str) -> Vec<Value> {
        let mut items = Vec::new();
        let mut request = json!({"TableName": table, "ConsistentRead": true});
        loop {
            let page = self.ok("Scan", &request);
            items.extend(page["Items"].as_array().unwrap().iter().cloned());
            match page.get("LastEvaluatedKey") {
                Some(key) => request["ExclusiveStartKey"] = key.clone(),
                None => return items,
            }
        }
    }

    pub(crate) fn advance_clock(&self, millis: u64) {
        let body = json!({"advance_ms": millis}).to_string();
        let answer = self.request("POST", "/_weir/clock", "", body.as_bytes()).unwrap();
        assert_eq!(answer.status, 200, "{}", answer.body);
    }
}

/// Returns the header lines that sign a request (AWS Signature Version 4), including `headers`.
fn signature(key: Key, method: &str, url: &str, headers: &str, body: &[u8]) -> String {
    let identity = Credentials::new(key.0, key.1, None, None, "test").into();
    let parameters = v4::SigningParams::builder()
        .identity(&identity)
        .region("us-east-1")
        .name("dynamodb")
        .time(SystemTime::now())
        .settings(SigningSettings::default())
        .build()
        .unwrap();
    let signed = headers.lines().filter_map(|line| line.split_once(": "));
    let body = SignableBody::Bytes(body);
    let request = SignableRequest::new(method, url, signed, body).unwrap();
    let (instructions, _) = sign(request, &parameters.into()).unwrap().into_parts();
    instructions.headers().map(|(name, value)| format!("{name}: {value}\r\n")).collect()
}
