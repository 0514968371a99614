//! `weir archive`: reads the archive for operators and analysts.
//!
//! Its subcommands list the archive, find the versions of a key, write DDL, compare the archive
//! with the stream, and restore items into a table. Only the function `archive-maintenance` changes
//! the archive; `compact` and `erase` invoke this function.

mod answer;
pub(crate) mod cell;
mod check;
mod completeness;
mod condition;
pub mod contents;
mod ddl;
mod deletes;
mod erasure;
mod item_match;
mod listing;
pub mod maintenance;
mod output;
mod paging;
mod place;
mod reading;
mod restore;
mod schema;
mod source;
mod table_argument;
#[cfg(test)]
mod tests;
mod unknown_columns;
pub(crate) mod versions;

use std::collections::BTreeSet;
use std::io::Write;

use clap::{Args, Subcommand};
use indicatif::ProgressBar;

use self::cell::parse_time;
use self::condition::Condition;
use self::ddl::{Engine, Target};
use self::erasure::EraseArguments;
use self::maintenance::CompactArguments;
use self::output::Output;
use self::place::PlaceArguments;
use self::reading::while_parts_change;
use self::restore::{RestoreArguments, Restored};
use self::schema::Union;
use self::source::{Part, Source};
use self::table_argument::{OneOfAll, TableArgument};
use client::aws_host;
use client::endpoint;
use client::exit::Exit;
use client::failure::{Result, fatal};
use client::item_key;
use client::output::say;

/// Arguments of `weir archive`.
#[derive(Clone, Debug, Args)]
#[command(
    after_help = "Examples:\n  weir archive ls\n  weir archive get --key '{\"year\":2013,\"title\":\"Rush\"}' --as-of 2026-11-21T12:00:00Z\n  weir archive ddl --engine duckdb --folder .weir/up/s3\n  weir archive check\n  weir archive restore --where 'year = 2013' --ttl 604800\n  weir archive compact\n  weir archive erase --table movies --equals '{\"title\":\"Rush\"}' --dry-run\n\nAny engine that reads Parquet can query the rows: see `weir archive ddl --engine duckdb`\n\n--output applies to `ls` only; `ddl` writes text for the engine, the other actions one JSON object per line"
)]
pub struct ArchiveArguments {
    #[command(subcommand)]
    verb: ArchiveVerb,
    #[command(flatten)]
    place: PlaceArguments,
}

#[derive(Clone, Debug, Subcommand)]
enum ArchiveVerb {
    /// List tables and days with parts, rows, bytes, first and last delete
    Ls,
    /// Write all archived versions of a key as NDJSON, newest last
    #[command(
        after_help = "Examples:\n  weir archive get --key '{\"year\":2013,\"title\":\"Rush\"}'\n  weir archive get --key '{\"year\":{\"N\":\"2013\"},\"title\":{\"S\":\"Rush\"}}'\n  weir archive get --key '{\"year\":2013,\"title\":\"Rush\"}' --as-of 2026-11-21T12:00:00Z"
    )]
    Get {
        #[command(flatten)]
        table: TableArgument,
        /// The key in plain JSON or DynamoDB JSON
        #[arg(long, value_name = "JSON")]
        key: String,
        /// Only the last version deleted at or before this time
        #[arg(long, value_name = "TIME")]
        as_of: Option<String>,
    },
    /// Write DDL for a query engine, or the statement for pandas or polars, from the schemas of the
    /// parts
    #[command(
        after_help = "Examples:\n  weir archive ddl --engine duckdb\n  weir archive ddl --table movies --engine polars > movies_archive.py\n  weir archive ddl --engine athena --location s3://bucket/archive --key-columns year,title"
    )]
    Ddl {
        #[command(flatten)]
        table: TableArgument,
        /// The engine
        #[arg(long, value_enum)]
        engine: Engine,
        /// The archive's address for the engine, such as s3://bucket/archive [default: the address
        /// from which the archive is read]
        #[arg(long, value_name = "ADDRESS")]
        location: Option<String>,
        /// The columns of the key, partition key first [default: the key of the table in the
        /// running store]
        #[arg(long, value_name = "COLUMN,…", value_delimiter = ',')]
        key_columns: Vec<String>,
    },
    /// Compare the TTL deletes in the stream with the archive; exit code 3 if they differ
    #[command(
        after_help = "Examples:\n  weir archive check\n  weir archive check --table movies --grace 300\n\nWithout --table, all tables are checked that have parts or that the running `weir up` archives\n\nExit codes: 0 equal, 3 rows are missing, extra or duplicate"
    )]
    Check {
        #[command(flatten)]
        table: OneOfAll,
        /// The endpoint of the store [default: the `weir up` in this folder]
        #[arg(long, value_name = "URL")]
        endpoint: Option<String>,
        /// Seconds after a delete during which its row may be missing [default: 30, on AWS 360]
        #[arg(long, value_name = "SECONDS")]
        grace: Option<u32>,
    },
    /// Restore archived items into a table, unless a newer item exists; exit code 3 if some cannot
    /// be restored
    Restore(Box<RestoreArguments>),
    /// Merge small parts into larger objects; runs the function `archive-maintenance`
    Compact(CompactArguments),
    /// Erase the rows of a key or a tenant and write a receipt; runs the function
    /// `archive-maintenance`
    Erase(EraseArguments),
}

