//! Archive: writes films, deletes some by hand, advances the clock by more than a day, and compares
//! the archive with the films that expired.
//!
//! This module decides which films expire, independently of the function.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use aws_sdk_dynamodb::Client;
use futures::{StreamExt, TryStreamExt, stream};
use model::{Item, json};

use super::Progress;
use super::archive_check;
use super::generator::{FilmEnd, Generator, film};
use client::attribute::to_sdk_item;
use client::failure::{Context, Result, fatal};
use local::system::System;

/// The number of hours by which the clock is advanced.
pub(crate) const HOURS: u64 = 26;
/// The number of concurrent requests.
const WRITERS: usize = 32;
/// The maximum time until the archive is up to date after the advance.
const LAG_MAX: Duration = Duration::from_secs(25);
/// The maximum time for the functions to process the writes before the advance. It is long because every
/// film also becomes a version.
const DRAIN_MAX: Duration = Duration::from_secs(90);
/// The function that writes the archive.
const FUNCTION: &str = "ArchiveFunction";

/// The results of this part of the demonstration.
pub(crate) struct Outcome {
    pub(crate) films: u64,
    pub(crate) deleted_by_hand: usize,
    pub(crate) archived: usize,
    pub(crate) files: usize,
    pub(crate) folder: PathBuf,
    pub(crate) lag: Duration,
}

/// Writes films, advances the clock, and verifies the archive.
pub(crate) async fn run(system: &System, films: u64, progress: &Progress) -> Result<Outcome> {
    let table = system.table_name("MoviesTable")?;
    let client = system.dynamodb();
    let now = system.store()?.now().seconds();
    let soon = now + (HOURS - 1) * 3600;
    let mut generator = Generator::new(1912);
    let all: Vec<_> = (0..films).map(|number| film(&mut generator, number, now, soon)).collect();
    let mut written = 0u64;
    let mut puts = stream::iter(all.iter().map(|(item, _)| put(client, &table, item)))
        .buffer_unordered(WRITERS);
    while puts.try_next().await?.is_some() {
        written += 1;
        progress.step("films", written, films);
    }
    drop(puts);
    let by_hand: Vec<_> = all.iter().filter(|(_, fate)| *fate == FilmEnd::DeletedByHand).collect();
    stream::iter(by_hand.iter().map(|(item, _)| delete(client, &table, item)))
        .buffer_unordered(WRITERS)
        .try_collect::<Vec<_>>()
        .await?;
    // Stream retention also follows the store's clock, so the pollers must read the films' records
    // before the advance.
    progress.note("films: waiting for the pollers before the clock is advanced");
    system.wait_until_drained(DRAIN_MAX).await?;
    system.store()?.clock().advance(HOURS * 3600 * 1000);

    let expected: BTreeMap<String, u32> = all
        .iter()
        .filter(|(_, fate)| *fate == FilmEnd::Expires)
        .map(|(item, _)| (json::item_to_string(item), 1))
        .collect();
    let folder = system
        .bucket_folder(&system.environment(FUNCTION, "ARCHIVE_BUCKET")?)
        .join(system.environment(FUNCTION, "ARCHIVE_PREFIX")?);
    let started = Instant::now();
    let files = wait_for_archive(&folder, &expected, progress).await?;
    let lag = started.elapsed();
    Ok(Outcome {
        films,
        deleted_by_hand: by_hand.len(),
        archived: expected.len(),
        files,
        folder,
        lag,
    })
}

async fn put(client: &Client, table: &str, item: &Item) -> Result<()> {
    let request = client.put_item().table_name(table).set_item(Some(to_sdk_item(item)));
    request.send().await.map(drop).context(|| "cannot put a film")
}

async fn delete(client: &Client, table: &str, item: &Item) -> Result<()> {
    let key: Item = item
        .iter()
        .filter(|(name, _)| ["year", "title"].contains(&name.as_str()))
        .map(|(name, value)| (name.clone(), value.clone()))
        .collect();
    let request = client.delete_item().table_name(table).set_key(Some(to_sdk_item(&key)));
    request.send().await.map(drop).context(|| "cannot delete a film")
}

/// Waits until the archive has every expired film exactly once and no other item.
async fn wait_for_archive(
    folder: &std::path::Path,
    expected: &BTreeMap<String, u32>,
    progress: &Progress,
) -> Result<usize> {
    let started = Instant::now();
    loop {
        let (rows, files) = archive_check::read(folder)?;
        let mut found: BTreeMap<String, u32> = BTreeMap::new();
        for row in &rows {
            *found.entry(row.item.clone()).or_default() += 1;
        }
        if found == *expected {
            return Ok(files);
        }
        let strange = found.iter().find(|(item, times)| expected.get(*item) != Some(times));
        if let Some((item, times)) = strange {
            return Err(fatal!(
                "the archive has {times} rows for an item, instead of at most one: {item}"
            ));
        }
        if started.elapsed() > LAG_MAX {
            return Err(fatal!(
                "{} of {} expired films are in the archive {} s after they expired",
                rows.len(),
                expected.len(),
                LAG_MAX.as_secs()
            ));
        }
        progress.step("archive", rows.len() as u64, expected.len() as u64);
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}
