//! How often a server has synced each of its logs: ceilings say it, and so does `local-store`.
//!
//! It asks over a connection of its own, before and after what is measured.

use std::collections::BTreeMap;

use serde_json::Value;

use super::request::Request;
use client::plain_http::{Connection, Endpoint};

/// The whole body of the answer for a path.
async fn ask(endpoint: &Endpoint, path: &str) -> Result<String, String> {
    let failed = |error: std::io::Error| format!("cannot ask a server for its syncs: {error}");
    let mut connection = Connection::open(endpoint).await.map_err(failed)?;
    let request = Request::get(&endpoint.authority, path);
    let answer = connection.exchange(request.bytes()).await.map_err(failed)?;
    Ok(String::from_utf8_lossy(answer.body).into_owned())
}

/// How often a ceiling has synced each of its logs.
///
/// # Errors
/// When it does not say.
pub(super) async fn of_ceiling(endpoint: &Endpoint) -> Result<u64, String> {
    let text = ask(endpoint, "/").await?;
    text.parse().map_err(|_| "a ceiling gave no number".to_owned())
}

/// How often a store has synced each of its logs, in the mean; `None` for a server that has no such
/// status.
pub(super) async fn of_store(endpoint: &Endpoint) -> Option<u64> {
    mean(&ask(endpoint, "/_weir/status").await.ok()?)
}

/// Of the replicas of a node each says how often its one log was synced.
fn mean(status: &str) -> Option<u64> {
    let status: Value = serde_json::from_str(status).ok()?;
    let replicas = status.get("replicas")?.as_array()?;
    let logs: BTreeMap<u64, u64> = replicas
        .iter()
        .filter_map(|replica| {
            Some((replica.get("node")?.as_u64()?, replica.get("log_syncs")?.as_u64()?))
        })
        .collect();
    let sum: u64 = logs.values().sum();
    sum.checked_div(u64::try_from(logs.len()).ok()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_syncs_of_a_status() {
        for (status, expected) in [
            (
                r#"{"replicas":[{"node":1,"log_syncs":10},{"node":1,"log_syncs":10},{"node":2,"log_syncs":7}]}"#,
                Some(8),
            ),
            (r#"{"replicas":[]}"#, None),
            (r#"{"__type":"UnknownOperationException"}"#, None),
            ("<html>", None),
        ] {
            assert_eq!(mean(status), expected, "{status}");
        }
    }
}
