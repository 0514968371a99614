//! `weir versions`: shows, compares, restores, backfills and checks the histories that the function
//! `versions` writes.
//!
//! The subcommand works on any DynamoDB endpoint. `rules::versions` defines versions.

mod absent;
mod backfill;
pub mod check;
mod difference;
pub mod history;
pub mod reading;
mod recheck;
mod restore;

use aws_sdk_dynamodb::Client;
use clap::{Args, Subcommand};
use model::{Item, json};
use rules::versions::{
    UnknownVersion, Version, as_of, fingerprint, fits_into_a_version, has_known_begin, history_key,
};
use serde_json::{Value, json};

use self::reading::HEAD_DAMAGED;
use crate::archive::cell::parse_time;
use client::endpoint;
use client::exit::Exit;
use client::failure::{Result, fatal, refused};
use client::item_key;
use client::output::{self, Output, say, show};

/// Maximum number of histories that `ls` shows without a key.
const HISTORIES_SHOWN_MAX: usize = 100;
/// Maximum number of missing changes of a history that `ls` names.
const MISSING_SAID_MAX: usize = 10;

/// Arguments of `weir versions`.
#[derive(Clone, Debug, Args)]
#[command(
    after_help = "Examples:\n  weir versions ls --table movies --key '{\"year\":2013,\"title\":\"Rush\"}'\n  weir versions get --table movies --key '{\"year\":2013,\"title\":\"Rush\"}' --as-of 2026-11-21T12:00:00Z\n  weir versions diff --table movies --key '{\"year\":2013,\"title\":\"Rush\"}' 1 3\n  weir versions restore --table movies --key '{\"year\":2013,\"title\":\"Rush\"}' --number 1\n  weir versions check --table movies\n\nExit codes: 0 done; 1 failed; 3 `check` found differences, `backfill` left items out, or `ls` found a history whose head (`v0`) is unreadable; 4 refused: the item was just changed, TTL would delete the restored item, or the item at the time of `--as-of` is unknown"
)]
pub struct VersionsArguments {
    #[command(subcommand)]
    verb: VersionsVerb,
    /// The table whose items have versions
    #[arg(long, global = true, value_name = "TABLE")]
    table: Option<String>,
    /// The table of the histories [default: TABLE-history]
    #[arg(long, global = true, value_name = "TABLE")]
    history: Option<String>,
    /// The DynamoDB endpoint [default: AWS_ENDPOINT_URL_DYNAMODB, or the `weir up` of this folder]
    #[arg(long, global = true, value_name = "URL")]
    endpoint: Option<String>,
}

#[derive(Clone, Debug, Subcommand)]
enum VersionsVerb {
    /// List the versions of an item, or the items that have a history
    Ls {
        /// The item's key, in plain JSON or DynamoDB JSON
        #[arg(long, value_name = "JSON")]
        key: Option<String>,
    },
    /// Write an earlier version of an item, in DynamoDB JSON
    Get {
        /// The item's key, in plain JSON or DynamoDB JSON
        #[arg(long, value_name = "JSON")]
        key: String,
        #[command(flatten)]
        which: Which,
    },
    /// Show what changed between two versions
    Diff {
        /// The item's key, in plain JSON or DynamoDB JSON
        #[arg(long, value_name = "JSON")]
        key: String,
        /// The number of the earlier version
        from: u64,
        /// The number of the later version [default: the current version]
        to: Option<u64>,
    },
    /// Restore an earlier version of an item; the restored item becomes the next version
    Restore {
        /// The item's key, in plain JSON or DynamoDB JSON
        #[arg(long, value_name = "JSON")]
        key: String,
        #[command(flatten)]
        which: Which,
        /// Omit an attribute, such as an expiry that has passed
        #[arg(long, value_name = "ATTRIBUTE")]
        without: Vec<String>,
        /// Show what would be written, without writing
        #[arg(long)]
        dry_run: bool,
    },
    /// Give every item without a history its first version, from its current state
    Backfill {
        /// Count the items, without writing
        #[arg(long)]
        dry_run: bool,
    },
    /// Verify every history: no gap, no missing change, and its current version equals the item
    Check {
        /// Seconds that the function may be behind before a difference counts
        #[arg(long, default_value_t = 5, value_name = "SECONDS")]
        grace: u64,
    },
}

