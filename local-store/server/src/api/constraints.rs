//! The constraints that the service checks before everything else, and reports all together:
//! `2 validation errors detected: …; …`.
//!
//! Only what can be said of one parameter by itself. An operation's own rules come after.

use std::fmt::{Display, Write as _};

use model::limits::{TABLE_NAME_LENGTH_MAX, TABLE_NAME_LENGTH_MIN};

use super::error::ApiError;

/// Failures that one answer lists at most, as the service does.
const FAILURES_MAX: usize = 10;

/// The pattern of table and index names, as the service's texts show it.
const NAME_PATTERN: &str = "[a-zA-Z0-9_.-]+";

/// What the values of `ReturnConsumedCapacity` are.
pub(crate) const RETURN_CONSUMED_CAPACITY: &[&str] = &["INDEXES", "TOTAL", "NONE"];
/// What the values of `ReturnItemCollectionMetrics` are.
pub(crate) const RETURN_ITEM_COLLECTION_METRICS: &[&str] = &["SIZE", "NONE"];
/// What the values of `ReturnValues` are.
pub(crate) const RETURN_VALUES: &[&str] =
    &["ALL_NEW", "UPDATED_OLD", "ALL_OLD", "NONE", "UPDATED_NEW"];
/// The same as most failures show them; the last but one is the service's own slip.
pub(crate) const RETURN_VALUES_SHOWN: &[&str] =
    &["ALL_OLD", "UPDATED_OLD", "ALL_NEW", "UPDATE_NEW", "NONE"];
/// What the values of `ReturnValuesOnConditionCheckFailure` are.
pub(crate) const RETURN_VALUES_ON_FAILURE: &[&str] = &["ALL_OLD", "NONE"];
/// What the values of `Select` are.
pub(crate) const SELECT: &[&str] =
    &["SPECIFIC_ATTRIBUTES", "COUNT", "ALL_ATTRIBUTES", "ALL_PROJECTED_ATTRIBUTES"];

/// The failure of a word that is none of those shown, which is told without the parameter.
pub(crate) fn unnamed_enum(shown: &[&str]) -> String {
    format!(
        "Failed to satisfy constraint: Member must satisfy enum value set: [{}]",
        shown.join(", ")
    )
}

/// Collects failures.
#[derive(Debug, Default)]
pub(crate) struct Constraints(Vec<String>);

fn is_in_name(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'.' | b'-')
}

/// Whether a text can be the name of a table or an index.
pub(crate) fn is_name(text: &str) -> bool {
    (TABLE_NAME_LENGTH_MIN..=TABLE_NAME_LENGTH_MAX).contains(&text.len())
        && text.bytes().all(is_in_name)
}

impl Constraints {
    pub(crate) fn new() -> Self {
        Self::default()
    }

    fn fail(&mut self, value: Option<&dyn Display>, at: &dyn Display, constraint: &str) {
        if self.0.len() == FAILURES_MAX {
            return;
        }
        let mut text = String::from("Value ");
        let _ = match value {
            Some(value) => write!(text, "'{value}'"),
            None => write!(text, "null"),
        };
        let _ = write!(text, " at '{at}' failed to satisfy constraint: {constraint}");
        self.0.push(text);
    }

    /// The parameter must be there. Names of parameters are put together for failures only, here and
    /// below.
    pub(crate) fn required(&mut self, at: impl Display, is_present: bool) {
        if !is_present {
            self.fail(None, &at, "Member must not be null");
        }
    }

    /// One of a set of words, of a parameter that some operations neither name nor quote.
    pub(crate) fn unnamed_one_of(&mut self, value: Option<&str>, allowed: &[&str], shown: &[&str]) {
        if value.is_some_and(|value| !allowed.contains(&value)) {
            self.push(unnamed_enum(shown));
        }
    }

