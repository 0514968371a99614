//! Buckets and objects on disk: atomic, durable, conditional writes of plain files.
//!
//! All functions block; the endpoint calls them from blocking tasks. HTTP is in `endpoint`.

use std::{
    fs::{self, File, Metadata},
    hash::{BuildHasher, BuildHasherDefault, DefaultHasher},
    io::{self, ErrorKind, Seek},
    path::{Path, PathBuf},
    sync::{
        Arc, MutexGuard,
        atomic::{AtomicU64, Ordering},
    },
    time::SystemTime,
};

use super::{
    Error,
    description::{self, Description, Identity},
    key,
};
use locks::Mutex;

/// The number of locks for keys. Several keys share a lock, so a write may have to wait for the
/// rename of an object with a different key.
const LOCKS: usize = 64;

/// The maximum number of times that a write creates its folders again because a concurrent delete removed
/// them.
const PLACE_ATTEMPTS: usize = 16;

/// The folder of an object store. It contains the buckets, and the data that S3 stores with objects.
#[derive(Debug, Clone)]
pub struct ObjectStore {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    root: PathBuf,
    locks: Vec<Mutex<()>>,
    temporaries: AtomicU64,
}

/// The condition of a write or a delete.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Condition {
    /// No condition.
    None,
    /// `If-None-Match: *`: there must be no object.
    Absent,
    /// `If-Match: *`: there must be an object.
    Present,
    /// `If-Match: <etag>`: the object must have this ETag.
    Etag(String),
}

/// An existing object. Its content stays readable, even if the object is replaced meanwhile.
#[derive(Debug)]
pub(super) struct Found {
    pub(super) file: File,
    pub(super) description: Description,
    pub(super) size: u64,
    pub(super) modified: SystemTime,
}

/// A temporary file outside all buckets. Dropping it removes the file, unless the file became an object.
#[derive(Debug)]
pub(super) struct TemporaryFile {
    path: PathBuf,
    placed: bool,
}

impl TemporaryFile {
    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Copies the rest of `source` into the file, durably.
    pub(super) fn copy_from(&self, source: &mut File) -> Result<(), Error> {
        let mut file = File::create_new(&self.path).map_err(Error::disk("create", &self.path))?;
        io::copy(source, &mut file).map_err(Error::disk("write", &self.path))?;
        file.sync_all().map_err(Error::disk("sync", &self.path))
    }
}

impl Drop for TemporaryFile {
    fn drop(&mut self) {
        if !self.placed {
            // If the removal fails, the next open of the store removes the file.
            let _removed = fs::remove_file(&self.path);
        }
    }
}

impl ObjectStore {
    /// Opens the store in the folder `root`, which is created if missing, and removes the remains of
    /// interrupted writes. Only one process at a time may open a root.
    ///
    /// # Errors
    ///
    /// The folder cannot be created or read.
    pub fn open(root: &Path) -> Result<Self, Error> {
        let temporary = root.join(".tmp");
        match fs::remove_dir_all(&temporary) {
            Err(error) if error.kind() != ErrorKind::NotFound => {
                return Err(Error::disk("clear", temporary)(error));
            }
            _ => {}
        }
        for folder in [&temporary, &root.join(".objects"), &root.join(".uploads")] {
            fs::create_dir_all(folder).map_err(Error::disk("create", folder))?;
        }
        let shared = Shared {
            root: root.to_owned(),
            locks: (0..LOCKS).map(|_| Mutex::new(())).collect(),
            temporaries: AtomicU64::new(0),
        };
        Ok(Self { shared: Arc::new(shared) })
    }

    /// Returns the folder that contains all buckets.
    #[must_use]
    pub fn root(&self) -> &Path {
        &self.shared.root
    }

