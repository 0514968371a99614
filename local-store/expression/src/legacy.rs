//! Conditions, updates, key conditions and projections from the legacy parameters. The results have
//! the same types as parsed expressions.
//!
//! The server checks which parameters are allowed, because it has their error messages. A name in a
//! legacy parameter is always the complete name of a top-level attribute, even if it contains dots
//! or brackets.

use std::sync::Arc;

use model::AttributeValue;

use crate::comparator::Comparator;
use crate::condition::Condition;
use crate::condition_tree::{Operand, Test};
use crate::key_condition::{Clause, KeyExpression, Range};
use crate::path::Path;
use crate::projection::Projection;
use crate::update::{Action, SetOperand, SetValue, Update};
use crate::value_table::{ValueIndex, shared};

/// The maximum number of values in all conditions of one request. Values are indexed with 16 bits.
pub const LEGACY_VALUES_MAX: usize = u16::MAX as usize;

/// The comparison operator of `ComparisonOperator`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LegacyOperator {
    /// `EQ`.
    Equal,
    /// `NE`.
    NotEqual,
    /// `LE`.
    LessOrEqual,
    /// `LT`.
    Less,
    /// `GE`.
    GreaterOrEqual,
    /// `GT`.
    Greater,
    /// `NOT_NULL`.
    NotNull,
    /// `NULL`.
    Null,
    /// `CONTAINS`.
    Contains,
    /// `NOT_CONTAINS`.
    NotContains,
    /// `BEGINS_WITH`.
    BeginsWith,
    /// `IN`.
    In,
    /// `BETWEEN`.
    Between,
}

/// One condition of `Expected`, `ScanFilter`, `QueryFilter` or `KeyConditions`. If the operator
/// does not accept that many values, the condition never holds.
#[derive(Clone, Debug, PartialEq)]
pub struct LegacyCondition {
    /// The name of the attribute.
    pub attribute: String,
    /// The comparison operator.
    pub operator: LegacyOperator,
    /// The values to compare with.
    pub values: Vec<AttributeValue>,
}

/// One action of `AttributeUpdates`.
#[derive(Clone, Debug, PartialEq)]
pub enum LegacyAction {
    /// `PUT` sets the attribute to the given value.
    Put(AttributeValue),
    /// `ADD` adds a number, the members of a set, or the elements of a list.
    Add(AttributeValue),
    /// `DELETE` removes the attribute.
    Delete,
    /// `DELETE` removes the given members from a set.
    DeleteMembers(AttributeValue),
}

#[derive(Default)]
struct Values(Vec<AttributeValue>);

impl Values {
    fn keep(&mut self, value: AttributeValue) -> ValueIndex {
        let index = ValueIndex::at(self.0.len());
        self.0.push(value);
        index
    }
}

impl Condition {
    /// Creates a condition that holds if all of `conditions` hold. If `any` is true, the created
    /// condition holds if at least one of `conditions` holds.
    #[must_use]
    pub fn of_legacy(conditions: Vec<LegacyCondition>, any: bool) -> Self {
        let mut values = Values::default();
        let tests = conditions.into_iter().map(|condition| test(condition, &mut values)).collect();
        let test = if any { Test::Or(tests) } else { Test::And(tests) };
        Self::new(Arc::new(test), shared(values.0))
    }
}

