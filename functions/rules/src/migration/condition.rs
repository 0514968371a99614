//! Conditions: jq programs that decide whether an item is selected, for example for a purge.
//!
//! A condition yields exactly one `true`, `false` or `null` for each item; `null` counts as false.
//! Any other result is probably a typing error, such as `=` for `==`. jq would treat an object or a
//! number as true, so the item is refused. The caller processes the selected items.

use std::collections::BTreeSet;

use model::Item;
use thiserror::Error;

use super::reads::AttributePath;
use super::transform::Transform;
use super::view;
use crate::jq::{Fault, ProgramError, Val};

/// The advice for a condition on a single value.
const COMPARISON: &str = "write a comparison such as `.tenant == \"7\"`";
/// The advice for a condition on the members of a list. `?` skips items in which the value is not a
/// list.
const MEMBERS: &str = "for a list write `any(.tags[]?; . == \"x1\")`";

/// An item for which a condition yields no single boolean.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum UndecidedCondition {
    /// The program failed.
    #[error("the condition failed: {0}")]
    Failed(#[source] Fault),
    /// A single value of this type.
    #[error("the condition yielded {0}; {COMPARISON}")]
    NotABoolean(&'static str),
    /// No value.
    #[error("the condition yielded nothing; {COMPARISON}, {MEMBERS}")]
    NoValue,
    /// Several values.
    #[error("the condition yielded more than one value; {MEMBERS}")]
    SeveralValues,
}

/// A checked condition.
#[derive(Debug)]
pub struct Condition(Transform);

impl Condition {
    /// Checks and compiles a program.
    ///
    /// # Errors
    /// When the program is not valid jq, or uses a feature that is not available in transforms.
    pub fn compile(program: &str) -> Result<Self, ProgramError> {
        Transform::compile(program).map(Self)
    }

    /// Returns the program.
    #[must_use]
    pub fn program(&self) -> &str {
        self.0.program()
    }

    /// Returns the attributes that the program can read; `None` if it can read every attribute.
    pub(super) fn looks_at(&self) -> Option<&BTreeSet<String>> {
        self.0.readable_attributes().of_condition()
    }

    /// Returns the paths of attributes that the program reads.
    pub(super) fn reads(&self) -> &BTreeSet<AttributePath> {
        self.0.reads()
    }

    /// Returns whether an item is selected.
    ///
    /// # Errors
    /// When the program fails for this item, or its result is not a single `true`, `false` or
    /// `null`.
    pub fn is_met_by(&self, item: &Item) -> Result<bool, UndecidedCondition> {
        let values = self.0.values(item, 2).map_err(UndecidedCondition::Failed)?;
        match values.as_slice() {
            [Val::Bool(is_met)] => Ok(*is_met),
            [Val::Null] => Ok(false),
            [value] => Err(UndecidedCondition::NotABoolean(view::kind(value))),
            [] => Err(UndecidedCondition::NoValue),
            _ => Err(UndecidedCondition::SeveralValues),
        }
    }
}

#[cfg(test)]
mod tests {
    use model::json::item_from_str;

    use super::*;

    #[test]
    fn an_item_without_a_clear_verdict_is_refused() {
        let item = |text: &str| item_from_str(text).unwrap();
        let tagged = item(
            r#"{"tenant":{"S":"3"},"tags":{"L":[{"S":"x1"},{"S":"x2"}]},"amount":{"N":"7"},"old":{"BOOL":true}}"#,
        );
        let plain = item(r#"{"tenant":{"S":"4"},"tags":{"L":[]},"old":{"BOOL":false}}"#);
        let bare = item(r#"{"old":{"NULL":true}}"#);
        let object = "the condition yielded an object; write a comparison";
        let nothing = "the condition yielded nothing; write a comparison";
        let several = "the condition yielded more than one value; for a list write `any(.tags[]?;";
        for (program, expected) in [
            (".tenant == \"3\"", ["true", "false", "false"]),
            ("any(.tags[]?; . == \"x1\")", ["true", "false", "false"]),
            (".old", ["true", "false", "false"]),
            (".tenant == \"3\" or .amount == null", ["true", "true", "true"]),
            // These programs contain typing errors. jq would treat their results as true or false.
            (".tenant = \"3\"", [object, object, object]),
            ("select(.tenant == \"3\")", [object, nothing, nothing]),
            (
                ".tenant | select(. == \"3\")",
                ["the condition yielded a string; ", nothing, nothing],
            ),
            (".tags[] == \"x1\"", [several, nothing, "the condition "]),
            (".amount", ["the condition yielded a number; ", "false", "false"]),
            (
                ".tags",
                ["the condition yielded an array; ", "the condition yielded an array; ", "false"],
            ),
            ("true, false", [several, several, several]),
        ] {
            let condition = Condition::compile(program).unwrap();
            for (item, expected) in [&tagged, &plain, &bare].into_iter().zip(expected) {
                let found = match condition.is_met_by(item) {
                    Ok(is_met) => is_met.to_string(),
                    Err(error) => error.to_string(),
                };
                assert!(found.starts_with(expected), "{program}: {found}");
            }
        }
        // A program with unbalanced brackets is not a condition.
        assert!(Condition::compile("true) | not | (true").is_err());
    }
}