/// Runs a subcommand. Data goes to `writer`. Lists are written in `format`, rows always as NDJSON.
///
/// # Errors
/// When the archive cannot be read or written; the message states what to do.
pub async fn run(
    arguments: ArchiveArguments,
    format: client::output::Output,
    writer: &mut dyn Write,
) -> Result<Exit> {
    let mut output = Output::new(writer);
    let place = &arguments.place;
    let code = match arguments.verb {
        ArchiveVerb::Compact(compact) => {
            place.running()?;
            maintenance::compact(&compact, &mut output).await?
        }
        ArchiveVerb::Erase(erase) => {
            erase.check()?;
            erasure::erase(&erase, place.of_running().await?, &mut output).await?
        }
        ArchiveVerb::Check { table, endpoint, grace } => {
            let (found, store) = (place.look().await?, endpoint.as_deref());
            check::check(found, table.name().map(str::to_owned), store, grace, &mut output).await?
        }
        verb => {
            let source = place.find().await?;
            carry_out(verb, format, &source, &mut output).await?
        }
    };
    output.flush()?;
    Ok(code)
}

async fn carry_out(
    verb: ArchiveVerb,
    format: client::output::Output,
    source: &Source,
    output: &mut Output<'_>,
) -> Result<Exit> {
    match verb {
        ArchiveVerb::Ls => {
            listing::write(source, format, output).await?;
        }
        ArchiveVerb::Get { table, key, as_of } => {
            let key = item_key::parse(&key)?;
            let as_of = as_of.as_deref().map(parse_time).transpose()?;
            let parts = one_table(source, table.name()).await?;
            let name = parts.first().map_or("", |part| part.table.as_str());
            match known_key(source, name).await {
                Some(known) => versions::check_key(&key, &known)?,
                None if key.len() == 1 => say(&format!(
                    "the key schema of table `{name}` is unknown: if the key has a second attribute, these versions may belong to several items; add that attribute to --key"
                )),
                None => {}
            }
            let found = versions::find(source, &parts, &key, as_of).await?;
            let older = if as_of.is_some() { found.len().saturating_sub(1) } else { 0 };
            if found.is_empty() {
                return Err(versions::none(source, &parts, &key, as_of).await.into());
            }
            found.iter().skip(older).try_for_each(|row| output.line(&row.json()))?;
        }
        ArchiveVerb::Ddl { table, engine, location, key_columns } => {
            let list = async || one_table(source, table.name()).await;
            let text = while_parts_change(list, async |parts: &[Part]| {
                write_ddl(source, parts, engine, location.clone(), key_columns.clone()).await
            });
            output.line(&text.await?)?;
        }
        ArchiveVerb::Restore(arguments) => return restored(source, &arguments, output).await,
        // `run` has handled these subcommands, which need no existing archive.
        ArchiveVerb::Compact(_) | ArchiveVerb::Erase(_) | ArchiveVerb::Check { .. } => {}
    }
    Ok(Exit::Done)
}

