//! `weir archive restore`: restores archived items into the live table.
//!
//! Rows may be put in any order and repeatedly; the newest row of a key wins (`newest`). They are
//! put newest first (`rows`). Each restored item gets the mark of `rules::marks::restored`, so
//! that the same archive does not archive it again. A row that DynamoDB does not accept as an item
//! is reported and skipped. An event that an interrupted compaction has left in two objects is
//! restored once.

mod counts;
mod dry_run;
mod form;
mod key_check;
mod newest;
mod part_key;
mod request;
mod rows;
mod selection;

use aws_sdk_dynamodb::error::{ProvideErrorMetadata, SdkError};
use aws_sdk_dynamodb::operation::put_item::{PutItemError, PutItemOutput};
use aws_sdk_dynamodb::types::{
    AttributeDefinition, ReturnValuesOnConditionCheckFailure as OnFailure,
};
use clap::Args;
use futures::{StreamExt, TryStreamExt, stream};
use indicatif::ProgressBar;
use model::Item;
use rules::marks::restored::{self, Origin, RESTORED};

use self::counts::Counts;
use self::dry_run::DryRun;
use self::form::{Conversion, Form};
use self::newest::{PutResult, RowResult, put_newest};
pub use self::request::RestoreRequest;
use self::rows::{Newest, Selected, selected, stamp_of};
use self::selection::Selection;
use super::cell::Row;
use super::condition::Condition;
use super::reading::{Reading, ReturnedEvents};
use super::source::{Content, Part, Source};
use super::table_argument::TableArgument;
use super::{of_day, of_days};
use crate::unchanged::Unchanged;
use client::attribute::{from_sdk_item, to_sdk_item};
use client::endpoint;
use client::exit::Exit;
use client::failure::{Context, Failure, Result, fatal};
use client::interruption;
use client::item_key;

/// Number of concurrent puts. Each batch of rows is complete before the next batch begins.
const PUTS_AT_ONCE: usize = 32;

/// Arguments of `weir archive restore`.
#[derive(Clone, Debug, Args)]
#[command(
    after_help = "Examples:\n  weir archive restore --table movies --where 'year = 2013' --dry-run\n  weir archive restore --table movies --where 'year = 2013' --ttl 604800\n  weir archive restore --key '{\"year\":2013,\"title\":\"Rush\"}' --dry-run\n\nExit codes: 0 done, 1 failed, 3 some rows cannot be restored"
)]
pub(super) struct RestoreArguments {
    #[command(flatten)]
    pub table: TableArgument,
    /// The table into which to restore [default: TABLE]
    #[arg(long, value_name = "TABLE")]
    into: Option<String>,
    /// Assert that the key of the --into table has every attribute of the archived items' key;
    /// needed if the archived table no longer exists
    #[arg(long, requires = "into")]
    whole_key: bool,
    /// Only items with this key, in plain JSON or DynamoDB JSON
    #[arg(long, value_name = "JSON")]
    key: Option<String>,
    /// Only matching rows: COLUMN OPERATOR VALUE; operators are = != < <= > >=; `dt` is the UTC day
    /// of the delete
    #[arg(long = "where", value_name = "CONDITION")]
    pub conditions: Vec<String>,
    /// Only items whose string attribute has this prefix
    #[arg(long, value_name = "ATTRIBUTE=TEXT")]
    begins_with: Option<String>,
    /// Only deletes of this UTC day, such as 2026-11-21
    #[arg(long, value_name = "DAY")]
    dt: Option<String>,
    /// Each item as it was last deleted at or before this time
    #[arg(long, value_name = "TIME")]
    as_of: Option<String>,
    /// All items; required if there is no condition
    #[arg(long)]
    all: bool,
    /// Time to live of restored items: strip, or seconds from now; unchanged if it is part of the
    /// key
    #[arg(long, value_name = "strip|SECONDS", default_value = "strip")]
    ttl: String,
    /// Read the table and report what would be restored, without writing
    #[arg(long)]
    dry_run: bool,
    /// The endpoint of the store [default: the `weir up` in this folder]
    #[arg(long, value_name = "URL")]
    endpoint: Option<String>,
}

