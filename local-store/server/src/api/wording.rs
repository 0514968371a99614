//! DynamoDB's two sets of error messages for values and placeholders.
//!
//! DynamoDB has new messages since mid-2026, but only for some operations. The file of each operation
//! selects the set.

use model::json::ValueFault;

use super::error::ApiError;

/// A set of error messages. Each operation uses one of the sets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wording {
    /// DynamoDB's newer messages, for `PutItem`, `UpdateItem`, `DeleteItem`, `GetItem`,
    /// `BatchGetItem` and `Query`.
    Current,
    /// DynamoDB's older messages, for `Scan`, `BatchWriteItem`, transactions and PartiQL.
    Older,
}

impl Wording {
    /// Returns the error for an invalid value.
    pub(crate) fn error(self, wrong: &WrongValue) -> ApiError {
        match self {
            Self::Current => wrong.current(),
            Self::Older => wrong.older(),
        }
    }
}

/// A value, or the reason why it is invalid. The operation reports the reason when it checks the value.
pub(crate) type Checked<T> = Result<T, WrongValue>;

/// The reason why a value is invalid, and the placeholder of the value.
#[derive(Clone, Debug)]
pub(crate) struct WrongValue {
    fault: ValueFault,
    /// The placeholder of the value.
    placeholder: Option<String>,
}

impl From<ValueFault> for WrongValue {
    fn from(fault: ValueFault) -> Self {
        Self { fault, placeholder: None }
    }
}

impl From<&str> for WrongValue {
    fn from(text: &str) -> Self {
        ValueFault::from(text).into()
    }
}

impl From<String> for WrongValue {
    fn from(text: String) -> Self {
        ValueFault::from(text).into()
    }
}

impl WrongValue {
    /// Adds the name of the placeholder that stands for the value.
    pub(crate) fn of_placeholder(self, name: &str) -> Self {
        Self { placeholder: Some(name.to_owned()), ..self }
    }

    /// Returns the error with the newer message, which does not contain the placeholder.
    pub(crate) fn current(&self) -> ApiError {
        ApiError::validation(self.fault.current())
    }

    /// Returns whether both sets of messages report the error without the placeholder.
    pub(crate) fn stands_alone(&self) -> bool {
        self.fault.stands_alone()
    }

    /// Returns the error with the message that DynamoDB used before 2026.
    pub(crate) fn older(&self) -> ApiError {
        let text = self.fault.older();
        ApiError::validation(match &self.placeholder {
            None => text.to_owned(),
            Some(name) => {
                format!("ExpressionAttributeValues contains invalid value: {text} for key {name}")
            }
        })
    }
}
