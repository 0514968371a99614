//! Starting, killing and stopping the real binary.

use std::fs::File;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// How long a process may take until it listens, on a busy machine.
const START_MAX: Duration = Duration::from_secs(60);

/// A running `local-store`; it is killed when this is dropped.
#[derive(Debug)]
pub struct Process {
    child: Child,
    /// Where it listens.
    pub address: SocketAddr,
}

impl Process {
    /// Starts the binary on a data directory, on a free port, and waits until it listens.
    ///
    /// # Errors
    /// What went wrong, with the end of what it said.
    pub async fn start(binary: &Path, data: &Path, log: &Path) -> Result<Self, String> {
        let fail = |error: std::io::Error| format!("{}: {error}", binary.display());
        let file = File::create(log).map_err(fail)?;
        let mut child = Command::new(binary)
            .args(["--port", "0", "--data"])
            .arg(data)
            .stdin(Stdio::null())
            .stdout(file.try_clone().map_err(fail)?)
            .stderr(file)
            .spawn()
            .map_err(fail)?;
        let begun = Instant::now();
        loop {
            let said = std::fs::read_to_string(log).unwrap_or_default();
            let address = said
                .split_once("http://")
                .and_then(|(_, behind)| behind.split_whitespace().next()?.parse().ok());
            if let Some(address) = address {
                return Ok(Self { child, address });
            }
            let ended = child.try_wait().map_err(fail)?;
            if ended.is_some() || begun.elapsed() > START_MAX {
                let _ = child.kill();
                let _ = child.wait();
                return Err(format!("the store does not listen ({ended:?}): {said}"));
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }

    /// `kill -9`, and waits until it is gone.
    pub fn kill(&mut self) {
        // A process that is gone already cannot be killed, which is as good.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    /// Stops it where it is (`SIGSTOP`), or lets it go on (`SIGCONT`).
    ///
    /// # Errors
    /// When the signal cannot be sent.
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

/// The binary `local-store` beside this one, unless another is named.
///
/// # Errors
/// When it is not there, with what to do.
pub fn find_binary(named: Option<PathBuf>) -> Result<PathBuf, String> {
    let beside = || std::env::current_exe().ok().map(|own| own.with_file_name("local-store"));
    let binary = named.or_else(beside).unwrap_or_default();
    if binary.is_file() {
        return Ok(binary);
    }
    Err(format!(
        "there is no `{}`: build it with `cargo build -p server`, or name it with --binary",
        binary.display()
    ))
}
