//! The tables of a run: made, filled, summed, deleted.
//!
//! Their names are new for each run, so that nobody's table is touched. Nothing is measured here.

use std::time::Duration;

use indicatif::ProgressBar;
use serde_json::{Value, json};

use super::request::{self, BATCH_ITEMS, QUERY_ITEMS, Request, SLOTS};
use super::workload::{self, Follower, Operation, Tables};
use client::plain_http::{Connection, Endpoint};

/// How long one request may take, and a new table to become ready.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(60);
/// Pause between two looks at a table that is not ready.
const READY_PAUSE: Duration = Duration::from_millis(200);
const READY_LOOKS_MAX: u32 = 300;

/// A connection for what is not measured.
pub(super) struct Fixture {
    endpoint: Endpoint,
    connection: Connection,
    operations: Vec<Operation>,
    followers: Vec<Follower>,
    pub(super) tables: Tables,
}

impl Fixture {
    /// Connects, and names the tables.
    ///
    /// # Errors
    /// When nobody answers at the endpoint.
    pub(super) async fn open(
        endpoint: Endpoint,
        item_count: u64,
        partition_count: u64,
        operations: &[Operation],
        followers: &[Follower],
    ) -> Result<Self, String> {
        let connection = Connection::open(&endpoint)
            .await
            .map_err(|error| format!("cannot connect to http://{}: {error}", endpoint.authority))?;
        let run = format!("{}-{}", jiff::Timestamp::now().as_millisecond(), std::process::id());
        let tables = Tables {
            items: format!("weir-bench-{run}-items"),
            votes: format!("weir-bench-{run}-votes"),
            indexed: format!("weir-bench-{run}-indexed"),
            streamed: format!("weir-bench-{run}-streamed"),
            iterators: Vec::new(),
            item_count,
            partition_count,
        };
        let (operations, followers) = (operations.to_vec(), followers.to_vec());
        Ok(Self { endpoint, connection, operations, followers, tables })
    }

    /// Makes the tables that the operations need and fills them.
    ///
    /// # Errors
    /// When the store refuses something.
    pub(super) async fn load(&mut self, progress: &ProgressBar) -> Result<(), String> {
        let tables = self.tables.clone();
        let items = request::create_table_body(&tables.items, &[("pk", "HASH"), ("sk", "RANGE")]);
        let items = match self.followers.contains(&Follower::Index) {
            true => request::with_moving_index(items),
            false => items,
        };
        let votes = request::create_table_body(&tables.votes, &[("pk", "HASH")]);
        for create in [items, votes] {
            let create = match self.followers.contains(&Follower::Stream) {
                true => request::with_stream(create),
                false => create,
            };
            self.ask("CreateTable", &create).await?;
        }
        for table in [&tables.items, &tables.votes] {
            self.wait_until_ready(table).await?;
        }
        let count = tables.item_count.div_ceil(BATCH_ITEMS) * BATCH_ITEMS;
        progress.set_length(count + tables.partition_count * QUERY_ITEMS);
        let mut batch = self.request("BatchWriteItem", &request::batch_body(&tables.items));
        for first in (0..count).step_by(usize::try_from(BATCH_ITEMS).unwrap_or(1)) {
            batch.set(first..first + BATCH_ITEMS, first);
            self.write(&batch).await?;
            progress.inc(BATCH_ITEMS);
        }
        for first in [0, BATCH_ITEMS] {
            let body = request::partition_body(&tables.items, first);
            let mut batch = self.request("BatchWriteItem", &body);
            for partition in 0..tables.partition_count {
                let same_key = std::iter::repeat_n(partition, 25);
                batch.set(same_key, partition);
                self.write(&batch).await?;
                progress.inc(BATCH_ITEMS);
            }
        }
        if self.operations.contains(&Operation::QueryIndex) {
            self.load_indexed(progress).await?;
        }
        if self.operations.contains(&Operation::GetRecords) {
            self.load_streamed(progress).await?;
        }
        Ok(())
    }

    /// Fills the table with the global index: groups of 50 items.
    async fn load_indexed(&mut self, progress: &ProgressBar) -> Result<(), String> {
        let (table, groups) = (self.tables.indexed.clone(), self.tables.partition_count);
        self.ask("CreateTable", &request::create_indexed_body(&table)).await?;
        self.wait_until_ready(&table).await?;
        progress.inc_length(groups * QUERY_ITEMS);
        for first in [0, BATCH_ITEMS] {
            let mut batch = self.request("BatchWriteItem", &request::group_body(&table, first));
            for group in 0..groups {
                batch.set(std::iter::repeat_n(group, 2 * 25), group);
                self.write(&batch).await?;
                progress.inc(BATCH_ITEMS);
            }
        }
        Ok(())
    }

    /// Fills the table with the stream, and finds where its shards begin.
    async fn load_streamed(&mut self, progress: &ProgressBar) -> Result<(), String> {
        let table = self.tables.streamed.clone();
        let created = self.ask("CreateTable", &request::create_streamed_body(&table)).await?;
        self.wait_until_ready(&table).await?;
        let count = self.tables.item_count.div_ceil(BATCH_ITEMS) * BATCH_ITEMS;
        progress.inc_length(count);
        let mut batch = self.request("BatchWriteItem", &request::batch_body(&table));
        for first in (0..count).step_by(usize::try_from(BATCH_ITEMS).unwrap_or(1)) {
            batch.set(first..first + BATCH_ITEMS, first);
            self.write(&batch).await?;
            progress.inc(BATCH_ITEMS);
        }
        let arn = text_at(&created, "/TableDescription/LatestStreamArn")?;
        let described = self.ask_streams("DescribeStream", &json!({"StreamArn": arn})).await?;
        let shards = described.pointer("/StreamDescription/Shards").and_then(Value::as_array);
        for shard in shards.into_iter().flatten() {
            let body = json!({"StreamArn": arn, "ShardIteratorType": "TRIM_HORIZON",
                "ShardId": text_at(shard, "/ShardId")?});
            let answer = self.ask_streams("GetShardIterator", &body).await?;
            self.tables.iterators.push(text_at(&answer, "/ShardIterator")?.to_owned());
        }
        if self.tables.iterators.is_empty() {
            return Err("the stream has no shards to read".to_owned());
        }
        Ok(())
    }

