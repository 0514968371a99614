//! `weir archive`: reads the archive for people who work with data.
//!
//! Its verbs list it, find the versions of a key, write DDL, compare it with the stream,
//! and restore items into a table. What changes the archive itself, compaction and erasure, is done
//! by the function `archive-maintenance`, which two of the verbs invoke.

mod answer;
pub(crate) mod cell;
mod check;
mod completeness;
mod condition;
mod ddl;
mod deletes;
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
pub(crate) mod versions;

use std::collections::BTreeSet;
use std::io::Write;

use clap::{Args, Subcommand};

use self::cell::parse_time;
use self::condition::Condition;
use self::ddl::{Engine, Target};
use self::maintenance::{CompactArguments, EraseArguments};
use self::output::Output;
use self::place::PlaceArguments;
use self::reading::while_parts_change;
use self::restore::RestoreArguments;
use self::schema::Union;
use self::source::{Part, Source};
use self::table_argument::{OneOfAll, TableArgument};
use crate::item_key;
use client::endpoint;
use client::exit::Exit;
use client::output::say;

/// What to do with the archive, and which one.
#[derive(Clone, Debug, Args)]
#[command(
    after_help = "Examples:\n  weir archive ls\n  weir archive get --key '{\"year\":2013,\"title\":\"Rush\"}' --as-of 2026-11-21T12:00:00Z\n  weir archive ddl --engine duckdb --folder .weir/up/s3\n  weir archive check\n  weir archive restore --where 'year = 2013' --ttl 604800\n  weir archive compact\n  weir archive erase --table movies --equals '{\"title\":\"Rush\"}' --dry-run\n\nRows are read with any engine that reads Parquet: `weir archive ddl --engine duckdb`\n\n--output is for `ls`; `ddl` writes what the engine reads, the other actions one JSON object on each line, whatever it says"
)]
pub struct ArchiveArguments {
    #[command(subcommand)]
    verb: ArchiveVerb,
    #[command(flatten)]
    place: PlaceArguments,
}

#[derive(Clone, Debug, Subcommand)]
enum ArchiveVerb {
    /// List tables and days: parts, rows, bytes, first and last delete
    Ls,
    /// Write all archived versions of one key as NDJSON, newest last
    #[command(
        after_help = "Examples:\n  weir archive get --key '{\"year\":2013,\"title\":\"Rush\"}'\n  weir archive get --key '{\"year\":{\"N\":\"2013\"},\"title\":{\"S\":\"Rush\"}}'\n  weir archive get --key '{\"year\":2013,\"title\":\"Rush\"}' --as-of 2026-11-21T12:00:00Z"
    )]
    Get {
        #[command(flatten)]
        table: TableArgument,
        /// The key in plain JSON or DynamoDB JSON
        #[arg(long, value_name = "JSON")]
        key: String,
        /// Only the last version that was deleted at or before this time
        #[arg(long, value_name = "TIME")]
        as_of: Option<String>,
    },
    /// Write the DDL for a query engine, from the schemas of the parts
    #[command(
        after_help = "Examples:\n  weir archive ddl --engine duckdb\n  weir archive ddl --engine athena --location s3://bucket/archive --key-columns year,title"
    )]
    Ddl {
        #[command(flatten)]
        table: TableArgument,
        /// The engine
        #[arg(long, value_enum)]
        engine: Engine,
        /// The archive's address for the engine, such as s3://bucket/archive; without it, where it is read from
        #[arg(long, value_name = "ADDRESS")]
        location: Option<String>,
        /// The columns of the key, partition key first; without it, the table of the running store says them
        #[arg(long, value_name = "COLUMN,…", value_delimiter = ',')]
        key_columns: Vec<String>,
    },
    /// Compare the TTL deletes in the stream with the archive; exit code 3 if they differ
    #[command(
        after_help = "Examples:\n  weir archive check\n  weir archive check --table movies --grace 300\n\nWithout --table: the tables that the running `weir up` archives, and those that have parts\n\nExit codes: 0 equal, 3 something is missing, extra or twice"
    )]
    Check {
        #[command(flatten)]
        table: OneOfAll,
        /// The store; without it, the `weir up` in this folder
        #[arg(long, value_name = "URL")]
        endpoint: Option<String>,
        /// Deletes that are younger than this may still be on their way [default: 30, on AWS 360]
        #[arg(long, value_name = "SECONDS")]
        grace: Option<u32>,
    },
    /// Put archived items back into a table, where nothing newer stands; exit code 3 if some cannot be put
    Restore(Box<RestoreArguments>),
    /// Make a few larger objects of many small parts, by the function `archive-maintenance`
    Compact(CompactArguments),
    /// Erase the rows of a key or a tenant, with a receipt, by the function `archive-maintenance`
    Erase(EraseArguments),
}

