//! The S3 operations, one method for each: conversions from the request's fields to files and back.
//!
//! All other operations return `NotImplemented` with their name. ACLs, tags, encryption and storage classes
//! of a write are accepted and have no effect.

use s3s::{
    S3, S3Error, S3Request, S3Response, S3Result,
    dto::{self, ETag, ETagCondition},
    s3_error,
};

use super::{
    Error, ObjectStore,
    checksum::set_checksums,
    conversion::{
        Encoding, ReadConditions, announced, content_of, copy_source, full_object, kept_headers,
        metadata_of, object_of, page_limit, set_kept_headers, signed, write_condition,
    },
    description::Description,
    files::Condition,
    key,
    listing::{self, Page, Place, Query},
    multipart::Upload,
    receive::receive,
};

/// The maximum number of keys of one `DeleteObjects`. Source: Amazon S3 API reference.
const DELETE_KEYS_MAX: usize = 1_000;

pub(super) struct Operations {
    store: ObjectStore,
    region: String,
}

impl Operations {
    pub(super) fn new(store: ObjectStore, region: String) -> Self {
        Self { store, region }
    }

    /// Runs blocking work on a thread for blocking tasks.
    async fn blocking<T: Send + 'static>(
        &self,
        work: impl FnOnce(&ObjectStore) -> Result<T, Error> + Send + 'static,
    ) -> S3Result<T> {
        let store = self.store.clone();
        let done = tokio::task::spawn_blocking(move || work(&store)).await;
        Ok(done.map_err(S3Error::internal_error)??)
    }

    async fn page(&self, bucket: String, query: Query) -> S3Result<(Page, Vec<dto::Object>)> {
        self.blocking(move |store| {
            let page = listing::list(&store.bucket_folder(&bucket)?, &query)?;
            let mut objects = Vec::with_capacity(page.keys.len());
            for key in &page.keys {
                match store.find(&bucket, key) {
                    Ok(found) => objects.push(object_of(key, &found)),
                    // The object was deleted after its name was read, so the listing omits it.
                    Err(Error::NoSuchKey { .. }) => {}
                    Err(error) => return Err(error),
                }
            }
            Ok((page, objects))
        })
        .await
    }
}

#[async_trait::async_trait]
impl S3 for Operations {
    async fn create_bucket(
        &self,
        req: S3Request<dto::CreateBucketInput>,
    ) -> S3Result<S3Response<dto::CreateBucketOutput>> {
        let bucket = req.input.bucket;
        let location = Some(format!("/{bucket}"));
        // Creating a bucket that already exists succeeds, because all buckets belong to the caller, as in
        // us-east-1.
        self.blocking(move |store| store.create_bucket(&bucket)).await?;
        Ok(S3Response::new(dto::CreateBucketOutput { location }))
    }

    async fn head_bucket(
        &self,
        req: S3Request<dto::HeadBucketInput>,
    ) -> S3Result<S3Response<dto::HeadBucketOutput>> {
        self.blocking(move |store| store.bucket_folder(&req.input.bucket)).await?;
        let bucket_region = Some(self.region.clone());
        Ok(S3Response::new(dto::HeadBucketOutput { bucket_region, ..Default::default() }))
    }

    async fn get_bucket_location(
        &self,
        req: S3Request<dto::GetBucketLocationInput>,
    ) -> S3Result<S3Response<dto::GetBucketLocationOutput>> {
        self.blocking(move |store| store.bucket_folder(&req.input.bucket)).await?;
        // The location of us-east-1 is an empty value.
        let location = (self.region != "us-east-1").then(|| self.region.clone().into());
        Ok(S3Response::new(dto::GetBucketLocationOutput { location_constraint: location }))
    }

    async fn list_buckets(
        &self,
        req: S3Request<dto::ListBucketsInput>,
    ) -> S3Result<S3Response<dto::ListBucketsOutput>> {
        let prefix = req.input.prefix.unwrap_or_default();
        let buckets = self.blocking(|store| store.buckets()).await?;
        let buckets = buckets.into_iter().filter(|(name, _)| name.starts_with(&prefix));
        let buckets = buckets.map(|(name, made)| dto::Bucket {
            name: Some(name),
            creation_date: Some(made.into()),
            ..Default::default()
        });
        let buckets = Some(buckets.collect());
        Ok(S3Response::new(dto::ListBucketsOutput { buckets, ..Default::default() }))
    }

    async fn delete_bucket(
        &self,
        req: S3Request<dto::DeleteBucketInput>,
    ) -> S3Result<S3Response<dto::DeleteBucketOutput>> {
        self.blocking(move |store| store.delete_bucket(&req.input.bucket)).await?;
        Ok(S3Response::with_status(dto::DeleteBucketOutput {}, http::StatusCode::NO_CONTENT))
    }