    /// A name that is empty, of the operations that do not quote it.
    pub(crate) fn empty_name(&mut self, at: &str) {
        self.push(format!(
            "Value at '{at}' failed to satisfy constraint: Member must have length greater than or equal to 1"
        ));
    }

    /// A number below its bound, of the operations that do not quote it.
    pub(crate) fn below(&mut self, at: &str, min: i64) {
        self.push(format!(
            "Value at '{at}' failed to satisfy constraint: Member must have value greater than or equal to {min}"
        ));
    }

    fn push(&mut self, failure: String) {
        if self.0.len() < FAILURES_MAX {
            self.0.push(failure);
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// `TableName`, which must be there.
    pub(crate) fn table_name(&mut self, name: Option<&str>) {
        match name {
            None => self.required("tableName", false),
            // The name may also be the table's ARN.
            Some(name) if name.starts_with("arn:") => {}
            Some(name) => self.name("tableName", name),
        }
    }

    /// `TableName` of an operation on the table itself.
    pub(crate) fn name_of_settings(&mut self, name: &str) {
        if !name.starts_with("arn:") {
            self.own_name("tableName", name);
        }
    }

    /// A table or index name.
    pub(crate) fn name(&mut self, at: &str, name: &str) {
        if name.is_empty() {
            return self.length_at_least(at, &name, 0, 1);
        }
        if !name.bytes().all(is_in_name) {
            self.not_the_pattern(at, name);
        }
        self.length(at, name, TABLE_NAME_LENGTH_MIN, TABLE_NAME_LENGTH_MAX);
    }

    /// The same where tables and indexes are made and changed, which find two faults in an empty one.
    pub(crate) fn own_name(&mut self, at: &str, name: &str) {
        if !name.is_empty() {
            return self.name(at, name);
        }
        self.length_at_least(at, &name, 0, TABLE_NAME_LENGTH_MIN);
        self.not_the_pattern(at, name);
    }

    /// The same of a name that a list begins behind; the two faults stand the other way round.
    pub(crate) fn name_before(&mut self, at: &str, name: &str) {
        if !name.is_empty() {
            return self.name(at, name);
        }
        self.not_the_pattern(at, name);
        self.length_at_least(at, &name, 0, TABLE_NAME_LENGTH_MIN);
    }

    fn not_the_pattern(&mut self, at: &str, name: &str) {
        let constraint = format!("Member must satisfy regular expression pattern: {NAME_PATTERN}");
        self.fail(Some(&name), &at, &constraint);
    }

    /// A text's length in characters, both bounds inclusive.
    pub(crate) fn length(&mut self, at: impl Display, text: &str, min: usize, max: usize) {
        // Bytes bound characters, so most texts need not be counted.
        if text.len() >= min.saturating_mul(4) && text.len() <= max {
            return;
        }
        let characters = text.chars().count();
        self.length_at_least(&at, &text, characters, min);
        self.length_at_most(at, &text, characters, max);
    }

    /// A length, however it was counted; `shown` is how the value is quoted.
    pub(crate) fn length_at_least(
        &mut self,
        at: impl Display,
        shown: &dyn Display,
        length: usize,
        min: usize,
    ) {
        if length < min {
            let constraint = format!("Member must have length greater than or equal to {min}");
            self.fail(Some(shown), &at, &constraint);
        }
    }

    /// See [`Constraints::length_at_least`].
    pub(crate) fn length_at_most(
        &mut self,
        at: impl Display,
        shown: &dyn Display,
        length: usize,
        max: usize,
    ) {
        if length > max {
            let constraint = format!("Member must have length less than or equal to {max}");
            self.fail(Some(shown), &at, &constraint);
        }
    }

    /// A list's length, of a list that the service does not quote.
    pub(crate) fn list_at_most(&mut self, at: impl Display, length: usize, max: usize) {
        if length > max {
            self.push(format!(
                "Value at '{at}' failed to satisfy constraint: Member must have length less than or equal to {max}"
            ));
        }
    }

    /// See [`Constraints::list_at_most`].
    pub(crate) fn list_at_least(&mut self, at: impl Display, length: usize, min: usize) {
        if length < min {
            self.push(format!(
                "Value at '{at}' failed to satisfy constraint: Member must have length greater than or equal to {min}"
            ));
        }
    }

    /// A number's range, both bounds inclusive.
    pub(crate) fn range(&mut self, at: &str, value: Option<i64>, min: i64, max: i64) {
        let Some(value) = value else {
            return;
        };
        if value < min {
            let constraint = format!("Member must have value greater than or equal to {min}");
            self.fail(Some(&value), &at, &constraint);
        } else if value > max {
            let constraint = format!("Member must have value less than or equal to {max}");
            self.fail(Some(&value), &at, &constraint);
        }
    }

    /// One of a set of words.
    pub(crate) fn one_of(&mut self, at: impl Display, value: Option<&str>, allowed: &[&str]) {
        if let Some(value) = value
            && !allowed.contains(&value)
        {
            let constraint =
                format!("Member must satisfy enum value set: [{}]", allowed.join(", "));
            self.fail(Some(&value), &at, &constraint);
        }
    }

    /// A failure of a constraint that only one operation has.
    pub(crate) fn other(&mut self, at: &str, shown: &dyn Display, constraint: &str) {
        self.fail(Some(shown), &at, constraint);
    }

    /// All failures as one error.
    pub(crate) fn finish(self) -> Result<(), ApiError> {
        if self.0.is_empty() {
            return Ok(());
        }
        let plural = if self.0.len() == 1 { "" } else { "s" };
        Err(ApiError::validation(format!(
            "{} validation error{plural} detected: {}",
            self.0.len(),
            self.0.join("; ")
        )))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn failures(check: impl FnOnce(&mut Constraints)) -> Vec<String> {
        let mut constraints = Constraints::new();
        check(&mut constraints);
        constraints.0
    }

    #[test]
    fn table_names() {
        let long = "a".repeat(256);
        for (name, expected) in [
            (Some("votes"), vec![]),
            (Some("a.b-c_1"), vec![]),
            (Some(&*"a".repeat(255)), vec![]),
            (None, vec!["Value null at 'tableName' failed to satisfy constraint: Member must not be null".to_owned()]),
            (Some(""), vec!["Value '' at 'tableName' failed to satisfy constraint: Member must have length greater than or equal to 1".to_owned()]),
            (Some("ab"), vec!["Value 'ab' at 'tableName' failed to satisfy constraint: Member must have length greater than or equal to 3".to_owned()]),
            (Some("a b"), vec!["Value 'a b' at 'tableName' failed to satisfy constraint: Member must satisfy regular expression pattern: [a-zA-Z0-9_.-]+".to_owned()]),
            (Some(&*long), vec![format!("Value '{long}' at 'tableName' failed to satisfy constraint: Member must have length less than or equal to 255")]),
        ] {
            assert_eq!(failures(|c| c.table_name(name)), expected, "{name:?}");
        }
    }

    #[test]
    fn failures_are_reported_together_and_bounded() {
        let mut constraints = Constraints::new();
        constraints.one_of("select", Some("X"), SELECT);
        constraints.range("limit", Some(0), 1, 100);
        assert_eq!(
            constraints.finish(),
            Err(ApiError::validation(
                "2 validation errors detected: Value 'X' at 'select' failed to satisfy constraint: Member must satisfy enum value set: [SPECIFIC_ATTRIBUTES, COUNT, ALL_ATTRIBUTES, ALL_PROJECTED_ATTRIBUTES]; Value '0' at 'limit' failed to satisfy constraint: Member must have value greater than or equal to 1"
            ))
        );
        let many = failures(|c| (0..99).for_each(|_| c.required("x", false)));
        assert_eq!(many.len(), FAILURES_MAX);
    }
}
