//! Reads parts while compaction and erasure change them.
//!
//! A reader lists parts first and opens them later. A part that was removed or replaced in between
//! is not an error, because a new listing has the object with its rows.

use std::collections::{BTreeSet, VecDeque};

use futures::future::join_all;
use parquet::arrow::arrow_reader::ParquetRecordBatchReader;
use parquet::errors::ParquetError;

use super::cell::Row;
use super::source::{Content, Part, Source};
use client::failure::{Failure, Result};

/// Number of parts that are read concurrently. An S3 request takes some 30 ms, and a busy shard
/// writes 86,400 parts a day.
pub(super) const READS_AT_ONCE: usize = 16;
/// Maximum number of bytes that are read concurrently. A larger part is read by itself.
const READ_BYTES_AT_ONCE: u64 = 64 * 1024 * 1024;
/// Maximum number of new listings of a day while its parts are read. Each new listing follows a
/// change, and compaction changes each hour only a few times.
const LISTINGS_MAX: usize = 1_000;
/// Maximum number of attempts of a step that needs a consistent set of parts.
pub(super) const LOOKS_MAX: usize = 5;

/// An iterator over parts that reads some of them ahead. An event may occur twice: in a part, and
/// in the object into which compaction has merged the part.
pub(super) struct Reading<'s> {
    source: &'s Source,
    left: VecDeque<Part>,
    /// Parts that were read ahead, in order.
    ready: VecDeque<(Part, Result<Content>)>,
    given: BTreeSet<Part>,
    listings: usize,
    /// Number of parts that the next step reads concurrently.
    at_once: usize,
    is_newest_first: bool,
}

impl<'s> Reading<'s> {
    /// Creates an iterator over parts, which must be ordered by table and day.
    pub(super) fn of(source: &'s Source, parts: impl IntoIterator<Item = Part>) -> Self {
        let (left, ready) = (parts.into_iter().collect(), VecDeque::new());
        let given = BTreeSet::new();
        Self { source, left, ready, given, listings: 0, at_once: 1, is_newest_first: false }
    }

    /// Creates an iterator over parts of one table, newest first, that does not read ahead. A
    /// restore is slower than the reads, and must not restore rows that were erased since they were
    /// read.
    pub(super) fn newest_first(source: &'s Source, parts: Vec<Part>) -> Self {
        let parts = Part::newest_first(parts);
        Self { is_newest_first: true, ..Self::of(source, parts) }
    }

    /// Opens the next part; returns `None` after the last part.
    ///
    /// # Errors
    /// When a part cannot be read although it exists.
    pub(super) async fn next(
        &mut self,
        columns: Option<&[&str]>,
    ) -> Result<Option<(Part, ParquetRecordBatchReader)>> {
        self.next_by(|content| content.rows(columns)).await
    }

    /// Returns the bytes of the next part, so that its rows can be read several times; `None` after
    /// the last part.
    ///
    /// # Errors
    /// When a part cannot be read although it exists.
    pub(super) async fn next_content(&mut self) -> Result<Option<(Part, Content)>> {
        self.next_by(|content| {
            // Opening the rows detects an object that was replaced during the read.
            content.rows(Some(&[]))?;
            Ok(content)
        })
        .await
    }

    async fn next_by<T>(
        &mut self,
        open: impl Fn(Content) -> Result<T, ParquetError>,
    ) -> Result<Option<(Part, T)>> {
        loop {
            if self.ready.is_empty() {
                self.read_ahead().await;
            }
            let Some((part, content)) = self.ready.pop_front() else { return Ok(None) };
            match content.and_then(|content| open(content).map_err(|error| part.failed(error))) {
                Ok(opened) => {
                    self.given.insert(part.clone());
                    return Ok(Some((part, opened)));
                }
                Err(error) => {
                    // The new listing shows which of the parts that were read ahead still exist.
                    let ahead = self.ready.drain(..).rev().map(|(part, _)| part);
                    ahead.for_each(|part| self.left.push_front(part));
                    self.list_again(&part, error).await?;
                }
            }
        }
    }

