//! The object store on S3.
//!
//! The SDK retries single requests; this module interprets its errors.

use std::time::Duration;

use aws_sdk_s3::Client;
use aws_sdk_s3::error::{DisplayErrorContext, ProvideErrorMetadata, SdkError};
use aws_sdk_s3::operation::get_object::GetObjectOutput;
use aws_sdk_s3::operation::list_object_versions::ListObjectVersionsOutput;
use aws_sdk_s3::operation::list_objects_v2::ListObjectsV2Output;
use aws_sdk_s3::primitives::{ByteStream, ByteStreamError};
use aws_sdk_s3::types::{Delete, Object, ObjectIdentifier};
use bytes::Bytes;
use thiserror::Error;

use super::{
    ChangeOutcome, ObjectEntry, ObjectMaintenance, ObjectStore, Page, PutOutcome, RemovedVersions,
};
use crate::failure::Failure;

/// Maximum number of pages of folders, with 1,000 folders per page. A table has one folder per day.
const FOLDER_PAGES_MAX: usize = 100;

/// Upper bound of consecutive pages without an object.
const EMPTY_PAGES_MAX: usize = 1_000;

/// Timeout between two chunks of an object's content. The SDK's timeouts cover only the headers of a
/// response, so a dead connection would block the invocation until its deadline.
const SILENCE_MAX: Duration = Duration::from_secs(10);

/// The reason why the content of an object is incomplete.
#[derive(Debug, Error)]
enum Interruption {
    /// The connection broke.
    #[error("{}", DisplayErrorContext(.0))]
    Broken(#[from] ByteStreamError),
    /// No data arrived for this time.
    #[error("no data arrived for {0:?}")]
    Silence(Duration),
}

/// A bucket of S3.
#[derive(Clone, Debug)]
pub struct S3ObjectStore {
    client: Client,
    bucket: String,
    setting: &'static str,
    silence_max: Duration,
}

impl S3ObjectStore {
    /// Returns the store of `bucket`. The environment variable `setting` contains the bucket's
    /// name.
    #[must_use]
    pub fn new(client: Client, bucket: String, setting: &'static str) -> Self {
        Self { client, bucket, setting, silence_max: SILENCE_MAX }
    }

    /// Returns the content of an object. Fails if the connection breaks, or if no data arrives for
    /// [`SILENCE_MAX`].
    async fn content(&self, object: GetObjectOutput) -> Result<Bytes, Interruption> {
        let length = object.content_length.and_then(|length| usize::try_from(length).ok());
        let mut content = Vec::with_capacity(length.unwrap_or_default());
        let mut body = object.body;
        loop {
            let part = tokio::time::timeout(self.silence_max, body.try_next()).await;
            match part.map_err(|_| Interruption::Silence(self.silence_max))?? {
                Some(part) => content.extend_from_slice(&part),
                None => return Ok(content.into()),
            }
        }
    }