    async fn put_object(
        &self,
        req: S3Request<dto::PutObjectInput>,
    ) -> S3Result<S3Response<dto::PutObjectOutput>> {
        let announced = announced(&req.headers, &req.extensions, req.input.content_length);
        let headers = kept_headers(&req.headers);
        let dto::PutObjectInput { bucket, key, body, if_match, if_none_match, metadata, .. } =
            req.input;
        let condition = write_condition(if_match, if_none_match)?;
        // An invalid bucket or key is reported before the content is received.
        self.store.bucket_folder(&bucket)?;
        key::path_of(&key)?;
        let (temporary, content) = receive(&self.store, body, announced).await?;
        let mut output = dto::PutObjectOutput {
            e_tag: Some(ETag::Strong(content.etag())),
            ..Default::default()
        };
        set_checksums!(output, &content.checksums);
        let description = Description {
            etag: content.etag(),
            checksums: content.checksums,
            headers,
            metadata: metadata.unwrap_or_default().into_iter().collect(),
        };
        self.blocking(move |store| store.place(&bucket, &key, temporary, description, &condition))
            .await?;
        Ok(S3Response::new(output))
    }

    async fn get_object(
        &self,
        req: S3Request<dto::GetObjectInput>,
    ) -> S3Result<S3Response<dto::GetObjectOutput>> {
        let dto::GetObjectInput { bucket, key, range, checksum_mode, .. } = req.input;
        let found = self.blocking(move |store| store.find(&bucket, &key)).await?;
        let conditions = ReadConditions {
            if_match: req.input.if_match,
            if_none_match: req.input.if_none_match,
            if_modified_since: req.input.if_modified_since,
            if_unmodified_since: req.input.if_unmodified_since,
        };
        conditions.check(&found)?;
        let bytes = match range {
            Some(range) => range.check(found.size)?,
            None => 0..found.size,
        };
        let last = bytes.end.saturating_sub(1);
        let content_range = range.map(|_| format!("bytes {}-{last}/{}", bytes.start, found.size));
        let mut output = dto::GetObjectOutput {
            accept_ranges: Some("bytes".to_owned()),
            content_length: Some(signed(bytes.end - bytes.start)),
            content_range,
            e_tag: Some(ETag::Strong(found.description.etag.clone())),
            last_modified: Some(found.modified.into()),
            metadata: metadata_of(&found.description),
            ..Default::default()
        };
        set_kept_headers!(output, &found.description.headers);
        if checksum_mode.is_some() && range.is_none() && !found.description.checksums.is_empty() {
            set_checksums!(output, &found.description.checksums);
            output.checksum_type = Some(full_object());
        }
        output.body = Some(content_of(found, bytes).await?);
        Ok(S3Response::new(output))
    }

    async fn head_object(
        &self,
        req: S3Request<dto::HeadObjectInput>,
    ) -> S3Result<S3Response<dto::HeadObjectOutput>> {
        let dto::HeadObjectInput { bucket, key, checksum_mode, .. } = req.input;
        let found = self.blocking(move |store| store.find(&bucket, &key)).await?;
        let conditions = ReadConditions {
            if_match: req.input.if_match,
            if_none_match: req.input.if_none_match,
            if_modified_since: req.input.if_modified_since,
            if_unmodified_since: req.input.if_unmodified_since,
        };
        conditions.check(&found)?;
        let mut output = dto::HeadObjectOutput {
            accept_ranges: Some("bytes".to_owned()),
            content_length: Some(signed(found.size)),
            e_tag: Some(ETag::Strong(found.description.etag.clone())),
            last_modified: Some(found.modified.into()),
            metadata: metadata_of(&found.description),
            ..Default::default()
        };
        set_kept_headers!(output, &found.description.headers);
        if checksum_mode.is_some() && !found.description.checksums.is_empty() {
            set_checksums!(output, &found.description.checksums);
            output.checksum_type = Some(full_object());
        }
        Ok(S3Response::new(output))
    }

    async fn delete_object(
        &self,
        req: S3Request<dto::DeleteObjectInput>,
    ) -> S3Result<S3Response<dto::DeleteObjectOutput>> {
        let condition = write_condition(req.input.if_match, None)?;
        let (bucket, key) = (req.input.bucket, req.input.key);
        self.blocking(move |store| store.delete(&bucket, &key, &condition)).await?;
        let output = dto::DeleteObjectOutput::default();
        Ok(S3Response::with_status(output, http::StatusCode::NO_CONTENT))
    }

