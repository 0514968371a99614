//! Checks of folders: the number of source files in a folder, and the position of the file of a
//! module with parts.

use std::collections::BTreeMap;
use std::path::Path;

use crate::{assert_none, files};

/// The maximum number of source files in a folder, without the files of its subfolders.
const FILES_MAX: usize = 25;

/// Folders that may have more source files, each with its maximum and the reason.
const LARGER: [(&str, usize, &str); 1] =
    [("local-store/server/src/api", usize::MAX, "one file for each operation")];

/// The extensions of source files.
const ENDINGS: [&str; 4] = ["rs", "py", "cjs", "sh"];

/// Counts the source files of each folder.
fn counts(files: &[String]) -> BTreeMap<&str, usize> {
    let mut counts = BTreeMap::new();
    for path in files.iter().map(Path::new) {
        let ending = path.extension().and_then(|ending| ending.to_str());
        if ending.is_some_and(|ending| ENDINGS.contains(&ending)) {
            let folder = path.parent().and_then(Path::to_str).unwrap_or_default();
            *counts.entry(folder).or_default() += 1;
        }
    }
    counts
}

/// Returns the folders with too many files, and the exceptions that are no longer needed.
fn complaints(files: &[String], larger: &[(&str, usize, &str)]) -> Vec<String> {
    let counts = counts(files);
    let exception = |folder: &str| larger.iter().find(|(name, ..)| *name == folder);
    let too_many = counts.iter().filter_map(|(folder, count)| {
        let most = exception(folder).map_or(FILES_MAX, |(_, most, _)| *most);
        (*count > most).then(|| format!("{folder}: {count} files, at most {most}"))
    });
    let unneeded = larger.iter().filter_map(|(folder, most, _)| {
        let count = counts.get(folder).copied().unwrap_or(0);
        let too_wide = *most != usize::MAX && count < *most;
        (count <= FILES_MAX || too_wide)
            .then(|| format!("{folder}: {count} files, its exception in folders.rs can be reduced"))
    });
    too_many.chain(unneeded).collect()
}

/// Returns the files `foo.rs` next to a folder `foo/` with parts.
fn files_beside_their_parts(files: &[String]) -> Vec<String> {
    let is_beside = |path: &&String| {
        let folder = path.strip_suffix(".rs").map(|module| format!("{module}/"));
        folder.is_some_and(|folder| {
            files.iter().any(|other| other.starts_with(&folder) && other.ends_with(".rs"))
        })
    };
    files.iter().filter(is_beside).cloned().collect()
}

#[test]
fn folders_are_small() {
    assert_none("folders with too many files", &complaints(&files(), &LARGER));
}

#[test]
fn a_module_with_parts_is_a_mod_file() {
    let found = files_beside_their_parts(&files());
    assert_none("move each of these to `mod.rs` in the folder of its parts", &found);
}

#[test]
fn a_large_folder_is_found_and_so_is_an_exception_too_wide() {
    let paths = |folder: &str, count: usize| -> Vec<String> {
        (0..count).map(|number| format!("{folder}/f{number}.rs")).collect()
    };
    let others = [paths("a/data", 0), vec!["a/notes.md".to_owned(); 40]].concat();
    let files = [paths("a", 26), paths("a/b", 25), others].concat();
    assert_eq!(complaints(&files, &[]), ["a: 26 files, at most 25"]);
    assert!(complaints(&files, &[("a", 26, "")]).is_empty());
    assert_eq!(complaints(&files, &[("a", 27, "")]).len(), 1);
    assert_eq!(complaints(&files, &[("a", 26, ""), ("a/b", 30, "")]).len(), 1);
    assert!(complaints(&files, &[("a", usize::MAX, "")]).is_empty());
}

#[test]
fn a_file_next_to_its_parts_is_found() {
    let files =
        ["a/b.rs", "a/b/c.rs", "a/d.rs", "a/d/data.txt", "e/f.rs", "e/f/g.rs", "a/h/mod.rs"];
    let files = files.map(str::to_owned);
    assert_eq!(files_beside_their_parts(&files), ["a/b.rs", "e/f.rs"]);
}
