//! `weir fan-out repair`: the function looks at every copy of a rule, invocation by invocation.
//!
//! Each answer says where the next one begins. Looking twice changes nothing, so a repair that was
//! stopped goes on anywhere.

use bytes::Bytes;
use model::json;
use serde_json::{Value, json};

use crate::exit::Exit;
use crate::invoke::invoke;
use crate::output::{self, Output, say};
use crate::running::Running;

/// Repairs the copies of some rules.
///
/// # Errors
/// When nothing is running or the function fails; what was looked at stays right.
pub(super) async fn run(
    function: &str,
    rules: &[String],
    after: Option<&str>,
    output: Output,
) -> Result<Exit, String> {
    let running = Running::read()?;
    let function = running.function(function)?;
    let mut after: Option<Value> = match after {
        None => None,
        Some(text) => {
            let key = json::item_from_str(text).map_err(|error| {
                format!(
                    "--after `{text}` is no key in DynamoDB JSON ({error}); a stopped repair says it, as in \
                     --after '{{\"orderID\":{{\"N\":\"7\"}}}}'"
                )
            })?;
            Some(serde_json::from_str(&json::item_to_string(&key)).map_err(|e| e.to_string())?)
        }
    };
    let (mut rows, mut is_left) = (Vec::new(), false);
    for rule in rules {
        let mut sums = [0u64; 4];
        // Each answer is further on, so there are at most as many as copies.
        loop {
            let event = json!({"repair": {"rule": rule, "after": after}}).to_string();
            let invoked = invoke(&running, function, Bytes::from(event)).await?;
            let answer: Value = serde_json::from_slice(&invoked.body).unwrap_or_default();
            if invoked.failed {
                let reason =
                    answer.get("errorMessage").and_then(Value::as_str).unwrap_or("no reason");
                return Err(format!("`{function}` failed: {reason}"));
            }
            let names = ["copies", "repaired", "postponed", "refused"];
            for (sum, name) in sums.iter_mut().zip(names) {
                *sum += answer
                    .pointer(&format!("/checked/{name}"))
                    .and_then(Value::as_u64)
                    .unwrap_or(0);
            }
            after = answer.get("after").filter(|after| !after.is_null()).cloned();
            match &after {
                Some(key) => say(&format!("{rule}: {} copies, go on after {key}", sums[0])),
                None => break,
            }
        }
        is_left |= sums[2] + sums[3] > 0;
        rows.push([json!(rule)].into_iter().chain(sums.map(|sum| json!(sum))).collect());
    }
    output::rows(output, &["rule", "copies", "repaired", "postponed", "refused"], &rows);
    Ok(if is_left { Exit::Differences } else { Exit::Done })
}
