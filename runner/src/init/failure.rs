//! The reasons why a project was not written, grouped by the action that the user must take.

use std::path::PathBuf;

/// The reason why a project was not written.
#[derive(Debug, thiserror::Error)]
pub(super) enum InitError {
    /// Use another folder, or move the existing files.
    #[error(
        "these files already exist: {}; nothing was written\n  = help: name a different folder, such as `weir init KIND FOLDER`",
        listed(.0)
    )]
    InTheWay(Vec<PathBuf>),
    /// Install a package of Weir, or build its programs.
    #[error(
        "cannot find the function `{name}`: no file `{}`\n  = help: install a package of Weir, which contains it, or run `cargo build --workspace --bins` in Weir's repository",
        .path.display()
    )]
    MissingProgram { name: &'static str, path: PathBuf },
    /// Name another table, or correct the flag.
    #[error("{0}")]
    Table(String),
    /// Correct the problem that the operating system reports.
    #[error("cannot write `{}`: {source}", .path.display())]
    Write { path: PathBuf, source: std::io::Error },
}

fn listed(paths: &[PathBuf]) -> String {
    paths.iter().map(|path| format!("`{}`", path.display())).collect::<Vec<_>>().join(", ")
}
