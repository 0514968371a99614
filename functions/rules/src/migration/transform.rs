//! Transforms: jq programs from one item to any number of items, without I/O.
//!
//! `crate::jq` defines the supported jq, and `view` defines the JSON form of items.

use std::collections::BTreeSet;
use std::fmt;

use model::Item;
use thiserror::Error;

use super::attribute_analysis::ReadableAttributes;
use super::reads::{self, AttributePath};
use super::view::{self, UnstorableValue};
use crate::jq::{Fault, Program, ProgramError, Val};

/// The maximum number of items that a transform may yield for one item, which is the maximum number
/// of operations in one DynamoDB transaction.
pub const OUTPUTS_MAX: usize = 100;

/// An item for which a transform yields no valid items.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum TransformError {
    /// The program failed.
    #[error("the transform failed: {0}")]
    Failed(#[source] Fault),
    /// More than [`OUTPUTS_MAX`] items.
    #[error("the transform yields more than {OUTPUTS_MAX} items")]
    TooManyItems,
    /// No item, although the program has no final step `select` or `empty`.
    #[error(
        "the transform yields nothing for this item; to drop such items, make `select(...)` a step of the program"
    )]
    NoItem,
    /// A value that is not an item.
    #[error(transparent)]
    Unstorable(#[from] UnstorableValue),
}

/// A checked transform.
pub struct Transform {
    text: String,
    program: Program,
    readable_attributes: ReadableAttributes,
    reads: BTreeSet<AttributePath>,
}

impl fmt::Debug for Transform {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Transform").field(&self.text).finish()
    }
}

impl Transform {
    /// Checks a program.
    ///
    /// # Errors
    /// When the program is not valid jq, or uses a feature that is not available in transforms.
    pub fn compile(text: &str) -> Result<Self, ProgramError> {
        let program = Program::parse(text)?;
        let walked = program
            .with_stack(|| (ReadableAttributes::of(program.term()), reads::of(program.term())));
        let (readable_attributes, reads) = walked.ok_or_else(|| ProgramError {
            at: 0,
            reason: "there is not enough memory to check the program".to_owned(),
        })?;
        Ok(Self { text: text.to_owned(), program, readable_attributes, reads })
    }

    /// Returns the attributes of an item that the program can read.
    pub(super) fn readable_attributes(&self) -> &ReadableAttributes {
        &self.readable_attributes
    }

    /// Returns the paths of attributes that the program reads.
    pub(super) fn reads(&self) -> &BTreeSet<AttributePath> {
        &self.reads
    }

    /// Returns the program.
    #[must_use]
    pub fn program(&self) -> &str {
        &self.text
    }

    /// Returns the items that the transform yields for one item. The result may be empty only if
    /// the program has a final step `select` or `empty`.
    ///
    /// # Errors
    /// When the program fails for this item, yields no item without this final step, yields more
    /// than [`OUTPUTS_MAX`] items, or yields a value that is not an item.
    pub fn run(&self, item: &Item) -> Result<Vec<Item>, TransformError> {
        let outputs = self.values(item, OUTPUTS_MAX + 1).map_err(TransformError::Failed)?;
        if outputs.len() > OUTPUTS_MAX {
            return Err(TransformError::TooManyItems);
        }
        if outputs.is_empty() && !self.program.term().may_drop() {
            return Err(TransformError::NoItem);
        }
        Ok(outputs.iter().map(view::to_item).collect::<Result<_, _>>()?)
    }

    /// Returns the first values that the program yields for an item, at most `most` of them.
    ///
    /// # Errors
    /// Returns the reason why the program fails for this item.
    pub(super) fn values(&self, item: &Item, most: usize) -> Result<Vec<Val>, Fault> {
        self.program.run(&view::of_item(item), most)
    }
}

#[cfg(test)]
mod tests {
    use model::json::{item_from_str, item_to_string};

    use super::*;

    fn run(program: &str, item: &str) -> Result<String, String> {
        let transform = Transform::compile(program).map_err(|error| format!("{error:?}"))?;
        let items = transform.run(&item_from_str(item).unwrap());
        let items = items.map_err(|error| error.to_string())?;
        Ok(items.iter().map(item_to_string).collect::<Vec<_>>().join(" "))
    }

    #[test]
    fn items_become_items() {
        let item = r#"{"id":{"S":"7"},"lines":{"L":[{"M":{"n":{"N":"1.10"}}},{"M":{"n":{"N":"2"}}}]},"b":{"B":"AA=="}}"#;
        for (program, expected) in [
            (
                ".",
                r#"{"b":{"B":"AA=="},"id":{"S":"7"},"lines":{"L":[{"M":{"n":{"N":"1.1"}}},{"M":{"n":{"N":"2"}}}]}}"#,
            ),
            ("empty", ""),
            (
                "{id, n: .lines[].n}",
                r#"{"id":{"S":"7"},"n":{"N":"1.1"}} {"id":{"S":"7"},"n":{"N":"2"}}"#,
            ),
            (
                "{sum: ([.lines[].n] | add), has: (.x // \"none\")}",
                r#"{"has":{"S":"none"},"sum":{"N":"3.1"}}"#,
            ),
            ("del(.lines) | .id |= tonumber", r#"{"b":{"B":"AA=="},"id":{"N":"7"}}"#),
            ("{(\"now\"): .id, def: 1}", r#"{"def":{"N":"1"},"now":{"S":"7"}}"#),
        ] {
            assert_eq!(run(program, item).as_deref(), Ok(expected), "{program}");
        }
    }

    #[test]
    fn errors_have_their_position() {
        for (program, at, reason) in [
            ("{a: .b", 6, "expected closing brace"),
            (".a | | .b", 5, "jq syntax error"),
            (".a | nope", 5, "unknown filter `nope`"),
            (".a | tonumbr", 5, "unknown filter `tonumbr`; did you mean `tonumber`?"),
            (
                "\"\\(now)\"",
                3,
                "`now` is not available in transforms: it reads data outside of the item",
            ),
            ("def f: 1; f", 0, "definitions are not available in transforms"),
            ("1 == 1 == true", 7, "jq does not chain these operators; parenthesize one of them"),
        ] {
            let error = Transform::compile(program).unwrap_err();
            assert_eq!((error.at, error.reason.as_str()), (at, reason), "{program}");
        }
        assert!(run(".now, .def", r#"{"now":{"M":{}},"def":{"M":{}}}"#).is_ok());
        assert!(run("error(\"no\")", "{}").unwrap_err().contains("no"));
        let many = format!(r#"{{"l":{{"L":[{}]}}}}"#, vec![r#"{"M":{}}"#; 101].join(","));
        assert!(run(".l[]", &many).unwrap_err().contains("more than 100"));
    }
}