    fn failure<E>(&self, doing: &str, error: &SdkError<E>) -> Failure
    where
        E: ProvideErrorMetadata + std::error::Error + 'static,
    {
        let (bucket, setting) = (&self.bucket, self.setting);
        match error.as_service_error().and_then(ProvideErrorMetadata::code) {
            Some("NoSuchBucket") => Failure::Fatal(format!(
                "bucket=`{bucket}` does not exist; create it, or correct {setting}"
            )),
            Some(
                code @ ("AccessDenied"
                | "InvalidAccessKeyId"
                | "SignatureDoesNotMatch"
                | "PermanentRedirect"
                | "AuthorizationHeaderMalformed"
                | "InvalidBucketName"),
            ) => Failure::Fatal(format!(
                "{doing} in bucket=`{bucket}` ({setting}) is not allowed: {code}; check the function's role, its region and {setting}"
            )),
            Some(code @ "KeyTooLongError") => Failure::Fatal(format!(
                "{doing} in bucket=`{bucket}` is permanently refused: {code}: {}; give the table a shorter name, or do not archive the table",
                error.as_service_error().and_then(ProvideErrorMetadata::message).unwrap_or("")
            )),
            _ => Failure::Retry(format!(
                "{doing} in bucket=`{bucket}` failed: {}",
                DisplayErrorContext(error)
            )),
        }
    }
}

fn status<E>(error: &SdkError<E>) -> Option<u16> {
    error.raw_response().map(|response| response.status().as_u16())
}

impl ObjectStore for S3ObjectStore {
    async fn page(&self, prefix: &str, after: &str) -> Result<Page, Failure> {
        let ask = async |token: Option<String>| {
            let request = self.client.list_objects_v2().bucket(&self.bucket).prefix(prefix);
            // A continuation token contains the complete position, so the request needs no
            // `start-after` name.
            let begins_after = token.is_none() && !after.is_empty();
            let page = request
                .set_start_after(begins_after.then(|| after.to_owned()))
                .set_continuation_token(token)
                .send();
            page.await.map_err(|error| self.failure("ListObjectsV2", &error))
        };
        let mut token = None;
        for _ in 0..EMPTY_PAGES_MAX {
            match listed(ask(token).await?) {
                ListAnswer::Page(page) => return Ok(page),
                ListAnswer::Nothing { token: None } => break,
                ListAnswer::Nothing { token: next } => token = next,
            }
        }
        Err(Failure::Retry(format!(
            "ListObjectsV2 in bucket=`{}` returned only empty pages under `{prefix}`: {EMPTY_PAGES_MAX} pages in a row",
            self.bucket
        )))
    }

    async fn folders(&self, prefix: &str) -> Result<Vec<String>, Failure> {
        let mut folders = Vec::new();
        let mut token = None;
        for _ in 0..FOLDER_PAGES_MAX {
            let page = self
                .client
                .list_objects_v2()
                .bucket(&self.bucket)
                .prefix(prefix)
                .delimiter("/")
                .set_continuation_token(token)
                .send()
                .await
                .map_err(|error| self.failure("ListObjectsV2", &error))?;
            token = page.next_continuation_token;
            let common = page.common_prefixes.unwrap_or_default().into_iter();
            folders.extend(
                common.filter_map(|common| Some(common.prefix?.strip_prefix(prefix)?.to_owned())),
            );
            if token.is_none() {
                return Ok(folders);
            }
        }
        Err(Failure::Fatal(format!(
            "bucket=`{}` has more than {FOLDER_PAGES_MAX} pages of folders under `{prefix}`; move folders of other programs out of this prefix",
            self.bucket
        )))
    }

    async fn get(&self, name: &str) -> Result<Option<Bytes>, Failure> {
        let request = self.client.get_object().bucket(&self.bucket).key(name);
        let object = match request.send().await {
            Ok(object) => object,
            Err(error) if error.as_service_error().is_some_and(|e| e.is_no_such_key()) => {
                return Ok(None);
            }
            Err(error) if is_denied(&error) && self.is_absent(name).await? => return Ok(None),
            Err(error) => return Err(self.failure("GetObject", &error)),
        };
        let content = self.content(object).await;
        content.map(Some).map_err(|reason| {
            Failure::Retry(format!("GetObject of `{name}` was interrupted: {reason}"))
        })
    }

    async fn put_if_absent(
        &self,
        name: &str,
        content: Bytes,
        content_type: &str,
    ) -> Result<PutOutcome, Failure> {
        let request = self
            .client
            .put_object()
            .bucket(&self.bucket)
            .key(name)
            .content_type(content_type)
            .if_none_match("*")
            .body(ByteStream::from(content));
        match request.send().await {
            Ok(created) => Ok(PutOutcome::Created { entity_tag: created.e_tag }),
            // Source: S3 user guide, "How to prevent object overwrites with conditional writes".
            Err(error) => match status(&error) {
                Some(412) => Ok(PutOutcome::Exists),
                Some(409) => Ok(PutOutcome::Contended),
                _ => Err(self.failure("PutObject", &error)),
            },
        }
    }
}

impl ObjectMaintenance for S3ObjectStore {
    async fn replace(
        &self,
        name: &str,
        entity_tag: &str,
        content: Bytes,
        content_type: &str,
    ) -> Result<ChangeOutcome, Failure> {
        let request = self
            .client
            .put_object()
            .bucket(&self.bucket)
            .key(name)
            .content_type(content_type)
            .if_match(entity_tag)
            .body(ByteStream::from(content));
        match request.send().await {
            Ok(_) => Ok(ChangeOutcome::Changed),
            Err(error) => self.not_changed("PutObject", name, &error).await,
        }
    }

