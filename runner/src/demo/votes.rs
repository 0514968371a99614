//! Counters: writes votes into slots while the table's partitions split, and compares every total
//! with the generator's own count.
//!
//! This module counts the votes as it casts them, independently of the function.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use aws_sdk_dynamodb::Client;
use aws_sdk_dynamodb::types::AttributeValue as SdkValue;
use futures::{StreamExt, TryStreamExt, stream};

use super::Progress;
use super::generator::{Generator, vote};
use client::failure::{Context, Failure, Result, fatal};
use client::partitions::split_somewhere;
use local::system::System;

/// The number of concurrent votes.
const VOTERS: usize = 48;
/// The maximum time until the totals contain the last vote.
const LAG_MAX: Duration = Duration::from_secs(20);
/// The function that writes the totals.
const FUNCTION: &str = "CountersFunction";

/// The results of this part of the demonstration.
pub(crate) struct Outcome {
    pub(crate) votes: u64,
    pub(crate) counters: usize,
    pub(crate) sum: i64,
    pub(crate) votes_per_second: u64,
    pub(crate) lag: Duration,
    pub(crate) kills: u32,
    pub(crate) splits: u32,
}

/// Writes votes, kills the function once in the middle, and verifies the totals.
pub(crate) async fn run(system: &System, votes: u64, progress: &Progress) -> Result<Outcome> {
    let (slots_table, totals_table) =
        (system.table_name("VotesTable")?, system.table_name("TotalsTable")?);
    let slots = system.environment(FUNCTION, "SLOT_COUNT")?.parse().unwrap_or(20);
    let mut generator = Generator::new(2026);
    let all: Vec<_> = (0..votes).map(|_| vote(&mut generator, slots)).collect();
    let mut expected: BTreeMap<String, i64> = BTreeMap::new();
    for vote in &all {
        *expected.entry(vote.counter.clone()).or_default() += vote.points;
    }
    let client = system.dynamodb();
    let (mut written, mut kills, mut splits) = (0u64, 0, 0);
    let started = Instant::now();
    let mut writes = stream::iter(all.into_iter().map(|vote| {
        let (client, table) = (client.clone(), slots_table.clone());
        async move {
            add(&client, &table, &format!("{}#{}", vote.counter, vote.slot), vote.points).await
        }
    }))
    .buffer_unordered(VOTERS);
    while writes.try_next().await?.is_some() {
        written += 1;
        progress.step("votes", written, votes);
        // After the first third of the votes, retries until an instance is killed during an invocation.
        if kills == 0 && written > votes / 3 {
            kills += u32::from(system.kill_working_instance(FUNCTION));
        }
        if written == votes / 3 || written == votes / 2 {
            let url = system.dynamodb_url().unwrap_or_default();
            splits += u32::from(split_somewhere(url, &slots_table, written).await?);
        }
    }
    let took = started.elapsed();
    let lag = wait_for_totals(client, &totals_table, &expected, progress).await?;
    Ok(Outcome {
        votes,
        counters: expected.len(),
        sum: expected.values().sum(),
        votes_per_second: rate(votes, took),
        lag,
        kills,
        splits,
    })
}

fn rate(count: u64, took: Duration) -> u64 {
    let millis = u64::try_from(took.as_millis()).unwrap_or(u64::MAX).max(1);
    count.saturating_mul(1000) / millis
}

async fn add(client: &Client, table: &str, slot: &str, points: i64) -> Result<()> {
    client
        .update_item()
        .table_name(table)
        .key("slot", SdkValue::S(slot.to_owned()))
        .update_expression("ADD votes :points")
        .expression_attribute_values(":points", SdkValue::N(points.to_string()))
        .send()
        .await
        .map(drop)
        .context(|| "cannot cast a vote")
}

/// Waits until every total equals its count, and no other total exists.
async fn wait_for_totals(
    client: &Client,
    table: &str,
    expected: &BTreeMap<String, i64>,
    progress: &Progress,
) -> Result<Duration> {
    let started = Instant::now();
    loop {
        let found = read_totals(client, table).await?;
        if found == *expected {
            return Ok(started.elapsed());
        }
        if started.elapsed() > LAG_MAX {
            return Err(fatal!(
                "totals differ from the votes {} s after the last vote: expected {expected:?}, found {found:?}",
                LAG_MAX.as_secs()
            ));
        }
        progress.note("votes: waiting until the totals include all votes");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

async fn read_totals(client: &Client, table: &str) -> Result<BTreeMap<String, i64>> {
    let items = client
        .scan()
        .table_name(table)
        .consistent_read(true)
        .into_paginator()
        .items()
        .send()
        .collect::<Result<Vec<_>, _>>()
        .await
        .map_err(Failure::from)?;
    let total = |item: std::collections::HashMap<String, SdkValue>| {
        let counter = item.get("counter")?.as_s().ok()?.clone();
        Some((counter, item.get("total")?.as_n().ok()?.parse().ok()?))
    };
    Ok(items.into_iter().filter_map(total).collect())
}
