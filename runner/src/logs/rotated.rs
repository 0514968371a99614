//! Reads a log file and its predecessor while the writer rotates them.
//!
//! A rotation renames `NAME.log` to `NAME.log.1` and replaces the previous file of this name. The
//! reader keeps its file open, reads the file completely, and continues with the next file. It does
//! not parse the lines.

use std::fs::File;
use std::io::{self, ErrorKind, Read, Seek, SeekFrom};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// A function's log, and the position up to which it was read.
#[derive(Debug)]
pub(super) struct RotatedLog {
    path: PathBuf,
    /// The predecessor of the current file, if it exists. It is read first.
    before: Option<Opened>,
    current: Opened,
}

#[derive(Debug)]
struct Opened {
    file: File,
    /// Device and inode, which show whether the name now refers to a different file.
    identity: (u64, u64),
    /// The number of bytes that were returned so far.
    read: u64,
}

impl Opened {
    /// Opens a file; `None` if it does not exist.
    fn at(path: &Path) -> io::Result<Option<Self>> {
        let file = match File::open(path) {
            Ok(file) => file,
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error),
        };
        let metadata = file.metadata()?;
        Ok(Some(Self { file, identity: (metadata.dev(), metadata.ino()), read: 0 }))
    }

    /// Returns the data since the last call, or all data if the file was truncated. While `is_over`
    /// is false, the file may still grow, so an incomplete last line is left for a later call.
    fn take(&mut self, is_over: bool) -> io::Result<Vec<u8>> {
        if self.file.metadata()?.len() < self.read {
            self.read = 0;
        }
        // Reads only up to the current length, so that the call ends even if the writer is busy.
        let length = self.file.metadata()?.len();
        self.file.seek(SeekFrom::Start(self.read))?;
        let mut bytes = Vec::new();
        (&self.file).take(length.saturating_sub(self.read)).read_to_end(&mut bytes)?;
        if !is_over {
            let whole = bytes.iter().rposition(|byte| *byte == b'\n').map_or(0, |place| place + 1);
            bytes.truncate(whole);
        }
        self.read += bytes.len() as u64;
        Ok(bytes)
    }
}

impl RotatedLog {
    /// Opens a log at the beginning of its predecessor.
    ///
    /// # Errors
    /// The log does not exist.
    pub(super) fn open(path: PathBuf) -> io::Result<Self> {
        // The order matters. If the file is rotated between the two calls, the second call finds
        // the same file under its new name, so the file is read only once.
        let current = Opened::at(&path)?.ok_or(ErrorKind::NotFound)?;
        let before = older(&path, &current)?;
        Ok(Self { path, before, current })
    }

    /// Returns the lines that exist now. Ignores a file that replaces the current file meanwhile,
    /// so the call ends even if the writer is busy.
    ///
    /// # Errors
    /// A file cannot be read.
    pub(super) fn read_once(mut self) -> io::Result<Vec<u8>> {
        let mut bytes = self.before.take().map_or(Ok(Vec::new()), |mut it| it.take(true))?;
        let successor = Opened::at(&self.path)?;
        let is_over = successor.is_some_and(|other| other.identity != self.current.identity);
        // Completes an incomplete last line.
        if bytes.last().is_some_and(|last| *last != b'\n') {
            bytes.push(b'\n');
        }
        bytes.append(&mut self.current.take(is_over)?);
        Ok(bytes)
    }

    /// Returns the next complete lines; empty if there is no complete line yet.
    ///
    /// # Errors
    /// A file cannot be read.
    pub(super) fn read(&mut self) -> io::Result<Vec<u8>> {
        if let Some(mut before) = self.before.take() {
            let bytes = before.take(true)?;
            if !bytes.is_empty() {
                return Ok(bytes);
            }
        }
        // This check precedes the read. Once a new file has the name, the writer no longer writes to the
        // old file. During a rotation the name may be missing for a moment.
        let successor = Opened::at(&self.path)?;
        let successor = successor.filter(|other| other.identity != self.current.identity);
        let bytes = self.current.take(successor.is_some())?;
        if let Some(successor) = successor {
            let between = older(&self.path, &successor)?;
            self.before = between.filter(|it| it.identity != self.current.identity);
            self.current = successor;
            if bytes.is_empty() {
                return self.read();
            }
        }
        Ok(bytes)
    }
}

/// Returns the predecessor of the file `newer`, whose name is `path` or was `path` before a rotation.
fn older(path: &Path, newer: &Opened) -> io::Result<Option<Opened>> {
    let older = Opened::at(&path.with_extension("log.1"))?;
    Ok(older.filter(|older| older.identity != newer.identity))
}

