//! Conversions between the fields of S3's requests and responses and the types of this store.
//!
//! The only file access is reading the content that a response streams.

use std::{collections::BTreeMap, io::SeekFrom, ops, time::SystemTime};

use bytes::BytesMut;
use futures::stream::try_unfold;
use http::{Extensions, HeaderMap};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use s3s::{
    S3Error, S3ErrorCode, S3Result,
    dto::{self, CopySource, ETag, ETagCondition, StreamingBlob, Timestamp},
    s3_error,
};
use tokio::io::{AsyncReadExt, AsyncSeekExt};

use super::{
    Error,
    checksum::Claims,
    chunked::Trailers,
    description::Description,
    files::{Condition, Found},
    listing,
    receive::ContentHeaders,
};

/// The content headers of a write that are stored with the object and returned by reads.
const KEPT_HEADERS: [&str; 6] = [
    "cache-control",
    "content-disposition",
    "content-encoding",
    "content-language",
    "content-type",
    "expires",
];

/// The characters that the encoding `url` of a listing escapes.
const ENCODED: &AsciiSet =
    &NON_ALPHANUMERIC.remove(b'-').remove(b'_').remove(b'.').remove(b'~').remove(b'/');

/// The number of bytes that are read from disk at a time, so that a download needs little memory.
const READ_BYTES: u64 = 128 * 1_024;

/// Copies the stored headers into the fields of S3's responses. Uses S3's default if there is no content
/// type.
macro_rules! set_kept_headers {
    ($output:expr, $headers:expr) => {{
        let headers: &std::collections::BTreeMap<String, String> = $headers;
        let default_type = || "binary/octet-stream".to_owned();
        $output.cache_control = headers.get("cache-control").cloned();
        $output.content_disposition = headers.get("content-disposition").cloned();
        $output.content_encoding = headers.get("content-encoding").cloned();
        $output.content_language = headers.get("content-language").cloned();
        $output.content_type =
            Some(headers.get("content-type").cloned().unwrap_or_else(default_type));
        $output.expires = headers.get("expires").and_then(|text| {
            s3s::dto::Timestamp::parse(s3s::dto::TimestampFormat::HttpDate, text).ok()
        });
    }};
}
pub(super) use set_kept_headers;

impl From<Error> for S3Error {
    fn from(error: Error) -> Self {
        let code = match &error {
            Error::NoSuchBucket { .. } => S3ErrorCode::NoSuchBucket,
            Error::InvalidBucketName { .. } => S3ErrorCode::InvalidBucketName,
            Error::BucketNotEmpty { .. } => S3ErrorCode::BucketNotEmpty,
            Error::NoSuchKey { .. } => S3ErrorCode::NoSuchKey,
            Error::InvalidKey { .. } => S3ErrorCode::InvalidRequest,
            Error::KeyTooLong { .. } => S3ErrorCode::KeyTooLongError,
            Error::PreconditionFailed { .. } => S3ErrorCode::PreconditionFailed,
            Error::NotModified => S3ErrorCode::NotModified,
            Error::BadDigest { .. } => S3ErrorCode::BadDigest,
            Error::IncompleteBody { .. } => S3ErrorCode::IncompleteBody,
            Error::EntityTooLarge { .. } => S3ErrorCode::EntityTooLarge,
            Error::NoSuchUpload { .. } => S3ErrorCode::NoSuchUpload,
            Error::InvalidPart { .. } => S3ErrorCode::InvalidPart,
            Error::InvalidPartOrder => S3ErrorCode::InvalidPartOrder,
            Error::PartTooSmall { .. } => S3ErrorCode::EntityTooSmall,
            Error::InvalidArgument(_) => S3ErrorCode::InvalidArgument,
            Error::Disk { .. } => S3ErrorCode::InternalError,
        };
        if let Error::Disk { .. } = &error {
            tracing::error!(%error, "object store");
        }
        S3Error::with_message(code, error.to_string())
    }
}

/// The conditions of a read.
pub(super) struct ReadConditions {
    pub(super) if_match: Option<ETagCondition>,
    pub(super) if_none_match: Option<ETagCondition>,
    pub(super) if_modified_since: Option<Timestamp>,
    pub(super) if_unmodified_since: Option<Timestamp>,
}

impl ReadConditions {
    /// Checks the conditions in the order of RFC 9110, section 13.2.2: if there is an ETag condition,
    /// the date condition is ignored.
    pub(super) fn check(&self, found: &Found) -> Result<(), Error> {
        let etag = ETag::Strong(found.description.etag.clone());
        let modified = whole_seconds(found.modified);
        match (&self.if_match, &self.if_unmodified_since) {
            (Some(ETagCondition::ETag(wanted)), _) if !wanted.strong_cmp(&etag) => {
                return Err(Error::PreconditionFailed { condition: "If-Match" });
            }
            (None, Some(since)) if modified > *since => {
                return Err(Error::PreconditionFailed { condition: "If-Unmodified-Since" });
            }
            _ => {}
        }
        match (&self.if_none_match, &self.if_modified_since) {
            (Some(ETagCondition::Any), _) => Err(Error::NotModified),
            (Some(ETagCondition::ETag(known)), _) if known.weak_cmp(&etag) => {
                Err(Error::NotModified)
            }
            (None, Some(since)) if modified <= *since => Err(Error::NotModified),
            _ => Ok(()),
        }
    }
}

/// Returns the time in whole seconds, so that a file's time can be compared with HTTP dates.
fn whole_seconds(time: SystemTime) -> Timestamp {
    let since = time.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    (SystemTime::UNIX_EPOCH + std::time::Duration::from_secs(since.as_secs())).into()
}

