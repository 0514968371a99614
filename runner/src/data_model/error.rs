//! Why `weir model` fails.

use std::io;

use design::PricesError;
use server::gate::BindError;
use server::store::OpenError;
use thiserror::Error;

/// A failure of `weir model`.
#[derive(Debug, Error)]
pub enum ModelError {
    /// A file cannot be read.
    #[error("cannot read `{name}`: {source}")]
    File {
        /// The file.
        name: String,
        /// Why.
        source: io::Error,
    },
    /// A file is not a list of prices.
    #[error("`{name}`: {source}")]
    Prices {
        /// The file.
        name: String,
        /// What is wrong.
        source: PricesError,
    },
    /// There is no temporary folder for the store.
    #[error("cannot create a temporary folder: {0}; set TMPDIR to a folder that can be written")]
    Folder(io::Error),
    /// The temporary store cannot be opened.
    #[error(transparent)]
    Store(#[from] OpenError),
    /// The port of the kept store cannot be used.
    #[error(transparent)]
    Port(#[from] BindError),
    /// An existing table cannot be read. The text is for the user.
    #[error("{0}")]
    Endpoint(String),
}

/// Converts the failure for the command line, which shows it.
impl From<ModelError> for String {
    fn from(error: ModelError) -> Self {
        error.to_string()
    }
}
