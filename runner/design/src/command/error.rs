//! The errors of parsing the command of an access pattern.

use template::diagnostic::{listed, similar};
use thiserror::Error;

use crate::command::operation::Operation;

/// An error in a command.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum CommandError {
    /// The text is not a command of the AWS CLI for DynamoDB.
    #[error("this is not a command of the AWS CLI for DynamoDB: it begins with `{0}`")]
    NotDynamoDb(String),
    /// The text contains more than one command.
    #[error("`{0}` outside of quotes: an access pattern must be one command")]
    Compound(char),
    /// A quote that is not closed.
    #[error("the quote `{0}` is not closed")]
    OpenQuote(char),
    /// An operation that does not read or write items.
    #[error("unknown operation `{0}`")]
    UnknownOperation(String),
    /// An unknown option.
    #[error("unknown option `--{0}`")]
    UnknownOption(String),
    /// A word at a place where an option is expected.
    #[error("unexpected word `{0}`")]
    UnexpectedWord(String),
    /// An option without its value.
    #[error("`--{0}` has no value")]
    NoValue(String),
    /// An option that occurs twice.
    #[error("`--{0}` is given twice")]
    Twice(String),
    /// A required option that is missing.
    #[error("`{command}` requires `--{option}`", command = .0.command(), option = .1)]
    Missing(Operation, &'static str),
    /// A value that is not a number.
    #[error("`--{option}` must be a whole number, not `{value}`")]
    NotNumber {
        /// The option.
        option: String,
        /// The value of the option.
        value: String,
    },
    /// A value that is not JSON.
    #[error("the value of `--{option}` is not valid JSON: {reason}")]
    NotJson {
        /// The option.
        option: String,
        /// The parse error.
        reason: String,
    },
    /// A value that is valid JSON of the wrong kind.
    #[error("the value of `--{option}` must be {wanted}")]
    OtherJson {
        /// The option.
        option: String,
        /// The kind that is required.
        wanted: &'static str,
    },
}

impl CommandError {
    /// Returns the word of the command that causes the error; `None` if there is no such word.
    #[must_use]
    pub fn word(&self) -> Option<String> {
        match self {
            Self::UnknownOperation(word) | Self::UnexpectedWord(word) => Some(word.clone()),
            Self::UnknownOption(option)
            | Self::NoValue(option)
            | Self::Twice(option)
            | Self::NotNumber { option, .. }
            | Self::NotJson { option, .. }
            | Self::OtherJson { option, .. } => Some(format!("--{option}")),
            Self::NotDynamoDb(_) | Self::Compound(_) | Self::OpenQuote(_) | Self::Missing(..) => {
                None
            }
        }
    }

    /// Returns the correction for the user.
    #[must_use]
    pub fn help(&self) -> String {
        match self {
            Self::NotDynamoDb(_) => {
                "write one command such as `aws dynamodb get-item --table-name …`".to_owned()
            }
            Self::Compound(_) => {
                "write one command for each access pattern, and quote its JSON".to_owned()
            }
            Self::OpenQuote(quote) => format!("close the string with `{quote}`"),
            Self::UnknownOperation(name) => suggestion(name, Operation::commands().collect(), ""),
            Self::UnknownOption(name) => {
                suggestion(name, super::options::names().collect(), "--")
            }
            Self::UnexpectedWord(_) => {
                "write an option such as `--table-name` before the word, or quote the complete value"
                    .to_owned()
            }
            Self::NoValue(option) => format!("write a value after `--{option}`"),
            Self::Twice(_) => "remove one of the two options".to_owned(),
            Self::Missing(_, option) => format!("add `--{option}` with its value"),
            Self::NotNumber { option, .. } => format!("write, for example, `--{option} 10`"),
            Self::NotJson { .. } => {
                "write JSON in single quotes, for example '{\"pk\":{\"S\":\"value\"}}'".to_owned()
            }
            Self::OtherJson { wanted, .. } => format!("write {wanted} in single quotes"),
        }
    }
}

fn suggestion(name: &str, known: Vec<&'static str>, before: &str) -> String {
    match similar(name, known.iter().copied()) {
        Some(meant) => format!("did you mean `{before}{meant}`?"),
        None => format!("write one of {}", listed(known)),
    }
}