    /// Creates a bucket. Returns false if it already exists.
    ///
    /// # Errors
    ///
    /// `InvalidBucketName`, or an error of the disk.
    pub fn create_bucket(&self, bucket: &str) -> Result<bool, Error> {
        let folder = self.folder_of(bucket)?;
        match fs::create_dir(&folder) {
            Ok(()) => {}
            Err(error) if error.kind() == ErrorKind::AlreadyExists && folder.is_dir() => {
                return Ok(false);
            }
            Err(error) => return Err(Error::disk("create", folder)(error)),
        }
        sync_folder(self.root())?;
        Ok(true)
    }

    /// Returns the folder of an existing bucket.
    ///
    /// # Errors
    ///
    /// `NoSuchBucket`, `InvalidBucketName`.
    pub fn bucket_folder(&self, bucket: &str) -> Result<PathBuf, Error> {
        let folder = self.folder_of(bucket)?;
        if folder.is_dir() { Ok(folder) } else { Err(no_such_bucket(bucket)) }
    }

    fn folder_of(&self, bucket: &str) -> Result<PathBuf, Error> {
        // A valid name is a plain file name that does not begin with a dot.
        if !s3s::path::check_bucket_name(bucket) {
            return Err(Error::InvalidBucketName { bucket: bucket.to_owned() });
        }
        Ok(self.root().join(bucket))
    }

    /// Returns all buckets by name, each with its creation time.
    pub(super) fn buckets(&self) -> Result<Vec<(String, SystemTime)>, Error> {
        let mut buckets = Vec::new();
        let entries = fs::read_dir(self.root()).map_err(Error::disk("list", self.root()))?;
        for entry in entries {
            let entry = entry.map_err(Error::disk("list", self.root()))?;
            let (Ok(name), Ok(metadata)) = (entry.file_name().into_string(), entry.metadata())
            else {
                continue;
            };
            if metadata.is_dir() && s3s::path::check_bucket_name(&name) {
                let made = metadata.created().or_else(|_| metadata.modified());
                buckets.push((name, made.unwrap_or(SystemTime::UNIX_EPOCH)));
            }
        }
        buckets.sort();
        Ok(buckets)
    }

    /// Removes an empty bucket.
    pub(super) fn delete_bucket(&self, bucket: &str) -> Result<(), Error> {
        let folder = self.bucket_folder(bucket)?;
        remove_empty_folders(&folder);
        match fs::remove_dir(&folder) {
            Ok(()) => {}
            Err(error) if error.kind() == ErrorKind::DirectoryNotEmpty => {
                return Err(Error::BucketNotEmpty { bucket: bucket.to_owned() });
            }
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            Err(error) => return Err(Error::disk("remove", folder)(error)),
        }
        // Descriptions that remain after a failure are overwritten in a later bucket of the same name.
        let _removed = fs::remove_dir_all(self.root().join(".objects").join(bucket));
        sync_folder(self.root())
    }

    /// Returns a name for a new file outside all buckets.
    pub(super) fn temporary(&self) -> TemporaryFile {
        let number = self.shared.temporaries.fetch_add(1, Ordering::Relaxed);
        let path = self.root().join(".tmp").join(number.to_string());
        TemporaryFile { path, placed: false }
    }

    /// Renames a written and synced temporary file to the object `key`, if `condition` holds.
    pub(super) fn place(
        &self,
        bucket: &str,
        key: &str,
        mut temporary: TemporaryFile,
        description: Description,
        condition: &Condition,
    ) -> Result<(), Error> {
        let folder = self.bucket_folder(bucket)?;
        let relative = key::path_of(key)?;
        let sidecar = self.sidecar_of(bucket, key);
        let metadata =
            fs::metadata(&temporary.path).map_err(Error::disk("read", &temporary.path))?;
        let _lock = self.lock(bucket, key);

        let path = folder.join(&relative);
        let present = open_object(key, &path)?;
        self.check(condition, bucket, key, present.as_ref().map(|(_, metadata)| metadata))?;
        let known = present.as_ref().and_then(|(_, metadata)| {
            let identity = Identity::of(metadata);
            description::read(&sidecar, key, &identity).map(|description| (identity, description))
        });
        let mut entries = vec![(Identity::of(&metadata), description)];
        entries.extend(known.clone());
        description::write(&sidecar, &self.temporary().path, key, entries)
            .map_err(Error::disk("describe", &sidecar))?;
        if let Err(error) = rename_into(bucket, key, &temporary.path, &folder, &relative) {
            self.withdraw(key, &sidecar, known, &folder, &relative);
            return Err(error);
        }
        temporary.placed = true;
        sync_folders(&folder, &relative)
    }

