//! Error texts for a missing table of ballots, with advice on how to create it.

use std::error::Error;

use aws_sdk_dynamodb::error::{ProvideErrorMetadata, SdkError};

use super::ballots::Ballots;
use client::failure::{Failure, fatal};
use client::sdk_error::is_not_found;

impl Ballots<'_> {
    /// Returns why a table cannot be read.
    pub(super) fn unread<E>(&self, table: &str, error: SdkError<E>) -> Failure
    where
        E: Error + ProvideErrorMetadata + 'static,
    {
        if table != self.table || !is_not_found(&error) {
            return error.into();
        }
        fatal!(
            "no table `{table}` for the ballots: create it with the partition key `{}`, a string, or name another table with --ballots",
            self.key
        )
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::place;
    use super::*;
    use testing::store::TestStore;

    #[tokio::test]
    async fn a_table_of_ballots_that_is_not_there_is_named_with_the_key_that_it_needs() {
        let store = TestStore::open().await;
        let place = place(&store.url);
        let ballots = Ballots { place: &place, table: "polls".to_owned(), key: "p".to_owned() };
        let said = ballots.vote("2026", "ada", Some(("A", "1".parse().unwrap()))).await;
        let said = said.unwrap_err().to_string();
        assert!(said.contains("no table `polls` for the ballots"), "{said}");
        assert!(said.contains("partition key `p`, a string"), "{said}");
    }
}
