//! The data of the page, and its JSON twin.

use serde::Serialize;

/// What the page shows.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct View {
    /// The version of this document.
    pub(crate) schema: &'static str,
    /// Whether a `weir up` reads the streams.
    pub(crate) runs: bool,
    /// The streams of the store.
    pub(crate) streams: Vec<Stream>,
}

/// A stream.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Stream {
    /// Its table.
    pub(crate) table: String,
    /// Its ARN.
    pub(crate) arn: String,
}