impl RestoreArguments {
    /// Returns the key of `--key`.
    pub(super) fn key(&self) -> Result<Option<Item>> {
        self.key.as_deref().map(item_key::parse).transpose()
    }
}

/// The table into which items are restored.
struct Target {
    client: aws_sdk_dynamodb::Client,
    table: String,
    /// The table whose archive is read.
    archived: String,
    /// True if the store's functions write to the archive that is read.
    has_archive: bool,
    /// The ARN of the table's stream.
    stream: Option<String>,
    /// The attributes of the keys of the table and of its indexes.
    definitions: Vec<AttributeDefinition>,
    form: Form,
}

/// The result of a restore or of its dry run.
pub(super) struct Restored {
    /// The counts as one line of JSON.
    pub(super) answer: String,
    /// The exit code; 3 if rows were skipped.
    pub(super) code: Exit,
    /// Messages for the operator.
    pub(super) notes: Vec<String>,
}

/// Restores the selected rows, and prints nothing. `progress` counts the bytes of the parts.
///
/// # Errors
/// When a part cannot be read, or an item cannot be written. Items that were already restored stay
/// in the table; the same command resumes the restore.
pub(super) async fn restore(
    source: &Source,
    parts: &[Part],
    conditions: &[Condition],
    arguments: &RestoreArguments,
    progress: &ProgressBar,
) -> Result<Restored> {
    let Some(first) = parts.first() else {
        return Err(fatal!(
            "the archive has no parts of the selected table; `weir archive ls` lists its tables"
        ));
    };
    let selection = Selection::read(conditions, arguments)?;
    let mut notes = Vec::new();
    let wanted = match &arguments.dt {
        Some(day) => of_day(parts.to_vec(), day, &mut notes)?,
        None => parts.to_vec(),
    };
    let wanted = of_days(wanted, conditions, &mut notes);
    let target = target(source, arguments, &first.table).await?;
    key_check::check(&target, source, &wanted, arguments.whole_key).await?;
    let counts = Counts::default();
    progress.set_length(wanted.iter().map(|part| part.bytes).sum());
    let (mut reading, mut seen) =
        (Reading::newest_first(source, wanted), ReturnedEvents::default());
    let dry_run = arguments.dry_run.then(DryRun::default);
    let (selection, dry_run) = (&selection, dry_run.as_ref());
    let run = Run { target: &target, selection, counts: &counts, dry_run };
    while let Some((part, content)) = reading.next_content().await? {
        let archive = source.archive_of(&part);
        let newest = Newest::of(&part, &content, selection, &target.form)?;
        for are_newest in [true, false] {
            if are_newest || newest.has_older() {
                let is_turn = |(row, item): &Selected| {
                    newest.has(row, item, &target.form) == are_newest && seen.is_new(&part, row)
                };
                run.put_rows(archive.as_deref(), (&part, &content), is_turn).await?;
            }
        }
        progress.inc(part.bytes);
    }
    progress.finish_and_clear();
    if let Some(name) = target.form.kept_ttl_attribute() {
        notes.push(format!(
            "the TTL attribute `{name}` is part of the key of `{}`, so it is restored unchanged: TTL deletes these items again once the time in it has passed",
            target.table
        ));
    }
    if counts.rows() == 0 {
        notes.push(
            "no row of the archive is selected; `weir archive ls` and `weir archive get` show what it contains"
                .to_owned(),
        );
    } else if arguments.dry_run {
        notes.push(counts.foretold(&target.table));
    }
    let (answer, code) = counts.answer(&target.table, arguments.dry_run);
    Ok(Restored { answer, code, notes })
}

/// The settings and counts that all rows of a restore share.
struct Run<'r> {
    target: &'r Target,
    selection: &'r Selection<'r>,
    counts: &'r Counts,
    /// The state of a dry run, which puts nothing.
    dry_run: Option<&'r DryRun>,
}

