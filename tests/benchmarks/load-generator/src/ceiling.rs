//! Ceilings, the upper bounds of a store's throughput: an HTTP server that only answers, and an
//! HTTP server that makes each request durable in one or three logs without storing items.
//!
//! Both servers use the store's HTTP library. The second server also uses the store's log, with one
//! sync per group and log. Each server is a separate process, so that its CPU time can be measured
//! like a store's.

use std::convert::Infallible;
use std::path::Path;
use std::process::Stdio;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread;
use std::time::Duration;

use bytes::Bytes;
use clap::ValueEnum;
use http::{Method, Request, Response, StatusCode};
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use storage::disk::{Disk, FileDisk};
use storage::log::{Entry, Log, Options, Payload};
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio::process::{Child, Command};
use tokio::sync::{Semaphore, mpsc, oneshot};

use crate::client::Endpoint;
use crate::error::Result;
use crate::output::{print, say};

/// The kind of a ceiling.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Ceiling {
    /// Answers immediately with 300 bytes
    Echo,
    /// Answers when the request is durable in one log
    #[value(name = "log-1")]
    OneLog,
    /// Answers when the request is durable in three logs
    #[value(name = "log-3")]
    ThreeLogs,
}

impl Ceiling {
    /// All ceilings, the cheapest first.
    pub(crate) const ALL: [Self; 3] = [Self::Echo, Self::OneLog, Self::ThreeLogs];

    /// Returns the name on the command line and in reports.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Echo => "echo",
            Self::OneLog => "log-1",
            Self::ThreeLogs => "log-3",
        }
    }

    fn log_count(self) -> usize {
        match self {
            Self::Echo => 0,
            Self::OneLog => 1,
            Self::ThreeLogs => 3,
        }
    }
}

/// The size of the echo's answer in bytes.
const ECHO_BYTES: usize = 300;
/// The maximum size of a request's body. Requests have a few hundred bytes.
const BODY_BYTES_MAX: usize = 1024 * 1024;
/// The maximum number of connections, of waiting requests, and of requests in one group, as in the
/// store.
const CONNECTIONS_MAX: usize = 1024;
const WAITING_MAX: usize = 4096;
const GROUP_MAX: usize = 1024;
/// The number of entries that a log keeps: about one segment, so that files are reused as in the
/// store.
const ENTRIES_KEPT: u64 = 100_000;
/// The time-out for the start of a ceiling's process.
const START_TIMEOUT: Duration = Duration::from_secs(20);

/// A ceiling's process, which ends when this value is dropped.
pub(crate) struct CeilingProcess {
    /// The address of the process.
    pub(crate) endpoint: Endpoint,
    /// The id of the process.
    pub(crate) pid: u32,
    /// The child process. It also ends at the end of its standard input, so that it ends if this
    /// process is killed.
    _child: Child,
}

impl CeilingProcess {
    /// Starts this program as a ceiling, with its logs below `folder`.
    ///
    /// # Errors
    /// When the ceiling does not report its address in time.
    pub(crate) async fn start(ceiling: Ceiling, folder: &Path) -> Result<Self> {
        let mut child = Command::new(std::env::current_exe()?)
            .args(["--serve-ceiling", ceiling.name(), "--folder"])
            .arg(folder)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()?;
        let silent = || format!("the ceiling {} did not report its address", ceiling.name());
        let output = child.stdout.take().ok_or_else(silent)?;
        let mut lines = BufReader::new(output.take(1024)).lines();
        let line = tokio::time::timeout(START_TIMEOUT, lines.next_line()).await;
        let line = line.ok().and_then(std::io::Result::ok).flatten().ok_or_else(silent)?;
        let endpoint = line.parse()?;
        let pid = child.id().ok_or_else(silent)?;
        Ok(Self { endpoint, pid, _child: child })
    }
}

