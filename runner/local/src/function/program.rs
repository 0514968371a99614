//! What a function's instances are started from, which may change while they run: which build of its
//! file, or which state of its sources, an instance is of, and whether what is there is whole.
//!
//! Nothing is started or ended here.

use std::fs::Metadata;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::PathBuf;
use std::time::{Duration, SystemTime};

/// A file that was written so long ago, and not since, is taken to be whole: compilers and `cp` write
/// without pauses, and many make the file executable at their end.
pub(super) const SETTLED: Duration = Duration::from_millis(300);

/// How often a file that is being written is looked at, each time after `SETTLED`, until it is left to
/// the next invocation.
pub(super) const LOOKS_MAX: u32 = 15;

/// What is watched.
#[derive(Clone, Debug)]
pub(super) enum Program {
    /// A file.
    File(PathBuf),
    /// The source files below these folders.
    Sources(Vec<PathBuf>),
}

/// One state of the program. Another one is another build, or the same one that was put there again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Build {
    /// Device and number of the file, where the system tells; a hash and the count of sources.
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

    /// The state of all source files together; `None` while there is none.
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

    /// Whether it could be started, if it is whole.
    fn is_complete(&self) -> bool {
        self.bytes > 0 && self.is_executable
    }

    /// Whether nobody has written it for a while. One from the future cannot tell.
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

/// The program as it is; none while there is none.
pub(super) fn look(program: &Program) -> Option<Build> {
    match program {
        Program::File(path) => {
            let found = std::fs::metadata(path).ok().filter(Metadata::is_file)?;
            Some(Build::of(&found))
        }
        Program::Sources(folders) => Build::of_sources(folders),
    }
}

/// The build that the next invocation is for: the one that is known, or another one once it is whole.
/// None while there is none that is: then an instance that is warm may go on with the one of before, and
/// nothing is waited for. Nor is what is not there at all: it is no matter of moments, and no invocation.
pub(super) async fn current(program: &Program, known: &Build, is_warm: bool) -> Option<Build> {
    let mut before = None;
    for _ in 0..LOOKS_MAX {
        let there = look(program);
        match judge(there.as_ref(), before.as_ref(), known, SystemTime::now()) {
            Seen::Whole => return there,
            Seen::UnderWay if is_warm || there.is_none() => return None,
            Seen::UnderWay | Seen::Fresh => {}
        }
        before = there;
        tokio::time::sleep(SETTLED).await;
    }
    None
}

/// How far a build is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Seen {
    /// It can be started.
    Whole,
    /// It may still be written.
    Fresh,
    /// There is nothing that could be started yet.
    UnderWay,
}

/// How far what is there is; `before` is what was there `SETTLED` before, if that was looked at.
fn judge(there: Option<&Build>, before: Option<&Build>, known: &Build, now: SystemTime) -> Seen {
    match there {
        Some(build) if build == known => Seen::Whole,
        Some(build) if build.is_complete() => {
            if build.is_settled(now) || there == before {
                Seen::Whole
            } else {
                Seen::Fresh
            }
        }
        _ => Seen::UnderWay,
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
            (Some(known.clone()), None, Seen::Whole),
            (Some(build(2, 10, 300, true)), None, Seen::Whole),
            (Some(build(1, 11, 300, true)), None, Seen::Whole),
            (Some(fresh.clone()), None, Seen::Fresh),
            (Some(fresh.clone()), Some(build(2, 9, 299, true)), Seen::Fresh),
            (Some(fresh.clone()), Some(fresh), Seen::Whole),
            // By a clock that is wrong.
            (Some(future.clone()), None, Seen::Fresh),
            (Some(future.clone()), Some(future), Seen::Whole),
            (Some(build(2, 10, 300, false)), None, Seen::UnderWay),
            (Some(build(2, 0, 300, true)), None, Seen::UnderWay),
            (None, None, Seen::UnderWay),
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
        let known = look(program).unwrap();
        assert_eq!(current(program, &known, true).await, Some(known.clone()), "also a fresh one");
        fs::write(path, "another").unwrap();
        set(0o644);
        assert_eq!(current(program, &known, true).await, None);
        let make_executable = async {
            tokio::time::sleep(SETTLED / 2).await;
            set(0o755);
        };
        let (found, ()) = tokio::join!(current(program, &known, false), make_executable);
        assert!(found.is_some() && found == look(program));
        fs::remove_file(path).unwrap();
        assert_eq!(current(program, &known, false).await, None);
    }

    #[tokio::test]
    async fn sources_are_one_state_and_settle_together() {
        let folder = tempfile::tempdir().unwrap();
        let program = &Program::Sources(vec![folder.path().to_owned()]);
        assert_eq!(look(program), None);
        let write =
            |name: &str, text: &str| std::fs::write(folder.path().join(name), text).unwrap();
        write("app.py", "x = 1");
        write("notes.log", "a");
        let known = look(program).unwrap();
        write("notes.log", "longer");
        assert_eq!(current(program, &known, true).await, Some(known.clone()));
        write("part.py", "");
        let (started, next) = (std::time::Instant::now(), current(program, &known, true).await);
        assert!(next.is_some_and(|next| next != known));
        assert!(started.elapsed() >= SETTLED / 2);
    }
}