fn test(condition: LegacyCondition, values: &mut Values) -> Test {
    let path = Path::new(condition.attribute, Vec::new());
    let operand = Operand::Path(path.clone());
    let mut kept = condition.values.into_iter().map(|value| Operand::Value(values.keep(value)));
    // A disjunction without members is always false.
    let never = Test::Or(Vec::new());
    let compare = |comparator: Comparator, value: Option<Operand>| match value {
        Some(right) => Test::Compare { comparator, left: Operand::Path(path.clone()), right },
        None => Test::Or(Vec::new()),
    };
    match condition.operator {
        LegacyOperator::Equal => compare(Comparator::Equal, kept.next()),
        LegacyOperator::NotEqual => compare(Comparator::NotEqual, kept.next()),
        LegacyOperator::LessOrEqual => compare(Comparator::LessOrEqual, kept.next()),
        LegacyOperator::Less => compare(Comparator::Less, kept.next()),
        LegacyOperator::GreaterOrEqual => compare(Comparator::GreaterOrEqual, kept.next()),
        LegacyOperator::Greater => compare(Comparator::Greater, kept.next()),
        LegacyOperator::NotNull => Test::AttributeExists(path),
        LegacyOperator::Null => Test::AttributeNotExists(path),
        LegacyOperator::Contains => {
            kept.next().map_or(never, |part| Test::Contains { operand, part })
        }
        // For a missing attribute, neither `CONTAINS` nor `NOT_CONTAINS` holds.
        LegacyOperator::NotContains => kept.next().map_or(never, |part| {
            let contains = Test::Contains { operand, part };
            Test::And(vec![Test::AttributeExists(path), Test::Not(Box::new(contains))])
        }),
        LegacyOperator::BeginsWith => {
            kept.next().map_or(never, |prefix| Test::BeginsWith { operand, prefix })
        }
        LegacyOperator::In => Test::In { operand, candidates: kept.collect() },
        LegacyOperator::Between => match (kept.next(), kept.next()) {
            (Some(lower), Some(upper)) => Test::Between { operand, lower, upper },
            _ => never,
        },
    }
}

impl Update {
    /// Creates the update with these actions, each on its own attribute.
    #[must_use]
    pub fn of_legacy(updates: Vec<(String, LegacyAction)>) -> Self {
        let mut values = Values::default();
        let actions = updates
            .into_iter()
            .map(|(name, action)| {
                let path = Path::new(name, Vec::new());
                match action {
                    LegacyAction::Put(value) => {
                        let value = SetOperand::Value(values.keep(value));
                        Action::Set { path, value: SetValue::Operand(value) }
                    }
                    LegacyAction::Add(value @ AttributeValue::L(_)) => {
                        append(path, value, &mut values)
                    }
                    LegacyAction::Add(value) => Action::Add { path, value: values.keep(value) },
                    LegacyAction::Delete => Action::Remove { path },
                    LegacyAction::DeleteMembers(value) => {
                        Action::Delete { path, value: values.keep(value) }
                    }
                }
            })
            .collect();
        Self::new(actions, values.0, true)
    }
}

/// Returns the action for `ADD` of a list, which appends the elements to the existing list.
fn append(path: Path, value: AttributeValue, values: &mut Values) -> Action {
    let empty = SetOperand::Value(values.keep(AttributeValue::L(Vec::new())));
    let first = SetOperand::IfNotExists { path: path.clone(), default: Box::new(empty) };
    let second = SetOperand::Value(values.keep(value));
    let list = SetOperand::ListAppend { first: Box::new(first), second: Box::new(second) };
    Action::Set { path, value: SetValue::Operand(list) }
}

impl KeyExpression {
    /// Creates the key conditions of `KeyConditions`. An operator that keys do not support is reported
    /// later, by the check against a key schema.
    #[must_use]
    pub fn of_legacy(conditions: Vec<LegacyCondition>) -> Self {
        let clause = |condition: LegacyCondition| {
            let mut values = condition.values.into_iter();
            let (first, second) = (values.next(), values.next());
            let range = match (condition.operator, first, second) {
                (LegacyOperator::Equal, Some(value), None) => {
                    Range::Compare(Comparator::Equal, value)
                }
                (LegacyOperator::LessOrEqual, Some(value), None) => {
                    Range::Compare(Comparator::LessOrEqual, value)
                }
                (LegacyOperator::Less, Some(value), None) => {
                    Range::Compare(Comparator::Less, value)
                }
                (LegacyOperator::GreaterOrEqual, Some(value), None) => {
                    Range::Compare(Comparator::GreaterOrEqual, value)
                }
                (LegacyOperator::Greater, Some(value), None) => {
                    Range::Compare(Comparator::Greater, value)
                }
                (LegacyOperator::BeginsWith, Some(value), None) => Range::BeginsWith(value),
                (LegacyOperator::Between, Some(low), Some(high)) => Range::Between(low, high),
                _ => Range::NotIndexable,
            };
            Clause { attribute: condition.attribute, range }
        };
        Self::new(conditions.into_iter().map(clause).collect())
    }
}

impl Projection {
    /// Creates the projection of complete top-level attributes.
    #[must_use]
    pub fn of_attributes<'a>(names: impl IntoIterator<Item = &'a str>) -> Self {
        let paths: Vec<Path> =
            names.into_iter().map(|name| Path::new(name.to_owned(), Vec::new())).collect();
        Self::of(&paths)
    }
}