/// Restores the selected rows, and prints the result.
async fn restored(
    source: &Source,
    arguments: &RestoreArguments,
    output: &mut Output<'_>,
) -> Result<Exit> {
    let done = restore_selected(source, arguments, &restore::progress()).await?;
    done.notes.iter().for_each(|note| say(note));
    output.line(&done.answer)?;
    Ok(done.code)
}

/// Restores the selected rows, after checking their key. Prints nothing.
async fn restore_selected(
    source: &Source,
    arguments: &RestoreArguments,
    progress: &ProgressBar,
) -> Result<Restored> {
    let table = arguments.table.name();
    let (parts, conditions) = selected(source, table, &arguments.conditions).await?;
    if let Some(key) = arguments.key()?
        && let Some(part) = parts.first()
        && let Some(known) = known_key(source, &part.table).await
    {
        versions::check_key(&key, &known)?;
    }
    restore::restore(source, &parts, &conditions, arguments, progress).await
}

/// Returns the parts of one day, or an error that lists the existing days.
fn of_day(parts: Vec<Part>, day: &str, notes: &mut Vec<String>) -> Result<Vec<Part>> {
    if !is_day(day) {
        return Err(fatal!("--dt `{day}` is not a day: write, for example, 2026-11-21"));
    }
    Ok(kept_days(parts, &format!("of {day}"), notes, |date| date == day))
}

/// Returns the parts of the days that match all conditions on `dt`, the partition column of the
/// DDL's tables. The files have no such column.
fn of_days(parts: Vec<Part>, conditions: &[Condition], notes: &mut Vec<String>) -> Vec<Part> {
    let takes = |date: &str| conditions.iter().all(|known| known.takes_day(date));
    kept_days(parts, "of the days that --where selects", notes, takes)
}

fn kept_days(
    parts: Vec<Part>,
    of_which: &str,
    notes: &mut Vec<String>,
    keeps: impl Fn(&str) -> bool,
) -> Vec<Part> {
    let ends = parts.first().zip(parts.last());
    let days = ends.map(|(first, last)| format!("{} to {}", first.date, last.date));
    let parts: Vec<Part> = parts.into_iter().filter(|part| keeps(&part.date)).collect();
    if let (true, Some(days)) = (parts.is_empty(), days) {
        notes.push(format!("the archive has no rows {of_which}; archived days are {days}"));
    }
    parts
}

/// Returns true if a string has the form of the days in the names of parts, such as `2026-11-21`.
fn is_day(text: &str) -> bool {
    text.len() == 10 && text.parse::<jiff::civil::Date>().is_ok()
}

/// Returns the parts of a table; without a name, there must be only one table.
async fn one_table(source: &Source, table: Option<&str>) -> Result<Vec<Part>> {
    let all = source.parts(None, None).await?;
    let tables: BTreeSet<&str> = all.iter().map(|part| part.table.as_str()).collect();
    let names = tables.iter().copied().collect::<Vec<_>>().join(", ");
    let place = source.location();
    let wanted = match (table, tables.first()) {
        (_, None) => return Err(fatal!("the archive at `{place}` has no parts")),
        (Some(table), _) if tables.contains(table) => table.to_owned(),
        (Some(table), _) => {
            return Err(fatal!(
                "the archive at `{place}` has no table `{table}`; tables are {names}"
            ));
        }
        (None, Some(only)) if tables.len() == 1 => (*only).to_owned(),
        (None, _) => {
            return Err(fatal!(
                "name one of the tables, for example `{}`: {names}",
                tables.first().copied().unwrap_or_default()
            ));
        }
    };
    Ok(all.into_iter().filter(|part| part.table == wanted).collect())
}

