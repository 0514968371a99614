//! A cache of the stream of the last record. All records of a batch are of one stream, so its ARN is
//! parsed once and shared.
//!
//! A cache never changes a result, so all caches compare as equal.

use std::sync::Arc;

use locks::Mutex;

use super::bucket::{Bucket, UtcMinute};
use crate::rule::{Refusal, stream_of};

/// The stream that was parsed last.
#[derive(Debug, Default)]
pub struct KnownStream(Mutex<Option<(Arc<str>, Bucket)>>);

impl KnownStream {
    /// Returns the shared ARN, and the bucket of the stream's table, label and `minute`.
    ///
    /// # Errors
    /// The ARN is not a stream's ARN, or its table name or stream label is invalid.
    pub(super) fn of(
        &self,
        event_source_arn: &str,
        minute: UtcMinute,
    ) -> Result<(Arc<str>, Bucket), Refusal> {
        let mut known = self.0.lock();
        if let Some((arn, bucket)) = known.as_ref()
            && **arn == *event_source_arn
        {
            return Ok((Arc::clone(arn), bucket.at(minute)));
        }
        let stream = stream_of(event_source_arn)?;
        let bucket = Bucket::new(&stream.table.table, &stream.label, minute)?;
        let arn: Arc<str> = event_source_arn.into();
        *known = Some((Arc::clone(&arn), bucket.clone()));
        Ok((arn, bucket))
    }
}

impl Clone for KnownStream {
    fn clone(&self) -> Self {
        Self::default()
    }
}

impl PartialEq for KnownStream {
    fn eq(&self, _other: &Self) -> bool {
        true
    }
}

impl Eq for KnownStream {}