/// Does it. Data goes to `writer`; `format` is how a list is written, rows are always NDJSON.
///
/// # Errors
/// What cannot be read and what to do about it.
pub async fn run(
    arguments: ArchiveArguments,
    format: client::output::Output,
    writer: &mut dyn Write,
) -> Result<Exit, String> {
    let mut output = Output::new(writer);
    let place = &arguments.place;
    let code = match arguments.verb {
        ArchiveVerb::Compact(compact) => {
            place.running()?;
            maintenance::compact(&compact, &mut output).await?
        }
        ArchiveVerb::Erase(erase) => {
            erase.check()?;
            maintenance::erase(&erase, place.of_running().await?, &mut output).await?
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
) -> Result<Exit, String> {
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
                    "no store here knows the key of `{name}`: if it has a second attribute, these are the versions of several items"
                )),
                None => {}
            }
            let found = versions::find(source, &parts, &key, as_of).await?;
            let older = if as_of.is_some() { found.len().saturating_sub(1) } else { 0 };
            if found.is_empty() {
                return Err(versions::none(source, &parts, &key, as_of).await);
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
        // Done by `run`: they need no archive that is there already.
        ArchiveVerb::Compact(_) | ArchiveVerb::Erase(_) | ArchiveVerb::Check { .. } => {}
    }
    Ok(Exit::Done)
}

/// Restores the rows that are meant, once their key is known to be one.
async fn restored(
    source: &Source,
    arguments: &RestoreArguments,
    output: &mut Output<'_>,
) -> Result<Exit, String> {
    let table = arguments.table.name();
    let (parts, conditions) = selected(source, table, &arguments.conditions).await?;
    if let Some(key) = arguments.key()?
        && let Some(part) = parts.first()
        && let Some(known) = known_key(source, &part.table).await
    {
        versions::check_key(&key, &known)?;
    }
    let (answer, code) = restore::restore(source, &parts, &conditions, arguments).await?;
    output.line(&answer)?;
    Ok(code)
}

/// The parts of one day; says which days there are when it has none.
fn of_day(parts: Vec<Part>, day: &str) -> Result<Vec<Part>, String> {
    if !is_day(day) {
        return Err(format!("--dt `{day}` is no day: write such as 2026-11-21"));
    }
    Ok(kept_days(parts, &format!("of {day}"), |date| date == day))
}

/// The parts of the days that all conditions on `dt` take. It is no column of the files, but that by
/// which the DDL's tables are partitioned.
fn of_days(parts: Vec<Part>, conditions: &[Condition]) -> Vec<Part> {
    kept_days(parts, "of such days", |date| conditions.iter().all(|known| known.takes_day(date)))
}

fn kept_days(parts: Vec<Part>, of_which: &str, keeps: impl Fn(&str) -> bool) -> Vec<Part> {
    let ends = parts.first().zip(parts.last());
    let days = ends.map(|(first, last)| format!("{} to {}", first.date, last.date));
    let parts: Vec<Part> = parts.into_iter().filter(|part| keeps(&part.date)).collect();
    if let (true, Some(days)) = (parts.is_empty(), days) {
        say(&format!("nothing {of_which} is archived; there are days from {days}"));
    }
    parts
}