/// The selection of one version of an item.
#[derive(Clone, Debug, Args)]
struct Which {
    /// The version with this number [default: the current version]
    #[arg(long, value_name = "N", conflicts_with = "as_of")]
    number: Option<u64>,
    /// The last version up to this time: RFC 3339, a day, or seconds since 1970
    #[arg(long, value_name = "TIME")]
    as_of: Option<String>,
}

/// The table of items, the table of histories, and their store.
pub struct Place {
    /// A client of the store.
    pub client: Client,
    /// The store's endpoint.
    pub endpoint: String,
    /// The table whose items have versions.
    pub table: String,
    /// The table of the items' histories.
    pub history: String,
}

impl Place {
    /// Returns the store's time in seconds since 1970.
    async fn now(&self) -> u64 {
        u64::try_from(endpoint::store_seconds(&self.endpoint, &self.client).await).unwrap_or(0)
    }
}

/// Runs the subcommand.
///
/// # Errors
/// When a table cannot be read or written, or the request is refused; the message states what to
/// do.
pub async fn run(arguments: VersionsArguments, output: Output) -> Result<Exit> {
    let endpoint = endpoint::find(arguments.endpoint.as_deref())?;
    let table = arguments.table.ok_or("--table is missing: name the table of the items")?;
    let history = arguments.history.unwrap_or_else(|| history_of(&table));
    let place = Place { client: endpoint::client(&endpoint), endpoint, table, history };
    match arguments.verb {
        VersionsVerb::Ls { key: None } => return list_histories(&place, output).await,
        VersionsVerb::Ls { key: Some(key) } => {
            let versions = kept(&place, &item_key::parse(&key)?).await?;
            output::rows(
                output,
                &["version", "event", "at", "by", "bytes", "stamp"],
                &versions.iter().map(row).collect::<Vec<_>>(),
            );
            missing(&versions).iter().take(MISSING_SAID_MAX).for_each(|line| say(line));
        }
        VersionsVerb::Get { key, which } => {
            let versions = kept(&place, &item_key::parse(&key)?).await?;
            let version = choose(&versions, &which)?;
            let image = version
                .image
                .as_ref()
                .ok_or_else(|| fatal!("version {} is the deletion of the item", version.number))?;
            if let Some(doubt) = doubt(&versions, version, &which) {
                say(&doubt);
            }
            show(&format!("{}\n", json::item_to_string(image)));
        }
        VersionsVerb::Diff { key, from, to } => {
            let versions = kept(&place, &item_key::parse(&key)?).await?;
            let earlier = numbered(&versions, Some(from))?;
            let later = numbered(&versions, to)?;
            let differences = difference::between(earlier.image.as_ref(), later.image.as_ref());
            let rows: Vec<_> = differences.iter().map(difference::Difference::row).collect();
            output::rows(output, &["attribute", "change", "from", "to"], &rows);
        }
        VersionsVerb::Restore { key, which, without, dry_run } => {
            let key = item_key::parse(&key)?;
            let versions = kept(&place, &key).await?;
            let version = choose(&versions, &which)?;
            if let Some(doubt) = doubt(&versions, version, &which) {
                let number = version.number;
                return Err(refused!(
                    "refused: {doubt}; to use this version anyway, add --number {number}"
                ));
            }
            return restore::run(&place, &key, &versions, version, &without, dry_run).await;
        }
        VersionsVerb::Backfill { dry_run } => {
            let report = backfill::run(&place, dry_run).await?;
            show(&report.text(output, dry_run));
            return Ok(if report.is_whole() { Exit::Done } else { Exit::Differences });
        }
        VersionsVerb::Check { grace } => {
            let report = check::run(&place, grace).await?;
            show(&report.text(output));
            return Ok(if report.is_clean() { Exit::Done } else { Exit::Differences });
        }
    }
    Ok(Exit::Done)
}

/// Returns the default name of the table of histories.
fn history_of(table: &str) -> String {
    format!("{table}-history")
}

