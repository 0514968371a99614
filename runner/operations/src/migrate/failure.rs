//! Why a verb of a migration did not do what it was asked for, named by what its caller must do.

use aws_sdk_dynamodb::error::{ProvideErrorMetadata, SdkError};
use control::Broken;
use thiserror::Error;

use client::sdk_error::{error_text, is_not_found, is_throttle};

/// Why something was not done.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum Failure {
    /// Nothing was done. The same may succeed a moment later: DynamoDB throttles, or others write.
    #[error("{0}")]
    Retry(String),
    /// Nothing was done, and nothing is until somebody changes what the text names.
    #[error("{0}")]
    Refused(String),
    /// No answer came: it may have been done, so look first.
    #[error("{0}")]
    Unknown(String),
    /// It cannot be done.
    #[error("{0}")]
    Fatal(String),
}

/// What a step of a migration gives.
pub(crate) type Result<T, E = Failure> = std::result::Result<T, E>;

/// A [`Failure::Fatal`] with this text.
macro_rules! fatal {
    ($($part:tt)*) => { $crate::migrate::failure::Failure::Fatal(format!($($part)*)) };
}
/// A [`Failure::Refused`] with this text.
macro_rules! refused {
    ($($part:tt)*) => { $crate::migrate::failure::Failure::Refused(format!($($part)*)) };
}
pub(super) use {fatal, refused};

impl Failure {
    /// The failure of a request; `doing` names the request for people.
    pub(super) fn of_request<E>(doing: &str, error: &SdkError<E>) -> Self
    where
        E: std::error::Error + ProvideErrorMetadata + 'static,
    {
        // The first migration makes the control table.
        if is_not_found(error) {
            return Self::Fatal("no migration was begun in this store".to_owned());
        }
        let text = format!("{doing}: {}", error_text(error));
        let code = error.as_service_error().map(|service| service.code().unwrap_or_default());
        match code {
            Some(code) if is_throttle(code) => Self::Retry(text),
            Some("InternalServerError" | "ServiceUnavailable" | "") => Self::Unknown(text),
            Some(_) => Self::Fatal(text),
            // An attempt before the last one may have been written.
            None => Self::Unknown(text),
        }
    }

    /// The failure of a change whose state is not what it expects.
    pub(super) fn of_broken(name: &str, broken: &Broken) -> Self {
        Self::Refused(match broken {
            Broken::Moved { phase } => format!(
                "somebody else moved `{name}`, it is {} now; nothing was changed",
                phase.as_str()
            ),
            Broken::TakenOver => {
                format!("somebody else took over what was begun with `{name}`; it is theirs to end")
            }
            Broken::LaterRun => {
                format!("a later comparison of `{name}` was begun meanwhile; its result counts")
            }
        })
    }

    /// Adds words to the text; what its caller must do stays.
    #[must_use]
    pub(super) fn with(self, words: impl FnOnce(String) -> String) -> Self {
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

/// For programs that tell a person alone.
impl From<Failure> for String {
    fn from(failure: Failure) -> Self {
        failure.to_string()
    }
}