/// Serves a ceiling until standard input ends. Prints its address as the only line of standard
/// output.
///
/// # Errors
/// When the ceiling cannot listen or create its logs.
pub(crate) async fn serve(ceiling: Ceiling, folder: &Path) -> Result<()> {
    let syncs = Arc::new(AtomicU64::new(0));
    let commits = match ceiling.log_count() {
        0 => None,
        count => Some(start_committer(folder, count, Arc::clone(&syncs))?),
    };
    let listener = TcpListener::bind(("127.0.0.1", 0)).await?;
    print(&format!("http://{}", listener.local_addr()?))?;
    let answers = Answers { commits, syncs, echo: Bytes::from(vec![b'x'; ECHO_BYTES]) };
    let accepting = tokio::spawn(accept(listener, Arc::new(answers)));
    let (ended, end) = oneshot::channel();
    spawn_thread("input", move || {
        // The parent process writes nothing, so only the end of the input matters.
        let _ = std::io::Read::read(&mut std::io::stdin(), &mut [0; 1]);
        let _ = ended.send(());
    })?;
    // A failure of the thread that reads standard input also ends the server.
    let _ = end.await;
    accepting.abort();
    Ok(())
}

async fn accept(listener: TcpListener, answers: Arc<Answers>) {
    let connections = Arc::new(Semaphore::new(CONNECTIONS_MAX));
    while let Ok(permit) = Arc::clone(&connections).acquire_owned().await {
        let Ok((stream, _)) = listener.accept().await else { break };
        let answers = Arc::clone(&answers);
        tokio::spawn(async move {
            serve_connection(stream, answers).await;
            drop(permit);
        });
    }
}

async fn serve_connection(stream: TcpStream, answers: Arc<Answers>) {
    // The error is ignored, because the connection also works without TCP_NODELAY, only slower.
    let _ = stream.set_nodelay(true);
    let service = service_fn(move |request| {
        let answers = Arc::clone(&answers);
        async move { Ok::<_, Infallible>(answers.answer(request).await) }
    });
    let connection = http1::Builder::new().serve_connection(TokioIo::new(stream), service);
    // The error is ignored, because the client reports a connection that ended early.
    let _ = connection.await;
}

struct Answers {
    commits: Option<mpsc::Sender<Commit>>,
    syncs: Arc<AtomicU64>,
    echo: Bytes,
}

/// One request's body, and the channel to report that it is durable.
struct Commit {
    payload: Bytes,
    done: oneshot::Sender<()>,
}

impl Answers {
    async fn answer(&self, request: Request<Incoming>) -> Response<Full<Bytes>> {
        if request.method() == Method::GET {
            let syncs = self.syncs.load(Ordering::Relaxed).to_string();
            return Response::new(Full::new(Bytes::from(syncs)));
        }
        let Ok(body) = Limited::new(request.into_body(), BODY_BYTES_MAX).collect().await else {
            return failure();
        };
        let Some(commits) = &self.commits else {
            return Response::new(Full::new(self.echo.clone()));
        };
        let (done, durable) = oneshot::channel();
        let commit = Commit { payload: body.to_bytes(), done };
        if commits.send(commit).await.is_err() || durable.await.is_err() {
            return failure();
        }
        Response::new(Full::new(Bytes::from_static(b"{}")))
    }
}

fn failure() -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(Bytes::new()));
    *response.status_mut() = StatusCode::INTERNAL_SERVER_ERROR;
    response
}

/// A log with its own thread.
struct LogThread {
    groups: SyncSender<Arc<Vec<Entry>>>,
    durable: Receiver<()>,
}

