//! The partitions of a table on the admin endpoint: shows their size and traffic, and splits them on
//! request.
//!
//! | request | response |
//! |---|---|
//! | `GET /_weir/partitions/<table>` | `{"table":…,"partitions":[{"number","first_token","last_token","items","bytes","read_units_per_second","write_units_per_second","shard","splitting"}],"hot_keys":{"reads":[…],"writes":[…]}}` |
//! | `POST /_weir/partitions/<table>/split` with `{}`, `{"partition":N}` or `{"partition":N,"at":"token"}` | the same, after the split |
//!
//! Tokens are strings of decimal digits, because JSON parsers often cannot read numbers of 64 bits.

use std::fmt::{Display, Write as _};

use http::StatusCode;
use model::json::{self, Json};
use model::{Item, Token};
use partition::{
    Command, Partition, PartitionNumber, Reply, SplitPoint, Statistics, Table, View,
    read_partition_statistics,
};
use thiserror::Error;

use super::admin_answer::{Answer, InvalidBody, find_table, refusal, success};
use crate::store::{Store, Unavailable};
use crate::traffic::HotKey;

/// The maximum number of steps of a split that a request waits for. Further steps run in the
/// background. Each step counts some thousand items.
const STEPS_MAX: usize = 10_000;
const SPLITS: &str = "{}, {\"partition\":N} or {\"partition\":N,\"at\":\"token\"}";

