//! The binary of a function. It is built from a package, or is a file in the folder of the `weir`
//! program.

use std::env;
use std::path::{Path, PathBuf};

/// A binary that a function needs.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Wanted {
    /// The folder of the package's `Cargo.toml`, from the function's `CodeUri`.
    pub package_folder: PathBuf,
    /// The name of the binary in the package.
    pub binary: String,
}

impl Wanted {
    /// Returns true if a package exists from which the binary can be built.
    #[must_use]
    pub fn has_source(&self) -> bool {
        self.package_folder.join("Cargo.toml").is_file()
    }

    /// Returns an error if neither a package nor a file exists for the binary; `None` if one of
    /// them exists.
    #[must_use]
    pub fn absence(&self) -> Option<Missing> {
        let program = env::current_exe().unwrap_or_default();
        match self.has_source() {
            true => None,
            false => found_beside(&program, &self.package_folder, &self.binary).err(),
        }
    }
}

/// An error: neither a package nor a file exists for a binary.
#[derive(Debug, thiserror::Error)]
#[error(
    "neither package=`{manifest}`, which would build binary=`{binary}`, nor file=`{beside}` exists; run weir in the project's folder, correct CodeUri, or put the binary at that path"
)]
pub struct Missing {
    /// The name of the binary.
    binary: String,
    /// The expected path of the package's `Cargo.toml`.
    manifest: PathBuf,
    /// The expected path of the binary.
    beside: PathBuf,
}

/// Returns the path of the binary `name` in the folder of `program`. This binary is used if the
/// package does not exist.
///
/// # Errors
/// Returns an error if this file does not exist.
pub fn found_beside(program: &Path, package_folder: &Path, name: &str) -> Result<PathBuf, Missing> {
    let beside = program.with_file_name(format!("{name}{}", env::consts::EXE_SUFFIX));
    if beside.is_file() {
        return Ok(beside);
    }
    let manifest = package_folder.join("Cargo.toml");
    Err(Missing { binary: name.to_owned(), manifest, beside })
}
