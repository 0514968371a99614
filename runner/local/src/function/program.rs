//! The program of a function's instances, which may change while they run: a file, or a set of sources. This
//! module determines the build of a program, and whether the build is complete.
//!
//! This module starts and ends no processes.

use std::fs::Metadata;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::PathBuf;
use std::time::{Duration, SystemTime};

/// A file counts as complete if it was not modified for this time. Compilers and `cp` write without
/// pauses, and many programs make the file executable at the end.
pub(super) const SETTLED: Duration = Duration::from_millis(300);

/// The maximum number of checks of a file that is being written, one after each `SETTLED`. If the last
/// check fails, the next invocation checks again.
pub(super) const LOOKS_MAX: u32 = 15;

/// The files that are watched.
#[derive(Clone, Debug)]
pub(super) enum Program {
    /// One executable file.
    File(PathBuf),
    /// The source files below these folders.
    Sources(Vec<PathBuf>),
}

/// One state of the program. A different value means a different build, or the same build written again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Build {
    /// The device and inode of the file, if the system reports them. For sources: a hash and the number of
    /// files.
    file: (u64, u64),
    bytes: u64,
    modified: Option<SystemTime>,
    is_executable: bool,
}

impl Build {
    fn of(found: &Metadata) -> Self {
        let (file, is_executable) = file_of(found);
        let modified = found.modified().ok();
        Self { file, bytes: found.len(), modified, is_executable }
    }

    /// Returns the state of all source files; `None` if there are none.
    fn of_sources(folders: &[PathBuf]) -> Option<Self> {
        let found: Vec<_> = folders.iter().flat_map(|it| template::sources::files(it)).collect();
        let (mut hash, mut bytes, mut newest) = (DefaultHasher::new(), 0_u64, None);
        for source in &found {
            let modified = source.metadata.modified().ok();
            (&source.path, source.metadata.len(), modified).hash(&mut hash);
            bytes = bytes.saturating_add(source.metadata.len());
            newest = newest.max(modified);
        }
        let file = (hash.finish(), found.len() as u64);
        let is_there = !found.is_empty();
        is_there.then_some(Self { file, bytes, modified: newest, is_executable: true })
    }

    /// Returns whether the file can be started, provided that no process is writing it.
    fn is_complete(&self) -> bool {
        self.bytes > 0 && self.is_executable
    }

    /// Returns whether the file was not modified for `SETTLED`. Returns false for a modification time in
    /// the future, because it proves nothing.
    fn is_settled(&self, now: SystemTime) -> bool {
        let age = self.modified.and_then(|modified| now.duration_since(modified).ok());
        age.is_some_and(|age| age >= SETTLED)
    }
}

#[cfg(unix)]
fn file_of(found: &Metadata) -> ((u64, u64), bool) {
    use std::os::unix::fs::MetadataExt;
    ((found.dev(), found.ino()), found.mode() & 0o111 != 0)
}

#[cfg(not(unix))]
fn file_of(_: &Metadata) -> ((u64, u64), bool) {
    ((0, 0), true)
}

/// Returns the current state of the program; `None` if there is no file.
pub(super) fn current_build(program: &Program) -> Option<Build> {
    match program {
        Program::File(path) => {
            let found = std::fs::metadata(path).ok().filter(Metadata::is_file)?;
            Some(Build::of(&found))
        }
        Program::Sources(folders) => Build::of_sources(folders),
    }
}

/// Returns the build for the next invocation: the known build, or a newer complete build. Returns
/// `None` if there is no complete build. If an instance is warm, this call does not wait for an
/// incomplete build, because the warm instance can run the invocation. It never waits for a file
/// that does not exist, because a build may take long.
pub(super) async fn current(program: &Program, known: &Build, is_warm: bool) -> Option<Build> {
    let mut before = None;
    for _ in 0..LOOKS_MAX {
        let there = current_build(program);
        match judge(there.as_ref(), before.as_ref(), known, SystemTime::now()) {
            BuildState::Complete => return there,
            BuildState::Missing if is_warm || there.is_none() => return None,
            BuildState::Missing | BuildState::JustChanged => {}
        }
        before = there;
        tokio::time::sleep(SETTLED).await;
    }
    None
}

