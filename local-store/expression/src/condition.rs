//! Conditions: the parsed form of a condition or filter expression, and its evaluation for an item.
//!
//! Evaluation never fails: if an attribute is missing or has another type, a comparison is false
//! (and `<>` is true). The server rejects key attributes in filters.

use std::borrow::Cow;
use std::sync::Arc;

use model::{AttributeValue, Item, Number};
use serde::{Deserialize, Serialize};

use crate::check::check_condition;
use crate::comparator::Comparator;
use crate::condition_tree::{Operand, Test, size_of};
use crate::error::{ExpressionError, ExpressionKind};
use crate::parser;
use crate::path::Path;
use crate::placeholders::Placeholders;
use crate::resolve::Resolver;
use crate::value_table::{SharedValue, ValueIndex, shared};

/// The expected number of paths in a condition, for the capacity of a vector.
const PATHS_EXPECTED: usize = 8;

/// A condition or filter with resolved names and values, ready to be stored and evaluated.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Condition {
    values: Vec<SharedValue>,
    /// The tree, which is shared by all conditions of one statement that a request executes for
    /// many items.
    test: Arc<Test>,
}

/// Replacement values for a condition, each with its index in the condition's values: see
/// [`Condition::values_beside`]. Empty by default.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct OtherValues(Vec<(ValueIndex, SharedValue)>);

/// Parses a condition or filter expression.
///
/// # Errors
/// The first error that DynamoDB would report, with its message.
pub fn parse_condition(
    text: &str,
    kind: ExpressionKind,
    placeholders: &mut Placeholders,
) -> Result<Condition, ExpressionError> {
    let node = parser::parse_condition(text, kind)?;
    check_condition(kind, &node)?;
    let mut resolver = Resolver::new(kind, placeholders);
    let test = resolver.test(&node)?;
    Ok(Condition::new(Arc::new(test), shared(resolver.into_values())))
}

impl Condition {
    pub(crate) fn new(test: Arc<Test>, values: Vec<SharedValue>) -> Self {
        Self { values, test }
    }

    /// Returns whether the condition holds for an item. For an item that does not exist, pass an
    /// item without attributes.
    #[must_use]
    pub fn evaluate(&self, item: &Item) -> bool {
        Evaluation { values: &self.values, item }.holds(&self.test)
    }

    /// Returns the values in which this condition differs from `other`. Returns `None` if the
    /// conditions differ in more than values.
    #[must_use]
    pub fn values_beside(&self, other: &Self) -> Option<OtherValues> {
        let is_same = Arc::ptr_eq(&self.test, &other.test) || self.test == other.test;
        if !is_same || self.values.len() != other.values.len() {
            return None;
        }
        let values = self.values.iter().zip(&other.values).enumerate();
        let is_other = |value, other| !Arc::ptr_eq(value, other) && value != other;
        let differing = values.filter(|(_, (value, other))| is_other(value, other));
        let place = |(at, (value, _))| (ValueIndex::at(at), Arc::clone(value));
        Some(OtherValues(differing.map(place).collect()))
    }

    /// Returns the size of the values that `others` would replace, as DynamoDB counts it.
    #[must_use]
    pub fn size_replaced(&self, others: &OtherValues) -> usize {
        others.0.iter().map(|(at, _)| at.of(&self.values).size()).sum()
    }

    /// Returns this condition with some of its values replaced.
    #[must_use]
    pub fn with_values(&self, others: OtherValues) -> Self {
        let mut condition = self.clone();
        for (at, value) in others.0 {
            at.set(&mut condition.values, value);
        }
        condition
    }

    /// Returns every path that the condition reads, in the order of the expression.
    pub fn paths(&self) -> impl Iterator<Item = &Path> {
        let mut paths = Vec::with_capacity(PATHS_EXPECTED);
        self.test.collect_paths(&mut paths);
        paths.into_iter()
    }
}

struct Evaluation<'a> {
    values: &'a [SharedValue],
    item: &'a Item,
}

