//! Responses of the admin endpoint: a status and JSON.
//!
//! `admin` and `partitions` have the requests and the contents of the responses.

use std::sync::Arc;

use http::StatusCode;
use model::json;
use partition::{Stream, Table};
use thiserror::Error;

use crate::store::Store;

/// The status and the JSON of a response.
pub(super) struct Answer {
    pub(super) status: StatusCode,
    pub(super) body: String,
}

/// The reason why the body of a request is invalid: refuse the request.
#[derive(Debug, Error)]
#[error("{0}")]
pub(super) struct InvalidBody(String);

impl<T: Into<String>> From<T> for InvalidBody {
    fn from(reason: T) -> Self {
        Self(reason.into())
    }
}

pub(super) fn success(body: String) -> Answer {
    Answer { status: StatusCode::OK, body }
}

pub(super) fn refusal(status: StatusCode, what: &str, place: &str, instead: &str) -> Answer {
    let mut body = String::from("{");
    for (name, text) in [("what", what), ("where", place), ("instead", instead)] {
        body.push_str(if body.len() > 1 { "," } else { "" });
        json::write_string(&mut body, name);
        body.push(':');
        json::write_string(&mut body, text);
    }
    body.push('}');
    Answer { status, body }
}

/// Finds the table with a name. The error for an unknown name lists the existing tables.
pub(super) fn find_table(store: &Store, name: &str, place: &str) -> Result<Arc<Table>, Answer> {
    let catalogue = store.catalogue();
    store.find_table(name).ok_or_else(|| {
        let own = catalogue.by_name().filter(|table| store.owns(table));
        let names: Vec<&str> = own.map(|table| table.name.as_str()).collect();
        let instead = format!("the name of an existing table: {}", names.join(", "));
        refusal(StatusCode::NOT_FOUND, "the table does not exist", place, &instead)
    })
}

/// Returns the latest stream of a table.
pub(super) fn last_stream<'t>(table: &'t Table, place: &str) -> Result<&'t Stream, Answer> {
    table.streams.last().ok_or_else(|| {
        let instead = "the name of a table with a stream";
        refusal(StatusCode::NOT_FOUND, "the table has no stream", place, instead)
    })
}
