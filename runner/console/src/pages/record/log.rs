//! The log lines of invocations, which are read from the end of a function's log files.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::path::Path;

/// The number of bytes at the end of a log file that are searched. A log file has at most 10 MB.
const SEARCHED_BYTES: u64 = 4 * 1024 * 1024;

/// The maximum number of lines of one invocation. The last lines usually contain the cause of a
/// failure.
const LINES_MAX: usize = 40;

/// Returns the last lines of each request in the log of a function. The result contains no request
/// ids without lines.
pub(super) fn lines_of(
    folder: &Path,
    function: &str,
    requests: &[&str],
) -> BTreeMap<String, Vec<String>> {
    let mut found: BTreeMap<String, Vec<String>> = BTreeMap::new();
    if requests.is_empty() {
        return found;
    }
    for name in [format!("{function}.log.1"), format!("{function}.log")] {
        let text = end_of(&folder.join(name)).unwrap_or_default();
        for line in String::from_utf8_lossy(&text).lines() {
            // The format of a line is: time, request id, text.
            let mut parts = line.splitn(3, ' ');
            let (_, request, text) = (parts.next(), parts.next(), parts.next());
            if let Some(request) = request.filter(|request| requests.contains(request)) {
                found
                    .entry(request.to_owned())
                    .or_default()
                    .push(text.unwrap_or_default().to_owned());
            }
        }
    }
    for lines in found.values_mut() {
        lines.drain(..lines.len().saturating_sub(LINES_MAX));
    }
    found
}

/// Reads the last `SEARCHED_BYTES` of a file.
fn end_of(path: &Path) -> std::io::Result<Vec<u8>> {
    let mut file = File::open(path)?;
    let bytes = file.metadata()?.len();
    file.seek(SeekFrom::Start(bytes.saturating_sub(SEARCHED_BYTES)))?;
    let mut text = Vec::new();
    file.take(SEARCHED_BYTES).read_to_end(&mut text)?;
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_lines_of_a_request_are_found_across_a_rotation() {
        let folder = std::env::temp_dir().join(format!("weir-console-log-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let write = |name: &str, text: &str| std::fs::write(folder.join(name), text).unwrap();
        write("f.log.1", "t a START\nt b START\n");
        write("f.log", "t a hello world\nt - idle\nt a END\nodd\n");
        let found = lines_of(&folder, "f", &["a", "c"]);
        std::fs::remove_dir_all(&folder).unwrap();
        assert_eq!(
            found,
            [("a".to_owned(), vec!["START".into(), "hello world".into(), "END".into()])].into()
        );
        assert!(lines_of(&folder, "f", &["a"]).is_empty());
    }
}
