//! `weir clock` and `weir ttl`: show and change the store's time, and delete expired items.
//!
//! The clock belongs to the store; this module sends requests to its admin endpoint.

use std::time::Duration;

use clap::{Args, Subcommand};
use http::Method;
use serde_json::{Value, json};

use client::endpoint;
use client::exit::Exit;
use client::failure::{Failure, Result, fatal, refused};
use client::interruption;
use client::output::{self, Output};
use client::running::RunningState;
use local::status;

const DAY_SECONDS: u64 = 24 * 60 * 60;
/// The maximum advance without `--yes`. A longer advance is probably a mistake in the unit: it is
/// permanent, and nearly every item with a TTL would expire.
const ADVANCE_MAX: Duration = Duration::from_secs(366 * DAY_SECONDS);

/// Arguments of `weir clock`.
#[derive(Clone, Debug, Args)]
#[command(
    after_help = "Examples:\n  weir clock show\n  weir clock advance 26h\n  weir clock freeze && weir clock advance 90m && weir clock resume\n\nThe clock never runs backwards: an advance persists across restarts of `weir up`. A freeze ends when `weir up` stops; after a restart, time continues from the frozen time"
)]
pub struct ClockArguments {
    /// The change of the clock
    #[command(subcommand)]
    pub change: ClockChange,
    /// The endpoint of the store [default: AWS_ENDPOINT_URL_DYNAMODB, or the running `weir up`]
    #[arg(long, global = true, value_name = "URL")]
    pub endpoint: Option<String>,
}

/// Actions of `weir clock`.
#[derive(Clone, Debug, Subcommand)]
pub enum ClockChange {
    /// Show the store's time
    Show,
    /// Stop the store's clock
    Freeze,
    /// Advance the clock permanently; TTL, shard rotation and retention follow
    #[command(
        after_help = "Examples:\n  weir clock advance 26h\n  weir clock advance 1d12h\n  weir clock advance 90m\n\nAn advance cannot be undone: the store keeps its time in its data folder. Each --directory has its own clock"
    )]
    Advance {
        /// Duration, such as 26h, 90m, 1d12h, 500ms
        #[arg(value_parser = parse_duration)]
        duration: Duration,
        /// Allow an advance of more than 366 days
        #[arg(long)]
        yes: bool,
    },
    /// End a freeze: time continues from where it stopped
    Resume,
}

/// Arguments of `weir ttl`.
#[derive(Clone, Debug, Args)]
#[command(after_help = "Examples:\n  weir ttl sweep\n  weir clock advance 26h && weir ttl sweep")]
pub struct TtlArguments {
    /// The action
    #[command(subcommand)]
    pub action: TtlAction,
    /// The endpoint of the store [default: AWS_ENDPOINT_URL_DYNAMODB, or the running `weir up`]
    #[arg(long, global = true, value_name = "URL")]
    pub endpoint: Option<String>,
}

/// Actions of `weir ttl`.
#[derive(Clone, Copy, Debug, Subcommand)]
pub enum TtlAction {
    /// Delete the items that have expired by the store's time
    Sweep,
}

/// Shows or changes the clock.
///
/// # Errors
/// The store does not respond, or refuses the change.
pub async fn run(arguments: &ClockArguments, output: Output) -> Result<Exit> {
    if let ClockChange::Advance { duration, yes: false } = arguments.change
        && duration > ADVANCE_MAX
    {
        return Err(refused!(
            "refused: this advances the clock by {} days, which cannot be undone; add --yes to confirm",
            duration.as_secs() / DAY_SECONDS
        ));
    }
    let endpoint = endpoint::find(arguments.endpoint.as_deref())?;
    let change = match arguments.change {
        ClockChange::Show => Value::Null,
        ClockChange::Freeze => json!({"freeze": true}),
        ClockChange::Resume => json!({"resume": true}),
        ClockChange::Advance { duration, .. } => {
            json!({"advance_ms": u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)})
        }
    };
    let waiting = match arguments.change {
        ClockChange::Advance { .. } => records_that_wait(&endpoint),
        _ => Vec::new(),
    };
    let method = if change.is_null() { Method::GET } else { Method::POST };
    let clock = endpoint::admin(method, &endpoint, "clock", &change).await?;
    let now_ms = clock.get("now_ms").and_then(Value::as_i64).unwrap_or_default();
    let time = jiff::Timestamp::from_millisecond(now_ms).map_err(Failure::fatal)?;
    let frozen = clock.get("frozen").cloned().unwrap_or_default();
    let row = vec![json!(format!("{time:.3}")), json!(now_ms), frozen];
    output::rows(output, &["time", "now ms", "frozen"], &[row]);
    if !waiting.is_empty() {
        output::say(&note_of(&waiting));
    }
    Ok(Exit::Done)
}

