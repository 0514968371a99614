//! Finds and opens the archive's parts: files in a folder, or objects behind an S3 endpoint.
//!
//! The module does not interpret rows.

use std::fs::{self, File};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;
use model::Item;
use parquet::arrow::ProjectionMask;
use parquet::arrow::arrow_reader::{
    ArrowReaderMetadata, ArrowReaderOptions, ParquetRecordBatchReader,
    ParquetRecordBatchReaderBuilder,
};
use parquet::errors::ParquetError;
use parquet::file::metadata::ParquetMetaDataReader;
use parquet::file::reader::ChunkReader;
use rules::marks::restored::archive_name;

use super::cell::{Row, rows_of};
use super::paging::{self, COMPACTED, ObjectPage};
use client::aws_host::is_on_aws;
use client::failure::{Context, Failure, Result, fatal};
use client::sdk_error::is_not_found;

/// Rows per decoded batch. An item has at most 400 KB, so a batch has at most some 50 MB.
const BATCH_ROWS: usize = 128;
/// Maximum size of an object that is read into memory. Parts that a function writes are below 6 MB,
/// because Lambda delivers no larger batch.
const OBJECT_BYTES_MAX: u64 = 256 << 20;
/// Bytes of the first read at an object's end. This is enough for the footer of any part that the
/// function writes.
const FOOTER_BYTES: u64 = 64 << 10;
/// Maximum number of reads of a footer. The second read has the exact size, so the need for a third
/// read means that the footer is malformed.
const FOOTER_READS_MAX: usize = 3;
/// Maximum depth of folders. The layout of an archive has fewer levels.
const DEPTH_MAX: usize = 32;

/// The location of the archive's parts.
#[derive(Debug)]
pub(super) enum Source {
    /// All Parquet files below a folder.
    Folder(PathBuf),
    /// Objects under a prefix.
    Bucket {
        /// The client of the endpoint.
        client: Box<aws_sdk_s3::Client>,
        bucket: String,
        /// Key prefix of the objects, such as `archive/`.
        prefix: String,
        /// The folder that contains the objects as files, if the store is on this machine.
        folder: Option<PathBuf>,
        /// The endpoints that identify the tables whose functions archive into the bucket.
        home: BucketTables,
    },
}

/// The endpoints that identify the tables whose functions archive into a bucket.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct BucketTables {
    /// The S3 endpoint.
    pub(super) s3: String,
    /// The store of the `weir up` that runs in this folder and has the bucket; `None` if there is
    /// no such `weir up`.
    pub(super) store: Option<String>,
}

impl BucketTables {
    /// Returns true if the functions of the store at `url` certainly archive to this bucket. On AWS
    /// the bucket name is sufficient, because it is unique. On a single machine the name is not
    /// sufficient, because every `weir up` has a bucket of the same name.
    fn is_of_store(&self, url: &str) -> bool {
        let url = url.trim_end_matches('/');
        self.store.as_deref().is_some_and(|store| store.trim_end_matches('/') == url)
            || (is_on_aws(&self.s3) && is_on_aws(url))
    }
}

/// One Parquet object of the archive.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Part {
    /// The table, from `table=` in the name.
    pub(super) table: String,
    /// The UTC day of the deletes, from `dt=` in the name.
    pub(super) date: String,
    /// The object's key, or the file's path.
    pub(super) name: String,
    /// Size in bytes.
    pub(super) bytes: u64,
}

impl Part {
    /// Parses a part's name, `…table=T/dt=D/….parquet`; returns `None` for any other name.
    fn from_name(name: &str, bytes: u64) -> Option<Self> {
        let mut backwards = name.rsplit('/');
        let is_parquet = Path::new(backwards.next()?).extension()? == "parquet";
        let date = backwards.next()?.strip_prefix("dt=")?.to_owned();
        let table = backwards.next()?.strip_prefix("table=")?.to_owned();
        is_parquet.then(|| Self { table, date, name: name.to_owned(), bytes })
    }

    /// Returns true for an object that compaction wrote.
    pub(super) fn is_compacted(&self) -> bool {
        self.name.rsplit('/').next().is_some_and(|file| file.starts_with(COMPACTED))
    }

