//! PartiQL statements: from text and parameters to what the other operations are made of:
//! conditions, updates, projections, items.
//!
//! Pure, as everything here: which item or index a statement means is decided by the server, which
//! asks a [`Where`] for the values of keys. Source: AWS, "PartiQL for DynamoDB reference"; texts
//! follow what the service answers, as public conformance suites recorded it.

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

pub use self::reads::Reads;
pub use self::statement_text::StatementText;
use crate::comparator::Comparator;
use crate::condition::Condition;
use crate::condition_tree::{Operand, Test};
use crate::key_condition::Range;
use crate::path::Path;
use crate::projection::Projection;
use crate::update::Update;
use crate::value_table::{SharedValue, shared};

/// What is said of every statement that cannot be read.
const MALFORMED: &str = "Statement wasn't well formed, can't be processed: ";

/// Why a statement is refused. `Display` is the message of the `ValidationException`.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{0}")]
pub struct PartiqlError(String);

impl PartiqlError {
    pub(crate) fn new(text: impl Into<String>) -> Self {
        Self(text.into())
    }

    /// A statement that cannot be read; `detail` may be empty.
    pub(crate) fn malformed(detail: &str) -> Self {
        Self(format!("{MALFORMED}{detail}"))
    }

    fn is_malformed(&self) -> bool {
        self.0.starts_with(MALFORMED)
    }
}

/// One statement, with its parameters in it.
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
        /// What becomes of the item.
        update: Update,
        /// Which item, and only if.
        condition: Where,
        /// What of the item is answered.
        returning: Option<Returning>,
    },
    /// `DELETE FROM ... WHERE ...`.
    Delete {
        /// The table.
        table: String,
        /// Which item, and only if.
        condition: Where,
        /// What of the item is answered.
        returning: Option<Returning>,
    },
    /// `EXISTS(SELECT ...)`: a condition of a transaction.
    Exists(Select),
}

/// `SELECT ... FROM ... WHERE ... ORDER BY ...`.
#[derive(Clone, Debug, PartialEq)]
pub struct Select {
    /// The table.
    pub table: String,
    /// The index.
    pub index: Option<String>,
    /// What of each item; all of it for `*`.
    pub projection: Option<Projection>,
    /// Which items.
    pub condition: Where,
    /// The attributes that order them, and whether forward; empty without `ORDER BY`.
    pub order: Vec<(String, bool)>,
}

/// `RETURNING`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Returning {
    /// `ALL` or `MODIFIED` attributes.
    pub all: bool,
    /// Of the item as it is (`NEW`) or as it was (`OLD`).
    pub new: bool,
}

impl Returning {
    /// As it is written.
    #[must_use]
    pub fn text(self) -> String {
        let what = if self.all { "ALL" } else { "MODIFIED" };
        let which = if self.new { "NEW" } else { "OLD" };
        format!("RETURNING {what} {which} *")
    }
}

/// The conditions behind `WHERE`: all of them must hold. Empty when there is no `WHERE`.
#[derive(Clone, Debug, PartialEq)]
pub struct Where {
    /// An `And` of them, which statements of one text share.
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

    /// Whether nothing is asked for.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.tests().is_empty()
    }

    /// All conditions.
    #[must_use]
    pub fn into_condition(self) -> Option<Condition> {
        (!self.is_empty()).then(|| Condition::new(self.all, self.values))
    }

    /// The conditions that are no equality on a key, of which `keys` has the names; they also hold
    /// for an item that is not there. `None` when there are no such conditions.
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

    /// Whether nothing but equalities on these attributes is asked for.
    #[must_use]
    pub fn is_only_of(&self, keys: &[&str]) -> bool {
        let is_key = |test: &Test| {
            equality(test, &self.values).is_some_and(|(name, _)| keys.contains(&name))
        };
        self.tests().iter().all(is_key)
    }

    /// `a IN [1]` says the same as `a = 1`, and reads like it.
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

    /// The values that an attribute must be equal to, each of them.
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

/// Whether an operand is an attribute itself, not a part of it.
fn is_whole(operand: &Operand, attribute: &str) -> bool {
    matches!(operand, Operand::Path(path) if !path.is_nested() && path.root() == attribute)
}

/// The attribute and the value that a test compares for equality.
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

/// Reads a statement; each `?` stands for the next parameter.
///
/// # Errors
/// The first problem that DynamoDB would report, in its words.
pub fn parse_statement(
    text: &str,
    parameters: &[AttributeValue],
) -> Result<Statement, PartiqlError> {
    StatementText::new(text)?.with(parameters.to_vec())
}