impl Run<'_> {
    /// Puts the rows of a part for which `is_turn` returns true.
    async fn put_rows(
        &self,
        archive: Option<&str>,
        (part, content): (&Part, &Content),
        mut is_turn: impl FnMut(&Selected) -> bool,
    ) -> Result<()> {
        for rows in selected(part, content, self.selection)? {
            let mut rows = rows?;
            rows.retain(&mut is_turn);
            let puts = rows.iter().map(|(row, item)| self.put(archive, row, item));
            stream::iter(puts).buffer_unordered(PUTS_AT_ONCE).try_collect::<Vec<()>>().await?;
        }
        Ok(())
    }

    /// Puts a row; a dry run only predicts the result.
    async fn put(&self, archive: Option<&str>, row: &Row, archived: &Item) -> Result<()> {
        let (target, counts) = (self.target, self.counts);
        counts.selected();
        let event_id = row.text("_event_id");
        let mut item = match target.form.of(archived) {
            Conversion::Item(item) => item,
            Conversion::Tombstone => {
                counts.tombstone();
                return Ok(());
            }
            Conversion::Refused(reason) => {
                counts.add(event_id, RowResult::Skipped(reason));
                return Ok(());
            }
        };
        let stamp = stamp_of(row);
        // A mark names an archive only for rows of the target table's own stream. Such rows are in
        // that table's archive, even if a copy of the archive is read.
        let archive = archive.filter(|_| {
            target.has_archive || target.stream.as_deref() == Some(row.text("_stream_arn"))
        });
        let origin = Origin { archive, table: &target.archived, event_id, stamp: &stamp };
        let mark = restored::mark(&item, origin, target.form.changed_ttl_attribute());
        item.insert(RESTORED.to_owned(), mark);
        let fate = match self.dry_run {
            Some(dry_run) => dry_run.fate(target, origin, &item).await?,
            None => {
                let put = async |live: Option<&Item>| attempt(target, &item, live).await;
                put_newest(origin, &target.form, put).await?
            }
        };
        counts.add(event_id, fate);
        Ok(())
    }
}

async fn target(source: &Source, arguments: &RestoreArguments, archived: &str) -> Result<Target> {
    let url = super::store_for(source.is_on_aws(), arguments.endpoint.as_deref())?;
    let client = endpoint::client(&url);
    let table = arguments.into.clone().unwrap_or_else(|| archived.to_owned());
    let doing = || format!("cannot restore into table `{table}`");
    let described = client.describe_table().table_name(&table).send().await;
    let described = described.context(doing)?.table;
    let stream = described.as_ref().and_then(|table| table.latest_stream_arn.clone());
    let definitions = described.as_ref().map(|table| table.attribute_definitions().to_vec());
    let keys = described.and_then(|table| table.key_schema).unwrap_or_default();
    let keys: Vec<String> = keys.into_iter().map(|key| key.attribute_name).collect();
    if keys.is_empty() {
        return Err("it has no key").context(doing);
    }
    let ttl = client.describe_time_to_live().table_name(&table).send().await;
    let ttl_attribute =
        ttl.context(doing)?.time_to_live_description.and_then(|ttl| ttl.attribute_name);
    let mut form = Form { keys, ttl_attribute, expires_at: None };
    form.expires_at = match arguments.ttl.as_str() {
        "strip" => None,
        seconds => {
            let seconds: u32 = seconds.parse().map_err(|_| {
                fatal!("--ttl `{seconds}`: write `strip`, or a number of seconds, for example 604800 for a week")
            })?;
            if let Some(name) = form.kept_ttl_attribute() {
                return Err(format!(
                    "the TTL attribute `{name}` is part of the key, so a new time would change keys and merge items that differ only in this attribute; remove --ttl"
                ))
                .context(doing);
            }
            if form.ttl_attribute.is_none() {
                return Err("TTL is not enabled on this table; remove --ttl").context(doing);
            }
            let now = endpoint::store_seconds(&url, &client).await;
            Some(now.saturating_add(i64::from(seconds)))
        }
    };
    let archived = archived.to_owned();
    let has_archive = source.is_of_store(&url);
    let definitions = definitions.unwrap_or_default();
    Ok(Target { client, table, archived, has_archive, stream, definitions, form })
}