    async fn remove(&self, name: &str, entity_tag: &str) -> Result<ChangeOutcome, Failure> {
        let request =
            self.client.delete_object().bucket(&self.bucket).key(name).if_match(entity_tag);
        match request.send().await {
            Ok(_) => Ok(ChangeOutcome::Changed),
            Err(error) => self.not_changed("DeleteObject", name, &error).await,
        }
    }

    async fn forget_earlier(&self, prefix: &str, after: &str) -> Result<RemovedVersions, Failure> {
        let request = self
            .client
            .list_object_versions()
            .bucket(&self.bucket)
            .prefix(prefix)
            .set_key_marker((!after.is_empty()).then(|| after.to_owned()));
        let page = match request.send().await {
            Ok(page) => page,
            // A store without versioning has no noncurrent versions.
            Err(error) if status(&error) == Some(501) => return Ok(RemovedVersions::default()),
            Err(error) => return Err(self.failure("ListObjectVersions", &error)),
        };
        let earlier = earlier_of(&page);
        let next = listed_whole(&page, after);
        if earlier.is_empty() && next.as_deref() == Some(after) {
            // The next request would return the same page, so the listing would never end.
            return Err(Failure::Fatal(format!(
                "bucket=`{}`: ListObjectVersions after `{after}` returned a page with versions of a single object, none of them noncurrent, so the listing cannot continue",
                self.bucket
            )));
        }
        if !earlier.is_empty() {
            self.remove_versions(earlier).await?;
        }
        let versions = page.versions().iter().filter(|version| version.is_latest() == Some(false));
        Ok(RemovedVersions { contents: versions.count(), after: next })
    }
}

/// Returns the noncurrent versions and noncurrent delete markers of a page. A current delete marker
/// is kept, because without it the object would not count as deleted. When no versions are left, S3
/// removes the marker by the bucket's lifecycle rules.
fn earlier_of(page: &ListObjectVersionsOutput) -> Vec<ObjectIdentifier> {
    let versions = page.versions().iter().map(|v| (v.is_latest(), v.key(), v.version_id()));
    let markers = page.delete_markers().iter().map(|m| (m.is_latest(), m.key(), m.version_id()));
    let earlier = versions.chain(markers).filter(|(is_latest, ..)| *is_latest == Some(false));
    // A version that was written before versioning was enabled has the id `null`.
    earlier
        .filter_map(|(_, key, id)| {
            ObjectIdentifier::builder().key(key?).version_id(id?).build().ok()
        })
        .collect()
}

/// Returns the name after which a listing of versions continues; `None` after the last page. A page
/// may end among the versions of an object. That object is listed again, with fewer versions,
/// because the versions of this page have been removed by then.
fn listed_whole(page: &ListObjectVersionsOutput, after: &str) -> Option<String> {
    if page.is_truncated() != Some(true) {
        return None;
    }
    let versions = page.versions().iter().filter_map(|version| version.key());
    let markers = page.delete_markers().iter().filter_map(|marker| marker.key());
    let mut names: Vec<&str> = versions.chain(markers).collect();
    names.sort_unstable();
    names.dedup();
    let last_whole = names.len().checked_sub(2).and_then(|place| names.get(place));
    Some((*last_whole.unwrap_or(&after)).to_owned())
}

impl S3ObjectStore {
    async fn remove_versions(&self, earlier: Vec<ObjectIdentifier>) -> Result<(), Failure> {
        let delete = Delete::builder().set_objects(Some(earlier)).quiet(true).build();
        let delete = delete.map_err(|error| Failure::Fatal(format!("DeleteObjects: {error}")))?;
        let request = self.client.delete_objects().bucket(&self.bucket).delete(delete);
        let answer = request.send().await.map_err(|error| self.failure("DeleteObjects", &error))?;
        let Some(error) = answer.errors().first() else { return Ok(()) };
        let (bucket, code) = (&self.bucket, error.code().unwrap_or_default());
        let name = error.key().unwrap_or_default();
        Err(match code {
            "AccessDenied" => Failure::Fatal(format!(
                "DeleteObjectVersion of `{name}` in bucket=`{bucket}` is not allowed; grant this action to the function's role"
            )),
            _ => Failure::Retry(format!(
                "a noncurrent version of `{name}` in bucket=`{bucket}` could not be removed: {code}"
            )),
        })
    }

