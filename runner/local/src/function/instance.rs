//! An instance of a function: its process, its Runtime API, and its current invocation.
//!
//! `pool` decides how many instances there are, and restarts them.

use std::{
    io::ErrorKind,
    path::PathBuf,
    process::Stdio,
    sync::{Arc, atomic::AtomicU32},
    time::{Duration, Instant},
};

use bytes::Bytes;
use server::gate::{BindError, Listener};
use tokio::{
    process::{Child, Command},
    sync::{mpsc, oneshot, watch},
    time::{MissedTickBehavior, timeout},
};

use template::entrypoint::{self, Entrypoint};

use super::{
    Credentials, InvokeOutcome, Settings, environment,
    event::{Event, Observer, Stream},
    log::{LogFile, Tail, read_lines},
    memory::{self, Peak},
    orphans::Orphans,
    outcome::{self, exit_text},
    pipes::Pipes,
    program::{self, Build},
    runtime_api::{self, Delivery, Mailbox},
};

/// The maximum time for reading a process's output after its exit. Its pipes stay open longer only if
/// child processes keep them open.
const OUTPUT_GRACE: Duration = Duration::from_secs(1);

/// The maximum time in which a response may still arrive after its process has exited.
const REPLY_GRACE: Duration = Duration::from_millis(100);

/// The state that all instances of a function share.
pub(super) struct Shared {
    pub(super) settings: Settings,
    pub(super) observer: Observer,
    pub(super) log: LogFile,
    /// The number of responses to drop, for tests. Each drop also ends the process.
    pub(super) answers_to_drop: Arc<AtomicU32>,
    /// The watcher that ends the processes if this process is killed.
    pub(super) orphans: Orphans,
}

/// `ENOEXEC`: the operating system cannot execute the file.
const EXEC_FORMAT: i32 = 8;

/// The reason why a process could not be started. The function did not run.
#[derive(Debug, thiserror::Error)]
pub(super) enum StartError {
    #[error(transparent)]
    Listen(#[from] BindError),
    #[error("cannot start binary=`{}`: {source}", binary.display())]
    Spawn { binary: PathBuf, source: std::io::Error },
}

impl StartError {
    /// Returns whether the program is being written at this moment.
    pub(super) fn is_busy(&self) -> bool {
        matches!(self, Self::Spawn { source, .. } if source.kind() == ErrorKind::ExecutableFileBusy)
    }

    /// Returns the reason, as Lambda words it, if the program can never be started in its current form.
    /// Returns `None` for temporary errors, such as a lack of memory or a program that is being built.
    pub(super) fn invalid_entrypoint(&self) -> Option<String> {
        let Self::Spawn { binary, source } = self else { return None };
        let begins = entrypoint::look(binary);
        let why = match (source.kind(), source.raw_os_error(), begins) {
            (ErrorKind::NotFound, _, Entrypoint::NoInterpreter(name)) => {
                format!("no such file or directory: its interpreter `{name}` does not exist")
            }
            (_, Some(EXEC_FORMAT), Entrypoint::NoProgram) => {
                format!("exec format error: {}", entrypoint::NO_PROGRAM)
            }
            (_, Some(EXEC_FORMAT), _) => {
                "exec format error: the program is for a different processor architecture"
                    .to_owned()
            }
            (ErrorKind::PermissionDenied, ..) if binary.is_file() => "permission denied".to_owned(),
            _ => return None,
        };
        Some(format!("fork/exec {}: {why}", binary.display()))
    }
}

/// A running process. Dropping it kills the process.
#[derive(Debug)]
pub(super) struct Instance {
    number: u64,
    pid: u32,
    started: Instant,
    /// The AWS keys with which the process was started.
    keys: Credentials,
    /// The build from which the process was started.
    build: Option<Build>,
    mailbox: Arc<Mailbox>,
    tail: Arc<Tail>,
    peak: Arc<Peak>,
    pipes: Pipes,
    kill: mpsc::Sender<()>,
    exit: watch::Receiver<Option<String>>,
    _listener: Listener,
}

/// A handle that kills an instance.
#[derive(Debug, Clone)]
pub(super) struct Handle {
    pub(super) pid: u32,
    mailbox: Arc<Mailbox>,
    kill: mpsc::Sender<()>,
    exit: watch::Receiver<Option<String>>,
}

impl Handle {
    pub(super) fn kill(&self) {
        self.mailbox.close();
        // The channel holds one signal. One signal is enough, so a full channel does not matter.
        let _sent = self.kill.try_send(());
    }