    /// Reads the next parts concurrently: one part at first, because a caller may want only the
    /// first rows, and twice as many in each later call.
    async fn read_ahead(&mut self) {
        let count = few(self.left.iter(), self.at_once);
        let parts: Vec<Part> = self.left.drain(..count).collect();
        let contents = join_all(parts.iter().map(|part| self.source.content(part))).await;
        self.ready.extend(parts.into_iter().zip(contents));
        if !self.is_newest_first {
            self.at_once = (2 * self.at_once).min(READS_AT_ONCE);
        }
    }

    /// Lists the part's day again, and replaces the remaining parts of that day by the new listing.
    async fn list_again(&mut self, part: &Part, error: Failure) -> Result<()> {
        let listed = self.source.parts(Some(&part.table), Some(&part.date)).await?;
        if listed.contains(part) || self.listings == LISTINGS_MAX {
            return Err(error);
        }
        self.listings += 1;
        self.left.retain(|left| left.table != part.table || left.date != part.date);
        let listed = if self.is_newest_first { Part::newest_first(listed) } else { listed };
        for new in listed.into_iter().rev().filter(|new| !self.given.contains(new)) {
            self.left.push_front(new);
        }
        Ok(())
    }
}

/// Returns how many of the first parts are read concurrently: at most `at_once`, and at most
/// [`READ_BYTES_AT_ONCE`] bytes, but at least one part.
fn few<'p>(parts: impl Iterator<Item = &'p Part>, at_once: usize) -> usize {
    let mut bytes = 0;
    let mut count = 0;
    for part in parts.take(at_once) {
        bytes += part.bytes;
        if count > 0 && bytes > READ_BYTES_AT_ONCE {
            break;
        }
        count += 1;
    }
    count
}