fn start_committer(
    folder: &Path,
    log_count: usize,
    syncs: Arc<AtomicU64>,
) -> Result<mpsc::Sender<Commit>> {
    let disk = FileDisk::open(folder)?;
    let mut logs = Vec::with_capacity(log_count);
    for number in 0..log_count {
        let disk: Arc<dyn Disk> = Arc::new(disk.subdirectory(&format!("log-{number}"))?);
        logs.push(start_log(Log::open(disk, Options::default())?)?);
    }
    let (commits, waiting) = mpsc::channel(WAITING_MAX);
    let run = move || commit_groups(waiting, &logs, &syncs);
    spawn_thread("committer", run)?;
    Ok(commits)
}

fn spawn_thread(name: &str, run: impl FnOnce() + Send + 'static) -> Result<()> {
    thread::Builder::new().name(name.to_owned()).spawn(run)?;
    Ok(())
}

/// Collects waiting requests, appends them to every log, and answers when all logs have synced.
/// Ends when a log fails or all senders are dropped.
fn commit_groups(mut waiting: mpsc::Receiver<Commit>, logs: &[LogThread], syncs: &AtomicU64) {
    let mut index = 1;
    while let Some(first) = waiting.blocking_recv() {
        let mut group = Vec::new();
        let mut waiters = Vec::new();
        let mut next = Some(first);
        while let Some(commit) = next {
            group.push(Entry { index, term: 1, payload: Payload::new(Vec::new(), commit.payload) });
            waiters.push(commit.done);
            index += 1;
            next = if group.len() < GROUP_MAX { waiting.try_recv().ok() } else { None };
        }
        let group = Arc::new(group);
        let sent = logs.iter().all(|log| log.groups.send(Arc::clone(&group)).is_ok());
        if !sent || !logs.iter().all(|log| log.durable.recv().is_ok()) {
            return;
        }
        syncs.fetch_add(1, Ordering::Relaxed);
        for waiter in waiters {
            // The client may have disconnected, so a failure to answer is ignored.
            let _ = waiter.send(());
        }
    }
}

fn start_log(mut log: Log) -> Result<LogThread> {
    let (groups, incoming) = sync_channel::<Arc<Vec<Entry>>>(1);
    let (outgoing, durable) = sync_channel(1);
    let run = move || {
        for group in incoming {
            if let Err(error) = append(&mut log, &group) {
                say(&format!("error: the log of a ceiling failed: {error}"));
                return;
            }
            if outgoing.send(()).is_err() {
                return;
            }
        }
    };
    spawn_thread("log", run)?;
    Ok(LogThread { groups, durable })
}

fn append(log: &mut Log, group: &[Entry]) -> std::result::Result<(), storage::log::Error> {
    log.append(group)?;
    log.sync()?;
    if log.next_index() - log.first_index() > 2 * ENTRIES_KEPT {
        log.truncate_prefix(log.last_index() - ENTRIES_KEPT)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_commit_is_in_every_log_when_it_is_answered() {
        let folder = tempfile::tempdir().unwrap();
        let syncs = Arc::new(AtomicU64::new(0));
        let commits = start_committer(folder.path(), 3, Arc::clone(&syncs)).unwrap();
        for number in 0..5_u8 {
            let (done, durable) = oneshot::channel();
            commits.send(Commit { payload: Bytes::from(vec![number]), done }).await.unwrap();
            durable.await.unwrap();
        }
        assert_eq!(syncs.load(Ordering::Relaxed), 5, "one after the other, no group has two");
        drop(commits);
        // The threads release the folder's lock when the last sender is dropped.
        let mut disk = FileDisk::open(folder.path());
        for _ in 0..500 {
            if disk.is_ok() {
                break;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
            disk = FileDisk::open(folder.path());
        }
        let disk = disk.unwrap();
        for number in 0..3 {
            let disk = Arc::new(disk.subdirectory(&format!("log-{number}")).unwrap());
            let log = Log::open(disk, Options::default()).unwrap();
            let payloads: Vec<_> =
                log.read(1, 6).unwrap().map(|entry| entry.unwrap().payload.into_bytes()).collect();
            assert_eq!(payloads, [[0], [1], [2], [3], [4]]);
        }
    }
}