    pub(super) fn is_busy(&self) -> bool {
        self.mailbox.current().is_some()
    }

    pub(super) fn has_exited(&self) -> bool {
        self.exit.borrow().is_some()
    }

    /// Waits until the process has ended.
    pub(super) async fn exited(mut self) {
        // The sender is dropped only after it has reported the exit, or together with the whole runtime.
        let _exit = self.exit.wait_for(Option::is_some).await;
    }
}

/// The result of an attempt to run an invocation on an instance.
pub(super) enum Attempt {
    /// The instance received the invocation, and the invocation has ended.
    Ended {
        outcome: InvokeOutcome,
        duration: Duration,
        /// The time from the start of the process to its first request, if this was its first invocation.
        init: Option<Duration>,
    },
    /// The instance never became ready; the outcome has the reason.
    NotStarted(InvokeOutcome),
    /// The process ended while it was idle, before it received the invocation.
    NotReceived,
}

impl Instance {
    /// Starts a process. Returns before the process is ready.
    pub(super) async fn start(
        shared: Arc<Shared>,
        number: u64,
        keys: Credentials,
    ) -> Result<Self, StartError> {
        let (kill, killed) = mpsc::channel(1);
        let mailbox = Arc::new(Mailbox::new(kill.clone(), shared.answers_to_drop.clone()));
        let listener = runtime_api::serve(mailbox.clone()).await?;
        let credentials = keys.clone();
        let settings = &Settings { credentials, ..shared.settings.clone() };
        let path = std::env::var("PATH").ok();
        let mut command = Command::new(&settings.binary);
        command
            .args(settings.script.iter().flat_map(|script| &script.arguments))
            .env_clear()
            .envs(environment::variables(settings, listener.address(), number, path))
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .kill_on_drop(true);
        if let Some(folder) = &settings.working_folder {
            command.current_dir(folder);
        }
        // Ctrl-C in a terminal must reach only this process, which then shuts its children down
        // gracefully.
        #[cfg(unix)]
        command.process_group(0);
        // Reads the build before the start. If a new build replaces the file meanwhile, the next
        // invocation notices the change.
        let build = program::current_build(&settings.program());
        let child = command
            .spawn()
            .map_err(|source| StartError::Spawn { binary: settings.binary.clone(), source })?;
        let (pid, pipes) = (child.id().unwrap_or_default(), Pipes::of(&child));
        shared.orphans.began(pid);
        let (tail, peak) = (Arc::new(Tail::default()), Arc::new(Peak::default()));
        let (exited, exit) = watch::channel(None);
        (shared.observer)(&Event::InstanceStarted { function: &settings.name, pid });
        let (mailbox_of, tail_of, peak_of) = (mailbox.clone(), tail.clone(), peak.clone());
        let process = Process { shared, mailbox: mailbox_of, tail: tail_of, peak: peak_of, pid };
        tokio::spawn(process.supervise(child, killed, exited));
        let started = Instant::now();
        Ok(Self {
            number,
            pid,
            started,
            keys,
            build,
            mailbox,
            tail,
            peak,
            pipes,
            kill,
            exit,
            _listener: listener,
        })
    }

    pub(super) fn number(&self) -> u64 {
        self.number
    }

    pub(super) fn pid(&self) -> u32 {
        self.pid
    }

    pub(super) fn has_exited(&self) -> bool {
        self.exit.borrow().is_some()
    }

    /// Returns whether the instance can receive an invocation: it has not ended, is not being killed, and has
    /// the current keys.
    pub(super) fn is_fit(&self, keys: &Credentials) -> bool {
        !self.has_exited() && !self.mailbox.is_closed() && self.keys == *keys
    }

    /// Returns whether the instance was started from this build.
    pub(super) fn is_of(&self, build: &Build) -> bool {
        self.build.as_ref() == Some(build)
    }

    pub(super) fn handle(&self) -> Handle {
        let (mailbox, kill, exit) = (self.mailbox.clone(), self.kill.clone(), self.exit.clone());
        Handle { pid: self.pid, mailbox, kill, exit }
    }