/// Returns the selected parts of a table, and conditions that are typed by the columns of these
/// parts.
async fn selected(
    source: &Source,
    table: Option<&str>,
    conditions: &[String],
) -> Result<(Vec<Part>, Vec<Condition>)> {
    let list = async || one_table(source, table).await;
    while_parts_change(list, async |parts: &[Part]| {
        Ok((parts.to_vec(), condition::read_all(source, parts, conditions).await?))
    })
    .await
}

async fn write_ddl(
    source: &Source,
    parts: &[Part],
    engine: Engine,
    location: Option<String>,
    key_columns: Vec<String>,
) -> Result<String> {
    let Some(first) = parts.first() else {
        return Err(fatal!(
            "the archive has no parts of the selected table; `weir archive ls` lists its tables"
        ));
    };
    ddl::check_name(&first.table, &source.parts(None, None).await?)?;
    let union = Union::read(source, parts).await?;
    for conflict in union.columns.iter().filter_map(schema::UnionColumn::conflict) {
        tracing::warn!("left out of the DDL: {conflict}");
    }
    let key_columns = if key_columns.is_empty() {
        known_key_columns(source, &first.table, &union).await
    } else {
        key_columns
    };
    let location = location.unwrap_or_else(|| match engine {
        Engine::Duckdb | Engine::Pandas | Engine::Polars => {
            table_root(source, first, source.files())
        }
        Engine::Athena | Engine::Glue => table_root(source, first, source.location()),
    });
    let target = Target {
        table: &first.table,
        location: location.trim_end_matches('/'),
        first_date: &first.date,
        key_columns: &key_columns,
    };
    ddl::text(engine, &target, &union)
}

/// Returns a part's address up to `table=`. With --folder this may be a subfolder of the given
/// folder.
fn table_root(source: &Source, part: &Part, location: String) -> String {
    let marker = format!("/table={}/", part.table);
    match source {
        Source::Folder(_) => {
            part.name.rsplit_once(&marker).map_or(location, |(root, _)| root.to_owned())
        }
        Source::Bucket { .. } => location,
    }
}

/// Returns the store with which an archive is compared, or into which it is restored. For an
/// archive on AWS the store must be named, because a store on this machine has other tables.
///
/// # Errors
/// When no store is known, or the archive is on AWS and no store is named.
fn store_for(is_on_aws: bool, flag: Option<&str>) -> Result<String> {
    let url = endpoint::find(flag)?;
    if is_on_aws && flag.is_none() && !aws_host::is_on_aws(&url) {
        return Err(fatal!(
            "the archive is on AWS, but the store at {url} is not: name the store with --endpoint, for example https://dynamodb.eu-central-1.amazonaws.com"
        ));
    }
    Ok(url)
}

/// Returns the key of a table, if a known store has the table and the archive may belong to that
/// store.
async fn known_key(source: &Source, table: &str) -> Option<Vec<(String, model::KeyAttributeType)>> {
    let url = store_for(source.is_on_aws(), None).ok()?;
    client::table_description::key_attributes(&endpoint::client(&url), table).await.ok()
}

/// Returns the columns of the table's key attributes; empty if [`known_key`] finds no key.
async fn known_key_columns(source: &Source, table: &str, union: &Union) -> Vec<String> {
    let key = known_key(source, table).await.unwrap_or_default();
    let column_of = |(name, _): &(String, _)| {
        let of_path = |column: &&schema::UnionColumn| {
            column.path.as_ref() == Some(name) && !column.is_system()
        };
        union.columns.iter().find(of_path).map(|column| column.name.clone())
    };
    // With only one of two key attributes, the view would show one version for many items.
    key.iter().map(column_of).collect::<Option<_>>().unwrap_or_default()
}
