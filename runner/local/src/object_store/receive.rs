//! Receives the content of a request into a temporary file, and verifies its checksums and length.
//!
//! This module does not create the object from the file.

use futures::StreamExt;
use s3s::{StdError, dto::StreamingBlob};
use tokio::{fs::File, io::AsyncWriteExt};

use super::{
    Error, ObjectStore,
    checksum::{Claims, Content, Hasher},
    chunked::{self, Trailers},
    files::TemporaryFile,
};

/// The maximum content size of one request. Source: Amazon S3 user guide, "Uploading objects".
const CONTENT_BYTES_MAX: u64 = 5 * 1_024 * 1_024 * 1_024;

/// The properties of the content that a request announces.
#[derive(Debug)]
pub(super) struct ContentHeaders {
    pub(super) claims: Claims,
    /// The length in bytes; `None` if the request does not contain it.
    pub(super) length: Option<u64>,
    pub(super) trailers: Option<Trailers>,
}

/// Writes a content to a temporary file, durably. After an error, the file is removed.
pub(super) async fn receive(
    store: &ObjectStore,
    body: Option<StreamingBlob>,
    mut announced: ContentHeaders,
) -> Result<(TemporaryFile, Content), Error> {
    if announced.length.is_some_and(|length| length > CONTENT_BYTES_MAX) {
        return Err(Error::EntityTooLarge { limit: CONTENT_BYTES_MAX });
    }
    let temporary = store.temporary();
    let path = temporary.path();
    let mut file = File::create_new(path).await.map_err(Error::disk("create", path))?;
    let mut hasher = Hasher::new(&announced.claims);
    if let Some(mut body) = body {
        while let Some(bytes) = body.next().await {
            let bytes = bytes.map_err(|error| broken(&error, &announced, hasher.length()))?;
            hasher.update(&bytes);
            if hasher.length() > CONTENT_BYTES_MAX {
                return Err(Error::EntityTooLarge { limit: CONTENT_BYTES_MAX });
            }
            file.write_all(&bytes).await.map_err(Error::disk("write", path))?;
        }
    }
    file.sync_all().await.map_err(Error::disk("sync", path))?;
    let content = hasher.finish();
    if let Some(expected) = announced.length
        && expected != content.length
    {
        return Err(Error::IncompleteBody { expected, received: content.length });
    }
    if let Some(trailers) = &announced.trailers {
        announced.claims.add_trailers(&trailers.to_headers());
    }
    announced.claims.check(&content)?;
    Ok((temporary, content))
}

fn broken(error: &StdError, announced: &ContentHeaders, received: u64) -> Error {
    match error.downcast_ref::<chunked::Error>() {
        Some(malformed @ chunked::Error::Malformed(_)) => {
            Error::InvalidArgument(malformed.to_string())
        }
        _ => Error::IncompleteBody { expected: announced.length.unwrap_or(received), received },
    }
}