/// Groups parts for concurrent reads.
pub(super) fn together<'p>(parts: &'p [&'p Part]) -> impl Iterator<Item = &'p [&'p Part]> {
    let mut left = parts;
    std::iter::from_fn(move || {
        let count = few(left.iter().copied(), READS_AT_ONCE);
        let (some, rest) = left.split_at_checked(count).filter(|(some, _)| !some.is_empty())?;
        left = rest;
        Some(some)
    })
}

/// The events of one day that were already returned. An event belongs to one day, and parts are
/// ordered by day.
#[derive(Default)]
pub(super) struct ReturnedEvents {
    day: Option<(String, String)>,
    event_ids: BTreeSet<String>,
}

impl ReturnedEvents {
    /// Returns true if the event of this row was not returned before, and records the event.
    pub(super) fn is_new(&mut self, part: &Part, row: &Row) -> bool {
        let is_same = |(table, date): &(String, String)| *table == part.table && *date == part.date;
        if !self.day.as_ref().is_some_and(is_same) {
            self.day = Some((part.table.clone(), part.date.clone()));
            self.event_ids.clear();
        }
        self.event_ids.insert(row.text("_event_id").to_owned())
    }
}

/// Runs a step that needs a consistent set of parts, and repeats it with a new listing if it fails
/// and the parts have changed.
///
/// # Errors
/// When the step fails although the parts have not changed.
pub(super) async fn while_parts_change<T>(
    list: impl AsyncFn() -> Result<Vec<Part>>,
    mut read: impl AsyncFnMut(&[Part]) -> Result<T>,
) -> Result<T> {
    let mut parts = list().await?;
    for _ in 1..LOOKS_MAX {
        match read(&parts).await {
            Ok(found) => return Ok(found),
            Err(error) => {
                let now = list().await?;
                if now == parts {
                    return Err(error);
                }
                parts = now;
            }
        }
    }
    read(&parts).await
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::time::Duration;

    use bytes::Bytes;
    use http_body_util::Full;
    use hyper::Response;
    use hyper::service::service_fn;
    use hyper_util::rt::TokioIo;
    use tokio::net::TcpListener;

    use super::super::source::BucketTables;
    use super::*;
    use client::endpoint;

    /// The requests that a bucket has received.
    #[derive(Debug, Default)]
    struct ReceivedRequests {
        gets: AtomicUsize,
        under_way: AtomicUsize,
        at_once: AtomicUsize,
    }

    impl ReceivedRequests {
        fn counts(&self) -> [usize; 2] {
            [&self.gets, &self.at_once].map(|count| count.load(Ordering::SeqCst))
        }
    }

    /// Returns a bucket in which every object has this content and a request takes as long as S3's.
    async fn bucket(content: Bytes) -> (Source, Arc<ReceivedRequests>) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let asked = Arc::new(ReceivedRequests::default());
        let of_server = Arc::clone(&asked);
        tokio::spawn(async move {
            loop {
                let (socket, _) = listener.accept().await.unwrap();
                let (asked, content) = (Arc::clone(&of_server), content.clone());
                let service = service_fn(move |_| {
                    let (asked, content) = (Arc::clone(&asked), content.clone());
                    async move {
                        asked.gets.fetch_add(1, Ordering::SeqCst);
                        let now = asked.under_way.fetch_add(1, Ordering::SeqCst) + 1;
                        asked.at_once.fetch_max(now, Ordering::SeqCst);
                        tokio::time::sleep(Duration::from_millis(100)).await;
                        asked.under_way.fetch_sub(1, Ordering::SeqCst);
                        Ok::<_, Infallible>(Response::new(Full::new(content)))
                    }
                });
                let http = hyper::server::conn::http1::Builder::new();
                tokio::spawn(http.serve_connection(TokioIo::new(socket), service));
            }
        });
        let source = Source::Bucket {
            client: Box::new(endpoint::s3_client(&url)),
            bucket: "b".to_owned(),
            prefix: String::new(),
            folder: None,
            home: BucketTables::default(),
        };
        (source, asked)
    }

    /// Only the first part is read by itself; later reads are concurrent, within the limit of bytes. A
    /// restore reads one part at a time.
    #[tokio::test]
    async fn several_parts_are_read_at_the_same_time() {
        let folder = tempfile::tempdir().unwrap();
        let item = r#"{"title":{"S":"A"},"year":{"N":"1"}}"#.to_owned();
        super::super::tests::write_items(folder.path(), "a.parquet", &[(1, item)]);
        let name = "bucket/archive/table=movies/dt=1970-01-01/a.parquet";
        let content = Bytes::from(std::fs::read(folder.path().join(name)).unwrap());
        for (count, bytes, is_restored, at_once) in [
            (40, content.len() as u64, false, READS_AT_ONCE),
            (12, READ_BYTES_AT_ONCE / 4, false, 4),
            (4, READ_BYTES_AT_ONCE + 1, false, 1),
            (4, content.len() as u64, true, 1),
        ] {
            let (source, asked) = bucket(content.clone()).await;
            let part = |number: usize| Part {
                table: "movies".to_owned(),
                date: "1970-01-01".to_owned(),
                name: format!("table=movies/dt=1970-01-01/part-{number:02}.parquet"),
                bytes,
            };
            let parts: Vec<Part> = (0..count).map(part).collect();
            let mut reading = match is_restored {
                true => Reading::newest_first(&source, parts.clone()),
                false => Reading::of(&source, parts.clone()),
            };
            let mut given = Vec::new();
            while let Some((part, batches)) = reading.next(None).await.unwrap() {
                assert_eq!(batches.count(), 1);
                given.push(part);
                if given.len() == 1 {
                    assert_eq!(asked.counts(), [1, 1]);
                }
            }
            if is_restored {
                given.reverse();
            }
            assert_eq!(given, parts);
            assert_eq!(asked.counts(), [count, at_once], "{bytes} {is_restored}");
        }
    }
}
