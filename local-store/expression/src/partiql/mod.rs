//! PartiQL statements: parsing a statement and its parameters into the same conditions, updates,
//! projections and items as the expressions of other operations.
//!
//! The module is pure. The server decides which items or index a statement reads, from the key
//! values in the statement's [`Where`]. Source: AWS, "PartiQL for DynamoDB reference". Messages
//! follow DynamoDB's responses, as public conformance suites recorded them.

mod conditions;
mod keywords;
mod literals;
mod parser;
mod reads;
mod refusals;
mod selects;
mod statement_text;
mod tables;
mod token;

use std::sync::Arc;

use model::{AttributeValue, Item};
use thiserror::Error;

pub use self::reads::SelectReads;
pub use self::statement_text::StatementText;
use crate::comparator::Comparator;
use crate::condition::Condition;
use crate::condition_tree::{Operand, Test};
use crate::key_condition::Range;
use crate::path::Path;
use crate::projection::Projection;
use crate::update::Update;
use crate::value_table::{SharedValue, shared};

/// The prefix of the error message for every malformed statement.
const MALFORMED: &str = "Statement wasn't well formed, can't be processed: ";

/// The reason why a statement is rejected. `Display` is the message of the `ValidationException`.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{0}")]
pub struct PartiqlError(String);

impl PartiqlError {
    pub(crate) fn new(text: impl Into<String>) -> Self {
        Self(text.into())
    }

    /// Returns the error for a malformed statement; `detail` may be empty.
    pub(crate) fn malformed(detail: &str) -> Self {
        Self(format!("{MALFORMED}{detail}"))
    }

    fn is_malformed(&self) -> bool {
        self.0.starts_with(MALFORMED)
    }
}

/// A statement, with its parameters in place of each `?`.
#[derive(Clone, Debug, PartialEq)]
pub enum Statement {
    /// `SELECT`, also within `EXISTS(...)`.
    Select(Select),
    /// `INSERT INTO ... VALUE {...}`.
    Insert {
        /// The table.
        table: String,
        /// The item.
        item: Item,
    },
    /// `UPDATE ... SET ... REMOVE ... WHERE ...`.
    Update {
        /// The table.
        table: String,
        /// The changes of the item.
        update: Update,
        /// The key of the item, and further conditions.
        condition: Where,
        /// The attributes to return.
        returning: Option<Returning>,
    },
    /// `DELETE FROM ... WHERE ...`.
    Delete {
        /// The table.
        table: String,
        /// The key of the item, and further conditions.
        condition: Where,
        /// The attributes to return.
        returning: Option<Returning>,
    },
    /// `EXISTS(SELECT ...)`: a condition of a transaction.
    Exists(Select),
}

/// `SELECT ... FROM ... WHERE ... ORDER BY ...`.
#[derive(Clone, Debug, PartialEq)]
pub struct Select {
    /// The name of the table.
    pub table: String,
    /// The name of the index.
    pub index: Option<String>,
    /// The attributes to return for each item; `None` for `*`.
    pub projection: Option<Projection>,
    /// The condition that selects the items.
    pub condition: Where,
    /// The attributes of `ORDER BY`, each with true for ascending order; empty without the clause.
    pub order: Vec<(String, bool)>,
}

/// A `RETURNING` clause.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Returning {
    /// Whether the clause returns `ALL` attributes; if false, only the `MODIFIED` attributes.
    pub all: bool,
    /// Whether the clause returns the item after the write (`NEW`); if false, before the write
    /// (`OLD`).
    pub new: bool,
}

impl Returning {
    /// Returns the clause as it is written in a statement.
    #[must_use]
    pub fn text(self) -> String {
        let what = if self.all { "ALL" } else { "MODIFIED" };
        let which = if self.new { "NEW" } else { "OLD" };
        format!("RETURNING {what} {which} *")
    }
}

/// The conditions after `WHERE`, all of which must hold. Empty without `WHERE`.
#[derive(Clone, Debug, PartialEq)]
pub struct Where {
    /// The conjunction, which statements with the same text share.
    all: Arc<Test>,
    values: Vec<SharedValue>,
}

impl Where {
    fn new(tests: Vec<Test>, values: Vec<AttributeValue>) -> Self {
        Self { all: Arc::new(Test::And(tests)), values: shared(values) }
    }

    fn tests(&self) -> &[Test] {
        match &*self.all {
            Test::And(tests) => tests,
            one => std::slice::from_ref(one),
        }
    }

