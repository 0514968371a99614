//! Finds the archive of a command from its flags, the environment, or the `weir up` of this folder.
//!
//! To find the bucket that has an archive, this module lists buckets and their objects. It reads no
//! object.

use std::path::PathBuf;

use clap::Args;

use super::source::{BucketTables, Source};
use client::aws_host;
use client::endpoint;
use client::failure::{Context, Result, fatal};
use client::output::say;
use client::running::{Running, RunningState};

/// The environment variable with the S3 endpoint, which every AWS SDK and `weir` read.
const ENDPOINT_VARIABLE: &str = "AWS_ENDPOINT_URL_S3";
/// The environment variable with the archive's bucket, which the function `archive` also reads.
const BUCKET_VARIABLE: &str = "ARCHIVE_BUCKET";
const ON_AWS: &str = "on AWS invoke `archive-maintenance` (docs/archive.md)";

/// Flags that name an archive. A flag overrides an environment variable. clap does not read the
/// variables, because it would report a conflict between a variable and other flags.
#[derive(Clone, Debug, Default, Args)]
pub(super) struct PlaceArguments {
    /// Read the archive from files below a folder
    #[arg(long, global = true, value_name = "FOLDER", conflicts_with_all = ["s3_endpoint", "bucket"])]
    pub folder: Option<PathBuf>,
    /// The S3 endpoint; on AWS https://s3.REGION.amazonaws.com [default: AWS_ENDPOINT_URL_S3, or
    /// the `weir up` in this folder]
    #[arg(long, global = true, value_name = "URL")]
    pub s3_endpoint: Option<String>,
    /// The bucket [default: ARCHIVE_BUCKET, or the only bucket with an archive]
    #[arg(long, global = true)]
    pub bucket: Option<String>,
    /// Key prefix of the archive's objects
    #[arg(long, global = true, default_value = "archive/", env = "ARCHIVE_PREFIX")]
    pub prefix: String,
}

/// The result of a search for an archive.
pub(super) enum Found {
    /// An archive, which may have no parts.
    Archive(Source),
    /// No bucket has an archive; the message explains why.
    Nothing(String),
}

impl PlaceArguments {
    /// Finds the archive.
    ///
    /// # Errors
    /// When there is no archive, or more than one archive.
    pub(super) async fn find(&self) -> Result<Source> {
        match self.look().await? {
            Found::Archive(source) => Ok(source),
            Found::Nothing(why) => Err(why.into()),
        }
    }

    /// Searches for the archive, which need not exist yet.
    ///
    /// # Errors
    /// When there is more than one archive, or no endpoint is known.
    pub(super) async fn look(&self) -> Result<Found> {
        if let Some(folder) = &self.folder {
            return Ok(Found::Archive(Source::Folder(folder.clone())));
        }
        let bucket = self.bucket.clone().or_else(|| std::env::var(BUCKET_VARIABLE).ok());
        let (url, running) = self.endpoint()?;
        self.at(&url, bucket, running.as_ref()).await
    }

    /// Returns the running `weir up`, if no flag or variable names a different archive.
    ///
    /// # Errors
    /// When a flag or variable names another archive, or no `weir up` is running.
    pub(super) fn running(&self) -> Result<Running> {
        let what = "only a function of the running `weir up` changes the archive";
        if self.folder.is_some() || self.s3_endpoint.is_some() {
            return Err(fatal!("{what}: remove --folder and --s3-endpoint; {ON_AWS}"));
        }
        let running = Running::read()?;
        match std::env::var(ENDPOINT_VARIABLE) {
            Ok(url) if url.trim_end_matches('/') != running.s3 => Err(fatal!(
                "{what}, but {ENDPOINT_VARIABLE}={url} names another endpoint: unset the variable; {ON_AWS}"
            )),
            _ => self.is_maintained_by(&running).map(|()| running),
        }
    }

