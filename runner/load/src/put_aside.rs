//! The file of lines that could not be loaded.
//!
//! For a count, the file is the only record of uncounted lines, so a load never changes the file of
//! another load. It renames an earlier file, and uses another name if a concurrent load is writing
//! the file.

use std::fs::{File, Metadata, OpenOptions, TryLockError};
use std::io::{Error, ErrorKind, Result, Write as _};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use indicatif::ProgressBar;
use serde_json::json;

use super::row::BadLine;
use client::failure::{self, fatal};
use client::output::counted;

/// Maximum number of rejected lines that are shown on the terminal. The file has all of them.
const REASONS_SHOWN_MAX: u64 = 10;
/// Maximum number of file names that are tried, for a renamed file or beside a concurrent load.
const FILES_MAX: u32 = 10_000;

/// The file of lines that were put aside. It is created at the first line.
pub(crate) struct PutAside {
    source: PathBuf,
    path: PathBuf,
    file: Option<File>,
    failure: Option<Error>,
    count: u64,
}

impl PutAside {
    pub(super) fn new(source: &Path, path: &Path) -> Self {
        let (source, path) = (source.to_owned(), path.to_owned());
        Self { source, path, file: None, failure: None, count: 0 }
    }

    pub(crate) fn add(&mut self, bad: &BadLine, progress: &ProgressBar) {
        self.count += 1;
        if self.count <= REASONS_SHOWN_MAX {
            let message = format!("{}:{}: {}", self.source.display(), bad.line, bad.reason);
            progress.suspend(|| tracing::warn!("rejected line: {message}"));
        }
        let row = json!({
            "file": self.source, "line": bad.line, "reason": bad.reason, "text": bad.text,
        });
        if let Err(error) = self.write(&row.to_string()) {
            self.failure = Some(error);
        }
    }

    fn write(&mut self, row: &str) -> Result<()> {
        if self.file.is_none() {
            let (path, file) = open(&self.path)?;
            (self.path, self.file) = (path, Some(file));
        }
        self.file.as_mut().map_or(Ok(()), |file| writeln!(file, "{row}"))
    }

    /// Returns a text with the number of rejected lines so far and their file; empty if no line was
    /// rejected.
    pub(super) fn reached(&self) -> String {
        match self.count {
            0 => String::new(),
            count => format!(", {count} rejected lines in `{}`", self.path.display()),
        }
    }

    /// Returns the number of lines that were put aside, and their file if there is one.
    ///
    /// # Errors
    /// When the lines could not be written.
    pub(super) fn finish(self) -> failure::Result<(u64, Option<PathBuf>)> {
        match self.failure {
            Some(error) => Err(fatal!(
                "{} could not be loaded, and could not be written to `{}`: {error}",
                counted(self.count, "line", "lines"),
                self.path.display()
            )),
            None => Ok((self.count, (self.count > 0).then_some(self.path))),
        }
    }
}

/// Opens an empty file that only this load writes. An earlier file at `path` is renamed first. If
/// another load is writing the file at `path`, another name is used.
fn open(path: &Path) -> Result<(PathBuf, File)> {
    if let Some(folder) = path.parent() {
        std::fs::create_dir_all(folder)?;
    }
    for number in 1..=FILES_MAX {
        let path = match number {
            1 => path.to_owned(),
            number => path.with_extension(format!("{number}.ndjson")),
        };
        // Concurrent loads may open the same file, but only one of them gets its lock.
        let file = OpenOptions::new().append(true).create(true).open(&path)?;
        match file.try_lock() {
            Err(TryLockError::WouldBlock) => continue,
            // If the file system has no locks, concurrent loads are not detected.
            Ok(()) | Err(TryLockError::Error(_)) => {}
        }
        if !stands_at(&file, &path)? {
            // A concurrent load has just renamed the file.
            continue;
        }
        if file.metadata()?.len() == 0 {
            return Ok((path, file));
        }
        keep(&path)?;
        let file = OpenOptions::new().append(true).create_new(true).open(&path);
        match file {
            // If the lock is taken, a concurrent load was faster.
            Ok(file) if !matches!(file.try_lock(), Err(TryLockError::WouldBlock)) => {
                return Ok((path, file));
            }
            Ok(_) => {}
            Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
            Err(error) => return Err(error),
        }
    }
    Err(Error::new(
        ErrorKind::AlreadyExists,
        "concurrent loads use all possible names of this file",
    ))
}

/// Returns true if this path still names the open file.
fn stands_at(file: &File, path: &Path) -> Result<bool> {
    let of = |metadata: Metadata| (metadata.dev(), metadata.ino());
    match std::fs::metadata(path) {
        Ok(there) => Ok(of(there) == of(file.metadata()?)),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(false),
        Err(error) => Err(error),
    }
}

/// Renames the file of an earlier load to an unused name.
fn keep(path: &Path) -> Result<()> {
    for number in 1..=FILES_MAX {
        let kept = match number {
            1 => path.with_extension("before.ndjson"),
            number => path.with_extension(format!("before-{number}.ndjson")),
        };
        // The new name is reserved by creating a file, so that concurrent loads choose different
        // names.
        match OpenOptions::new().write(true).create_new(true).open(&kept) {
            Ok(_) => {}
            Err(error) if error.kind() == ErrorKind::AlreadyExists => continue,
            Err(error) => return Err(error),
        }
        std::fs::rename(path, &kept)?;
        tracing::warn!("lines put aside by an earlier load are now in {}", kept.display());
        return Ok(());
    }
    Err(Error::new(
        ErrorKind::AlreadyExists,
        "too many files with rejected lines of earlier loads exist: remove some of them",
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn aside(path: &Path, reason: &str) -> PutAside {
        let mut aside = PutAside::new(Path::new("file"), path);
        let bad = BadLine { line: 1, reason: reason.to_owned(), text: String::new() };
        aside.add(&bad, &ProgressBar::hidden());
        aside
    }

    #[test]
    fn lines_that_were_put_aside_before_are_kept() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("put-aside.ndjson");
        for reason in ["first", "second", "third"] {
            assert_eq!(aside(&path, reason).finish(), Ok((1, Some(path.clone()))));
        }
        for (name, reason) in [
            ("put-aside.before.ndjson", "first"),
            ("put-aside.before-2.ndjson", "second"),
            ("put-aside.ndjson", "third"),
        ] {
            let kept = std::fs::read_to_string(folder.path().join(name)).unwrap();
            assert!(kept.contains(reason) && kept.lines().count() == 1, "{name}: {kept}");
        }
        assert_eq!(PutAside::new(Path::new("file"), &path).finish(), Ok((0, None)));
    }

    #[test]
    fn two_loads_at_the_same_time_have_a_file_each() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("put-aside.ndjson");
        let (first, second) = (aside(&path, "first"), aside(&path, "second"));
        for (aside, reason) in [(first, "first"), (second, "second")] {
            let (_, path) = aside.finish().unwrap();
            let lines = std::fs::read_to_string(path.unwrap()).unwrap();
            assert!(lines.contains(reason) && lines.lines().count() == 1, "{lines}");
        }
    }
}
