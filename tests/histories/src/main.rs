//! Judges histories of registers with the linearizability checker of the crate `todc-utils`.
//!
//! `histories accept FILE...` succeeds if every history is linearizable, `histories reject FILE...` if none is.
//! `docs/development/simulation.md` defines the files. This program translates them, and contains no search.
//! The search has no bound of its own: `tests/histories/run` bounds its time and memory.

use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use todc_utils::WGLChecker;

use crate::translation::{Register, history};

mod translation;

/// The reason why the histories were not judged.
#[derive(Debug, thiserror::Error)]
enum JudgeError {
    #[error("usage: histories accept|reject FILE...")]
    Usage,
    #[error("{}: {source}", path.display())]
    File { path: PathBuf, source: io::Error },
    #[error("{}: line {number}: {source}", path.display())]
    Line { path: PathBuf, number: usize, source: serde_json::Error },
    #[error(transparent)]
    Output(#[from] io::Error),
}

fn main() -> ExitCode {
    match judge(std::env::args().skip(1)) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::from(1),
        Err(error) => {
            // The exit code reports the error, even if standard error is closed.
            let _ = writeln!(io::stderr(), "{error}");
            ExitCode::from(2)
        }
    }
}

/// Judges all files, and lists those that have the wrong verdict. Returns whether there are none.
fn judge(mut arguments: impl Iterator<Item = String>) -> Result<bool, JudgeError> {
    let expected = match arguments.next().as_deref() {
        Some("accept") => true,
        Some("reject") => false,
        _ => return Err(JudgeError::Usage),
    };
    let (mut judged, mut wrong) = (0, 0);
    let mut output = io::stdout().lock();
    for path in arguments.map(PathBuf::from) {
        let is_linearizable = is_linearizable(&path)?;
        judged += 1;
        if is_linearizable != expected {
            wrong += 1;
            let verdict = if is_linearizable { "linearizable" } else { "not linearizable" };
            writeln!(output, "{}: {verdict}", path.display())?;
        }
    }
    if judged == 0 {
        return Err(JudgeError::Usage);
    }
    Ok(wrong == 0)
}

fn is_linearizable(path: &Path) -> Result<bool, JudgeError> {
    let text = std::fs::read_to_string(path)
        .map_err(|source| JudgeError::File { path: path.to_owned(), source })?;
    let mut lines = Vec::new();
    for (place, line) in text.lines().enumerate() {
        let number = place + 1;
        lines.push(serde_json::from_str(line).map_err(|source| JudgeError::Line {
            path: path.to_owned(),
            number,
            source,
        })?);
    }
    Ok(WGLChecker::<Register>::is_linearizable(history(&lines)))
}
