//! The mark of a load: an attribute of a slot with the position of the last line that the slot has
//! counted.
//!
//! The mark ensures that a slot counts no line of a file twice. The lines of a slot go through one
//! lane in file order, so all lines up to the mark are counted. The mark and the count are written
//! in one conditional request. The store therefore rejects a line that another attempt, run or
//! process has already counted. A file is identified by its content, not by its name.

use std::io::Read;

use aws_sdk_dynamodb::error::SdkError;
use aws_sdk_dynamodb::operation::update_item::UpdateItemError;
use model::Item;
use xxhash_rust::xxh3::Xxh3;

use client::attribute::from_sdk_item;
use operations::counters::LOAD_MARK_PREFIX;

/// The condition that the slot has not counted the line at `:place` or a later line.
pub(super) const GUARD: &str = "attribute_not_exists(#mark) OR #mark < :place";

/// Size of one read of the file, in bytes.
const PART_BYTES: usize = 64 * 1024;

/// Returns a hash of a file's content.
///
/// # Errors
/// When the file cannot be read.
pub(super) fn content_of(mut file: impl Read) -> std::io::Result<String> {
    let (mut hash, mut length) = (Xxh3::new(), 0);
    let mut part = vec![0; PART_BYTES];
    loop {
        match file.read(&mut part) {
            Ok(0) => break,
            Ok(read) => {
                hash.update(part.get(..read).unwrap_or_default());
                length += read;
            }
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(format!("{:032x}-{length}", hash.digest128()))
}

/// Returns the name of a load's mark. It depends on the file's content, the count attribute and the
/// name of the load.
pub(super) fn attribute(content: &str, count_attribute: &str, name: &str) -> String {
    format!("{LOAD_MARK_PREFIX}{:016x}", hash_of(&[content, count_attribute, name]) >> 64)
}

/// Returns a hash of several strings. The length of each string is hashed too, so that the same
/// text has different hashes when it is split differently.
pub(super) fn hash_of(texts: &[&str]) -> u128 {
    let mut hash = Xxh3::new();
    for text in texts {
        hash.update(&u64::try_from(text.len()).unwrap_or_default().to_be_bytes());
        hash.update(text.as_bytes());
    }
    hash.digest128()
}

/// Returns the position of the last line that a slot has counted, if an addition was rejected
/// because the slot had already counted its line. Returns the position `asked` if the store does
/// not return the item.
pub(super) fn counted_place(
    error: &SdkError<UpdateItemError>,
    attribute: &str,
    asked: u64,
) -> Option<u64> {
    let Some(UpdateItemError::ConditionalCheckFailedException(failed)) = error.as_service_error()
    else {
        return None;
    };
    let item = failed.item().cloned().and_then(|item| from_sdk_item(item).ok());
    let place = |item: Item| item.get(attribute)?.as_number()?.to_u64();
    Some(item.and_then(place).unwrap_or(asked).max(asked))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_known_by_its_bytes_and_a_load_by_what_it_counts() {
        let content = |bytes: &[u8]| content_of(bytes).unwrap();
        assert_eq!(content(b"a,b\n1,2\n"), content(b"a,b\n1,2\n"));
        assert_ne!(content(b"a,b\n1,2\n"), content(b"a,b\n1,3\n"));
        assert!(content(b"a,b\n").ends_with("-4"));
        let own = attribute("x-1", "votes", "");
        assert!(
            own.starts_with(LOAD_MARK_PREFIX) && own.len() == LOAD_MARK_PREFIX.len() + 16,
            "{own}"
        );
        for other in [
            attribute("x-2", "votes", ""),
            attribute("x-1", "points", ""),
            attribute("x-1", "votes", "again"),
            attribute("x-1vo", "tes", ""),
        ] {
            assert_ne!(own, other);
        }
    }
}
