//! `weir editions`: versions of many items that are prepared together and published with one
//! conditional write.
//!
//! The subcommand works on any DynamoDB endpoint. `rules::versions::edition` defines the states of
//! an edition. `reading` is also an example for an application that reads editions.

mod compare;
mod head_change;
mod prepare;
mod prune;
mod reading;

use std::path::PathBuf;

use aws_sdk_dynamodb::Client;
use clap::{Args, Subcommand};
use model::json;
use rules::versions::edition::{Edition, EditionHead, fits_into_an_edition};
use serde_json::json;

use client::endpoint;
use client::exit::Exit;
use client::failure::{Context, Failure, Result, fatal};
use client::item_key;
use client::output::{self, Output, say, show};

/// Arguments of `weir editions`.
#[derive(Clone, Debug, Args)]
#[command(
    after_help = "Examples:\n  weir editions prepare --from-table products\n  weir editions publish 1\n  weir editions prepare --through \"sed 's/Chai/Chai tea/'\"\n  weir editions check 2\n  weir editions publish 2\n  weir editions get '{\"productID\":7}'\n  weir editions rollback\n  weir editions prune --keep 1\n\nExit codes: 0 done, 1 failed, 3 `check` found differences, 4 refused"
)]
pub struct EditionsArguments {
    #[command(subcommand)]
    verb: EditionsVerb,
    /// The set of items that are published together
    #[arg(long, global = true, value_name = "NAME", default_value = "main")]
    set: String,
    /// The table of editions: string keys `edition` and `item`
    #[arg(long, global = true, value_name = "TABLE", default_value = "editions")]
    table: String,
    /// The DynamoDB endpoint [default: AWS_ENDPOINT_URL_DYNAMODB, or the `weir up` of this folder]
    #[arg(long, global = true, value_name = "URL")]
    endpoint: Option<String>,
}

#[derive(Clone, Debug, Subcommand)]
enum EditionsVerb {
    /// List the editions, and mark the current edition
    Ls,
    /// Write the next edition, invisible to readers
    Prepare(PrepareArguments),
    /// Count an edition's items again, and compare them with the current edition
    Check {
        /// The edition's number
        number: u64,
    },
    /// Make an edition current, in one write
    Publish {
        /// The edition's number
        number: u64,
    },
    /// Make the previous edition current; idempotent
    Rollback {
        /// The edition that must be current; otherwise nothing changes
        #[arg(long, value_name = "NUMBER")]
        from: Option<u64>,
        /// The edition to make current, older or newer [default: the previous edition]
        #[arg(long, value_name = "NUMBER")]
        to: Option<u64>,
    },
    /// Show an item of the current edition
    Get {
        /// The item's key, in plain or DynamoDB JSON
        key: String,
        /// The edition to read [default: the current edition]
        #[arg(long)]
        number: Option<u64>,
    },
    /// Show all items of the current edition in DynamoDB JSON, one per line
    Dump {
        /// The edition to read [default: the current edition]
        #[arg(long)]
        number: Option<u64>,
    },
    /// Remove editions, except the current and the previous edition
    Prune {
        /// Number of complete editions to keep besides the current and the previous edition
        #[arg(long, default_value_t = 0)]
        keep: usize,
        /// Minimum days since an edition was begun and since it stopped being current; a younger
        /// edition may still be read or prepared
        #[arg(long, value_name = "DAYS", default_value_t = 1)]
        days: u64,
    },
}

/// Arguments of `weir editions prepare`.
#[derive(Clone, Debug, Args)]
struct PrepareArguments {
    /// The table whose items to use [default: the current edition's items]
    #[arg(long, value_name = "TABLE")]
    from_table: Option<String>,
    /// A file with the items in plain or DynamoDB JSON, one per line
    #[arg(long, value_name = "FILE", conflicts_with = "from_table")]
    from_file: Option<PathBuf>,
    /// A command that reads the items in DynamoDB JSON, one per line, and writes the items of the
    /// new edition in the same form
    #[arg(long, value_name = "COMMAND")]
    through: Option<String>,
    /// Key attributes of the items [default: the key of the table or of the current edition]
    #[arg(long, value_delimiter = ',', value_name = "NAME")]
    keys: Vec<String>,
}

/// The table that stores the editions of a set, and its endpoint.
struct Place {
    client: Client,
    table: String,
    set: String,
    /// The current time, in seconds since 1970.
    now: u64,
}

