//! Programs of one's own that run before and after the verbs that switch something.
//!
//! They are files of a folder that the person at the command line names, as git's are. Nothing that
//! stands in a table is ever run: whoever may write the control table must not run programs here.
//! What a verb does is not known here.

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use clap::Args;
use serde_json::{Value, json};
use tokio::io::AsyncWriteExt;
use tokio::process::Command;

use super::failure::{Failure, Result, fatal, refused};
use super::following::{self, Watcher};
use super::{Context, report};
use client::exit::Exit;
use client::output::say;
use template::diagnostic::similar;

/// Every hook that there is.
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

/// Which hooks to run.
#[derive(Clone, Debug, Default, Args)]
pub(crate) struct HookArguments {
    /// A folder of programs that run before and after cutover, revert, complete and abort
    #[arg(long = "hooks", global = true, value_name = "FOLDER", env = "WEIR_MIGRATE_HOOKS")]
    folder: Option<PathBuf>,
    /// Seconds that a hook may take
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
    /// Looks at the folder before anything is done.
    ///
    /// # Errors
    /// When it cannot be read, or has a file that seems to be a hook and is none.
    pub(super) fn open(arguments: &HookArguments) -> Result<Self> {
        let limit = Duration::from_secs(arguments.seconds);
        let Some(folder) = &arguments.folder else { return Ok(Self { folder: None, limit }) };
        let wrong = |error| format!("the folder of hooks `{}`: {error}", folder.display());
        for entry in std::fs::read_dir(folder).map_err(wrong)? {
            let entry = entry.map_err(wrong)?;
            check(&entry.path(), &entry.file_name().to_string_lossy())?;
        }
        Ok(Self { folder: Some(folder.clone()), limit })
    }

    /// Runs the hook before a verb, if there is one.
    ///
    /// # Errors
    /// When the hook failed, so that the verb must not go on.
    pub(super) async fn before(
        &self,
        context: &Context,
        verb: &str,
        migration: &str,
    ) -> Result<()> {
        let hook = format!("before-{verb}");
        let ran = self.run(context, &hook, migration, None).await;
        ran.map_err(|reason| refused!("{reason}; nothing was changed"))
    }

    /// Runs the hook that fits how a verb ended, and gives how it ended with its hook.
    pub(super) async fn after(
        &self,
        context: &Context,
        verb: &str,
        migration: &str,
        ended: Result<Exit>,
    ) -> Result<Exit> {
        let reason = match &ended {
            Ok(Exit::Done) => {
                let hook = format!("after-{verb}");
                return match self.run(context, &hook, migration, None).await {
                    Ok(()) => ended,
                    Err(reason) => {
                        say(&format!("{reason}; `{verb}` is done, say it again for its hook"));
                        Ok(Exit::Differences)
                    }
                };
            }
            Ok(Exit::Refused) => format!("`{verb}` was refused"),
            Ok(Exit::TimedOut) => format!("`{verb}` was not done in time"),
            Ok(Exit::Interrupted(_)) => format!("`{verb}` was interrupted"),
            Ok(Exit::Failed | Exit::Differences) => format!("`{verb}` failed"),
            Err(Failure::Refused(why)) => format!("`{verb}` was refused: {why}"),
            Err(failure) => failure.to_string(),
        };
        if let Err(failed) = self.run(context, "on-failure", migration, Some(&reason)).await {
            say(&failed.to_string());
        }
        ended
    }

