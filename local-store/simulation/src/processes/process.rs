//! A process of the real binary, which can be started, killed and paused.

use std::fs::File;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::error::HarnessError;

/// The maximum time until a process must listen. The time is long, because the computer may be
/// busy.
const START_MAX: Duration = Duration::from_secs(60);

/// The command line of a process: the binary with its arguments, and the file for its output.
#[derive(Clone, Debug)]
pub struct Launch {
    /// The binary `local-store`.
    pub binary: PathBuf,
    /// The data directory.
    pub data: PathBuf,
    /// The file for the output of the process.
    pub log: PathBuf,
    /// The other arguments.
    pub arguments: Vec<String>,
}

/// A `local-store` process that may still be starting. Dropping this value kills it.
#[derive(Debug)]
pub struct Process {
    child: Child,
    log: PathBuf,
    begun: Instant,
}

impl Process {
    /// Starts the binary on a free port for clients.
    ///
    /// # Errors
    /// The binary cannot be started.
    pub fn spawn(launch: &Launch) -> Result<Self, HarnessError> {
        let fail = |error: std::io::Error| format!("{}: {error}", launch.binary.display());
        let file = File::create(&launch.log).map_err(fail)?;
        let child = Command::new(&launch.binary)
            .args(["--port", "0", "--data"])
            .arg(&launch.data)
            .args(&launch.arguments)
            .stdin(Stdio::null())
            .stdout(file.try_clone().map_err(fail)?)
            .stderr(file)
            .spawn()
            .map_err(fail)?;
        Ok(Self { child, log: launch.log.clone(), begun: Instant::now() })
    }

    /// Waits until the process listens, and returns its address.
    ///
    /// # Errors
    /// The process does not listen in time. The error contains its output.
    pub async fn wait_until_it_listens(&mut self) -> Result<SocketAddr, HarnessError> {
        loop {
            if let Some(address) = self.address() {
                return Ok(address);
            }
            let ended = self.child.try_wait()?;
            if ended.is_some() || self.begun.elapsed() > START_MAX {
                self.kill();
                let said = std::fs::read_to_string(&self.log).unwrap_or_default();
                return Err(
                    format!("the store does not start ({ended:?}); its output: {said}").into()
                );
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    /// Returns the last address that the process reported. A process that restarted itself has a
    /// new address.
    #[must_use]
    pub fn address(&self) -> Option<SocketAddr> {
        let said = std::fs::read_to_string(&self.log).ok()?;
        let (_, behind) = said.rsplit_once("listening on http://")?;
        behind.split_whitespace().next()?.parse().ok()
    }

    /// Checks that the process is running.
    ///
    /// # Errors
    /// The process has ended without being killed. The error contains its output.
    pub fn check_that_it_runs(&mut self) -> Result<(), HarnessError> {
        match self.child.try_wait()? {
            None => Ok(()),
            Some(ended) => {
                let said = std::fs::read_to_string(&self.log).unwrap_or_default();
                Err(format!("the store exited by itself ({ended}); its output: {said}").into())
            }
        }
    }

    /// Kills the process with `kill -9`, and waits until it has ended.
    pub fn kill(&mut self) {
        // Killing fails if the process has already ended, which does not matter.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    /// Pauses the process (`SIGSTOP`), or resumes it (`SIGCONT`).
    ///
    /// # Errors
    /// The signal cannot be sent.
    pub fn pause(&self, on: bool) -> std::io::Result<()> {
        let signal = if on { "-STOP" } else { "-CONT" };
        let sent = Command::new("kill").args([signal, &self.child.id().to_string()]).status()?;
        if sent.success() { Ok(()) } else { Err(std::io::Error::other("kill failed")) }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.kill();
    }
}

/// Returns the path of `local-store`: `named` if given, otherwise next to this binary.
///
/// # Errors
/// The binary does not exist. The error message explains what to do.
pub fn find_binary(named: Option<PathBuf>) -> Result<PathBuf, HarnessError> {
    let beside = || std::env::current_exe().ok().map(|own| own.with_file_name("local-store"));
    let binary = named.or_else(beside).unwrap_or_default();
    if binary.is_file() {
        return Ok(binary);
    }
    Err(format!(
        "`{}` does not exist; run `cargo build --bin local-store`, or pass its path with --binary",
        binary.display()
    )
    .into())
}

/// Returns the file for the output of the process with the given name.
#[must_use]
pub fn log_file(folder: &Path, name: &str) -> PathBuf {
    folder.join(format!("{name}.log"))
}
