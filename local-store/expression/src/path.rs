//! Document paths: the position of a value in an item, and the check that paths do not overlap or
//! conflict.
//!
//! Paths contain resolved names, without `#name` placeholders.

use std::fmt;

use model::{AttributeValue, Item};
use serde::{Deserialize, Serialize};

use crate::error::{ExpressionError, ExpressionKind};

/// One step of a path below the top level.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum PathElement {
    /// A member of a map.
    Member(String),
    /// An element of a list, by its index from 0.
    Index(u32),
}

/// A document path such as `a.b[3].c`: the name of an attribute and at most 31 steps below it.
/// Paths compare list elements by their indexes.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Path {
    root: String,
    below: Vec<PathElement>,
}

impl Path {
    pub(crate) fn new(root: String, below: Vec<PathElement>) -> Self {
        Self { root, below }
    }

    /// Returns the name of the top-level attribute.
    #[must_use]
    pub fn root(&self) -> &str {
        &self.root
    }

    /// Returns the steps below the top-level attribute; empty for a top-level path.
    #[must_use]
    pub fn below(&self) -> &[PathElement] {
        &self.below
    }

    /// Returns whether the path leads below a top-level attribute.
    #[must_use]
    pub fn is_nested(&self) -> bool {
        !self.below.is_empty()
    }

    /// Returns the value at the path; `None` if the item has no value at the path.
    #[must_use]
    pub fn find<'a>(&self, item: &'a Item) -> Option<&'a AttributeValue> {
        self.below.iter().try_fold(item.get(&self.root)?, step)
    }

    /// Returns the map or list that contains the last step's value; `None` for a top-level path, or
    /// if the item has no value at the parent path.
    pub(crate) fn find_parent<'a>(&self, item: &'a Item) -> Option<&'a AttributeValue> {
        let (_, above) = self.below.split_last()?;
        above.iter().try_fold(item.get(&self.root)?, step)
    }

    /// Returns the same value as [`Path::find_parent`], as a mutable reference.
    pub(crate) fn find_parent_mut<'a>(
        &self,
        item: &'a mut Item,
    ) -> Option<(&'a mut AttributeValue, &PathElement)> {
        let (last, above) = self.below.split_last()?;
        let parent = above.iter().try_fold(item.get_mut(&self.root)?, step_mut)?;
        Some((parent, last))
    }
}

fn step<'a>(value: &'a AttributeValue, element: &PathElement) -> Option<&'a AttributeValue> {
    match (value, element) {
        (AttributeValue::M(members), PathElement::Member(name)) => members.get(name),
        (AttributeValue::L(elements), PathElement::Index(index)) => {
            elements.get(usize::try_from(*index).ok()?)
        }
        _ => None,
    }
}

fn step_mut<'a>(
    value: &'a mut AttributeValue,
    element: &PathElement,
) -> Option<&'a mut AttributeValue> {
    match (value, element) {
        (AttributeValue::M(members), PathElement::Member(name)) => members.get_mut(name),
        (AttributeValue::L(elements), PathElement::Index(index)) => {
            elements.get_mut(usize::try_from(*index).ok()?)
        }
        _ => None,
    }
}

impl fmt::Display for Path {
    /// Writes the path in the format of error messages: `[a, b, [3], c]`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "[{}", self.root)?;
        for element in &self.below {
            match element {
                PathElement::Member(name) => write!(f, ", {name}")?,
                PathElement::Index(index) => write!(f, ", [{index}]")?,
            }
        }
        f.write_str("]")
    }
}

enum PathConflict {
    Overlap,
    Conflict,
}

fn clash(one: &Path, two: &Path) -> Option<PathConflict> {
    if one.root != two.root {
        return None;
    }
    for (left, right) in one.below.iter().zip(&two.below) {
        match (left, right) {
            (PathElement::Member(_), PathElement::Index(_))
            | (PathElement::Index(_), PathElement::Member(_)) => {
                return Some(PathConflict::Conflict);
            }
            _ if left != right => return None,
            _ => {}
        }
    }
    Some(PathConflict::Overlap)
}

/// Checks that no path equals another path or is a prefix of it (an overlap). Also checks that no
/// two paths use the same value both as a map and as a list (a conflict). Reports an overlap before
/// any conflict.
pub(crate) fn check_distinct(kind: ExpressionKind, paths: &[&Path]) -> Result<(), ExpressionError> {
    let mut conflict = None;
    for (position, two) in paths.iter().enumerate() {
        for one in paths.iter().take(position) {
            match clash(one, two) {
                Some(PathConflict::Overlap) => return Err(clash_error(kind, "overlap", one, two)),
                Some(PathConflict::Conflict) => conflict = conflict.or(Some((one, two))),
                None => {}
            }
        }
    }
    conflict.map_or(Ok(()), |(one, two)| Err(clash_error(kind, "conflict", one, two)))
}

fn clash_error(kind: ExpressionKind, how: &str, one: &Path, two: &Path) -> ExpressionError {
    kind.invalid(format_args!(
        "Two document paths {how} with each other; must remove or rewrite one of these paths; path one: {one}, path two: {two}"
    ))
}
