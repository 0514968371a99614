//! A client of DynamoDB's protocol. The client opens a socket for each request. Therefore a broken
//! connection has a clear meaning: either the request was not sent, or its outcome is unknown.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use locks::Mutex;
use model::Item;
use serde_json::{Value, json};
use storage::disk::SplitMix64;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::codec;
use crate::request::{
    Answer, Change, Endpoint, Failure, KEY, Request, Shard, Start, TABLE, WRITE_ID, Write,
};

/// The time-out of an answer.
const TIMEOUT: Duration = Duration::from_secs(5);
/// The time-out of a connection.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(1);

/// The current addresses of the nodes. A process has a new port after a restart.
pub type Addresses = Arc<Mutex<Vec<Option<SocketAddr>>>>;

/// The endpoint of one client. Each request goes to a random node.
#[derive(Clone)]
pub struct WireEndpoint {
    addresses: Addresses,
    /// The positions of the processes to which no request is sent.
    without: Vec<usize>,
    dice: Arc<Mutex<SplitMix64>>,
}

impl WireEndpoint {
    /// Creates an endpoint that sends requests to the nodes at `addresses`.
    #[must_use]
    pub fn new(addresses: &Addresses, seed: u64) -> Self {
        Self::without(addresses, seed, Vec::new())
    }

    /// Creates an endpoint that sends requests to the nodes at `addresses`, except the processes
    /// `without`.
    #[must_use]
    pub fn without(addresses: &Addresses, seed: u64, without: Vec<usize>) -> Self {
        let dice = Arc::new(Mutex::new(SplitMix64::new(seed)));
        Self { addresses: Arc::clone(addresses), without, dice }
    }

    /// Returns the address of a random running node.
    fn address(&self) -> Option<SocketAddr> {
        let known = self.addresses.lock();
        let running = known.iter().enumerate().filter(|(place, _)| !self.without.contains(place));
        let running: Vec<SocketAddr> = running.filter_map(|(_, address)| *address).collect();
        let mut dice = self.dice.lock();
        running.get(dice.up_to(running.len().saturating_sub(1))).copied()
    }

    /// Sends one request and returns status and body.
    ///
    /// # Errors
    /// [`Failure::Refused`] if no process accepted the connection; [`Failure::Unknown`] for any other
    /// failure.
    pub async fn send(&self, target: &str, body: &Value) -> Result<(u16, Value), Failure> {
        let refused = |what: &str| Failure::Refused(what.to_owned());
        let address = self.address().ok_or_else(|| refused("no process"))?;
        let connected = tokio::time::timeout(CONNECT_TIMEOUT, TcpStream::connect(address)).await;
        let mut stream = match connected {
            Ok(Ok(stream)) => stream,
            Ok(Err(error)) => return Err(refused(&error.to_string())),
            Err(_) => return Err(refused("connecting timed out")),
        };
        let answered = tokio::time::timeout(TIMEOUT, exchange(&mut stream, target, body)).await;
        let text = match answered {
            Ok(Ok(text)) => text,
            Ok(Err(error)) => return Err(Failure::Unknown(error.to_string())),
            Err(_) => return Err(Failure::Unknown("no answer in time".to_owned())),
        };
        let whole = text.split_once("\r\n\r\n").and_then(|(head, body)| {
            let status = head.split(' ').nth(1)?.parse().ok()?;
            Some((status, serde_json::from_str(body).ok()?))
        });
        whole.ok_or_else(|| Failure::Unknown("the answer is truncated".to_owned()))
    }

    /// Sends one request, and fails unless the status is 200.
    async fn post(&self, target: &str, body: &Value) -> Result<Value, Failure> {
        match self.send(target, body).await? {
            (200, answer) => Ok(answer),
            (400, answer) => Err(refusal(&answer)),
            (status, answer) => Err(Failure::Unknown(format!("status {status}: {answer}"))),
        }
    }

