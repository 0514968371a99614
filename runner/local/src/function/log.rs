//! A function's log file: the lines that the function writes, and Lambda's lines about invocations.
//!
//! The file is bounded. At `FILE_BYTES_MAX` it is renamed to `<name>.log.1`, which replaces the previous file
//! of this name.

use std::{
    collections::VecDeque,
    fs::{self, File, OpenOptions},
    io::{self, Write},
    path::{Path, PathBuf},
    time::Duration,
};

use jiff::Timestamp;
use locks::Mutex;
use tokio::io::{AsyncRead, AsyncReadExt};

/// The size at which a log file is renamed. Two files of this size can be read and searched quickly.
const FILE_BYTES_MAX: u64 = 10 * 1_024 * 1_024;

/// The maximum length of a line. Source: Amazon CloudWatch Logs quotas, event size (256 KB).
const LINE_BYTES_MAX: usize = 256 * 1_024;

/// The number of last lines of an instance that are stored, to explain why the instance did not
/// start.
const TAIL_LINES: usize = 20;

/// The pause before a log is read, in which the function's last lines arrive through its pipes.
const TAIL_PAUSE: Duration = Duration::from_millis(30);

/// The number of bytes at the end of a log file in which the lines of the last invocation are searched.
const TAIL_SEARCH_BYTES: usize = 1_024 * 1_024;

/// A log file of bounded size, to which lines are appended.
#[derive(Debug)]
pub(super) struct LogFile {
    path: PathBuf,
    bytes_max: u64,
    open: Mutex<Open>,
}

#[derive(Debug)]
struct Open {
    file: File,
    bytes: u64,
    /// Whether the last line could not be written.
    has_failed: bool,
}

impl LogFile {
    pub(super) fn open(path: PathBuf) -> io::Result<Self> {
        Self::with_limit(path, FILE_BYTES_MAX)
    }

    fn with_limit(path: PathBuf, bytes_max: u64) -> io::Result<Self> {
        if let Some(folder) = path.parent() {
            fs::create_dir_all(folder)?;
        }
        let file = OpenOptions::new().create(true).append(true).open(&path)?;
        let bytes = file.metadata()?.len();
        Ok(Self { path, bytes_max, open: Mutex::new(Open { file, bytes, has_failed: false }) })
    }

    /// Appends a line, preceded by the time and the request id. Control characters are escaped, so that a
    /// function's output cannot forge lines or control a terminal.
    pub(super) fn line(&self, request_id: Option<&str>, line: &str) {
        let mut text = format!("{:.3} {} ", Timestamp::now(), request_id.unwrap_or("-"));
        for character in line.chars() {
            match character {
                '\t' => text.push('\t'),
                _ if character.is_control() => text.extend(character.escape_default()),
                _ => text.push(character),
            }
        }
        text.push('\n');
        let mut open = self.open.lock();
        let appended = self.append(&mut open, text.as_bytes());
        if let Err(error) = &appended
            && !open.has_failed
        {
            // A full disk must not stop the functions, so a line that cannot be written is dropped.
            let path = self.path.display();
            tracing::warn!(%error, %path, "cannot write the function's log; its lines are dropped until writes succeed again");
        }
        open.has_failed = appended.is_err();
    }

    fn append(&self, open: &mut Open, text: &[u8]) -> io::Result<()> {
        if open.bytes > 0 && open.bytes + text.len() as u64 > self.bytes_max {
            let mut older = self.path.clone().into_os_string();
            older.push(".1");
            fs::rename(&self.path, older)?;
            open.file = OpenOptions::new().create(true).append(true).open(&self.path)?;
            open.bytes = 0;
        }
        open.file.write_all(text)?;
        open.bytes += text.len() as u64;
        Ok(())
    }
}

/// Returns the lines of one invocation at the end of a log file, without times and request ids: the last
/// lines, at most `bytes_max` bytes. The output of a function arrives through a pipe, so its last lines
/// may arrive shortly after the line that ends the invocation.
pub(super) async fn tail_of(path: &Path, request_id: &str, bytes_max: usize) -> String {
    tokio::time::sleep(TAIL_PAUSE).await;
    let Ok(bytes) = tokio::fs::read(path).await else { return String::new() };
    let recent = bytes.get(bytes.len().saturating_sub(TAIL_SEARCH_BYTES)..).unwrap_or_default();
    let text = String::from_utf8_lossy(recent);
    let marked = format!(" {request_id} ");
    let lines: String = text
        .lines()
        .filter_map(|line| line.split_once(&marked))
        .map(|(_, line)| format!("{line}\n"))
        .collect();
    let mut start = lines.len().saturating_sub(bytes_max);
    while !lines.is_char_boundary(start) {
        start += 1;
    }
    lines.get(start..).unwrap_or_default().to_owned()
}

