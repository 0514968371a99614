//! An S3 endpoint whose objects are plain files: `<root>/<bucket>/<key>`.
//!
//! The endpoint accepts path-style requests with any credentials. Signatures are removed but not verified, so
//! the endpoint must be reachable only from this machine. DuckDB, pyarrow and users can read the files
//! directly. A write is atomic: the content goes to `<root>/.tmp`, is synced, and is renamed while the key is
//! locked. Conditional writes (`If-None-Match: *`, `If-Match`) are therefore also atomic. The data that S3
//! stores with the content (ETag, content type, user metadata) is in `<root>/.objects`. A file that a user
//! copies into a bucket's folder is an object, too; its ETag is computed.
//!
//! The endpoint has no versions, ACLs, encryption, tags or storage classes: it accepts such settings of a
//! request without effect. A root belongs to one process.

mod checksum;
mod chunked;
mod conversion;
mod description;
mod endpoint;
mod files;
mod key;
mod listing;
mod multipart;
mod operations;
mod receive;
#[cfg(test)]
mod tests;

use std::{io, path::PathBuf};

pub use endpoint::Endpoint;
pub use files::ObjectStore;

/// The reason why an operation failed. Each reason has an S3 error code.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The bucket does not exist. No file was created.
    #[error("the bucket does not exist: bucket=`{bucket}`; create it first")]
    NoSuchBucket {
        /// The name of the bucket.
        bucket: String,
    },
    /// The name violates S3's rules for bucket names.
    #[error(
        "bucket=`{bucket}` is not a valid name: write 3 to 63 lower-case letters, digits, dots and hyphens"
    )]
    InvalidBucketName {
        /// The name.
        bucket: String,
    },
    /// The bucket is not empty.
    #[error("the bucket is not empty: bucket=`{bucket}`; delete its objects first")]
    BucketNotEmpty {
        /// The name of the bucket.
        bucket: String,
    },
    /// The object does not exist.
    #[error("the key does not exist: key=`{key}`")]
    NoSuchKey {
        /// The key.
        key: String,
    },
    /// The key cannot be a file name.
    #[error("key=`{key}` cannot be stored as a file: {reason}")]
    InvalidKey {
        /// The key.
        key: String,
        /// The reason, and what to write instead.
        reason: String,
    },
    /// The key, or one part of it between slashes, is too long for a file name.
    #[error(
        "key=`{key}` is too long: a key has at most 1024 bytes, and at most 255 between two slashes"
    )]
    KeyTooLong {
        /// The key.
        key: String,
    },
    /// The condition in `If-Match` or `If-None-Match` is false. Nothing was written.
    #[error("at least one of the preconditions did not hold: condition=`{condition}`")]
    PreconditionFailed {
        /// The name of the header whose condition is false.
        condition: &'static str,
    },
    /// According to `If-None-Match` or `If-Modified-Since`, the reader already has the object.
    #[error("not modified")]
    NotModified,
    /// A checksum in the request differs from the checksum of the content. Nothing was written.
    #[error("the {checksum} that was sent does not match the content that arrived")]
    BadDigest {
        /// The name of the checksum.
        checksum: &'static str,
    },
    /// The content was incomplete. Nothing was written.
    #[error("the content is incomplete: received {received} of {expected} bytes")]
    IncompleteBody {
        /// The number of bytes that the request announced.
        expected: u64,
        /// The number of received bytes.
        received: u64,
    },
    /// The content is larger than the maximum of one request.
    #[error("the content is larger than {limit} bytes; use a multipart upload")]
    EntityTooLarge {
        /// The maximum size of one request's content in bytes.
        limit: u64,
    },
    /// The multipart upload does not exist, or was completed or aborted.
    #[error("the upload does not exist: upload=`{upload}`")]
    NoSuchUpload {
        /// The id of the upload.
        upload: String,
    },
    /// A part in the completion was not uploaded, or has a different ETag.
    #[error("part={part} was not uploaded, or its ETag differs")]
    InvalidPart {
        /// The number of the part.
        part: i32,
    },
    /// The parts in the completion are not in ascending order.
    #[error("the parts must be listed in ascending order")]
    InvalidPartOrder,
    /// A part other than the last is smaller than S3's minimum.
    #[error("part={part} is smaller than 5 MiB, and only the last part may be")]
    PartTooSmall {
        /// The number of the part.
        part: i32,
    },
    /// An argument is out of its bounds.
    #[error("{0}")]
    InvalidArgument(String),
    /// A file operation failed.
    #[error("cannot {action} file=`{path}`: {source}")]
    Disk {
        /// The name of the file operation.
        action: &'static str,
        /// The file.
        path: PathBuf,
        /// The error of the operating system.
        source: io::Error,
    },
}

impl Error {
    fn disk(action: &'static str, path: impl Into<PathBuf>) -> impl FnOnce(io::Error) -> Self {
        let path = path.into();
        move |source| Self::Disk { action, path, source }
    }
}
