//! Measures the time of a store's stream records, which may be coarser than the store's clock.
//!
//! DynamoDB rounds a record's time down to the second, some local stores to the minute. A fence is
//! compared with record times. So a fence has passed only when a new record has a later time than
//! the fence, even if the clock is past the fence. To get a new record, every check replaces the
//! marker, an entry of the control table that functions ignore.
//!
//! The marker also stores the measured lag of record times behind the clock. Code that compares a
//! record's time with another time has to add this lag.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use crate::migrate::context::{Context, LOOK_EVERY};
use crate::migrate::failure::{Failure, Result};
use crate::migrate::switch::claim::new_holder;
use client::output::say;
use client::shards::{self, Place, Refusal, Start, Stream};
use mapping::Record;

/// Maximum seconds by which record times may be behind the clock: a minute, and 15 s for the
/// request. A switch may block writers for this time.
const BEHIND_MAX: i64 = 75;
/// Timeout of a wait for a fence to pass. A store whose record times do not advance within this
/// time is rejected.
const PASS_LIMIT: Duration = Duration::from_secs(BEHIND_MAX.unsigned_abs());
/// Timeout for a stream to deliver a marker. DynamoDB takes about a second.
const MARKER_LIMIT: Duration = Duration::from_secs(30);
/// Interval between reads of the stream while waiting for a marker. A shard allows five requests a
/// second; further requests are throttled.
const MARKER_LOOK: Duration = Duration::from_millis(200);
/// Interval between listings of the shards while waiting for a marker, because a shard may have
/// split.
const LIST_EVERY: Duration = Duration::from_secs(1);
/// Time after which the command reports that it is waiting.
const SAID_AFTER: Duration = Duration::from_secs(3);
/// Maximum lag in seconds that clock skew can cause. A larger lag is caused by coarse record times.
const COARSE_SECONDS: i64 = 6;

/// A marker whose record the stream has delivered.
#[derive(Clone, Copy, Debug)]
struct DeliveredMarker {
    /// The time of the marker's record, in seconds since 1970.
    second: i64,
    /// Seconds by which the record's time is behind the store's clock, which was read just before
    /// the write.
    behind: i64,
}

/// A reader of the control table's stream, which finds the times of marker records.
pub(crate) struct RecordTime<'c> {
    context: &'c Context,
    stream: Stream,
    /// The known shards, and the position in each shard.
    places: BTreeMap<String, Place>,
    listed: Instant,
}

impl<'c> RecordTime<'c> {
    /// Opens the control table's stream after its last record.
    ///
    /// # Errors
    /// When the stream cannot be read.
    pub(crate) async fn open(context: &'c Context) -> Result<Self> {
        let (stream, places) = (listed(context).await?, BTreeMap::new());
        let mut opened = Self { context, stream, places, listed: Instant::now() };
        for id in shard_ids(&opened.stream) {
            let mut place = Place::new(Start::Latest(i64::MIN));
            // Requests the iterator immediately, so that its position is before all later writes.
            read(&opened.stream, &id, &mut place).await?;
            opened.places.insert(id, place);
        }
        Ok(opened)
    }

    /// Waits until a record has a later time than `second`, and stores the measured lag. The times
    /// of all subsequent records are also later than `second`.
    ///
    /// # Errors
    /// When the times do not advance, or the marker cannot be written or read.
    pub(crate) async fn pass(&mut self, second: i64) -> Result<()> {
        let (begun, mut behind, mut is_said) = (Instant::now(), 0, false);
        loop {
            let shown = self.show().await?;
            behind = behind.max(shown.behind);
            if shown.second > second {
                return note(self.context, behind).await;
            }
            if begun.elapsed() > PASS_LIMIT {
                let waited = begun.elapsed().as_secs();
                return Err(unfit(
                    self.context,
                    &format!("have shown the same time for {waited} s"),
                ));
            }
            if !is_said && begun.elapsed() > SAID_AFTER {
                say(&format!(
                    "the stream records of this store show times up to {behind} s old; waiting up to a minute until they show a later time"
                ));
                is_said = true;
            }
            tokio::time::sleep(LOOK_EVERY).await;
        }
    }