    async fn delete_objects(
        &self,
        req: S3Request<dto::DeleteObjectsInput>,
    ) -> S3Result<S3Response<dto::DeleteObjectsOutput>> {
        let dto::DeleteObjectsInput { bucket, delete, .. } = req.input;
        let quiet = delete.quiet.unwrap_or(false);
        if delete.objects.len() > DELETE_KEYS_MAX {
            return Err(s3_error!(MalformedXML, "at most {DELETE_KEYS_MAX} keys per request"));
        }
        let (mut deleted, mut errors) = (Vec::new(), Vec::new());
        self.blocking({
            let bucket = bucket.clone();
            move |store| store.bucket_folder(&bucket)
        })
        .await?;
        for object in delete.objects {
            let condition = write_condition(object.e_tag.map(ETagCondition::ETag), None)?;
            let (bucket, key) = (bucket.clone(), object.key.clone());
            match self.blocking(move |store| store.delete(&bucket, &key, &condition)).await {
                Ok(()) if quiet => {}
                Ok(()) => {
                    let key = Some(object.key);
                    deleted.push(dto::DeletedObject { key, ..Default::default() });
                }
                Err(error) => errors.push(dto::Error {
                    code: Some(error.code().as_str().to_owned()),
                    key: Some(object.key),
                    message: error.message().map(str::to_owned),
                    version_id: None,
                }),
            }
        }
        let (deleted, errors) = (Some(deleted), Some(errors));
        Ok(S3Response::new(dto::DeleteObjectsOutput { deleted, errors, ..Default::default() }))
    }

    async fn list_objects_v2(
        &self,
        req: S3Request<dto::ListObjectsV2Input>,
    ) -> S3Result<S3Response<dto::ListObjectsV2Output>> {
        let input = req.input;
        let limit = page_limit(input.max_keys)?;
        let after = match (&input.continuation_token, &input.start_after) {
            (Some(token), _) => Some(Place::from_token(token)?),
            (None, Some(key)) => Some(Place::Key(key.clone())),
            (None, None) => None,
        };
        let prefix = input.prefix.clone().unwrap_or_default();
        let query = Query { prefix, delimiter: input.delimiter.clone(), after, limit };
        let (page, objects) = self.page(input.bucket.clone(), query).await?;
        let encode = Encoding::of(input.encoding_type.as_ref());
        let key_count = i32::try_from(objects.len() + page.prefixes.len()).ok();
        Ok(S3Response::new(dto::ListObjectsV2Output {
            name: Some(input.bucket),
            prefix: Some(encode.text(input.prefix.unwrap_or_default())),
            delimiter: input.delimiter.map(|text| encode.text(text)),
            start_after: input.start_after.map(|text| encode.text(text)),
            max_keys: i32::try_from(limit).ok(),
            key_count,
            continuation_token: input.continuation_token,
            is_truncated: Some(page.next.is_some()),
            next_continuation_token: page.next.as_ref().map(Place::to_token),
            contents: Some(encode.objects(objects)),
            common_prefixes: Some(encode.prefixes(page.prefixes)),
            encoding_type: input.encoding_type,
            ..Default::default()
        }))
    }

    async fn list_objects(
        &self,
        req: S3Request<dto::ListObjectsInput>,
    ) -> S3Result<S3Response<dto::ListObjectsOutput>> {
        let input = req.input;
        let limit = page_limit(input.max_keys)?;
        // If a page with a delimiter ended at a common prefix, the marker is this prefix, and all keys
        // below it count as listed.
        let delimiter = input.delimiter.clone().filter(|delimiter| !delimiter.is_empty());
        let after = input.marker.clone().map(|marker| match &delimiter {
            Some(delimiter) if marker.ends_with(delimiter) => Place::Prefix(marker),
            _ => Place::Key(marker),
        });
        let prefix = input.prefix.clone().unwrap_or_default();
        let (page, objects) =
            self.page(input.bucket.clone(), Query { prefix, delimiter, after, limit }).await?;
        let encode = Encoding::of(input.encoding_type.as_ref());
        let next_marker = page.next.as_ref().map(|place| match place {
            Place::Key(text) | Place::Prefix(text) => encode.text(text.clone()),
        });
        Ok(S3Response::new(dto::ListObjectsOutput {
            name: Some(input.bucket),
            prefix: Some(encode.text(input.prefix.unwrap_or_default())),
            marker: Some(encode.text(input.marker.unwrap_or_default())),
            delimiter: input.delimiter.map(|text| encode.text(text)),
            max_keys: i32::try_from(limit).ok(),
            is_truncated: Some(page.next.is_some()),
            next_marker,
            contents: Some(encode.objects(objects)),
            common_prefixes: Some(encode.prefixes(page.prefixes)),
            encoding_type: input.encoding_type,
            ..Default::default()
        }))
    }

