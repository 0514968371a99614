//! Reads the streams of the migrations that a page shows, in the background.
//!
//! A read of the streams takes seconds, so a page must not wait for it. A page shows the result of
//! the last read, and requests further reads. The reads stop 30 s after the last request of a page.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};

use client::failure::Failure;
use locks::Mutex;
use operations::migrate::Context as Migrate;
use operations::migrate::api::{Observation, StreamReader};
use tokio::task::AbortHandle;

/// The pause between two reads.
const PAUSE: Duration = Duration::from_secs(2);
/// The time for which the reads continue after the last request of a page.
const WANTED: Duration = Duration::from_secs(30);
/// The maximum number of migrations whose streams are read concurrently.
const WATCHES_MAX: usize = 8;
/// The number of points of the backfill's progress that are stored. They cover two minutes of an
/// open page.
const POINTS_MAX: usize = 60;
/// The minimum time between two points.
const POINT_PERIOD: Duration = Duration::from_secs(1);

/// The background reads of a console.
#[derive(Default)]
pub(crate) struct Watches(Arc<Mutex<BTreeMap<String, Watch>>>);

/// The background read of one migration.
struct Watch {
    wanted: Instant,
    seen: Option<Seen>,
    points: VecDeque<(Instant, u64)>,
    task: AbortHandle,
}

/// The result of the last read.
#[derive(Clone)]
pub(crate) struct Seen {
    /// The observation, or the reason why the read failed.
    pub(crate) found: Result<Arc<Observation>, Failure>,
    /// The time of the read.
    pub(crate) at: Instant,
}

impl Watches {
    /// Returns the result of the last read of a migration's streams.
    pub(crate) fn seen(&self, name: &str) -> Option<Seen> {
        self.0.lock().get(name)?.seen.clone()
    }

    /// Requests further reads of the streams of a migration. The migration must exist.
    pub(crate) fn ask(&self, migrate: &Arc<Migrate>, name: &str) {
        let mut watches = self.0.lock();
        if let Some(watch) = watches.get_mut(name) {
            watch.wanted = Instant::now();
        } else if watches.len() < WATCHES_MAX {
            let read = read(Arc::clone(&self.0), Arc::clone(migrate), name.to_owned());
            let task = tokio::spawn(read).abort_handle();
            let (wanted, points) = (Instant::now(), VecDeque::new());
            watches.insert(name.to_owned(), Watch { wanted, seen: None, points, task });
        }
    }

    /// Records the number of items that the backfill has read. Returns the items per second between
    /// the recorded points, oldest first.
    pub(crate) fn note(&self, name: &str, read: u64, now: Instant) -> Vec<u64> {
        let mut watches = self.0.lock();
        let Some(watch) = watches.get_mut(name) else { return Vec::new() };
        let points = &mut watch.points;
        let is_due = points.back().is_none_or(|(at, _)| now.duration_since(*at) >= POINT_PERIOD);
        if is_due {
            if points.len() == POINTS_MAX {
                points.pop_front();
            }
            points.push_back((now, read));
        }
        rates(points)
    }
}

impl Drop for Watches {
    fn drop(&mut self) {
        self.0.lock().values().for_each(|watch| watch.task.abort());
    }
}

/// Returns the items per second between consecutive points.
fn rates(points: &VecDeque<(Instant, u64)>) -> Vec<u64> {
    let pairs = points.iter().zip(points.iter().skip(1));
    pairs
        .map(|((from, before), (to, after))| {
            let millis = u64::try_from(to.duration_since(*from).as_millis()).unwrap_or(u64::MAX);
            (after.saturating_sub(*before)).saturating_mul(1_000) / millis.max(1)
        })
        .collect()
}

/// Reads the streams of a migration repeatedly, until no page requests them.
async fn read(watches: Arc<Mutex<BTreeMap<String, Watch>>>, migrate: Arc<Migrate>, name: String) {
    let mut reader = StreamReader::new(&migrate);
    loop {
        let found = reader.read(&migrate, &name).await.map(Arc::new);
        {
            let mut watches = watches.lock();
            let Some(watch) = watches.get_mut(&name) else { return };
            watch.seen = Some(Seen { found, at: Instant::now() });
            if watch.wanted.elapsed() > WANTED {
                watches.remove(&name);
                return;
            }
        }
        tokio::time::sleep(PAUSE).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rate_is_that_between_two_points() {
        let begun = Instant::now();
        let at = |seconds, read| (begun + Duration::from_secs(seconds), read);
        assert!(rates(&VecDeque::from([at(0, 5)])).is_empty());
        let points = VecDeque::from([at(0, 0), at(2, 100), at(3, 100), at(4, 40)]);
        assert_eq!(rates(&points), [50, 0, 0]);
    }
}
