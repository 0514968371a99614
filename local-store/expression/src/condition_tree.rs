//! The tree of a condition with resolved names. Its values are in a separate table.
//!
//! The module `condition` evaluates the tree.

use model::AttributeValue;
use serde::{Deserialize, Serialize};

use crate::comparator::Comparator;
use crate::path::Path;
use crate::value_table::ValueIndex;

/// A node of a condition. The parser limits the depth of the tree, so recursion is safe.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) enum Test {
    And(Vec<Test>),
    Or(Vec<Test>),
    Not(Box<Test>),
    Compare { comparator: Comparator, left: Operand, right: Operand },
    Between { operand: Operand, lower: Operand, upper: Operand },
    In { operand: Operand, candidates: Vec<Operand> },
    AttributeExists(Path),
    AttributeNotExists(Path),
    AttributeType { operand: Operand, descriptor: String },
    BeginsWith { operand: Operand, prefix: Operand },
    Contains { operand: Operand, part: Operand },
}

/// An operand of a condition: a path, a value, or the size of the value at a path.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) enum Operand {
    Path(Path),
    Value(ValueIndex),
    SizeOf(Path),
}

impl Test {
    pub(crate) fn collect_paths<'a>(&'a self, paths: &mut Vec<&'a Path>) {
        match self {
            Self::And(members) | Self::Or(members) => {
                members.iter().for_each(|member| member.collect_paths(paths));
            }
            Self::Not(inner) => inner.collect_paths(paths),
            Self::Compare { left, right, .. } => {
                paths.extend([left, right].into_iter().filter_map(Operand::path));
            }
            Self::Between { operand, lower, upper } => {
                paths.extend([operand, lower, upper].into_iter().filter_map(Operand::path));
            }
            Self::In { operand, candidates } => {
                paths.extend(operand.path());
                paths.extend(candidates.iter().filter_map(Operand::path));
            }
            Self::AttributeExists(path) | Self::AttributeNotExists(path) => paths.push(path),
            Self::AttributeType { operand, .. } => paths.extend(operand.path()),
            Self::BeginsWith { operand, prefix: other }
            | Self::Contains { operand, part: other } => {
                paths.extend([operand, other].into_iter().filter_map(Operand::path));
            }
        }
    }
}

impl Operand {
    fn path(&self) -> Option<&Path> {
        match self {
            Self::Path(path) | Self::SizeOf(path) => Some(path),
            Self::Value(_) => None,
        }
    }
}

/// Returns the result of the `size` function; `None` for types without a size.
///
/// The size of a string is its length in UTF-16 code units, because AWS documents "the length of
/// the string" and DynamoDB is implemented in Java. The size of a binary is its length in bytes.
/// The size of a set, list or map is the number of its members.
pub(crate) fn size_of(value: &AttributeValue) -> Option<u64> {
    let size = match value {
        AttributeValue::S(text) => text.encode_utf16().count(),
        AttributeValue::B(bytes) => bytes.len(),
        AttributeValue::Ss(members) => members.len(),
        AttributeValue::Ns(members) => members.len(),
        AttributeValue::Bs(members) => members.len(),
        AttributeValue::L(elements) => elements.len(),
        AttributeValue::M(members) => members.len(),
        AttributeValue::N(_) | AttributeValue::Bool(_) | AttributeValue::Null => return None,
    };
    u64::try_from(size).ok()
}
