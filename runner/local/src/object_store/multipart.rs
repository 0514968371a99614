//! Multipart uploads: the parts are stored in `<root>/.uploads/<upload>` until they become one object.
//!
//! The object's ETag is the MD5 of its whole content, so that it can be computed from the file. S3 uses the
//! MD5 of the parts' MD5s instead. An upload is kept until it is completed or aborted.

use std::{
    collections::BTreeMap,
    fs::{self, File},
    io::{ErrorKind, Read, Write},
    path::{Path, PathBuf},
    process,
    time::{SystemTime, UNIX_EPOCH},
};

use s3s::crypto::{Checksum as _, Md5};
use serde::{Deserialize, Serialize};

use super::{
    Error, ObjectStore,
    checksum::{Claims, Content, Hasher, hex},
    description::Description,
    files::{Condition, TemporaryFile},
    key,
};

/// The range of part numbers, both inclusive. Source: Amazon S3 user guide, "Amazon S3 multipart upload
/// limits".
const PART_NUMBERS: std::ops::RangeInclusive<i32> = 1..=10_000;

/// The minimum size in bytes of a part other than the last. Source: as for `PART_NUMBERS`.
const PART_BYTES_MIN: u64 = 5 * 1_024 * 1_024;

/// The object that an upload will become.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct Upload {
    pub(super) bucket: String,
    pub(super) key: String,
    pub(super) headers: BTreeMap<String, String>,
    pub(super) metadata: BTreeMap<String, String>,
}

/// An uploaded part.
#[derive(Debug, Clone)]
struct Part {
    number: i32,
    etag: String,
    size: u64,
    path: PathBuf,
}

impl ObjectStore {
    /// Creates an upload and returns its id.
    pub(super) fn create_upload(&self, upload: &Upload) -> Result<String, Error> {
        self.bucket_folder(&upload.bucket)?;
        key::path_of(&upload.key)?;
        let temporary = self.temporary();
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_nanos();
        let seed = format!("{} {now} {}", process::id(), temporary.path().display());
        let identifier = hex(&Md5::checksum(seed.as_bytes()));
        let folder = self.uploads().join(&identifier);
        fs::create_dir(&folder).map_err(Error::disk("create", &folder))?;
        let path = folder.join("upload.json");
        let written =
            File::create_new(&path).map_err(Error::disk("create", &path)).and_then(|file| {
                let written = serde_json::to_writer(file, upload);
                written.map_err(|error| Error::disk("write", &path)(error.into()))
            });
        if written.is_err() {
            // Ignores a failure of this removal; the caller gets the error of the preceding write.
            let _removed = fs::remove_dir_all(&folder);
        }
        written.map(|()| identifier)
    }

    /// Stores a received part. Replaces a part with the same number.
    pub(super) fn add_part(
        &self,
        identifier: &str,
        number: i32,
        temporary: &TemporaryFile,
        content: &Content,
    ) -> Result<(), Error> {
        if !PART_NUMBERS.contains(&number) {
            return Err(Error::InvalidArgument(format!(
                "part={number} is not between 1 and 10000"
            )));
        }
        let (folder, _) = self.upload(identifier)?;
        let path = folder.join(format!("{number:05}.{}", content.etag()));
        fs::rename(temporary.path(), &path).map_err(Error::disk("write", &path))?;
        for part in parts_in(&folder)? {
            if part.number == number && part.path != path {
                fs::remove_file(&part.path).map_err(Error::disk("remove", part.path))?;
            }
        }
        Ok(())
    }

    /// Joins the named parts, in order, to one object, if `condition` holds. Returns the object's
    /// ETag.
    pub(super) fn complete_upload(
        &self,
        identifier: &str,
        wanted: &[(i32, Option<String>)],
        condition: &Condition,
    ) -> Result<String, Error> {
        let (folder, upload) = self.upload(identifier)?;
        let parts = chosen(parts_in(&folder)?, wanted)?;
        let temporary = self.temporary();
        let content = concatenate(&parts, temporary.path())?;
        let etag = content.etag();
        let Upload { bucket, key, headers, metadata } = upload;
        let checksums = content.checksums;
        let description = Description { etag: etag.clone(), checksums, headers, metadata };
        self.place(&bucket, &key, temporary, description, condition)?;
        fs::remove_dir_all(&folder).map_err(Error::disk("remove", folder))?;
        Ok(etag)
    }