impl<'a> Evaluation<'a> {
    fn holds(&self, test: &'a Test) -> bool {
        match test {
            Test::And(members) => members.iter().all(|member| self.holds(member)),
            Test::Or(members) => members.iter().any(|member| self.holds(member)),
            Test::Not(inner) => !self.holds(inner),
            Test::Compare { comparator, left, right } => self.compare(*comparator, left, right),
            Test::Between { operand, lower, upper } => {
                self.compare(Comparator::GreaterOrEqual, operand, lower)
                    && self.compare(Comparator::LessOrEqual, operand, upper)
            }
            Test::In { operand, candidates } => self.value(operand).is_some_and(|value| {
                candidates.iter().any(|candidate| self.value(candidate).is_some_and(|c| c == value))
            }),
            Test::AttributeExists(path) => path.find(self.item).is_some(),
            Test::AttributeNotExists(path) => path.find(self.item).is_none(),
            Test::AttributeType { operand, descriptor } => self
                .value(operand)
                .is_some_and(|value| value.attribute_type().descriptor() == descriptor),
            Test::BeginsWith { operand, prefix } => self
                .both(operand, prefix)
                .is_some_and(|(value, prefix)| begins_with(&value, &prefix)),
            Test::Contains { operand, part } => {
                self.both(operand, part).is_some_and(|(value, part)| contains(&value, &part))
            }
        }
    }

    fn compare(&self, comparator: Comparator, left: &'a Operand, right: &'a Operand) -> bool {
        let Some((left, right)) = self.both(left, right) else {
            return comparator == Comparator::NotEqual;
        };
        match comparator {
            Comparator::Equal => left == right,
            Comparator::NotEqual => left != right,
            _ => left.compare(&right).is_some_and(|order| comparator.holds(order)),
        }
    }

    fn both(
        &self,
        left: &'a Operand,
        right: &'a Operand,
    ) -> Option<(Cow<'a, AttributeValue>, Cow<'a, AttributeValue>)> {
        self.value(left).zip(self.value(right))
    }

    fn value(&self, operand: &'a Operand) -> Option<Cow<'a, AttributeValue>> {
        match operand {
            Operand::Path(path) => path.find(self.item).map(Cow::Borrowed),
            Operand::Value(index) => Some(Cow::Borrowed(index.of(self.values))),
            Operand::SizeOf(path) => {
                let size = size_of(path.find(self.item)?)?;
                Some(Cow::Owned(AttributeValue::N(Number::from(size))))
            }
        }
    }
}

fn begins_with(value: &AttributeValue, prefix: &AttributeValue) -> bool {
    match (value, prefix) {
        (AttributeValue::S(text), AttributeValue::S(prefix)) => text.starts_with(prefix),
        (AttributeValue::B(bytes), AttributeValue::B(prefix)) => bytes.starts_with(prefix),
        _ => false,
    }
}

/// Returns whether `value` contains `part`: a substring, a run of bytes, a member of a set, or an
/// element of a list.
fn contains(value: &AttributeValue, part: &AttributeValue) -> bool {
    match (value, part) {
        (AttributeValue::S(text), AttributeValue::S(part)) => text.contains(part),
        (AttributeValue::B(bytes), AttributeValue::B(part)) => contains_bytes(bytes, part),
        (AttributeValue::Ss(members), AttributeValue::S(member)) => members.contains(member),
        (AttributeValue::Ns(members), AttributeValue::N(member)) => members.contains(member),
        (AttributeValue::Bs(members), AttributeValue::B(member)) => members.contains(member),
        (AttributeValue::L(elements), element) => elements.contains(element),
        _ => false,
    }
}

/// Returns whether `bytes` contains `part`. The Knuth-Morris-Pratt algorithm takes linear time, so
/// no input is slow.
fn contains_bytes(bytes: &[u8], part: &[u8]) -> bool {
    // `borders[i]` is the length of the longest proper prefix of `part` that ends at `i`.
    let mut borders: Vec<usize> = Vec::with_capacity(part.len());
    let extend = |borders: &[usize], mut matched: usize, byte: u8| {
        while matched > 0 && part.get(matched) != Some(&byte) {
            matched = borders.get(matched - 1).copied().unwrap_or(0);
        }
        matched + usize::from(part.get(matched) == Some(&byte))
    };
    let mut matched = 0;
    for (position, byte) in part.iter().enumerate() {
        matched = if position == 0 { 0 } else { extend(&borders, matched, *byte) };
        borders.push(matched);
    }
    matched = 0;
    part.is_empty()
        || bytes.iter().any(|byte| {
            matched = extend(&borders, matched, *byte);
            matched == part.len()
        })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn parts_of_binaries_are_found_as_by_trying_every_place(
            bytes in proptest::collection::vec(0u8..3, 0..40),
            part in proptest::collection::vec(0u8..3, 0..6),
        ) {
            let found = part.is_empty() || bytes.windows(part.len()).any(|window| window == part);
            prop_assert_eq!(contains_bytes(&bytes, &part), found);
        }
    }
}