    /// Returns the key prefix of the part's archive.
    fn prefix(&self) -> &str {
        // The last three components are table, day and file, as `from_name` has checked.
        let place = self.name.rmatch_indices('/').nth(2).map_or(0, |(slash, _)| slash + 1);
        self.name.get(..place).unwrap_or_default()
    }

    /// Returns the stream and the minute in the part's name, which order all parts of a table by
    /// time, including compacted objects.
    fn time(&self) -> (&str, &str) {
        let file = self.name.rsplit('/').next().unwrap_or_default();
        let time = file.split_once('-').map_or(file, |(_, time)| time);
        (&self.date, time)
    }

    /// Sorts the parts of one table, newest first.
    pub(super) fn newest_first(mut parts: Vec<Self>) -> Vec<Self> {
        parts.sort_by(|a, b| b.time().cmp(&a.time()).then_with(|| b.cmp(a)));
        parts
    }

    /// Returns the failure of a read of this part, for this reason.
    pub(super) fn failed(&self, reason: impl std::fmt::Display) -> Failure {
        fatal!("cannot read part `{}`: {reason}", self.name)
    }

    /// Returns the rows of the part.
    pub(super) fn rows(
        &self,
        batches: ParquetRecordBatchReader,
    ) -> impl Iterator<Item = Result<Row>> {
        batches.flat_map(move |batch| {
            let rows = batch.map_err(Failure::fatal).and_then(|batch| rows_of(&batch));
            match rows {
                Ok(rows) => rows.into_iter().map(Ok).collect(),
                Err(failure) => vec![Err(self.failed(failure))],
            }
        })
    }

    /// Returns the item of a row.
    pub(super) fn item(&self, row: &Row) -> Result<Item> {
        row.item().map_err(|reason| self.failed(reason))
    }
}

/// The bytes of a part, kept so that its rows can be read several times.
#[derive(Debug)]
pub(super) enum Content {
    /// A file, which stays readable after it is removed.
    File(File),
    /// An object.
    Object(Bytes),
}

impl Content {
    /// Returns the rows, with all columns or with the existing columns of `columns`.
    ///
    /// # Errors
    /// When the content is not Parquet.
    pub(super) fn rows(
        &self,
        columns: Option<&[&str]>,
    ) -> Result<ParquetRecordBatchReader, ParquetError> {
        match self {
            Self::File(file) => batches(file.try_clone()?, columns),
            Self::Object(bytes) => batches(bytes.clone(), columns),
        }
    }

    /// Returns the footer.
    ///
    /// # Errors
    /// When the content is not Parquet.
    pub(super) fn footer(&self) -> Result<ArrowReaderMetadata, ParquetError> {
        match self {
            Self::File(file) => ArrowReaderMetadata::load(file, ArrowReaderOptions::new()),
            Self::Object(bytes) => ArrowReaderMetadata::load(bytes, ArrowReaderOptions::new()),
        }
    }

    /// Returns the event ids of rows that were erased from the part (`weir.erased`,
    /// docs/formats/archive.md).
    ///
    /// # Errors
    /// When the content is not Parquet, or the list is malformed.
    pub(super) fn erased(&self) -> Result<Vec<String>, ParquetError> {
        let footer = self.footer()?;
        let entries = footer.metadata().file_metadata().key_value_metadata();
        let erased = entries.into_iter().flatten().find(|entry| entry.key == "weir.erased");
        match erased.and_then(|entry| entry.value.as_deref()) {
            Some(ids) => {
                serde_json::from_str(ids).map_err(|error| ParquetError::General(error.to_string()))
            }
            None => Ok(Vec::new()),
        }
    }
}

impl Source {
    /// Returns the archive's address, for messages and for tools such as DuckDB.
    pub(super) fn location(&self) -> String {
        match self {
            Self::Folder(folder) => folder.display().to_string(),
            Self::Bucket { bucket, prefix, .. } => {
                format!("s3://{bucket}/{}", prefix.trim_end_matches('/'))
            }
        }
    }

    /// Returns the name that the function `archive` uses for a part's archive. A folder has no
    /// archive name, because it may be a copy of any archive.
    pub(super) fn archive_of(&self, part: &Part) -> Option<String> {
        match self {
            Self::Folder(_) => None,
            Self::Bucket { bucket, .. } => Some(archive_name(bucket, part.prefix())),
        }
    }

    /// Returns true if the archive is on AWS.
    pub(super) fn is_on_aws(&self) -> bool {
        matches!(self, Self::Bucket { home, .. } if is_on_aws(&home.s3))
    }

