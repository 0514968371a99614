//! Kills the processes of a function after this process was killed. A killed process cannot kill its
//! children, and some runtimes retry the request for the next invocation forever.
//!
//! A separate shell reads from a pipe whose write end only this process holds. This process writes the
//! ids of the running process groups. When the pipe is closed for any reason, the shell kills these
//! groups. A process that was started just before the kill and has not been reported to the shell keeps
//! running.

use std::collections::BTreeSet;
use std::io::{self, Write};
use std::process::Stdio;
use std::sync::MutexGuard;

use locks::Mutex;
use tokio::process::{Child, Command};

/// The script of the shell. It keeps the ids of the groups, separated by spaces, and ignores the signals
/// that a terminal sends to all its processes.
const SCRIPT: &str = r#"
trap '' HUP INT TERM
live=' '
while read -r sign group; do
  case $sign in
    +) live="$live$group " ;;
    -) live="${live%% $group *} ${live#* $group }" ;;
  esac
done
for group in $live; do kill -s KILL -- "-$group"; done
"#;

/// The process groups of a function, and the shell that kills them if this process is killed. Dropping
/// it kills the remaining groups.
#[derive(Debug, Default)]
pub(super) struct Orphans(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    live: BTreeSet<u32>,
    watcher: Option<Watcher>,
    has_failed: bool,
}

/// The running shell. tokio reaps it, so it leaves no zombie.
#[derive(Debug)]
struct Watcher {
    pipe: io::PipeWriter,
    _shell: Child,
}

impl Watcher {
    fn start(live: &BTreeSet<u32>) -> io::Result<Self> {
        let (reader, pipe) = io::pipe()?;
        let mut command = Command::new("/bin/sh");
        command.args(["-c", SCRIPT]).env_clear().current_dir("/");
        command.stdin(reader).stdout(Stdio::null()).stderr(Stdio::null());
        command.process_group(0);
        let mut watcher = Self { pipe, _shell: command.spawn()? };
        live.iter().try_for_each(|group| watcher.tell('+', *group))?;
        Ok(watcher)
    }

    fn tell(&mut self, sign: char, group: u32) -> io::Result<()> {
        // A single write contains the whole line, so the shell reads either the complete line or
        // nothing.
        self.pipe.write_all(format!("{sign} {group}\n").as_bytes())
    }
}

impl Orphans {
    /// Records that a group was started. `group` is the process id of its leader.
    pub(super) fn began(&self, group: u32) {
        let mut state = self.state();
        // A process that has already ended has no id, and 0 would mean the shell's own group.
        if group > 1 && state.live.insert(group) {
            state.send_change('+', group);
        }
    }

    /// Records that a process group has ended.
    pub(super) fn ended(&self, group: u32) {
        let mut state = self.state();
        if state.live.remove(&group) {
            state.send_change('-', group);
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock()
    }
}

impl State {
    /// Reports a started or ended group to the shell. Starts a new shell if the previous shell has
    /// exited.
    fn send_change(&mut self, sign: char, group: u32) {
        if let Some(watcher) = &mut self.watcher
            && watcher.tell(sign, group).is_ok()
        {
            return;
        }
        self.watcher = None;
        if self.live.is_empty() {
            return;
        }
        match Watcher::start(&self.live) {
            Ok(watcher) => self.watcher = Some(watcher),
            Err(error) if !self.has_failed => {
                self.has_failed = true;
                tracing::warn!(
                    %error,
                    "cannot start `/bin/sh`, which stops the functions if this process is killed; they may keep running"
                );
            }
            Err(_) => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::{BufRead, BufReader};
    use std::os::unix::process::{CommandExt, ExitStatusExt};
    use std::process;
    use std::time::{Duration, Instant};

    use super::*;

    const PATIENCE: Duration = Duration::from_secs(20);
    /// The environment variable that makes the last test start a process and wait until it is
    /// killed.
    const HOLDS: &str = "WEIR_TEST_HOLDS_PROCESSES";

    /// Starts a long-running process in its own process group.
    fn lasting() -> process::Child {
        process::Command::new("sleep").arg("600").process_group(0).spawn().unwrap()
    }

    fn wait_for(what: impl Fn() -> bool) -> bool {
        let begun = Instant::now();
        while !what() {
            if begun.elapsed() > PATIENCE {
                return false;
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        true
    }

    /// Returns whether a process is running. A zombie does not count.
    fn is_alive(pid: u32) -> bool {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat"));
        let state = stat.ok().and_then(|stat| stat.rsplit(')').next()?.trim().chars().next());
        state.is_some_and(|state| !matches!(state, 'Z' | 'X'))
    }

    #[tokio::test]
    async fn what_is_left_is_ended_and_what_has_ended_is_not() {
        let [mut left, mut other, mut more] = [lasting(), lasting(), lasting()];
        let orphans = Orphans::default();
        for child in [&other, &left, &more] {
            orphans.began(child.id());
        }
        // Another process may have the same id by now, so the id must not be killed.
        orphans.ended(other.id());
        drop(orphans);
        for child in [&mut left, &mut more] {
            assert_eq!(child.wait().unwrap().signal(), Some(9));
        }
        assert!(other.try_wait().unwrap().is_none());
        other.kill().unwrap();
        other.wait().unwrap();
    }

    #[tokio::test]
    async fn a_shell_that_was_ended_is_replaced() {
        let [mut first, mut second] = [lasting(), lasting()];
        let orphans = Orphans::default();
        orphans.began(first.id());
        let shell = orphans.state().watcher.as_ref().and_then(|it| it._shell.id()).unwrap();
        let leader = rustix::process::Pid::from_raw(i32::try_from(shell).unwrap()).unwrap();
        rustix::process::kill_process(leader, rustix::process::Signal::KILL).unwrap();
        assert!(wait_for(|| !is_alive(shell)));
        assert!(first.try_wait().unwrap().is_none());
        orphans.began(second.id());
        drop(orphans);
        for child in [&mut first, &mut second] {
            assert_eq!(child.wait().unwrap().signal(), Some(9));
        }
    }

    /// The test starts itself as a second process, which starts a third. It kills the second
    /// process and expects the third to end.
    #[tokio::test]
    async fn a_process_ends_when_who_started_it_is_killed() {
        if std::env::var_os(HOLDS).is_some() {
            let orphans = Orphans::default();
            let mut child = lasting();
            orphans.began(child.id());
            println!("\nholds {}", child.id());
            // The test kills this process here.
            child.wait().unwrap();
        }
        let name = "function::orphans::tests::a_process_ends_when_who_started_it_is_killed";
        let mut holder = process::Command::new(std::env::current_exe().unwrap())
            .args(["--exact", name, "--nocapture"])
            .env(HOLDS, "1")
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let lines = BufReader::new(holder.stdout.take().unwrap()).lines().map_while(Result::ok);
        let held = lines.filter_map(|line| line.strip_prefix("holds ")?.parse::<u32>().ok()).next();
        let held = held.unwrap();
        assert!(is_alive(held));
        holder.kill().unwrap();
        assert_eq!(holder.wait().unwrap().signal(), Some(9));
        assert!(wait_for(|| !is_alive(held)), "process {held} outlives its parent");
    }
}