    async fn change(&self, write: &Write) -> Result<Answer, Failure> {
        let (operation, _, mut request) = codec::write(write);
        let returned = if operation == "UpdateItem" { "ALL_NEW" } else { "ALL_OLD" };
        request.insert("ReturnValues".to_owned(), returned.into());
        if write.condition.is_some() {
            let name = "ReturnValuesOnConditionCheckFailure".to_owned();
            request.insert(name, "ALL_OLD".into());
        }
        match self.send(&format!("DynamoDB_20120810.{operation}"), &request.into()).await? {
            (200, answer) => {
                let item = codec::member(&answer, "Attributes")?;
                Ok(match write.change {
                    Change::Update(_) => Answer::Written { old: None, new: item },
                    _ => Answer::Written { old: item, new: None },
                })
            }
            (400, answer) if error_name(&answer) == "ConditionalCheckFailedException" => {
                codec::member(&answer, "Item").map(Answer::ConditionFailed)
            }
            (400, answer) => Err(refusal(&answer)),
            (status, answer) => Err(Failure::Unknown(format!("status {status}: {answer}"))),
        }
    }

    async fn transact(&self, token: Option<String>, writes: &[Write]) -> Result<Answer, Failure> {
        let items: Vec<Value> = writes
            .iter()
            .map(|write| {
                let (_, member, request) = codec::write(write);
                json!({member: request})
            })
            .collect();
        let mut request = json!({"TransactItems": items});
        if let (Some(token), Value::Object(members)) = (token, &mut request) {
            members.insert("ClientRequestToken".to_owned(), token.into());
        }
        match self.send("DynamoDB_20120810.TransactWriteItems", &request).await? {
            (200, _) => Ok(Answer::Transacted),
            (400, answer) if error_name(&answer) == "TransactionCanceledException" => {
                if has_reasons_among(&answer, &["None", "ConditionalCheckFailed"]) {
                    Ok(Answer::Cancelled)
                } else {
                    Err(refusal(&answer))
                }
            }
            (400, answer) => Err(refusal(&answer)),
            (status, answer) => Err(Failure::Unknown(format!("status {status}: {answer}"))),
        }
    }

    async fn raise_each(&self, by: u64, expected: &[(String, u64)]) -> Result<Answer, Failure> {
        let text = format!(
            "UPDATE \"{TABLE}\" SET \"{WRITE_ID}\" = \"{WRITE_ID}\" + ? WHERE \"{KEY}\" = ? AND \"{WRITE_ID}\" = ?"
        );
        let number = |number: u64| json!({"N": number.to_string()});
        let statement = |(key, from): &(String, u64)| json!({"Statement": text, "Parameters": [number(by), {"S": key}, number(*from)]});
        let statements: Vec<Value> = expected.iter().map(statement).collect();
        let request = json!({"Statements": statements});
        let answer = self.post("DynamoDB_20120810.BatchExecuteStatement", &request).await?;
        let responses = answer.get("Responses").and_then(Value::as_array);
        Ok(Answer::Each(responses.into_iter().flatten().map(is_made).collect()))
    }

    async fn get(&self, keys: &[String], strong: bool) -> Result<Vec<Option<Item>>, Failure> {
        if let [name] = keys {
            let request =
                json!({"TableName": TABLE, "Key": codec::key(name), "ConsistentRead": strong});
            let answer = self.post("DynamoDB_20120810.GetItem", &request).await?;
            return Ok(vec![codec::member(&answer, "Item")?]);
        }
        let gets: Vec<Value> = keys
            .iter()
            .map(|name| json!({"Get": {"TableName": TABLE, "Key": codec::key(name)}}))
            .collect();
        let request = json!({"TransactItems": gets});
        let answer = self.post("DynamoDB_20120810.TransactGetItems", &request).await?;
        let responses = answer.get("Responses").and_then(Value::as_array);
        responses.into_iter().flatten().map(|response| codec::member(response, "Item")).collect()
    }

    async fn stream_arn(&self) -> Result<String, Failure> {
        let request = json!({"TableName": TABLE});
        let answer = self.post("DynamoDBStreams_20120810.ListStreams", &request).await?;
        let arn = answer.pointer("/Streams/0/StreamArn").and_then(Value::as_str);
        arn.map(str::to_owned).ok_or_else(|| Failure::Refused("no stream yet".to_owned()))
    }

