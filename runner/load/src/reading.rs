//! A reader of a file that several readers share.

use std::fs::File;
use std::io::{Error, ErrorKind, Read, Result as IoResult, Seek, SeekFrom};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;

/// A reader with its own position in a file, which other readers of the file do not move.
pub(super) struct Reading {
    pub(super) file: Arc<File>,
    at: u64,
}

impl Reading {
    /// Returns a reader at the beginning of an open file.
    pub(super) fn of(file: Arc<File>) -> Self {
        Self { file, at: 0 }
    }

    /// Opens a named file.
    ///
    /// # Errors
    /// When the file cannot be opened.
    pub(super) fn open(path: &Path) -> IoResult<Self> {
        Ok(Self::of(Arc::new(File::open(path)?)))
    }

    /// Returns another reader of the same file, at its beginning.
    pub(super) fn rewound(&self) -> Self {
        Self::of(Arc::clone(&self.file))
    }
}

impl Read for Reading {
    fn read(&mut self, into: &mut [u8]) -> IoResult<usize> {
        let read = self.file.read_at(into, self.at)?;
        self.at += u64::try_from(read).map_err(Error::other)?;
        Ok(read)
    }
}

impl Seek for Reading {
    fn seek(&mut self, to: SeekFrom) -> IoResult<u64> {
        let at = match to {
            SeekFrom::Start(at) => Some(at),
            SeekFrom::Current(by) => self.at.checked_add_signed(by),
            SeekFrom::End(by) => self.file.metadata()?.len().checked_add_signed(by),
        };
        self.at = at.ok_or_else(|| Error::from(ErrorKind::InvalidInput))?;
        Ok(self.at)
    }
}
