//! The files of a project, in memory and on disk.
//!
//! The files belong to the user: they get the default file modes of the user, and existing files are not
//! overwritten.

use std::env;
use std::fs::{self, File};
use std::io::{self, Write};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use platform::private_files;

use super::failure::InitError;

/// The mode of executable files, on this machine and on Lambda. It ignores the user's umask.
const PROGRAM_MODE: u32 = 0o755;

/// The content of a file.
#[derive(Clone, Debug)]
pub(super) enum Content {
    /// A text file.
    Text(String),
    /// A shell script.
    Script(String),
    /// A copy of the program with this name in the folder of `weir`.
    Program(&'static str),
}

/// A file of a project.
#[derive(Clone, Debug)]
pub(super) struct ProjectFile {
    /// The path below the project's folder.
    pub(super) path: &'static str,
    /// The purpose of the file in a few words.
    pub(super) purpose: &'static str,
    pub(super) content: Content,
}

/// All files of a project.
#[derive(Clone, Debug, Default)]
pub(super) struct Project(Vec<ProjectFile>);

impl Project {
    pub(super) fn add(&mut self, path: &'static str, purpose: &'static str, content: Content) {
        self.0.push(ProjectFile { path, purpose, content });
    }

    pub(super) fn files(&self) -> &[ProjectFile] {
        &self.0
    }

    /// Writes all files or none. If a write fails, removes the files that were written before it. `weir`
    /// is the path of the running program.
    ///
    /// # Errors
    /// Files already exist, a program is not in the folder of `weir`, or a file cannot be written.
    pub(super) fn write(&self, folder: &Path, weir: &Path) -> Result<(), InitError> {
        let in_the_way = self.in_the_way(folder);
        if !in_the_way.is_empty() {
            return Err(InitError::InTheWay(in_the_way));
        }
        for file in &self.0 {
            file.check_program(weir)?;
        }
        let mut written = Vec::new();
        for file in &self.0 {
            let path = folder.join(file.path);
            let created = private_files::start_of_user(|| file.write(&path, weir));
            match created {
                Ok(()) => written.push(path),
                Err(source) => {
                    for path in written {
                        // This call created the file. If it cannot be removed, the next run reports it
                        // as existing.
                        let _ = fs::remove_file(path);
                    }
                    return Err(InitError::Write { path, source });
                }
            }
        }
        Ok(())
    }

    /// Returns the existing paths where the project needs a file or a folder.
    fn in_the_way(&self, folder: &Path) -> Vec<PathBuf> {
        let mut found = Vec::new();
        for file in &self.0 {
            let path = folder.join(file.path);
            let is_there = path.symlink_metadata().is_ok();
            let folders = path.ancestors().skip(1).take_while(|above| above.starts_with(folder));
            let is_file = |above: &&Path| !above.is_dir() && above.symlink_metadata().is_ok();
            let other = folders.filter(is_file).last();
            found.extend(other.map(Path::to_owned).or_else(|| is_there.then(|| path.clone())));
        }
        found.dedup();
        found
    }
}

impl ProjectFile {
    /// Checks that the program to be copied exists.
    fn check_program(&self, weir: &Path) -> Result<(), InitError> {
        match self.content {
            Content::Program(name) if !beside(weir, name).is_file() => {
                Err(InitError::MissingProgram { name, path: beside(weir, name) })
            }
            _ => Ok(()),
        }
    }

