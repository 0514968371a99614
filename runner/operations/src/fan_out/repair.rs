//! `weir fan-out repair`: makes the function check and correct every copy of a rule, page by page.
//!
//! Each response contains the key at which the next page begins. A page can be repeated, so a
//! stopped repair can resume at any key.

use std::time::Duration;

use bytes::Bytes;
use model::json;
use serde_json::{Value, json};

use client::exit::Exit;
use client::failure::{Failure, Result, fatal};
use client::interruption;
use client::invocation::invoke;
use client::output::{self, Output, counted, say};
use client::running::Running;

/// Repairs the copies of one or several rules.
///
/// # Errors
/// When no `weir up` is running, or the function fails. Copies that were already corrected remain
/// corrected.
pub(super) async fn run(
    function: &str,
    rules: &[String],
    after: Option<&str>,
    output: Output,
) -> Result<Exit> {
    let running = Running::read()?;
    let function = running.function(function)?;
    let mut after: Option<Value> = match after {
        None => None,
        Some(text) => {
            let key = json::item_from_str(text).map_err(|error| {
                fatal!(
                    "--after `{text}` is not a key in DynamoDB JSON ({error}); use the one that a stopped repair shows, for example \
                     --after '{{\"orderID\":{{\"N\":\"7\"}}}}'"
                )
            })?;
            Some(serde_json::from_str(&json::item_to_string(&key)).map_err(Failure::fatal)?)
        }
    };
    let (mut rows, mut is_left, mut broken) = (Vec::new(), false, None);
    for rule in rules {
        let (sums, end) = repair_rule(&running, function, rule, after.take()).await;
        is_left |= sums[2] + sums[3] > 0;
        if let Some(left) = left_by(rule, sums) {
            say(&left);
        }
        if end.is_ok() || sums != [0; 4] {
            rows.push([json!(rule)].into_iter().chain(sums.map(|sum| json!(sum))).collect());
        }
        if let Err(reason) = end {
            broken = Some(reason);
            break;
        }
    }
    if !rows.is_empty() || broken.is_none() {
        output::rows(output, &["rule", "copies", "repaired", "postponed", "refused"], &rows);
    }
    broken.map_or(Ok(if is_left { Exit::Differences } else { Exit::Done }), Err)
}

/// Describes the copies that were not corrected; `None` if all copies are correct. The counts are
/// the numbers of checked, repaired, postponed and refused copies.
fn left_by(rule: &str, [_, _, postponed, refused]: [u64; 4]) -> Option<String> {
    let postponed = (postponed > 0).then(|| {
        let copies = counted(postponed, "copy was", "copies were");
        format!(
            "{copies} throttled or written by other clients at every attempt: run the repair again"
        )
    });
    let refused = (refused > 0).then(|| {
        format!(
            "{} would exceed the item size limit, or DynamoDB rejects them; `weir logs fan-out` lists each with the reason",
            counted(refused, "copy", "copies")
        )
    });
    let left: Vec<String> = postponed.into_iter().chain(refused).collect();
    (!left.is_empty()).then(|| format!("{rule}: {}", left.join("; ")))
}

/// Maximum number of consecutive invocations without progress. The pauses before them grow and add
/// up to about a minute.
const STALLS_MAX: u32 = 10;
const STALL_PAUSE: Duration = Duration::from_secs(1);

/// Repairs the copies of a rule. Returns the numbers of checked, repaired, postponed and refused
/// copies, and why it stopped early.
async fn repair_rule(
    running: &Running,
    function: &str,
    rule: &str,
    mut after: Option<Value>,
) -> ([u64; 4], Result<()>) {
    let (mut sums, mut stalls, mut has_answered) = ([0u64; 4], 0, false);
    // The loop ends, because it stops after `STALLS_MAX` consecutive responses without progress.
    loop {
        let event = json!({"repair": {"rule": rule, "after": after}}).to_string();
        let answer = match asked(running, function, event).await {
            Ok(answer) => Some(answer),
            // A misconfigured deployment fails at the first call. A later failure comes from a
            // throttled table or a stopped instance, so it is retried.
            Err(reason) if !has_answered || stalls >= STALLS_MAX => {
                return (sums, Err(reason.with(|reason| go_on(rule, &after, &reason))));
            }
            Err(reason) => {
                say(&format!("{rule}: {reason}; retrying"));
                None
            }
        };
        let before = after.clone();
        has_answered |= answer.is_some();
        if let Some(answer) = &answer {
            let number = |name: &str| {
                answer.pointer(&format!("/checked/{name}")).and_then(Value::as_u64).unwrap_or(0)
            };
            for (sum, name) in sums.iter_mut().zip(["copies", "repaired", "postponed", "refused"]) {
                *sum = if name == "postponed" { number(name) } else { *sum + number(name) };
            }
            after = answer.get("after").filter(|after| !after.is_null()).cloned();
            if answer.get("isWhole") == Some(&Value::Bool(true)) {
                return (sums, Ok(()));
            }
            if let Some(key) = &after {
                let copies = counted(sums[0], "copy", "copies");
                say(&format!("{rule}: {copies} checked so far, up to key {key}"));
                interruption::reached(format!(
                    "{rule}: {copies} checked; resume with --after '{key}'"
                ));
            }
        }
        if answer.is_some() && after != before {
            stalls = 0;
            continue;
        }
        if stalls >= STALLS_MAX {
            say(&go_on(
                rule,
                &after,
                "its copies cannot be read or written, probably because of throttling",
            ));
            return (sums, Ok(()));
        }
        stalls += 1;
        tokio::time::sleep(STALL_PAUSE * stalls).await;
    }
}

/// Returns why a repair stopped, and how to resume it.
fn go_on(rule: &str, after: &Option<Value>, reason: &str) -> String {
    match after {
        Some(key) => format!("{rule}: {reason}; resume with --after '{key}'"),
        None => format!("{rule}: {reason}; correct the cause, then run the repair again"),
    }
}

async fn asked(running: &Running, function: &str, event: String) -> Result<Value> {
    let invoked = invoke(running, function, Bytes::from(event)).await?;
    let answer: Value = serde_json::from_slice(&invoked.body).unwrap_or_default();
    if invoked.failed {
        let reason = answer.get("errorMessage").and_then(Value::as_str).unwrap_or("no reason");
        return Err(fatal!("`{function}` failed: {reason}"));
    }
    Ok(answer)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rest_is_reported() {
        assert_eq!(left_by("products", [9, 3, 0, 0]), None);
        let refused = left_by("products", [9, 3, 0, 2]).unwrap();
        assert!(
            refused.starts_with("products: 2 copies would exceed the item size limit"),
            "{refused}"
        );
        let both = left_by("products", [9, 3, 1, 2]).unwrap();
        assert!(both.starts_with("products: 1 copy was throttled"), "{both}");
    }
}
