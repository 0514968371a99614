//! Finds the stream and the shard that a request names.

use std::sync::Arc;

use model::arn::StreamArn;
use partition::{Shard, Stream, Table, TableName};

use super::constraints::Constraints;
use super::error::ApiError;
use super::tables::table_arn;
use crate::store::Store;

/// The minimum and maximum length of the ARN of a stream, as in DynamoDB.
const STREAM_ARN_LENGTH: (usize, usize) = (37, 1024);
const SHARD_ID_LENGTH: (usize, usize) = (28, 65);

/// Returns the ARN of a stream of this store.
pub(crate) fn stream_arn(store: &Store, table: &Table, stream: &Stream) -> StreamArn {
    StreamArn { table: table_arn(store, &table.name), label: stream.label.clone() }
}

/// Checks `StreamArn`, which must be present.
pub(crate) fn constrain_arn(constraints: &mut Constraints, arn: Option<&str>) {
    constraints.required("streamArn", arn.is_some());
    constrain_arn_at(constraints, "streamArn", arn);
}

/// Checks the ARN of a stream, if present.
pub(crate) fn constrain_arn_at(constraints: &mut Constraints, at: &str, arn: Option<&str>) {
    if let Some(arn) = arn {
        constraints.length(at, arn, STREAM_ARN_LENGTH.0, STREAM_ARN_LENGTH.1);
    }
}

/// Checks the id of a shard, if present.
pub(crate) fn constrain_shard_id(constraints: &mut Constraints, at: &str, id: Option<&str>) {
    if let Some(id) = id {
        constraints.length(at, id, SHARD_ID_LENGTH.0, SHARD_ID_LENGTH.1);
    }
}

/// The name of a stream of this store, which may not exist.
pub(crate) struct StreamName {
    table: TableName,
    label: String,
}

impl StreamName {
    /// Parses an ARN.
    ///
    /// # Errors
    /// `given` is not the ARN of a stream, or the stream is in another account or Region.
    pub(crate) fn read(store: &Store, given: &str) -> Result<Self, ApiError> {
        let arn: StreamArn = given
            .parse()
            .map_err(|error| ApiError::validation(format!("Invalid StreamArn: {error}")))?;
        let is_ours = arn.table.region == store.region() && arn.table.account == store.account();
        match store.table_name(&arn.table.table).filter(|_| is_ours) {
            Some(table) => Ok(Self { table, label: arn.label }),
            None => Err(ApiError::stream_not_found(given)),
        }
    }

    /// Returns whether this stream is before the given stream in `ListStreams`.
    pub(crate) fn is_before(&self, table: &Table, stream: &Stream) -> bool {
        let own = (self.table.as_str(), self.label.as_str());
        (table.name.as_str(), stream.label.as_str()) > own
    }
}

/// A stream and its table.
pub(crate) struct FoundStream {
    pub(crate) table: Arc<Table>,
    label: String,
}

impl FoundStream {
    /// Finds the stream with an ARN.
    pub(crate) fn find(store: &Store, given: &str) -> Result<Self, ApiError> {
        let name = StreamName::read(store, given)?;
        let table = store.catalogue().find(name.table.whole()).cloned();
        match table {
            Some(table) if table.stream(&name.label).is_some() => {
                Ok(Self { table, label: name.label })
            }
            _ => Err(ApiError::stream_not_found(given)),
        }
    }

    /// Returns the stream.
    pub(crate) fn stream(&self) -> Result<&Stream, ApiError> {
        self.table
            .stream(&self.label)
            .ok_or_else(|| ApiError::defect("the table lost its stream during the request"))
    }

    /// Returns the stream and one of its shards.
    pub(crate) fn shard(&self, id: &str, arn: &str) -> Result<(&Stream, &Shard), ApiError> {
        let stream = self.stream()?;
        match stream.shards.iter().find(|shard| shard.id == id) {
            Some(shard) => Ok((stream, shard)),
            None => Err(ApiError::shard_not_found(id, arn)),
        }
    }
}
