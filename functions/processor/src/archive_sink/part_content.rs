//! The content of an archive object that writers and compaction need: the event ids of its rows,
//! the event ids of erased rows, and the parts that the object replaces.
//!
//! No other column is read. An object with the same entity tag has the same content, so content
//! that was read stays valid.

use std::collections::{BTreeMap, HashSet};
use std::hash::{BuildHasherDefault, Hasher};
use std::sync::Arc;

use arrow_array::{Array, StringArray};
use bytes::Bytes;
use parquet::arrow::ProjectionMask;
use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;
use parquet::errors::ParquetError;
use parquet::file::metadata::KeyValue;
use rules::archive::Bucket;
use serde::de::DeserializeOwned;
use xxhash_rust::xxh3::xxh3_128;

/// The column with the event id, which identifies a row.
pub(super) const EVENT_ID: &str = "_event_id";
/// Metadata: event ids of rows that were erased from the object, as a JSON array. They count as
/// archived, so that a redelivered record does not restore its row.
pub(super) const ERASED: &str = "weir.erased";
/// Metadata of a compacted object: for each minute, the highest number of a replaced part, as a
/// JSON object. No new part gets this or a lower number. A part with this or a lower number may be
/// a leftover of an interrupted run; its event ids show whether compacted objects contain its rows.
pub(super) const REPLACED: &str = "weir.replaced";

/// The highest number of a replaced part, by minute (`20261121T0229`).
pub(super) type Replaced = BTreeMap<String, u32>;

/// A 128-bit digest of an event id. It is stored and compared instead of the id, because it takes a
/// quarter of the memory.
pub(super) type EventDigest = u128;

/// A set of digests. The hash of a digest is its lower half.
pub(super) type DigestSet = HashSet<EventDigest, BuildHasherDefault<DigestHasher>>;

/// Uses the lower half of a digest as its hash, because digests are uniformly distributed already.
#[derive(Debug, Default)]
pub(super) struct DigestHasher(u64);

impl Hasher for DigestHasher {
    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.0 = self.0.rotate_left(8) ^ u64::from(*byte);
        }
    }

    #[expect(clippy::cast_possible_truncation, reason = "only the lower half is used")]
    fn write_u128(&mut self, digest: u128) {
        self.0 = digest as u64;
    }

    fn finish(&self) -> u64 {
        self.0
    }
}

/// Returns the digest of an event id.
pub(super) fn digest(event_id: &str) -> EventDigest {
    xxh3_128(event_id.as_bytes())
}

fn in_order(mut digests: Vec<EventDigest>) -> Arc<[EventDigest]> {
    digests.sort_unstable();
    digests.into()
}

/// The content of an archive object that writers and compaction need.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct PartContent {
    /// Event ids of the object's rows, and of rows that were erased from it, sorted.
    pub(super) event_ids: Arc<[EventDigest]>,
    /// The parts that the object replaces; empty unless it is a compacted object.
    pub(super) replaced: Arc<Replaced>,
}

impl PartContent {
    /// Returns the content of a part that was just written.
    pub(super) fn of_event_ids<'e>(event_ids: impl Iterator<Item = &'e str>) -> Self {
        Self { event_ids: in_order(event_ids.map(digest).collect()), replaced: Arc::default() }
    }

    /// Reads the content from an object.
    ///
    /// # Errors
    /// When the bytes are not a Parquet file with a string column `_event_id`.
    pub(super) fn read(object: Bytes) -> Result<Self, ParquetError> {
        let builder = ParquetRecordBatchReaderBuilder::try_new(object)?;
        let metadata = builder.metadata().file_metadata().key_value_metadata().cloned();
        let metadata = metadata.unwrap_or_default();
        let erased: Vec<String> = read_json(&metadata, ERASED)?.unwrap_or_default();
        let mut event_ids: Vec<EventDigest> = erased.iter().map(|id| digest(id)).collect();
        let replaced = read_json(&metadata, REPLACED)?.unwrap_or_default();
        let projection = ProjectionMask::columns(builder.parquet_schema(), [EVENT_ID]);
        for batch in builder.with_projection(projection).build()? {
            let batch = batch?;
            let column = batch
                .column_by_name(EVENT_ID)
                .and_then(|column| column.as_any().downcast_ref::<StringArray>())
                .ok_or_else(|| ParquetError::General(format!("no string column `{EVENT_ID}`")))?;
            event_ids.extend(column.iter().flatten().map(digest));
        }
        Ok(Self { event_ids: in_order(event_ids), replaced: Arc::new(replaced) })
    }

    /// Returns the highest number of a part of the bucket that this object replaces; 0 if it
    /// replaces no part.
    pub(super) fn replaced_of(&self, bucket: &Bucket) -> u32 {
        self.replaced.get(&bucket.minute().compact_text()).copied().unwrap_or(0)
    }
}

/// Decodes the JSON value of a metadata key; `None` if the key is missing.
///
/// # Errors
/// When the value does not have the expected form.
pub(super) fn read_json<T: DeserializeOwned>(
    metadata: &[KeyValue],
    key: &str,
) -> Result<Option<T>, ParquetError> {
    let Some(text) = text_of(metadata, key) else { return Ok(None) };
    let wrong = |error| ParquetError::General(format!("metadata `{key}`: {error}"));
    serde_json::from_str(text).map(Some).map_err(wrong)
}

/// Returns the value of a metadata key; `None` if the key is missing.
pub(super) fn text_of<'m>(metadata: &'m [KeyValue], key: &str) -> Option<&'m str> {
    metadata.iter().find(|entry| entry.key == key)?.value.as_deref()
}
