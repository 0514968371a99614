//! Files that only the user can read: this process creates files with mode 0600 and directories
//! with 0700.
//!
//! The process's umask sets these modes for every file, including files that a library creates.
//! Other programs that this process starts, such as cargo, run with the user's own umask.

use std::fs::{self, Permissions};
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::OnceLock;

use rustix::fs::Mode;
use rustix::process::umask;

/// The user's own umask, with which the process was started.
static OF_USER: OnceLock<Mode> = OnceLock::new();

/// Sets the umask, so that only the user can read the files that this process creates. Call this
/// function before the program creates a file.
pub fn begin() {
    let before = umask(Mode::RWXG | Mode::RWXO);
    OF_USER.get_or_init(|| before);
}

/// Runs `spawn` with the user's own umask. `spawn` starts a third-party program, or writes source
/// files for the user, so the files get the same modes as if the user had created them. A file that
/// another thread creates at the same time also gets these modes, but the mode of its directory
/// prevents access by other users.
///
/// # Errors
/// The errors of `spawn`.
pub fn start_of_user<T>(spawn: impl FnOnce() -> io::Result<T>) -> io::Result<T> {
    let Some(of_user) = OF_USER.get() else { return spawn() };
    umask(*of_user);
    let spawned = spawn();
    umask(Mode::RWXG | Mode::RWXO);
    spawned
}

/// Creates a directory and its parents. If the directory exists, removes other users' access to it,
/// because it may contain files that an earlier version created with read access for all users.
///
/// # Errors
/// When the directory cannot be created. If another user owns the directory, its mode does not
/// change, and a warning is logged.
pub fn create_directory(path: &Path) -> io::Result<()> {
    fs::create_dir_all(path)?;
    let mode = fs::metadata(path)?.permissions().mode();
    if mode & 0o077 != 0
        && let Err(error) = fs::set_permissions(path, Permissions::from_mode(mode & !0o077))
    {
        tracing::warn!(%error, "cannot restrict the mode of a directory; other users may read `{}`", path.display());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_that_others_can_read_becomes_private() {
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