/// The last lines of an instance's standard error.
#[derive(Debug, Default)]
pub(super) struct Tail(Mutex<VecDeque<String>>);

impl Tail {
    pub(super) fn push(&self, line: &str) {
        let mut lines = self.0.lock();
        if lines.len() == TAIL_LINES {
            lines.pop_front();
        }
        lines.push_back(line.chars().take(1_000).collect());
    }

    pub(super) fn text(&self) -> String {
        let lines = self.0.lock();
        lines.iter().map(String::as_str).collect::<Vec<_>>().join("\n")
    }
}

/// Reads lines until the stream ends. A carriage return also ends a line. A line that is too long for
/// CloudWatch is cut into pieces.
pub(super) async fn read_lines(mut stream: impl AsyncRead + Unpin, mut line: impl FnMut(&str)) {
    let mut rest = Vec::new();
    let mut buffer = vec![0; 16 * 1_024];
    // A failed read counts as the end of the stream.
    while let Ok(read @ 1..) = stream.read(&mut buffer).await {
        rest.extend_from_slice(buffer.get(..read).unwrap_or_default());
        while let Some(end) = rest.iter().position(|byte| *byte == b'\n') {
            let whole: Vec<u8> = rest.drain(..=end).collect();
            let text = String::from_utf8_lossy(&whole);
            // awslambdaric separates the lines of an error with carriage returns.
            text.trim_end_matches(['\n', '\r']).split('\r').for_each(&mut line);
        }
        if rest.len() >= LINE_BYTES_MAX {
            line(&String::from_utf8_lossy(&rest));
            rest.clear();
        }
    }
    if !rest.is_empty() {
        line(&String::from_utf8_lossy(&rest));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_log_file_never_grows_beyond_its_limit() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("logs/f.log");
        let log = LogFile::with_limit(path.clone(), 1_000).unwrap();
        for n in 0..100 {
            log.line(Some("r-1"), &format!("line {n}"));
        }
        drop(log);
        LogFile::with_limit(path.clone(), 1_000).unwrap().line(None, "forged\nline \u{1b}[31m");
        let text = fs::read_to_string(&path).unwrap();
        assert!(text.ends_with(" - forged\\nline \\u{1b}[31m\n"), "{text}");
        let older = fs::read_to_string(path.with_extension("log.1")).unwrap();
        assert!(text.len() <= 1_000 && older.len() <= 1_000);
        assert!(
            older.contains(" r-1 line 60\n") && text.contains(" r-1 line 99\n"),
            "{older}{text}"
        );
        assert_eq!(fs::read_dir(path.parent().unwrap()).unwrap().count(), 2);
    }

    #[test]
    fn an_outage_of_the_disk_is_told_once() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("f.log");
        let log = LogFile::open(path.clone()).unwrap();
        let read_only = File::open(&path).unwrap();
        let file = std::mem::replace(&mut log.open.lock().file, read_only);
        let is_lost = |line: &str| {
            log.line(None, line);
            log.open.lock().has_failed
        };
        assert!(is_lost("lost") && is_lost("lost as well"));
        log.open.lock().file = file;
        assert!(!is_lost("back"));
        assert!(fs::read_to_string(&path).unwrap().ends_with(" - back\n"));
    }

    #[tokio::test]
    async fn lines_are_split_and_long_ones_cut() {
        let mut text = b"one\r\n\ntwo\xff\n[ERROR] E: no\r  File\r    x\n".to_vec();
        text.extend(std::iter::repeat_n(b'x', LINE_BYTES_MAX + 100_000));
        let mut lines = Vec::new();
        read_lines(&text[..], |line| lines.push(line.to_owned())).await;
        assert_eq!(lines[..6], ["one", "", "two\u{fffd}", "[ERROR] E: no", "  File", "    x"]);
        assert_eq!(lines.len(), 8);
        assert!(lines.iter().all(|line| line.len() < LINE_BYTES_MAX + 16 * 1_024));
    }
}
