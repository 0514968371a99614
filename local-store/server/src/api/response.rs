//! The response to a request. The module `http` converts it to an HTTP response.

/// A response.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Response {
    /// The HTTP status: 200, or the status of the error's type.
    pub status: u16,
    /// The body as JSON.
    pub body: String,
}
