//! Finds a record in the streams by its sequence number.

use aws_sdk_dynamodbstreams::Client;
use futures::StreamExt;

use super::{Found, NotFound};
use crate::journal::{FilterRejection, History, MappingHistory};
use client::failure::Result;
use client::shards::{self, Stream};
use mapping::SequenceNumber;

/// The number of streams that are searched at the same time.
const STREAMS_AT_ONCE: usize = 8;

/// The known facts about the place of a record.
pub(super) struct Clues<'a> {
    /// The table of the record.
    pub(super) table: Option<&'a str>,
    /// The shard that probably has the record, if the table is known.
    pub(super) shard: Option<&'a str>,
    /// What the journal has about the record.
    pub(super) history: &'a History,
}

impl Clues<'_> {
    /// Returns the ARN of the stream and the shard in which a mapping read the record.
    fn of_journal(&self) -> Option<(&str, &str)> {
        let shard = self.history.shard.as_deref()?;
        let is_wanted = |it: &&MappingHistory| {
            has_read(it) && self.table.is_none_or(|table| table == it.facts.table)
        };
        let reader = self.history.mappings.values().find(is_wanted)?;
        Some((reader.facts.stream.as_str(), shard))
    }
}

/// Returns whether the journal names the record among the records that a mapping read.
fn has_read(mapping: &MappingHistory) -> bool {
    matches!(mapping.filter_rejection, Some(FilterRejection::Reasons(_)))
        || mapping.attempts.iter().any(|attempt| attempt.place.is_some())
}

/// Searches for a record by the given sequence number, then by the number without leading zeros.
/// The archive adds leading zeros so that sequence numbers sort as strings.
pub(super) async fn find_either(
    client: &Client,
    sequence: &str,
    clues: &Clues<'_>,
) -> Result<Found, NotFound> {
    let found = find(client, sequence, clues).await;
    let significant = sequence.trim_start_matches('0');
    match found {
        Err(_) if significant != sequence => find(client, significant, clues).await,
        found => found,
    }
}

/// Searches the streams for a record. If its shard is known, reads only this shard.
async fn find(client: &Client, sequence: &str, clues: &Clues<'_>) -> Result<Found, NotFound> {
    SequenceNumber::parse(sequence).map_err(|_| NotFound::Gone)?;
    let known = clues.of_journal();
    if let Some((arn, shard)) = known
        && let Some(found) = find_in(&Stream::of_arn(client.clone(), arn), shard, sequence).await
    {
        return Ok(found);
    }
    let mut arns = shards::arns(client, clues.table).await?;
    if let (Some(_), Some(shard)) = (clues.table, clues.shard) {
        for arn in &arns {
            let stream = Stream::of_arn(client.clone(), arn);
            if let Some(found) = find_in(&stream, shard, sequence).await {
                return Ok(found);
            }
        }
    }
    arns.sort_by_key(|arn| known.is_none_or(|(known, _)| known != arn));
    let mut reason = NotFound::Gone;
    let searches: Vec<_> = arns.iter().map(|arn| search(client, arn, sequence)).collect();
    let mut searches = futures::stream::iter(searches).buffered(STREAMS_AT_ONCE);
    while let Some(searched) = searches.next().await {
        match searched {
            Ok(Some(found)) => return Ok(found),
            Ok(None) => {}
            Err(error) => reason = error.into(),
        }
    }
    Err(reason)
}

/// Reads the record in a shard, with two requests.
async fn find_in(stream: &Stream, shard: &str, sequence: &str) -> Option<Found> {
    let (shard, record) = stream.find_in(shard, sequence).await?;
    Some(Found { table: stream.table.clone(), shard, record })
}

/// Searches a stream for a record, in the shards whose sequence numbers may include the record.
async fn search(client: &Client, arn: &str, sequence: &str) -> Result<Option<Found>> {
    let stream = shards::describe(client.clone(), arn).await?;
    let found = stream.find(sequence).await;
    Ok(found.map(|(shard, record)| Found { table: stream.table, shard, record }))
}

#[cfg(test)]
mod tests {
    use aws_sdk_dynamodb::types::AttributeValue;

    use super::super::newest;
    use super::*;
    use testing::store::TestStore;

    /// Goal: a record is found in its shard, also if the named shard does not have it.
    #[tokio::test]
    async fn a_record_is_found_with_and_without_its_shard() {
        let store = TestStore::open().await;
        store.table("orders").await;
        for key in ["a", "b"] {
            let put = store.client.put_item().table_name("orders");
            put.item("p", AttributeValue::S(key.to_owned())).send().await.unwrap();
        }
        let sequence = newest::of_streams(Some(&store.url), Some("orders")).await.unwrap();
        let client = client::endpoint::streams_client(&store.url);
        let find = async |sequence: &str, shard: Option<&str>, history: &History| {
            let clues = Clues { table: Some("orders"), shard, history };
            find_either(&client, sequence, &clues).await.ok()
        };
        let none = History::default();
        let found = find(&sequence, None, &none).await.unwrap();
        assert_eq!((found.table.as_str(), found.record.sequence.as_str()), ("orders", &*sequence));
        for shard in [found.shard.as_str(), "shardId-00000000000000000000-00000000"] {
            let again = find(&format!("00{sequence}"), Some(shard), &none).await.unwrap();
            assert_eq!((again.shard, again.table), (found.shard.clone(), found.table.clone()));
        }
        assert!(find("1", None, &none).await.is_none(), "a number before all records");
        assert!(find("x", None, &none).await.is_none(), "an event id");
    }

    /// Goal: the journal names the stream and the shard of a record that a mapping read.
    #[test]
    fn the_journal_names_the_place_of_a_record() {
        let mut mapping = MappingHistory::default();
        mapping.facts.stream = "arn".to_owned();
        mapping.facts.table = "orders".to_owned();
        let of = |mapping: &MappingHistory| History {
            shard: Some("shard-1".to_owned()),
            mappings: [("M".to_owned(), mapping.clone())].into(),
            ..History::default()
        };
        let place = |history: &History, table: Option<&str>| {
            let clues = Clues { table, shard: None, history };
            clues.of_journal().map(|(arn, shard)| (arn.to_owned(), shard.to_owned()))
        };
        assert_eq!(place(&of(&mapping), None), None, "the mapping did not read the record");
        mapping.filter_rejection = Some(FilterRejection::Reasons(Vec::new()));
        let history = of(&mapping);
        let expected = Some(("arn".to_owned(), "shard-1".to_owned()));
        assert_eq!(place(&history, None), expected);
        assert_eq!(place(&history, Some("orders")), expected);
        assert_eq!(place(&history, Some("films")), None);
    }
}
