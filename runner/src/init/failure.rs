//! Why a project was not written, by what is to be done about it.
//!
//! It only has the words.

use std::path::PathBuf;

/// Why a project was not written.
#[derive(Debug, thiserror::Error)]
pub(super) enum InitError {
    /// Use another folder, or move the files away.
    #[error(
        "these files are in the way: {}; nothing was written\n  = help: name another folder, such as `weir init KIND FOLDER`",
        listed(.0)
    )]
    InTheWay(Vec<PathBuf>),
    /// Install a package of Weir, or build its programs.
    #[error(
        "the function `{name}` is not beside `weir`: there is no file `{}`\n  = help: install a package of Weir, which has it, or run `cargo build --workspace --bins` in Weir's sources",
        .path.display()
    )]
    MissingProgram { name: &'static str, path: PathBuf },
    /// Name another table, or correct the flag.
    #[error("{0}")]
    Table(String),
    /// Correct what the operating system refused.
    #[error("cannot write `{}`: {source}", .path.display())]
    Write { path: PathBuf, source: std::io::Error },
}

fn listed(paths: &[PathBuf]) -> String {
    paths.iter().map(|path| format!("`{}`", path.display())).collect::<Vec<_>>().join(", ")
}
