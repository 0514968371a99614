//! Conditions: jq programs that say of one item whether it is meant, such as what a purge removes.
//!
//! A condition gives exactly one `true`, `false` or `null` for each item, `null` as false. Anything
//! else is a slip, such as `=` for `==`, and in jq an object or a number would count as true: so what
//! it means is not guessed, the item is refused. What becomes of an item that is meant is not known
//! here.

use std::collections::BTreeSet;

use model::Item;

use super::reads::AttributePath;
use super::transform::Transform;
use super::view;
use crate::jq::{ProgramError, Val};

/// What to write for a single value.
const COMPARISON: &str = "write a comparison such as `.tenant == \"7\"`";
/// What to write for the members of a list; `?` passes over items that have none.
const MEMBERS: &str = "of a list write `any(.tags[]?; . == \"x1\")`";

/// A condition that was checked.
#[derive(Debug)]
pub struct Condition(Transform);

impl Condition {
    /// Checks and compiles a program.
    ///
    /// # Errors
    /// When it is not jq, or uses what is not available here.
    pub fn compile(program: &str) -> Result<Self, ProgramError> {
        Transform::compile(program).map(Self)
    }

    /// The program.
    #[must_use]
    pub fn program(&self) -> &str {
        self.0.program()
    }

    /// The attributes that the program can look at; none if that may be any.
    pub(super) fn looks_at(&self) -> Option<&BTreeSet<String>> {
        self.0.looks().of_condition()
    }

    /// The paths of attributes that the program reads.
    pub(super) fn reads(&self) -> &BTreeSet<AttributePath> {
        self.0.reads()
    }

    /// Whether an item is meant.
    ///
    /// # Errors
    /// When the program fails for this item, or gives something that is neither true nor false.
    pub fn is_met_by(&self, item: &Item) -> Result<bool, String> {
        let values = self.0.values(item, 2);
        let values = values.map_err(|error| format!("the condition failed: {error}"))?;
        match values.as_slice() {
            [Val::Bool(is_met)] => Ok(*is_met),
            [Val::Null] => Ok(false),
            [value] => Err(format!("the condition gave {}; {COMPARISON}", view::kind(value))),
            [] => Err(format!("the condition gave nothing; {COMPARISON}, {MEMBERS}")),
            _ => Err(format!("the condition gave more than one value; {MEMBERS}")),
        }
    }
}

#[cfg(test)]
mod tests {
    use model::json::item_from_str;

    use super::*;

    #[test]
    fn a_condition_gives_one_true_or_false_or_the_item_is_refused() {
        let item = |text: &str| item_from_str(text).unwrap();
        let tagged = item(
            r#"{"tenant":{"S":"3"},"tags":{"L":[{"S":"x1"},{"S":"x2"}]},"amount":{"N":"7"},"old":{"BOOL":true}}"#,
        );
        let plain = item(r#"{"tenant":{"S":"4"},"tags":{"L":[]},"old":{"BOOL":false}}"#);
        let bare = item(r#"{"old":{"NULL":true}}"#);
        let object = "the condition gave an object; write a comparison";
        let nothing = "the condition gave nothing; write a comparison";
        let several = "the condition gave more than one value; of a list write `any(.tags[]?;";
        for (program, expected) in [
            (".tenant == \"3\"", ["true", "false", "false"]),
            ("any(.tags[]?; . == \"x1\")", ["true", "false", "false"]),
            (".old", ["true", "false", "false"]),
            (".tenant == \"3\" or .amount == null", ["true", "true", "true"]),
            // Slips, which in jq would be as good as true, or as false.
            (".tenant = \"3\"", [object, object, object]),
            ("select(.tenant == \"3\")", [object, nothing, nothing]),
            (".tenant | select(. == \"3\")", ["the condition gave a string; ", nothing, nothing]),
            (".tags[] == \"x1\"", [several, nothing, "the condition "]),
            (".amount", ["the condition gave a number; ", "false", "false"]),
            (".tags", ["the condition gave an array; ", "the condition gave an array; ", "false"]),
            ("true, false", [several, several, several]),
        ] {
            let condition = Condition::compile(program).unwrap();
            for (item, expected) in [&tagged, &plain, &bare].into_iter().zip(expected) {
                let found = match condition.is_met_by(item) {
                    Ok(is_met) => is_met.to_string(),
                    Err(reason) => reason,
                };
                assert!(found.starts_with(expected), "{program}: {found}");
            }
        }
        // What closes no bracket of its own is no condition.
        assert!(Condition::compile("true) | not | (true").is_err());
    }
}
