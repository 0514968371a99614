//! Evaluates conditions, projections and paths according to the documentation, "Condition and filter
//! expressions, operators, and functions".

use std::cmp::Ordering;

use model::{AttributeValue, Item, Number};

use super::expression::{Comparator, Condition, Operand, Path, Step};

/// Returns the value at a path of an item.
pub(super) fn find<'i>(item: &'i Item, path: &Path) -> Option<&'i AttributeValue> {
    let mut found = item.0.get(path.root)?;
    for step in &path.steps {
        found = match (step, found) {
            (Step::Member(name), AttributeValue::M(members)) => members.get(*name)?,
            (Step::Element(index), AttributeValue::L(members)) => members.get(*index)?,
            _ => return None,
        };
    }
    Some(found)
}

/// Returns the result of the function `size`; `None` for types without a size.
fn size(value: &AttributeValue) -> Option<u64> {
    let size = match value {
        AttributeValue::S(text) => text.encode_utf16().count(),
        AttributeValue::B(bytes) => bytes.len(),
        AttributeValue::Ss(members) => members.len(),
        AttributeValue::Ns(members) => members.len(),
        AttributeValue::Bs(members) => members.len(),
        AttributeValue::L(members) => members.len(),
        AttributeValue::M(members) => members.len(),
        AttributeValue::N(_) | AttributeValue::Bool(_) | AttributeValue::Null => return None,
    };
    Some(size as u64)
}

/// Compares two values. Returns `None` if they are not two numbers, two strings or two binaries, because
/// other values have no order.
fn order(left: &AttributeValue, right: &AttributeValue) -> Option<Ordering> {
    match (left, right) {
        (AttributeValue::N(left), AttributeValue::N(right)) => Some(left.cmp(right)),
        (AttributeValue::S(left), AttributeValue::S(right)) => {
            Some(left.as_bytes().cmp(right.as_bytes()))
        }
        (AttributeValue::B(left), AttributeValue::B(right)) => Some(left.cmp(right)),
        _ => None,
    }
}

fn value(item: &Item, operand: &Operand) -> Option<AttributeValue> {
    match operand {
        Operand::Path(path) => find(item, path).cloned(),
        Operand::Value(value) => Some(value.clone()),
        Operand::Size(path) => {
            find(item, path).and_then(size).map(|size| AttributeValue::N(Number::from(size)))
        }
    }
}

fn compare(
    left: Option<&AttributeValue>,
    comparator: Comparator,
    right: Option<&AttributeValue>,
) -> bool {
    let (Some(left), Some(right)) = (left, right) else {
        return comparator == Comparator::Unequal;
    };
    match comparator {
        Comparator::Equal => left == right,
        Comparator::Unequal => left != right,
        Comparator::Less => order(left, right) == Some(Ordering::Less),
        Comparator::LessOrEqual => order(left, right).is_some_and(Ordering::is_le),
        Comparator::Greater => order(left, right) == Some(Ordering::Greater),
        Comparator::GreaterOrEqual => order(left, right).is_some_and(Ordering::is_ge),
    }
}

fn type_name(value: &AttributeValue) -> &'static str {
    match value {
        AttributeValue::S(_) => "S",
        AttributeValue::N(_) => "N",
        AttributeValue::B(_) => "B",
        AttributeValue::Bool(_) => "BOOL",
        AttributeValue::Null => "NULL",
        AttributeValue::M(_) => "M",
        AttributeValue::L(_) => "L",
        AttributeValue::Ss(_) => "SS",
        AttributeValue::Ns(_) => "NS",
        AttributeValue::Bs(_) => "BS",
    }
}

fn contains(whole: &AttributeValue, part: &AttributeValue) -> bool {
    match (whole, part) {
        (AttributeValue::S(whole), AttributeValue::S(part)) => whole.contains(part.as_str()),
        (AttributeValue::B(whole), AttributeValue::B(part)) => {
            part.is_empty() || whole.windows(part.len()).any(|window| window == part.as_slice())
        }
        (AttributeValue::Ss(members), AttributeValue::S(part)) => members.contains(part),
        (AttributeValue::Ns(members), AttributeValue::N(part)) => members.contains(part),
        (AttributeValue::Bs(members), AttributeValue::B(part)) => members.contains(part),
        (AttributeValue::L(members), part) => members.contains(part),
        _ => false,
    }
}

fn begins_with(whole: &AttributeValue, part: &AttributeValue) -> bool {
    match (whole, part) {
        (AttributeValue::S(whole), AttributeValue::S(part)) => whole.starts_with(part.as_str()),
        (AttributeValue::B(whole), AttributeValue::B(part)) => whole.starts_with(part),
        _ => false,
    }
}

/// Returns whether a condition is true for an item. A missing item is evaluated as an empty item.
pub(super) fn holds(condition: &Condition, item: &Item) -> bool {
    match condition {
        Condition::Compare(left, comparator, right) => {
            let (left, right) = (value(item, left), value(item, right));
            compare(left.as_ref(), *comparator, right.as_ref())
        }
        Condition::Between(operand, low, high) => {
            let found = value(item, operand);
            compare(found.as_ref(), Comparator::GreaterOrEqual, Some(low))
                && compare(found.as_ref(), Comparator::LessOrEqual, Some(high))
        }
        Condition::In(operand, values) => {
            value(item, operand).is_some_and(|found| values.contains(&found))
        }
        Condition::Exists(path) => find(item, path).is_some(),
        Condition::NotExists(path) => find(item, path).is_none(),
        Condition::Type(path, name) => {
            find(item, path).is_some_and(|value| type_name(value) == *name)
        }
        Condition::BeginsWith(path, part) => {
            find(item, path).is_some_and(|value| begins_with(value, part))
        }
        Condition::Contains(path, part) => {
            find(item, path).is_some_and(|value| contains(value, part))
        }
        Condition::And(left, right) => holds(left, item) && holds(right, item),
        Condition::Or(left, right) => holds(left, item) || holds(right, item),
        Condition::Not(inner) => !holds(inner, item),
    }
}

/// Returns the part of an item that a projection selects.
pub(super) fn project(item: &Item, paths: &[Path]) -> Item {
    let mut shown = Item::new();
    for path in paths {
        let Some(found) = find(item, path) else { continue };
        let mut value = found.clone();
        for step in path.steps.iter().rev() {
            value = match step {
                Step::Member(name) => AttributeValue::M([((*name).to_owned(), value)].into()),
                Step::Element(_) => AttributeValue::L(vec![value]),
            };
        }
        shown.0.insert(path.root.to_owned(), value);
    }
    shown
}
