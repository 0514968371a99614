//! Failures that occur only in migrations.

use aws_sdk_dynamodb::error::{ProvideErrorMetadata, SdkError};
use control::UnexpectedState;

pub use client::failure::Failure;
pub(crate) use client::failure::{Result, fatal, refused};
use client::sdk_error::is_not_found;

/// The error message if the control table does not exist.
const NOT_STARTED: &str = "no migration was started in this store";

/// Returns the failure of a request; `doing` is the beginning of the error message, such as "cannot
/// read the control table".
pub(crate) fn of_request<E>(doing: &str, error: &SdkError<E>) -> Failure
where
    E: std::error::Error + ProvideErrorMetadata + 'static,
{
    // The table is missing because no migration has created it yet.
    if is_not_found(error) {
        return Failure::from(NOT_STARTED);
    }
    Failure::from(error).with(|text| format!("{doing}: {text}"))
}

/// Returns true if the cause of the failure is that the control table does not exist.
pub(crate) fn is_of_missing_table(failure: &Failure) -> bool {
    matches!(failure, Failure::Fatal(text) if text == NOT_STARTED)
}

/// Returns the failure of a change that was refused because the migration's state is not the
/// expected one.
pub(crate) fn of_broken(name: &str, broken: &UnexpectedState) -> Failure {
    Failure::Refused(match broken {
        UnexpectedState::OtherPhase { phase } => {
            format!("another command moved `{name}` to {}; nothing was changed", phase.as_str())
        }
        UnexpectedState::OtherHolder => {
            format!(
                "another command is already carrying out this operation on `{name}` and will finish it"
            )
        }
        UnexpectedState::LaterRun => {
            format!("a later comparison of `{name}` has started; only its result counts")
        }
    })
}