    /// Interprets a failed replacement or removal: the object has changed, or the request failed.
    async fn not_changed<E>(
        &self,
        doing: &str,
        name: &str,
        error: &SdkError<E>,
    ) -> Result<ChangeOutcome, Failure>
    where
        E: ProvideErrorMetadata + std::error::Error + Send + Sync + 'static,
    {
        if is_stale(error) || is_denied(error) && self.is_absent(name).await? {
            return Ok(ChangeOutcome::Stale);
        }
        Err(self.failure(doing, error))
    }

    /// Returns whether the object does not exist. S3 reports a missing object only to a client that
    /// may list the whole bucket; for any other client, it denies access. The functions may list
    /// only their own prefixes. Source: Amazon S3 API reference, "GetObject", permissions.
    async fn is_absent(&self, name: &str) -> Result<bool, Failure> {
        let page = self.page(name, "").await?;
        Ok(page.entries.iter().all(|entry| entry.name != name))
    }
}

/// A response of `ListObjectsV2`.
#[derive(Debug, PartialEq, Eq)]
enum ListAnswer {
    /// The response has objects, or the listing has ended.
    Page(Page),
    /// The response has no objects, but the listing continues with the token. A store may send an
    /// empty response after it skipped many deleted objects.
    Nothing { token: Option<String> },
}

fn listed(page: ListObjectsV2Output) -> ListAnswer {
    let (is_truncated, token) = (page.is_truncated == Some(true), page.next_continuation_token);
    let entries = page.contents.unwrap_or_default().into_iter().filter_map(entry_of);
    let entries: Vec<ObjectEntry> = entries.collect();
    let last = entries.last().map(|entry| entry.name.clone());
    match (last, token) {
        (None, token) if is_truncated => ListAnswer::Nothing { token },
        (last, _) => ListAnswer::Page(Page { entries, after: last.filter(|_| is_truncated) }),
    }
}

fn entry_of(object: Object) -> Option<ObjectEntry> {
    let written = object.last_modified.map(|time| time.secs());
    Some(ObjectEntry {
        name: object.key?,
        entity_tag: object.e_tag.unwrap_or_default(),
        bytes: object.size.and_then(|bytes| u64::try_from(bytes).ok()).unwrap_or(0),
        written_seconds: written.and_then(|seconds| u64::try_from(seconds).ok()).unwrap_or(0),
    })
}

/// Returns whether the object has a different entity tag or does not exist. A 409 does not mean this: another
/// request for the object was in progress, which may have failed and left the object unchanged. So a 409
/// counts as a failure, and the request is retried. Source: S3 user guide, "How to prevent object overwrites
/// with conditional writes", "How to perform conditional deletes".
fn is_stale<E>(error: &SdkError<E>) -> bool
where
    E: ProvideErrorMetadata + std::error::Error + 'static,
{
    matches!(status(error), Some(404 | 412)) && !is_missing_bucket(error)
}

fn is_denied<E>(error: &SdkError<E>) -> bool
where
    E: ProvideErrorMetadata + std::error::Error + 'static,
{
    error.as_service_error().and_then(ProvideErrorMetadata::code) == Some("AccessDenied")
}

fn is_missing_bucket<E>(error: &SdkError<E>) -> bool
where
    E: ProvideErrorMetadata + std::error::Error + 'static,
{
    error.as_service_error().and_then(ProvideErrorMetadata::code) == Some("NoSuchBucket")
}

#[cfg(test)]
mod tests {
    use aws_sdk_s3::config::http::HttpResponse;
    use aws_sdk_s3::config::{BehaviorVersion, Credentials, Region, StalledStreamProtectionConfig};
    use aws_sdk_s3::error::ErrorMetadata;
    use aws_sdk_s3::operation::put_object::PutObjectError;
    use aws_sdk_s3::primitives::SdkBody;
    use aws_sdk_s3::types::{DeleteMarkerEntry, ObjectVersion};
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::net::TcpListener;

