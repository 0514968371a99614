//! Failures, named by what must be done about them.
//!
//! A record that no retry can help is not a failure but a `rules::Refusal`.

use lambda_runtime::Diagnostic;
use thiserror::Error;

/// Why something could not be done.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum Failure {
    /// It may work later: hand the records back.
    #[error("{0}")]
    Retry(String),
    /// The deployment is wrong: fail the invocation, so that somebody sees it. The records are
    /// handed back as well.
    #[error("{0}")]
    Fatal(String),
}

impl Failure {
    /// The same, with a name for what it happened to.
    #[must_use]
    pub fn within(self, what: &str) -> Self {
        match self {
            Self::Retry(reason) => Self::Retry(format!("{what}: {reason}")),
            Self::Fatal(reason) => Self::Fatal(format!("{what}: {reason}")),
        }
    }
}

impl From<Failure> for Diagnostic {
    fn from(failure: Failure) -> Self {
        let error_type = match &failure {
            Failure::Retry(_) => "Retry",
            Failure::Fatal(_) => "Fatal",
        };
        Self { error_type: error_type.to_owned(), error_message: failure.to_string() }
    }
}
