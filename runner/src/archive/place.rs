//! Which archive a command means: its flags, or the `weir up` that runs in this folder.
//!
//! Nothing is read of the archive but which buckets have one.

use std::path::{Path, PathBuf};

use aws_sdk_s3::error::DisplayErrorContext;
use clap::Args;

use super::source::Source;
use crate::endpoint::{self, RUNNING_FILE};

/// Which archive.
#[derive(Clone, Debug, Default, Args)]
pub(super) struct PlaceArguments {
    /// Read the archive from files below a folder
    #[arg(long, global = true, value_name = "FOLDER", conflicts_with_all = ["s3_endpoint", "bucket"])]
    pub folder: Option<PathBuf>,
    /// The S3 endpoint; without it, that of the `weir up` in this folder
    #[arg(long, global = true, value_name = "URL", env = "AWS_ENDPOINT_URL_S3")]
    pub s3_endpoint: Option<String>,
    /// The bucket; without it, the only one that has an archive
    #[arg(long, global = true, env = "ARCHIVE_BUCKET")]
    pub bucket: Option<String>,
    /// What the keys of the archive's objects begin with
    #[arg(long, global = true, default_value = "archive/", env = "ARCHIVE_PREFIX")]
    pub prefix: String,
}

impl PlaceArguments {
    /// Finds the archive.
    ///
    /// # Errors
    /// When there is none, or more than one.
    pub(super) async fn find(&self) -> Result<Source, String> {
        if let Some(folder) = &self.folder {
            return Ok(Source::Folder(folder.clone()));
        }
        let url = self.s3_endpoint.clone().or_else(running_endpoint).ok_or(
            "no archive is known: start `weir up` in this folder, or name one with --folder FOLDER or --s3-endpoint URL",
        )?;
        let client = endpoint::s3_client(&url);
        let bucket = match &self.bucket {
            Some(bucket) => bucket.clone(),
            None => only_bucket(&client, &self.prefix).await?,
        };
        Ok(Source::Bucket { client: Box::new(client), bucket, prefix: self.prefix.clone() })
    }
}

fn running_endpoint() -> Option<String> {
    let text = std::fs::read_to_string(Path::new(RUNNING_FILE)).ok()?;
    let json: serde_json::Value = serde_json::from_str(&text).ok()?;
    json.get("s3")?.as_str().map(str::to_owned)
}

/// The bucket that has tables under the prefix.
async fn only_bucket(client: &aws_sdk_s3::Client, prefix: &str) -> Result<String, String> {
    let failed = |what: &str, reason: String| format!("cannot list {what}: {reason}");
    let answer = client.list_buckets().send().await;
    let answer =
        answer.map_err(|error| failed("buckets", DisplayErrorContext(&error).to_string()))?;
    let mut found = Vec::new();
    for bucket in answer.buckets().iter().filter_map(|bucket| bucket.name()) {
        let request = client.list_objects_v2().bucket(bucket).max_keys(1);
        let page = request.prefix(format!("{prefix}table=")).send().await;
        let page = page.map_err(|error| failed(bucket, DisplayErrorContext(&error).to_string()))?;
        if !page.contents().is_empty() {
            found.push(bucket.to_owned());
        }
    }
    match found.as_slice() {
        [bucket] => Ok(bucket.clone()),
        [] => Err(format!("no bucket has an archive under `{prefix}` yet; name one with --bucket")),
        _ => Err(format!(
            "several buckets have an archive: {}; name one with --bucket",
            found.join(", ")
        )),
    }
}