    /// Writes the file and creates its parent folders. If the write fails, removes the incomplete file.
    fn write(&self, path: &Path, weir: &Path) -> io::Result<()> {
        path.parent().map_or(Ok(()), fs::create_dir_all)?;
        let mode = if matches!(self.content, Content::Text(_)) { 0o666 } else { PROGRAM_MODE };
        let mut file = File::options().write(true).create_new(true).mode(mode).open(path)?;
        let written = match &self.content {
            Content::Text(text) | Content::Script(text) => file.write_all(text.as_bytes()),
            Content::Program(name) => File::open(beside(weir, name))
                .and_then(|mut program| io::copy(&mut program, &mut file))
                .and_then(|_| file.set_permissions(fs::Permissions::from_mode(PROGRAM_MODE))),
        };
        if written.is_err() {
            let _ = fs::remove_file(path);
        }
        written
    }
}

/// Returns the path of a function's program in the folder of `weir`. In Weir's packages all functions
/// are one program, and a script with the function's name starts it. A copy of the program selects the
/// function by the template's `Handler`.
fn beside(weir: &Path, name: &str) -> PathBuf {
    let path = |name: &str| weir.with_file_name(format!("{name}{}", env::consts::EXE_SUFFIX));
    let all = path("functions");
    if all.is_file() { all } else { path(name) }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A path of `weir` without any other program next to it.
    const ALONE: &str = "/nowhere/weir";

    fn project() -> Project {
        let mut project = Project::default();
        project.add("a.txt", "a text", Content::Text("a".to_owned()));
        project.add("folder/run", "a script", Content::Script("#!/bin/sh\n".to_owned()));
        project.add("folder/b.txt", "a text", Content::Text("b".to_owned()));
        project
    }

    #[test]
    fn files_are_written_with_their_modes() {
        let folder = tempfile::tempdir().unwrap();
        let inner = folder.path().join("new/project");
        let weir = folder.path().join("weir");
        fs::write(folder.path().join("archive"), "a program").unwrap();
        let mut project = project();
        project.add("archive/bootstrap", "a copy", Content::Program("archive"));
        project.write(&inner, &weir).unwrap();
        let mode = |path: &str| inner.join(path).metadata().unwrap().permissions().mode();
        assert_eq!(mode("a.txt") & 0o111, 0);
        assert_eq!(mode("folder/run") & 0o100, 0o100);
        assert_eq!(mode("archive/bootstrap") & 0o777, 0o755);
        assert_eq!(fs::read_to_string(inner.join("folder/b.txt")).unwrap(), "b");

        fs::write(folder.path().join("functions"), "all programs").unwrap();
        let packaged = folder.path().join("packaged");
        project.write(&packaged, &weir).unwrap();
        let copy = fs::read_to_string(packaged.join("archive/bootstrap")).unwrap();
        assert_eq!(copy, "all programs");
    }

    #[test]
    fn what_is_there_stays_and_is_named() {
        type Make = fn(&Path) -> io::Result<()>;
        let cases: [(&str, Make); 4] = [
            ("a.txt", |path| fs::write(path, "mine")),
            ("folder", |path| fs::write(path, "mine")),
            ("a.txt", |path| fs::create_dir(path)),
            ("a.txt", |path| std::os::unix::fs::symlink("nowhere", path)),
        ];
        for (name, make) in cases {
            let folder = tempfile::tempdir().unwrap();
            make(&folder.path().join(name)).unwrap();
            let Err(InitError::InTheWay(found)) = project().write(folder.path(), Path::new(ALONE))
            else {
                panic!("{name} did not conflict")
            };
            assert_eq!(found, [folder.path().join(name)]);
            let left: Vec<_> = fs::read_dir(folder.path()).unwrap().collect();
            assert_eq!(left.len(), 1, "{name}: something was written");
        }
    }

    #[test]
    fn a_program_that_is_not_beside_weir_is_named_before_anything_is_written() {
        let folder = tempfile::tempdir().unwrap();
        let mut project = project();
        project.add("archive/bootstrap", "a copy", Content::Program("archive"));
        let failed = project.write(folder.path(), Path::new(ALONE)).unwrap_err().to_string();
        assert!(failed.contains("no file `/nowhere/archive`"), "{failed}");
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
    }

    #[test]
    fn a_file_that_cannot_be_written_leaves_no_other_behind() {
        let folder = tempfile::tempdir().unwrap();
        let mut project = project();
        let long = "x".repeat(300);
        project.add(
            Box::leak(long.into_boxed_str()),
            "a name that is too long",
            Content::Text(String::new()),
        );
        let Err(InitError::Write { .. }) = project.write(folder.path(), Path::new(ALONE)) else {
            panic!("a file with a name of 300 letters was written")
        };
        assert!(
            ["a.txt", "folder/run", "folder/b.txt"]
                .iter()
                .all(|it| !folder.path().join(it).exists())
        );
    }
}
