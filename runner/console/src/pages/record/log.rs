//! The log lines of invocations, which are read backwards from the end of a function's log files.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::path::Path;

use jiff::{SignedDuration, Timestamp};

/// The number of bytes at the end of a log file that are searched. A log file has at most 10 MB.
const SEARCHED_BYTES: u64 = 4 * 1024 * 1024;

/// The number of bytes that are read at a time.
const CHUNK_BYTES: u64 = 64 * 1024;

/// The maximum number of lines of one invocation. The last lines usually contain the cause of a
/// failure.
const LINES_MAX: usize = 40;

/// The time before the start of an invocation at which the search ends. The times of lines and the
/// duration of an invocation are rounded.
const SLACK: SignedDuration = SignedDuration::from_secs(1);

/// Returns the last lines of each request in the log of a function. The result contains no request
/// ids without lines.
pub(super) fn lines_of(
    folder: &Path,
    function: &str,
    requests: &[&str],
) -> BTreeMap<String, Vec<String>> {
    let mut search = Search::new(requests);
    for name in [format!("{function}.log"), format!("{function}.log.1")] {
        if !search.is_complete() {
            // A file that does not exist has no lines.
            let _ = search.file(&folder.join(name));
        }
    }
    search.found()
}

/// A search for the lines of requests, from the newest line to the oldest.
struct Search<'r> {
    requests: BTreeMap<&'r str, Lines>,
    /// The time of the oldest line that was read.
    oldest: Option<Timestamp>,
    /// The number of bytes that were read.
    bytes: u64,
}

/// The lines of one request.
#[derive(Default)]
struct Lines {
    /// The lines, newest first.
    lines: Vec<String>,
    /// The time before the first line of the invocation; `None` until its line `REPORT` is read.
    begin: Option<Timestamp>,
}