/// Puts one item under the condition that the current item is still `live`.
async fn attempt(target: &Target, item: &Item, live: Option<&Item>) -> Result<PutResult> {
    let unchanged = match Unchanged::of(target.form.partition_key(), live, Some(item)) {
        Ok(unchanged) => unchanged,
        Err(attributes) => return Ok(PutResult::Refused(too_many(attributes))),
    };
    let request = target
        .client
        .put_item()
        .table_name(&target.table)
        .set_item(Some(to_sdk_item(item)))
        .return_values_on_condition_check_failure(OnFailure::AllOld)
        .condition_expression(unchanged.expression)
        .set_expression_attribute_names(Some(unchanged.names))
        .set_expression_attribute_values(unchanged.values);
    outcome(target, request.send().await)
}

/// Returns why an item with this number of attributes cannot be replaced.
fn too_many(attributes: usize) -> String {
    format!(
        "the table's item was restored from an older row, and its {attributes} attributes are too many for the condition of a replacement; delete the item and run the restore again"
    )
}

fn outcome(
    target: &Target,
    answer: Result<PutItemOutput, SdkError<PutItemError>>,
) -> Result<PutResult> {
    match answer {
        Ok(_) => Ok(PutResult::Put),
        Err(SdkError::ServiceError(error)) => match error.err() {
            PutItemError::ConditionalCheckFailedException(failed) => {
                let live = failed.item().cloned().map(from_sdk_item).transpose();
                Ok(PutResult::GuardFailed(live.map_err(|failure| cannot_put(target, failure))?))
            }
            other if other.code() == Some("ValidationException") => {
                Ok(PutResult::Refused(other.message().unwrap_or_default().to_owned()))
            }
            other => {
                let code = other.code().unwrap_or("the store gave no reason");
                let message = other.message().unwrap_or_default();
                Err(cannot_put(target, fatal!("{code}: {message}")))
            }
        },
        Err(error) => Err(cannot_put(target, error.into())),
    }
}

fn cannot_put(target: &Target, failure: Failure) -> Failure {
    failure.with(|reason| {
        format!(
            "cannot put an item into `{}`: {reason}; items restored before this error stay in the table; run the command again to resume",
            target.table
        )
    })
}

/// Returns a progress bar on the terminal. When a signal interrupts the command, the handler
/// reports the bar's position.
pub(super) fn progress() -> ProgressBar {
    let template = "{elapsed_precise} {bar:30} {percent}% of {total_bytes}, {eta} left";
    interruption::progress_bar(Some(0), template, "bytes of the archive")
}

#[cfg(test)]
pub(super) mod tests {
    use aws_sdk_dynamodb::types::ScalarAttributeType;
    use clap::Parser;
    use model::json::item_from_str;
    use serde_json::json;

    use super::*;
    use testing::store::TestStore;

    #[derive(Parser)]
    struct CommandLine {
        #[command(flatten)]
        arguments: RestoreArguments,
    }

    #[tokio::test]
    async fn a_day_that_is_none_is_refused_before_anything_is_restored() {
        let folder = super::super::tests::archive();
        let source = Source::Folder(folder.path().to_owned());
        let parts = source.parts(None, None).await.unwrap();
        for day in ["24.11.2026", "2026-11-31", "yesterday"] {
            let words = ["restore", "--dt", day, "--endpoint", "http://127.0.0.1:1"];
            let arguments = CommandLine::try_parse_from(words).unwrap().arguments;
            let hidden = ProgressBar::hidden();
            let refused = restore(&source, &parts, &[], &arguments, &hidden).await;
            let refused = refused.err().unwrap().to_string();
            assert_eq!(
                refused,
                format!("--dt `{day}` is not a day: write, for example, 2026-11-21")
            );
        }
    }

    /// Returns a store with the table `movies` of the archive, with TTL on the sort key `year`.
    pub(in super::super) async fn movies_by_year() -> TestStore {
        let store = TestStore::open().await;
        table_by_year(&store, "movies").await;
        store.expire_by("movies", "year").await;
        store
    }

    pub(super) async fn table_by_year(store: &TestStore, table: &str) {
        let keys = [("title", ScalarAttributeType::S), ("year", ScalarAttributeType::N)];
        store.table_with(table, &keys).await;
    }