    /// Returns true if the functions of the store at `url` certainly write to this archive.
    pub(super) fn is_of_store(&self, url: &str) -> bool {
        matches!(self, Self::Bucket { home, .. } if home.is_of_store(url))
    }

    /// Returns the absolute path or URL for a tool on this machine, such as DuckDB. The tool is not
    /// configured for the local S3 endpoint, so it gets the path of the files.
    pub(super) fn files(&self) -> String {
        match self {
            Self::Bucket { folder: Some(folder), prefix, .. } => {
                let folder = folder.join(prefix.trim_end_matches('/'));
                std::path::absolute(&folder).unwrap_or(folder).display().to_string()
            }
            _ => self.location(),
        }
    }

    /// Returns all parts, or only the parts of one table or one day, ordered by table, day and
    /// name.
    ///
    /// # Errors
    /// When the parts cannot be listed.
    pub(super) async fn parts(&self, table: Option<&str>, date: Option<&str>) -> Result<Vec<Part>> {
        let mut parts = match self {
            Self::Folder(folder) => {
                let mut parts = Vec::new();
                find_files(folder, DEPTH_MAX, &mut parts)?;
                parts
            }
            Self::Bucket { client, bucket, prefix, home, .. } => {
                match list(client, bucket, prefix).await? {
                    Some(parts) => parts,
                    // On AWS, the other buckets of the account are not listed.
                    None if is_on_aws(&home.s3) => {
                        return Err(fatal!("no bucket `{bucket}` at {}", home.s3));
                    }
                    None => return Err(no_bucket(client, bucket).await),
                }
            }
        };
        parts.retain(|part| {
            table.is_none_or(|table| part.table == table)
                && date.is_none_or(|date| part.date == date)
        });
        parts.sort();
        Ok(parts)
    }

    /// Reads a part's footer: schema, number of rows, statistics.
    ///
    /// # Errors
    /// When the part does not exist or is not Parquet.
    pub(super) async fn footer(&self, part: &Part) -> Result<ArrowReaderMetadata> {
        let options = ArrowReaderOptions::new();
        if let Self::Folder(_) = self {
            let file = File::open(&part.name).map_err(|error| part.failed(error))?;
            return ArrowReaderMetadata::load(&file, options).map_err(|error| part.failed(error));
        }
        let mut wanted = FOOTER_BYTES;
        for _ in 0..FOOTER_READS_MAX {
            let from = part.bytes.saturating_sub(wanted);
            let end = self.object(part, from..part.bytes).await?;
            let mut reader = ParquetMetaDataReader::new();
            match reader.try_parse_sized(&end, part.bytes) {
                Ok(()) => {
                    let metadata = reader.finish().map_err(|error| part.failed(error))?;
                    return ArrowReaderMetadata::try_new(Arc::new(metadata), options)
                        .map_err(|error| part.failed(error));
                }
                Err(ParquetError::NeedMoreData(more)) => {
                    wanted = u64::try_from(more).unwrap_or(u64::MAX);
                }
                Err(error) => return Err(part.failed(error)),
            }
        }
        Err(part.failed("the footer of the Parquet file is malformed"))
    }

    /// Opens a part, with all columns or with the existing columns of `columns`.
    ///
    /// # Errors
    /// When the part does not exist, is not Parquet, or is too large for memory.
    pub(super) async fn open(
        &self,
        part: &Part,
        columns: Option<&[&str]>,
    ) -> Result<ParquetRecordBatchReader> {
        let content = self.content(part).await?;
        content.rows(columns).map_err(|error| part.failed(error))
    }

    /// Reads the bytes of a part.
    ///
    /// # Errors
    /// When the part does not exist, or is too large for memory.
    pub(super) async fn content(&self, part: &Part) -> Result<Content> {
        match self {
            Self::Folder(_) => {
                File::open(&part.name).map(Content::File).map_err(|error| part.failed(error))
            }
            Self::Bucket { .. } if part.bytes > OBJECT_BYTES_MAX => Err(part.failed(format!(
                "it has {} bytes, and at most {OBJECT_BYTES_MAX} can be read over S3; copy the files (`aws s3 sync`) and read them with --folder, or use DuckDB",
                part.bytes
            ))),
            Self::Bucket { .. } => {
                self.object(part, 0..part.bytes).await.map(Content::Object)
            }
        }
    }