/// Returns the versions of a key that have not expired. TTL may delete expired versions late.
async fn kept(place: &Place, key: &Item) -> Result<Vec<Version>> {
    let now = place.now().await;
    let text = history_key(key);
    // For a key that is too long, this check has a clearer message than DynamoDB.
    fits_into_a_version(&text, None)
        .map_err(|refusal| fatal!("this item does not fit into a version: {refusal}"))?;
    let mut versions = reading::versions_of(place, &text).await?;
    versions.retain(|version| version.expires_at.is_none_or(|at| at > now));
    if versions.is_empty() {
        return Err(absent::no_history(place, key).await);
    }
    Ok(versions)
}

fn numbered(versions: &[Version], number: Option<u64>) -> Result<&Version> {
    let (first, last) = (versions.first(), versions.last());
    let wanted = number.or(last.map(|version| version.number)).unwrap_or(0);
    versions.iter().find(|version| version.number == wanted).ok_or_else(|| {
        let number = |version: Option<&Version>| version.map_or(0, |version| version.number);
        fatal!("no version {wanted}; the item has versions {} to {}", number(first), number(last))
    })
}

fn choose<'v>(versions: &'v [Version], which: &Which) -> Result<&'v Version> {
    let Some(text) = &which.as_of else { return numbered(versions, which.number) };
    // Records have whole seconds, so the time is rounded down to a second.
    let seconds = u64::try_from(parse_time(text)?.div_euclid(1000)).unwrap_or(0);
    as_of(versions, seconds).map_err(|not_known| match not_known {
        UnknownVersion::BeforeHistory => begins_later(versions, text).into(),
        UnknownVersion::Missing(..) => fatal!(
            "the item's state at {text} is unknown: {not_known}; name a version with --number (`weir versions ls`)"
        ),
    })
}

/// Returns the message that the first version is later than the requested time. The history begins
/// with the item's first version, or with the first version that was not pruned.
fn begins_later(versions: &[Version], time: &str) -> String {
    let first = versions.first();
    let since = at(first).as_str().map_or_else(|| "an unknown time".to_owned(), str::to_owned);
    match first.map_or(1, |first| first.number) {
        1 => format!("the history begins after {time}: the item's first version is from {since}"),
        number => format!(
            "the history begins after {time}: the oldest stored version is {number}, from {since}"
        ),
    }
}

/// Returns why a version that was chosen by time may be wrong: the time at which the item got this
/// state is unknown. Returns `None` for a version that was chosen by number.
fn doubt(versions: &[Version], version: &Version, which: &Which) -> Option<String> {
    let text = which.as_of.as_ref().filter(|_| !has_known_begin(versions, version))?;
    Some(format!(
        "version {} has no time, so it is unknown when the item got this state; the item may have been different at {text}",
        version.number
    ))
}

fn at(version: Option<&Version>) -> Value {
    let seconds = version.and_then(|version| version.at_seconds);
    let time =
        seconds.and_then(|seconds| jiff::Timestamp::from_second(i64::try_from(seconds).ok()?).ok());
    time.map_or(Value::Null, |time| json!(time.to_string()))
}

fn row(version: &Version) -> Vec<Value> {
    vec![
        json!(version.number),
        json!(version.event.as_str()),
        at(Some(version)),
        if version.by_ttl { json!("ttl") } else { Value::Null },
        json!(version.image.as_ref().map_or(0, Item::size)),
        json!(version.stamp.as_str()),
    ]
}

/// Returns the places in a list of versions, ordered by number, at which a change is missing.
fn missing(versions: &[Version]) -> Vec<String> {
    let base = versions.first().filter(|version| version.lacks_base());
    let base = base.map(|_| {
        "no version has the item's state before version 1, because it did not fit into a version"
            .to_owned()
    });
    let pairs = versions.iter().zip(versions.iter().skip(1)).filter(|(before, version)| {
        version.number == before.number + 1
            && !version.is_next_to(before.image.as_ref().map(fingerprint))
            && !version.begins_anew(&before.stamp)
    });
    let between = pairs.map(|(before, version)| {
        format!(
            "between versions {} and {} a change is missing: if it was quarantined, it is in the failures bucket",
            before.number, version.number
        )
    });
    base.into_iter().chain(between).collect()
}