/// The reason why a split was not completed.
#[derive(Debug, Error)]
enum SplitError {
    /// The partition cannot be split: refuse the request.
    #[error("{0}")]
    Refused(String),
    /// The store did not respond: the client repeats the request.
    #[error(transparent)]
    Unavailable(#[from] Unavailable),
}

/// Returns the partitions of a table.
pub(super) async fn show(store: &Store, name: &str) -> Answer {
    let place = format!("GET /_weir/partitions/{name}");
    let table = match find_table(store, name, &place) {
        Ok(table) => table,
        Err(answer) => return answer,
    };
    match read_sizes(store, &table).await {
        Ok(sizes) => describe(store, &table, &sizes),
        Err(error) => unreadable(&error, &place),
    }
}

/// Returns the number and the size of the items of each partition, in the order of the partitions.
async fn read_sizes(store: &Store, table: &Table) -> Result<Vec<Statistics>, Unavailable> {
    let read = |view: &dyn View| {
        let partitions = table.partitions.iter();
        partitions.map(|one| read_partition_statistics(view, table, one.number)).collect()
    };
    store.read(read).await
}

/// Splits the requested partition, or the largest partition if the request names none.
pub(super) async fn split(store: &Store, name: &str, body: &[u8]) -> Answer {
    let place = format!("POST /_weir/partitions/{name}/split");
    let table = match find_table(store, name, &place) {
        Ok(table) => table,
        Err(answer) => return answer,
    };
    let (partition, at) = match read_request(body) {
        Ok(request) => request,
        Err(error) => return refusal(StatusCode::BAD_REQUEST, &error.to_string(), &place, SPLITS),
    };
    let partition = match partition {
        Some(partition) => partition,
        None => match read_sizes(store, &table).await {
            Ok(sizes) => largest(&table, &sizes),
            Err(error) => return unreadable(&error, &place),
        },
    };
    match carry_out(store, &table, partition, at).await {
        Ok(()) => show(store, name).await,
        Err(error) => {
            let (status, instead) = match &error {
                SplitError::Refused(_) => (
                    StatusCode::CONFLICT,
                    "a partition from GET /_weir/partitions/<table> and a token within it",
                ),
                SplitError::Unavailable(_) => {
                    (StatusCode::SERVICE_UNAVAILABLE, "the same request once the store is running")
                }
            };
            refusal(status, &error.to_string(), &place, instead)
        }
    }
}

/// Begins a split and runs its steps until it is complete.
async fn carry_out(
    store: &Store,
    table: &Table,
    partition: PartitionNumber,
    at: SplitPoint,
) -> Result<(), SplitError> {
    let table = table.id;
    let begin = Command::SplitPartition { table, partition, at };
    match store.submit(vec![begin]).await?.into_iter().next() {
        Some(Reply::Done { .. }) => {}
        Some(Reply::Invalid(refused)) => return Err(SplitError::Refused(refused)),
        _ => {
            let text = "the table was deleted during the request";
            return Err(SplitError::Refused(text.to_owned()));
        }
    }
    for _ in 0..STEPS_MAX {
        let replies = store.submit(vec![Command::StepSplits { table }]).await?;
        if replies.first() != Some(&Reply::Done { more: true }) {
            break;
        }
    }
    let catalogue = store.catalogue();
    let left = catalogue.get(table).and_then(|table| {
        table.find_partition(partition).and_then(|place| table.partitions.get(place))
    });
    match left {
        Some(left) if left.split.is_none() => {
            let text = "all items of the partition have the same partition key, so a split by size is impossible; give `at`, the token to split at";
            Err(SplitError::Refused(text.to_owned()))
        }
        _ => Ok(()),
    }
}

fn read_request(body: &[u8]) -> Result<(Option<PartitionNumber>, SplitPoint), InvalidBody> {
    let tree = if body.is_empty() {
        Json::Object(Vec::new())
    } else {
        json::parse(body).map_err(|error| error.to_string())?
    };
    let members = tree.as_object().ok_or("expected a JSON object")?;
    let (mut partition, mut at) = (None, SplitPoint::Half);
    for (name, value) in members {
        match (&**name, value) {
            ("partition", Json::Integer(number)) => {
                let number = u32::try_from(*number).map_err(|_| "the partition does not exist")?;
                partition = Some(PartitionNumber(number));
            }
            ("at", Json::String(token)) => {
                let token = token.parse().map_err(|_| format!("`{token}` is not a token"))?;
                at = SplitPoint::Token(Token(token));
            }
            (name, _) => return Err(format!("unknown member or invalid value: `{name}`").into()),
        }
    }
    if partition.is_none() && at != SplitPoint::Half {
        return Err("`at` requires `partition`, the partition that contains the token".into());
    }
    Ok((partition, at))
}

/// Returns the partition with the largest size in bytes. Among partitions of equal size, returns the
/// partition with the largest range of tokens.
fn largest(table: &Table, sizes: &[Statistics]) -> PartitionNumber {
    let mut found = (PartitionNumber(0), (0, 0));
    for (place, (partition, size)) in table.partitions.iter().zip(sizes).enumerate() {
        let tokens = table.token_range(place).map_or(0, |range| range.last.0 - range.first.0);
        if place == 0 || (size.bytes, tokens) > found.1 {
            found = (partition.number, (size.bytes, tokens));
        }
    }
    found.0
}

fn describe(store: &Store, table: &Table, sizes: &[Statistics]) -> Answer {
    let mut out = String::from("{\"table\":");
    json::write_string(&mut out, &table.name);
    out.push_str(",\"partitions\":[");
    for (position, (partition, size)) in table.partitions.iter().zip(sizes).enumerate() {
        out.push_str(if position == 0 { "{" } else { ",{" });
        write_partition(&mut out, store, table, position, (partition, size));
        out.push('}');
    }
    let (reads, writes) = store.traffic().hot_keys(table.id, store.now());
    for (start, keys) in [("],\"hot_keys\":{\"reads\":[", reads), ("],\"writes\":[", writes)] {
        out.push_str(start);
        for (position, hot) in keys.iter().enumerate() {
            out.push_str(if position == 0 { "" } else { "," });
            write_hot_key(&mut out, table, hot);
        }
    }
    out.push_str("]}}");
    success(out)
}

fn write_partition(
    out: &mut String,
    store: &Store,
    table: &Table,
    position: usize,
    (partition, size): (&Partition, &Statistics),
) {
    let rate = store.traffic().rate(table.id, partition.number, store.now());
    let range = table.token_range(position).unwrap_or(partition::TokenRange::ALL);
    let shard = partition.shard.and_then(|number| table.shards().find(|s| s.number == number));
    let shard = shard.map_or_else(|| "null".to_owned(), |shard| format!("\"{}\"", shard.id));
    let _ = write!(
        out,
        "\"number\":{},\"first_token\":\"{}\",\"last_token\":\"{}\",\"items\":{},\"bytes\":{},\
         \"read_units_per_second\":{:.1},\"write_units_per_second\":{:.1},\"shard\":{shard},\
         \"splitting\":{}",
        partition.number.0,
        range.first.0,
        range.last.0,
        size.items,
        size.bytes,
        rate.read_units_per_second,
        rate.write_units_per_second,
        partition.split.is_some(),
    );
}

fn write_hot_key(out: &mut String, table: &Table, hot: &HotKey) {
    let mut key = Item::new();
    key.insert(table.key_schema.partition.name.clone(), hot.key.to_attribute_value());
    let token = Token::of(&hot.key);
    let partition = table.partitions.get(table.partition_of(token));
    out.push_str("{\"key\":");
    json::write_item(out, &key);
    let _ = write!(
        out,
        ",\"token\":\"{}\",\"partition\":{},\"units_per_second\":{:.1},\"error_per_second\":{:.1}}}",
        token.0,
        partition.map_or(0, |partition| partition.number.0),
        hot.units_per_second,
        hot.error_per_second,
    );
}

pub(super) fn unreadable(error: &impl Display, place: &str) -> Answer {
    let instead = "the same request after a restart";
    refusal(StatusCode::INTERNAL_SERVER_ERROR, &error.to_string(), place, instead)
}
