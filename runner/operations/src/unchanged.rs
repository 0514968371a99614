//! The condition of a write that the item has not changed since it was read.
//!
//! The condition compares every attribute that was read, and checks that the attributes that the
//! write adds are still absent. It cannot detect any other attribute that another writer adds,
//! because no condition can express "no other attribute".

use std::collections::HashMap;

use aws_sdk_dynamodb::types::AttributeValue as SdkValue;
use model::Item;
use model::limits::{EXPRESSION_BYTES_MAX, EXPRESSION_OPERATORS_MAX};

use client::attribute::to_sdk_value;

/// Maximum number of compared attributes. Each attribute takes two operators: its comparison, and
/// an `AND` before the next comparison.
const COMPARED_MAX: usize = EXPRESSION_OPERATORS_MAX / 2;

/// A condition with its names and values.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Unchanged {
    pub(crate) expression: String,
    pub(crate) names: HashMap<String, String>,
    /// `None` without values, because DynamoDB rejects an empty map.
    pub(crate) values: Option<HashMap<String, SdkValue>>,
}

impl Unchanged {
    /// Returns the condition that the item is still `current` when `wanted` replaces it, or when it
    /// is deleted. If `current` is `None`, the condition is that the key attribute `key` is absent.
    ///
    /// # Errors
    /// When the items have more attributes than a condition can compare; returns their number.
    pub(crate) fn of(
        key: &str,
        current: Option<&Item>,
        wanted: Option<&Item>,
    ) -> Result<Self, usize> {
        let (mut terms, mut names, mut values) = (Vec::new(), HashMap::new(), HashMap::new());
        for (number, (name, value)) in current.into_iter().flatten().enumerate() {
            terms.push(format!("#n{number}=:v{number}"));
            names.insert(format!("#n{number}"), name.clone());
            values.insert(format!(":v{number}"), to_sdk_value(value));
        }
        let absent: Vec<&str> = match current {
            None => vec![key],
            Some(current) => {
                let names = wanted.into_iter().flat_map(|item| item.keys());
                names.filter(|name| !current.contains_key(*name)).map(String::as_str).collect()
            }
        };
        for name in absent {
            let number = terms.len();
            terms.push(format!("attribute_not_exists(#n{number})"));
            names.insert(format!("#n{number}"), name.to_owned());
        }
        let expression = terms.join(" AND ");
        if terms.len() > COMPARED_MAX || expression.len() > EXPRESSION_BYTES_MAX {
            return Err(terms.len());
        }
        Ok(Self { expression, names, values: Some(values).filter(|values| !values.is_empty()) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn item(count: usize) -> Item {
        (0..count).map(|number| (format!("a{number:03}"), "x".into())).collect()
    }

    #[test]
    fn a_condition_compares_known_attributes_and_excludes_new_ones() {
        let current = Item::new().with("id", "1").with("old", "x");
        let wanted = Item::new().with("id", "1").with("new", "z");
        for (current, wanted, expression, names, values) in [
            (Some(&current), None, "#n0=:v0 AND #n1=:v1", vec!["id", "old"], 2),
            (
                Some(&current),
                Some(&wanted),
                "#n0=:v0 AND #n1=:v1 AND attribute_not_exists(#n2)",
                vec!["id", "old", "new"],
                2,
            ),
            (None, Some(&wanted), "attribute_not_exists(#n0)", vec!["id"], 0),
        ] {
            let found = Unchanged::of("id", current, wanted).unwrap();
            assert_eq!(found.expression, expression);
            for (number, name) in names.iter().enumerate() {
                assert_eq!(found.names[&format!("#n{number}")], *name, "{expression}");
            }
            assert_eq!(found.names.len(), names.len(), "{expression}");
            assert_eq!(found.values.map_or(0, |values| values.len()), values, "{expression}");
        }
    }

    #[test]
    fn a_condition_stays_within_what_an_expression_may_have() {
        for (current, wanted, expected) in [
            (150, 150, None),
            (151, 1, Some(151)),
            (90, 140, None),
            // The expression becomes too long before it has too many operators.
            (10, 149, Some(149)),
        ] {
            let found = Unchanged::of("id", Some(&item(current)), Some(&item(wanted)));
            assert_eq!(found.as_ref().err().copied(), expected, "{current} {wanted}");
            if let Ok(found) = found {
                let operators = found.expression.matches('=').count()
                    + found.expression.matches(" AND ").count()
                    + found.expression.matches("attribute_not_exists").count();
                assert!(operators <= EXPRESSION_OPERATORS_MAX, "{current} {wanted}");
            }
        }
        assert!(Unchanged::of("id", None, Some(&item(1000))).is_ok());
    }
}
