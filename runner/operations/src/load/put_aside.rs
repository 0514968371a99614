//! The file of lines that could not be loaded.
//!
//! Of a count it is the only record of what is not counted, so no load writes over another one's file,
//! nor into it: what was put aside before is kept under a name of its own, and a file that another load
//! is still writing is left to it.

use std::fs::{File, Metadata, OpenOptions, TryLockError};
use std::io::{Error, ErrorKind, Result, Write as _};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use indicatif::ProgressBar;
use serde_json::json;

use super::BadLine;
use client::output::counted;

/// Reasons that are shown on the terminal; all of them are in the file.
const REASONS_SHOWN_MAX: u64 = 10;
/// Files that are kept, or written at the same time, at most.
const FILES_MAX: u32 = 10_000;

/// The file, made at the first line.
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
            progress.suspend(|| tracing::warn!("put aside: {message}"));
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

    /// Says how many lines are put aside so far, and where; nothing if none are.
    pub(super) fn reached(&self) -> String {
        match self.count {
            0 => String::new(),
            count => format!(", {count} put aside in `{}`", self.path.display()),
        }
    }

    /// How many lines were put aside, and where, if any were.
    ///
    /// # Errors
    /// When they could not be written down.
    pub(super) fn finish(self) -> std::result::Result<(u64, Option<PathBuf>), String> {
        match self.failure {
            Some(error) => Err(format!(
                "{} could not be loaded and not be put aside in `{}` either: {error}",
                counted(self.count, "line", "lines"),
                self.path.display()
            )),
            None => Ok((self.count, (self.count > 0).then_some(self.path))),
        }
    }
}

/// Opens an empty file that nobody else writes: this one, after what it holds was kept beside it, or
/// one beside it if another load is writing this one.
fn open(path: &Path) -> Result<(PathBuf, File)> {
    if let Some(folder) = path.parent() {
        std::fs::create_dir_all(folder)?;
    }
    for number in 1..=FILES_MAX {
        let path = match number {
            1 => path.to_owned(),
            number => path.with_extension(format!("{number}.ndjson")),
        };
        // Two loads that begin at the same time make one file, which one of them locks.
        let file = OpenOptions::new().append(true).create(true).open(&path)?;
        match file.try_lock() {
            Err(TryLockError::WouldBlock) => continue,
            // On a file system without locks, nobody knows of two loads at the same time.
            Ok(()) | Err(TryLockError::Error(_)) => {}
        }
        if !stands_at(&file, &path)? {
            // Another load was quicker, and has kept it beside the one that it writes.
            continue;
        }
        if file.metadata()?.len() == 0 {
            return Ok((path, file));
        }
        keep(&path)?;
        let file = OpenOptions::new().append(true).create_new(true).open(&path);
        match file {
            // Else another load was quicker.
            Ok(file) if !matches!(file.try_lock(), Err(TryLockError::WouldBlock)) => {
                return Ok((path, file));
            }
            Ok(_) => {}
            Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
            Err(error) => return Err(error),
        }
    }
    Err(Error::new(ErrorKind::AlreadyExists, "all names beside it are taken"))
}

/// Whether a file that was opened is still the one of its name.
fn stands_at(file: &File, path: &Path) -> Result<bool> {
    let of = |metadata: Metadata| (metadata.dev(), metadata.ino());
    match std::fs::metadata(path) {
        Ok(there) => Ok(of(there) == of(file.metadata()?)),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(false),
        Err(error) => Err(error),
    }
}

/// Gives what was put aside before a name that no other file has.
fn keep(path: &Path) -> Result<()> {
    for number in 1..=FILES_MAX {
        let kept = match number {
            1 => path.with_extension("before.ndjson"),
            number => path.with_extension(format!("before-{number}.ndjson")),
        };
        // The name is taken first, so that two that keep a file do not choose the same one.
        match OpenOptions::new().write(true).create_new(true).open(&kept) {
            Ok(_) => {}
            Err(error) if error.kind() == ErrorKind::AlreadyExists => continue,
            Err(error) => return Err(error),
        }
        std::fs::rename(path, &kept)?;
        tracing::warn!("lines put aside before are now in {}", kept.display());
        return Ok(());
    }
    Err(Error::new(ErrorKind::AlreadyExists, "too many files of lines put aside before are kept"))
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