    /// Runs an invocation on the instance and waits for its outcome. After a timeout, kills the process,
    /// because Lambda resets the environment in this case.
    pub(super) async fn invoke(
        &mut self,
        shared: &Shared,
        request_id: &str,
        payload: Bytes,
    ) -> Attempt {
        let Settings { name, timeout, init_timeout, memory_mb, .. } = &shared.settings;
        let (received, was_taken) = oneshot::channel();
        let (reply, replied) = oneshot::channel();
        let cold = !self.mailbox.is_ready();
        self.mailbox.put(Delivery {
            request_id: request_id.to_owned(),
            function_arn: shared.settings.arn(),
            timeout: *timeout,
            payload,
            received,
            reply,
        });
        let mut init = None;
        let mut exit = self.exit.clone();
        let took = tokio::select! {
            biased;
            took = was_taken => took.is_ok(),
            _ = exit.wait_for(Option::is_some) => false,
            () = tokio::time::sleep(*init_timeout) => false,
        };
        if !took {
            self.mailbox.withdraw();
            return self.not_taken(request_id, *init_timeout).await;
        }
        let taken_at = Instant::now();
        let pid = self.pid;
        if cold {
            let duration = taken_at.duration_since(self.started);
            init = Some(duration);
            (shared.observer)(&Event::InstanceReady { function: name, pid, init: duration });
        }
        (shared.observer)(&Event::InvocationStarted { function: name, request_id, pid, cold });
        let outcome = self.outcome(request_id, replied, *timeout).await;
        let outcome = match self.peak.over(pid, *memory_mb) {
            Some(used) if self.has_exited() => {
                let note =
                    format!("the function used {used} MB, but its MemorySize is {memory_mb} MB");
                outcome::with_note(outcome, &note)
            }
            _ => outcome,
        };
        Attempt::Ended { outcome, duration: taken_at.elapsed(), init }
    }

    async fn outcome(
        &self,
        request_id: &str,
        mut replied: oneshot::Receiver<InvokeOutcome>,
        limit: Duration,
    ) -> InvokeOutcome {
        let mut exit = self.exit.clone();
        let exited = async { exit.wait_for(Option::is_some).await.ok().and_then(|e| e.clone()) };
        let text = tokio::select! {
            biased;
            Ok(outcome) = &mut replied => return outcome,
            text = exited => text.unwrap_or_default(),
            () = tokio::time::sleep(limit) => {
                self.handle().kill();
                return outcome::timed_out(request_id, limit);
            }
        };
        // The process may have responded and then exited immediately, so this waits a moment for the
        // response.
        match timeout(REPLY_GRACE, replied).await {
            Ok(Ok(outcome)) => outcome,
            _ => outcome::exited(request_id, &text),
        }
    }

    /// Waits until the instance is ready for an invocation. Returns the reason if it cannot start.
    pub(super) async fn start_failure(&self, request_id: &str, limit: Duration) -> Option<String> {
        let mut exit = self.exit.clone();
        let ended = async {
            tokio::select! {
                () = self.mailbox.init_ended() => {}
                _ = exit.wait_for(Option::is_some) => {}
            }
        };
        // After the limit, the instance counts as not started.
        let _in_time = timeout(limit, ended).await;
        if self.mailbox.is_ready() {
            return None;
        }
        match self.not_taken(request_id, limit).await {
            Attempt::NotStarted(InvokeOutcome::FunctionError { message, .. }) => Some(message),
            _ => None,
        }
    }

    /// Returns the result if the instance did not receive the invocation.
    async fn not_taken(&self, request_id: &str, limit: Duration) -> Attempt {
        let exit = self.exit.borrow().clone();
        let outcome = match exit {
            Some(_) if self.mailbox.is_ready() => return Attempt::NotReceived,
            Some(text) => {
                let said = self.mailbox.init_error();
                said.unwrap_or_else(|| outcome::exited(request_id, &text))
            }
            None => {
                self.handle().kill();
                // The last lines of output often have the reason, and may still be in the process's
                // pipes.
                let _ended = timeout(OUTPUT_GRACE, self.handle().exited()).await;
                if let Some(said) = self.mailbox.init_error() {
                    return Attempt::NotStarted(outcome::with_note(said, &self.tail.text()));
                }
                let seconds = limit.as_secs_f64();
                let text =
                    format!("the function did not request an invocation within {seconds:.2} s");
                outcome::exited(request_id, &text)
            }
        };
        Attempt::NotStarted(outcome::with_note(outcome, &self.tail.text()))
    }

