//! The request of the page as code: AWS CLI, Python, JavaScript and Rust.
//!
//! Each submodule generates one language, and quotes strings for it. All programs read the endpoint
//! and the credentials from the environment, so that the same code runs on AWS.

mod command_line;
mod javascript;
mod python;
mod rust;

use serde::Serialize;

use super::request::Request;

/// A request as code in four languages.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Code {
    /// A command of the AWS CLI for a POSIX shell.
    pub(crate) cli: String,
    /// Python with boto3.
    pub(crate) python: String,
    /// JavaScript with the AWS SDK v3.
    pub(crate) javascript: String,
    /// Rust with the AWS SDK.
    pub(crate) rust: String,
}

impl Code {
    /// Generates the code of a request.
    pub(crate) fn of(request: &Request) -> Self {
        Self {
            cli: command_line::code(request),
            python: python::code(request),
            javascript: javascript::code(request),
            rust: rust::code(request),
        }
    }
}

#[cfg(test)]
mod tests;
