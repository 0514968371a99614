//! The reasons why a project was not written, grouped by the action that the user must take.

use std::path::PathBuf;

/// The reason why a project was not written.
#[derive(Debug, thiserror::Error)]
pub(super) enum InitError {
    /// Files already exist. The user has to name another folder, or to move the files.
    #[error(
        "these files already exist: {}; nothing was written\n  = help: name a different folder, such as `weir init KIND FOLDER`",
        listed(.0)
    )]
    InTheWay(Vec<PathBuf>),
    /// A program is missing. The user has to install a package of Weir, or to build its programs.
    #[error(
        "cannot find the function `{name}`: no file `{}`\n  = help: install a package of Weir, which contains it, or run `cargo build --workspace --bins` in Weir's repository",
        .path.display()
    )]
    MissingProgram { name: &'static str, path: PathBuf },
    /// The table is not suitable. The user has to name another table, or to correct the flag.
    #[error("{0}")]
    Table(String),
    /// A file cannot be written. The user has to correct the cause that `source` reports.
    #[error("cannot write `{}`: {source}", .path.display())]
    Write { path: PathBuf, source: std::io::Error },
}

fn listed(paths: &[PathBuf]) -> String {
    paths.iter().map(|path| format!("`{}`", path.display())).collect::<Vec<_>>().join(", ")
}