    /// Waits a moment until the lines that the process has written are in the log.
    pub(super) async fn output_read(&self) {
        self.pipes.emptied().await;
    }

    /// Returns the maximum memory that the process has used, in MB; `None` if the system does not report it.
    pub(super) fn memory_mb(&self) -> Option<u64> {
        self.peak.read_peak(self.pid)
    }
}

impl Drop for Instance {
    fn drop(&mut self) {
        self.handle().kill();
    }
}

/// Kills a process and the processes that it started.
fn end_all(child: &mut Child, pid: u32) {
    // The kill fails if the process has already ended, which does not matter.
    let _signalled = child.start_kill();
    end_group(pid);
}

/// Kills the remaining processes of a process group. `pid` is the process id of the group's leader.
#[cfg(unix)]
fn end_group(pid: u32) {
    let leader = i32::try_from(pid).ok().and_then(rustix::process::Pid::from_raw);
    if let Some(leader) = leader {
        // The kill fails if the group has already ended, which does not matter.
        let _signalled = rustix::process::kill_process_group(leader, rustix::process::Signal::KILL);
    }
}

#[cfg(not(unix))]
fn end_group(_: u32) {}

/// A guard that kills a process group when it is dropped.
struct EndsGroup(u32);

impl Drop for EndsGroup {
    fn drop(&mut self) {
        end_group(self.0);
    }
}

/// The task that watches a process until its end.
struct Process {
    shared: Arc<Shared>,
    mailbox: Arc<Mailbox>,
    tail: Arc<Tail>,
    peak: Arc<Peak>,
    pid: u32,
}

impl Process {
    async fn supervise(
        self,
        mut child: Child,
        mut killed: mpsc::Receiver<()>,
        exited: watch::Sender<Option<String>>,
    ) {
        // The guard also kills the group if the runtime ends before the process.
        let group = EndsGroup(self.pid);
        let (output, error) = (child.stdout.take(), child.stderr.take());
        let read = async {
            let output = async {
                if let Some(stream) = output {
                    read_lines(stream, |line| self.take(Stream::Output, line)).await;
                }
            };
            let error = async {
                if let Some(stream) = error {
                    read_lines(stream, |line| self.take(Stream::Error, line)).await;
                }
            };
            tokio::join!(output, error);
        };
        let mut read = std::pin::pin!(read);
        let mut reading = true;
        let mut look = tokio::time::interval(memory::PERIOD);
        look.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut is_over = false;
        let status = loop {
            tokio::select! {
                status = child.wait() => break status,
                Some(()) = killed.recv() => {
                    end_all(&mut child, self.pid);
                }
                () = &mut read, if reading => reading = false,
                _ = look.tick(), if !is_over => {
                    is_over = self.peak.over(self.pid, self.shared.settings.memory_mb).is_some();
                    if is_over {
                        end_all(&mut child, self.pid);
                    }
                }
            }
        };
        // Kills the processes that the instance started, as the end of Lambda's sandbox does.
        drop(group);
        self.shared.orphans.ended(self.pid);
        if reading {
            // The last lines of the process's output often explain why it exited.
            let _read = timeout(OUTPUT_GRACE, read).await;
        }
        let text = match status {
            Ok(status) => exit_text(status),
            Err(error) => format!("Runtime exited with error: {error}"),
        };
        let function = &self.shared.settings.name;
        let (pid, exit) = (self.pid, &*text);
        (self.shared.observer)(&Event::InstanceExited { function, pid, exit });
        exited.send_replace(Some(text));
    }

    fn take(&self, stream: Stream, line: &str) {
        let request_id = self.mailbox.writes_for();
        let request_id = request_id.as_deref();
        if stream == Stream::Error {
            self.tail.push(line);
        }
        self.shared.log.line(request_id, line);
        let function = &self.shared.settings.name;
        (self.shared.observer)(&Event::Line { function, stream, request_id, line });
    }
}