    async fn run(
        &self,
        context: &Context,
        hook: &str,
        migration: &str,
        reason: Option<&str>,
    ) -> Result<()> {
        let Some(program) = self.folder.as_ref().map(|folder| folder.join(hook)) else {
            return Ok(());
        };
        if !program.exists() {
            return Ok(());
        }
        // A hook is told what can be found out; after a failure that may be nothing.
        let limit = following::look_limit(&context.endpoint, None);
        let mut watcher = Watcher::with_limit(limit);
        let status = report::describe(context, migration, Some(&mut watcher)).await;
        let told = json!({
            "schema": "weir.migration.hook/v1",
            "hook": hook,
            "migration": migration,
            "endpoint": context.endpoint,
            "control_table": context.control.table,
            "reason": reason,
            "status": status.unwrap_or(Value::Null),
        });
        run_program(&program, hook, &format!("{told}\n"), self.limit).await
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
            || format!("hooks are {}", NAMES.join(", ")),
            |meant| format!("did you mean `{meant}`?"),
        );
        return Err(fatal!("`{}` is no hook; {help}", path.display()));
    }
    if !is_program(path) {
        return Err(fatal!("the hook `{}` cannot be executed; `chmod +x` it", path.display()));
    }
    Ok(())
}

#[cfg(unix)]
fn is_program(path: &Path) -> bool {
    use std::os::unix::fs::PermissionsExt;
    let facts = std::fs::metadata(path);
    facts.is_ok_and(|facts| facts.is_file() && facts.permissions().mode() & 0o111 != 0)
}

#[cfg(not(unix))]
fn is_program(path: &Path) -> bool {
    path.is_file()
}

/// Runs a program, without a shell, with `told` on its standard input. What it prints goes to
/// standard error: standard output is for programs that read ours.
async fn run_program(program: &Path, hook: &str, told: &str, limit: Duration) -> Result<()> {
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
            // A hook need not read what it is told.
            let _ = stdin.write_all(told.as_bytes()).await;
        }
        child.wait().await
    });
    match ended.await {
        Err(_) => Err(failed(format!("was not done after {} s and was ended", limit.as_secs()))),
        Ok(Err(error)) => Err(failed(format!("cannot be waited for: {error}"))),
        Ok(Ok(status)) if status.success() => Ok(()),
        Ok(Ok(status)) => Err(failed(format!("failed: {status}"))),
    }
}

#[cfg(test)]
#[cfg(unix)]
mod tests {
    use super::*;

    /// A folder whose hooks are programs that every machine has. They are links: a file that this
    /// process writes may not be executable yet when another thread starts a process.
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
    fn a_file_that_is_no_hook_is_told() {
        assert!(open(&folder(&[("before-cutover", "/bin/true"), ("README.md", "x")])).is_ok());
        for (name, program, part) in [
            ("before-cut-over", "/bin/true", "did you mean `before-cutover`?"),
            ("after-", "/bin/true", "is no hook"),
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
    async fn a_hook_ends_well_or_says_how_it_did_not() {
        let limit = Duration::from_secs(600);
        let run = async |program: &str, limit| {
            run_program(Path::new(program), "before-cutover", "{}\n", limit).await
        };
        assert_eq!(run("/bin/true", limit).await, Ok(()));
        let failed = run("/bin/false", limit).await.unwrap_err();
        assert!(failed.to_string().contains("`before-cutover` failed"), "{failed}");
        let missing = run("/nowhere", limit).await.unwrap_err();
        assert!(missing.to_string().contains("cannot be started"), "{missing}");
        // It waits for a line that never comes, in a pipe that this test holds open.
        let folder = tempfile::tempdir().unwrap();
        let pipe = folder.path().join("wait");
        let made = std::process::Command::new("mkfifo").arg(&pipe).status().unwrap();
        assert!(made.success());
        let script = format!("#!/bin/sh\nread line < '{}'\n", pipe.display());
        let hook = folder.path().join("hook");
        // Written by another process, see above.
        let write = format!("cat > '{0}' && chmod +x '{0}'", hook.display());
        let mut shell = std::process::Command::new("/bin/sh");
        let mut shell = shell.args(["-c", &write]).stdin(Stdio::piped()).spawn().unwrap();
        std::io::Write::write_all(&mut shell.stdin.take().unwrap(), script.as_bytes()).unwrap();
        assert!(shell.wait().unwrap().success());
        let late = run(&hook.display().to_string(), Duration::from_millis(50)).await.unwrap_err();
        assert!(late.to_string().contains("was ended"), "{late}");
    }
}
