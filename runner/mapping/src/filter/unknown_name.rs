//! Finds the attribute name of a pattern that a filtered record does not have, and the names that
//! the record has at the same path. The name in the pattern may be misspelt.
//!
//! The status lists these names; its reader can suggest a correction.

use std::collections::BTreeSet;

use serde_json::Value;

use super::FilterCriteria;

/// The maximum number of names that are stored. The name closest to the misspelt name is suggested.
const NAMES_MAX: usize = 100;

/// An attribute name in a pattern that a filtered record does not have.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnknownName {
    /// The path to the name, joined by dots.
    pub path: String,
    /// The name.
    pub name: String,
    /// The names that the record has instead at this path, at most 100.
    pub known: BTreeSet<String>,
}

impl FilterCriteria {
    /// Returns the first attribute name that the patterns require and the record does not have.
    /// `None` if the record was filtered for another reason.
    #[must_use]
    pub fn unknown_name(&self, record: &Value) -> Option<UnknownName> {
        self.patterns.iter().find_map(|pattern| {
            let leaf = pattern.leaves.get(pattern.unmet(record)?)?;
            if leaf.is_of_an_item() { missing(record, &leaf.path) } else { None }
        })
    }
}

/// Returns the first name of a path that a record does not have; `None` if the name is not inside
/// the item.
fn missing(record: &Value, path: &[String]) -> Option<UnknownName> {
    let mut value = record;
    for (depth, name) in path.iter().enumerate() {
        let object = value.as_object()?;
        let Some(inner) = object.get(name) else {
            // The names at depth 0 and 1 are fields of the record, such as `NewImage`. Only deeper
            // names are attributes.
            let is_inside = depth >= 2;
            return is_inside.then(|| UnknownName {
                path: path.iter().take(depth + 1).map(String::as_str).collect::<Vec<_>>().join("."),
                name: name.clone(),
                known: object.keys().take(NAMES_MAX).cloned().collect(),
            });
        };
        value = inner;
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_name_that_a_record_lacks() {
        let record = r#"{"eventName":"MODIFY","dynamodb":{"NewImage":{"tenant":{"S":"a"},"size":{"N":"1"}}}}"#;
        let record: Value = serde_json::from_str(record).unwrap();
        for (pattern, expected) in [
            (
                r#"{"dynamodb":{"NewImage":{"tennant":{"S":["a"]}}}}"#,
                Some("dynamodb.NewImage.tennant"),
            ),
            (r#"{"dynamodb":{"NewImage":{"size":{"S":["1"]}}}}"#, Some("dynamodb.NewImage.size.S")),
            (r#"{"dynamodb":{"NewImage":{"tenant":{"S":["b"]}}}}"#, None),
            (r#"{"dynamodb":{"OldImage":{"tennant":{"S":["a"]}}}}"#, None),
            (r#"{"eventName":["INSERT"]}"#, None),
        ] {
            let found = FilterCriteria::compile(&[pattern]).unwrap().unknown_name(&record);
            assert_eq!(found.as_ref().map(|it| it.path.as_str()), expected, "{pattern}");
            let known = found.filter(|it| it.name == "tennant").map(|it| it.known);
            let names = ["size", "tenant"].map(str::to_owned).into();
            assert!(known.is_none_or(|known| known == names), "{pattern}");
        }
    }
}