impl<'r> Search<'r> {
    fn new(requests: &[&'r str]) -> Self {
        let requests = requests.iter().map(|request| (*request, Lines::default())).collect();
        Self { requests, oldest: None, bytes: 0 }
    }

    /// Returns whether no older line can belong to a request.
    fn is_complete(&self) -> bool {
        let is_past = |begin: Timestamp| self.oldest.is_some_and(|oldest| oldest < begin);
        self.requests
            .values()
            .all(|own| own.lines.len() >= LINES_MAX || own.begin.is_some_and(is_past))
    }

    /// Searches a file backwards, until all lines are found.
    fn file(&mut self, path: &Path) -> std::io::Result<()> {
        let mut file = File::open(path)?;
        let mut end = file.metadata()?.len();
        let begin = end.saturating_sub(SEARCHED_BYTES);
        // The end of a line whose beginning is in the next chunk.
        let mut tail = Vec::new();
        while end > begin && !self.is_complete() {
            let from = end.saturating_sub(CHUNK_BYTES).max(begin);
            file.seek(SeekFrom::Start(from))?;
            let mut text = Vec::new();
            (&mut file).take(end - from).read_to_end(&mut text)?;
            self.bytes += end - from;
            text.append(&mut tail);
            let newline = text.iter().position(|byte| *byte == b'\n');
            let lines = if from == 0 { 0 } else { newline.map_or(text.len(), |at| at + 1) };
            let lines = text.split_off(lines);
            tail = text;
            for line in lines.split(|byte| *byte == b'\n').rev() {
                self.line(line);
            }
            let first = lines.split(|byte| *byte == b' ').next().and_then(time);
            self.oldest = first.or(self.oldest);
            end = from;
        }
        Ok(())
    }

    /// Adds a line, if it belongs to a request. The format of a line is: time, request id, text.
    fn line(&mut self, line: &[u8]) {
        let mut parts = line.splitn(3, |byte| *byte == b' ');
        let (at, request, text) = (parts.next(), parts.next(), parts.next());
        let request = request.and_then(|request| str::from_utf8(request).ok());
        let Some(own) = request.and_then(|request| self.requests.get_mut(request)) else { return };
        let text = String::from_utf8_lossy(text.unwrap_or_default());
        if let Some(duration) = duration(&text) {
            let begin = at.and_then(time).and_then(|at| at.checked_sub(duration).ok());
            own.begin = begin.and_then(|begin| begin.checked_sub(SLACK).ok());
        }
        if own.lines.len() < LINES_MAX {
            own.lines.push(text.into_owned());
        }
    }

    /// Returns the lines of each request that has lines, oldest first.
    fn found(self) -> BTreeMap<String, Vec<String>> {
        let found = self.requests.into_iter().filter(|(_, own)| !own.lines.is_empty());
        found
            .map(|(request, own)| (request.to_owned(), own.lines.into_iter().rev().collect()))
            .collect()
    }
}

fn time(text: &[u8]) -> Option<Timestamp> {
    str::from_utf8(text).ok()?.parse().ok()
}

/// Returns the duration of an invocation from its line `REPORT`.
fn duration(text: &str) -> Option<SignedDuration> {
    let report = text.strip_prefix("REPORT RequestId: ")?;
    let (_, millis) = report.split_once("\tDuration: ")?;
    let millis: f64 = millis.split(' ').next()?.parse().ok()?;
    SignedDuration::try_from_secs_f64(millis / 1_000.0).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Folder(std::path::PathBuf);

    impl Folder {
        fn new(name: &str) -> Self {
            let name = format!("weir-console-log-{name}-{}", std::process::id());
            let folder = std::env::temp_dir().join(name);
            std::fs::create_dir_all(&folder).unwrap();
            Self(folder)
        }

        fn write(&self, name: &str, text: &str) {
            std::fs::write(self.0.join(name), text).unwrap();
        }
    }

    impl Drop for Folder {
        fn drop(&mut self) {
            let _ = std::fs::remove_dir_all(&self.0);
        }
    }

    #[test]
    fn the_lines_of_a_request_are_found_across_a_rotation() {
        let folder = Folder::new("rotation");
        folder.write("f.log.1", "t a START\nt b START\n");
        folder.write("f.log", "t a hello world\nt - idle\nt a END\nodd\n");
        assert_eq!(
            lines_of(&folder.0, "f", &["a", "c"]),
            [("a".to_owned(), vec!["START".into(), "hello world".into(), "END".into()])].into()
        );
        assert!(lines_of(&folder.0, "g", &["a"]).is_empty());
    }

    /// Goal: the search for a recent invocation ends at its first line, however long the log is.
    #[test]
    fn the_search_ends_before_the_first_line_of_the_last_request() {
        let folder = Folder::new("end");
        let line = |second: u32, request: &str, text: &str| {
            format!("2026-11-30T12:{:02}:{:02}.000Z {request} {text}\n", second / 60, second % 60)
        };
        let report =
            |request: &str| format!("REPORT RequestId: {request}\tDuration: 2000.00 ms\tX");
        let older: String = (0..3_000).map(|at| line(at, "old", &"x".repeat(300))).collect();
        let own = [line(3_010, "new", "begins"), line(3_012, "new", &report("new"))].concat();
        folder.write("f.log", &(older.clone() + &own));
        folder.write("f.log.1", &older);
        let mut search = Search::new(&["new"]);
        search.file(&folder.0.join("f.log")).unwrap();
        assert!(search.is_complete() && search.bytes == CHUNK_BYTES, "{} bytes", search.bytes);
        assert_eq!(search.found()["new"], ["begins".to_owned(), report("new")]);
        // Only the last lines of a long log are shown.
        assert_eq!(lines_of(&folder.0, "f", &["old"])["old"].len(), LINES_MAX);
        let both = lines_of(&folder.0, "f", &["new", "absent"]);
        assert_eq!(both.keys().collect::<Vec<_>>(), ["new"]);
    }
}