    async fn shards(&self) -> Result<Vec<Shard>, Failure> {
        let mut request = json!({"StreamArn": self.stream_arn().await?});
        let mut shards = Vec::new();
        loop {
            let answer = self.post("DynamoDBStreams_20120810.DescribeStream", &request).await?;
            let page = answer.pointer("/StreamDescription/Shards").and_then(Value::as_array);
            shards.extend(page.into_iter().flatten().filter_map(codec::shard));
            let last = answer.pointer("/StreamDescription/LastEvaluatedShardId").cloned();
            match (last, request.as_object_mut()) {
                (Some(last @ Value::String(_)), Some(members)) => {
                    members.insert("ExclusiveStartShardId".to_owned(), last);
                }
                _ => return Ok(shards),
            }
        }
    }

    async fn records(&self, shard: &str, start: &Start, limit: usize) -> Result<Answer, Failure> {
        let iterator = match start {
            Start::Iterator(iterator) => iterator.clone(),
            start => self.iterator(shard, start).await?,
        };
        let request = json!({"ShardIterator": iterator, "Limit": limit});
        let answer = self.post("DynamoDBStreams_20120810.GetRecords", &request).await?;
        let page = answer.get("Records").and_then(Value::as_array);
        let records: Result<Vec<_>, _> = page.into_iter().flatten().map(codec::record).collect();
        let next = answer.get("NextShardIterator").and_then(Value::as_str);
        Ok(Answer::Records(records?, next.map(|next| Start::Iterator(next.to_owned()))))
    }

    /// Returns an iterator at a position in a shard.
    ///
    /// # Errors
    /// When the request fails: see [`Failure`].
    pub async fn iterator(&self, shard: &str, start: &Start) -> Result<String, Failure> {
        let (kind, number) = match start {
            Start::TrimHorizon => ("TRIM_HORIZON", None),
            Start::Latest | Start::Iterator(_) => ("LATEST", None),
            Start::At(number) => ("AT_SEQUENCE_NUMBER", Some(number)),
            Start::After(number) => ("AFTER_SEQUENCE_NUMBER", Some(number)),
        };
        let mut request = json!({
            "StreamArn": self.stream_arn().await?, "ShardId": shard, "ShardIteratorType": kind,
        });
        if let (Some(number), Some(members)) = (number, request.as_object_mut()) {
            members.insert("SequenceNumber".to_owned(), number.as_str().into());
        }
        let answer = self.post("DynamoDBStreams_20120810.GetShardIterator", &request).await?;
        let iterator = answer.get("ShardIterator").and_then(Value::as_str).map(str::to_owned);
        iterator.ok_or_else(|| Failure::Defect(answer.to_string()))
    }

    /// Returns all items of the table or of an index. The read is not isolated from writes, so the table must
    /// be idle.
    ///
    /// # Errors
    /// When the request fails: see [`Failure`].
    pub async fn scan(&self, index: Option<&str>) -> Result<Vec<Item>, Failure> {
        let mut request = json!({"TableName": TABLE, "ConsistentRead": index.is_none()});
        if let (Some(index), Some(members)) = (index, request.as_object_mut()) {
            members.insert("IndexName".to_owned(), index.into());
        }
        let mut items = Vec::new();
        loop {
            let answer = self.post("DynamoDB_20120810.Scan", &request).await?;
            for item in answer.get("Items").and_then(Value::as_array).into_iter().flatten() {
                items.push(codec::to_item(item)?);
            }
            match (answer.get("LastEvaluatedKey").cloned(), request.as_object_mut()) {
                (Some(last), Some(members)) => {
                    members.insert("ExclusiveStartKey".to_owned(), last);
                }
                _ => return Ok(items),
            }
        }
    }
}