    /// Removes the description and the folders that `place` created for a rejected object.
    fn withdraw(
        &self,
        key: &str,
        sidecar: &Path,
        known: Option<(Identity, Description)>,
        folder: &Path,
        relative: &Path,
    ) {
        let withdrawn = match known {
            Some(known) => description::write(sidecar, &self.temporary().path, key, vec![known]),
            None => fs::remove_file(sidecar).map(|()| {
                // If the folder has descriptions of other objects, the removal fails, and they
                // remain.
                let _kept = sidecar.parent().map(fs::remove_dir);
            }),
        };
        if let Err(error) = withdrawn {
            // A description without its object is harmless, because no file has the same identity.
            tracing::debug!(%error, key, "cannot remove the description of a rejected object");
        }
        for parent in relative.ancestors().skip(1).filter(|parent| *parent != Path::new("")) {
            // The removal fails if the folder is not empty or was not created, which does not
            // matter.
            let _kept = fs::remove_dir(folder.join(parent));
        }
    }

    /// Returns the current object `key`.
    pub(super) fn find(&self, bucket: &str, key: &str) -> Result<Found, Error> {
        let path = self.bucket_folder(bucket)?.join(key::path_of(key)?);
        let no_such_key = || Error::NoSuchKey { key: key.to_owned() };
        let (mut file, metadata) = open_object(key, &path)?.ok_or_else(no_such_key)?;
        let identity = Identity::of(&metadata);
        let sidecar = self.sidecar_of(bucket, key);
        let description = match description::read(&sidecar, key, &identity) {
            Some(description) => description,
            None => {
                let computed =
                    description::compute(&mut file).map_err(Error::disk("read", &path))?;
                file.rewind().map_err(Error::disk("read", &path))?;
                self.keep(bucket, key, &path, identity, computed.clone());
                computed
            }
        };
        let modified = metadata.modified().unwrap_or(SystemTime::UNIX_EPOCH);
        Ok(Found { file, description, size: metadata.len(), modified })
    }

    /// Removes the object `key`. Succeeds if there is no such object.
    pub(super) fn delete(
        &self,
        bucket: &str,
        key: &str,
        condition: &Condition,
    ) -> Result<(), Error> {
        let folder = self.bucket_folder(bucket)?;
        let relative = key::path_of(key)?;
        let path = folder.join(&relative);
        let _lock = self.lock(bucket, key);
        let Some((_, metadata)) = open_object(key, &path)? else { return Ok(()) };
        self.check(condition, bucket, key, Some(&metadata))?;
        fs::remove_file(&path).map_err(Error::disk("remove", &path))?;
        if let Some(parent) = path.parent() {
            sync_present_folder(parent)?;
        }
        let _removed = fs::remove_file(self.sidecar_of(bucket, key));
        let emptied = relative.ancestors().skip(1).filter(|folder| *folder != Path::new(""));
        for relative in emptied {
            if fs::remove_dir(folder.join(relative)).is_err() {
                break;
            }
        }
        Ok(())
    }

    /// Stores a computed description, unless the object was replaced meanwhile.
    fn keep(
        &self,
        bucket: &str,
        key: &str,
        path: &Path,
        identity: Identity,
        computed: Description,
    ) {
        let _lock = self.lock(bucket, key);
        let same = fs::metadata(path).is_ok_and(|metadata| Identity::of(&metadata) == identity);
        if same {
            let temporary = self.temporary();
            let sidecar = self.sidecar_of(bucket, key);
            let entries = vec![(identity, computed)];
            if let Err(error) = description::write(&sidecar, &temporary.path, key, entries) {
                // If the write fails, the next read computes the description again.
                tracing::debug!(%error, key, "cannot store the computed description of an object");
            }
        }
    }

