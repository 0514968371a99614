//! The errors of expressions, with DynamoDB's error messages.
//!
//! The server creates the messages that contain the name of an operation or a table.

use std::fmt;

use model::number::NumberError;
use thiserror::Error;

/// The reason why an expression of a request is rejected. `Display` is the message of the
/// `ValidationException`.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{text}")]
pub struct ExpressionError {
    text: String,
    /// The part of the message that reports the size of an expression or value that is too large;
    /// empty for all other errors.
    size: String,
}

impl ExpressionError {
    pub(crate) fn new(text: impl Into<String>) -> Self {
        Self { text: text.into(), size: String::new() }
    }

    /// Returns the message with the size of the expression or value that is too large. DynamoDB
    /// reports the size of an expression only in the filter of a `Scan` and in conditions of
    /// transactions, and the size of a value placeholder in all requests except a `Scan`.
    #[must_use]
    pub fn with_size(&self) -> String {
        format!("{}{}", self.text, self.size)
    }

    /// Creates a message that can be reported with and without a size.
    pub(crate) fn of_size(text: impl Into<String>, size: String) -> Self {
        Self { text: text.into(), size }
    }
}

/// The request parameter that contains an expression. Error messages contain the parameter's name.
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
    /// Returns the name of the parameter.
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

    /// Returns the error `Invalid <parameter>: <problem>`.
    pub(crate) fn invalid(self, problem: impl fmt::Display) -> ExpressionError {
        ExpressionError::new(format!("Invalid {}: {problem}", self.parameter()))
    }

    /// Returns the error for an expression that is too large, with its size in bytes.
    pub(crate) fn too_large(self, bytes: usize) -> ExpressionError {
        let refusal = self.invalid("Expression size has exceeded the maximum allowed size;");
        ExpressionError::of_size(refusal.text, format!(" expression size: {bytes}"))
    }
}

/// The reason why an update cannot be applied to an item. `Display` is the message of the
/// `ValidationException`.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum UpdateError {
    /// An operand has a type that its operator or function does not accept.
    #[error("An operand in the update expression has an incorrect data type")]
    IncorrectType,
    /// An action of `AttributeUpdates` has an operand of a wrong type.
    #[error("Type mismatch for attribute to update")]
    TypeMismatch,
    /// The parent of a nested path is missing, or is not the map or list that the path requires.
    #[error("The document path provided in the update expression is invalid for update")]
    InvalidPath,
    /// `SET` reads an attribute that the item does not have.
    #[error("The provided expression refers to an attribute that does not exist in the item")]
    MissingAttribute,
    /// A sum or difference is not a valid DynamoDB number.
    #[error(transparent)]
    Number(#[from] NumberError),
    /// A value would exceed the maximum nesting of maps and lists.
    #[error("Nesting Levels have exceeded supported limits")]
    TooDeep,
    /// The values to be written exceed the item size limit, even without the other attributes of
    /// the item.
    #[error("Item size to update has exceeded the maximum allowed size")]
    TooLarge,
}
