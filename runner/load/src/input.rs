//! The input of a load: a named file, standard input, or a pipe.
//!
//! Input that is compressed or can be read only once is copied into an unnamed temporary file.

use std::fs::File;
use std::io::{Error, ErrorKind, Read, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::reading::Reading;
use super::{export_folder, foreign};
use client::failure::{Context, Failure, Result, fatal};

/// The byte order mark that editors on Windows write before UTF-8 text.
const BYTE_ORDER_MARK: &[u8] = "\u{feff}".as_bytes();

/// The file name that means standard input.
pub(super) const STANDARD_INPUT: &str = "-";

/// A file that can be opened more than once. This is necessary because the types of CSV columns are
/// inferred from all records before the first record is loaded.
pub(super) enum Input {
    Named(PathBuf),
    /// An unnamed copy of standard input, of a pipe or of unpacked data. It disappears with the
    /// process.
    Kept {
        name: String,
        file: Arc<File>,
    },
}

impl Input {
    /// Opens a file by name. `-` and a pipe are read completely. For a folder, the lines of its
    /// export are read. gzip and zstd are decompressed. `standard` is standard input.
    ///
    /// # Errors
    /// When the input cannot be read, unpacked or copied, or has an unsupported format.
    pub(super) fn new(file: &Path, standard: impl Read) -> Result<Self> {
        let input = Self::as_given(file, standard)?;
        // A missing file is reported when its lines are read.
        let Ok(opened) = input.open() else { return Ok(input) };
        let name = input.name();
        let unpacked = foreign::unpacked(&opened).context(|| format!("cannot read `{name}`"))?;
        let input = match unpacked {
            Some(unpacked) => {
                let file = Arc::new(keep(unpacked, &format!("`{name}`"))?);
                Self::Kept { name, file }
            }
            None => input,
        };
        foreign::check(&input.name(), &input.open()?)?;
        Ok(input)
    }

    fn as_given(file: &Path, standard: impl Read) -> Result<Self> {
        if file.is_dir() {
            let mut kept = tempfile::tempfile().map_err(|error| unkept("the export", &error))?;
            export_folder::write_lines(file, &mut kept)?;
            let name = file.display().to_string();
            return Ok(Self::Kept { name, file: Arc::new(kept) });
        }
        if file == Path::new(STANDARD_INPUT) {
            let file = Arc::new(keep(standard, "standard input")?);
            return Ok(Self::Kept { name: STANDARD_INPUT.to_owned(), file });
        }
        let named = Self::Named(file.to_owned());
        // A missing file, or a path that is not a file, is reported when its lines are read.
        let is_pipe = file.metadata().is_ok_and(|found| !found.is_file() && !found.is_dir());
        if !is_pipe {
            return Ok(named);
        }
        let name = named.name();
        let file = Arc::new(keep(named.open()?.file.as_ref(), &format!("`{name}`"))?);
        Ok(Self::Kept { name, file })
    }

    /// Returns the input's name for messages.
    pub(super) fn name(&self) -> String {
        match self {
            Self::Named(path) => path.display().to_string(),
            Self::Kept { name, .. } => name.clone(),
        }
    }

    /// Opens the input at its beginning.
    ///
    /// # Errors
    /// When the input cannot be opened; the message contains the input's name.
    pub(super) fn open(&self) -> Result<Reading> {
        let file = match self {
            Self::Named(path) => {
                Arc::new(File::open(path).context(|| format!("cannot open `{}`", self.name()))?)
            }
            Self::Kept { file, .. } => Arc::clone(file),
        };
        Ok(Reading::of(file))
    }

    /// Opens the input's text, and skips a byte order mark at its beginning.
    ///
    /// # Errors
    /// When the input cannot be opened or read; the message contains the input's name.
    pub(super) fn open_text(&self) -> Result<Reading> {
        let mut opened = self.open()?;
        let mut mark = Vec::new();
        let read = opened.by_ref().take(BYTE_ORDER_MARK.len() as u64).read_to_end(&mut mark);
        read.context(|| format!("cannot read `{}`", self.name()))?;
        Ok(if mark == BYTE_ORDER_MARK { opened } else { opened.rewound() })
    }

    /// Returns the size of the input in bytes.
    ///
    /// # Errors
    /// When the input's metadata cannot be read; the message contains the input's name.
    pub(super) fn bytes(&self) -> Result<u64> {
        let opened = self.open()?;
        let looked = opened.file.metadata();
        Ok(looked.context(|| format!("cannot read the metadata of `{}`", self.name()))?.len())
    }
}

fn unkept(name: &str, error: &Error) -> Failure {
    let folder = std::env::temp_dir();
    let folder = folder.display();
    fatal!(
        "cannot copy {name} into the temporary folder `{folder}` (set TMPDIR to use another folder): {error}"
    )
}

fn keep(mut from: impl Read, name: &str) -> Result<File> {
    let unkept = |error: Error| unkept(name, &error);
    let mut kept = tempfile::tempfile().map_err(unkept)?;
    let mut part = vec![0; 64 * 1024];
    loop {
        match from.read(&mut part) {
            Ok(0) => break,
            Ok(read) => kept.write_all(part.get(..read).unwrap_or_default()).map_err(unkept)?,
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(fatal!("cannot read {name}: {error}")),
        }
    }
    kept.flush().map_err(unkept)?;
    Ok(kept)
}
