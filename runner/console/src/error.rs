//! The errors of pages and actions, with their messages and HTTP status codes.

use http::StatusCode;
use maud::{Markup, html};
use serde_json::{Value, json};

use client::failure::Failure;

/// The error of a page or an action. Each variant tells the user what to do next.
#[derive(Debug, thiserror::Error)]
pub(crate) enum PageError {
    /// The requested thing does not exist: choose another name.
    #[error("{what} does not exist")]
    NotFound {
        /// The thing that was requested, such as ``table `orders` ``.
        what: String,
    },
    /// A value of the request is invalid: write another value.
    #[error("{place}: {what}; write instead: {instead}")]
    BadInput {
        /// The problem of the value.
        what: String,
        /// The field, or the part of the path, with the value.
        place: String,
        /// The values that are accepted.
        instead: String,
    },
    /// The store, or the data folder of `weir up`, did not answer: try again, or repair the store.
    #[error("{0}")]
    Store(String),
    /// The data has changed since the page of the action was loaded: load the page again.
    #[error("{0}")]
    Conflict(String),
    /// The action is not allowed, and nothing was changed.
    #[error("refused: {0}")]
    Refused(String),
}

impl From<Failure> for PageError {
    fn from(failure: Failure) -> Self {
        match failure {
            Failure::Refused(why) => Self::Refused(why),
            Failure::Retry(why) | Failure::Unknown(why) | Failure::Fatal(why) => Self::Store(why),
        }
    }
}

impl PageError {
    /// Returns the error of a value that is not accepted.
    pub(crate) fn bad_input(
        place: &str,
        what: impl Into<String>,
        instead: impl Into<String>,
    ) -> Self {
        Self::BadInput { what: what.into(), place: place.to_owned(), instead: instead.into() }
    }

    /// Returns the HTTP status code of the response.
    pub(crate) fn status(&self) -> StatusCode {
        match self {
            Self::NotFound { .. } => StatusCode::NOT_FOUND,
            Self::BadInput { .. } => StatusCode::BAD_REQUEST,
            Self::Store(_) => StatusCode::BAD_GATEWAY,
            Self::Conflict(_) => StatusCode::CONFLICT,
            Self::Refused(_) => StatusCode::FORBIDDEN,
        }
    }

    /// Returns the heading of the page.
    pub(crate) fn title(&self) -> &'static str {
        match self {
            Self::NotFound { .. } => "Not found",
            Self::BadInput { .. } => "Wrong input",
            Self::Store(_) => "No answer from the store",
            Self::Conflict(_) => "Conflict with another change",
            Self::Refused(_) => "Refused",
        }
    }

    /// Returns the error as JSON.
    pub(crate) fn json(&self) -> Value {
        let kind = match self {
            Self::NotFound { .. } => "NotFound",
            Self::BadInput { .. } => "BadInput",
            Self::Store(_) => "Store",
            Self::Conflict(_) => "Conflict",
            Self::Refused(_) => "Refused",
        };
        json!({"schema": "weir.console.error/v1", "error": kind, "message": self.to_string()})
    }

    /// Returns the error as HTML.
    pub(crate) fn html(&self) -> Markup {
        html! {
            h1 { (self.title()) }
            p.error role="alert" { (self.to_string()) }
            p { a href="/pipelines" { "Pipelines" } " shows what runs." }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_is_escaped_and_has_a_status() {
        let error = PageError::NotFound { what: "table `<script>`".to_owned() };
        assert_eq!(error.status(), StatusCode::NOT_FOUND);
        let html = error.html().into_string();
        assert!(html.contains("table `&lt;script&gt;` does not exist"), "{html}");
        let error = PageError::bad_input("key", "not JSON", "{\"id\":1}");
        assert_eq!(error.to_string(), "key: not JSON; write instead: {\"id\":1}");
        assert_eq!(error.json()["error"], "BadInput");
    }
}
