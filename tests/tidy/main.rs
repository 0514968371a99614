//! The project's rules as tests: checks of the rules in ARCHITECTURE.md and the style guide.
//!
//! This binary does not test the product's code.

#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test ends by a panic, also in the functions that its cases share"
)]

mod arrows;
mod dependencies;
mod errors;
mod folders;
mod import_cycles;
mod imports;
mod interruptions;
mod links;
mod listeners;
mod names;
mod phases;
mod prose;
mod restrictions;
mod sources;

use std::path::{Path, PathBuf};
use std::process::Command;

/// Returns the root of the repository.
fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("tests/ is in the root").to_owned()
}

/// Returns the paths, relative to the root, of all files that git tracks or would track.
fn files() -> Vec<String> {
    let output = Command::new("git")
        .args(["ls-files", "--cached", "--others", "--exclude-standard"])
        .current_dir(root())
        .output()
        .expect("git lists the files");
    assert!(output.status.success(), "git ls-files: {}", String::from_utf8_lossy(&output.stderr));
    let listed = String::from_utf8(output.stdout).expect("paths are UTF-8");
    let files: Vec<_> =
        listed.lines().filter(|p| root().join(p).is_file()).map(str::to_owned).collect();
    assert!(files.len() > 20, "git ls-files found {} files", files.len());
    files
}

fn read(path: &str) -> String {
    std::fs::read_to_string(root().join(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// Fails with a list of all complaints, if there are any.
fn assert_none(rule: &str, complaints: &[String]) {
    assert!(complaints.is_empty(), "{rule}:\n  {}", complaints.join("\n  "));
}