    async fn object(&self, part: &Part, range: Range<u64>) -> Result<Bytes> {
        let Self::Bucket { client, bucket, .. } = self else {
            return Err(part.failed("it is a file, not an S3 object"));
        };
        let request = client.get_object().bucket(bucket).key(&part.name);
        let request =
            request.range(format!("bytes={}-{}", range.start, range.end.saturating_sub(1)));
        let answer = request.send().await;
        let answer = answer.context(|| format!("cannot read part `{}`", part.name))?;
        let body = answer.body.collect().await.map_err(|error| part.failed(error))?;
        Ok(body.into_bytes())
    }
}

fn batches<R: ChunkReader + 'static>(
    input: R,
    columns: Option<&[&str]>,
) -> Result<ParquetRecordBatchReader, ParquetError> {
    let mut builder = ParquetRecordBatchReaderBuilder::try_new(input)?.with_batch_size(BATCH_ROWS);
    if let Some(columns) = columns {
        let fields = builder.schema().fields().iter().enumerate();
        let wanted = fields.filter(|(_, field)| columns.contains(&field.name().as_str()));
        let roots: Vec<usize> = wanted.map(|(position, _)| position).collect();
        let mask = ProjectionMask::roots(builder.parquet_schema(), roots);
        builder = builder.with_projection(mask);
    }
    builder.build()
}

/// Finds the Parquet files below a folder. Hidden folders are skipped: they contain incomplete
/// files and the S3 endpoint's own data.
fn find_files(folder: &Path, depth: usize, parts: &mut Vec<Part>) -> Result<()> {
    let doing = || format!("cannot read `{}`", folder.display());
    let deeper = depth
        .checked_sub(1)
        .ok_or_else(|| fatal!("`{}` is more than {DEPTH_MAX} folders deep", folder.display()))?;
    for entry in fs::read_dir(folder).context(doing)? {
        let entry = entry.context(doing)?;
        if entry.file_name().to_string_lossy().starts_with('.') {
            continue;
        }
        let path = entry.path();
        // Symbolic links are not followed: `file_type` describes the entry itself.
        if entry.file_type().context(doing)?.is_dir() {
            find_files(&path, deeper, parts)?;
        } else {
            let bytes = entry.metadata().context(doing)?.len();
            parts.extend(Part::from_name(&path.to_string_lossy().replace('\\', "/"), bytes));
        }
    }
    Ok(())
}

/// Lists the parts of a bucket; `None` if the bucket does not exist.
async fn list(
    client: &aws_sdk_s3::Client,
    bucket: &str,
    prefix: &str,
) -> Result<Option<Vec<Part>>> {
    let ask = async |prefix: &str, token: Option<String>| {
        let request = client.list_objects_v2().bucket(bucket).prefix(prefix);
        let page = match request.set_continuation_token(token).send().await {
            Ok(page) => page,
            Err(error) if is_not_found(&error) => return Ok(None),
            Err(error) => {
                return Err(error).context(|| format!("cannot list s3://{bucket}/{prefix}"));
            }
        };
        let objects = page.contents.unwrap_or_default().into_iter().filter_map(|object| {
            let bytes = object.size.and_then(|size| u64::try_from(size).ok()).unwrap_or(0);
            Some((object.key?, bytes))
        });
        Ok(Some(ObjectPage { objects: objects.collect(), next: page.next_continuation_token }))
    };
    let found = paging::objects(prefix, ask).await?;
    Ok(found.map(|found| {
        found.iter().filter_map(|(name, bytes)| Part::from_name(name, *bytes)).collect()
    }))
}

