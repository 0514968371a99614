//! Fan-out: renames products while order lines are created and the function is killed, and verifies
//! that no order line has an old product name.
//!
//! The expected names are read from the products at the end, independently of the function.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use aws_sdk_dynamodb::Client;
use aws_sdk_dynamodb::types::AttributeValue as SdkValue;
use futures::{StreamExt, TryStreamExt, stream};

use super::Progress;
use super::generator::Generator;
use client::failure::{Context, Failure, Result, fatal};
use local::system::System;

/// The number of products. A third of all lines belong to the first product, so that its job has several
/// pages.
const PRODUCTS: u64 = 30;
/// The average number of renames of a product.
const RENAMES_EACH: u64 = 4;
/// The number of concurrent requests.
const WRITERS: usize = 32;
/// The maximum time until the copies are up to date.
const LAG_MAX: Duration = Duration::from_secs(40);
/// The function that writes the copies.
const FUNCTION: &str = "FanOutFunction";

/// The results of this part of the demonstration.
pub(crate) struct Outcome {
    pub(crate) lines: u64,
    pub(crate) products: u64,
    pub(crate) renames: u64,
    pub(crate) kills: u32,
    pub(crate) lag: Duration,
}

/// A write: a product's new name, or a new order line.
enum Step {
    Rename { product: u64, name: String },
    Line { order: u64, product: u64 },
}

/// Writes products and order lines, kills the function once in the middle, and verifies every order
/// line.
pub(crate) async fn run(system: &System, lines: u64, progress: &Progress) -> Result<Outcome> {
    let (products, copies) =
        (system.table_name("ProductsTable")?, system.table_name("OrderLinesTable")?);
    let client = system.dynamodb();
    let steps = steps(lines);
    let renames = PRODUCTS * RENAMES_EACH;
    let (mut done, mut kills) = (0u64, 0);
    let all = steps.len() as u64;
    // Between two writes of one product there are more steps than concurrent requests, so these writes
    // stay in order.
    let mut writes = stream::iter(steps.iter().map(|step| write(client, &products, &copies, step)))
        .buffered(WRITERS);
    while writes.try_next().await?.is_some() {
        done += 1;
        progress.step("products and order lines", done, all);
        if kills == 0 && done > all / 3 {
            kills += u32::from(system.kill_working_instance(FUNCTION));
        }
    }
    drop(writes);
    let started = Instant::now();
    wait_for_copies(client, &products, &copies, lines, progress).await?;
    let lag = started.elapsed();
    Ok(Outcome { lines, products: PRODUCTS, renames, kills, lag })
}

/// Returns the writes: new order lines and renames of products, interleaved.
fn steps(lines: u64) -> Vec<Step> {
    let mut generator = Generator::new(1764);
    let mut steps = Vec::new();
    let every = (lines / (PRODUCTS * RENAMES_EACH)).max(1);
    for order in 0..lines {
        let product = if generator.below(3) == 0 { 0 } else { generator.below(PRODUCTS) };
        steps.push(Step::Line { order, product });
        if order % every == 0 && order / every < PRODUCTS * RENAMES_EACH {
            let product = (order / every) % PRODUCTS;
            steps.push(Step::Rename { product, name: format!("Product {product}, name {order}") });
        }
    }
    steps
}

async fn write(client: &Client, products: &str, copies: &str, step: &Step) -> Result<()> {
    let number = |number: u64| SdkValue::N(number.to_string());
    let request = match step {
        Step::Rename { product, name } => client
            .put_item()
            .table_name(products)
            .item("productID", number(*product))
            .item("productName", SdkValue::S(name.clone())),
        Step::Line { order, product } => client
            .put_item()
            .table_name(copies)
            .item("orderID", number(*order))
            .item("productID", number(*product))
            .item("quantity", number(order % 9 + 1)),
    };
    let sent = request.send().await;
    sent.map(drop).context(|| "cannot write a product or an order line")
}

/// Waits until every line has the current name of its product.
async fn wait_for_copies(
    client: &Client,
    products: &str,
    copies: &str,
    lines: u64,
    progress: &Progress,
) -> Result<()> {
    let started = Instant::now();
    loop {
        let names: BTreeMap<String, String> = read(client, products).await?.into_iter().collect();
        let found = read(client, copies).await?;
        let stale = found.iter().filter(|(product, name)| names.get(product) != Some(name)).count();
        if stale == 0 && found.len() as u64 == lines {
            return Ok(());
        }
        if started.elapsed() > LAG_MAX {
            return Err(fatal!(
                "{stale} of {} order lines still have an old product name {} s after the last write",
                found.len(),
                LAG_MAX.as_secs()
            ));
        }
        progress.note(&format!("fan-out: {stale} order lines still have an old product name"));
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

/// Returns product and name of each item of a table; a missing name is empty.
async fn read(client: &Client, table: &str) -> Result<Vec<(String, String)>> {
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
    let pair = |item: std::collections::HashMap<String, SdkValue>| {
        let product = item.get("productID")?.as_n().ok()?.clone();
        let name = item.get("productName").and_then(|name| name.as_s().ok());
        Some((product, name.cloned().unwrap_or_default()))
    };
    Ok(items.into_iter().filter_map(pair).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_product_is_renamed() {
        let steps = steps(600);
        let renamed: std::collections::BTreeSet<u64> = steps
            .iter()
            .filter_map(|step| match step {
                Step::Rename { product, .. } => Some(*product),
                Step::Line { .. } => None,
            })
            .collect();
        assert_eq!(renamed.len() as u64, PRODUCTS);
        assert_eq!(steps.len() as u64, 600 + PRODUCTS * RENAMES_EACH);
    }
}
