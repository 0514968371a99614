//! The constraints that DynamoDB checks before all other rules and reports together, in the form `2
//! validation errors detected: …; …`.
//!
//! A constraint concerns one parameter. Each operation checks rules about several parameters later.

use std::fmt::{Display, Write as _};

use model::limits::{TABLE_NAME_LENGTH_MAX, TABLE_NAME_LENGTH_MIN};

use super::error::ApiError;

/// The maximum number of failures in one response, as in DynamoDB.
const FAILURES_MAX: usize = 10;

/// The pattern of table and index names, as DynamoDB's error messages quote it.
const NAME_PATTERN: &str = "[a-zA-Z0-9_.-]+";

/// The values of `ReturnConsumedCapacity`.
pub(crate) const RETURN_CONSUMED_CAPACITY: &[&str] = &["INDEXES", "TOTAL", "NONE"];
/// The values of `ReturnItemCollectionMetrics`.
pub(crate) const RETURN_ITEM_COLLECTION_METRICS: &[&str] = &["SIZE", "NONE"];
/// The values of `ReturnValues`.
pub(crate) const RETURN_VALUES: &[&str] =
    &["ALL_NEW", "UPDATED_OLD", "ALL_OLD", "NONE", "UPDATED_NEW"];
/// The values of `ReturnValues` in the form in which most error messages list them. `UPDATE_NEW` is
/// a spelling error of DynamoDB.
pub(crate) const RETURN_VALUES_SHOWN: &[&str] =
    &["ALL_OLD", "UPDATED_OLD", "ALL_NEW", "UPDATE_NEW", "NONE"];
/// The values of `ReturnValuesOnConditionCheckFailure`.
pub(crate) const RETURN_VALUES_ON_FAILURE: &[&str] = &["ALL_OLD", "NONE"];
/// The values of `Select`.
pub(crate) const SELECT: &[&str] =
    &["SPECIFIC_ATTRIBUTES", "COUNT", "ALL_ATTRIBUTES", "ALL_PROJECTED_ATTRIBUTES"];

/// Returns the failure of a value that is not in `shown`. The message does not name the parameter.
pub(crate) fn unnamed_enum(shown: &[&str]) -> String {
    format!(
        "Failed to satisfy constraint: Member must satisfy enum value set: [{}]",
        shown.join(", ")
    )
}

/// The constraint failures of a request.
#[derive(Debug, Default)]
pub(crate) struct Constraints(Vec<String>);

fn is_in_name(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'.' | b'-')
}

/// Returns whether a string is a valid name of a table or an index.
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

    /// Checks that the parameter is present. In all functions of this type, `at` is the parameter's
    /// name in error messages, which is formatted only if the check fails.
    pub(crate) fn required(&mut self, at: impl Display, is_present: bool) {
        if !is_present {
            self.fail(None, &at, "Member must not be null");
        }
    }

    /// Checks that a value is one of `allowed`, for operations whose errors neither name nor quote
    /// the parameter.
    pub(crate) fn unnamed_one_of(&mut self, value: Option<&str>, allowed: &[&str], shown: &[&str]) {
        if value.is_some_and(|value| !allowed.contains(&value)) {
            self.push(unnamed_enum(shown));
        }
    }

    /// Adds the failure of an empty name, for operations whose errors do not quote the name.
    pub(crate) fn empty_name(&mut self, at: &str) {
        self.push(format!(
            "Value at '{at}' failed to satisfy constraint: Member must have length greater than or equal to 1"
        ));
    }

    /// Adds the failure of a number below its minimum, for operations whose errors do not quote the
    /// number.
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

    /// Checks `TableName`, which must be present.
    pub(crate) fn table_name(&mut self, name: Option<&str>) {
        match name {
            None => self.required("tableName", false),
            // The name may also be the ARN of the table.
            Some(name) if name.starts_with("arn:") => {}
            Some(name) => self.name("tableName", name),
        }
    }

    /// Checks `TableName` for an operation on the table's settings.
    pub(crate) fn name_of_settings(&mut self, name: &str) {
        if !name.starts_with("arn:") {
            self.own_name("tableName", name);
        }
    }

    /// Checks the name of a table or index.
    pub(crate) fn name(&mut self, at: &str, name: &str) {
        if name.is_empty() {
            return self.length_at_least(at, &name, 0, 1);
        }
        if !name.bytes().all(is_in_name) {
            self.not_the_pattern(at, name);
        }
        self.length(at, name, TABLE_NAME_LENGTH_MIN, TABLE_NAME_LENGTH_MAX);
    }

    /// Checks a name in an operation that creates or changes tables and indexes. For an empty name,
    /// such operations report two failures.
    pub(crate) fn own_name(&mut self, at: &str, name: &str) {
        if !name.is_empty() {
            return self.name(at, name);
        }
        self.length_at_least(at, &name, 0, TABLE_NAME_LENGTH_MIN);
        self.not_the_pattern(at, name);
    }

    /// Checks a name in an operation that reports the name before a list. In such an operation, the
    /// two failures of an empty name are in reverse order.
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

    /// Checks the length of a string in characters, both bounds inclusive.
    pub(crate) fn length(&mut self, at: impl Display, text: &str, min: usize, max: usize) {
        // A character has 1 to 4 bytes, so counting bytes usually avoids counting characters.
        if text.len() >= min.saturating_mul(4) && text.len() <= max {
            return;
        }
        let characters = text.chars().count();
        self.length_at_least(&at, &text, characters, min);
        self.length_at_most(at, &text, characters, max);
    }

    /// Checks a length against its minimum. `shown` is the value in the failure.
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

    /// Checks a length against its maximum. `shown` is the value in the failure.
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

    /// Checks the maximum length of a list. The failure does not quote the list.
    pub(crate) fn list_at_most(&mut self, at: impl Display, length: usize, max: usize) {
        if length > max {
            self.push(format!(
                "Value at '{at}' failed to satisfy constraint: Member must have length less than or equal to {max}"
            ));
        }
    }

    /// Checks the minimum length of a list. The failure does not quote the list.
    pub(crate) fn list_at_least(&mut self, at: impl Display, length: usize, min: usize) {
        if length < min {
            self.push(format!(
                "Value at '{at}' failed to satisfy constraint: Member must have length greater than or equal to {min}"
            ));
        }
    }

    /// Checks the range of a number, both bounds inclusive.
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

    /// Checks that a value is one of `allowed`.
    pub(crate) fn one_of(&mut self, at: impl Display, value: Option<&str>, allowed: &[&str]) {
        if let Some(value) = value
            && !allowed.contains(&value)
        {
            let constraint =
                format!("Member must satisfy enum value set: [{}]", allowed.join(", "));
            self.fail(Some(&value), &at, &constraint);
        }
    }

    /// Adds the failure of a constraint for which `Constraints` has no function.
    pub(crate) fn other(&mut self, at: &str, shown: &dyn Display, constraint: &str) {
        self.fail(Some(shown), &at, constraint);
    }

    /// Returns all failures as one error.
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
