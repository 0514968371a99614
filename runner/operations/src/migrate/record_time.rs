//! The time that the stream records of a store show, which may be coarser than the store's clock.
//!
//! DynamoDB rounds a record's time down to the second, some local stores round it down to the minute. A
//! fence compares these times, so it has passed only when a record shows a later one; the clock alone
//! does not prove that. The record is that of a marker: one entry of the control table, which no
//! application reads, no function acts on, and each marker replaces.
//!
//! What is measured here, how far a record's time may be behind the clock, stays in the same entry: a
//! comparison of record times with any other moment has to allow for it.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use super::failure::{Failure, Result};
use super::hold::new_holder;
use super::{Context, LOOK_EVERY};
use client::output::say;
use client::shards::{self, Place, Refusal, Start, Stream};
use mapping::Record;

/// Seconds by which record times may be behind the clock: a whole minute, and some for the request.
/// Writers may be held up for as long.
const BEHIND_MAX: i64 = 75;
/// How long a fence may take to pass: the record times of a fit store move on within this.
const PASS_LIMIT: Duration = Duration::from_secs(BEHIND_MAX.unsigned_abs());
/// How long a stream may take to bring a marker. DynamoDB takes about a second.
const MARKER_LIMIT: Duration = Duration::from_secs(30);
/// Between two looks for a marker: five requests a second for each shard, as more are throttled.
const MARKER_LOOK: Duration = Duration::from_millis(200);
/// Between two listings of the shards while a marker is awaited: a shard may have split.
const LIST_EVERY: Duration = Duration::from_secs(1);
/// After so long a wait is announced.
const SAID_AFTER: Duration = Duration::from_secs(3);
/// Beyond this a record time is coarse, and not a matter of clocks that differ.
const COARSE_SECONDS: i64 = 6;

/// A marker that came through the stream.
#[derive(Clone, Copy, Debug)]
struct Shown {
    /// The time of its record, in seconds since 1970.
    second: i64,
    /// By how many seconds that is behind the store's clock as it was before the write.
    behind: i64,
}

/// A reader of the time that records show.
pub(super) struct RecordTime<'c> {
    context: &'c Context,
    stream: Stream,
    /// The shards that are known, and how far each is read.
    places: BTreeMap<String, Place>,
    listed: Instant,
}

impl<'c> RecordTime<'c> {
    /// Opens the control table's stream at its end.
    ///
    /// # Errors
    /// When it cannot be read.
    pub(super) async fn open(context: &'c Context) -> Result<Self> {
        let (stream, places) = (listed(context).await?, BTreeMap::new());
        let mut opened = Self { context, stream, places, listed: Instant::now() };
        for id in shard_ids(&opened.stream) {
            let mut place = Place::new(Start::Latest(i64::MIN));
            // Asks for the iterator now: what is written from here on is behind it.
            read(&opened.stream, &id, &mut place).await?;
            opened.places.insert(id, place);
        }
        Ok(opened)
    }

    /// Waits until a record shows a later time than `second`, and notes how coarse the times are. Then
    /// every later record does.
    ///
    /// # Errors
    /// When the times do not move on, or the marker cannot be written or read.
    pub(super) async fn pass(&mut self, second: i64) -> Result<()> {
        let (begun, mut behind, mut is_said) = (Instant::now(), 0, false);
        loop {
            let shown = self.show().await?;
            behind = behind.max(shown.behind);
            if shown.second > second {
                return note(self.context, behind).await;
            }
            if begun.elapsed() > PASS_LIMIT {
                let waited = begun.elapsed().as_secs();
                return Err(unfit(self.context, &format!("show the same time for {waited} s")));
            }
            if !is_said && begun.elapsed() > SAID_AFTER {
                say(&format!(
                    "the stream records of this store show times up to {behind} s old; waiting until they show the next one, for up to a minute"
                ));
                is_said = true;
            }
            tokio::time::sleep(LOOK_EVERY).await;
        }
    }

    /// Writes a marker and waits for its record.
    async fn show(&mut self) -> Result<Shown> {
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
                return Ok(Shown { second, behind: clock.saturating_sub(second).max(0) });
            }
            tokio::time::sleep(MARKER_LOOK).await;
        }
        Err(Failure::Retry(format!(
            "the stream of the control table `{}` did not bring a record within {} s of its write; check that the stream is enabled, and repeat the command",
            self.context.control.table,
            MARKER_LIMIT.as_secs()
        )))
    }

    /// The time of a marker's record, if one more page of each shard has it.
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
                // A shard that is new has nothing but what was written since.
                self.places.entry(id).or_insert_with(|| Place::new(Start::TrimHorizon));
            }
        }
        Ok(None)
    }
}

async fn listed(context: &Context) -> Result<Stream> {
    let stream = shards::stream_of(&context.endpoint, &context.control.table).await;
    stream.map_err(Failure::from)
}

fn shard_ids(stream: &Stream) -> Vec<String> {
    stream.shards.iter().filter_map(|shard| shard.shard_id.clone()).collect()
}

/// One more page of a shard; nothing once it has ended.
async fn read(stream: &Stream, shard: &str, place: &mut Place) -> Result<Vec<Record>> {
    match stream.next_page(shard, place).await {
        Ok(page) => Ok(page.unwrap_or_default()),
        // The marker is new, so what is gone is not it.
        Err(Refusal::Trimmed) => {
            *place = Place::new(Start::TrimHorizon);
            Ok(Vec::new())
        }
        Err(refusal) => Err(Failure::Fatal(refusal.to_string())),
    }
}

/// Whether a record is of the write of a marker, and not of the one that replaced it.
fn is_of(record: &Record, marker: &str) -> bool {
    let written = || record.event().pointer("/dynamodb/NewImage/marker/S")?.as_str();
    record.json().contains(marker) && written() == Some(marker)
}

fn unfit(context: &Context, what: &str) -> Failure {
    Failure::Refused(format!(
        "the stream records of `{}` {what}, so no switch could tell which writes come after it: use a store whose records have times to the minute or finer",
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

/// Returns the most seconds by which a record's time was seen behind the store's clock.
///
/// # Errors
/// When the control table cannot be read.
pub(super) async fn behind(context: &Context) -> Result<i64> {
    let (shared, name) = (control::SHARED, control::RecordTime::NAME);
    let entry: Option<control::RecordTime> = context.control.get(shared, name).await?;
    let behind = entry.map_or(0, |entry| entry.behind);
    Ok(i64::try_from(behind).unwrap_or(BEHIND_MAX).min(BEHIND_MAX))
}

/// Returns how long a fence may take to pass beyond what clocks need: nothing where record times are as
/// fine as DynamoDB's.
///
/// # Errors
/// As [`behind`].
pub(super) async fn coarseness(context: &Context) -> Result<Duration> {
    let behind = behind(context).await?;
    let is_coarse = behind > COARSE_SECONDS;
    Ok(if is_coarse { PASS_LIMIT } else { Duration::ZERO })
}

/// Checks, before anything is done, that a fence can be set on this store.
///
/// # Errors
/// Why none can be set, or that this cannot be found out.
pub(super) async fn check(context: &Context) -> Result<()> {
    let shown = RecordTime::open(context).await?.show().await?;
    if shown.behind > BEHIND_MAX {
        return Err(unfit(context, &format!("show a time that is {} s old", shown.behind)));
    }
    note(context, shown.behind).await
}

#[cfg(test)]
mod tests;