    /// Returns whether there are no conditions.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.tests().is_empty()
    }

    /// Returns the conjunction of all conditions; `None` if there are none.
    #[must_use]
    pub fn into_condition(self) -> Option<Condition> {
        (!self.is_empty()).then(|| Condition::new(self.all, self.values))
    }

    /// Returns the conditions without the equalities on the key attributes in `keys`; `None` if no
    /// condition remains. The returned condition may hold even for an item that does not exist.
    #[must_use]
    pub fn into_condition_beside_key(self, keys: &[&str]) -> Option<Condition> {
        let Self { all, values } = self;
        let mut tests = match Arc::unwrap_or_clone(all) {
            Test::And(tests) => tests,
            one => vec![one],
        };
        tests.retain(|test| equality(test, &values).is_none_or(|(name, _)| !keys.contains(&name)));
        let absent = Path::new((*keys.first()?).to_owned(), Vec::new());
        if tests.is_empty() {
            return None;
        }
        let either = Test::Or(vec![Test::AttributeNotExists(absent), Test::And(tests)]);
        Some(Condition::new(Arc::new(either), values))
    }

    /// Returns whether every condition is an equality on one of the attributes `keys`.
    #[must_use]
    pub fn is_only_of(&self, keys: &[&str]) -> bool {
        let is_key = |test: &Test| {
            equality(test, &self.values).is_some_and(|(name, _)| keys.contains(&name))
        };
        self.tests().iter().all(is_key)
    }

    /// Replaces `a IN [1]` with the equivalent `a = 1`, so that both are processed in the same way.
    fn with_single_candidates_as_equalities(mut self) -> Self {
        let Test::And(tests) = Arc::make_mut(&mut self.all) else { return self };
        for test in tests {
            if let Test::In { operand, candidates } = test
                && let [candidate] = candidates.as_slice()
            {
                let comparator = Comparator::Equal;
                let (left, right) = (operand.clone(), candidate.clone());
                *test = Test::Compare { comparator, left, right };
            }
        }
        self
    }

    /// Returns the values to which the conditions require an attribute to be equal.
    pub fn equal_to<'a>(
        &'a self,
        attribute: &'a str,
    ) -> impl Iterator<Item = &'a AttributeValue> + 'a {
        let equalities = self.tests().iter().filter_map(|test| equality(test, &self.values));
        equalities.filter(move |(name, _)| *name == attribute).map(|(_, value)| value)
    }

    fn range(&self, test: &Test, attribute: &str) -> Option<Range> {
        let is_it = |operand: &Operand| is_whole(operand, attribute);
        let value = |operand: &Operand| match operand {
            Operand::Value(value) => Some(value.of(&self.values).clone()),
            Operand::Path(_) | Operand::SizeOf(_) => None,
        };
        match test {
            Test::Compare { comparator: Comparator::NotEqual, .. } => None,
            Test::Compare { comparator, left, right } if is_it(left) => {
                Some(Range::Compare(*comparator, value(right)?))
            }
            Test::Compare { comparator, left, right } if is_it(right) => {
                Some(Range::Compare(comparator.mirrored(), value(left)?))
            }
            Test::Between { operand, lower, upper } if is_it(operand) => {
                Some(Range::Between(value(lower)?, value(upper)?))
            }
            Test::BeginsWith { operand, prefix } if is_it(operand) => {
                Some(Range::BeginsWith(value(prefix)?))
            }
            _ => None,
        }
    }
}

/// Returns whether an operand is the attribute itself, not a nested part of it.
fn is_whole(operand: &Operand, attribute: &str) -> bool {
    matches!(operand, Operand::Path(path) if !path.is_nested() && path.root() == attribute)
}

/// Returns the attribute and the value that a test compares for equality.
fn equality<'a>(
    test: &'a Test,
    values: &'a [SharedValue],
) -> Option<(&'a str, &'a AttributeValue)> {
    let Test::Compare { comparator: Comparator::Equal, left, right } = test else {
        return None;
    };
    match (left, right) {
        (Operand::Path(path), Operand::Value(value))
        | (Operand::Value(value), Operand::Path(path))
            if !path.is_nested() =>
        {
            Some((path.root(), value.of(values)))
        }
        _ => None,
    }
}

/// Parses a statement. Replaces each `?` with the next parameter.
///
/// # Errors
/// The first error that DynamoDB would report, with its message.
pub fn parse_statement(
    text: &str,
    parameters: &[AttributeValue],
) -> Result<Statement, PartiqlError> {
    StatementText::new(text)?.with(parameters.to_vec())
}
