//! The source files of a code folder, without files that tools generate.
//!
//! This module reads names, sizes and times, but no contents.

use std::fs::{self, Metadata};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

/// Folders that tools create: dependencies, build results, caches, and the data of `weir up`.
const IGNORED: &[&str] = &[
    ".aws-sam",
    ".git",
    ".mypy_cache",
    ".pytest_cache",
    ".venv",
    ".weir",
    "__pycache__",
    "node_modules",
    "venv",
];

/// Extensions of files that a handler executes or reads at its start. Logs, archives and data files
/// are not included: a handler that writes such a file next to its code must not be restarted.
const ENDINGS: &[&str] = &[
    "cjs", "graphql", "html", "ini", "js", "json", "mjs", "node", "py", "so", "sql", "toml", "ts",
    "wasm", "xml", "yaml", "yml",
];

/// Maximum number of source files, and maximum depth of folders. The limits are needed because
/// every invocation checks all files. A typical handler has a few hundred source files.
const FILES_MAX: usize = 5_000;
const DEPTH_MAX: usize = 16;

/// A source file with its metadata.
#[derive(Debug)]
pub struct Source {
    /// The path of the file.
    pub path: PathBuf,
    /// The file's size and times.
    pub metadata: Metadata,
}

/// Returns the source files below a folder, ordered by name. There are at most 5,000 files from at
/// most 16 levels of folders. Symbolic links to folders are not followed, because they may form a
/// cycle.
#[must_use]
pub fn files(folder: &Path) -> Vec<Source> {
    let mut found = Vec::new();
    collect(folder, DEPTH_MAX, &mut found);
    found
}

/// Returns the modification time of the newest source file.
#[must_use]
pub fn newest(folder: &Path) -> Option<SystemTime> {
    files(folder).iter().filter_map(|source| source.metadata.modified().ok()).max()
}

fn collect(folder: &Path, depth: usize, found: &mut Vec<Source>) {
    let mut entries: Vec<_> = fs::read_dir(folder).into_iter().flatten().flatten().collect();
    entries.sort_by_key(fs::DirEntry::file_name);
    for entry in entries {
        if found.len() >= FILES_MAX {
            return;
        }
        let (path, name) = (entry.path(), entry.file_name());
        let is_folder = entry.file_type().is_ok_and(|kind| kind.is_dir());
        if is_folder {
            let is_ignored = IGNORED.iter().any(|ignored| name == *ignored);
            if !is_ignored && depth > 0 {
                collect(&path, depth - 1, found);
            }
            continue;
        }
        let ending = path.extension().and_then(|ending| ending.to_str());
        if ending.is_some_and(|ending| ENDINGS.contains(&ending))
            && let Ok(metadata) = fs::metadata(&path)
            && metadata.is_file()
        {
            found.push(Source { path, metadata });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sources_are_found_and_what_tools_made_is_not() {
        let folder = tempfile::tempdir().unwrap();
        for path in [
            "app.py",
            "lib/part.py",
            "lib/__pycache__/part.py",
            "node_modules/a/index.js",
            ".venv/x.py",
            ".aws-sam/build/F/app.py",
            "run.log",
            "data.csv",
            "b.mjs",
        ] {
            let path = folder.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, "x").unwrap();
        }
        let found = files(folder.path());
        let names: Vec<_> =
            found.iter().map(|it| it.path.strip_prefix(folder.path()).unwrap()).collect();
        assert_eq!(names, ["app.py", "b.mjs", "lib/part.py"].map(Path::new));
        assert!(newest(folder.path()).is_some());
        assert!(newest(&folder.path().join("absent")).is_none());
    }
}
