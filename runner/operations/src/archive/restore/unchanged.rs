//! Builds the condition of a put that the current item has not changed since it was read.
//!
//! It compares every attribute that was read, and checks that attributes which the put adds are
//! still absent. It cannot detect an attribute that another writer adds and the put does not have,
//! because no condition can express "no other attribute".

use model::{AttributeValue, Item};

/// Maximum number of compared attributes: each but the first takes two of the 300 operators that an
/// expression may have. Source: DynamoDB developer guide, "Constraints", expressions.
const COMPARED_ATTRIBUTES_MAX: usize = 150;
/// Maximum bytes of an expression. Source: as above.
const EXPRESSION_BYTES_MAX: usize = 4_096;

/// A condition with its names and values.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Unchanged<'i> {
    pub(super) expression: String,
    pub(super) names: Vec<(String, &'i str)>,
    pub(super) values: Vec<(String, &'i AttributeValue)>,
}

impl<'i> Unchanged<'i> {
    /// Returns the condition that `live` is unchanged when `item` replaces it.
    ///
    /// # Errors
    /// When there are too many attributes for one condition.
    pub(super) fn of(live: &'i Item, item: &'i Item) -> Result<Self, String> {
        let (mut terms, mut names, mut values) = (Vec::new(), Vec::new(), Vec::new());
        for (position, (name, value)) in live.iter().enumerate() {
            terms.push(format!("#a{position}=:a{position}"));
            names.push((format!("#a{position}"), name.as_str()));
            values.push((format!(":a{position}"), value));
        }
        for (position, name) in item.keys().filter(|name| !live.contains_key(*name)).enumerate() {
            terms.push(format!("attribute_not_exists(#b{position})"));
            names.push((format!("#b{position}"), name.as_str()));
        }
        let expression = terms.join(" AND ");
        if terms.len() > COMPARED_ATTRIBUTES_MAX || expression.len() > EXPRESSION_BYTES_MAX {
            return Err(format!(
                "an older row of the key was restored, and its {} attributes are too many for the condition of a replacement; delete the item and run the restore again",
                terms.len()
            ));
        }
        Ok(Self { expression, names, values })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn item(names: impl IntoIterator<Item = String>) -> Item {
        names.into_iter().map(|name| (name, AttributeValue::Bool(true))).collect()
    }

    #[test]
    fn a_condition_compares_known_attributes_and_excludes_new_ones() {
        let live = item(["id".to_owned(), "old".to_owned()]);
        let new = item(["id".to_owned(), "new".to_owned()]);
        let found = Unchanged::of(&live, &new).unwrap();
        assert_eq!(found.expression, "#a0=:a0 AND #a1=:a1 AND attribute_not_exists(#b0)");
        let names = found.names.iter().map(|(_, name)| *name).collect::<Vec<_>>();
        assert_eq!(names, ["id", "old", "new"]);
        assert_eq!(found.values.len(), 2);
    }

    #[test]
    fn a_condition_stays_within_what_an_expression_may_have() {
        let many = |count: usize| item((0..count).map(|number| format!("n{number}")));
        for (live, new, fits) in
            [(150, 150, true), (151, 1, false), (90, 140, true), (10, 149, false)]
        {
            let (live, new) = (many(live), many(new));
            let found = Unchanged::of(&live, &new);
            assert_eq!(found.is_ok(), fits, "{} {}", live.len(), new.len());
            if let Ok(found) = found {
                let operators = found.expression.matches('=').count()
                    + found.expression.matches(" AND ").count()
                    + found.expression.matches("attribute_not_exists").count();
                assert!(operators <= 300 && found.expression.len() <= EXPRESSION_BYTES_MAX);
            }
        }
    }
}
