//! Reads of the number of syncs of a server's logs, which ceilings and `local-store` report.
//!
//! The reads use a separate connection, before and after the measurement.

use std::collections::BTreeMap;

use bytes::Bytes;
use http::Request;
use http::header::HOST;
use http_body_util::Full;
use serde_json::Value;

use crate::client::{Connection, Endpoint};
use crate::error::Result;

/// Returns the body of the server's answer to a GET request for a path.
async fn ask(endpoint: &Endpoint, path: &str) -> Result<Bytes> {
    let request = Request::get(path).header(HOST, &endpoint.authority).body(Full::default())?;
    let answer = Connection::open(endpoint).await?.exchange(request).await?;
    Ok(answer.body)
}

/// Returns the number of syncs of each log of a ceiling.
///
/// # Errors
/// When the ceiling does not answer with a number.
pub(crate) async fn of_ceiling(endpoint: &Endpoint) -> Result<u64> {
    Ok(std::str::from_utf8(&ask(endpoint, "/").await?)?.parse()?)
}

/// Returns the mean number of syncs of a store's logs; `None` for a server that does not report its
/// status.
pub(crate) async fn of_store(endpoint: &Endpoint) -> Option<u64> {
    mean(&ask(endpoint, "/_weir/status").await.ok()?)
}

/// Returns the mean over the replicas of a node, each of which has one log.
fn mean(status: &[u8]) -> Option<u64> {
    let status: Value = serde_json::from_slice(status).ok()?;
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
            assert_eq!(mean(status.as_bytes()), expected, "{status}");
        }
    }
}