    async fn copy_object(
        &self,
        req: S3Request<dto::CopyObjectInput>,
    ) -> S3Result<S3Response<dto::CopyObjectOutput>> {
        let headers = kept_headers(&req.headers);
        let dto::CopyObjectInput { bucket, key, copy_source: source, metadata, .. } = req.input;
        let replace = req.input.metadata_directive.is_some_and(|d| d.as_str() == "REPLACE");
        let conditions = ReadConditions {
            if_match: req.input.copy_source_if_match,
            if_none_match: req.input.copy_source_if_none_match,
            if_modified_since: req.input.copy_source_if_modified_since,
            if_unmodified_since: req.input.copy_source_if_unmodified_since,
        };
        let (source_bucket, source_key) = copy_source(&source)?;
        let found = self
            .blocking(move |store| {
                let mut found = store.find(&source_bucket, &source_key)?;
                conditions.check(&found).map_err(|error| match error {
                    // A copy has no result "not modified", so S3 reports a failed precondition.
                    Error::NotModified => {
                        Error::PreconditionFailed { condition: "x-amz-copy-source-if-none-match" }
                    }
                    other => other,
                })?;
                if replace {
                    found.description.headers = headers;
                    found.description.metadata = metadata.unwrap_or_default().into_iter().collect();
                }
                let temporary = store.temporary();
                temporary.copy_from(&mut found.file)?;
                let description = found.description.clone();
                store.place(&bucket, &key, temporary, description, &Condition::None)?;
                store.find(&bucket, &key)
            })
            .await?;
        let mut result = dto::CopyObjectResult {
            e_tag: Some(ETag::Strong(found.description.etag.clone())),
            last_modified: Some(found.modified.into()),
            ..Default::default()
        };
        set_checksums!(result, &found.description.checksums);
        let copy_object_result = Some(result);
        Ok(S3Response::new(dto::CopyObjectOutput { copy_object_result, ..Default::default() }))
    }

    async fn create_multipart_upload(
        &self,
        req: S3Request<dto::CreateMultipartUploadInput>,
    ) -> S3Result<S3Response<dto::CreateMultipartUploadOutput>> {
        let headers = kept_headers(&req.headers);
        let dto::CreateMultipartUploadInput { bucket, key, metadata, .. } = req.input;
        let metadata = metadata.unwrap_or_default().into_iter().collect();
        let upload = Upload { bucket: bucket.clone(), key: key.clone(), headers, metadata };
        let upload_id = self.blocking(move |store| store.create_upload(&upload)).await?;
        Ok(S3Response::new(dto::CreateMultipartUploadOutput {
            bucket: Some(bucket),
            key: Some(key),
            upload_id: Some(upload_id),
            ..Default::default()
        }))
    }

    async fn upload_part(
        &self,
        req: S3Request<dto::UploadPartInput>,
    ) -> S3Result<S3Response<dto::UploadPartOutput>> {
        let announced = announced(&req.headers, &req.extensions, req.input.content_length);
        let dto::UploadPartInput { body, part_number, upload_id, .. } = req.input;
        self.store.upload(&upload_id)?;
        let (temporary, content) = receive(&self.store, body, announced).await?;
        let mut output = dto::UploadPartOutput {
            e_tag: Some(ETag::Strong(content.etag())),
            ..Default::default()
        };
        set_checksums!(output, &content.checksums);
        self.blocking(move |store| store.add_part(&upload_id, part_number, &temporary, &content))
            .await?;
        Ok(S3Response::new(output))
    }

    async fn complete_multipart_upload(
        &self,
        req: S3Request<dto::CompleteMultipartUploadInput>,
    ) -> S3Result<S3Response<dto::CompleteMultipartUploadOutput>> {
        let input = req.input;
        let condition = write_condition(input.if_match, input.if_none_match)?;
        let parts = input.multipart_upload.and_then(|upload| upload.parts).unwrap_or_default();
        let wanted: Vec<(i32, Option<String>)> = parts
            .into_iter()
            .map(|part| (part.part_number.unwrap_or_default(), part.e_tag.map(ETag::into_value)))
            .collect();
        let identifier = input.upload_id;
        let etag = self
            .blocking(move |store| store.complete_upload(&identifier, &wanted, &condition))
            .await?;
        Ok(S3Response::new(dto::CompleteMultipartUploadOutput {
            location: Some(format!("/{}/{}", input.bucket, input.key)),
            bucket: Some(input.bucket),
            key: Some(input.key),
            e_tag: Some(ETag::Strong(etag)),
            ..Default::default()
        }))
    }

    async fn abort_multipart_upload(
        &self,
        req: S3Request<dto::AbortMultipartUploadInput>,
    ) -> S3Result<S3Response<dto::AbortMultipartUploadOutput>> {
        self.blocking(move |store| store.abort_upload(&req.input.upload_id)).await?;
        let output = dto::AbortMultipartUploadOutput::default();
        Ok(S3Response::with_status(output, http::StatusCode::NO_CONTENT))
    }
}
