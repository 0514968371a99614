//! The handover on the admin endpoint: shows whether the store was handed over, and hands it over.
//!
//! `store::handover` stops the writes. This module parses the request, and checks that the requester's
//! tables are all tables of the store.

use http::StatusCode;
use serde::Deserialize;
use serde_json::json;

use super::admin_answer::{Answer, refusal, success};
use crate::store::Store;
use crate::store::handover::HandoverError;

const PLACE: &str = "/_weir/handover";
const TO: &str = "{\"to\":\"URL\"}, with the endpoint to which the items were copied";
/// The maximum length of an endpoint in bytes, because every refused write contains it.
const ENDPOINT_BYTES_MAX: usize = 1024;

/// The body of a request that hands the store over.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Request {
    to: String,
}

pub(super) async fn show(store: &Store) -> Answer {
    match store.handed_over_to().await {
        Ok(to) => success(json!({ "to": to }).to_string()),
        Err(error) => refuse(&error),
    }
}

/// Hands the store over. The answer is sent when all writes in flight have ended or are refused.
pub(super) async fn hand_over(store: &Store, body: &[u8]) -> Answer {
    let bad = |what: &str| refusal(StatusCode::BAD_REQUEST, what, PLACE, TO);
    let to = match serde_json::from_slice(body) {
        Ok(Request { to }) => to,
        Err(error) => return bad(&error.to_string()),
    };
    let is_url = to.starts_with("http://") || to.starts_with("https://");
    if !is_url || to.len() > ENDPOINT_BYTES_MAX || to.chars().any(char::is_control) {
        return bad("`to` is not a URL");
    }
    if store.catalogue().by_name().any(|table| !store.owns(table)) {
        let what =
            "the store has tables of other accounts or Regions, which the requester cannot copy";
        let instead = "the request when these tables are deleted";
        return refusal(StatusCode::CONFLICT, what, PLACE, instead);
    }
    match store.hand_over(&to).await {
        Ok(()) => success(json!({ "to": to }).to_string()),
        Err(error) => refuse(&error),
    }
}

fn refuse(error: &HandoverError) -> Answer {
    let (status, instead) = match error {
        HandoverError::OtherProcesses => {
            (StatusCode::CONFLICT, "no request: stop the programs that write")
        }
        HandoverError::Before(_) => {
            (StatusCode::CONFLICT, "the same endpoint as before, or remove the file `handover`")
        }
        HandoverError::InFlight(_) | HandoverError::File { .. } => {
            (StatusCode::SERVICE_UNAVAILABLE, "the same request again")
        }
    };
    refusal(status, &error.to_string(), PLACE, instead)
}