/// The state of a build.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum BuildState {
    /// The build is complete and can be started.
    Complete,
    /// The build may still be in progress.
    JustChanged,
    /// There is no executable file yet.
    Missing,
}

/// Returns the state of the build `there`. `before` is the state `SETTLED` earlier, if it was read.
fn judge(
    there: Option<&Build>,
    before: Option<&Build>,
    known: &Build,
    now: SystemTime,
) -> BuildState {
    match there {
        Some(build) if build == known => BuildState::Complete,
        Some(build) if build.is_complete() => {
            if build.is_settled(now) || there == before {
                BuildState::Complete
            } else {
                BuildState::JustChanged
            }
        }
        _ => BuildState::Missing,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_build_is_whole_when_nobody_has_written_it_for_a_while() {
        let now = SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000);
        let build = |number: u64, bytes: u64, age_ms: i64, is_executable: bool| {
            let age = Duration::from_millis(age_ms.unsigned_abs());
            let modified = Some(if age_ms < 0 { now + age } else { now - age });
            Build { file: (1, number), bytes, modified, is_executable }
        };
        let known = build(1, 10, 0, true);
        let (fresh, future) = (build(2, 10, 299, true), build(2, 10, -60_000, true));
        for (there, before, expected) in [
            (Some(known.clone()), None, BuildState::Complete),
            (Some(build(2, 10, 300, true)), None, BuildState::Complete),
            (Some(build(1, 11, 300, true)), None, BuildState::Complete),
            (Some(fresh.clone()), None, BuildState::JustChanged),
            (Some(fresh.clone()), Some(build(2, 9, 299, true)), BuildState::JustChanged),
            (Some(fresh.clone()), Some(fresh), BuildState::Complete),
            // The file's time is in the future, because of a wrong clock.
            (Some(future.clone()), None, BuildState::JustChanged),
            (Some(future.clone()), Some(future), BuildState::Complete),
            (Some(build(2, 10, 300, false)), None, BuildState::Missing),
            (Some(build(2, 0, 300, true)), None, BuildState::Missing),
            (None, None, BuildState::Missing),
        ] {
            let found = judge(there.as_ref(), before.as_ref(), &known, now);
            assert_eq!(found, expected, "{there:?} after {before:?}");
        }
    }

    #[cfg(unix)]
    #[tokio::test]
    async fn what_is_warm_goes_on_and_what_is_not_waits_until_the_file_can_be_executed() {
        use std::fs;
        use std::os::unix::fs::PermissionsExt;
        let folder = tempfile::tempdir().unwrap();
        let path = &folder.path().join("bootstrap");
        let program = &Program::File(path.clone());
        let set = |mode: u32| fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
        fs::write(path, "one").unwrap();
        set(0o755);
        let known = current_build(program).unwrap();
        assert_eq!(current(program, &known, true).await, Some(known.clone()), "also a fresh one");
        fs::write(path, "another").unwrap();
        set(0o644);
        assert_eq!(current(program, &known, true).await, None);
        let make_executable = async {
            tokio::time::sleep(SETTLED / 2).await;
            set(0o755);
        };
        let (found, ()) = tokio::join!(current(program, &known, false), make_executable);
        assert!(found.is_some() && found == current_build(program));
        fs::remove_file(path).unwrap();
        assert_eq!(current(program, &known, false).await, None);
    }

    #[tokio::test]
    async fn sources_are_one_state_and_settle_together() {
        let folder = tempfile::tempdir().unwrap();
        let program = &Program::Sources(vec![folder.path().to_owned()]);
        assert_eq!(current_build(program), None);
        let write =
            |name: &str, text: &str| std::fs::write(folder.path().join(name), text).unwrap();
        write("app.py", "x = 1");
        write("notes.log", "a");
        let known = current_build(program).unwrap();
        write("notes.log", "longer");
        assert_eq!(current(program, &known, true).await, Some(known.clone()));
        write("part.py", "");
        let (started, next) = (std::time::Instant::now(), current(program, &known, true).await);
        assert!(next.is_some_and(|next| next != known));
        assert!(started.elapsed() >= SETTLED / 2);
    }
}
