//! Where the records go that a mapping gives up.
//!
//! Nothing here decides what is given up, or tries again.

use std::sync::Arc;

use async_trait::async_trait;
use aws_sdk_s3::error::DisplayErrorContext;
use aws_sdk_s3::primitives::ByteStream;
use bytes::Bytes;

/// A place that stores failure records.
#[async_trait]
pub trait FailureDestination: Send + Sync + 'static {
    /// Stores a failure record durably. Storing the same key again must be harmless.
    ///
    /// # Errors
    /// Why it is not stored; the mapping tries again, and its shard waits.
    async fn store(&self, key: &str, body: Bytes) -> Result<(), String>;
}

#[async_trait]
impl<D: FailureDestination + ?Sized> FailureDestination for Arc<D> {
    async fn store(&self, key: &str, body: Bytes) -> Result<(), String> {
        (**self).store(key, body).await
    }
}

/// The destination of a mapping without `DestinationConfig`: never asked, because such a mapping
/// discards what it gives up.
#[derive(Debug, Clone, Copy, Default)]
pub struct NoDestination;

#[async_trait]
impl FailureDestination for NoDestination {
    async fn store(&self, key: &str, _body: Bytes) -> Result<(), String> {
        Err(format!("the mapping has no failure destination for {key}"))
    }
}

/// A bucket: each failure record is an object.
#[derive(Debug, Clone)]
pub struct S3Destination {
    /// The client, for whatever endpoint.
    pub client: aws_sdk_s3::Client,
    /// The bucket's name.
    pub bucket: String,
}

#[async_trait]
impl FailureDestination for S3Destination {
    async fn store(&self, key: &str, body: Bytes) -> Result<(), String> {
        let request = self.client.put_object().bucket(&self.bucket).key(key);
        let request = request.content_type("application/json").body(ByteStream::from(body));
        match request.send().await {
            Ok(_) => Ok(()),
            Err(error) => {
                let reason = DisplayErrorContext(&error).to_string();
                Err(format!("cannot put `{key}` into bucket `{}`: {reason}", self.bucket))
            }
        }
    }
}
