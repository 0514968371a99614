//! Decides when a read of an open shard has returned all records that existed when the read began.
//!
//! The API does not mark the end of an open shard. A read has reached the end after a number of
//! empty pages, or at a record that was made after the read began.

use std::time::Duration;

use aws_sdk_dynamodb::Client;

use client::keys;
use client::server_date;

/// Number of consecutive empty pages in one pass after which a shard counts as completely read.
/// Writers are blocked during the last pass, so they add no record.
const EMPTY_PAGES: u32 = 3;
/// Number of empty pages on AWS, summed over all passes. A page covers a section of the shard and
/// may be empty although a later section has records. The number of sections is unknown, so the
/// empty pages are evidence, but no proof. With the pauses, the first pass takes ten seconds.
/// Source: DynamoDB Streams API reference, "GetRecords".
const EMPTY_PAGES_ON_AWS: u32 = 50;
/// Pause between two empty pages of a shard on AWS. A shard allows five requests a second,
/// including those of the functions. Further requests are throttled.
const PAUSE_ON_AWS: Duration = Duration::from_millis(200);
/// Seconds by which the clocks of machines that make records may differ, including the rounding to
/// whole seconds. A backfill waits nearly as long after its fence.
pub(crate) const CLOCKS_SECONDS: i64 = 6;
/// Timeout of reading the store's time. If the time is unknown, only empty pages prove the end of a
/// shard.
const TIME_LIMIT: Duration = Duration::from_secs(5);

/// The rule that decides when a pass has read all records of a shard.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct ShardEnd {
    empty_pages_in_all: u32,
    pause: Duration,
    /// A second since 1970. A record of this second or later proves that all records from before
    /// the pass were read.
    enough: Option<i64>,
}

impl ShardEnd {
    /// Returns the rule for a pass that begins now. A local store returns an empty page only at the
    /// end of a shard, and its writers are slower than the reads. An endpoint that is called with
    /// the operator's own access keys is treated like AWS.
    pub(crate) async fn of_look(endpoint: &str, client: &Client) -> Self {
        if !keys::are_own(endpoint) {
            return Self::default();
        }
        let now = tokio::time::timeout(TIME_LIMIT, server_date::seconds(client)).await;
        let enough = now.ok().flatten().map(|now| now + CLOCKS_SECONDS);
        Self { enough, ..Self::on_aws() }
    }

    fn on_aws() -> Self {
        Self { empty_pages_in_all: EMPTY_PAGES_ON_AWS, pause: PAUSE_ON_AWS, enough: None }
    }

    /// Returns the pause before the next page of a shard; `None` if there is no pause, which is the
    /// case after a page with records, at the end of a shard, and on a local store.
    pub(crate) fn pause(self, empty: u32, empty_in_all: u32) -> Option<Duration> {
        let goes_on = empty > 0 && !self.is_reached(empty, empty_in_all);
        Some(self.pause).filter(|pause| goes_on && !pause.is_zero())
    }

    /// Returns true if there were enough empty pages. `empty` counts the consecutive empty pages of
    /// this pass, `empty_in_all` the empty pages of all passes since the last record.
    pub(crate) fn is_reached(self, empty: u32, empty_in_all: u32) -> bool {
        empty >= EMPTY_PAGES && empty_in_all >= self.empty_pages_in_all
    }

    /// Returns true if a record was made after the pass began, so that all records from before the
    /// pass were read.
    pub(crate) fn is_passed_by(self, made: Option<i64>) -> bool {
        self.enough.zip(made).is_some_and(|(enough, made)| made >= enough)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::migrate::drain::stream_lag::look_seconds;
    use client::endpoint;

    #[test]
    fn a_shard_ends_after_enough_empty_pages_or_a_newer_record() {
        let local = ShardEnd::default();
        let aws = ShardEnd { enough: Some(1_006), ..ShardEnd::on_aws() };
        for (empty, in_all, of_local, of_aws) in [
            (2, 100, false, false),
            (3, 3, true, false),
            (49, 49, true, false),
            (50, 50, true, true),
            // Earlier passes have returned enough empty pages.
            (3, 53, true, true),
        ] {
            assert_eq!(local.is_reached(empty, in_all), of_local, "{empty} {in_all}");
            assert_eq!(aws.is_reached(empty, in_all), of_aws, "{empty} {in_all}");
        }
        for (made, expected) in
            [(None, false), (Some(1_005), false), (Some(1_006), true), (Some(2_000), true)]
        {
            assert_eq!(aws.is_passed_by(made), expected, "{made:?}");
            assert!(!local.is_passed_by(made));
        }
    }

    #[test]
    fn on_aws_empty_pages_of_a_shard_are_read_with_pauses() {
        for (empty, in_all, of_aws) in [
            // After records, the next page is read without a pause.
            (0, 0, None),
            (1, 1, Some(PAUSE_ON_AWS)),
            (49, 49, Some(PAUSE_ON_AWS)),
            (50, 50, None),
            (2, 52, Some(PAUSE_ON_AWS)),
            (3, 53, None),
        ] {
            assert_eq!(ShardEnd::on_aws().pause(empty, in_all), of_aws, "{empty} {in_all}");
            assert_eq!(ShardEnd::default().pause(empty, in_all), None, "{empty} {in_all}");
        }
        let first: Duration = (0..).map_while(|n| ShardEnd::on_aws().pause(n + 1, n + 1)).sum();
        let limit = Duration::from_secs(look_seconds(None, true));
        assert!(first * 2 < limit, "a pass over two rounds of shards ends in time");
    }

    #[tokio::test]
    async fn a_local_store_is_not_asked_for_the_time() {
        let url = "http://127.0.0.1:1";
        let end = ShardEnd::of_look(url, &endpoint::client(url)).await;
        assert!(end.is_reached(EMPTY_PAGES, EMPTY_PAGES) && end.enough.is_none());
    }
}
