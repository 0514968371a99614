//! Hooks: programs of the operator that run before and after `cutover`, `revert`, `complete` and
//! `abort`.
//!
//! Like git's hooks, these programs are files in a folder, which the operator names on the command
//! line. The control table never contains hooks, because then everyone who may write the table
//! could run programs on this machine.

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use clap::Args;
use tokio::io::AsyncWriteExt;
use tokio::process::Command;

use crate::migrate::failure::{Result, fatal};
use template::diagnostic::similar;

/// The names of all hooks.
const NAMES: [&str; 9] = [
    "before-cutover",
    "after-cutover",
    "before-revert",
    "after-revert",
    "before-complete",
    "after-complete",
    "before-abort",
    "after-abort",
    "on-failure",
];

/// The flags for hooks.
#[derive(Clone, Debug, Default, Args)]
pub(crate) struct HookArguments {
    /// A folder of programs that run before and after cutover, revert, complete and abort
    #[arg(long = "hooks", global = true, value_name = "FOLDER", env = "WEIR_MIGRATE_HOOKS")]
    folder: Option<PathBuf>,
    /// Timeout of a hook in seconds
    #[arg(
        id = "hook-timeout",
        long = "hook-timeout",
        global = true,
        value_name = "SECONDS",
        default_value_t = 60
    )]
    seconds: u64,
}

/// The hooks of a folder.
#[derive(Clone, Debug, Default)]
pub(crate) struct Hooks {
    folder: Option<PathBuf>,
    limit: Duration,
}

impl Hooks {
    /// Checks the hooks folder and returns its hooks. The caller does this before any other step.
    ///
    /// # Errors
    /// When the folder cannot be read, or a file whose name begins like a hook's name is not a hook
    /// or not executable.
    pub(crate) fn open(arguments: &HookArguments) -> Result<Self> {
        let limit = Duration::from_secs(arguments.seconds);
        let Some(folder) = &arguments.folder else { return Ok(Self { folder: None, limit }) };
        let wrong = |error| format!("cannot read the hooks folder `{}`: {error}", folder.display());
        for entry in std::fs::read_dir(folder).map_err(wrong)? {
            let entry = entry.map_err(wrong)?;
            check(&entry.path(), &entry.file_name().to_string_lossy())?;
        }
        Ok(Self { folder: Some(folder.clone()), limit })
    }

    /// Returns the path of a hook's program, if the folder has one.
    pub(crate) fn program(&self, hook: &str) -> Option<PathBuf> {
        let program = self.folder.as_ref()?.join(hook);
        program.exists().then_some(program)
    }

    /// Runs the program of a hook, with `input` on its standard input.
    ///
    /// # Errors
    /// When the program cannot be run, times out, or fails.
    pub(crate) async fn run(&self, program: &Path, hook: &str, input: &str) -> Result<()> {
        run_program(program, hook, input, self.limit).await
    }
}

fn check(path: &Path, name: &str) -> Result<()> {
    let seems_one = ["before-", "after-", "on-"].iter().any(|head| name.starts_with(head));
    if !seems_one {
        return Ok(());
    }
    if !NAMES.contains(&name) {
        let meant = similar(name, NAMES);
        let help = meant.map_or_else(
            || format!("the hooks are {}", NAMES.join(", ")),
            |meant| format!("did you mean `{meant}`?"),
        );
        return Err(fatal!("`{}` is not a hook; {help}", path.display()));
    }
    if !is_program(path) {
        return Err(fatal!(
            "the hook `{}` cannot be executed; run `chmod +x` on it",
            path.display()
        ));
    }
    Ok(())
}

fn is_program(path: &Path) -> bool {
    use std::os::unix::fs::PermissionsExt;
    let facts = std::fs::metadata(path);
    facts.is_ok_and(|facts| facts.is_file() && facts.permissions().mode() & 0o111 != 0)
}

