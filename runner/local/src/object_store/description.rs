//! The data that S3 stores with an object's content, in one small JSON file for each key.
//!
//! The file is `<root>/.objects/<bucket>/<2 digits>/<32 digits>.json`; the digits are the MD5 of the
//! key. The file has up to two descriptions, each with the identity (size, time, inode) of its object
//! file. A write adds the new description to the old description, and then renames the object. The
//! existing object therefore always has its description, even after a crash. For an object file that a
//! user copied into the folder, the description is computed.

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

/// The version of the file's format.
const VERSION: u8 = 1;

/// The data that S3 stores with an object's content.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Description {
    /// The ETag: 32 hexadecimal digits.
    pub(super) etag: String,
    pub(super) checksums: Checksums,
    /// The stored content headers, such as `content-type`, by lower-case name.
    pub(super) headers: BTreeMap<String, String>,
    /// The user's own `x-amz-meta-` headers, without this prefix.
    pub(super) metadata: BTreeMap<String, String>,
}

/// The identity of an object file. It distinguishes files that were written to the same path.
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

/// Returns the path of the description of `key` below `folder`, the bucket's folder of descriptions.
pub(super) fn path_in(folder: &Path, key: &str) -> PathBuf {
    let name = hex(&Md5::checksum(key.as_bytes()));
    let (first, _) = name.split_at(2);
    folder.join(first).join(format!("{name}.json"))
}

/// Returns the description of the object file with this identity; `None` if no description is
/// stored.
pub(super) fn read(path: &Path, key: &str, identity: &Identity) -> Option<Description> {
    let sidecar: Sidecar = serde_json::from_slice(&fs::read(path).ok()?).ok()?;
    if sidecar.version != VERSION || sidecar.key != key {
        return None;
    }
    let found = sidecar.entries.into_iter().find(|(of, _)| of == identity);
    found.map(|(_, description)| description)
}

/// Writes the descriptions of an object's next file and of its existing file. The descriptions are
/// first written to the path `temporary`, which is then renamed.
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

/// Computes the description of a file without a stored description. The result has only the ETag.
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