    /// Checks that the named archive is the one that the function changes. If they differ, the
    /// command would not count the rows that the function erases.
    fn is_maintained_by(&self, running: &Running) -> Result<()> {
        let Running { archive_bucket, archive_prefix, .. } = running;
        let other = |named: &str| {
            Err(fatal!(
                "the function changes the archive under `{archive_prefix}` of the bucket `{archive_bucket}`, but {named} names a different archive: remove {named}"
            ))
        };
        // An earlier version of `weir up` does not publish its archive bucket.
        if archive_bucket.is_empty() {
            return Ok(());
        }
        match &self.bucket {
            Some(bucket) if bucket != archive_bucket => other(&format!("--bucket {bucket}")),
            _ if self.prefix.trim_end_matches('/') != archive_prefix.trim_end_matches('/') => {
                other(&format!("--prefix {} (or ARCHIVE_PREFIX)", self.prefix))
            }
            _ => Ok(()),
        }
    }

    /// Returns the archive of the running `weir up`, which its functions change.
    ///
    /// # Errors
    /// When no `weir up` is running, or a flag names another archive.
    pub(super) async fn of_running(&self) -> Result<Found> {
        let running = self.running()?;
        let own = Some(&running.archive_bucket).filter(|bucket| !bucket.is_empty()).cloned();
        let bucket = self.bucket.clone().or(own);
        self.at(&running.s3, bucket, Some(&running)).await
    }

    /// Returns the endpoint, and the `weir up` that serves it, if any.
    fn endpoint(&self) -> Result<(String, Option<Running>)> {
        let look = RunningState::here();
        let running = match &look {
            RunningState::Running(running) => Some(running.clone()),
            _ => None,
        };
        let of_running =
            |url: &str| running.clone().filter(|running| running.s3 == url.trim_end_matches('/'));
        if let Some(url) = &self.s3_endpoint {
            let url = endpoint::checked(url, "--s3-endpoint")?;
            let running = of_running(&url);
            return Ok((url, running));
        }
        if let Ok(url) = std::env::var(ENDPOINT_VARIABLE) {
            let url = endpoint::checked(&url, ENDPOINT_VARIABLE)?;
            let own = of_running(&url);
            if let (None, Some(other)) = (&own, &running) {
                say(&format!(
                    "the archive is read from {ENDPOINT_VARIABLE}={url}, not from the `weir up` of this folder at {}",
                    other.s3
                ));
            }
            return Ok((url, own));
        }
        match look {
            RunningState::Running(running) => Ok((running.s3.clone(), Some(running))),
            RunningState::Ended(ended) => Err(fatal!(
                "{}, or read its files with --folder {}",
                ended.has_ended(),
                ended.directory.join("s3").display()
            )),
            RunningState::NotStarted => Err(fatal!(
                "no archive found: start `weir up` in this folder, or use --folder FOLDER or --s3-endpoint URL (on AWS: https://s3.REGION.amazonaws.com)"
            )),
        }
    }

    /// Returns the archive at an S3 endpoint. `running` is the `weir up` that serves the endpoint,
    /// if there is one.
    ///
    /// # Errors
    /// When there are several archives, or the endpoint is on AWS and no bucket is named.
    pub(super) async fn at(
        &self,
        url: &str,
        bucket: Option<String>,
        running: Option<&Running>,
    ) -> Result<Found> {
        if let Some(of_bucket) = named_for_bucket(url) {
            return Err(fatal!(
                "`{url}` is the address of the bucket `{of_bucket}`: use the S3 endpoint of its region, for example https://s3.eu-central-1.amazonaws.com, and --bucket {of_bucket}"
            ));
        }
        let client = endpoint::s3_client(url);
        let bucket = match bucket {
            Some(bucket) => bucket,
            // An account may see buckets of other accounts and regions, so on AWS the bucket must
            // be named.
            None if aws_host::is_on_aws(url) => {
                return Err(fatal!(
                    "no bucket is named: on AWS buckets are not searched for an archive; use --bucket or {BUCKET_VARIABLE}"
                ));
            }
            None => match only_bucket(&client, &self.prefix).await? {
                Some(bucket) => bucket,
                None => {
                    return Ok(Found::Nothing(format!(
                        "no bucket has an archive under `{}` yet: check with `weir status` whether records are waiting, or name another bucket with --bucket",
                        self.prefix
                    )));
                }
            },
        };
        let folder = running.map(|running| running.directory.join("s3").join(&bucket));
        let prefix = self.prefix.clone();
        let store = running.map(|running| running.dynamodb.clone());
        let home = BucketTables { s3: url.to_owned(), store };
        let client = Box::new(client);
        Ok(Found::Archive(Source::Bucket { client, bucket, prefix, folder, home }))
    }
}