    fn check(
        &self,
        condition: &Condition,
        bucket: &str,
        key: &str,
        present: Option<&Metadata>,
    ) -> Result<(), Error> {
        let if_match = Error::PreconditionFailed { condition: "If-Match" };
        match (condition, present) {
            (Condition::None, _) | (Condition::Absent, None) | (Condition::Present, Some(_)) => {
                Ok(())
            }
            (Condition::Absent, Some(_)) => {
                Err(Error::PreconditionFailed { condition: "If-None-Match" })
            }
            // S3 returns 404 if there is no object; 412 is for an object with a different ETag.
            (Condition::Present | Condition::Etag(_), None) => {
                Err(Error::NoSuchKey { key: key.to_owned() })
            }
            (Condition::Etag(etag), Some(metadata)) => {
                let sidecar = self.sidecar_of(bucket, key);
                let description = match description::read(&sidecar, key, &Identity::of(metadata)) {
                    Some(description) => description,
                    None => {
                        let path = self.bucket_folder(bucket)?.join(key::path_of(key)?);
                        let mut file = File::open(&path).map_err(Error::disk("read", &path))?;
                        description::compute(&mut file).map_err(Error::disk("read", &path))?
                    }
                };
                if description.etag == *etag { Ok(()) } else { Err(if_match) }
            }
        }
    }

    fn sidecar_of(&self, bucket: &str, key: &str) -> PathBuf {
        description::path_in(&self.root().join(".objects").join(bucket), key)
    }

    fn lock(&self, bucket: &str, key: &str) -> MutexGuard<'_, ()> {
        let hash = BuildHasherDefault::<DefaultHasher>::default().hash_one((bucket, key));
        let place = usize::try_from(hash % LOCKS as u64).unwrap_or_default();
        let lock = self.shared.locks.get(place).unwrap_or(&FALLBACK);
        lock.lock()
    }
}

/// A fallback that is never used, because there are always `LOCKS` locks. The fallback makes `lock`
/// infallible.
static FALLBACK: Mutex<()> = Mutex::new(());

pub(super) fn no_such_bucket(bucket: &str) -> Error {
    Error::NoSuchBucket { bucket: bucket.to_owned() }
}

/// Opens the file of an object; `None` if there is no regular file with this name.
fn open_object(key: &str, path: &Path) -> Result<Option<(File, Metadata)>, Error> {
    // A link or a pipe is not an object, and opening a pipe would block.
    let opened = fs::symlink_metadata(path).and_then(|metadata| {
        if !metadata.is_file() {
            return Ok(None);
        }
        let file = File::open(path)?;
        let metadata = file.metadata()?;
        Ok(Some((file, metadata)))
    });
    match opened {
        Ok(found) => Ok(found),
        Err(error) => match error.kind() {
            ErrorKind::NotFound | ErrorKind::NotADirectory => Ok(None),
            ErrorKind::InvalidFilename => Err(Error::KeyTooLong { key: key.to_owned() }),
            _ => Err(Error::disk("read", path)(error)),
        },
    }
}

