//! The tables of a run, which are created, filled, summed and deleted.
//!
//! Each run uses new table names, so that no other table is changed. This module measures nothing.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde_json::{Value, json};

use crate::arguments::Arguments;
use crate::client::{Connection, Endpoint};
use crate::error::Result;
use crate::request::{self, BATCH_ITEMS, Request, SLOTS};
use crate::workload::{self, Follower, Operation, Tables};

/// The time-out of one request.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(60);
/// The pause between two checks of a table that is not ready.
const READY_PAUSE: Duration = Duration::from_millis(200);
const READY_CHECKS_MAX: u32 = 300;

/// A connection for requests that are not measured.
pub(crate) struct Fixture {
    endpoint: Endpoint,
    connection: Connection,
    pub(crate) tables: Tables,
}

impl Fixture {
    /// Connects to the endpoint, and chooses the tables' names.
    ///
    /// # Errors
    /// When the endpoint does not respond.
    pub(crate) async fn open(endpoint: Endpoint, arguments: &Arguments) -> Result<Self> {
        let connection = Connection::open(&endpoint)
            .await
            .map_err(|error| format!("cannot connect to {endpoint}: {error}"))?;
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let run = format!("{}-{}", now.as_millis(), std::process::id());
        let tables = Tables {
            items: format!("load-{run}-items"),
            votes: format!("load-{run}-votes"),
            item_count: arguments.items,
            partition_count: arguments.partitions,
        };
        Ok(Self { endpoint, connection, tables })
    }

    /// Creates the tables and fills them.
    ///
    /// # Errors
    /// When the store rejects a request.
    pub(crate) async fn load(&mut self, with: &[Follower]) -> Result<()> {
        let tables = self.tables.clone();
        let has_stream = with.contains(&Follower::Stream);
        let has_index = with.contains(&Follower::Index);
        let items = request::create_items_body(&tables.items, has_index, has_stream);
        let votes = request::create_slots_body(&tables.votes, has_stream);
        for create in [items, votes] {
            self.ask("CreateTable", &create).await?;
        }
        for table in [&tables.items, &tables.votes] {
            self.wait_until_ready(table).await?;
        }
        let mut batch = self.request("BatchWriteItem", &request::batch_body(&tables.items))?;
        for number in 0..tables.item_count.div_ceil(BATCH_ITEMS) {
            let first = number * BATCH_ITEMS;
            batch.set(first..first + BATCH_ITEMS, first);
            self.write(&batch).await?;
        }
        for first in [0, BATCH_ITEMS] {
            let body = request::partition_body(&tables.items, first);
            let mut batch = self.request("BatchWriteItem", &body)?;
            for partition in 0..tables.partition_count {
                batch.set(std::iter::repeat(partition), partition);
                self.write(&batch).await?;
            }
        }
        Ok(())
    }

    async fn write(&mut self, batch: &Request) -> Result<()> {
        let body = self.send(batch).await?;
        if workload::is_complete(Operation::Batch, &body) {
            return Ok(());
        }
        Err("the store left items of a batch unprocessed".into())
    }

    async fn wait_until_ready(&mut self, table: &str) -> Result<()> {
        for _ in 0..READY_CHECKS_MAX {
            let described = self.ask("DescribeTable", &json!({"TableName": table})).await?;
            if described.pointer("/Table/TableStatus").and_then(Value::as_str) == Some("ACTIVE") {
                return Ok(());
            }
            tokio::time::sleep(READY_PAUSE).await;
        }
        Err(format!("table `{table}` did not become ACTIVE within 60 s").into())
    }

    /// Returns the sum over all slots, from consistent reads.
    ///
    /// # Errors
    /// When a slot cannot be read or does not contain a whole number.
    pub(crate) async fn sum_slots(&mut self) -> Result<u64> {
        self.reconnect().await?;
        let mut get = self.request("GetItem", &request::slot_body(&self.tables.votes))?;
        let mut sum = 0_u64;
        for slot in 0..SLOTS {
            get.set([slot], 0);
            let json: Value = serde_json::from_slice(&self.send(&get).await?)?;
            let Some(number) = json.pointer("/Item/votes/N") else { continue };
            let votes: Option<u64> = number.as_str().and_then(|text| text.parse().ok());
            let votes =
                votes.ok_or_else(|| format!("slot {slot}: not a whole number: {number}"))?;
            sum = sum.saturating_add(votes);
        }
        Ok(sum)
    }

    /// Deletes the tables.
    ///
    /// # Errors
    /// When a table cannot be deleted. The other tables are deleted nevertheless.
    pub(crate) async fn remove(&mut self) -> Result<()> {
        self.reconnect().await?;
        let mut removed = Ok(());
        for table in [self.tables.items.clone(), self.tables.votes.clone()] {
            let deleted = self.ask("DeleteTable", &json!({"TableName": table})).await;
            removed = removed.and(deleted.map(drop));
        }
        removed
    }

    /// Reconnects. The old connection may have an outstanding answer, or the server may have closed
    /// it because it was idle during a measurement.
    async fn reconnect(&mut self) -> Result<()> {
        self.connection = Connection::open(&self.endpoint).await?;
        Ok(())
    }

    fn request(&self, target: &str, body: &Value) -> Result<Request> {
        Ok(Request::new(&self.endpoint.authority, target, body)?)
    }

    async fn ask(&mut self, target: &str, body: &Value) -> Result<Value> {
        let request = self.request(target, body)?;
        let answer = self.send(&request).await.map_err(|error| format!("{target}: {error}"))?;
        Ok(serde_json::from_slice(&answer)?)
    }

    async fn send(&mut self, request: &Request) -> Result<bytes::Bytes> {
        if self.connection.is_closed() {
            self.reconnect().await?;
        }
        let exchange = self.connection.exchange(request.to_http());
        let answer = tokio::time::timeout(REQUEST_TIMEOUT, exchange)
            .await
            .map_err(|_| format!("no answer within {} s", REQUEST_TIMEOUT.as_secs()))??;
        if answer.status.is_success() {
            return Ok(answer.body);
        }
        let body = String::from_utf8_lossy(&answer.body);
        Err(format!("HTTP {}: {body}", answer.status.as_u16()).into())
    }
}