#[cfg(test)]
mod tests {
    use model::{Item, Number};

    use super::*;

    fn text(value: &str) -> AttributeValue {
        AttributeValue::S(value.to_owned())
    }

    fn number(value: u64) -> AttributeValue {
        AttributeValue::N(Number::from(value))
    }

    #[test]
    fn conditions_hold_as_on_the_service() {
        let item = Item::new()
            .with("s", text("hello"))
            .with("n", number(5))
            .with("a.b", text("dotted"))
            .with("set", AttributeValue::Ss(["x".to_owned()].into()));
        use LegacyOperator as Op;
        for (attribute, operator, values, holds) in [
            ("s", Op::Equal, vec![text("hello")], true),
            ("a.b", Op::Equal, vec![text("dotted")], true),
            ("s", Op::NotEqual, vec![text("hello")], false),
            ("missing", Op::NotEqual, vec![text("hello")], true),
            ("n", Op::LessOrEqual, vec![number(5)], true),
            ("n", Op::Less, vec![number(5)], false),
            ("n", Op::GreaterOrEqual, vec![number(6)], false),
            ("n", Op::Greater, vec![number(4)], true),
            ("n", Op::Greater, vec![text("4")], false),
            ("s", Op::NotNull, vec![], true),
            ("missing", Op::NotNull, vec![], false),
            ("missing", Op::Null, vec![], true),
            ("s", Op::Contains, vec![text("ell")], true),
            ("set", Op::Contains, vec![text("x")], true),
            ("set", Op::NotContains, vec![text("y")], true),
            ("missing", Op::NotContains, vec![text("y")], false),
            ("s", Op::NotContains, vec![number(1)], true),
            ("s", Op::BeginsWith, vec![text("he")], true),
            ("n", Op::In, vec![number(1), number(5)], true),
            ("n", Op::In, vec![], false),
            ("n", Op::Between, vec![number(1), number(5)], true),
            ("n", Op::Between, vec![number(1)], false),
        ] {
            let condition = LegacyCondition { attribute: attribute.to_owned(), operator, values };
            let shown = format!("{condition:?}");
            assert_eq!(
                Condition::of_legacy(vec![condition], false).evaluate(&item),
                holds,
                "{shown}"
            );
        }
        let pair = |value: &str| LegacyCondition {
            attribute: "s".to_owned(),
            operator: Op::Equal,
            values: vec![text(value)],
        };
        let both = || vec![pair("hello"), pair("other")];
        assert!(Condition::of_legacy(both(), true).evaluate(&item));
        assert!(!Condition::of_legacy(both(), false).evaluate(&item));
    }

    #[test]
    fn updates_apply_their_actions() {
        let item = Item::new()
            .with("n", number(5))
            .with("list", AttributeValue::L(vec![text("a")]))
            .with("set", AttributeValue::Ss(["x".to_owned(), "y".to_owned()].into()))
            .with("gone", text("x"));
        let updates = vec![
            ("n".to_owned(), LegacyAction::Add(number(2))),
            ("list".to_owned(), LegacyAction::Add(AttributeValue::L(vec![text("b")]))),
            ("fresh".to_owned(), LegacyAction::Add(AttributeValue::L(vec![text("c")]))),
            (
                "set".to_owned(),
                LegacyAction::DeleteMembers(AttributeValue::Ss(["x".to_owned()].into())),
            ),
            ("gone".to_owned(), LegacyAction::Delete),
            ("a.b".to_owned(), LegacyAction::Put(text("dotted"))),
        ];
        let updated = Update::of_legacy(updates).apply(&item).unwrap();
        let expected = Item::new()
            .with("n", number(7))
            .with("list", AttributeValue::L(vec![text("a"), text("b")]))
            .with("fresh", AttributeValue::L(vec![text("c")]))
            .with("set", AttributeValue::Ss(["y".to_owned()].into()))
            .with("a.b", text("dotted"));
        assert_eq!(updated, expected);
        let wrong = Update::of_legacy(vec![("gone".to_owned(), LegacyAction::Add(number(1)))]);
        assert_eq!(
            wrong.apply(&item).unwrap_err().to_string(),
            "Type mismatch for attribute to update"
        );
    }
}
