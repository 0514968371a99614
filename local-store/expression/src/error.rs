//! What can be wrong with an expression, in DynamoDB's words.
//!
//! Texts that name an operation or a table are not here: the server writes those.

use std::fmt;

use model::number::NumberError;
use thiserror::Error;

/// Why a request's expressions are refused. `Display` is the message of the
/// `ValidationException`.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{text}")]
pub struct ExpressionError {
    text: String,
    /// How large it is, of what is too large; empty of all else.
    size: String,
}

impl ExpressionError {
    pub(crate) fn new(text: impl Into<String>) -> Self {
        Self { text: text.into(), size: String::new() }
    }

    /// The message with the size of what is too long, as it was told everywhere: by now of an
    /// expression only in the filter of a `Scan` and in conditions of transactions, and of the
    /// placeholder of a value everywhere but in a `Scan`.
    #[must_use]
    pub fn with_size(&self) -> String {
        format!("{}{}", self.text, self.size)
    }

    /// A message that can be told with and without a size.
    pub(crate) fn of_size(text: impl Into<String>, size: String) -> Self {
        Self { text: text.into(), size }
    }
}

/// The parameter that an expression came in; its name stands in the error texts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExpressionKind {
    /// `ConditionExpression`.
    Condition,
    /// `FilterExpression`.
    Filter,
    /// `KeyConditionExpression`.
    KeyCondition,
    /// `ProjectionExpression`.
    Projection,
    /// `UpdateExpression`.
    Update,
}

impl ExpressionKind {
    /// The name of the parameter.
    #[must_use]
    pub fn parameter(self) -> &'static str {
        match self {
            Self::Condition => "ConditionExpression",
            Self::Filter => "FilterExpression",
            Self::KeyCondition => "KeyConditionExpression",
            Self::Projection => "ProjectionExpression",
            Self::Update => "UpdateExpression",
        }
    }

    /// `Invalid <parameter>: <problem>`.
    pub(crate) fn invalid(self, problem: impl fmt::Display) -> ExpressionError {
        ExpressionError::new(format!("Invalid {}: {problem}", self.parameter()))
    }

    /// The refusal of an expression of so many bytes.
    pub(crate) fn too_large(self, bytes: usize) -> ExpressionError {
        let refusal = self.invalid("Expression size has exceeded the maximum allowed size;");
        ExpressionError::of_size(refusal.text, format!(" expression size: {bytes}"))
    }
}

/// Why an update cannot be applied to an item. `Display` is the message of the
/// `ValidationException`.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum UpdateError {
    /// An operand that has another type than its operator or function needs.
    #[error("An operand in the update expression has an incorrect data type")]
    IncorrectType,
    /// The same of an action of `AttributeUpdates`.
    #[error("Type mismatch for attribute to update")]
    TypeMismatch,
    /// A nested path whose parent is missing, or is not a map or list as the path needs.
    #[error("The document path provided in the update expression is invalid for update")]
    InvalidPath,
    /// `SET` reads an attribute that the item does not have.
    #[error("The provided expression refers to an attribute that does not exist in the item")]
    MissingAttribute,
    /// A sum or difference that is no DynamoDB number.
    #[error(transparent)]
    Number(#[from] NumberError),
    /// A value that would stand deeper than maps and lists may be nested.
    #[error("Nesting Levels have exceeded supported limits")]
    TooDeep,
    /// The written values alone are larger than an item may be.
    #[error("Item size to update has exceeded the maximum allowed size")]
    TooLarge,
}
