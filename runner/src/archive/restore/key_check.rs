//! Whether archived items are the same items in the table that they are put into.
//!
//! A table with another key would make one item of several, or take none of them. That is found before
//! anything is written; what a single row lacks is told of that row.

use model::{Item, KeyAttributeType, json};

use super::super::cell::rows_of;
use super::super::reading::Reading;
use super::super::source::{Part, Source};
use super::Target;
use crate::load::key_attributes;

/// The attributes of a key with their types, the partition key first.
type Key = [(String, KeyAttributeType)];

/// Checks the key of another table than the archived one: against that of the archived one, or, where
/// that is gone, against the newest items of its archive.
///
/// # Errors
/// Both keys, and what to do instead.
pub(super) async fn check(target: &Target, source: &Source, parts: &[Part]) -> Result<(), String> {
    let Target { client, table, archived, .. } = target;
    if table == archived {
        return Ok(());
    }
    let into = key_attributes(client, table).await?;
    let of = format!("its key is {}", words(&into));
    let wrong = match key_attributes(client, archived).await {
        Ok(key) if is_same(&key, &into) => return Ok(()),
        Ok(key) => format!("{of}, and that of `{archived}` is {}", words(&key)),
        Err(_) if has_item_with(&into, source, parts).await? => return Ok(()),
        Err(_) => format!("{of}, and the newest archived items of `{archived}` have no such key"),
    };
    Err(format!(
        "cannot restore into table `{table}`: {wrong}; nothing was written. Restore into a table with the key that the items had, and give them another one with a migration (`weir migrate`)"
    ))
}

/// Whether both tell the same items apart, whichever attribute is the partition key.
fn is_same(one: &Key, other: &Key) -> bool {
    one.len() == other.len() && one.iter().all(|attribute| other.contains(attribute))
}

fn words(key: &Key) -> String {
    let words = key.iter().map(|(name, key_type)| format!("`{name}` ({})", key_type.descriptor()));
    words.collect::<Vec<_>>().join(" and ")
}

/// Whether the newest part has an item with such a key, or no item at all.
async fn has_item_with(key: &Key, source: &Source, parts: &[Part]) -> Result<bool, String> {
    let has = |item: &Item| {
        key.iter().all(|(name, key_type)| {
            item.get(name).map(|value| value.attribute_type()) == Some(key_type.attribute_type())
        })
    };
    let mut reading = Reading::newest_first(source, parts.to_vec());
    let Some((part, batches)) = reading.next(Some(&["_item"])).await? else { return Ok(true) };
    let mut is_empty = true;
    for batch in batches {
        let batch = batch.map_err(|error| part.failed(error))?;
        for row in rows_of(&batch).map_err(|reason| part.failed(reason))? {
            let item = json::item_from_str(row.text("_item"));
            if has(&item.map_err(|error| part.failed(format!("`_item`: {error}")))?) {
                return Ok(true);
            }
            is_empty = false;
        }
    }
    Ok(is_empty)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::tests::{movies_by_year, run};
    use super::*;

    /// With the archived table, and without it, as it is after a migration.
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
                    "the newest archived items of `movies` have no such key"
                } else {
                    "that of `movies` is `title` (S) and `year` (N)"
                };
                for flags in [&["--into", table][..], &["--into", table, "--dry-run"]] {
                    let refused = run(&source, &store, flags).await.unwrap_err();
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
}
