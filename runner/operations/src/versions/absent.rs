//! Explains why there is no history, with advice: the table, the key, or only the history is missing.
//!
//! This module is used only after a read has found no history. A history may exist longer than its table, and
//! its reader may have no permission to describe the table.

use std::collections::BTreeSet;

use aws_sdk_dynamodb::Client;
use model::Item;
use rules::versions::{ITEM_ATTRIBUTE, VERSION_ATTRIBUTE, history_key};

use super::reading::failed;
use super::{Place, history_of};
use crate::archive::versions::check_key;
use client::failure::{Context, Failure, Result, fatal};
use client::table_description::key_attributes;

/// Maximum number of tables that are listed. Source: DynamoDB quotas, tables for each account and
/// region.
const TABLES_MAX: usize = 10_000;
/// Maximum number of tables in a message.
const NAMED_MAX: usize = 10;

/// Returns why a key has no history: the key does not match the table's key schema, or its history
/// has not begun.
pub(super) async fn no_history(place: &Place, key: &Item) -> Failure {
    let Place { table, history, .. } = place;
    let none = format!("table `{history}` has no history of the item {}", history_key(key));
    // If the table does not exist, no item of it can begin a history.
    let Ok(known) = key_attributes(&place.client, table).await else { return none.into() };
    if let Err(misfit) = check_key(key, &known) {
        return misfit;
    }
    let flag = match *history == history_of(table) {
        true => String::new(),
        false => format!(" --history {history}"),
    };
    fatal!(
        "{none}; if the item exists, `weir versions backfill --table {table}{flag}` begins its history"
    )
}

/// Returns the names of the store's tables, up to a limit.
///
/// # Errors
/// When the tables cannot be listed.
pub(super) async fn table_names(client: &Client) -> Result<BTreeSet<String>> {
    let mut names = BTreeSet::new();
    let mut listed = client.list_tables().into_paginator().items().send();
    while let Some(name) = listed.next().await {
        names.insert(name.context(|| "ListTables")?);
        if names.len() >= TABLES_MAX {
            break;
        }
    }
    Ok(names)
}

/// Returns the tables for which a table of histories with the default name exists.
pub(super) fn versioned(names: &BTreeSet<String>) -> impl Iterator<Item = &String> {
    names.iter().filter(|name| names.contains(&history_of(name)))
}

/// Returns the message for a missing table of histories. The message lists the tables that have versions;
/// `reason` is the store's error.
pub(super) async fn no_table(place: &Place, reason: Failure) -> Failure {
    match table_names(&place.client).await {
        Ok(names) => not_versioned(&place.table, &place.history, &names).into(),
        Err(_) => failed(place, reason),
    }
}

fn not_versioned(table: &str, history: &str, names: &BTreeSet<String>) -> String {
    let versioned: Vec<&str> = versioned(names).map(String::as_str).take(NAMED_MAX).collect();
    let others = match versioned.as_slice() {
        [] => "no table of the store has versions".to_owned(),
        some => format!("tables with versions are {}", some.join(", ")),
    };
    match names.contains(table) {
        true => format!(
            "table `{table}` has no versions, because there is no table `{history}`: create it with the partition key `{ITEM_ATTRIBUTE}` and the sort key `{VERSION_ATTRIBUTE}`, both strings, or name another table with --history; {others}"
        ),
        false => {
            format!("no versioned table `{table}`: neither it nor `{history}` exists; {others}")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::{backfill, check, kept, list_histories};
    use super::*;
    use client::item_key;
    use client::output::Output;
    use testing::store::TestStore;

    #[tokio::test]
    async fn a_missing_history_is_reported_with_the_command_for_one() {
        let store = TestStore::open().await;
        for name in ["films", "series"] {
            store.table(name).await;
        }
        for name in ["films-history", "other"] {
            store.table_of(name, ITEM_ATTRIBUTE, VERSION_ATTRIBUTE).await;
        }
        let place = |table: &str, history: &str| Place {
            client: store.client.clone(),
            endpoint: store.url.clone(),
            table: table.to_owned(),
            history: history.to_owned(),
        };
        let key = r#"{"p":"Rush"}"#;
        let none = |history: &str, begins: &str| {
            let item = r#"{"p":{"S":"Rush"}}"#;
            format!("table `{history}` has no history of the item {item}{begins}")
        };
        let long = format!(r#"{{"p":"{}"}}"#, "a".repeat(2040));
        let nope = "no versioned table `nope`: neither it nor `nope-history` exists; tables with versions are films";
        let cases = [
            (
                ("films", "films-history", key),
                none("films-history", "; if the item exists, `weir versions backfill --table films` begins its history"),
            ),
            (
                ("films", "other", key),
                none("other", "; if the item exists, `weir versions backfill --table films --history other` begins its history"),
            ),
            // A history may exist longer than its table. Without the table, no item can begin a history.
            (("gone", "other", key), none("other", "")),
            (
                ("films", "films-history", r#"{"a":1}"#),
                "--key: `a` is not a key attribute; the key is p".to_owned(),
            ),
            (
                ("films", "films-history", r#"{"p":2013}"#),
                "--key: `p` must be a string; the key is p".to_owned(),
            ),
            (
                ("series", "series-history", key),
                "table `series` has no versions, because there is no table `series-history`: create it with the partition key `item` and the sort key `version`, both strings, or name another table with --history; tables with versions are films".to_owned(),
            ),
            (("nope", "nope-history", key), nope.to_owned()),
            (
                ("films", "films-history", &long),
                "this item does not fit into a version: the item's key takes 2054 bytes as a string; a history's key has at most 2048".to_owned(),
            ),
        ];
        for ((table, history, key), expected) in cases {
            let found = kept(&place(table, history), &item_key::parse(key).unwrap()).await;
            assert_eq!(found.unwrap_err().to_string(), expected);
        }
        let place = place("nope", "nope-history");
        for said in [
            list_histories(&place, Output::Table).await.unwrap_err(),
            check::run(&place, 0).await.unwrap_err(),
            backfill::run(&place, true).await.unwrap_err(),
        ] {
            assert_eq!(said.to_string(), nope);
        }
    }

    #[test]
    fn without_any_versions_none_are_named() {
        let names = BTreeSet::from(["films".to_owned()]);
        let said = not_versioned("nope", "nope-history", &names);
        assert!(said.ends_with("exists; no table of the store has versions"), "{said}");
    }
}
