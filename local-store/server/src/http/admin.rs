//! The admin endpoint. It controls the store's clock, deletes expired items, deletes all tables, hands the
//! store over, shows and splits partitions, and shows the shards and the newest records of a stream.
//!
//! | request | response |
//! |---|---|
//! | `GET /_weir/clock` | `{"now_ms":…,"frozen":false,"only":true}`; `only` is false if nodes in other processes have their own clocks |
//! | `POST /_weir/clock` with `{"freeze":true}`, `{"advance_ms":N}` or `{"resume":true}` | the same, after the change |
//! | `POST /_weir/ttl/sweep` | `{"expired":N}`: the number of delete commands |
//! | `DELETE /_weir/tables` | `{"deleted":N}`: all tables, in one log entry of each arc |
//! | `GET /_weir/status` | see `status` |
//! | `GET /_weir/handover` | `{"to":"URL"}`; `null` while the store accepts writes |
//! | `POST /_weir/handover` with `{"to":"URL"}` | the same, when all later writes are refused |
//! | `POST /_weir/ring/leave` with `{"node":N}` | the ring, see `ring` |
//! | `GET /_weir/partitions/<table>` | see `partitions` |
//! | `POST /_weir/partitions/<table>/split` | see `partitions` |
//! | `GET /_weir/streams/<table>` | `{"label":…,"shards":[{"id","first","last_sequence","open"}]}` |
//! | `POST /_weir/streams/<table>/newest` | see `newest_records` |
//!
//! An error has the members `what`, `where`, and `instead` (what to send instead). The endpoint refuses
//! requests from web pages, so that no page can change the clock of a store on the user's machine.

use http::header::ORIGIN;
use http::request::Parts;
use http::{Method, StatusCode};
use model::json::{self, Json};
use partition::{Command, ReadError, Reply, Shard, View, read_last_sequence};

use super::admin_answer::{Answer, find_table, last_stream, refusal, success};
use super::{handover, newest_records, partitions, ring, status};
use crate::store::{Store, SweepResult};

/// The prefix of all paths of the admin endpoint.
pub(super) const PREFIX: &str = "/_weir/";

/// The last millisecond of the year 9999, since 1970. Formatted times have only four digits for the
/// year.
const TIME_MAX: u64 = 253_402_300_799_999;
const PATHS: &str = "GET /_weir/clock, POST /_weir/clock, POST /_weir/ttl/sweep, DELETE /_weir/tables, \
    GET /_weir/status, GET /_weir/handover, POST /_weir/handover, POST /_weir/ring/leave, GET /_weir/partitions/<table>, POST /_weir/partitions/<table>/split, \
    GET /_weir/streams/<table>, or POST /_weir/streams/<table>/newest";
const CLOCK_CHANGES: &str = "{\"freeze\":true}, {\"advance_ms\":N} or {\"resume\":true}";

/// Returns the error for a request whose body could not be read.
pub(super) fn refuse_body(status: StatusCode) -> Answer {
    refusal(status, "cannot read the request's body", "the request's body", CLOCK_CHANGES)
}

/// Answers a request. `path` is the path of the request without [`PREFIX`].
pub(super) async fn answer(store: &Store, head: &Parts, path: &str, body: &[u8]) -> Answer {
    if head.headers.contains_key(ORIGIN) {
        return refusal(
            StatusCode::FORBIDDEN,
            "requests from web pages are refused",
            "the header `Origin`",
            "the same request from a program, such as curl",
        );
    }
    match (&head.method, path) {
        (&Method::GET, "clock") => show_clock(store),
        (&Method::POST, "clock") => change_clock(store, body).await,
        (&Method::POST, "ttl/sweep") => sweep(store).await,
        (&Method::DELETE, "tables") => delete_tables(store).await,
        (&Method::GET, "status") => success(status::describe(store).await),
        (&Method::GET, "handover") => handover::show(store).await,
        (&Method::POST, "handover") => handover::hand_over(store, body).await,
        (&Method::POST, "ring/leave") => ring::leave(store, body).await,
        (method, path) => match (method, path.split_once('/')) {
            (&Method::GET, Some(("streams", table))) => show_stream(store, table).await,
            (&Method::POST, Some(("streams", rest))) => match rest.strip_suffix("/newest") {
                Some(table) => newest_records::show(store, table, body).await,
                None => unknown_path(head),
            },
            (&Method::GET, Some(("partitions", table))) => partitions::show(store, table).await,
            (&Method::POST, Some(("partitions", rest))) => match rest.strip_suffix("/split") {
                Some(table) => partitions::split(store, table, body).await,
                None => unknown_path(head),
            },
            _ => unknown_path(head),
        },
    }
}

fn unknown_path(head: &Parts) -> Answer {
    let place = format!("{} {}", head.method, head.uri.path());
    refusal(StatusCode::NOT_FOUND, "unknown admin request", &place, PATHS)
}

fn show_clock(store: &Store) -> Answer {
    let clock = store.clock();
    success(format!(
        "{{\"now_ms\":{},\"frozen\":{},\"only\":{}}}",
        clock.now().0,
        clock.is_frozen(),
        !store.has_other_processes()
    ))
}