/// Sends a request to the admin endpoint of a process. Returns its JSON, or `None` on a time-out.
pub async fn admin(address: SocketAddr, method: &str, path: &str, body: &str) -> Option<Value> {
    let asked = async {
        let mut stream = TcpStream::connect(address).await?;
        send_and_read(&mut stream, &format!("{method} {path}"), "", body).await
    };
    let text = tokio::time::timeout(CONNECT_TIMEOUT, asked).await.ok()?.ok()?;
    serde_json::from_str(text.split_once("\r\n\r\n")?.1).ok()
}

async fn exchange(stream: &mut TcpStream, target: &str, body: &Value) -> std::io::Result<String> {
    let headers = format!("Content-Type: application/x-amz-json-1.0\r\nX-Amz-Target: {target}\r\n");
    send_and_read(stream, "POST /", &headers, &body.to_string()).await
}

async fn send_and_read(
    stream: &mut TcpStream,
    what: &str,
    headers: &str,
    body: &str,
) -> std::io::Result<String> {
    let request = format!(
        "{what} HTTP/1.1\r\nHost: localhost\r\n{headers}Content-Length: {}\r\nConnection: close\r\n\r\n{body}",
        body.len()
    );
    stream.write_all(request.as_bytes()).await?;
    let mut bytes = Vec::new();
    stream.read_to_end(&mut bytes).await?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// Returns the name of the error in an answer, without its namespace.
#[must_use]
pub fn error_name(answer: &Value) -> &str {
    let name = answer.get("__type").and_then(Value::as_str).unwrap_or_default();
    name.rsplit_once('#').map_or(name, |(_, name)| name)
}

/// Returns whether every reason of a cancelled transaction is in `expected`.
fn has_reasons_among(answer: &Value, expected: &[&str]) -> bool {
    let code = |reason: &Value| reason.get("Code").and_then(Value::as_str).map(str::to_owned);
    let reasons = answer.get("CancellationReasons").and_then(Value::as_array);
    reasons.is_some_and(|reasons| {
        reasons.iter().all(|reason| code(reason).is_some_and(|code| expected.contains(&&*code)))
    })
}

/// Returns whether a statement of a batch was applied; false if the statement's condition failed.
fn is_made(response: &Value) -> Result<bool, Failure> {
    match response.pointer("/Error/Code").and_then(Value::as_str) {
        None => Ok(true),
        Some("ConditionalCheckFailed") => Ok(false),
        Some("ResourceNotFound" | "ThrottlingError" | "TransactionConflict") => {
            Err(Failure::Refused(response.to_string()))
        }
        Some(_) => Err(Failure::Defect(response.to_string())),
    }
}

/// Classifies a refused request. A temporary refusal is a normal failure. A permanent refusal is a defect,
/// because these clients send only valid requests.
fn refusal(answer: &Value) -> Failure {
    match error_name(answer) {
        "ResourceNotFoundException"
        | "ThrottlingException"
        | "TransactionConflictException"
        | "TransactionInProgressException"
        | "ExpiredIteratorException" => Failure::Refused(answer.to_string()),
        // If a transaction has both a conflict and a failed condition, the condition may hold after
        // the conflicting transaction has ended.
        "TransactionCanceledException"
            if has_reasons_among(
                answer,
                &["None", "ConditionalCheckFailed", "TransactionConflict"],
            ) =>
        {
            Failure::Refused(answer.to_string())
        }
        _ => Failure::Defect(answer.to_string()),
    }
}

impl Endpoint for WireEndpoint {
    async fn call(&self, request: Request) -> Result<Answer, Failure> {
        match request {
            Request::Write(write) => self.change(&write).await,
            Request::Transact(token, writes) => self.transact(token, &writes).await,
            Request::RaiseEach { by, expected } => self.raise_each(by, &expected).await,
            Request::Get { keys, strong } => self.get(&keys, strong).await.map(Answer::Items),
            Request::Shards => self.shards().await.map(Answer::Shards),
            Request::Records { shard, start, limit } => self.records(&shard, &start, limit).await,
        }
    }

    fn now_seconds(&self) -> u64 {
        SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
    }
}
