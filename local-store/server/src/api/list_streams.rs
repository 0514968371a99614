//! `ListStreams`: returns all streams that can be read, or the streams of one table, in pages.
//!
//! Streams are ordered by table name, then by label. A disabled stream is listed until all its records
//! are trimmed. A page may start after a stream that no longer exists, so that a client can list
//! streams while tables are deleted.

use model::limits::LIST_STREAMS_MAX;

use super::answer::{begin_member, text_member};
use super::constraints::Constraints;
use super::error::ApiError;
use super::parameters::Parameters;
use super::streams::{StreamName, constrain_arn_at, stream_arn};
use super::tables;
use crate::store::Store;

pub(super) fn list_streams(store: &Store, parameters: Parameters<'_>) -> Result<String, ApiError> {
    let name = parameters.string("TableName")?;
    let limit = parameters.integer("Limit")?;
    let start = parameters.string("ExclusiveStartStreamArn")?;
    let mut constraints = Constraints::new();
    if name.is_some() {
        constraints.table_name(name);
    }
    constraints.range("limit", limit, 1, i64::try_from(LIST_STREAMS_MAX).unwrap_or(i64::MAX));
    constrain_arn_at(&mut constraints, "exclusiveStartStreamArn", start);
    constraints.finish()?;

    let only = name.map(|name| tables::find_for_settings(store, name)).transpose()?;
    let start = start.map(|arn| StreamName::read(store, arn)).transpose()?;
    let limit = limit.and_then(|limit| usize::try_from(limit).ok()).unwrap_or(LIST_STREAMS_MAX);
    let catalogue = store.catalogue();
    let mut streams = catalogue
        .by_name()
        .filter(|table| store.owns(table))
        .filter(|table| only.as_ref().is_none_or(|only| only.id == table.id))
        .flat_map(|table| table.streams.iter().map(move |stream| (table, stream)))
        .filter(|(table, stream)| start.as_ref().is_none_or(|start| start.is_before(table, stream)))
        .peekable();

    let mut out = String::from("{");
    begin_member(&mut out, "Streams");
    out.push('[');
    let mut last = None;
    for (table, stream) in streams.by_ref().take(limit) {
        let arn = stream_arn(store, table, stream).to_string();
        out.push_str(if last.is_some() { ",{" } else { "{" });
        text_member(&mut out, "StreamArn", &arn);
        text_member(&mut out, "TableName", &table.name);
        text_member(&mut out, "StreamLabel", &stream.label);
        out.push('}');
        last = Some(arn);
    }
    out.push(']');
    if let Some(last) = last.filter(|_| streams.peek().is_some()) {
        text_member(&mut out, "LastEvaluatedStreamArn", &last);
    }
    out.push('}');
    Ok(out)
}