/// Shows all histories, including histories with unreadable heads.
async fn list_histories(place: &Place, output: Output) -> Result<Exit> {
    let mut damaged = 0;
    let mut rows = Vec::new();
    let mut more = false;
    reading::each_head(place, |item, head| {
        more = rows.len() >= HISTORIES_SHOWN_MAX;
        if !more {
            let (first, latest) = match head {
                Ok(head) => (json!(head.first), json!(head.latest)),
                Err(reason) => {
                    damaged += 1;
                    say(&format!("{item} {HEAD_DAMAGED}: {reason}"));
                    (Value::Null, Value::Null)
                }
            };
            rows.push(vec![json!(item), first, latest]);
        }
        !more
    })
    .await?;
    output::rows(output, &["item", "first", "latest"], &rows);
    if more {
        tracing::info!("only {HISTORIES_SHOWN_MAX} histories are shown; name one with --key");
    }
    Ok(if damaged == 0 { Exit::Done } else { Exit::Differences })
}

#[cfg(test)]
mod store_tests;

#[cfg(test)]
mod tests {
    use super::*;

    fn versions() -> Vec<Version> {
        let version = |number: u64| Version {
            number,
            at_seconds: Some(1_700_000_000 + number),
            ..Version::base(Item::new())
        };
        (3..6).map(version).collect()
    }

    #[test]
    fn changes_without_a_version_are_reported_with_their_place() {
        let item = |value: u64| Item::new().with("v", model::Number::from(value));
        let version = |number: u64, before: u64, value: u64| Version {
            number,
            event: rules::versions::VersionEvent::Modify,
            previous_fingerprint: Some(fingerprint(&item(before))),
            ..Version::base(item(value))
        };
        assert!(missing(&[Version::base(item(1)), version(2, 1, 2)]).is_empty());
        let said =
            missing(&[version(1, 1, 2), version(2, 2, 3), version(3, 4, 5), version(5, 1, 1)]);
        assert_eq!(said.len(), 2, "{said:?}");
        assert!(said[0].starts_with("no version has the item's state"), "{said:?}");
        assert!(said[1].starts_with("between versions 2 and 3 a change"), "{said:?}");
    }

    #[test]
    fn a_version_is_chosen_by_number_or_time() {
        let versions = versions();
        let choose = |number: Option<u64>, time: Option<&str>| {
            let which = Which { number, as_of: time.map(str::to_owned) };
            choose(&versions, &which).map(|version| version.number)
        };
        assert_eq!(choose(None, None), Ok(5));
        assert_eq!(choose(Some(4), None), Ok(4));
        assert_eq!(
            choose(Some(2), None),
            Err(fatal!("no version 2; the item has versions 3 to 5"))
        );
        assert_eq!(choose(None, Some("1700000004")), Ok(4));
        assert_eq!(choose(None, Some("2023-11-14T22:13:25.900Z")), Ok(5));
        assert_eq!(
            choose(None, Some("1700000002")),
            Err(fatal!(
                "the history begins after 1700000002: the oldest stored version is 3, from 2023-11-14T22:13:23Z"
            ))
        );
        let first = [Version { number: 1, ..versions[0].clone() }];
        let early = Which { number: None, as_of: Some("2023-11-14".to_owned()) };
        assert_eq!(
            super::choose(&first, &early).map(|version| version.number),
            Err(fatal!(
                "the history begins after 2023-11-14: the item's first version is from 2023-11-14T22:13:23Z"
            ))
        );
        assert!(choose(None, Some("yesterday")).is_err());
        let which = Which { number: None, as_of: Some("1700000004".to_owned()) };
        assert_eq!(doubt(&versions, &versions[1], &which), None);
        let base = [Version::base(Item::new()), Version { number: 2, ..versions[2].clone() }];
        assert_eq!(
            doubt(&base, super::choose(&base, &which).unwrap(), &which),
            Some("version 1 has no time, so it is unknown when the item got this state; the item may have been different at 1700000004".to_owned())
        );
        assert_eq!(doubt(&base, &base[0], &Which { number: Some(1), as_of: None }), None);
        let broken = [versions[0].clone(), versions[2].clone()];
        let which = Which { number: None, as_of: Some("1700000004".to_owned()) };
        assert_eq!(
            super::choose(&broken, &which).map(|version| version.number),
            Err(fatal!(
                "the item's state at 1700000004 is unknown: versions 4 to 4 are missing, and one of them may have been current at the requested time; name a version with --number (`weir versions ls`)"
            ))
        );
    }
}
