//! `weir editions check`: verifies that an edition is complete, and compares it with the current
//! edition.
//!
//! An edition stores each key in a fixed part (partition of the table), so two editions are
//! compared part by part. An edition that is not ready is incomplete. The check writes nothing.

use std::collections::BTreeMap;

use model::{Item, json};
use rules::versions::edition::{Digest, EDITION_PARTS, Edition, EditionState};
use serde_json::json;

use super::{Place, reading};
use client::exit::Exit;
use client::failure::{Result, fatal};
use client::interruption;
use client::output::{self, Output, say};

/// Maximum number of differences that are shown.
const SAMPLES_MAX: usize = 5;

#[derive(Default)]
struct Difference {
    added: u64,
    removed: u64,
    changed: u64,
    samples: Vec<String>,
}

impl Difference {
    fn note(&mut self, what: &str, key: &str) {
        match what {
            "added" => self.added += 1,
            "removed" => self.removed += 1,
            _ => self.changed += 1,
        }
        if self.samples.len() < SAMPLES_MAX {
            self.samples.push(format!("{what} {key}"));
        }
    }
}

/// Recounts an edition and compares it with the current edition.
///
/// # Errors
/// When the edition does not exist, or cannot be read.
pub(super) async fn run(place: &Place, number: u64, output: Output) -> Result<Exit> {
    let edition = reading::known_edition(place, number).await?;
    let current = reading::head(place).await?.current;
    let (mut digest, mut difference) = (Digest::default(), Difference::default());
    for part in 0..EDITION_PARTS {
        interruption::reached(format!("{part} of {EDITION_PARTS} parts compared"));
        let items = part_of(place, number, part).await?;
        items.values().for_each(|item| digest.add(item));
        let others = match current {
            0 => BTreeMap::new(),
            current => part_of(place, current, part).await?,
        };
        for (key, item) in &items {
            match others.get(key) {
                None => difference.note("added", key),
                Some(other) if other != item => difference.note("changed", key),
                Some(_) => {}
            }
        }
        others.keys().filter(|key| !items.contains_key(*key)).for_each(|key| {
            difference.note("removed", key);
        });
    }
    if current != 0 {
        reading::was_there(place, current).await?;
    }
    let is_whole = is_whole(&edition, digest);
    let row = vec![
        json!(number),
        json!(edition.state.as_str()),
        json!(digest.items),
        json!(is_whole),
        json!(difference.added),
        json!(difference.changed),
        json!(difference.removed),
    ];
    let headings = ["edition", "state", "items", "whole", "added", "changed", "removed"];
    output::rows(output, &headings, &[row]);
    difference.samples.iter().for_each(|sample| say(sample));
    if edition.state != EditionState::Ready {
        let state = edition.state.as_str();
        say(&format!("edition {number} is {state}: only its existing items were compared"));
    }
    Ok(if is_whole { Exit::Done } else { Exit::Differences })
}

/// Returns true if an edition is ready and has all its items. Until an edition is ready, its record
/// has 0 items, so the count alone would accept a preparation that was killed before its first item.
fn is_whole(edition: &Edition, counted: Digest) -> bool {
    edition.state == EditionState::Ready
        && (counted.items, counted.sum) == (edition.items, edition.digest)
}

async fn part_of(place: &Place, number: u64, part: u64) -> Result<BTreeMap<String, Item>> {
    let mut items = BTreeMap::new();
    reading::each_of_part(place, number, part, &mut |key, image| {
        if json::item_from_str(&key).is_err() {
            return Err(fatal!("edition {number} has an item with an invalid key: {key}"));
        }
        items.insert(key, image);
        Ok(())
    })
    .await?;
    Ok(items)
}
