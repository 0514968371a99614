//! Parsing of a filter: one pattern, or a `FilterCriteria` object as in a template.

use serde_json::{Value, json};

use crate::error::PageError;

/// Parses a filter, and returns its patterns.
///
/// # Errors
/// The filter is not JSON, or has no patterns.
pub(super) fn patterns(text: &str) -> Result<Vec<String>, PageError> {
    let value: Value = serde_json::from_str(text).map_err(|error| {
        let what = format!("it is not JSON: {error}");
        PageError::bad_input("pattern", what, super::EXAMPLE)
    })?;
    let Some(filters) = value.get("Filters") else { return Ok(vec![text.to_owned()]) };
    let wrong = || {
        let instead = r#"{"Filters": [{"Pattern": "{\"eventName\": [\"INSERT\"]}"}]}"#;
        PageError::bad_input("pattern", "`Filters` is not a list of patterns", instead)
    };
    let pattern = |filter: &Value| match filter.get("Pattern")? {
        Value::String(text) => Some(text.clone()),
        // In a template, a pattern may be an object instead of a string.
        object @ Value::Object(_) => Some(object.to_string()),
        _ => None,
    };
    filters.as_array().ok_or_else(wrong)?.iter().map(|it| pattern(it).ok_or_else(wrong)).collect()
}

/// Returns the JSON of a filter with these patterns.
pub(super) fn text(patterns: &[String]) -> String {
    match patterns {
        [one] => one.clone(),
        patterns => {
            let filters: Vec<Value> = patterns.iter().map(|it| json!({ "Pattern": it })).collect();
            json!({ "Filters": filters }).to_string()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_filter_is_a_pattern_or_a_list_of_them() {
        let insert = r#"{"eventName":["INSERT"]}"#;
        let two = text(&[insert.to_owned(), insert.to_owned()]);
        for (text, count) in [
            (insert, Some(1)),
            (r#"{"Filters":[{"Pattern":{"eventName":["INSERT"]}}]}"#, Some(1)),
            (&two, Some(2)),
            (r#"{"Filters":[]}"#, Some(0)),
            (r#"{"Filters":{}}"#, None),
            (r#"{"Filters":[{"Pattern":7}]}"#, None),
            (r#"{"Filters":[{}]}"#, None),
            ("{", None),
        ] {
            assert_eq!(patterns(text).ok().map(|it| it.len()), count, "{text}");
        }
        assert_eq!(patterns(&two).unwrap(), [insert, insert]);
        assert_eq!(text(&[insert.to_owned()]), insert);
    }
}
