//! The two ways in which the service words what is wrong with values and placeholders.
//!
//! Since the middle of 2026 it words them anew, operation by operation. Which operation has which is
//! said where the operation is.

use model::json::ValueFault;

use super::error::ApiError;

/// How an operation words it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wording {
    /// As `PutItem`, `UpdateItem`, `DeleteItem`, `GetItem`, `BatchGetItem` and `Query` do.
    Current,
    /// As it was everywhere: `Scan`, `BatchWriteItem`, transactions and PartiQL.
    Older,
}

impl Wording {
    /// The error of a wrong value.
    pub(crate) fn tell(self, wrong: &WrongValue) -> ApiError {
        match self {
            Self::Current => wrong.current(),
            Self::Older => wrong.older(),
        }
    }
}

/// A value, or what is wrong with it, to be told when its turn has come.
pub(crate) type Checked<T> = Result<T, WrongValue>;

/// A value that is none, and where it stood if that is told.
#[derive(Clone, Debug)]
pub(crate) struct WrongValue {
    fault: ValueFault,
    /// The placeholder whose value it is.
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
    /// The same as the value of a placeholder.
    pub(crate) fn of_placeholder(self, name: &str) -> Self {
        Self { placeholder: Some(name.to_owned()), ..self }
    }

    /// In today's words, which do not name the placeholder.
    pub(crate) fn current(&self) -> ApiError {
        ApiError::validation(self.fault.current())
    }

    /// Whether nothing is told before it of where the value stood.
    pub(crate) fn stands_alone(&self) -> bool {
        self.fault.stands_alone()
    }

    /// In the words of before.
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
