//! Copies items by their keys: reads the item of a key at the source, and puts it, or deletes it, at the
//! target.
//!
//! The item is always the newest state, so a key may be copied any number of times, in any order, if no
//! two copies of one key run at the same time. Therefore each key has a lane, which copies one batch
//! after the other. Every change of an item must be followed by a copy of its key; `changes` sees to that.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicU64, Ordering};

use aws_sdk_dynamodb::Client;
use aws_sdk_dynamodb::types::{DeleteRequest, PutRequest, Select, WriteRequest};
use futures::future::try_join_all;
use model::limits::BATCH_WRITE_ITEMS_MAX;
use model::{Item, KeySchema, PrimaryKey};
use tokio::sync::mpsc;

use super::tables::Table;
use client::attribute::{from_sdk_item, to_sdk_item};
use client::failure::{Context, Failure, Result, fatal};
use operations::batches::{get_all, write_batch};

/// Number of lanes of a table: enough that their writes share the syncs of a local store, and few enough
/// for a laptop.
const LANES: usize = 8;
/// Maximum number of keys that wait in a lane. A reader of keys waits while its lane is full.
const WAITING_MAX: usize = 256;

/// A table at both endpoints.
pub(super) struct TablePair<'c> {
    pub(super) name: &'c str,
    pub(super) schema: &'c KeySchema,
    pub(super) from: &'c Client,
    pub(super) to: &'c Client,
}

impl<'c> TablePair<'c> {
    pub(super) fn new(from: &'c Client, to: &'c Client, table: &'c Table) -> Self {
        Self { name: &table.name, schema: &table.schema, from, to }
    }

    /// Copies the current items of at most 25 keys.
    async fn copy(&self, keys: &BTreeSet<PrimaryKey>) -> Result<()> {
        let items = get_all(self.from, self.name, self.schema, keys).await?;
        let request = |key: &PrimaryKey| match items.get(key) {
            Some(item) => {
                let put = PutRequest::builder().set_item(Some(to_sdk_item(item))).build()?;
                Ok(WriteRequest::builder().put_request(put).build())
            }
            None => {
                let key = to_sdk_item(&key.to_item(self.schema));
                let delete = DeleteRequest::builder().set_key(Some(key)).build()?;
                Ok(WriteRequest::builder().delete_request(delete).build())
            }
        };
        let requests = keys.iter().map(request).collect::<Result<Vec<_>>>()?;
        write_batch(self.to, self.name, requests).await
    }

    /// Copies the items of keys that no queue has.
    pub(super) async fn copy_all(&self, keys: &[PrimaryKey]) -> Result<()> {
        for some in keys.chunks(BATCH_WRITE_ITEMS_MAX) {
            self.copy(&some.iter().cloned().collect()).await?;
        }
        Ok(())
    }

    /// Adds the keys of all items that a client reads to a queue.
    pub(super) async fn queue_all(&self, client: &Client, queue: &Queue) -> Result<()> {
        let names = self.schema.attributes().map(|attribute| attribute.name.as_str());
        let names: Vec<&str> = names.collect();
        scan(client, self.name, &names, async |items: Vec<Item>| {
            for item in items {
                queue.add(self.key_of(&item)?).await?;
            }
            Ok(())
        })
        .await
    }

    pub(super) fn key_of(&self, item: &Item) -> Result<PrimaryKey> {
        self.schema.key_of_item(item).map_err(Failure::fatal)
    }
}

/// Calls `visit` with each page of a table, strongly consistent. `names` are the attributes to read, or
/// empty for all.
pub(super) async fn scan(
    client: &Client,
    table: &str,
    names: &[&str],
    mut visit: impl AsyncFnMut(Vec<Item>) -> Result<()>,
) -> Result<()> {
    let mut request = client.scan().table_name(table).consistent_read(true);
    if !names.is_empty() {
        let short: Vec<String> = (0..names.len()).map(|number| format!("#k{number}")).collect();
        request = request.select(Select::SpecificAttributes).projection_expression(short.join(","));
        for (short, name) in short.iter().zip(names) {
            request = request.expression_attribute_names(short, *name);
        }
    }
    let mut pages = request.into_paginator().send();
    while let Some(page) = pages.next().await {
        let page = page.context(|| format!("cannot scan table `{table}`"))?;
        let items = page.items.unwrap_or_default().into_iter().map(from_sdk_item);
        visit(items.collect::<Result<_>>()?).await?;
    }
    Ok(())
}

/// The keys of a table whose items wait to be copied.
pub(super) struct Queue {
    lanes: Vec<mpsc::Sender<PrimaryKey>>,
    added: AtomicU64,
}

/// The other end of a [`Queue`].
pub(super) struct Lanes {
    receivers: Vec<mpsc::Receiver<PrimaryKey>>,
}

/// The number of keys that were copied.
#[derive(Default)]
pub(super) struct Copied(AtomicU64);

impl Queue {
    pub(super) fn new() -> (Self, Lanes) {
        let channels = (0..LANES).map(|_| mpsc::channel(WAITING_MAX));
        let (lanes, receivers) = channels.unzip();
        (Self { lanes, added: AtomicU64::new(0) }, Lanes { receivers })
    }

    /// Adds a key. Waits while its lane is full.
    ///
    /// # Errors
    /// When the lane has failed.
    pub(super) async fn add(&self, key: PrimaryKey) -> Result<()> {
        let lane = usize::try_from(key.token().0 % LANES as u64).unwrap_or(0);
        self.added.fetch_add(1, Ordering::SeqCst);
        let ended = || fatal!("the copy of an item failed");
        let lane = self.lanes.get(lane).ok_or_else(ended)?;
        lane.send(key).await.map_err(|_| ended())
    }

    /// Returns the number of keys that were added but not copied yet.
    pub(super) fn waiting(&self, copied: &Copied) -> u64 {
        self.added.load(Ordering::SeqCst).saturating_sub(copied.get())
    }
}

impl Copied {
    pub(super) fn get(&self) -> u64 {
        self.0.load(Ordering::SeqCst)
    }
}

impl Lanes {
    /// Copies the items of the keys until the queue is dropped.
    pub(super) async fn run(self, pair: &TablePair<'_>, copied: &Copied) -> Result<()> {
        let lanes = self.receivers.into_iter().map(|keys| run_lane(pair, keys, copied));
        try_join_all(lanes).await.map(drop)
    }
}

async fn run_lane(
    pair: &TablePair<'_>,
    mut keys: mpsc::Receiver<PrimaryKey>,
    copied: &Copied,
) -> Result<()> {
    while let Some(first) = keys.recv().await {
        // A key that waits several times is copied once, because the item is read after all of them.
        let (mut batch, mut count) = (BTreeSet::from([first]), 1);
        while batch.len() < BATCH_WRITE_ITEMS_MAX
            && let Ok(key) = keys.try_recv()
        {
            batch.insert(key);
            count += 1;
        }
        pair.copy(&batch).await?;
        copied.0.fetch_add(count, Ordering::SeqCst);
    }
    Ok(())
}
