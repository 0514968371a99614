//! The response to a request, before HTTP.

/// A response.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Response {
    /// The HTTP status: 200, or the status of the error's type.
    pub status: u16,
    /// The body as JSON.
    pub body: String,
}