#[cfg(test)]
mod tests {
    use std::fs::{self, OpenOptions};
    use std::io::Write;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    fn append(path: &Path, text: &str) {
        let mut file = OpenOptions::new().create(true).append(true).open(path).unwrap();
        file.write_all(text.as_bytes()).unwrap();
    }

    /// Rotates the log as its writer does.
    fn rotate(path: &Path) {
        fs::rename(path, path.with_extension("log.1")).unwrap();
        append(path, "");
    }

    fn text(log: &mut RotatedLog) -> String {
        let mut text = String::new();
        loop {
            let bytes = log.read().unwrap();
            if bytes.is_empty() {
                return text;
            }
            text.push_str(&String::from_utf8(bytes).unwrap());
        }
    }

    /// Goal: after a rotation, each line is read once. The new file is either longer or shorter
    /// than the data that was read from the old file.
    #[test]
    fn each_line_is_read_once_across_rotations() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("f.log");
        append(&path.with_extension("log.1"), "older\n");
        append(&path, "1\n");
        let mut log = RotatedLog::open(path.clone()).unwrap();
        assert_eq!(text(&mut log), "older\n1\n");
        for new in ["a\n", "a line that is longer than all that was read before\n"] {
            append(&path, "last of the old\n");
            rotate(&path);
            assert_eq!(text(&mut log), "last of the old\n");
            append(&path, new);
            assert_eq!(text(&mut log), new);
            assert_eq!(text(&mut log), "");
        }
        // The file is rotated twice between two reads.
        append(&path, "first\n");
        rotate(&path);
        append(&path, "second\n");
        rotate(&path);
        append(&path, "thi");
        assert_eq!(text(&mut log), "first\nsecond\n");
        append(&path, "rd\n");
        assert_eq!(text(&mut log), "third\n");
        // An incomplete last line, as after a full disk, is returned once the file is rotated.
        append(&path, "broke off");
        assert_eq!(text(&mut log), "");
        rotate(&path);
        assert_eq!(text(&mut log), "broke off");
        // The file was truncated.
        append(&path, "1\n2\n");
        assert_eq!(text(&mut log), "1\n2\n");
        fs::write(&path, "3\n").unwrap();
        assert_eq!(text(&mut log), "3\n");
    }

    /// Goal: every line is read once, although lines are written and files are rotated at any time.
    #[test]
    fn a_log_that_is_written_concurrently_is_read_completely() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("f.log");
        append(&path, "");
        // The writer rotates a file only after the reader has begun to read it.
        let (of_writer, seen) = (path.clone(), Arc::new(AtomicUsize::new(0)));
        let of_reader = Arc::clone(&seen);
        let writer = std::thread::spawn(move || {
            for number in 0..3_000 {
                append(&of_writer, &format!("{number}\n"));
                if number % 100 == 99 {
                    rotate(&of_writer);
                    while seen.load(Ordering::SeqCst) + 99 <= number {
                        std::thread::yield_now();
                    }
                }
            }
        });
        let mut log = RotatedLog::open(path).unwrap();
        let mut read = String::new();
        while !writer.is_finished() {
            read.push_str(&text(&mut log));
            of_reader.store(read.lines().count(), Ordering::SeqCst);
        }
        writer.join().unwrap();
        read.push_str(&text(&mut log));
        let numbers: Vec<u32> = read.lines().map(|line| line.parse().unwrap()).collect();
        assert_eq!(numbers, (0..3_000).collect::<Vec<_>>());
    }

    /// Goal: `read_once` returns the lines of the opened file, even lines after its rotation, and
    /// no line of its successor.
    #[test]
    fn read_once_returns_the_lines_that_exist() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("f.log");
        append(&path.with_extension("log.1"), "older\nbroke off");
        append(&path, "1\nnot who");
        let read = |log: RotatedLog| String::from_utf8(log.read_once().unwrap()).unwrap();
        assert_eq!(read(RotatedLog::open(path.clone()).unwrap()), "older\nbroke off\n1\n");
        let log = RotatedLog::open(path.clone()).unwrap();
        append(&path, "le\n");
        rotate(&path);
        append(&path, "new\n");
        assert_eq!(read(log), "older\nbroke off\n1\nnot whole\n");
        assert_eq!(read(RotatedLog::open(path).unwrap()), "1\nnot whole\nnew\n");
    }

    #[test]
    fn a_missing_log_is_an_error() {
        let folder = tempfile::tempdir().unwrap();
        assert!(RotatedLog::open(folder.path().join("f.log")).is_err());
    }
}
