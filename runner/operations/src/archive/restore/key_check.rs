//! Checks that archived items remain distinct in the table into which they are restored.
//!
//! A table with another key would merge items, or reject them. The check runs before anything is
//! written. A row that lacks a key attribute is reported when it is restored.

use aws_sdk_dynamodb::Client;
use jiff::Timestamp;
use jiff::tz::TimeZone;
use model::KeyAttributeType;

use super::super::cell::{Cell, Row};
use super::super::reading::Reading;
use super::super::source::{Part, Source};
use super::{Target, part_key};
use client::failure::{Result, fatal};
use client::table_description::key_attributes;

/// The key attributes with their types, partition key first.
type Key = [(String, KeyAttributeType)];

/// Checks the key of a target table that is not the archived table. The key is compared with the
/// archived table's key. If the archived table was deleted or re-created, the key is compared with
/// the items in the selected parts.
///
/// # Errors
/// When the keys differ; the message names both keys, and states what to do instead.
pub(super) async fn check(
    target: &Target,
    source: &Source,
    wanted: &[Part],
    is_whole: bool,
) -> Result<()> {
    let Target { client, table, archived, .. } = target;
    if table == archived {
        return Ok(());
    }
    let into = key_attributes(client, table).await?;
    let of = format!("its key is {}", words(&into));
    let wrong = match key_attributes(client, archived).await {
        Ok(key) if is_same(&key, &into) => return Ok(()),
        Ok(key) => {
            let made_ms = made_at(client, archived).await;
            let before = match made_ms {
                Some(made_ms) => from_before(&into, source, wanted, made_ms).await?,
                None => DeletedBefore::None,
            };
            let other = format!("{of}, and the key of `{archived}` is {}", words(&key));
            match before {
                DeletedBefore::All => {
                    match part_key::joined(source, wanted, &into, is_whole).await? {
                        Some(why) => format!("{of}, and {why}"),
                        None => return Ok(()),
                    }
                }
                DeletedBefore::UpTo(condition) => format!(
                    "{other}: items deleted since `{archived}` was created have another key; exclude them with --where \"{condition}\""
                ),
                DeletedBefore::None => other,
            }
        }
        Err(_) if has_item_with(&into, source, wanted, |_| true).await? != Some(false) => {
            match part_key::joined(source, wanted, &into, is_whole).await? {
                Some(why) => format!("{of}, and {why}"),
                None => return Ok(()),
            }
        }
        Err(_) => format!("{of}, and no selected archived item of `{archived}` has such a key"),
    };
    Err(fatal!(
        "cannot restore into table `{table}`: {wrong}; nothing was written. Restore into a table with the items' own key, then change the key with a migration (`weir migrate`)"
    ))
}

/// The selected items that were deleted before the current table was created.
enum DeletedBefore {
    /// All selected items have the key of the target table.
    All,
    /// All items with the key of the target table match this condition. It excludes items that were
    /// deleted later, because these items may be merged.
    UpTo(String),
    /// No selected item has the key of the target table.
    None,
}

/// Finds the selected items of an earlier table with the same name, whose key may differ. Only the
/// parts up to the day on which the current table was created are read.
async fn from_before(
    key: &Key,
    source: &Source,
    wanted: &[Part],
    made_ms: i64,
) -> Result<DeletedBefore> {
    let made = Timestamp::from_millisecond(made_ms).unwrap_or(Timestamp::MAX);
    let day = made.to_zoned(TimeZone::UTC).date().to_string();
    let older: Vec<Part> = wanted.iter().filter(|part| part.date <= day).cloned().collect();
    if has_item_with(key, source, &older, |row| is_before(row, made_ms)).await? != Some(true) {
        return Ok(DeletedBefore::None);
    }
    if older.len() < wanted.len() {
        return Ok(DeletedBefore::UpTo(format!("dt <= '{day}'")));
    }
    let same: Vec<Part> = older.into_iter().filter(|part| part.date == day).collect();
    let newer = has_item_with(key, source, &same, |row| !is_before(row, made_ms)).await?;
    Ok(match newer {
        Some(true) => DeletedBefore::UpTo(format!("dt < '{day}'")),
        _ => DeletedBefore::All,
    })
}

/// Returns true if two keys distinguish the same items, even if the roles of partition and sort key
/// are swapped.
fn is_same(one: &Key, other: &Key) -> bool {
    one.len() == other.len() && one.iter().all(|attribute| other.contains(attribute))
}

fn words(key: &Key) -> String {
    let words = key.iter().map(|(name, key_type)| format!("`{name}` ({})", key_type.descriptor()));
    words.collect::<Vec<_>>().join(" and ")
}

/// Returns the creation time of a table in milliseconds by its store's clock; `None` if unknown.
async fn made_at(client: &Client, table: &str) -> Option<i64> {
    let described = client.describe_table().table_name(table).send().await.ok()?.table?;
    // Delete times have whole seconds, so the creation time is also truncated to seconds.
    Some(described.creation_date_time?.secs().saturating_mul(1_000))
}

/// Returns true if the row's delete was before a time.
fn is_before(row: &Row, millis: i64) -> bool {
    matches!(row.get("_deleted_at"), Cell::Time(at) if *at < millis)
}

