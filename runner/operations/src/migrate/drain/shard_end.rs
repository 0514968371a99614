//! When a look at an open shard has read all that was there when the look began.
//!
//! Nothing says where a shard ends that is open. Empty pages speak for it, and so does a record that
//! was made after the look began; which of them count is known here, nothing is read.

use std::time::Duration;

use aws_sdk_dynamodb::Client;

use client::keys;
use client::server_date;

/// Empty pages in a row, of each look, after which a shard counts as read to its end: when it counts,
/// writers have stopped, so nothing is added.
const EMPTY_PAGES: u32 = 3;
/// The same on AWS, of all looks together. A page there covers a portion of the shard that may have no
/// record while a later one has, and nothing says how many portions there are. So this is evidence and
/// no proof; the first look takes ten seconds for it, with the pauses in between.
/// Source: DynamoDB Streams API reference, "GetRecords".
const EMPTY_PAGES_ON_AWS: u32 = 50;
/// Between two empty pages of a shard on AWS: five requests a second, as more are throttled, together
/// with those of the functions that read the shard.
const PAUSE_ON_AWS: Duration = Duration::from_millis(200);
/// Seconds by which the clocks of machines that make records may differ, and the whole second that a
/// time is told in: as much as a backfill waits for behind its fence.
pub(crate) const CLOCKS_SECONDS: i64 = 6;
/// How long the endpoint may take to tell the time; without it, empty pages decide alone.
const TIME_LIMIT: Duration = Duration::from_secs(5);

/// What tells the end of the shards of one look.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct ShardEnd {
    empty_pages_in_all: u32,
    pause: Duration,
    /// Who reads a record of this second, since 1970, has read all that was there when the look began.
    enough: Option<i64>,
}

impl ShardEnd {
    /// For a look that begins now. A local store answers with an empty page at the end and nowhere
    /// else, and writers there cannot write as fast as it is read. What takes a person's own keys may
    /// be AWS, under whatever name it is reached.
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

    /// How long to wait behind an empty page before the next one is asked for; none if none will be.
    pub(crate) fn pause(self, empty: u32, empty_in_all: u32) -> Option<Duration> {
        let goes_on = empty > 0 && !self.is_reached(empty, empty_in_all);
        Some(self.pause).filter(|pause| goes_on && !pause.is_zero())
    }

    /// Whether empty pages are enough: in a row in this look, and since the last record in all looks.
    pub(crate) fn is_reached(self, empty: u32, empty_in_all: u32) -> bool {
        empty >= EMPTY_PAGES && empty_in_all >= self.empty_pages_in_all
    }

    /// Whether a record was made after the look began: writers go on, and what they write now is for
    /// the next look.
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
    fn a_shard_ends_behind_enough_empty_pages_or_with_what_is_newer_than_the_look() {
        let local = ShardEnd::default();
        let aws = ShardEnd { enough: Some(1_006), ..ShardEnd::on_aws() };
        for (empty, in_all, of_local, of_aws) in [
            (2, 100, false, false),
            (3, 3, true, false),
            (49, 49, true, false),
            (50, 50, true, true),
            // The looks before have seen as much.
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
            // Behind records the next page is read at once.
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
        assert!(first * 2 < limit, "a look at more than one round of shards ends in time");
    }

    #[tokio::test]
    async fn a_local_store_is_not_asked_for_the_time() {
        let url = "http://127.0.0.1:1";
        let end = ShardEnd::of_look(url, &endpoint::client(url)).await;
        assert!(end.is_reached(EMPTY_PAGES, EMPTY_PAGES) && end.enough.is_none());
    }
}