async fn change_clock(store: &Store, body: &[u8]) -> Answer {
    let refuse = |what: &str| {
        refusal(StatusCode::BAD_REQUEST, what, "the body of POST /_weir/clock", CLOCK_CHANGES)
    };
    let tree = match json::parse(body) {
        Ok(tree) => tree,
        Err(error) => return refuse(&error.to_string()),
    };
    let change = match tree.as_object() {
        Some([(name, value)]) => (&**name, value),
        _ => return refuse("expected an object with exactly one change"),
    };
    match change {
        ("freeze", Json::Bool(true)) => store.clock().freeze(),
        ("resume", Json::Bool(true)) => store.clock().resume(),
        ("advance_ms", Json::Integer(millis)) => match u64::try_from(*millis) {
            Ok(millis) if store.clock().now().0.saturating_add(millis) > TIME_MAX => {
                return refuse("the clock cannot advance beyond the year 9999");
            }
            Ok(millis) => store.clock().advance(millis),
            Err(_) => {
                return refuse("the clock cannot be set back: `advance_ms` must be 0 or more");
            }
        },
        (name, _) => return refuse(&format!("unknown clock change, or invalid value of `{name}`")),
    };
    let unreached = store.spread_clock().await;
    // The other nodes get the time before the log entry is written, because the entry contains the
    // leader's time, and another node may be the leader.
    let kept = store.keep_time().await;
    if !unreached.is_empty() {
        return refusal(
            StatusCode::SERVICE_UNAVAILABLE,
            &format!("the clock was changed, but nodes {unreached:?} could not be reached"),
            "POST /_weir/clock",
            "no request if these nodes are down: they receive the time with the first write after their restart",
        );
    }
    if let Err(error) = kept {
        return refusal(
            StatusCode::SERVICE_UNAVAILABLE,
            &format!("the clock was changed, but a restart may revert the change: {error}"),
            "POST /_weir/clock",
            "{\"advance_ms\":0} once the store accepts writes again",
        );
    }
    show_clock(store)
}

async fn sweep(store: &Store) -> Answer {
    match store.sweep_time_to_live().await {
        Ok(SweepResult { expired, blocked }) if blocked.is_empty() => {
            success(format!("{{\"expired\":{expired}}}"))
        }
        Ok(SweepResult { expired, blocked }) => {
            let tables: Vec<String> = blocked.iter().map(|name| format!("`{name}`")).collect();
            let what = format!(
                "deleted {expired} expired items; further deletions are blocked, because an arc is unreachable and too many index entries of {} wait for it",
                tables.join(", ")
            );
            let instead = "the same request once all arcs are available (GET /_weir/status)";
            refusal(StatusCode::SERVICE_UNAVAILABLE, &what, "POST /_weir/ttl/sweep", instead)
        }
        Err(error) => refusal(
            StatusCode::SERVICE_UNAVAILABLE,
            &error.to_string(),
            "POST /_weir/ttl/sweep",
            "the same request once the store is running",
        ),
    }
}

/// Deletes all tables of the requester, even tables with an index that is being built. Test suites
/// reset the store with this request between two test cases, so it must be fast.
async fn delete_tables(store: &Store) -> Answer {
    let place = "DELETE /_weir/tables";
    let _permit = match store.handover().permit_write().await {
        Ok(permit) => permit,
        Err(error) => {
            let instead = "the request to the new endpoint";
            return refusal(StatusCode::CONFLICT, &error.to_string(), place, instead);
        }
    };
    let catalogue = store.catalogue();
    let own: Vec<_> = catalogue.by_name().filter(|table| store.owns(table)).collect();
    if own.is_empty() {
        return success("{\"deleted\":0}".to_owned());
    }
    let commands = own.iter().map(|table| Command::DeleteTable { table: table.id }).collect();
    let replies = match store.submit(commands).await {
        Ok(replies) => replies,
        Err(error) => {
            let instead = "the same request once the store is running";
            let what = error.to_string();
            return refusal(StatusCode::SERVICE_UNAVAILABLE, &what, place, instead);
        }
    };
    let refused = own.iter().zip(&replies).filter(|(_, reply)| matches!(reply, Reply::Invalid(_)));
    let refused: Vec<&str> = refused.map(|(table, _)| table.name.as_str()).collect();
    if refused.is_empty() {
        return success(format!("{{\"deleted\":{}}}", own.len()));
    }
    let what = format!(
        "deletion protection prevented the deletion of {}; all other tables were deleted",
        refused.join(", ")
    );
    let instead = "the same request after UpdateTable with DeletionProtectionEnabled=false";
    refusal(StatusCode::CONFLICT, &what, place, instead)
}

async fn show_stream(store: &Store, name: &str) -> Answer {
    let place = format!("GET /_weir/streams/{name}");
    let table = match find_table(store, name, &place) {
        Ok(table) => table,
        Err(answer) => return answer,
    };
    let stream = match last_stream(&table, &place) {
        Ok(stream) => stream,
        Err(answer) => return answer,
    };
    let read = |view: &dyn View| {
        let describe = |shard: &Shard| {
            let last = read_last_sequence(view, &table, shard)?
                .map_or_else(|| "null".to_owned(), |sequence| format!("\"{sequence}\""));
            Ok(format!(
                "{{\"id\":\"{}\",\"first\":\"{}\",\"last_sequence\":{last},\"open\":{}}}",
                shard.id,
                shard.first,
                shard.last.is_none()
            ))
        };
        stream.shards.iter().map(describe).collect::<Result<Vec<String>, ReadError>>()
    };
    match store.read(read).await {
        Ok(shards) => {
            success(format!("{{\"label\":\"{}\",\"shards\":[{}]}}", stream.label, shards.join(",")))
        }
        Err(error) => partitions::unreadable(&error, &place),
    }
}