/// Whether a text is a day as it stands in the names of parts.
fn is_day(text: &str) -> bool {
    text.len() == 10 && text.parse::<jiff::civil::Date>().is_ok()
}

/// The parts of a table, which is the only one if none is named.
async fn one_table(source: &Source, table: Option<&str>) -> Result<Vec<Part>, String> {
    let all = source.parts(None, None).await?;
    let tables: BTreeSet<&str> = all.iter().map(|part| part.table.as_str()).collect();
    let names = tables.iter().copied().collect::<Vec<_>>().join(", ");
    let place = source.location();
    let wanted = match (table, tables.first()) {
        (_, None) => return Err(format!("the archive at `{place}` has no parts")),
        (Some(table), _) if tables.contains(table) => table.to_owned(),
        (Some(table), _) => {
            return Err(format!(
                "the archive at `{place}` has no table `{table}`; tables are {names}"
            ));
        }
        (None, Some(only)) if tables.len() == 1 => (*only).to_owned(),
        (None, _) => {
            return Err(format!(
                "say which table, such as `{}`: {names}",
                tables.first().copied().unwrap_or_default()
            ));
        }
    };
    Ok(all.into_iter().filter(|part| part.table == wanted).collect())
}

/// The parts of a table, and conditions read against the columns that they have.
async fn selected(
    source: &Source,
    table: Option<&str>,
    conditions: &[String],
) -> Result<(Vec<Part>, Vec<Condition>), String> {
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
) -> Result<String, String> {
    let Some(first) = parts.first() else {
        return Err("the table has no parts".to_owned());
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
        Engine::Duckdb => table_root(source, first, source.files()),
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

/// What stands before `table=` in the address of a part: with --folder it can be deeper than the
/// folder that was named.
fn table_root(source: &Source, part: &Part, location: String) -> String {
    let marker = format!("/table={}/", part.table);
    match source {
        Source::Folder(_) => {
            part.name.rsplit_once(&marker).map_or(location, |(root, _)| root.to_owned())
        }
        Source::Bucket { .. } => location,
    }
}

/// The store that an archive is compared with, or put back into. One on this machine has other tables
/// than those whose archive is on AWS, so it has to be named.
///
/// # Errors
/// When none is known, or it has to be named and is not.
fn store_for(is_on_aws: bool, flag: Option<&str>) -> Result<String, String> {
    let url = endpoint::find(flag)?;
    if is_on_aws && flag.is_none() && !endpoint::is_on_aws(&url) {
        return Err(format!(
            "the archive is on AWS, and the store at {url} is not: name the store with --endpoint, such as https://dynamodb.eu-central-1.amazonaws.com"
        ));
    }
    Ok(url)
}

/// The key of a table, if a store is known that has it and that the archive may be of.
async fn known_key(source: &Source, table: &str) -> Option<Vec<(String, model::KeyAttributeType)>> {
    let url = store_for(source.is_on_aws(), None).ok()?;
    client::table_description::key_attributes(&endpoint::client(&url), table).await.ok()
}

/// The columns of the key attributes, if such a store has the table; none otherwise.
async fn known_key_columns(source: &Source, table: &str, union: &Union) -> Vec<String> {
    let Ok(url) = store_for(source.is_on_aws(), None) else {
        return Vec::new();
    };
    let answer = endpoint::client(&url).describe_table().table_name(table).send().await;
    let Ok(Some(description)) = answer.map(|answer| answer.table) else {
        return Vec::new();
    };
    let columns = description.key_schema().iter().filter_map(|key| {
        let of_path = |column: &&schema::UnionColumn| {
            column.path.as_deref() == Some(key.attribute_name()) && !column.is_system()
        };
        union.columns.iter().find(of_path).map(|column| column.name.clone())
    });
    let columns: Vec<String> = columns.collect();
    // Half a key would make one version of many items.
    if columns.len() == description.key_schema().len() { columns } else { Vec::new() }
}