/// Runs the subcommand.
///
/// # Errors
/// When the table cannot be read or written, or the request is refused; the message states what to
/// do.
pub async fn run(arguments: EditionsArguments, output: Output) -> Result<Exit> {
    let endpoint = endpoint::find(arguments.endpoint.as_deref())?;
    if arguments.set.is_empty() || arguments.set.contains('#') {
        return Err(fatal!("--set: a name needs at least one character and must not contain `#`"));
    }
    let client = endpoint::client(&endpoint);
    let now = endpoint::store_seconds(&endpoint, &client).await;
    let place = Place {
        client,
        table: arguments.table,
        set: arguments.set,
        now: u64::try_from(now).unwrap_or(0),
    };
    match arguments.verb {
        EditionsVerb::Ls => list(&place, output).await,
        EditionsVerb::Prepare(prepare) => {
            let edition = prepare::run(&place, &prepare).await?;
            show_editions(&[edition], 0, output);
            Ok(Exit::Done)
        }
        EditionsVerb::Check { number } => compare::run(&place, number, output).await,
        EditionsVerb::Publish { number } => {
            Ok(show_change(head_change::publish(&place, number).await?, output))
        }
        EditionsVerb::Rollback { from, to } => {
            Ok(show_change(head_change::roll_back(&place, from, to).await?, output))
        }
        EditionsVerb::Get { key, number } => get(&place, &key, number).await,
        EditionsVerb::Dump { number } => {
            let number = match number {
                Some(number) => number,
                None => reading::current(&place).await?,
            };
            reading::each(&place, number, |_, image| {
                show(&format!("{}\n", json::item_to_string(&image)));
                Ok(())
            })
            .await?;
            Ok(Exit::Done)
        }
        EditionsVerb::Prune { keep, days } => {
            let pruned = prune::run(&place, keep, days).await?;
            let rows: Vec<_> =
                pruned.iter().map(|(number, items)| vec![json!(number), json!(items)]).collect();
            output::rows(output, &["edition", "items removed"], &rows);
            Ok(Exit::Done)
        }
    }
}

fn show_change((head, done): (EditionHead, String), output: Output) -> Exit {
    say(&done);
    // 0 means that there is no previous edition.
    let previous = (head.previous > 0).then_some(head.previous);
    output::rows(output, &["current", "previous"], &[vec![json!(head.current), json!(previous)]]);
    Exit::Done
}

async fn list(place: &Place, output: Output) -> Result<Exit> {
    let head = reading::head(place).await?;
    let editions = reading::editions(place).await?;
    show_editions(&editions, head.current, output);
    Ok(Exit::Done)
}

fn show_editions(editions: &[Edition], current: u64, output: Output) {
    let row = |edition: &Edition| {
        vec![
            json!(edition.number),
            json!(if edition.number == current { "current" } else { edition.state.as_str() }),
            json!(edition.items),
            json!(format!("{:016x}", edition.digest)),
            json!(edition.at_seconds),
        ]
    };
    let rows: Vec<_> = editions.iter().map(row).collect();
    output::rows(output, &["edition", "state", "items", "digest", "begun"], &rows);
}

async fn get(place: &Place, key: &str, number: Option<u64>) -> Result<Exit> {
    let key = json::item_to_string(&item_key::parse(key)?);
    fits_into_an_edition(&place.set, &key, None)
        .map_err(Failure::fatal)
        .context(|| format!("the item {key} does not fit into an edition"))?;
    let found = match number {
        Some(number) => reading::item_of(place, number, &key).await?,
        None => reading::current_item(place, &key).await?,
    };
    match found {
        Some(image) => {
            show(&format!("{}\n", json::item_to_string(&image)));
            Ok(Exit::Done)
        }
        None => Err(fatal!("no item has the key {key} in this edition")),
    }
}

#[cfg(test)]
mod store_tests;

#[cfg(test)]
mod tests {
    use super::*;
    use testing::store::TestStore;

    #[tokio::test]
    async fn a_table_that_is_not_there_is_named_with_the_keys_that_it_needs() {
        let store = TestStore::open().await;
        let place = Place {
            client: store.client.clone(),
            table: "editions".to_owned(),
            set: "main".to_owned(),
            now: 0,
        };
        for said in [
            list(&place, Output::Table).await.unwrap_err(),
            get(&place, r#"{"productID":7}"#, Some(1)).await.unwrap_err(),
            reading::each(&place, 1, |_, _| Ok(())).await.unwrap_err(),
            head_change::publish(&place, 1).await.unwrap_err(),
        ] {
            assert_eq!(
                said.to_string(),
                "no table `editions`: create it with the partition key `edition` and the sort key `item`, both strings, or name another table with --table"
            );
        }
    }
}
