//! The kinds of failure of a migration's verbs, by what the caller must do.

use aws_sdk_dynamodb::error::{ProvideErrorMetadata, SdkError};
use control::UnexpectedState;
use thiserror::Error;

use client::sdk_error::{error_text, is_not_found, is_throttle};

/// The reason why an operation failed.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum Failure {
    /// Nothing was done. A retry may succeed soon, because DynamoDB throttled the request or another process
    /// wrote at the same time.
    #[error("{0}")]
    Retry(String),
    /// Nothing was done. A retry fails until the operator changes what the text names.
    #[error("{0}")]
    Refused(String),
    /// No response came, so the operation may have been done. The caller has to check.
    #[error("{0}")]
    Unknown(String),
    /// The operation cannot succeed.
    #[error("{0}")]
    Fatal(String),
}

/// The text of the failure that the control table does not exist.
const NOT_STARTED: &str = "no migration was started in this store";

/// The result of a step of a migration.
pub(crate) type Result<T, E = Failure> = std::result::Result<T, E>;

/// Returns a [`Failure::Fatal`] with this text.
macro_rules! fatal {
    ($($part:tt)*) => { $crate::migrate::failure::Failure::Fatal(format!($($part)*)) };
}
/// Returns a [`Failure::Refused`] with this text.
macro_rules! refused {
    ($($part:tt)*) => { $crate::migrate::failure::Failure::Refused(format!($($part)*)) };
}
pub(crate) use {fatal, refused};

impl Failure {
    /// Returns the failure of a request; `doing` describes the request.
    pub(crate) fn of_request<E>(doing: &str, error: &SdkError<E>) -> Self
    where
        E: std::error::Error + ProvideErrorMetadata + 'static,
    {
        // The table is missing because no migration has created it yet.
        if is_not_found(error) {
            return Self::Fatal(NOT_STARTED.to_owned());
        }
        let text = format!("{doing}: {}", error_text(error));
        let code = error.as_service_error().map(|service| service.code().unwrap_or_default());
        match code {
            Some(code) if is_throttle(code) => Self::Retry(text),
            Some("InternalServerError" | "ServiceUnavailable" | "") => Self::Unknown(text),
            Some(_) => Self::Fatal(text),
            // Without a response, an attempt may have been applied.
            None => Self::Unknown(text),
        }
    }

    /// Returns true if the failure is that the control table does not exist.
    pub(crate) fn is_of_missing_table(&self) -> bool {
        matches!(self, Self::Fatal(text) if text == NOT_STARTED)
    }

    /// Returns the failure of a change whose expected state differs from the migration's state.
    pub(crate) fn of_broken(name: &str, broken: &UnexpectedState) -> Self {
        Self::Refused(match broken {
            UnexpectedState::OtherPhase { phase } => {
                format!("another command moved `{name}` to {}; nothing was changed", phase.as_str())
            }
            UnexpectedState::OtherHolder => {
                format!("another command has claimed this step of `{name}` and will finish it")
            }
            UnexpectedState::LaterRun => {
                format!("a later comparison of `{name}` has started; only its result counts")
            }
        })
    }

    /// Returns the failure with a changed text and the same kind.
    #[must_use]
    pub(crate) fn with(self, words: impl FnOnce(String) -> String) -> Self {
        match self {
            Self::Retry(text) => Self::Retry(words(text)),
            Self::Refused(text) => Self::Refused(words(text)),
            Self::Unknown(text) => Self::Unknown(words(text)),
            Self::Fatal(text) => Self::Fatal(words(text)),
        }
    }
}

impl From<String> for Failure {
    fn from(text: String) -> Self {
        Self::Fatal(text)
    }
}

impl From<&str> for Failure {
    fn from(text: &str) -> Self {
        Self::Fatal(text.to_owned())
    }
}

/// For callers that only show the text.
impl From<Failure> for String {
    fn from(failure: Failure) -> Self {
        failure.to_string()
    }
}
