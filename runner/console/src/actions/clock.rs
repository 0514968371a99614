//! Advances the clock of a local store, and deletes expired items.

use client::endpoint;
use client::output::counted;
use http::Method;
use serde_json::{Value, json};

use super::Done;
use crate::context::Context;
use crate::error::PageError;
use crate::parts::time;
use crate::query::Query;

const HOUR_MS: u64 = 60 * 60 * 1_000;

/// Advances the clock by an hour or a day. An advance cannot be undone.
///
/// # Errors
/// The store has no clock, or does not answer.
pub(crate) async fn advance(context: &Context, fields: &Query) -> Result<Done, PageError> {
    let by = match fields.get("by") {
        Some("1h") => HOUR_MS,
        Some("1d") => 24 * HOUR_MS,
        other => {
            let what = format!("`{}` is not a supported duration", other.unwrap_or_default());
            return Err(PageError::bad_input(
                "by",
                what,
                "1h or 1d; `weir clock advance` accepts any duration",
            ));
        }
    };
    let waiting = context.directory().map(|directory| local::status::waiting(&directory));
    let clock = admin(context, "clock", &json!({ "advance_ms": by })).await?;
    let now_ms = clock.get("now_ms").and_then(Value::as_i64).unwrap_or_default();
    let mut said = format!("the clock shows {} UTC", time::text(now_ms.div_euclid(1_000)));
    let waited: u64 = waiting.unwrap_or_default().iter().map(|(_, count)| count).sum();
    if waited > 0 {
        let waited = counted(waited, "record", "records");
        said.push_str(&format!(
            "; {waited} waiting for a function became older; a mapping discards records over its maximum age"
        ));
    }
    Ok(Done { said })
}

/// Deletes the items that have expired by the store's time.
///
/// # Errors
/// The store is DynamoDB on AWS, or does not answer.
pub(crate) async fn sweep(context: &Context) -> Result<Done, PageError> {
    let swept = admin(context, "ttl/sweep", &json!({})).await?;
    let expired = swept.get("expired").and_then(Value::as_u64).unwrap_or_default();
    Ok(Done { said: format!("{} deleted", counted(expired, "expired item", "expired items")) })
}

async fn admin(context: &Context, path: &str, body: &Value) -> Result<Value, PageError> {
    if context.is_on_aws() {
        let why = "DynamoDB on AWS has no clock to advance".to_owned();
        return Err(PageError::Refused(why));
    }
    endpoint::admin(Method::POST, context.endpoint(), path, body).await.map_err(PageError::from)
}
