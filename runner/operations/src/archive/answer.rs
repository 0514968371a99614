//! Formats the answers of the function `archive-maintenance` for `weir archive`.
//!
//! The module changes no values. It only adds the store's time to the answer of an erasure.

use serde_json::{Value, json};

/// Converts the member names of an answer to snake case, as all subcommands write them: `eventIds`
/// to `event_ids`.
pub(super) fn as_written(answer: &str) -> String {
    match serde_json::from_str(answer) {
        Ok(answer) => snake_case(answer).to_string(),
        Err(_) => answer.to_owned(),
    }
}

/// Converts all member names of a value. All names are ASCII, and belong to the format, not to the
/// data.
fn snake_case(value: Value) -> Value {
    let name = |name: String| {
        let mut snake = String::with_capacity(name.len());
        for letter in name.chars() {
            if letter.is_ascii_uppercase() && !snake.is_empty() {
                snake.push('_');
            }
            snake.push(letter.to_ascii_lowercase());
        }
        snake
    };
    match value {
        Value::Object(members) => Value::Object(
            members.into_iter().map(|(member, value)| (name(member), snake_case(value))).collect(),
        ),
        Value::Array(values) => values.into_iter().map(snake_case).collect(),
        other => other,
    }
}

/// Adds the store's time to the answer of an erasure; any other answer is returned unchanged.
pub(super) fn with_store_time(answer: &str, now_seconds: i64) -> String {
    let mut read: Value = serde_json::from_str(answer).unwrap_or_default();
    match read.get_mut("erased").and_then(Value::as_object_mut) {
        Some(receipt) => {
            receipt.insert("storeSeconds".to_owned(), json!(now_seconds));
            read.to_string()
        }
        None => answer.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_has_names_as_all_verbs_write_them() {
        for (answer, written) in [
            (
                r#"{"erased":{"erasedSeconds":5,"eventIds":["aB"],"objects":["t=T/Part"]}}"#,
                r#"{"erased":{"erased_seconds":5,"event_ids":["aB"],"objects":["t=T/Part"]}}"#,
            ),
            (
                r#"{"compacted":{"complete":true,"postponedHours":0}}"#,
                r#"{"compacted":{"complete":true,"postponed_hours":0}}"#,
            ),
            ("no JSON", "no JSON"),
        ] {
            assert_eq!(as_written(answer), written);
        }
    }

    #[test]
    fn the_answer_to_an_erasure_has_the_stores_time_too() {
        for (answer, expected) in [
            (
                r#"{"erased":{"erasedSeconds":5}}"#,
                r#"{"erased":{"erasedSeconds":5,"storeSeconds":9}}"#,
            ),
            (r#"{"compacted":{"rows":1}}"#, r#"{"compacted":{"rows":1}}"#),
            ("no JSON", "no JSON"),
        ] {
            assert_eq!(with_store_time(answer, 9), expected);
        }
    }
}
