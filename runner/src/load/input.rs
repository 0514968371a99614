//! The file that is loaded: one that has a name, or what comes on standard input.
//!
//! How it is written is not known here.

use std::fs::File;
use std::io::{Read, Write};
use std::path::{Path, PathBuf};

use tempfile::NamedTempFile;

/// What stands for standard input in place of a file's name.
pub(super) const STANDARD_INPUT: &str = "-";

/// A file that can be opened more than once.
pub(super) struct Input {
    path: PathBuf,
    /// What it is called in messages.
    name: String,
    /// What came on standard input. The types of CSV columns are inferred from the whole of a file, so
    /// it is read twice.
    _kept: Option<NamedTempFile>,
}

impl Input {
    /// The file of a name; for `-` what `standard` gives, to its end.
    ///
    /// # Errors
    /// When standard input cannot be read, or kept.
    pub(super) fn new(file: &Path, standard: impl Read) -> Result<Self, String> {
        if file != Path::new(STANDARD_INPUT) {
            let name = file.display().to_string();
            return Ok(Self { path: file.to_owned(), name, _kept: None });
        }
        let kept = keep(standard)?;
        let path = kept.path().to_owned();
        Ok(Self { path, name: STANDARD_INPUT.to_owned(), _kept: Some(kept) })
    }

    pub(super) fn name(&self) -> &str {
        &self.name
    }

    /// # Errors
    /// When it cannot be opened, with its name.
    pub(super) fn open(&self) -> Result<File, String> {
        File::open(&self.path).map_err(|error| format!("cannot open `{}`: {error}", self.name))
    }
}

fn keep(mut standard: impl Read) -> Result<NamedTempFile, String> {
    let unkept = |error: std::io::Error| {
        let folder = std::env::temp_dir();
        let folder = folder.display();
        format!("cannot keep standard input in `{folder}` (TMPDIR names another folder): {error}")
    };
    let mut kept = NamedTempFile::new().map_err(unkept)?;
    let mut part = vec![0; 64 * 1024];
    loop {
        match standard.read(&mut part) {
            Ok(0) => break,
            Ok(read) => kept.write_all(part.get(..read).unwrap_or_default()).map_err(unkept)?,
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
            Err(error) => return Err(format!("cannot read standard input: {error}")),
        }
    }
    kept.flush().map_err(unkept)?;
    Ok(kept)
}
