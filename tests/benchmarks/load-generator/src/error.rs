//! What the steps of the tool return.

use std::error::Error;

/// What a step of the tool returns; an error is only ever printed.
pub(crate) type Result<T> = std::result::Result<T, Box<dyn Error + Send + Sync>>;
