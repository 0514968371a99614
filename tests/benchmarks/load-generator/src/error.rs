//! The result type of the tool's steps.

use std::error::Error;

/// The result of a step of the tool. Its error is only printed.
pub(crate) type Result<T> = std::result::Result<T, Box<dyn Error + Send + Sync>>;