    async fn ask_streams(&mut self, target: &str, body: &Value) -> Result<Value, String> {
        let request = Request::to_streams(&self.endpoint.authority, target, body);
        let answer = self.send(&request).await.map_err(|error| format!("{target}: {error}"))?;
        parse(&answer)
    }

    async fn write(&mut self, batch: &Request) -> Result<(), String> {
        let body = self.send(batch).await?;
        if workload::is_complete(Operation::Batch, body.as_bytes()) {
            return Ok(());
        }
        Err(format!("the store left items of a batch unprocessed: {body}"))
    }

    async fn wait_until_ready(&mut self, table: &str) -> Result<(), String> {
        for _ in 0..READY_LOOKS_MAX {
            let described = self.ask("DescribeTable", &json!({"TableName": table})).await?;
            let status = described.get("Table").and_then(|table| table.get("TableStatus"));
            if status.and_then(Value::as_str) == Some("ACTIVE") {
                return Ok(());
            }
            tokio::time::sleep(READY_PAUSE).await;
        }
        Err(format!("table `{table}` did not become ACTIVE within 60 s"))
    }

    /// The sum over all slots, read consistently.
    ///
    /// # Errors
    /// When a slot cannot be read or holds no whole number.
    pub(super) async fn sum_slots(&mut self) -> Result<u64, String> {
        self.reconnect().await?;
        let mut get = self.request("GetItem", &request::slot_body(&self.tables.votes));
        let mut sum = 0_u64;
        for slot in 0..SLOTS {
            get.set([slot], 0);
            let body = self.send(&get).await?;
            let json: Value = parse(&body)?;
            let votes = json.get("Item").and_then(|item| item.get("votes"));
            let number = match votes.and_then(|votes| votes.get("N")) {
                None => 0,
                Some(number) => number
                    .as_str()
                    .and_then(|text| text.parse().ok())
                    .ok_or_else(|| format!("slot {slot} holds {number}, not a whole number"))?,
            };
            sum = sum.saturating_add(number);
        }
        Ok(sum)
    }

    /// Deletes the tables.
    ///
    /// # Errors
    /// When one of them cannot be deleted; the others are, all the same.
    pub(super) async fn remove(&mut self) -> Result<(), String> {
        self.reconnect().await?;
        let mut first_error = Ok(());
        let mut made = vec![self.tables.items.clone(), self.tables.votes.clone()];
        if self.operations.contains(&Operation::QueryIndex) {
            made.push(self.tables.indexed.clone());
        }
        if self.operations.contains(&Operation::GetRecords) {
            made.push(self.tables.streamed.clone());
        }
        for table in made {
            let deleted = self.ask("DeleteTable", &json!({"TableName": table})).await;
            let failed = |error| format!("cannot delete table `{table}`: {error}");
            first_error = first_error.and(deleted.map(drop).map_err(failed));
        }
        first_error
    }

    /// Opens the connection again: an answer may be outstanding on the old one, or the server has
    /// closed it because it was idle while others measured.
    async fn reconnect(&mut self) -> Result<(), String> {
        self.connection = Connection::open(&self.endpoint)
            .await
            .map_err(|error| format!("cannot connect again: {error}"))?;
        Ok(())
    }

    fn request(&self, target: &str, body: &Value) -> Request {
        Request::new(&self.endpoint.authority, target, body)
    }

    async fn ask(&mut self, target: &str, body: &Value) -> Result<Value, String> {
        let request = self.request(target, body);
        let answer = self.send(&request).await.map_err(|error| format!("{target}: {error}"))?;
        parse(&answer)
    }

    async fn send(&mut self, request: &Request) -> Result<String, String> {
        let exchange = self.connection.exchange(request.bytes());
        let answer = tokio::time::timeout(REQUEST_TIMEOUT, exchange)
            .await
            .map_err(|_| format!("no answer within {} s", REQUEST_TIMEOUT.as_secs()))?
            .map_err(|error| format!("the connection broke: {error}"))?;
        let body = String::from_utf8_lossy(answer.body).into_owned();
        let (status, closes) = (answer.status, answer.closes);
        if closes {
            self.reconnect().await?;
        }
        if status == 200 { Ok(body) } else { Err(format!("HTTP {status}: {body}")) }
    }
}

fn text_at<'a>(json: &'a Value, pointer: &str) -> Result<&'a str, String> {
    json.pointer(pointer)
        .and_then(Value::as_str)
        .ok_or_else(|| format!("an answer has no `{pointer}`"))
}

/// The JSON of an answer. Servers that chunk their answers put lengths around it.
fn parse(body: &str) -> Result<Value, String> {
    let start = body.find('{').unwrap_or(0);
    let end = body.rfind('}').map_or(body.len(), |end| end + 1);
    let json = body.get(start..end).unwrap_or_default();
    serde_json::from_str(json).map_err(|error| format!("an answer is no JSON: {error}"))
}
