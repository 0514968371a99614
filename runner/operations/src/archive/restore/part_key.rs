//! Checks that distinct archived items remain distinct under another key, if their table does not
//! exist.
//!
//! The first columns of a part belong to the key attributes, ordered by name. A part does not
//! show whether the key has one or two attributes: the second column may also be a declared column.
//! If an item lacks this column's attribute, the column is not part of the key. An item without an
//! attribute of the other table's key is reported with its row.

use std::collections::{BTreeMap, BTreeSet};

use futures::future::try_join_all;
use model::{Item, KeyAttributeType};
use parquet::arrow::arrow_reader::ArrowReaderMetadata;
use rules::archive::{ColumnType, SYSTEM_COLUMNS, is_discovered};

use super::super::reading::{READS_AT_ONCE, while_parts_change};
use super::super::schema::told_columns;
use super::super::source::{Part, Source};
use client::failure::Result;

/// The key of the other table, partition key first.
type Key = [(String, KeyAttributeType)];

/// The key attributes of the items in a part, as far as the part's columns show them.
#[derive(Debug, PartialEq, Eq)]
struct PartKey {
    first: String,
    /// The second column. It may belong to the key, or be a declared column.
    second: Option<String>,
}

impl PartKey {
    /// Returns the key that a part's footer shows; `None` if the footer does not show it.
    fn of(footer: &ArrowReaderMetadata) -> Option<Self> {
        let told = told_columns(footer);
        let mut columns = footer.schema().fields().iter().map(|field| field.name().as_str());
        let (first, second) = (columns.next()?, columns.next());
        Self::of_columns(first, second, &told)
    }

    /// Returns the key that the first two columns show. `told` has the path and type of each
    /// column.
    fn of_columns(
        first: &str,
        second: Option<&str>,
        told: &BTreeMap<String, (String, String)>,
    ) -> Option<Self> {
        let (first, _) = told.get(first)?;
        let may_be_of_key = |name: &&str| !SYSTEM_COLUMNS.iter().any(|(system, _)| system == name);
        let second = second.filter(may_be_of_key).and_then(|name| {
            let (path, column_type) = told.get(name)?;
            let is_found = ColumnType::from_text(column_type)
                .is_some_and(|column_type| is_discovered(name, path, column_type));
            (path > first && !is_found).then(|| path.clone())
        });
        Some(Self { first: first.clone(), second })
    }

    /// Returns true if distinct items remain distinct under the other key, because it contains all
    /// attributes of this key.
    fn is_within(&self, key: &Key) -> bool {
        let has = |wanted: &String| key.iter().any(|(name, _)| name == wanted);
        has(&self.first) && self.second.as_ref().is_none_or(has)
    }

    /// Returns true if the other key lacks an attribute of this key, so that distinct items may be
    /// merged.
    fn is_without(&self, key: &Key) -> bool {
        !key.iter().any(|(name, _)| *name == self.first)
    }
}

/// Returns why some items in the selected parts may be merged under another key; `None` if they
/// remain distinct. `is_whole` means that the operator asserts that the other key has all
/// attributes of the items' own key.
///
/// # Errors
/// When a part cannot be read.
pub(super) async fn joined(
    source: &Source,
    wanted: &[Part],
    key: &Key,
    is_whole: bool,
) -> Result<Option<String>> {
    let Some(table) = wanted.first().map(|part| part.table.as_str()) else { return Ok(None) };
    let days: BTreeSet<&str> = wanted.iter().map(|part| part.date.as_str()).collect();
    let list = async || {
        let mut parts = source.parts(Some(table), None).await?;
        parts.retain(|part| days.contains(part.date.as_str()));
        Ok(parts)
    };
    while_parts_change(list, async |parts: &[Part]| joined_in(source, parts, key, is_whole).await)
        .await
}

async fn joined_in(
    source: &Source,
    parts: &[Part],
    key: &Key,
    is_whole: bool,
) -> Result<Option<String>> {
    for some in parts.chunks(READS_AT_ONCE) {
        let footers = try_join_all(some.iter().map(|part| source.footer(part))).await?;
        for (part, footer) in some.iter().zip(footers) {
            let Some(of_part) = PartKey::of(&footer).filter(|of_part| !of_part.is_within(key))
            else {
                continue;
            };
            if is_whole && !of_part.is_without(key) {
                continue;
            }
            if are_joined(source, part, &of_part, key).await? {
                return Ok(Some(told(&of_part, key)));
            }
        }
    }
    Ok(None)
}

/// Returns true if items of a part may be merged: they have the attributes of the other key, and
/// their own key may have a further attribute.
async fn are_joined(source: &Source, part: &Part, of_part: &PartKey, key: &Key) -> Result<bool> {
    let batches = source.open(part, Some(&["_item"])).await?;
    let mut has_key = false;
    for row in part.rows(batches) {
        let item = part.item(&row?)?;
        has_key |= has(&item, key);
        let second = of_part.second.as_ref();
        if !of_part.is_without(key) && second.is_some_and(|name| !item.contains_key(name)) {
            return Ok(false);
        }
        if of_part.is_without(key) && has_key {
            return Ok(true);
        }
    }
    Ok(has_key)
}

/// Returns true if an item has the attributes of a key with their types.
pub(super) fn has(item: &Item, key: &Key) -> bool {
    key.iter().all(|(name, key_type)| {
        item.get(name).map(|value| value.attribute_type()) == Some(key_type.attribute_type())
    })
}

