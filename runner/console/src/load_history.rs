//! The load of partitions over the last ten minutes, for the heat map.
//!
//! The store reports only the rates of the last minute. The console samples these rates while a
//! page shows them, and for 30 minutes afterwards. It aggregates rates by bands of the key space,
//! not by partitions, because a split changes the partitions.

use std::collections::{BTreeMap, VecDeque};
use std::time::{Duration, Instant};

use locks::Mutex;
use serde::{Deserialize, Serialize};

/// The number of bands of the key space. It is a power of two, so that each band has the same
/// number of tokens.
pub(crate) const BANDS: usize = 32;
/// The number of samples that are stored for each table, which cover ten minutes.
pub(crate) const SAMPLES_MAX: usize = 40;
/// The time between two samples.
pub(crate) const PERIOD: Duration = Duration::from_secs(15);
/// The time for which a table is sampled after its page was last requested.
const WATCHED_MAX: Duration = Duration::from_secs(30 * 60);
/// The maximum number of tables that are sampled. Beyond it, the least recently shown table is
/// dropped.
const TABLES_MAX: usize = 16;
/// The number of low bits of a token, which give its position within a band.
const BAND_BITS: u32 = u64::BITS - BANDS.trailing_zeros();

/// A partition, as the store's admin endpoint describes it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Partition {
    pub(crate) number: u32,
    /// The first token of the partition, in decimal digits.
    pub(crate) first_token: String,
    pub(crate) last_token: String,
    pub(crate) items: u64,
    pub(crate) bytes: u64,
    /// Read capacity units per second over the last minute.
    pub(crate) read_units_per_second: f64,
    /// Write capacity units per second over the last minute.
    pub(crate) write_units_per_second: f64,
    /// The shard of its stream records; `None` without a stream.
    pub(crate) shard: Option<String>,
    /// Whether the partition is being split.
    pub(crate) splitting: bool,
}

/// The rates of the key space at one time.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct Sample {
    /// Seconds since 1970, by the clock of this machine.
    pub(crate) at: i64,
    pub(crate) partitions: usize,
    /// Read capacity units per second of each band, from the lowest token up.
    pub(crate) reads: Vec<f64>,
    /// Write capacity units per second of each band.
    pub(crate) writes: Vec<f64>,
}

impl Sample {
    /// Creates a sample: distributes the rates of partitions over the bands that they cover.
    pub(crate) fn of(at: i64, partitions: &[Partition]) -> Self {
        let (mut reads, mut writes) = (vec![0.0; BANDS], vec![0.0; BANDS]);
        for partition in partitions {
            let Some((first, last)) = partition.tokens() else { continue };
            for (band, (read, write)) in reads.iter_mut().zip(&mut writes).enumerate() {
                let share = share(first, last, band);
                *read += partition.read_units_per_second * share;
                *write += partition.write_units_per_second * share;
            }
        }
        Self { at, partitions: partitions.len(), reads, writes }
    }
}

impl Partition {
    /// Returns the first and the last token; `None` if the store wrote them in an unknown format.
    pub(crate) fn tokens(&self) -> Option<(u64, u64)> {
        self.first_token.parse().ok().zip(self.last_token.parse().ok())
    }
}

/// Returns the first token of a band.
pub(crate) fn first_token(band: usize) -> u64 {
    u64::try_from(band).unwrap_or(u64::MAX) << BAND_BITS
}

/// Returns the band of a token.
pub(crate) fn band_of(token: u64) -> usize {
    usize::try_from(token >> BAND_BITS).unwrap_or_default()
}

/// Returns the fraction of a range of tokens that is in a band.
#[expect(clippy::cast_precision_loss, reason = "a picture needs a few digits")]
fn share(first: u64, last: u64, band: usize) -> f64 {
    let lowest = first_token(band);
    let highest = lowest | ((1 << BAND_BITS) - 1);
    let (from, to) = (first.max(lowest), last.min(highest));
    if from > to {
        return 0.0;
    }
    let tokens = |from: u64, to: u64| (to - from) as f64 + 1.0;
    tokens(from, to) / tokens(first, last.max(first))
}

/// The samples of the tables whose pages were shown recently.
#[derive(Debug, Default)]
pub(crate) struct LoadHistory(Mutex<BTreeMap<String, Watched>>);

#[derive(Debug)]
struct Watched {
    shown: Instant,
    sampled: Instant,
    samples: VecDeque<Sample>,
}

