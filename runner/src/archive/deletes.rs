//! The TTL deletes in the streams of a table, over the Streams API.
//!
//! Every shard is read from its oldest record to its end, or to where it is now. Nothing is
//! compared here.

use std::collections::BTreeSet;

use aws_sdk_dynamodbstreams::Client;
use model::Item;
use model::stream_record::lambda_record_from_str;
use rules::archive::restored;

use super::completeness::Deletes;
use crate::mapping::Record;
use crate::streams::shards::{self, Place, Refusal, Start, Stream};

/// TTL deletes that are kept at most: some 500 MB.
const DELETES_MAX: usize = 5_000_000;
/// Empty pages in a row after which an open shard counts as read. DynamoDB answers empty pages
/// between records as well, so one alone says little.
const EMPTY_PAGES_MAX: usize = 5;
/// Readings of a shard that are begun anew at most: each because its oldest records were trimmed
/// meanwhile, which takes a leap of the clock.
const READINGS_MAX: usize = 3;

/// Which items the archive does not get again.
#[derive(Clone, Copy, Debug)]
pub(super) struct Known<'k> {
    /// The table.
    pub(super) table: &'k str,
    /// The names of the archives that are compared, as marks have them; more than one if their
    /// prefixes have a beginning in common.
    pub(super) archives: &'k BTreeSet<String>,
}

impl Known<'_> {
    /// As the function `archive` decides it: an item from any other archive, or of one that its mark
    /// does not name, has to have a row.
    fn has(self, item: &Item) -> bool {
        let mut archives = self.archives.iter();
        archives.any(|archive| restored::is_in_archive(item, archive, self.table))
    }
}

/// Reads all streams of a table that are still readable.
///
/// # Errors
/// A call that failed, or a table that has no stream.
pub(super) async fn read(client: &Client, known: Known<'_>) -> Result<Deletes, String> {
    let table = known.table;
    let mut found = Deletes::default();
    found.streams.extend(shards::arns(client, Some(table)).await?);
    if found.streams.is_empty() {
        return Err(format!("table `{table}` has no stream, so its archive cannot be checked"));
    }
    let mut restored = BTreeSet::new();
    for arn in found.streams.clone() {
        let stream = shards::describe(client.clone(), &arn).await?;
        for shard in stream.shards.iter().filter_map(|shard| shard.shard_id.as_deref()) {
            read_shard(&stream, (known, shard), &mut found, &mut restored).await?;
        }
    }
    found.restored = restored.len();
    Ok(found)
}

/// What is trimmed is not missed: it is older than what is compared.
async fn read_shard(
    stream: &Stream,
    (known, shard): (Known<'_>, &str),
    found: &mut Deletes,
    restored: &mut BTreeSet<String>,
) -> Result<(), String> {
    for _ in 0..READINGS_MAX {
        let mut place = Place::new(Start::TrimHorizon);
        let mut empty = 0;
        loop {
            let page = match stream.next_page(shard, &mut place).await {
                Ok(Some(page)) => page,
                Ok(None) => return Ok(()),
                Err(Refusal::Trimmed) => break,
                Err(refusal) => return Err(format!("shard `{shard}`: {refusal}")),
            };
            empty = if page.is_empty() { empty + 1 } else { 0 };
            for record in page {
                note(&record, known, found, restored)?;
            }
            if found.deletes.len() > DELETES_MAX {
                return Err(format!("the stream has more than {DELETES_MAX} TTL deletes"));
            }
            if empty == EMPTY_PAGES_MAX {
                return Ok(());
            }
        }
    }
    Ok(())
}

fn note(
    record: &Record,
    known: Known<'_>,
    found: &mut Deletes,
    restored: &mut BTreeSet<String>,
) -> Result<(), String> {
    // Few records say who made them, so the others need not be decoded.
    if !record.json().contains("\"userIdentity\"") {
        return Ok(());
    }
    let record = lambda_record_from_str(record.json()).map_err(|error| error.to_string())?.record;
    if !record.is_time_to_live() {
        return Ok(());
    }
    if record.old_image.as_ref().is_some_and(|item| known.has(item)) {
        restored.insert(record.event_id);
    } else if let Some(seconds) = record.approximate_creation_seconds {
        let time = i64::try_from(seconds).unwrap_or(i64::MAX).saturating_mul(1000);
        found.deletes.insert(record.event_id, time);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use model::json::item_from_str;
    use rules::archive::restored::{Origin, RESTORED, mark};

    use super::*;

    #[test]
    fn only_what_was_restored_from_the_archive_that_is_compared_needs_no_row() {
        let archives = BTreeSet::from(["b/archive/".to_owned(), "b/archive2/".to_owned()]);
        for (archive, from, is_changed, expected) in [
            (Some("b/archive/"), "films", false, true),
            (Some("b/archive2/"), "films", false, true),
            (Some("b/archive/"), "films", true, false),
            (Some("b/archive/"), "other", false, false),
            (Some("c/archive/"), "films", false, false),
            (None, "films", false, false),
        ] {
            let mut item = item_from_str(r#"{"id":{"S":"a"}}"#).unwrap();
            let origin = Origin { archive, table: from, event_id: "e", stamp: "s" };
            let marked = mark(&item, origin, None);
            item.insert(RESTORED.to_owned(), marked);
            if is_changed {
                item.insert("n".to_owned(), model::AttributeValue::Null);
            }
            let known = Known { table: "films", archives: &archives };
            assert_eq!(known.has(&item), expected, "{archive:?} {from} {is_changed}");
            // A folder names no archive.
            assert!(!Known { table: "films", archives: &BTreeSet::new() }.has(&item));
        }
    }
}
