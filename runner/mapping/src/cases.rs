//! Runs test cases that are text files: input, `----`, expected output.
//!
//! A file is a series of cases, separated by empty lines. Lines that begin with `#` before the
//! input are comments. `UPDATE=1` rewrites the outputs instead of comparing them.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

/// Runs all cases in the files of `testdata/<folder>` and compares their outputs. `start` creates a
/// runner for each file. The runner gets the inputs of the file's cases in order and returns their
/// outputs.
pub(super) fn check<R: FnMut(&str) -> String>(folder: &str, start: impl Fn() -> R) {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("testdata").join(folder);
    let mut files: Vec<PathBuf> =
        std::fs::read_dir(&root).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort();
    assert!(!files.is_empty(), "no cases in {}", root.display());
    let update = std::env::var_os("UPDATE").is_some();
    let mut wrong = String::new();
    for file in files {
        let text = std::fs::read_to_string(&file).unwrap();
        let mut run = start();
        let mut rewritten = String::new();
        for case in text.trim_end().split("\n\n") {
            let case = case.trim_start_matches('\n');
            let Some((head, expected)) =
                case.split_once("----\n").or(case.strip_suffix("----").map(|head| (head, "")))
            else {
                let only_comments = case.lines().all(|line| line.starts_with('#'));
                assert!(only_comments, "{}: no `----` in:\n{case}", file.display());
                let _ = write!(rewritten, "{case}\n\n");
                continue;
            };
            let input: String = head
                .lines()
                .filter(|line| !line.starts_with('#'))
                .fold(String::new(), |all, line| all + line + "\n");
            let found = run(&input);
            if found.trim_end() != expected.trim_end() {
                let _ = write!(
                    wrong,
                    "{}:\n{head}----\nexpected:\n{expected}\nfound:\n{found}\n",
                    file.display()
                );
            }
            let _ = write!(rewritten, "{head}----\n{}\n\n", found.trim_end());
        }
        if update {
            std::fs::write(&file, format!("{}\n", rewritten.trim_end())).unwrap();
        }
    }
    assert!(update || wrong.is_empty(), "{wrong}\nUPDATE=1 rewrites the outputs");
}