    use super::*;

    /// Returns a page of versions from terms `name:id`. `*` marks a current version, `-` a delete
    /// marker.
    fn page(text: &str, is_truncated: bool) -> ListObjectVersionsOutput {
        let mut page = ListObjectVersionsOutput::builder().is_truncated(is_truncated);
        for word in text.split_whitespace() {
            let (key, id) = word.split_once(':').unwrap();
            let (is_latest, id) = (id.ends_with('*'), id.trim_end_matches('*'));
            page = match id.strip_prefix('-') {
                Some(id) => {
                    let marker = DeleteMarkerEntry::builder().key(key).version_id(id);
                    page.delete_markers(marker.is_latest(is_latest).build())
                }
                None => {
                    let version = ObjectVersion::builder().key(key).version_id(id);
                    page.versions(version.is_latest(is_latest).build())
                }
            };
        }
        page.build()
    }

    /// A store that keeps objects as files rejects the folder name `table=` followed by a table name
    /// of 255 characters.
    #[test]
    fn a_name_that_is_too_long_is_not_tried_again() {
        let client =
            Client::from_conf(aws_sdk_s3::Config::builder().behavior_version_latest().build());
        let store = S3ObjectStore::new(client, "b".to_owned(), "ARCHIVE_BUCKET");
        for (code, is_fatal) in [("KeyTooLongError", true), ("SlowDown", false)] {
            let metadata = ErrorMetadata::builder().code(code).message("it is long").build();
            let response = HttpResponse::new(400.try_into().unwrap(), SdkBody::empty());
            let error = SdkError::service_error(PutObjectError::generic(metadata), response);
            match store.failure("PutObject", &error) {
                Failure::Fatal(reason) => {
                    assert!(is_fatal && reason.contains("KeyTooLongError: it is long"), "{reason}");
                }
                Failure::Retry(reason) => assert!(!is_fatal, "{reason}"),
            }
        }
    }

    #[test]
    fn an_empty_page_is_the_end_only_without_a_token() {
        for (names, is_truncated, token, expected) in [
            ("", false, None, Ok((0, None))),
            ("a b", false, None, Ok((2, None))),
            ("a b", true, Some("t"), Ok((2, Some("b")))),
            ("", true, Some("t"), Err(Some("t"))),
            ("", true, None, Err(None)),
        ] {
            let objects = names.split_whitespace().map(|name| Object::builder().key(name).build());
            let page = ListObjectsV2Output::builder()
                .set_contents(Some(objects.collect()))
                .is_truncated(is_truncated)
                .set_next_continuation_token(token.map(str::to_owned));
            match (listed(page.build()), expected) {
                (ListAnswer::Page(page), Ok((entries, after))) => {
                    assert_eq!((page.entries.len(), page.after.as_deref()), (entries, after));
                }
                (ListAnswer::Nothing { token }, Err(expected)) => {
                    assert_eq!(token.as_deref(), expected);
                }
                (found, expected) => panic!("{names}: {found:?}, not {expected:?}"),
            }
        }
    }