/// Renames `from` to the object's path, and creates the folders of the path.
fn rename_into(
    bucket: &str,
    key: &str,
    from: &Path,
    folder: &Path,
    relative: &Path,
) -> Result<(), Error> {
    let path = folder.join(relative);
    for _ in 0..PLACE_ATTEMPTS {
        create_folders(bucket, key, folder, relative)?;
        match fs::rename(from, &path) {
            Ok(()) => return Ok(()),
            Err(error) => match error.kind() {
                // A concurrent delete removed an empty folder between the two calls, so the loop
                // retries.
                ErrorKind::NotFound => {}
                ErrorKind::IsADirectory
                | ErrorKind::DirectoryNotEmpty
                | ErrorKind::AlreadyExists => {
                    remove_empty_folders(&path);
                    if fs::remove_dir(&path).is_err() && path.is_dir() {
                        let reason = "there are objects below this key, and a folder cannot also be a file; use a different key, or delete those objects first";
                        let reason = reason.to_owned();
                        return Err(Error::InvalidKey { key: key.to_owned(), reason });
                    }
                }
                ErrorKind::InvalidFilename => {
                    return Err(Error::KeyTooLong { key: key.to_owned() });
                }
                _ => return Err(Error::disk("write", path)(error)),
            },
        }
    }
    Err(Error::disk("write", path)(io::Error::other(
        "concurrent deletes repeatedly removed its folder",
    )))
}

/// Creates the folders of an object one by one, so that a deleted bucket is not created again.
fn create_folders(bucket: &str, key: &str, folder: &Path, relative: &Path) -> Result<(), Error> {
    let parents = relative.parent().unwrap_or(Path::new(""));
    let mut path = folder.to_owned();
    for name in parents {
        path.push(name);
        let Err(error) = fs::create_dir(&path) else { continue };
        // Reads the state only once, because concurrent deletes and writes may change it.
        let is_folder = match error.kind() {
            ErrorKind::AlreadyExists => fs::metadata(&path).map(|found| found.is_dir()),
            _ => Ok(false),
        };
        match (error.kind(), is_folder) {
            (ErrorKind::AlreadyExists, Ok(true)) => {}
            (ErrorKind::AlreadyExists, Err(gone)) if gone.kind() == ErrorKind::NotFound => {
                return Ok(());
            }
            (ErrorKind::AlreadyExists | ErrorKind::NotADirectory, _) => {
                let object = path.strip_prefix(folder).unwrap_or(&path).display();
                let reason = format!(
                    "`{object}` is an object, and a file cannot also be a folder; use a different key, or delete that object first"
                );
                return Err(Error::InvalidKey { key: key.to_owned(), reason });
            }
            (ErrorKind::NotFound, _) if !folder.is_dir() => return Err(no_such_bucket(bucket)),
            // A concurrent delete removed the parent; the caller retries.
            (ErrorKind::NotFound, _) => return Ok(()),
            (ErrorKind::InvalidFilename, _) => {
                return Err(Error::KeyTooLong { key: key.to_owned() });
            }
            _ => return Err(Error::disk("create", path)(error)),
        }
    }
    if folder.is_dir() { Ok(()) } else { Err(no_such_bucket(bucket)) }
}

/// Removes the empty folders below `folder`. Folders with files stay.
fn remove_empty_folders(folder: &Path) {
    let Ok(entries) = fs::read_dir(folder) else { return };
    for entry in entries.flatten() {
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            remove_empty_folders(&entry.path());
            let _removed = fs::remove_dir(entry.path());
        }
    }
}

/// Syncs an object's folders, up to the bucket's folder, so that their entries are durable.
fn sync_folders(folder: &Path, relative: &Path) -> Result<(), Error> {
    relative.ancestors().skip(1).try_for_each(|parent| sync_present_folder(&folder.join(parent)))
}

/// Syncs a folder, unless a concurrent delete has removed it.
fn sync_present_folder(folder: &Path) -> Result<(), Error> {
    match sync_folder(folder) {
        Err(error) if folder.is_dir() => Err(error),
        _ => Ok(()),
    }
}

#[cfg(unix)]
fn sync_folder(folder: &Path) -> Result<(), Error> {
    File::open(folder).and_then(|folder| folder.sync_all()).map_err(Error::disk("sync", folder))
}

/// Does nothing: on this system a folder cannot be opened as a file, and the file system itself
/// makes the entries of a folder durable.
#[cfg(not(unix))]
fn sync_folder(_folder: &Path) -> Result<(), Error> {
    Ok(())
}
