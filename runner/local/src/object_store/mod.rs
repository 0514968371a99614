//! An S3 endpoint whose objects are plain files: `<root>/<bucket>/<key>`.
//!
//! Path-style requests, any credentials: signatures are taken off, not checked, so it must only be
//! reached from this machine. DuckDB, pyarrow and people read the files as they are.
//! A write is atomic: the content goes to `<root>/.tmp`, is synced, and renamed into its place while
//! the key is locked, so a conditional write (`If-None-Match: *`, `If-Match`) decides exactly once.
//! What S3 keeps beside the content (ETag, content type, user metadata) lies in `<root>/.objects`;
//! a file that was put into a bucket's folder by hand is an object too, its ETag is computed.
//!
//! It has no versions, no ACLs, no encryption, no tags, no storage classes: the settings of a
//! request for these are accepted and have no effect. One process owns one root.

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

/// Why an operation was not done; each becomes one S3 error code.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The bucket does not exist; nothing was created for it.
    #[error("the bucket does not exist: bucket=`{bucket}`; create it first")]
    NoSuchBucket {
        /// Its name.
        bucket: String,
    },
    /// The name breaks S3's rules for bucket names.
    #[error(
        "bucket=`{bucket}` is not a valid name: write 3 to 63 lower-case letters, digits, dots and hyphens"
    )]
    InvalidBucketName {
        /// The name.
        bucket: String,
    },
    /// The bucket still holds objects.
    #[error("the bucket is not empty: bucket=`{bucket}`; delete its objects first")]
    BucketNotEmpty {
        /// Its name.
        bucket: String,
    },
    /// There is no such object.
    #[error("the key does not exist: key=`{key}`")]
    NoSuchKey {
        /// The key.
        key: String,
    },
    /// The key cannot be the name of a file here.
    #[error("key=`{key}` cannot be stored as a file: {reason}")]
    InvalidKey {
        /// The key.
        key: String,
        /// Why, and what to write instead.
        reason: String,
    },
    /// The key, or one part of it between slashes, is longer than a file name may be.
    #[error("key=`{key}` is too long: at most 1024 bytes, at most 255 between two slashes")]
    KeyTooLong {
        /// The key.
        key: String,
    },
    /// `If-Match` or `If-None-Match` did not hold; nothing was written.
    #[error("at least one of the preconditions did not hold: condition=`{condition}`")]
    PreconditionFailed {
        /// The header that did not hold.
        condition: &'static str,
    },
    /// `If-None-Match` or `If-Modified-Since` say that the reader has the object already.
    #[error("not modified")]
    NotModified,
    /// A checksum in the request is not that of the content that arrived; nothing was written.
    #[error("the {checksum} that was sent does not match the content that arrived")]
    BadDigest {
        /// Which checksum.
        checksum: &'static str,
    },
    /// The content ended early; nothing was written.
    #[error("the content is incomplete: {received} bytes arrived of {expected}")]
    IncompleteBody {
        /// Bytes announced.
        expected: u64,
        /// Bytes that came.
        received: u64,
    },
    /// The content is larger than one request may carry.
    #[error("the content is larger than {limit} bytes; use a multipart upload")]
    EntityTooLarge {
        /// The largest content in bytes.
        limit: u64,
    },
    /// The multipart upload does not exist, or was completed or aborted.
    #[error("the upload does not exist: upload=`{upload}`")]
    NoSuchUpload {
        /// Its identifier.
        upload: String,
    },
    /// A part named at completion was not uploaded, or with another ETag.
    #[error("part={part} was not uploaded, or with another ETag")]
    InvalidPart {
        /// Its number.
        part: i32,
    },
    /// The parts named at completion are not in ascending order.
    #[error("the parts must be listed in ascending order")]
    InvalidPartOrder,
    /// A part before the last is smaller than S3 allows.
    #[error("part={part} is smaller than 5 MiB and not the last")]
    PartTooSmall {
        /// Its number.
        part: i32,
    },
    /// An argument is out of its bounds.
    #[error("{0}")]
    InvalidArgument(String),
    /// The disk did not do what was asked.
    #[error("cannot {action} file=`{path}`: {source}")]
    Disk {
        /// What was tried.
        action: &'static str,
        /// On which file.
        path: PathBuf,
        /// Why it failed.
        source: io::Error,
    },
}

impl Error {
    fn disk(action: &'static str, path: impl Into<PathBuf>) -> impl FnOnce(io::Error) -> Self {
        let path = path.into();
        move |source| Self::Disk { action, path, source }
    }
}
