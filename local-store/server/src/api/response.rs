//! What a request is answered with, before HTTP.

/// What a request is answered with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Response {
    /// The HTTP status: 200, or what the error's type asks for.
    pub status: u16,
    /// JSON.
    pub body: String,
}
