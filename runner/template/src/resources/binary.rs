//! The binary of a function: the package that builds it, or the file beside `weir`. It neither
//! builds nor starts anything.

use std::env;
use std::path::{Path, PathBuf};

/// A binary that a function needs.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Wanted {
    /// The function's `CodeUri`: the folder of the package's `Cargo.toml`.
    pub package_folder: PathBuf,
    /// The name of the binary in that package.
    pub binary: String,
}

impl Wanted {
    /// Returns true if there is a package to build the binary from.
    #[must_use]
    pub fn has_source(&self) -> bool {
        self.package_folder.join("Cargo.toml").is_file()
    }

    /// Returns why the binary can be neither built nor found; `None` if it can.
    #[must_use]
    pub fn absence(&self) -> Option<Missing> {
        let program = env::current_exe().unwrap_or_default();
        match self.has_source() {
            true => None,
            false => found_beside(&program, &self.package_folder, &self.binary).err(),
        }
    }
}

/// A binary that has neither a package nor a file.
#[derive(Debug, thiserror::Error)]
#[error(
    "there is no package=`{manifest}` to build binary=`{binary}` from, and no file=`{beside}`; run weir in the project's folder, correct CodeUri, or put the binary there"
)]
pub struct Missing {
    /// The name of the binary.
    binary: String,
    /// The `Cargo.toml` that the package would have.
    manifest: PathBuf,
    /// The file that the binary would be.
    beside: PathBuf,
}

/// Returns the path of the binary `name` beside `program`, for a package without sources.
///
/// # Errors
/// When there is no such file.
pub fn found_beside(program: &Path, package_folder: &Path, name: &str) -> Result<PathBuf, Missing> {
    let beside = program.with_file_name(format!("{name}{}", env::consts::EXE_SUFFIX));
    if beside.is_file() {
        return Ok(beside);
    }
    let manifest = package_folder.join("Cargo.toml");
    Err(Missing { binary: name.to_owned(), manifest, beside })
}
