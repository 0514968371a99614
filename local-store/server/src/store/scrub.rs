//! The background verification of the data that a node has on disk. It finds damage to data that is never
//! read, before the other copies are also damaged.
//!
//! A thread for each node reads tables, files of stream records and the log, and verifies their checksums.
//! Damage is handled like damage that a request finds. Data in the system's page cache is not read from the
//! disk.
//!
//! The thread reads 128 KB at a time, and sleeps between reads to limit its rate. The rate suffices
//! to read all data in five days, but is at least 1 MB/s and at most 16 MB/s for each node. At 1
//! MB/s, the thread uses about 0.1 % of a core. A pass begins a day after the end of the previous
//! pass, and resumes after a restart. Therefore up to 7 TB for each node are verified at least
//! weekly.

use std::fs;
use std::io;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use crate::store::directory;
use node::clock::wall_clock;
use node::ring::ArcId;
use node::scrub::Progress;
use node::{Node, WeakNode, slot_of};
use storage::StoredFile;

/// The planned duration of a pass. The actual duration differs if the minimum or the maximum rate
/// applies.
const PASS: Duration = Duration::from_secs(5 * 24 * 60 * 60);
/// The time from the end of one pass to the beginning of the next.
const PASS_EVERY: Duration = Duration::from_secs(24 * 60 * 60);
const MEBIBYTE: u64 = 1024 * 1024;
/// The minimum rate in bytes per second. The cost of this rate is too small to measure.
/// [`RATE_MAX`] is the maximum rate.
const RATE_MIN: u64 = MEBIBYTE;
const RATE_MAX: u64 = 16 * MEBIBYTE;
/// The number of bytes of the log that are read at a time. It is small, because a read of the log blocks
/// appends.
const LOG_PIECE_BYTES: usize = 128 * 1024;
/// The maximum time to sleep before the next check whether the node has ended.
const SLEEP_MAX: Duration = Duration::from_millis(200);
/// The interval between two checks whether a pass is due.
const CHECK_INTERVAL: Duration = Duration::from_secs(10);
/// The interval between two writes of the progress to disk. After a restart, at most the work of this
/// interval is repeated.
const NOTE_EVERY: Duration = Duration::from_secs(30);
/// The name of the progress file, in the directory that contains a state.
const FILE: &str = "scrub";

/// The progress of a pass, as it is stored in its file.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
struct SavedProgress {
    #[serde(flatten)]
    progress: Progress,
    after: Option<StoredFile>,
}

/// Starts a thread that verifies a node's files while the node exists.
pub(super) fn start(replicas: &[Node], data: &Path) {
    let Some(first) = replicas.first() else { return };
    let directory = directory::path(data, slot_of(first.id()));
    let places: Vec<ScrubbedReplica> =
        replicas.iter().map(|node| ScrubbedReplica::new(node, &directory)).collect();
    let name = format!("scrub-{}", first.id());
    let run = move || {
        while places.iter().all(ScrubbedReplica::is_there) {
            places.iter().for_each(ScrubbedReplica::verify_if_due);
            thread::sleep(CHECK_INTERVAL);
        }
    };
    if let Err(error) = thread::Builder::new().name(name).spawn(run) {
        tracing::warn!(%error, "background verification is off until the next start");
    }
}

/// A replica, and the path of its progress file.
struct ScrubbedReplica {
    node: WeakNode,
    file: PathBuf,
}

/// The reason why a pass was interrupted.
enum Interruption {
    /// The node has ended or is damaged. If it is damaged, the damage has been reported.
    Ended,
    /// A transient failure, after which the pass is retried.
    Failed(String),
}

impl ScrubbedReplica {
    fn new(node: &Node, directory: &Path) -> Self {
        let file = directory.join(node.arc().to_string()).join(FILE);
        let noted = read(&file);
        node.scrub().update(|progress| *progress = noted.progress);
        Self { node: node.downgrade(), file }
    }

    /// Returns the node; `None` if it has ended.
    fn node(&self) -> Option<Node> {
        self.node.upgrade().filter(|node| !node.damage().is_stopped())
    }

    fn is_there(&self) -> bool {
        self.node().is_some()
    }

    fn verify_if_due(&self) {
        let Some(node) = self.node().filter(|node| node.damage().reason().is_none()) else {
            return;
        };
        let progress = node.scrub().progress();
        let now = wall_clock().0;
        let age = progress.completed_ms.map(|at| now.saturating_sub(at));
        let every = u64::try_from(PASS_EVERY.as_millis()).unwrap_or(u64::MAX);
        if progress.begun_ms.is_none() && age.is_some_and(|age| age < every) {
            return;
        }
        drop(node);
        match self.pass() {
            Ok(()) | Err(Interruption::Ended) => {}
            Err(Interruption::Failed(reason)) => {
                tracing::debug!(reason, "a verification pass was interrupted");
            }
        }
    }

    /// Resumes an interrupted pass, or begins a new pass.
    fn pass(&self) -> Result<(), Interruption> {
        let mut noted = read(&self.file);
        let node = self.node().ok_or(Interruption::Ended)?;
        let with_log = node.arc() == ArcId::FIRST;
        let log_bytes = if with_log { node.status().log_bytes } else { 0 };
        let all_bytes = node.storage().disk_bytes() + log_bytes;
        drop(node);
        if noted.progress.begun_ms.is_none() {
            noted.after = None;
            noted.progress.begun_ms = Some(wall_clock().0);
            noted.progress.verified_bytes = 0;
        }
        // The pass may have begun before a restart, and the data may have grown since then.
        noted.progress.all_bytes = all_bytes;
        let mut meter = Meter::new(all_bytes);
        self.verify_state(&mut noted, &mut meter)?;
        if with_log {
            self.verify_log(&mut noted, &mut meter)?;
        }
        noted.after = None;
        noted.progress.passes += 1;
        noted.progress.begun_ms = None;
        noted.progress.completed_ms = Some(wall_clock().0);
        self.publish(&noted, true)
    }