fn told(PartKey { first, second }: &PartKey, key: &Key) -> String {
    let second = second.as_deref().unwrap_or_default();
    match key.iter().any(|(name, _)| name == first) {
        false => {
            format!("it lacks `{first}`, which was in the key of archived items")
        }
        true => format!(
            "the archive does not show whether `{second}` was also in the key of the archived items: items that differ only in `{second}` would be merged. If `{second}` was not in the key, add --whole-key"
        ),
    }
}

#[cfg(test)]
mod tests {
    use std::fs::{self, File};
    use std::path::Path;
    use std::sync::Arc;

    use arrow_array::{ArrayRef, Int64Array, RecordBatch, StringArray};
    use aws_sdk_dynamodb::types::ScalarAttributeType;
    use parquet::arrow::ArrowWriter;
    use parquet::file::metadata::KeyValue;
    use parquet::file::properties::WriterProperties;
    use serde_json::json;

    use super::super::super::tests::archive;
    use super::super::tests::run;
    use super::*;
    use testing::store::TestStore;

    /// Returns an archive with the columns `title` and `year`, and one item that has only a title.
    fn archive_without_year() -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        let day = folder.path().join("bucket/archive/table=movies/dt=1970-01-01");
        fs::create_dir_all(&day).unwrap();
        write_item(&day.join("part-1.parquet"), r#"{"title":{"S":"A"}}"#);
        folder
    }

    fn write_item(file: &Path, item: &str) {
        let text = |text: &str| -> ArrayRef { Arc::new(StringArray::from(vec![text.to_owned()])) };
        let years: ArrayRef = Arc::new(Int64Array::from(vec![None]));
        let columns = [
            ("title", text("A")),
            ("year", years),
            ("_item", text(item)),
            ("_event_id", text("e1")),
            ("_sequence_number", text(&format!("{:040}", 1))),
        ];
        let batch = RecordBatch::try_from_iter(columns).unwrap();
        let told =
            r#"{"title":{"path":"title","type":"string"},"year":{"path":"year","type":"bigint"}}"#;
        let told = KeyValue::new("weir.columns".to_owned(), told.to_owned());
        let properties = WriterProperties::builder().set_key_value_metadata(Some(vec![told]));
        let file = File::create(file).unwrap();
        let mut writer =
            ArrowWriter::try_new(file, batch.schema(), Some(properties.build())).unwrap();
        writer.write(&batch).unwrap();
        writer.close().unwrap();
    }

    /// If the archived table was deleted, a key that is only part of the old key is refused, because it
    /// could merge items.
    #[tokio::test]
    async fn a_part_of_the_old_key_is_refused_without_the_archived_table() {
        let folder = archive();
        let source = Source::Folder(folder.path().to_owned());
        let store = TestStore::open().await;
        store.table_with("by_title", &[("title", ScalarAttributeType::S)]).await;
        store.table_with("by_year", &[("year", ScalarAttributeType::N)]).await;
        for (into, words) in [
            ("by_title", "does not show whether `year` was also in the key of the archived items"),
            ("by_year", "it lacks `title`, which was in the key of archived items"),
        ] {
            for flags in [&["--into", into][..], &["--into", into, "--dry-run"]] {
                let refused = run(&source, &store, flags).await.unwrap_err().to_string();
                assert!(refused.contains(words) && refused.contains("nothing was"), "{refused}");
            }
            let scanned = store.client.scan().table_name(into).send().await.unwrap();
            assert_eq!(scanned.count(), 0);
        }
        // `--whole-key` is refused if the archive shows that the key lacks an attribute.
        let refused = run(&source, &store, &["--into", "by_year", "--whole-key"]).await;
        assert!(refused.unwrap_err().to_string().contains("it lacks `title`"));
        let answer = run(&source, &store, &["--into", "by_title", "--whole-key"]).await.unwrap();
        assert_eq!(answer["restored"], json!(3), "{answer}");
    }

    #[tokio::test]
    async fn an_absent_attribute_is_not_a_key() {
        let folder = archive_without_year();
        let source = Source::Folder(folder.path().to_owned());
        let store = TestStore::open().await;
        store.table_with("by_title", &[("title", ScalarAttributeType::S)]).await;
        let answer = run(&source, &store, &["--into", "by_title"]).await.unwrap();
        assert_eq!(answer["restored"], json!(1), "{answer}");
    }

    #[test]
    fn the_key_is_among_the_first_two_columns() {
        let told = [
            ("title", ("title", "string")),
            ("year", ("year", "bigint")),
            ("rating", ("info.rating", "decimal(4,1)")),
            ("price_n", ("price", "decimal(38,10)")),
        ];
        let told =
            told.map(|(name, (path, of))| (name.to_owned(), (path.to_owned(), of.to_owned())));
        let told = BTreeMap::from(told);
        for (first, second, expected) in [
            ("title", Some("year"), Some(("title", Some("year")))),
            // Keys are ordered by name, and discovered columns are never keys.
            ("year", Some("rating"), Some(("year", None))),
            ("title", Some("price_n"), Some(("title", None))),
            ("title", Some("_item"), Some(("title", None))),
            ("title", None, Some(("title", None))),
            ("_item", Some("_event_id"), None),
        ] {
            let expected = expected.map(|(first, second)| PartKey {
                first: first.to_owned(),
                second: second.map(str::to_owned),
            });
            assert_eq!(PartKey::of_columns(first, second, &told), expected, "{first} {second:?}");
        }
    }
}