    pub(super) async fn run(
        source: &Source,
        store: &TestStore,
        flags: &[&str],
    ) -> Result<serde_json::Value> {
        let words = ["restore", "--all", "--endpoint", &store.url].into_iter();
        let arguments = CommandLine::try_parse_from(words.chain(flags.iter().copied()));
        let parts = source.parts(None, None).await.unwrap();
        let arguments = arguments.unwrap().arguments;
        let done = restore(source, &parts, &[], &arguments, &ProgressBar::hidden()).await?;
        Ok(serde_json::from_str(&done.answer).unwrap())
    }

    async fn put_live(store: &TestStore, text: &str) {
        let item = to_sdk_item(&item_from_str(text).unwrap());
        let request = store.client.put_item().table_name("movies").set_item(Some(item));
        request.send().await.unwrap();
    }

    /// TTL ignores a time more than five years in the past, so it does not delete these items.
    #[tokio::test]
    async fn a_time_to_live_that_is_a_part_of_the_key_is_restored_as_it_was() {
        let folder = super::super::tests::archive();
        let source = Source::Folder(folder.path().to_owned());
        let store = movies_by_year().await;
        let refused = run(&source, &store, &["--ttl", "3600"]).await.unwrap_err().to_string();
        assert!(refused.contains("the TTL attribute `year` is part of the key"), "{refused}");
        let answer = run(&source, &store, &[]).await.unwrap();
        let counts = ["restored", "kept_as_they_are", "skipped"].map(|name| answer[name].clone());
        assert_eq!(counts, [json!(3), json!(1), json!(0)], "{answer}");
        let items = store.client.scan().table_name("movies").send().await.unwrap();
        let years = items.items().iter().map(|item| item["year"].as_n().unwrap().as_str());
        let years = years.collect::<std::collections::BTreeSet<_>>();
        assert_eq!(years, ["1999", "2013", "9007199254740993"].into());
    }

    /// The archive has the state that a compaction leaves if it is killed before it removes the
    /// parts.
    #[tokio::test]
    async fn an_event_in_two_objects_is_restored_once() {
        let folder = super::super::tests::archive();
        let day = folder.path().join("bucket/archive/table=movies/dt=1970-01-01");
        std::fs::copy(day.join("part-1.parquet"), day.join("compact-1.parquet")).unwrap();
        let source = Source::Folder(folder.path().to_owned());
        let store = movies_by_year().await;
        assert_eq!(run(&source, &store, &["--dry-run"]).await.unwrap()["rows"], 4);
        let answer = run(&source, &store, &[]).await.unwrap();
        assert_eq!((&answer["rows"], &answer["restored"]), (&json!(4), &json!(3)), "{answer}");
    }