/// Returns the condition of a write. S3 allows `If-None-Match: *` or `If-Match`, not both.
pub(super) fn write_condition(
    if_match: Option<ETagCondition>,
    if_none_match: Option<ETagCondition>,
) -> S3Result<Condition> {
    match (if_match, if_none_match) {
        (None, None) => Ok(Condition::None),
        (None, Some(ETagCondition::Any)) => Ok(Condition::Absent),
        (Some(ETagCondition::Any), None) => Ok(Condition::Present),
        (Some(ETagCondition::ETag(etag)), None) => Ok(Condition::Etag(etag.into_value())),
        (None, Some(ETagCondition::ETag(_))) => {
            Err(s3_error!(NotImplemented, "a write supports If-None-Match only with the value *"))
        }
        (Some(_), Some(_)) => {
            Err(s3_error!(NotImplemented, "a write accepts If-Match or If-None-Match, not both"))
        }
    }
}

pub(super) fn announced(
    headers: &HeaderMap,
    extensions: &Extensions,
    length: Option<i64>,
) -> ContentHeaders {
    ContentHeaders {
        claims: Claims::of(headers),
        length: length.and_then(|length| u64::try_from(length).ok()),
        trailers: extensions.get::<Trailers>().cloned(),
    }
}

pub(super) fn kept_headers(headers: &HeaderMap) -> BTreeMap<String, String> {
    KEPT_HEADERS
        .into_iter()
        .filter_map(|name| Some((name.to_owned(), headers.get(name)?.to_str().ok()?.to_owned())))
        .collect()
}

pub(super) fn metadata_of(description: &Description) -> Option<dto::Metadata> {
    let metadata = &description.metadata;
    (!metadata.is_empty()).then(|| metadata.clone().into_iter().collect())
}

pub(super) fn full_object() -> dto::ChecksumType {
    dto::ChecksumType::from_static(dto::ChecksumType::FULL_OBJECT)
}

/// Converts a file size. The conversion never fails, because no file has 2^63 bytes.
pub(super) fn signed(size: u64) -> i64 {
    i64::try_from(size).unwrap_or(i64::MAX)
}

/// Returns the bucket and the key of a copy's source.
pub(super) fn copy_source(source: &CopySource) -> S3Result<(String, String)> {
    match source {
        CopySource::Bucket { bucket, key, version_id: None } => {
            Ok((bucket.to_string(), key.to_string()))
        }
        CopySource::Bucket { .. } => {
            Err(s3_error!(NotImplemented, "this endpoint cannot copy from an object version"))
        }
        _ => Err(s3_error!(NotImplemented, "copy from bucket/key, not from an access point")),
    }
}

/// Returns the maximum number of keys, prefixes or parts in one page.
pub(super) fn page_limit(wanted: Option<i32>) -> Result<usize, Error> {
    let wanted = wanted.map_or(Ok(listing::PAGE_MAX), usize::try_from);
    wanted
        .map(|wanted| wanted.min(listing::PAGE_MAX))
        .map_err(|_| Error::InvalidArgument("the page size must be 0 or more".to_owned()))
}

pub(super) fn object_of(key: &str, found: &Found) -> dto::Object {
    dto::Object {
        key: Some(key.to_owned()),
        e_tag: Some(ETag::Strong(found.description.etag.clone())),
        last_modified: Some(found.modified.into()),
        size: Some(signed(found.size)),
        storage_class: Some(dto::ObjectStorageClass::from_static("STANDARD")),
        ..Default::default()
    }
}

/// The encoding of keys in a listing: unchanged, or percent-encoded for clients whose XML parser does
/// not accept control characters.
#[derive(Debug, Clone, Copy)]
pub(super) struct Encoding {
    url: bool,
}

impl Encoding {
    pub(super) fn of(encoding: Option<&dto::EncodingType>) -> Self {
        Self { url: encoding.is_some_and(|encoding| encoding.as_str() == "url") }
    }

    pub(super) fn text(self, text: String) -> String {
        if !self.url {
            return text;
        }
        utf8_percent_encode(&text, ENCODED).to_string()
    }

    pub(super) fn objects(self, mut objects: Vec<dto::Object>) -> Vec<dto::Object> {
        for object in &mut objects {
            object.key = object.key.take().map(|key| self.text(key));
        }
        objects
    }

    pub(super) fn prefixes(self, prefixes: Vec<String>) -> Vec<dto::CommonPrefix> {
        let prefixes = prefixes.into_iter();
        prefixes.map(|prefix| dto::CommonPrefix { prefix: Some(self.text(prefix)) }).collect()
    }
}

/// Returns a range of an object's bytes as a stream. The bytes are read as the client consumes
/// them.
pub(super) async fn content_of(found: Found, bytes: ops::Range<u64>) -> S3Result<StreamingBlob> {
    let mut file = tokio::fs::File::from_std(found.file);
    file.seek(SeekFrom::Start(bytes.start)).await.map_err(S3Error::internal_error)?;
    let left = bytes.end - bytes.start;
    let stream = try_unfold((file, left), |(mut file, left)| async move {
        if left == 0 {
            return Ok(None);
        }
        let piece = usize::try_from(left.min(READ_BYTES)).unwrap_or_default();
        let mut buffer = BytesMut::zeroed(piece);
        let read = file.read(&mut buffer).await?;
        if read == 0 {
            return Err(std::io::Error::from(std::io::ErrorKind::UnexpectedEof));
        }
        buffer.truncate(read);
        Ok(Some((buffer.freeze(), (file, left - read as u64))))
    });
    Ok(StreamingBlob::wrap(stream))
}