/// Runs a program without a shell, with `input` on its standard input. The program's output goes to
/// standard error, because standard output is for the results of the subcommand.
async fn run_program(program: &Path, hook: &str, input: &str, limit: Duration) -> Result<()> {
    let failed = |what: String| fatal!("the hook `{hook}` {what}");
    let mut command = Command::new(program);
    command
        .env("WEIR_HOOK", hook)
        .stdin(Stdio::piped())
        .stdout(Stdio::from(std::io::stderr()))
        .kill_on_drop(true);
    let mut child = platform::private_files::start_of_user(|| command.spawn())
        .map_err(|error| failed(format!("cannot be started: {error}")))?;
    let stdin = child.stdin.take();
    let ended = tokio::time::timeout(limit, async {
        if let Some(mut stdin) = stdin {
            // A failed write is ignored, because a hook need not read its input.
            let _ = stdin.write_all(input.as_bytes()).await;
        }
        child.wait().await
    });
    match ended.await {
        Err(_) => Err(failed(format!("timed out after {} s and was killed", limit.as_secs()))),
        Ok(Err(error)) => Err(failed(format!("did not report its exit status: {error}"))),
        Ok(Ok(status)) if status.success() => Ok(()),
        Ok(Ok(status)) => Err(failed(format!("failed: {status}"))),
    }
}

#[cfg(test)]
#[cfg(unix)]
mod tests {
    use super::*;

    /// Returns a folder whose hooks are links to existing programs. A program that this process has
    /// just written may fail to start: another thread that starts a process may still have the file
    /// open for writing.
    fn folder(hooks: &[(&str, &str)]) -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        for (name, program) in hooks {
            std::os::unix::fs::symlink(program, folder.path().join(name)).unwrap();
        }
        folder
    }

    fn open(folder: &tempfile::TempDir) -> Result<Hooks> {
        Hooks::open(&HookArguments { folder: Some(folder.path().to_owned()), seconds: 60 })
    }

    #[test]
    fn a_file_that_is_no_hook_is_reported() {
        assert!(open(&folder(&[("before-cutover", "/bin/true"), ("README.md", "x")])).is_ok());
        for (name, program, part) in [
            ("before-cut-over", "/bin/true", "did you mean `before-cutover`?"),
            ("after-", "/bin/true", "is not a hook"),
            ("on-failure", "/etc/passwd", "cannot be executed"),
            ("after-abort", "/nowhere", "cannot be executed"),
        ] {
            let wrong = open(&folder(&[(name, program)])).unwrap_err();
            assert!(wrong.to_string().contains(part), "{wrong}");
        }
        let nowhere = HookArguments { folder: Some("/nowhere".into()), seconds: 60 };
        assert!(Hooks::open(&nowhere).unwrap_err().to_string().contains("/nowhere"));
    }

    #[tokio::test]
    async fn a_hook_succeeds_or_its_failure_is_reported() {
        let limit = Duration::from_secs(600);
        let run = async |program: &str, limit| {
            run_program(Path::new(program), "before-cutover", "{}\n", limit).await
        };
        assert_eq!(run("/bin/true", limit).await, Ok(()));
        let failed = run("/bin/false", limit).await.unwrap_err();
        assert!(failed.to_string().contains("`before-cutover` failed"), "{failed}");
        let missing = run("/nowhere", limit).await.unwrap_err();
        assert!(missing.to_string().contains("cannot be started"), "{missing}");
        // The hook blocks on a read, because this test keeps the pipe open and writes no line.
        let folder = tempfile::tempdir().unwrap();
        let pipe = folder.path().join("wait");
        let made = std::process::Command::new("mkfifo").arg(&pipe).status().unwrap();
        assert!(made.success());
        let script = format!("#!/bin/sh\nread line < '{}'\n", pipe.display());
        let hook = folder.path().join("hook");
        // Another process writes the file, so that this process never has it open for writing (see
        // `folder`).
        let write = format!("cat > '{0}' && chmod +x '{0}'", hook.display());
        let mut shell = std::process::Command::new("/bin/sh");
        let mut shell = shell.args(["-c", &write]).stdin(Stdio::piped()).spawn().unwrap();
        std::io::Write::write_all(&mut shell.stdin.take().unwrap(), script.as_bytes()).unwrap();
        assert!(shell.wait().unwrap().success());
        let late = run(&hook.display().to_string(), Duration::from_millis(50)).await.unwrap_err();
        assert!(late.to_string().contains("timed out"), "{late}");
    }
}