/// Returns, by function, the number of records that wait in the `weir up` of this folder. The list is
/// empty if this `weir up` does not use the store at `endpoint`.
fn records_that_wait(endpoint: &str) -> Vec<(String, u64)> {
    match RunningState::here() {
        RunningState::Running(running) if running.is_at(endpoint) => {
            status::waiting(&running.directory)
        }
        _ => Vec::new(),
    }
}

fn note_of(waiting: &[(String, u64)]) -> String {
    let each: Vec<String> = waiting.iter().map(|(name, count)| format!("{name} {count}")).collect();
    format!(
        "NOTE: the advance has aged records that still wait for their functions ({}). A mapping discards records older than its MaximumRecordAgeInSeconds, and failed records older than 24 hours. Before the next advance, wait until `weir status --exit-code` exits with 0",
        each.join(", ")
    )
}

/// Deletes expired items.
///
/// # Errors
/// The store does not respond, or refuses the request.
pub async fn run_ttl(arguments: &TtlArguments, output: Output) -> Result<Exit> {
    let endpoint = endpoint::find(arguments.endpoint.as_deref())?;
    let TtlAction::Sweep = arguments.action;
    interruption::reached("requested the deletion of expired items".to_owned());
    let swept = endpoint::admin(Method::POST, &endpoint, "ttl/sweep", &json!({})).await?;
    let expired = swept.get("expired").cloned().unwrap_or_default();
    output::rows(output, &["expired"], &[vec![expired]]);
    Ok(Exit::Done)
}

/// Parses a duration such as `26h` or `1d12h30m`.
fn parse_duration(text: &str) -> Result<Duration> {
    let fault =
        || fatal!("`{text}` is not a duration: write, for example, 26h, 90m, 1d12h or 500ms");
    let mut rest = text;
    let mut millis: u64 = 0;
    while !rest.is_empty() {
        let digits = rest.find(|c: char| !c.is_ascii_digit()).ok_or_else(fault)?;
        let (number, behind) = rest.split_at(digits);
        let letters = behind.find(|c: char| c.is_ascii_digit()).unwrap_or(behind.len());
        let (unit, after) = behind.split_at(letters);
        let unit: u64 = match unit {
            "ms" => 1,
            "s" => 1_000,
            "m" => 60_000,
            "h" => 3_600_000,
            "d" => 86_400_000,
            _ => return Err(fault()),
        };
        let number: u64 = number.parse().map_err(|_| fault())?;
        let part = number.checked_mul(unit).ok_or_else(fault)?;
        millis = millis.checked_add(part).ok_or_else(fault)?;
        rest = after;
    }
    if text.is_empty() { Err(fault()) } else { Ok(Duration::from_millis(millis)) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn an_advance_by_years_needs_a_flag() {
        // No store listens at this address, so an advance fails even if it is not refused.
        let advance = async |duration: &str, yes: bool| {
            let duration = parse_duration(duration).unwrap();
            let change = ClockChange::Advance { duration, yes };
            let endpoint = Some("http://127.0.0.1:1".to_owned());
            run(&ClockArguments { change, endpoint }, Output::Json).await
        };
        let exit = async |duration: &str, yes: bool| {
            advance(duration, yes).await.map_err(|failure| failure.exit())
        };
        assert_eq!(exit("99999d", false).await, Err(Exit::Refused));
        assert_eq!(exit("99999d", true).await, Err(Exit::Failed));
        assert_eq!(exit("366d", false).await, Err(Exit::Failed));
    }

    #[test]
    fn waiting_records_are_listed() {
        let folder = tempfile::tempdir().unwrap();
        assert!(status::waiting(folder.path()).is_empty());
        let shard =
            |waiting: u64, in_flight: u64| json!({"waiting": waiting, "in_flight": in_flight});
        let mappings = json!({"mappings": [
            {"mapping": "A", "shards": [shard(2, 1), shard(0, 3)]},
            {"mapping": "B", "shards": [shard(0, 0)]},
        ]});
        std::fs::write(folder.path().join("status.json"), mappings.to_string()).unwrap();
        let note = note_of(&status::waiting(folder.path()));
        assert!(note.contains("functions (A 6). A mapping"), "{note}");
    }

    #[test]
    fn durations_are_numbers_with_units() {
        let cases = [
            ("26h", Some(93_600_000)),
            ("1d12h", Some(129_600_000)),
            ("500ms", Some(500)),
            ("1h30m5s", Some(5_405_000)),
            ("0s", Some(0)),
            ("26", None),
            ("h", None),
            ("", None),
            ("-1h", None),
            ("1w", None),
            ("99999999999999999999h", None),
            ("9999999999999999d", None),
        ];
        for (text, millis) in cases {
            let parsed = parse_duration(text).ok();
            assert_eq!(parsed, millis.map(Duration::from_millis), "{text}");
        }
    }
}
