//! Files that the user alone may read: what this process creates has mode 0600, its directories 0700.
//!
//! The process's file mode mask does that for every file, also for those that a library creates. A
//! program that is not Weir's, such as cargo, is started with the mask that the user has.

use std::fs::{self, Permissions};
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::OnceLock;

use rustix::fs::Mode;
use rustix::process::umask;

/// The mask that the process was started with.
static OF_USER: OnceLock<Mode> = OnceLock::new();

/// Makes every file that this process creates from here on readable by the user alone. Call it before
/// anything is created.
pub fn begin() {
    let before = umask(Mode::RWXG | Mode::RWXO);
    OF_USER.get_or_init(|| before);
}

/// Runs `spawn`, which starts a program that is not Weir's or writes sources of the user, with the user's
/// own mask: what it makes is as readable as if the user had made it. A file that another thread creates at that moment has
/// that mask too; the directory around it keeps others out.
///
/// # Errors
/// Those of `spawn`.
pub fn start_of_user<T>(spawn: impl FnOnce() -> io::Result<T>) -> io::Result<T> {
    let Some(of_user) = OF_USER.get() else { return spawn() };
    umask(*of_user);
    let spawned = spawn();
    umask(Mode::RWXG | Mode::RWXO);
    spawned
}

/// Creates a directory and those above it, and closes it to other users if it was there already: what
/// an earlier version left below may be readable by all.
///
/// # Errors
/// When it cannot be created. One whose owner is another user keeps its mode, which a warning says.
pub fn create_directory(path: &Path) -> io::Result<()> {
    fs::create_dir_all(path)?;
    let mode = fs::metadata(path)?.permissions().mode();
    if mode & 0o077 != 0
        && let Err(error) = fs::set_permissions(path, Permissions::from_mode(mode & !0o077))
    {
        tracing::warn!(%error, "other users can read the folder `{}`", path.display());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_that_others_may_read_is_closed() {
        let folder = tempfile::tempdir().unwrap();
        let (outer, inner) = (folder.path().join("a"), folder.path().join("a/b"));
        fs::create_dir(&outer).unwrap();
        fs::set_permissions(&outer, Permissions::from_mode(0o755)).unwrap();
        create_directory(&outer).unwrap();
        create_directory(&inner).unwrap();
        for path in [&outer, &inner] {
            assert_eq!(fs::metadata(path).unwrap().permissions().mode() & 0o077, 0, "{path:?}");
        }
    }
}
