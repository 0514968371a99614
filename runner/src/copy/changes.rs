//! Follows the stream of a table of the source, and adds the key of each changed item to the queue.
//!
//! The order of the records does not matter, because a key's item is read after its record (`transfer`).
//! So children of a shard may be read before their parents have ended.

use std::collections::{BTreeMap, BTreeSet};
use std::convert::Infallible;
use std::sync::atomic::{AtomicI64, AtomicU32, Ordering};
use std::time::Duration;

use futures::{StreamExt as _, stream};
use mapping::Delivery;
use model::{KeySchema, PrimaryKey, json};

use super::transfer::Queue;
use client::endpoint;
use client::failure::{Failure, Result, fatal};
use client::shards::{Place, Start, Stream, describe};

/// The pause after a round without a record. Lambda reads a shard at the same interval.
const PERIOD: Duration = Duration::from_millis(250);
/// The number of rounds after which the shards are listed again, in case the end of a shard was missed.
const ROUNDS_PER_LISTING: u32 = 40;
/// The number of shards that are read at the same time.
const READ_AT_ONCE: usize = 8;
/// Maximum time until a new stream is enabled.
const ENABLED_MAX: Duration = Duration::from_secs(120);

/// How far a stream was followed.
pub(super) struct Lag {
    /// The number of consecutive rounds without a record and without a new shard.
    quiet_rounds: AtomicU32,
    /// The time of the last record of the shard that is furthest behind, in seconds since 1970; the maximum
    /// after a round without a record.
    reached: AtomicI64,
}

impl Default for Lag {
    fn default() -> Self {
        Self { quiet_rounds: AtomicU32::new(0), reached: AtomicI64::new(i64::MAX) }
    }
}

impl Lag {
    pub(super) fn quiet_rounds(&self) -> u32 {
        self.quiet_rounds.load(Ordering::SeqCst)
    }

    /// Begins to count the quiet rounds again. The first one may have begun before the call.
    pub(super) fn restart(&self) {
        self.quiet_rounds.store(0, Ordering::SeqCst);
    }

    /// Returns the age of the last record, in seconds; 0 after a round without a record.
    pub(super) fn seconds(&self, now: i64) -> u64 {
        let age = now.saturating_sub(self.reached.load(Ordering::SeqCst));
        u64::try_from(age).unwrap_or(0)
    }
}

/// A reader of a stream.
pub(super) struct Follower {
    stream: Stream,
    schema: KeySchema,
    /// The shards that are read.
    open: BTreeMap<String, Place>,
    /// All shards that were listed so far.
    known: BTreeSet<String>,
    rounds: u32,
}

/// The records of one round over the open shards.
#[derive(Default)]
pub(super) struct Round {
    pub(super) keys: Vec<PrimaryKey>,
    reached: Option<i64>,
    has_new_shards: bool,
}

impl Follower {
    /// Opens a stream, and reads a page of each open shard. A later round has every change that the store
    /// acknowledges after the return; the returned round may have some. `now` is the store's time in seconds.
    ///
    /// # Errors
    /// When the stream cannot be read.
    pub(super) async fn begin(
        endpoint: &str,
        arn: &str,
        schema: &KeySchema,
        now: i64,
    ) -> Result<(Self, Round)> {
        let enabled = async {
            loop {
                let stream = describe(endpoint::streams_client(endpoint), arn).await?;
                if stream.enabled {
                    return Ok::<_, Failure>(stream);
                }
                tokio::time::sleep(PERIOD).await;
            }
        };
        let stream = tokio::time::timeout(ENABLED_MAX, enabled).await;
        let stream = stream.map_err(|_| fatal!("the stream `{arn}` is not enabled"))??;
        let mut open = BTreeMap::new();
        let mut known = BTreeSet::new();
        for shard in &stream.shards {
            let Some(id) = &shard.shard_id else { continue };
            let range = shard.sequence_number_range.as_ref();
            if range.is_none_or(|range| range.ending_sequence_number.is_none()) {
                open.insert(id.clone(), Place::new(Start::Latest(now)));
            }
            known.insert(id.clone());
        }
        let mut follower = Self { stream, schema: schema.clone(), open, known, rounds: 0 };
        let round = follower.round().await?;
        Ok((follower, round))
    }

    /// Adds the keys of all changes to the queue, until the future is dropped.
    ///
    /// # Errors
    /// When the stream cannot be read, or its records are gone.
    pub(super) async fn run(mut self, queue: &Queue, lag: &Lag) -> Result<Infallible> {
        loop {
            let Round { keys, reached, has_new_shards } = self.round().await?;
            let is_quiet = keys.is_empty() && !has_new_shards;
            for key in keys {
                queue.add(key).await?;
            }
            lag.reached.store(reached.unwrap_or(i64::MAX), Ordering::SeqCst);
            if is_quiet {
                lag.quiet_rounds.fetch_add(1, Ordering::SeqCst);
                tokio::time::sleep(PERIOD).await;
            } else {
                lag.restart();
            }
        }
    }

    /// Reads a page of each open shard, and lists the shards again if one has ended.
    async fn round(&mut self) -> Result<Round> {
        let (stream, mut round) = (&self.stream, Round::default());
        let reads: Vec<_> = std::mem::take(&mut self.open)
            .into_iter()
            .map(|(shard, mut place)| async move {
                let page = stream.next_page(&shard, &mut place).await;
                (shard, place, page)
            })
            .collect();
        let pages: Vec<_> = stream::iter(reads).buffer_unordered(READ_AT_ONCE).collect().await;
        let mut has_ended = false;
        for (shard, place, page) in pages {
            let about = |reason: &str| fatal!("cannot follow table `{}`: {reason}", stream.table);
            let records = page.map_err(|refusal| about(&refusal.to_string()))?;
            let last = records.as_ref().and_then(|records| records.last()?.creation_s);
            round.reached = round.reached.into_iter().chain(last).min();
            for record in records.into_iter().flatten() {
                let keys = Delivery::from(record).keys;
                let keys = keys.ok_or_else(|| about("a record has no key"))?;
                let key = json::item_from_str(&keys).map_err(|error| about(&error.to_string()))?;
                let key =
                    self.schema.key_of_item(&key).map_err(|error| about(&error.to_string()))?;
                round.keys.push(key);
            }
            has_ended |= place.is_over();
            if !place.is_over() {
                self.open.insert(shard, place);
            }
        }
        self.rounds = self.rounds.wrapping_add(1);
        if has_ended || self.rounds.is_multiple_of(ROUNDS_PER_LISTING) {
            round.has_new_shards = self.list().await?;
        }
        Ok(round)
    }

    /// Lists the shards, and opens the new ones at their first record. Returns true if there are new ones.
    async fn list(&mut self) -> Result<bool> {
        self.stream = describe(self.stream.client.clone(), &self.stream.arn).await?;
        if !self.stream.enabled {
            return Err(fatal!(
                "the stream of table `{}` was disabled: run the command again",
                self.stream.table
            ));
        }
        let before = self.open.len();
        for id in self.stream.shards.iter().filter_map(|shard| shard.shard_id.as_ref()) {
            if self.known.insert(id.clone()) {
                self.open.insert(id.clone(), Place::new(Start::TrimHorizon));
            }
        }
        Ok(self.open.len() > before)
    }
}