impl LoadHistory {
    /// Adds the sample that a page read, starts or extends the sampling of the table, and returns
    /// its samples, oldest first.
    pub(crate) fn show(&self, table: &str, sample: Sample) -> Vec<Sample> {
        let mut tables = self.0.lock();
        let now = Instant::now();
        if !tables.contains_key(table) && tables.len() >= TABLES_MAX {
            let oldest = tables.iter().min_by_key(|(_, watched)| watched.shown);
            if let Some(name) = oldest.map(|(name, _)| name.clone()) {
                tables.remove(&name);
            }
        }
        let watched = tables.entry(table.to_owned()).or_insert_with(|| Watched {
            shown: now,
            sampled: now.checked_sub(PERIOD).unwrap_or(now),
            samples: VecDeque::new(),
        });
        watched.shown = now;
        // Frequent reloads of a page must not shorten the time between samples.
        if now.duration_since(watched.sampled) >= PERIOD || watched.samples.is_empty() {
            watched.add(sample, now);
        }
        watched.samples.iter().cloned().collect()
    }

    /// Returns the tables whose next sample is due.
    pub(crate) fn due(&self) -> Vec<String> {
        let mut tables = self.0.lock();
        let now = Instant::now();
        tables.retain(|_, watched| now.duration_since(watched.shown) < WATCHED_MAX);
        let is_due = |watched: &Watched| now.duration_since(watched.sampled) >= PERIOD;
        tables.iter().filter(|(_, watched)| is_due(watched)).map(|(name, _)| name.clone()).collect()
    }

    /// Adds a sample of a table, if the table is still watched.
    pub(crate) fn add(&self, table: &str, sample: Sample) {
        if let Some(watched) = self.0.lock().get_mut(table) {
            watched.add(sample, Instant::now());
        }
    }

    /// Stops watching a table.
    pub(crate) fn forget(&self, table: &str) {
        self.0.lock().remove(table);
    }
}

impl Watched {
    fn add(&mut self, sample: Sample, now: Instant) {
        self.sampled = now;
        if self.samples.len() == SAMPLES_MAX {
            self.samples.pop_front();
        }
        self.samples.push_back(sample);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn partition(first: u64, last: u64, read: f64, write: f64) -> Partition {
        Partition {
            number: 0,
            first_token: first.to_string(),
            last_token: last.to_string(),
            items: 0,
            bytes: 0,
            read_units_per_second: read,
            write_units_per_second: write,
            shard: None,
            splitting: false,
        }
    }

    #[test]
    fn rates_are_spread_over_the_bands_of_a_partition() {
        let half = u64::MAX / 2;
        let sample = Sample::of(
            7,
            &[partition(0, half, 160.0, 0.0), partition(half + 1, u64::MAX, 0.0, 32.0)],
        );
        assert_eq!((sample.at, sample.partitions), (7, 2));
        for band in 0..BANDS {
            let expected = if band < BANDS / 2 { (10.0, 0.0) } else { (0.0, 2.0) };
            let (read, write) = (sample.reads[band], sample.writes[band]);
            assert!(
                (read - expected.0).abs() < 1e-6 && (write - expected.1).abs() < 1e-6,
                "{band}"
            );
        }
        let narrow = Sample::of(0, &[partition(5, 5, 3.0, 0.0)]);
        assert!((narrow.reads[0] - 3.0).abs() < 1e-9 && narrow.reads[1] == 0.0);
        let wrong = Partition { first_token: "x".to_owned(), ..partition(0, 9, 5.0, 5.0) };
        assert_eq!(Sample::of(0, &[wrong]).reads, vec![0.0; BANDS]);
    }

    #[test]
    fn a_history_keeps_the_newest_samples_of_the_newest_tables() {
        let history = LoadHistory::default();
        assert_eq!(history.show("t", Sample::of(1, &[])).len(), 1);
        // A second request of the page within [`PERIOD`] adds no sample.
        assert_eq!(history.show("t", Sample::of(2, &[])).len(), 1);
        for at in 0..100 {
            history.add("t", Sample::of(at, &[]));
        }
        let samples = history.show("t", Sample::of(200, &[]));
        assert_eq!((samples.len(), samples[SAMPLES_MAX - 1].at), (SAMPLES_MAX, 99));
        for number in 0..TABLES_MAX {
            history.show(&format!("other-{number}"), Sample::of(0, &[]));
        }
        history.add("t", Sample::of(300, &[]));
        assert_eq!(history.show("t", Sample::of(301, &[]))[0].at, 301);
    }
}