    /// An item with more attributes than a condition can compare cannot be replaced, so the newest
    /// row must be put first.
    #[tokio::test]
    async fn the_newest_version_of_a_wide_item_is_restored() {
        let wide = |version: u32| {
            let others = (0..200).map(|name| format!(r#","a{name}":{{"BOOL":true}}"#));
            let key = r#""title":{"S":"Wide"},"year":{"N":"1999"}"#;
            let item =
                format!(r#"{{{key},"v":{{"N":"{version}"}}{}}}"#, others.collect::<String>());
            (version, item)
        };
        for parts in [
            &[("part-1.parquet", &[1, 2, 3][..])][..],
            &[("part-1.parquet", &[1]), ("part-2.parquet", &[2, 3])],
            &[
                ("compact-1970-19700101T00-1.parquet", &[1, 2]),
                ("part-1970-19700101T0001-1.parquet", &[3]),
            ],
        ] {
            let folder = tempfile::tempdir().unwrap();
            for (name, versions) in parts {
                let items: Vec<_> = versions.iter().map(|version| wide(*version)).collect();
                super::super::tests::write_items(folder.path(), name, &items);
            }
            let source = Source::Folder(folder.path().to_owned());
            let store = movies_by_year().await;
            let answer = run(&source, &store, &[]).await.unwrap();
            let counts = ["rows", "restored", "kept_as_they_are", "skipped"]
                .map(|name| answer[name].clone());
            assert_eq!(counts, [json!(3), json!(1), json!(2), json!(0)], "{answer}");
            let items = store.client.scan().table_name("movies").send().await.unwrap();
            assert_eq!(items.items()[0]["v"].as_n().unwrap(), "3", "{parts:?}");
        }
    }

    #[tokio::test]
    async fn a_tombstone_makes_room_and_what_was_written_where_it_stood_does_not() {
        let folder = super::super::tests::archive();
        let source = Source::Folder(folder.path().to_owned());
        let store = movies_by_year().await;
        let gone = r#""_weir":{"M":{"at":{"S":"x"},"gone":{"BOOL":true}}}"#;
        for key in [
            r#""title":{"S":"Big"},"year":{"N":"9007199254740993"}"#,
            r#""title":{"S":"O'Brien"},"year":{"N":"1999"},"n":{"N":"1"}"#,
        ] {
            put_live(&store, &format!("{{{key},{gone}}}")).await;
        }
        let answer = run(&source, &store, &[]).await.unwrap();
        assert_eq!(
            (&answer["restored"], &answer["kept_as_they_are"]),
            (&json!(2), &json!(2)),
            "{answer}"
        );
    }

    /// Each case archives versions of one film, with other items already in the table.
    #[tokio::test]
    async fn a_dry_run_predicts_the_restore() {
        let film = |title: &str, rest: &str| {
            format!(r#"{{"title":{{"S":"{title}"}},"year":{{"N":"1999"}}{rest}}}"#)
        };
        let of_version = |number: u32| (number, film("A", &format!(r#","v":{{"N":"{number}"}}"#)));
        let large = format!(r#","text":{{"S":"{}"}}"#, "x".repeat(409_580));
        let year = r#"{"title":{"S":"A"},"year":{"S":"1999"}}"#.to_owned();
        let gone = r#","_weir":{"M":{"at":{"S":"x"},"gone":{"BOOL":true}}}"#;
        // Expected: would restore, would replace, kept, written by other writers, skipped,
        // tombstones.
        for (rows, stands, expected) in [
            (vec![of_version(1), of_version(2)], None, [1, 0, 1, 0, 0, 0]),
            (vec![of_version(1)], Some(film("A", "")), [0, 0, 1, 1, 0, 0]),
            (vec![of_version(1)], Some(film("A", gone)), [1, 1, 0, 0, 0, 0]),
            (vec![(1, film("A", &large)), (2, film("B", ""))], None, [1, 0, 0, 0, 1, 0]),
            (vec![(1, year)], None, [0, 0, 0, 0, 1, 0]),
            (vec![(1, film("A", gone))], None, [0, 0, 0, 0, 0, 1]),
        ] {
            let folder = tempfile::tempdir().unwrap();
            super::super::tests::write_items(folder.path(), "part-1.parquet", &rows);
            let source = Source::Folder(folder.path().to_owned());
            let store = movies_by_year().await;
            if let Some(item) = &stands {
                put_live(&store, item).await;
            }
            let numbers = async |names: [&str; 6], flags: &[&str]| {
                let answer = run(&source, &store, flags).await.unwrap();
                names.map(|name| answer[name].as_u64().unwrap())
            };
            let rest = ["kept_as_they_are", "written_by_others", "skipped", "tombstones"];
            let [kept, written, skipped, tombstones] = rest;
            let would = ["would_restore", "would_replace", kept, written, skipped, tombstones];
            let did = ["restored", "replaced", kept, written, skipped, tombstones];
            let items = async || store.client.scan().table_name("movies").send().await.unwrap();
            let before = items().await;
            assert_eq!(numbers(would, &["--dry-run"]).await, expected, "{stands:?}");
            assert_eq!(numbers(did, &["--dry-run"]).await[..2], [0, 0]);
            assert_eq!(items().await.items(), before.items(), "a dry run writes nothing");
            assert_eq!(numbers(did, &[]).await, expected, "{stands:?}");
            // The restored items equal their rows.
            let again = numbers(would, &["--dry-run"]).await;
            assert_eq!(again[..2], [0, 0], "{stands:?}");
            assert_eq!(numbers(did, &[]).await[..2], [0, 0], "{stands:?}");
        }
    }
}