    /// Writes a marker and waits for its record.
    async fn show(&mut self) -> Result<DeliveredMarker> {
        let (clock, marker) = (self.context.now().await, new_holder());
        let mark = |entry: &mut control::RecordTime| {
            entry.marker.clone_from(&marker);
            true
        };
        self.context.control.change(control::RecordTime::default(), mark).await?;
        let begun = Instant::now();
        while begun.elapsed() < MARKER_LIMIT {
            if let Some(second) = self.find(&marker).await? {
                let second = second
                    .ok_or_else(|| unfit(self.context, "have no ApproximateCreationDateTime"))?;
                return Ok(DeliveredMarker { second, behind: clock.saturating_sub(second).max(0) });
            }
            tokio::time::sleep(MARKER_LOOK).await;
        }
        Err(Failure::Retry(format!(
            "the stream of the control table `{}` did not deliver a record within {} s of its write; check that the stream is enabled, and run the command again",
            self.context.control.table,
            MARKER_LIMIT.as_secs()
        )))
    }

    /// Returns the time of a marker's record; `None` if the next pages of the shards do not contain
    /// the record.
    async fn find(&mut self, marker: &str) -> Result<Option<Option<i64>>> {
        for (id, place) in &mut self.places {
            let records = read(&self.stream, id, place).await?;
            if let Some(record) = records.iter().find(|record| is_of(record, marker)) {
                return Ok(Some(record.creation_s));
            }
        }
        if self.listed.elapsed() > LIST_EVERY {
            (self.stream, self.listed) = (listed(self.context).await?, Instant::now());
            for id in shard_ids(&self.stream) {
                // A new shard has only recent records, so the shard is read from its beginning.
                self.places.entry(id).or_insert_with(|| Place::new(Start::TrimHorizon));
            }
        }
        Ok(None)
    }
}

async fn listed(context: &Context) -> Result<Stream> {
    shards::stream_of(&context.endpoint, &context.control.table).await
}

fn shard_ids(stream: &Stream) -> Vec<String> {
    stream.shards.iter().filter_map(|shard| shard.shard_id.clone()).collect()
}

/// Reads the next page of a shard; returns no records at the end of a closed shard.
async fn read(stream: &Stream, shard: &str, place: &mut Place) -> Result<Vec<Record>> {
    match stream.next_page(shard, place).await {
        Ok(page) => Ok(page.unwrap_or_default()),
        // The marker is new, so its record cannot be among the trimmed records.
        Err(Refusal::Trimmed) => {
            *place = Place::new(Start::TrimHorizon);
            Ok(Vec::new())
        }
        Err(refusal) => Err(Failure::Fatal(refusal.to_string())),
    }
}

/// Returns true if a record is of the write of `marker`; false for a record of its replacement.
fn is_of(record: &Record, marker: &str) -> bool {
    let written = || record.event().pointer("/dynamodb/NewImage/marker/S")?.as_str();
    record.json().contains(marker) && written() == Some(marker)
}

fn unfit(context: &Context, what: &str) -> Failure {
    Failure::Refused(format!(
        "the stream records of `{}` {what}, so a switch cannot tell which writes come after the switch: use a store whose record times are precise to the minute or finer",
        context.endpoint
    ))
}

async fn note(context: &Context, behind: i64) -> Result<()> {
    let behind = behind.unsigned_abs();
    let later = |entry: &mut control::RecordTime| {
        let is_more = entry.behind < behind;
        entry.behind = entry.behind.max(behind);
        is_more
    };
    context.control.change(control::RecordTime::default(), later).await.map(drop)
}

/// Returns the largest observed lag of a record's time behind the store's clock, in seconds.
///
/// # Errors
/// When the control table cannot be read.
pub(crate) async fn behind(context: &Context) -> Result<i64> {
    let (shared, name) = (control::SHARED, control::RecordTime::NAME);
    let entry: Option<control::RecordTime> = context.control.get(shared, name).await?;
    let behind = entry.map_or(0, |entry| entry.behind);
    Ok(i64::try_from(behind).unwrap_or(BEHIND_MAX).min(BEHIND_MAX))
}

/// Returns the additional time that a fence may take because record times are coarse; zero if the
/// record times are as precise as DynamoDB's.
///
/// # Errors
/// The errors of [`behind`].
pub(crate) async fn coarseness(context: &Context) -> Result<Duration> {
    let behind = behind(context).await?;
    let is_coarse = behind > COARSE_SECONDS;
    Ok(if is_coarse { PASS_LIMIT } else { Duration::ZERO })
}

/// Checks in advance that fences work on this store.
///
/// # Errors
/// When record times are not suitable for fences, or cannot be measured.
pub(crate) async fn check(context: &Context) -> Result<()> {
    let shown = RecordTime::open(context).await?.show().await?;
    if shown.behind > BEHIND_MAX {
        return Err(unfit(context, &format!("show a time that is {} s old", shown.behind)));
    }
    note(context, shown.behind).await
}

#[cfg(test)]
mod tests;
