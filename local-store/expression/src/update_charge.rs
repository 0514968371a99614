//! The charge of an update expression: the bytes that DynamoDB counts for the expression itself.
//! DynamoDB limits the sum of the charge and the size of the item.
//!
//! Source: DynamoDB's responses in us-east-1 and most other Regions, which a public conformance
//! suite recorded in October 2026. The charge matches them exactly. AWS does not document the
//! charge. `AttributeUpdates`, PartiQL and transactions are not charged.

use model::AttributeValue;

use crate::path::{Path, PathElement};
use crate::update::{Action, SetOperand, SetValue, Update};

/// The charge of an update, in bytes, in addition to its actions.
const UPDATE: usize = 3;
/// The charge in bytes of an action that writes a value: `SET` and `ADD`.
const WRITE: usize = 19;
/// The charge in bytes of an action that only removes: `REMOVE` and `DELETE`. The removed value is
/// not charged.
const REMOVAL: usize = 1;
/// The charge in bytes of each element of a changed path after the first element.
const TARGET_ELEMENT: usize = 4;
/// The charge in bytes of a path that is read, and of each of its elements. The value is not
/// charged.
const READ: usize = 1;
const READ_ELEMENT: usize = 14;
const SUM: usize = 34;
const DIFFERENCE: usize = 37;
const IF_NOT_EXISTS: usize = 39;
const LIST_APPEND: usize = 37;

impl Update {
    /// Returns the charge of the expression in bytes. The charge does not depend on the item: it
    /// consists of the values, once per use, and of fixed numbers of bytes for each action and
    /// path. The charge is 0 for `AttributeUpdates`.
    #[must_use]
    pub fn charge(&self) -> usize {
        if self.is_legacy() {
            return 0;
        }
        self.actions().iter().map(|action| action_charge(action, self.values())).sum::<usize>()
            + UPDATE
    }
}

fn action_charge(action: &Action, values: &[AttributeValue]) -> usize {
    match action {
        Action::Set { path, value } => WRITE + target(path) + set_value(value, values),
        Action::Add { path, value } => WRITE + target(path) + value.of(values).size(),
        Action::Remove { path } | Action::Delete { path, .. } => REMOVAL + target(path),
    }
}

fn set_value(value: &SetValue, values: &[AttributeValue]) -> usize {
    match value {
        SetValue::Operand(of) => operand(of, values),
        SetValue::Sum(left, right) => SUM + operand(left, values) + operand(right, values),
        SetValue::Difference(left, right) => {
            DIFFERENCE + operand(left, values) + operand(right, values)
        }
    }
}

fn operand(of: &SetOperand, values: &[AttributeValue]) -> usize {
    match of {
        SetOperand::Path(path) => read(path),
        SetOperand::Value(index) => index.of(values).size(),
        SetOperand::IfNotExists { path, default } => {
            IF_NOT_EXISTS + read(path) + operand(default, values)
        }
        SetOperand::ListAppend { first, second } => {
            LIST_APPEND + operand(first, values) + operand(second, values)
        }
    }
}

/// Returns the charge of a changed path.
fn target(path: &Path) -> usize {
    let below = path.below().iter().map(|element| TARGET_ELEMENT + element_bytes(element));
    path.root().len() + below.sum::<usize>()
}

/// Returns the charge of a path that is read.
fn read(path: &Path) -> usize {
    let below = path.below().iter().map(|element| READ_ELEMENT + element_bytes(element));
    READ + READ_ELEMENT + path.root().len() + below.sum::<usize>()
}

/// Returns the number of bytes of a name, or of digits of an index.
fn element_bytes(element: &PathElement) -> usize {
    match element {
        PathElement::Member(name) => name.len(),
        PathElement::Index(index) => index.to_string().len(),
    }
}

#[cfg(test)]
mod tests {
    use model::{AttributeValue, Number};

    use crate::{Placeholders, Update, parse_update};

    fn update(text: &str) -> Update {
        let s = |text: &str| AttributeValue::S(text.to_owned());
        let values = [
            (":s", s("0123456789")),
            (":n", AttributeValue::N(Number::from(1u64))),
            (":l", AttributeValue::L(vec![s("0123456789")])),
            (":ts", AttributeValue::Ss(["ab".to_owned(), "cde".to_owned()].into())),
        ];
        let values = values.map(|(name, value)| (name.to_owned(), value));
        let names = [("#n".to_owned(), "a longer name".to_owned())];
        let mut placeholders = Placeholders::new(Some(names.into()), Some(values.into())).unwrap();
        parse_update(text, &mut placeholders).unwrap()
    }

    /// Goal: the charge of each kind of action equals DynamoDB's charge. The numbers are split into
    /// the parts in the module documentation: the action, the changed path, and the written or read
    /// value.
    #[test]
    fn actions_are_charged_as_the_service_does() {
        for (text, charge) in [
            ("SET b = :s", 19 + 1 + 10),
            ("SET #n = :s", 19 + 13 + 10),
            ("SET b = :s, c = :s", 19 + 1 + 10 + 19 + 1 + 10),
            ("SET d.leaf = :s", 19 + 1 + 4 + 4 + 10),
            ("SET d[0] = :s", 19 + 1 + 4 + 1 + 10),
            ("SET d[10].x = :s", 19 + 1 + 4 + 2 + 4 + 1 + 10),
            ("SET c = abcdefghij", 19 + 1 + 1 + 14 + 10),
            ("SET c = m.z", 19 + 1 + 1 + 14 + 1 + 14 + 1),
            ("SET c = l[10]", 19 + 1 + 1 + 14 + 1 + 14 + 2),
            ("SET n = n + :n", 19 + 1 + 34 + (1 + 14 + 1) + 2),
            ("SET n = n - :n", 19 + 1 + 37 + (1 + 14 + 1) + 2),
            ("SET c = if_not_exists(c, :s)", 19 + 1 + 39 + (1 + 14 + 1) + 10),
            ("SET l = list_append(l, :l)", 19 + 1 + 37 + (1 + 14 + 1) + (3 + 1 + 10)),
            ("SET l = list_append(:l, :l)", 19 + 1 + 37 + 2 * (3 + 1 + 10)),
            ("ADD abcdefghij :n", 19 + 10 + 2),
            ("ADD ss :ts", 19 + 2 + 5),
            ("REMOVE r", 2),
            ("REMOVE m.yyyyyyyyyy", 1 + 1 + 4 + 10),
            ("REMOVE abcdefghij[1]", 1 + 10 + 4 + 1),
            ("DELETE abcdefghij :ts", 1 + 10),
        ] {
            assert_eq!(update(text).charge(), 3 + charge, "{text}");
        }
        assert_eq!(Update::default().charge(), 3);
    }
}
