//! Where tombstones are noted in the control table: by a hash of their keys, so that each has one
//! note, spread over some partitions.

use xxhash_rust::xxh3::xxh3_128;

/// Partitions over which the notes of a migration are spread: one takes 1,000 writes per second.
pub const NOTE_BUCKETS: u32 = 16;
/// What the entries of notes begin with.
pub const NOTE_PREFIX: &str = "TOMBSTONE#";

/// The partition key of a bucket of a migration's notes.
#[must_use]
pub fn note_partition(migration: &str, bucket: u32) -> String {
    format!("{migration}/tombstones/{bucket:02}")
}

/// The partition key and the entry of the note of a tombstone; `key_text` is its key as DynamoDB JSON.
#[must_use]
pub fn note_of(migration: &str, table: &str, key_text: &str) -> (String, String) {
    let hash = xxh3_128(key_text.as_bytes());
    let bucket = u32::try_from(hash % u128::from(NOTE_BUCKETS)).unwrap_or(0);
    (note_partition(migration, bucket), format!("{NOTE_PREFIX}{table}#{hash:032x}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_note_is_found_in_one_of_the_buckets() {
        let (partition, entry) = note_of("shop", "orders", r#"{"id":{"S":"7"}}"#);
        assert!((0..NOTE_BUCKETS).any(|bucket| partition == note_partition("shop", bucket)));
        assert_eq!(note_partition("shop", 3), "shop/tombstones/03");
        assert!(entry.starts_with("TOMBSTONE#orders#") && entry.len() == 17 + 32, "{entry}");
    }
}
