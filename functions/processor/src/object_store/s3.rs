//! The object store on S3.
//!
//! Retries of single requests are the SDK's; what its errors mean for us is decided here.

use aws_sdk_s3::Client;
use aws_sdk_s3::error::{DisplayErrorContext, ProvideErrorMetadata, SdkError};
use aws_sdk_s3::primitives::ByteStream;
use bytes::Bytes;

use super::{ChangeOutcome, ObjectEntry, ObjectMaintenance, ObjectStore, PutOutcome};
use crate::failure::Failure;

/// Pages of one listing at most: a bucket of the archive has at most 99,999 parts, 1,000 a page.
const LIST_PAGES_MAX: usize = 100;

/// One bucket of S3.
#[derive(Clone, Debug)]
pub struct S3ObjectStore {
    client: Client,
    bucket: String,
    setting: &'static str,
}

impl S3ObjectStore {
    /// The bucket `bucket`, which the environment variable `setting` names.
    #[must_use]
    pub fn new(client: Client, bucket: String, setting: &'static str) -> Self {
        Self { client, bucket, setting }
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
    async fn list(&self, prefix: &str) -> Result<Vec<ObjectEntry>, Failure> {
        let mut entries = Vec::new();
        let mut token = None;
        for _ in 0..LIST_PAGES_MAX {
            let page = self
                .client
                .list_objects_v2()
                .bucket(&self.bucket)
                .prefix(prefix)
                .set_continuation_token(token)
                .send()
                .await
                .map_err(|error| self.failure("ListObjectsV2", &error))?;
            token = page.next_continuation_token;
            entries.extend(page.contents.unwrap_or_default().into_iter().filter_map(|object| {
                let written = object.last_modified.map(|time| time.secs());
                Some(ObjectEntry {
                    name: object.key?,
                    entity_tag: object.e_tag.unwrap_or_default(),
                    bytes: object.size.and_then(|bytes| u64::try_from(bytes).ok()).unwrap_or(0),
                    written_seconds: written
                        .and_then(|seconds| u64::try_from(seconds).ok())
                        .unwrap_or(0),
                })
            }));
            if token.is_none() {
                return Ok(entries);
            }
        }
        Err(Failure::Fatal(format!(
            "bucket=`{}` has more than {LIST_PAGES_MAX} pages of objects under `{prefix}`",
            self.bucket
        )))
    }

    async fn folders(&self, prefix: &str) -> Result<Vec<String>, Failure> {
        let mut folders = Vec::new();
        let mut token = None;
        for _ in 0..LIST_PAGES_MAX {
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
            "bucket=`{}` has more than {LIST_PAGES_MAX} pages of folders under `{prefix}`",
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
            Err(error) => return Err(self.failure("GetObject", &error)),
        };
        let content = object.body.collect().await.map_err(|error| {
            Failure::Retry(format!("GetObject `{name}` broke off: {}", DisplayErrorContext(&error)))
        })?;
        Ok(Some(content.into_bytes()))
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
            Ok(_) => Ok(ChangeOutcome::Made),
            // 404: the object is gone. Source: S3 user guide, "How to prevent object overwrites
            // with conditional writes".
            Err(error) => match status(&error) {
                Some(404 | 409 | 412) if !is_missing_bucket(&error) => Ok(ChangeOutcome::Stale),
                _ => Err(self.failure("PutObject", &error)),
            },
        }
    }

    async fn remove(&self, name: &str, entity_tag: &str) -> Result<ChangeOutcome, Failure> {
        let request =
            self.client.delete_object().bucket(&self.bucket).key(name).if_match(entity_tag);
        match request.send().await {
            Ok(_) => Ok(ChangeOutcome::Made),
            // Source: S3 user guide, "How to perform conditional deletes".
            Err(error) => match status(&error) {
                Some(404 | 409 | 412) if !is_missing_bucket(&error) => Ok(ChangeOutcome::Stale),
                _ => Err(self.failure("DeleteObject", &error)),
            },
        }
    }

    async fn forget_earlier(&self, name: &str) -> Result<usize, Failure> {
        let mut forgotten = 0;
        for _ in 0..LIST_PAGES_MAX {
            let request = self.client.list_object_versions().bucket(&self.bucket).prefix(name);
            let page = match request.send().await {
                Ok(page) => page,
                // A store without versions has no earlier ones.
                Err(error) if status(&error) == Some(501) => return Ok(forgotten),
                Err(error) => return Err(self.failure("ListObjectVersions", &error)),
            };
            let versions = page.versions.unwrap_or_default().into_iter();
            let earlier: Vec<String> = versions
                .filter(|version| version.key.as_deref() == Some(name))
                .filter(|version| version.is_latest != Some(true))
                .filter_map(|version| version.version_id)
                .filter(|id| id != "null")
                .collect();
            if earlier.is_empty() {
                return Ok(forgotten);
            }
            for id in earlier {
                let request = self.client.delete_object().bucket(&self.bucket).key(name);
                let removed = request.version_id(id).send().await;
                removed.map_err(|error| self.failure("DeleteObjectVersion", &error))?;
                forgotten += 1;
            }
        }
        Err(Failure::Retry(format!("object `{name}` has too many earlier versions for one run")))
    }
}

fn is_missing_bucket<E>(error: &SdkError<E>) -> bool
where
    E: ProvideErrorMetadata + std::error::Error + 'static,
{
    error.as_service_error().and_then(ProvideErrorMetadata::code) == Some("NoSuchBucket")
}
