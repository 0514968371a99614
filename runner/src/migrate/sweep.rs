//! Removing tombstones when no invocation is left that could write what they keep away.
//!
//! An invocation that read its migrations before a switch may hang, and put an item late. Where its
//! deletion left a tombstone that put finds it and does nothing, so tombstones stay until every
//! invocation from before the switch has reached its time-out.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use model::json::item_from_str;
use rules::migration::{MARK, Plan, Registers};

use super::control::{Entry, n, number, s, text};
use super::{Context, tables};
use crate::load::{error_text, to_sdk_item, to_sdk_value};
use crate::output::say;

/// Partitions over which the function spreads its notes of tombstones.
const NOTE_BUCKETS: u32 = 16;
/// Seconds that a request may be under way after its invocation was ended.
const REQUEST_SECONDS: u64 = 5;
/// How often it is said for how long there is still to wait.
const SAY_EVERY: Duration = Duration::from_secs(10);

/// Notes in a state that a switch was made now. Invocations live in real time, whatever the clock of
/// a local store says.
pub(super) fn switched(state: &mut Entry) {
    state.insert("switched_at".to_owned(), n(real_seconds()));
}

fn real_seconds() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs()
}

/// Seconds until every invocation from before the last switch has ended.
pub(super) fn seconds_left(switched_at: u64, function_seconds: u32, now: u64) -> u64 {
    let ends = switched_at + u64::from(function_seconds) + REQUEST_SECONDS;
    // A clock that was set back makes nobody wait longer than a time-out.
    ends.saturating_sub(now).min(u64::from(function_seconds) + REQUEST_SECONDS)
}

/// Waits until no invocation from before the last switch is left, and removes every tombstone; gives
/// how many.
pub(super) async fn after_invocations(
    context: &Context,
    name: &str,
    plan: &Plan,
) -> Result<u64, String> {
    let state = context.state(name).await?;
    loop {
        let switched_at = number(&state, "switched_at");
        let left = seconds_left(switched_at, plan.function_seconds, real_seconds());
        if left == 0 {
            return sweep(context, name).await;
        }
        say(&format!(
            "{left} s until the last invocation from before the switch has ended; then tombstones are removed"
        ));
        tokio::time::sleep(Duration::from_secs(left).min(SAY_EVERY)).await;
    }
}

/// Removes every tombstone that was noted, unless it lives again; gives how many.
async fn sweep(context: &Context, name: &str) -> Result<u64, String> {
    let client = &context.control.client;
    let mut swept = 0;
    for bucket in 0..NOTE_BUCKETS {
        let partition = format!("{name}/tombstones/{bucket:02}");
        for note in context.control.entries(&partition, "TOMBSTONE#").await? {
            let (Some(table), Some(key), Some(entry), Some(at)) =
                (text(&note, "table"), text(&note, "key"), text(&note, "entry"), text(&note, "at"))
            else {
                continue;
            };
            let key =
                item_from_str(key).map_err(|error| format!("a note of a tombstone: {error}"))?;
            let stands = tables::get(client, table, &key).await?;
            let is_tombstone = stands
                .as_ref()
                .and_then(|item| Registers::from_item(item).ok())
                .is_some_and(|registers| registers.is_tombstone());
            if let Some(mark) = stands.as_ref().filter(|_| is_tombstone).and_then(|i| i.get(MARK)) {
                let request = client.delete_item().table_name(table);
                let request = request
                    .set_key(Some(to_sdk_item(&key)))
                    .condition_expression("#mark = :mark")
                    .expression_attribute_names("#mark", MARK)
                    .expression_attribute_values(":mark", to_sdk_value(mark));
                match request.send().await {
                    Ok(_) => swept += 1,
                    // It was written meanwhile, so there is a newer note.
                    Err(error)
                        if error
                            .as_service_error()
                            .is_some_and(|e| e.is_conditional_check_failed_exception()) =>
                    {
                        continue;
                    }
                    Err(error) => return Err(format!("a tombstone: {}", error_text(&error))),
                }
            }
            let request = client.delete_item().table_name(&context.control.table);
            let request = request
                .key("migration", s(&partition))
                .key("entry", s(entry))
                .condition_expression("#at = :at")
                .expression_attribute_names("#at", "at")
                .expression_attribute_values(":at", s(at));
            // A note that is newer by now is left for the next sweep.
            let _ = request.send().await;
        }
    }
    Ok(swept)
}

#[cfg(test)]
mod tests {
    use super::seconds_left;

    #[test]
    fn tombstones_outlive_every_invocation() {
        for (switched_at, function_seconds, now, left) in [
            (1_000, 60, 1_000, 65),
            (1_000, 60, 1_064, 1),
            (1_000, 60, 1_065, 0),
            (1_000, 900, 1_065, 840),
            // A state from before switches were noted.
            (0, 60, 1_000, 0),
            // The clock was set back by an hour.
            (5_000, 60, 1_400, 65),
        ] {
            assert_eq!(
                seconds_left(switched_at, function_seconds, now),
                left,
                "{switched_at} {now}"
            );
        }
    }
}