    fn verify_state(
        &self,
        noted: &mut SavedProgress,
        meter: &mut Meter,
    ) -> Result<(), Interruption> {
        let mut noted_at = Instant::now();
        loop {
            // The installation of a snapshot may replace the storage, so the storage is looked up for
            // each file.
            let storage = self.node().ok_or(Interruption::Ended)?.storage();
            let mut is_cut = false;
            let mut progress = noted.progress.clone();
            let verified = storage.verify_next(noted.after, &mut |bytes: usize| {
                progress.verified_bytes += bytes as u64;
                is_cut = !meter.wait(bytes, || self.is_there());
                if let Some(node) = self.node() {
                    node.scrub().update(|shown| *shown = progress.clone());
                }
                if is_cut { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
            });
            if is_cut {
                return Err(Interruption::Ended);
            }
            let verified = verified.map_err(|error| Interruption::Failed(error.to_string()))?;
            noted.progress = progress;
            let Some(file) = verified else { return Ok(()) };
            noted.after = Some(file);
            let is_due = noted_at.elapsed() > NOTE_EVERY;
            self.publish(noted, is_due)?;
            if is_due {
                noted_at = Instant::now();
            }
        }
    }

    fn verify_log(&self, noted: &mut SavedProgress, meter: &mut Meter) -> Result<(), Interruption> {
        let mut after = None;
        loop {
            let log = self.node().ok_or(Interruption::Ended)?.log().clone();
            let verified = log.verify(after, LOG_PIECE_BYTES);
            drop(log);
            let verified = verified.map_err(|error| Interruption::Failed(error.to_string()))?;
            let Some((last, bytes)) = verified else { return Ok(()) };
            after = Some(last);
            noted.progress.verified_bytes += bytes as u64;
            self.publish(noted, false)?;
            if !meter.wait(bytes, || self.is_there()) {
                return Err(Interruption::Ended);
            }
        }
    }

    /// Publishes the progress, and writes it to disk if `is_due`. A failed write is only logged, because its
    /// only effect is that a restart may repeat a pass.
    fn publish(&self, noted: &SavedProgress, is_due: bool) -> Result<(), Interruption> {
        let node = self.node().ok_or(Interruption::Ended)?;
        node.scrub().update(|shown| *shown = noted.progress.clone());
        if is_due && let Err(error) = write(&self.file, noted) {
            tracing::debug!(%error, "cannot save the progress of the verification");
        }
        Ok(())
    }
}

fn read(file: &Path) -> SavedProgress {
    let text = fs::read(file).unwrap_or_default();
    serde_json::from_slice(&text).unwrap_or_default()
}

fn write(file: &Path, noted: &SavedProgress) -> io::Result<()> {
    let fresh = file.with_extension("new");
    fs::write(&fresh, serde_json::to_vec(noted)?)?;
    fs::rename(fresh, file)
}

/// A rate limiter for reads.
struct Meter {
    bytes_per_second: u64,
    begun: Instant,
    bytes: u64,
}

impl Meter {
    fn new(all_bytes: u64) -> Self {
        let bytes_per_second = (all_bytes / PASS.as_secs()).clamp(RATE_MIN, RATE_MAX);
        Self { bytes_per_second, begun: Instant::now(), bytes: 0 }
    }

    /// Sleeps until `bytes` more bytes may be read. Returns false if the node ends during the sleep.
    fn wait(&mut self, bytes: usize, is_there: impl Fn() -> bool) -> bool {
        self.bytes += bytes as u64;
        let until = Duration::from_millis(self.bytes.saturating_mul(1_000) / self.bytes_per_second);
        loop {
            if !is_there() {
                return false;
            }
            let rest = until.saturating_sub(self.begun.elapsed());
            if rest.is_zero() {
                return true;
            }
            thread::sleep(rest.min(SLEEP_MAX));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pass_is_slow_but_takes_less_than_a_week() {
        for (all_bytes, expected) in [
            (0, RATE_MIN),
            (100 << 30, RATE_MIN),
            (1 << 40, (1 << 40) / PASS.as_secs()),
            (1 << 60, RATE_MAX),
        ] {
            assert_eq!(Meter::new(all_bytes).bytes_per_second, expected);
        }
        let week = Duration::from_secs(7 * 24 * 60 * 60);
        assert!(PASS + PASS_EVERY < week);
        assert!(RATE_MAX * week.as_secs() > 7_000_000_000_000);
    }

    #[test]
    fn reading_is_rate_limited_and_ends_with_the_node() {
        let mut meter = Meter::new(0);
        assert!(meter.wait(100 * 1024, || true));
        assert!(meter.begun.elapsed() >= Duration::from_millis(90));
        assert!(!meter.wait(1 << 30, || false));
    }

    #[test]
    fn a_pass_resumes_at_the_stored_progress() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join(FILE);
        assert_eq!(read(&file), SavedProgress::default());
        let progress = Progress { passes: 2, begun_ms: Some(7), ..Progress::default() };
        let noted = SavedProgress { progress, after: Some(StoredFile::Rows(3)) };
        write(&file, &noted).unwrap();
        assert_eq!(read(&file), noted);
        fs::write(&file, "half").unwrap();
        assert_eq!(read(&file), SavedProgress::default());
    }
}