    /// Answers one request on a connection, sends nothing more, and keeps the connection open.
    async fn that_answers(answer: String) -> Client {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        tokio::spawn(async move {
            let (mut socket, _) = listener.accept().await.unwrap();
            let mut request = Vec::new();
            while !request.ends_with(b"\r\n\r\n") {
                request.push(socket.read_u8().await.unwrap());
            }
            socket.write_all(answer.as_bytes()).await.unwrap();
            std::future::pending::<()>().await;
        });
        let config = aws_sdk_s3::Config::builder()
            .behavior_version(BehaviorVersion::latest())
            .http_client(crate::sdk::client())
            .region(Region::new("us-east-1"))
            .credentials_provider(Credentials::new("key", "secret", None, None, "test"))
            .stalled_stream_protection(StalledStreamProtectionConfig::disabled())
            .endpoint_url(url)
            .force_path_style(true)
            .build();
        Client::from_conf(config)
    }

    #[tokio::test]
    async fn a_download_that_stalls_ends() {
        for (length, expected) in [(5, Ok("seven")), (7, Err("no data arrived for 50ms"))] {
            let answer = format!("HTTP/1.1 200 OK\r\ncontent-length: {length}\r\n\r\nseven");
            let mut store = S3ObjectStore::new(that_answers(answer).await, "b".to_owned(), "B");
            store.silence_max = Duration::from_millis(50);
            match (store.get("object").await, expected) {
                (Ok(Some(content)), Ok(expected)) => assert_eq!(content, expected),
                (Err(Failure::Retry(reason)), Err(expected)) => {
                    assert_eq!(
                        reason,
                        format!("GetObject of `object` was interrupted: {expected}")
                    );
                }
                (found, expected) => panic!("{found:?}, not {expected:?}"),
            }
        }
    }

    #[test]
    fn an_object_that_others_are_writing_is_not_stale() {
        for (status, code, expected) in [
            (412, "PreconditionFailed", true),
            (404, "NoSuchKey", true),
            (404, "NoSuchBucket", false),
            (409, "ConditionalRequestConflict", false),
            (409, "OperationAborted", false),
            (403, "AccessDenied", false),
            (503, "SlowDown", false),
        ] {
            let error = PutObjectError::generic(ErrorMetadata::builder().code(code).build());
            let status = u16::try_from(status).unwrap().try_into().unwrap();
            let response = HttpResponse::new(status, SdkBody::empty());
            let error = SdkError::service_error(error, response);
            assert_eq!(is_stale(&error), expected, "{code}");
        }
    }

    #[test]
    fn earlier_versions_are_all_but_the_current_ones() {
        for (text, expected) in [
            ("a:1* b:2*", ""),
            ("a:2* a:1 b:3*", "a:1"),
            // The object was written before versioning was enabled.
            ("a:2* a:null", "a:null"),
            ("a:null*", ""),
            // Compaction removed the object: the marker is current, and the content is not.
            ("a:-3* a:2 a:1", "a:2 a:1"),
            ("a:4* a:-3 a:2", "a:2 a:3"),
        ] {
            let earlier = earlier_of(&page(text, false));
            let found =
                earlier.iter().map(|id| format!("{}:{}", id.key(), id.version_id().unwrap()));
            assert_eq!(found.collect::<Vec<_>>().join(" "), expected, "{text}");
        }
    }

    #[test]
    fn a_listing_of_versions_continues_after_the_last_whole_object() {
        for (text, is_truncated, expected) in [
            ("a:1* b:1*", false, None),
            ("a:1* b:2* b:1", true, Some("a")),
            ("c:9* c:8 c:7", true, Some("before")),
            ("a:1* c:-1* b:1", true, Some("b")),
        ] {
            let found = listed_whole(&page(text, is_truncated), "before");
            assert_eq!(found.as_deref(), expected, "{text}");
        }
    }
}