/// Returns whether any selected item has a key with these attributes; `None` if no item is
/// selected. Stops at the first item with the key, so it reads all parts only if no item has it.
async fn has_item_with(
    key: &Key,
    source: &Source,
    parts: &[Part],
    is_meant: impl Fn(&Row) -> bool,
) -> Result<Option<bool>> {
    let mut reading = Reading::newest_first(source, parts.to_vec());
    let mut found = None;
    while let Some((part, batches)) = reading.next(Some(&["_item", "_deleted_at"])).await? {
        for row in part.rows(batches) {
            let row = row?;
            if is_meant(&row) {
                if part_key::has(&part.item(&row)?, key) {
                    return Ok(Some(true));
                }
                found = Some(false);
            }
        }
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::tests::{movies_by_year, run};
    use super::*;
    use testing::store::TestStore;

    /// The result is the same whether the archived table exists or, as after a migration, does not.
    #[tokio::test]
    async fn a_table_with_another_key_is_refused_before_anything_is_written() {
        let folder = super::super::super::tests::archive();
        let source = Source::Folder(folder.path().to_owned());
        let store = movies_by_year().await;
        store.table("by_p").await;
        store.table_of("by_text", "title", "year").await;
        for is_gone in [false, true] {
            if is_gone {
                store.client.delete_table().table_name("movies").send().await.unwrap();
            }
            for (table, key) in [
                ("by_p", "its key is `p` (S)"),
                ("by_text", "its key is `title` (S) and `year` (S)"),
            ] {
                let other = if is_gone {
                    "no selected archived item of `movies` has such a key"
                } else {
                    "the key of `movies` is `title` (S) and `year` (N)"
                };
                for flags in [&["--into", table][..], &["--into", table, "--dry-run"]] {
                    let refused = run(&source, &store, flags).await.unwrap_err().to_string();
                    let expected =
                        format!("cannot restore into table `{table}`: {key}, and {other}; nothing");
                    assert!(refused.starts_with(&expected), "{refused}");
                }
                let scanned = store.client.scan().table_name(table).send().await.unwrap();
                assert_eq!(scanned.count(), 0);
            }
        }
    }

    #[tokio::test]
    async fn a_table_with_the_same_key_takes_the_items() {
        let folder = super::super::super::tests::archive();
        let source = Source::Folder(folder.path().to_owned());
        for is_gone in [false, true] {
            let store = movies_by_year().await;
            super::super::tests::table_by_year(&store, "films").await;
            if is_gone {
                store.client.delete_table().table_name("movies").send().await.unwrap();
            }
            let answer = run(&source, &store, &["--into", "films"]).await.unwrap();
            assert_eq!(answer["restored"], json!(3), "{answer}");
        }
    }

    /// The archive has items of both keys. The items of the earlier table are in older parts.
    #[tokio::test]
    async fn items_of_an_earlier_table_need_a_table_with_their_key() {
        let folder = super::super::super::tests::archive();
        let source = Source::Folder(folder.path().to_owned());
        let newer = r#"{"p":{"S":"A"}}"#.to_owned();
        super::super::super::tests::write_items(folder.path(), "z.parquet", &[(90, newer)]);
        let store = TestStore::open().await;
        store.table("movies").await;
        store.table_of("by_text", "title", "year").await;
        super::super::tests::table_by_year(&store, "movies_old").await;
        let answer = run(&source, &store, &["--into", "movies_old"]).await.unwrap();
        assert_eq!((&answer["restored"], &answer["skipped"]), (&json!(3), &json!(1)), "{answer}");
        let refused = run(&source, &store, &["--into", "by_text"]).await.unwrap_err().to_string();
        assert!(refused.contains("and the key of `movies` is `p` (S); nothing was"), "{refused}");
        // Later deletes have the key of the current table, whatever their other attributes are.
        let days = folder.path().join("bucket/archive/table=movies");
        std::fs::create_dir_all(days.join("dt=9000-01-01")).unwrap();
        let part = days.join("dt=1970-01-01/part-1.parquet");
        std::fs::copy(part, days.join("dt=9000-01-01/part-9.parquet")).unwrap();
        let refused =
            run(&source, &store, &["--into", "movies_old"]).await.unwrap_err().to_string();
        assert!(refused.contains("exclude them with --where \"dt <= '"), "{refused}");
        let old = ["--into", "movies_old", "--dt", "1970-01-01"];
        assert_eq!(run(&source, &store, &old).await.unwrap()["skipped"], json!(1));
    }

    /// The damaged part belongs to a later day.
    #[tokio::test]
    async fn parts_that_are_not_wanted_are_not_read() {
        let folder = super::super::super::tests::archive();
        let day = folder.path().join("bucket/archive/table=movies/dt=1970-01-02");
        std::fs::create_dir_all(&day).unwrap();
        std::fs::write(day.join("z.parquet"), "?").unwrap();
        let source = Source::Folder(folder.path().to_owned());
        let store = movies_by_year().await;
        super::super::tests::table_by_year(&store, "films").await;
        store.client.delete_table().table_name("movies").send().await.unwrap();
        let flags = ["--into", "films", "--dt", "1970-01-01"];
        let answer = run(&source, &store, &flags).await.unwrap();
        assert_eq!(answer["restored"], json!(3), "{answer}");
        assert!(
            run(&source, &store, &flags[..2]).await.unwrap_err().to_string().contains("z.parquet")
        );
    }
}
