//! The destinations of discarded records.
//!
//! The mapping decides which records are discarded, and retries failed deliveries.

use std::path::PathBuf;
use std::sync::Arc;

use async_trait::async_trait;
use aws_sdk_s3::primitives::ByteStream;
use bytes::Bytes;

use super::checkpoint_store::replace;
use client::failure::{Context, Result, fatal};

/// A destination that stores failure records.
#[async_trait]
pub trait FailureDestination: Send + Sync + 'static {
    /// Stores a failure record durably. The operation must be idempotent for a key.
    ///
    /// # Errors
    /// The failure record was not stored, for this reason. The mapping retries, and the shard waits.
    async fn store(&self, key: &str, body: Bytes) -> Result<()>;
}

#[async_trait]
impl<D: FailureDestination + ?Sized> FailureDestination for Arc<D> {
    async fn store(&self, key: &str, body: Bytes) -> Result<()> {
        (**self).store(key, body).await
    }
}

/// The destination of a mapping without `DestinationConfig`. It is never used, because such a mapping stores
/// no failure records.
#[derive(Debug, Clone, Copy, Default)]
pub struct NoDestination;

#[async_trait]
impl FailureDestination for NoDestination {
    async fn store(&self, key: &str, _body: Bytes) -> Result<()> {
        Err(fatal!("the mapping has no failure destination, so `{key}` cannot be stored"))
    }
}

/// A stand-in for a queue or topic, which exist only on AWS: each message is a file in a folder.
#[derive(Debug, Clone)]
pub struct FileDestination {
    /// The folder of the files. It need not exist yet.
    pub folder: PathBuf,
}

#[async_trait]
impl FailureDestination for FileDestination {
    async fn store(&self, key: &str, body: Bytes) -> Result<()> {
        // The last part of a key is a time and an id, whose characters are all allowed in a file name.
        let name = key.rsplit('/').next().unwrap_or(key);
        let path = self.folder.join(format!("{name}.json"));
        let (folder, shown) = (self.folder.clone(), path.display().to_string());
        let written = tokio::task::spawn_blocking(move || {
            std::fs::create_dir_all(folder)?;
            replace(&path, &body)
        });
        let written = written.await.unwrap_or_else(|error| Err(std::io::Error::other(error)));
        written.context(|| format!("cannot write `{shown}`"))
    }
}

/// A bucket in which each failure record is an object.
#[derive(Debug, Clone)]
pub struct S3Destination {
    /// The S3 client, with any endpoint.
    pub client: aws_sdk_s3::Client,
    /// The bucket's name.
    pub bucket: String,
}

#[async_trait]
impl FailureDestination for S3Destination {
    async fn store(&self, key: &str, body: Bytes) -> Result<()> {
        let request = self.client.put_object().bucket(&self.bucket).key(key);
        let request = request.content_type("application/json").body(ByteStream::from(body));
        let sent = request.send().await.map(drop);
        sent.context(|| format!("cannot put `{key}` into bucket `{}`", self.bucket))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_message_is_one_file_however_often_it_is_stored() {
        let root = tempfile::tempdir().unwrap();
        let folder = root.path().join("destinations/Queue");
        let queue = FileDestination { folder: folder.clone() };
        for _ in 0..2 {
            let key = "aws/lambda/id/s1/2019/11/14/2019-11-14T00.13.49-uuid";
            queue.store(key, Bytes::from_static(b"{}")).await.unwrap();
        }
        let files: Vec<_> = std::fs::read_dir(&folder).unwrap().map(|file| file.unwrap()).collect();
        assert_eq!(files.len(), 1);
        assert_eq!(files[0].file_name(), "2019-11-14T00.13.49-uuid.json");
        assert_eq!(std::fs::read(files[0].path()).unwrap(), b"{}");
    }

    #[tokio::test]
    async fn a_folder_that_cannot_be_made_is_an_error_that_names_the_file() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let queue = FileDestination { folder: file.path().join("Queue") };
        let error = queue.store("a/b", Bytes::new()).await.unwrap_err().to_string();
        assert!(error.contains("b.json"), "{error}");
    }
}
