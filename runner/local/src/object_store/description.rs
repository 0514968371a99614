//! What S3 keeps beside an object's content, in one small JSON file per key.
//!
//! The file lies at `<root>/.objects/<bucket>/<2 digits>/<32 digits>.json`, named by the MD5 of the
//! key. It lists up to two descriptions, each with the identity (size, time, file number) of the
//! object file that it belongs to. A write puts the new one beside the old one before it renames
//! the object, so at every moment, also after a crash, the object that is there has its own.
//! An object without a description (put there by hand) gets one computed.

use std::{
    collections::BTreeMap,
    fs::{self, File, Metadata},
    io::{self, Read},
    path::{Path, PathBuf},
    time::UNIX_EPOCH,
};

use s3s::crypto::{Checksum as _, Md5};
use serde::{Deserialize, Serialize};

use super::checksum::{Checksums, Claims, Hasher, hex};

/// The version of the file's shape.
const VERSION: u8 = 1;

/// What S3 keeps beside an object's content.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Description {
    /// 32 hexadecimal digits.
    pub(super) etag: String,
    pub(super) checksums: Checksums,
    /// `content-type` and its like, by lower-case name.
    pub(super) headers: BTreeMap<String, String>,
    /// The user's own `x-amz-meta-` headers, without that prefix.
    pub(super) metadata: BTreeMap<String, String>,
}

/// Tells one written file from the next at the same path.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Identity {
    size: u64,
    modified_ns: u64,
    file_number: u64,
}

impl Identity {
    pub(super) fn of(metadata: &Metadata) -> Self {
        let modified =
            metadata.modified().ok().and_then(|time| time.duration_since(UNIX_EPOCH).ok());
        let modified_ns = modified.and_then(|time| u64::try_from(time.as_nanos()).ok());
        Self {
            size: metadata.len(),
            modified_ns: modified_ns.unwrap_or_default(),
            file_number: file_number(metadata),
        }
    }
}

#[cfg(unix)]
fn file_number(metadata: &Metadata) -> u64 {
    std::os::unix::fs::MetadataExt::ino(metadata)
}

#[cfg(not(unix))]
fn file_number(_metadata: &Metadata) -> u64 {
    0
}

#[derive(Debug, Serialize, Deserialize)]
struct Sidecar {
    version: u8,
    key: String,
    entries: Vec<(Identity, Description)>,
}

/// Where the description of `key` lies below `folder`, the bucket's folder of descriptions.
pub(super) fn path_in(folder: &Path, key: &str) -> PathBuf {
    let name = hex(&Md5::checksum(key.as_bytes()));
    let (first, _) = name.split_at(2);
    folder.join(first).join(format!("{name}.json"))
}

/// The description that belongs to the object file with this identity, if one was written.
pub(super) fn read(path: &Path, key: &str, identity: &Identity) -> Option<Description> {
    let sidecar: Sidecar = serde_json::from_slice(&fs::read(path).ok()?).ok()?;
    if sidecar.version != VERSION || sidecar.key != key {
        return None;
    }
    let found = sidecar.entries.into_iter().find(|(of, _)| of == identity);
    found.map(|(_, description)| description)
}

/// Writes the descriptions of an object's next file and of its present one, through `temporary`.
pub(super) fn write(
    path: &Path,
    temporary: &Path,
    key: &str,
    entries: Vec<(Identity, Description)>,
) -> io::Result<()> {
    let sidecar = Sidecar { version: VERSION, key: key.to_owned(), entries };
    let folder = path.parent().unwrap_or(path);
    fs::create_dir_all(folder)?;
    let file = File::create_new(temporary)?;
    serde_json::to_writer(&file, &sidecar)?;
    file.sync_data()?;
    fs::rename(temporary, path)
}

/// The description of a file that has none: its ETag, nothing else.
pub(super) fn compute(file: &mut File) -> io::Result<Description> {
    let mut hasher = Hasher::new(&Claims::default());
    let mut buffer = vec![0; 256 * 1_024];
    loop {
        let read = file.read(&mut buffer)?;
        match buffer.get(..read) {
            Some([]) | None => break,
            Some(bytes) => hasher.update(bytes),
        }
    }
    Ok(Description { etag: hasher.finish().etag(), ..Description::default() })
}