/// Returns the bucket of a virtual-hosted URL on AWS; `None` for other URLs.
fn named_for_bucket(url: &str) -> Option<&str> {
    let host = url.strip_prefix("https://").filter(|_| aws_host::is_on_aws(url))?;
    let (bucket, _) = host.split_once(".s3.")?;
    // In a VPC endpoint's host name, the first label belongs to the endpoint and is not a bucket.
    (!bucket.starts_with("vpce-") && !bucket.contains(".vpce-")).then_some(bucket)
}

/// Returns the only bucket that has tables under the prefix; `None` if there is no such bucket.
async fn only_bucket(client: &aws_sdk_s3::Client, prefix: &str) -> Result<Option<String>> {
    let answer = client.list_buckets().send().await;
    let answer = answer.context(|| "cannot list buckets")?;
    let mut found = Vec::new();
    for bucket in answer.buckets().iter().filter_map(|bucket| bucket.name()) {
        let request = client.list_objects_v2().bucket(bucket).max_keys(1);
        let page = request.prefix(format!("{prefix}table=")).send().await;
        let page = page.context(|| format!("cannot list `{bucket}`"))?;
        if !page.contents().is_empty() {
            found.push(bucket.to_owned());
        }
    }
    match found.as_slice() {
        [] => Ok(None),
        [bucket] => Ok(Some(bucket.clone())),
        _ => Err(fatal!(
            "several buckets have an archive: {}; choose one with --bucket",
            found.join(", ")
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The command counts rows in the same archive in which the function erases them.
    #[test]
    fn an_archive_that_the_function_does_not_change_is_refused() {
        let of = |bucket: &str, prefix: &str| Running {
            archive_bucket: bucket.to_owned(),
            archive_prefix: prefix.to_owned(),
            ..Running::default()
        };
        for (bucket, prefix, running, refused) in [
            (None, "archive/", of("own", "archive/"), None),
            (Some("own"), "archive", of("own", "archive/"), None),
            (Some("other"), "archive/", of("own", "archive/"), Some("--bucket other")),
            (None, "old/", of("own", "archive/"), Some("--prefix old/")),
            (Some("other"), "old/", of("", ""), None),
        ] {
            let place = PlaceArguments {
                bucket: bucket.map(str::to_owned),
                prefix: prefix.to_owned(),
                ..PlaceArguments::default()
            };
            match (place.is_maintained_by(&running), refused) {
                (Ok(()), None) => {}
                (Err(said), Some(named)) => assert!(said.to_string().contains(named), "{said}"),
                (found, _) => panic!("{bucket:?} {prefix}: {found:?}"),
            }
        }
    }

    #[tokio::test]
    async fn on_aws_the_bucket_is_named_and_nothing_is_searched() {
        let url = "https://s3.eu-central-1.amazonaws.com";
        let of = |bucket: Option<&str>| {
            let bucket = bucket.map(str::to_owned);
            async move { PlaceArguments::default().at(url, bucket, None).await }
        };
        let Err(said) = of(None).await else { panic!("it was looked for") };
        assert!(said.to_string().contains("use --bucket"), "{said}");
        let of_bucket = PlaceArguments::default()
            .at("https://b.s3.eu-central-1.amazonaws.com", Some("b".to_owned()), None)
            .await;
        let Err(said) = of_bucket else { panic!("it is no address of S3") };
        assert!(said.to_string().contains("--bucket b"), "{said}");
        let Ok(Found::Archive(source)) = of(Some("b")).await else { panic!("it was named") };
        assert!(source.is_of_store("https://dynamodb.eu-central-1.amazonaws.com"));
        assert!(!source.is_of_store("http://127.0.0.1:8000"));
    }
}