/// Returns the failure that the bucket does not exist, with a list of the existing buckets.
async fn no_bucket(client: &aws_sdk_s3::Client, bucket: &str) -> Failure {
    let answer = client.list_buckets().send().await;
    let known = answer.map(|answer| answer.buckets.unwrap_or_default()).unwrap_or_default();
    let names: Vec<&str> = known.iter().filter_map(|bucket| bucket.name()).collect();
    match names.as_slice() {
        [] => fatal!("no bucket `{bucket}`"),
        names => fatal!("no bucket `{bucket}`; buckets are {}", names.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn duckdb_gets_local_files_of_a_bucket() {
        let bucket = |folder| Source::Bucket {
            client: Box::new(client::endpoint::s3_client("http://127.0.0.1:1")),
            bucket: "b".to_owned(),
            prefix: "archive/".to_owned(),
            folder,
            home: BucketTables::default(),
        };
        let here = bucket(Some(PathBuf::from("/data/s3/b")));
        assert_eq!((&*here.location(), &*here.files()), ("s3://b/archive", "/data/s3/b/archive"));
        assert_eq!(bucket(None).files(), "s3://b/archive");
    }

    #[test]
    fn the_newest_parts_are_those_of_the_last_minutes() {
        let names = [
            "dt=2026-11-22/compact-2026-20261122T00-00001",
            "dt=2026-11-21/part-2026-20261121T2301-00002",
            "dt=2026-11-21/part-2026-20261121T2301-00001",
            "dt=2026-11-21/compact-2026-20261121T23-00001",
            "dt=2026-11-21/part-2026-20261121T2259-00001",
            "dt=2026-11-21/compact-2025-20261121T23-00001",
        ];
        let part = |name: &&str| Part::from_name(&format!("table=m/{name}.parquet"), 1).unwrap();
        let mut parts: Vec<Part> = names.iter().map(part).collect();
        let expected = parts.clone();
        parts.sort();
        assert_eq!(Part::newest_first(parts), expected);
    }

    #[test]
    fn names_say_table_and_day() {
        for (name, expected) in [
            ("archive/table=movies/dt=2026-11-21/part-x.parquet", Some(("movies", "2026-11-21"))),
            ("table=m/dt=2026-11-21/a.parquet", Some(("m", "2026-11-21"))),
            ("archive/table=movies/dt=2026-11-21/part-x.tmp", None),
            ("archive/table=movies/part-x.parquet", None),
            ("part-x.parquet", None),
        ] {
            let part = Part::from_name(name, 1);
            let found = part.as_ref().map(|part| (part.table.as_str(), part.date.as_str()));
            assert_eq!(found, expected, "{name}");
        }
    }

    /// The requested prefix may be a part of the archive's prefix, or empty.
    #[test]
    fn a_part_is_of_the_archive_that_its_function_knows() {
        let bucket = |prefix: &str| Source::Bucket {
            client: Box::new(client::endpoint::s3_client("http://127.0.0.1:1")),
            bucket: "b".to_owned(),
            prefix: prefix.to_owned(),
            folder: None,
            home: BucketTables::default(),
        };
        for (name, expected) in [
            ("archive/table=m/dt=2026-11-21/a.parquet", "b/archive/"),
            ("x/archive/table=m/dt=2026-11-21/a.parquet", "b/x/archive/"),
            ("table=m/dt=2026-11-21/a.parquet", "b/"),
        ] {
            let part = Part::from_name(name, 1).unwrap();
            for prefix in ["archive/", "archive", ""] {
                assert_eq!(bucket(prefix).archive_of(&part).as_deref(), Some(expected), "{name}");
            }
            assert_eq!(Source::Folder("b".into()).archive_of(&part), None);
        }
    }

    #[test]
    fn buckets_of_one_name_are_of_different_archives_outside_of_aws() {
        let (here, there) = ("http://127.0.0.1:8000", "http://127.0.0.1:8001");
        let (aws_s3, aws) = (
            "https://s3.eu-central-1.amazonaws.com",
            "https://dynamodb.eu-central-1.amazonaws.com/",
        );
        for (s3, store, url, expected) in [
            ("http://127.0.0.1:9000", Some(here), here, true),
            ("http://127.0.0.1:9000", Some(here), "http://127.0.0.1:8000/", true),
            ("http://127.0.0.1:9000", Some(here), there, false),
            ("http://127.0.0.1:9000", Some(here), aws, false),
            // These are the values that a `weir up` on streams of AWS publishes.
            ("http://127.0.0.1:9000", Some(""), aws, false),
            ("http://127.0.0.1:9000", None, here, false),
            (aws_s3, None, aws, true),
            (aws_s3, None, here, false),
            ("http://s3.amazonaws.com.example.org", None, aws, false),
        ] {
            let home = BucketTables { s3: s3.to_owned(), store: store.map(str::to_owned) };
            assert_eq!(home.is_of_store(url), expected, "{s3} {store:?} {url}");
        }
    }
}