    /// Removes an upload and its parts.
    pub(super) fn abort_upload(&self, identifier: &str) -> Result<(), Error> {
        let (folder, _) = self.upload(identifier)?;
        fs::remove_dir_all(&folder).map_err(Error::disk("remove", folder))
    }

    fn uploads(&self) -> PathBuf {
        self.root().join(".uploads")
    }

    /// Returns the folder of an upload, and the object that it will become.
    pub(super) fn upload(&self, identifier: &str) -> Result<(PathBuf, Upload), Error> {
        let no_such_upload = || Error::NoSuchUpload { upload: identifier.to_owned() };
        // The id becomes a folder name, so only the form of generated ids is accepted.
        if identifier.len() != 32 || !identifier.bytes().all(|byte| byte.is_ascii_hexdigit()) {
            return Err(no_such_upload());
        }
        let folder = self.uploads().join(identifier);
        let path = folder.join("upload.json");
        let bytes = fs::read(&path).map_err(|error| match error.kind() {
            ErrorKind::NotFound => no_such_upload(),
            _ => Error::disk("read", &path)(error),
        })?;
        let upload = serde_json::from_slice(&bytes)
            .map_err(|error| Error::disk("read", &path)(error.into()))?;
        Ok((folder, upload))
    }
}

/// Returns the uploaded parts in a folder, in no order.
fn parts_in(folder: &Path) -> Result<Vec<Part>, Error> {
    let mut parts = Vec::new();
    for entry in fs::read_dir(folder).map_err(Error::disk("list", folder))? {
        let entry = entry.map_err(Error::disk("list", folder))?;
        let name = entry.file_name();
        let Some((number, etag)) = name.to_str().and_then(|name| name.split_once('.')) else {
            continue;
        };
        let Ok(number) = number.parse() else { continue };
        let size = entry.metadata().map_err(Error::disk("read", entry.path()))?.len();
        parts.push(Part { number, etag: etag.to_owned(), size, path: entry.path() });
    }
    Ok(parts)
}

/// Returns the parts that a completion names, after S3's checks.
fn chosen(parts: Vec<Part>, wanted: &[(i32, Option<String>)]) -> Result<Vec<Part>, Error> {
    if wanted.is_empty() {
        return Err(Error::InvalidArgument("a completion must name at least one part".to_owned()));
    }
    if !wanted.is_sorted_by(|(a, _), (b, _)| a < b) {
        return Err(Error::InvalidPartOrder);
    }
    let mut by_number: BTreeMap<i32, Part> =
        parts.into_iter().map(|part| (part.number, part)).collect();
    let mut chosen = Vec::with_capacity(wanted.len());
    for (number, etag) in wanted {
        let part = by_number.remove(number);
        let part = part.filter(|part| etag.as_ref().is_none_or(|etag| *etag == part.etag));
        chosen.push(part.ok_or(Error::InvalidPart { part: *number })?);
    }
    if let Some((_, but_last)) = chosen.split_last()
        && let Some(small) = but_last.iter().find(|part| part.size < PART_BYTES_MIN)
    {
        return Err(Error::PartTooSmall { part: small.number });
    }
    Ok(chosen)
}

fn concatenate(parts: &[Part], path: &Path) -> Result<Content, Error> {
    let mut target = File::create_new(path).map_err(Error::disk("create", path))?;
    let mut hasher = Hasher::new(&Claims::default());
    let mut buffer = vec![0; 256 * 1_024];
    for part in parts {
        let mut source = File::open(&part.path).map_err(Error::disk("read", &part.path))?;
        loop {
            let read = source.read(&mut buffer).map_err(Error::disk("read", &part.path))?;
            let Some(bytes) = buffer.get(..read).filter(|bytes| !bytes.is_empty()) else { break };
            hasher.update(bytes);
            target.write_all(bytes).map_err(Error::disk("write", path))?;
        }
    }
    target.sync_all().map_err(Error::disk("sync", path))?;
    Ok(hasher.finish())
}
