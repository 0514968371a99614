//! The rows of a file: its lines as items, with their numbers.
//!
//! The reader returns an invalid line as a value, not as an error, and continues after it.

use std::io::{BufRead, BufReader, Read};

use model::{AttributeValue, Item};

use super::reading::Reading;

/// One line of a file.
#[derive(Clone, Debug)]
pub(crate) struct Row {
    /// Line number from 1; in a JSON array, the position in the array.
    pub(crate) line: u64,
    /// The original text. If the line cannot be loaded, this text is written to the file of such
    /// lines.
    pub(crate) text: String,
    pub(crate) item: Item,
}

/// A line that cannot be loaded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct BadLine {
    /// Line number, from 1.
    pub(crate) line: u64,
    pub(crate) reason: String,
    pub(crate) text: String,
}

/// Maximum length of a line in bytes. An item of 400 KB fits, even in a verbose encoding.
pub(super) const LINE_BYTES_MAX: u64 = 8 * 1024 * 1024;

/// Returns the lines that are not empty, with their numbers.
pub(super) fn lines(file: Reading) -> impl Iterator<Item = Result<(u64, String), BadLine>> + Send {
    let mut reader = BufReader::new(file);
    let mut number = 0;
    std::iter::from_fn(move || {
        loop {
            let mut line = Vec::new();
            number += 1;
            let bad =
                |reason: String| Some(Err(BadLine { line: number, reason, text: String::new() }));
            match reader.by_ref().take(LINE_BYTES_MAX).read_until(b'\n', &mut line) {
                Ok(0) => return None,
                Ok(_) if line.iter().all(u8::is_ascii_whitespace) => {}
                Ok(_) => {
                    return match String::from_utf8(line) {
                        Ok(text) => Some(Ok((number, text.trim_end().to_owned()))),
                        Err(_) => bad("not UTF-8".to_owned()),
                    };
                }
                Err(error) => return bad(format!("the line cannot be read: {error}")),
            }
        }
    })
}

/// Returns a value as DynamoDB JSON. The texts of the key attributes, concatenated, select the lane of a row.
pub(crate) fn value_text(value: &AttributeValue) -> String {
    let mut out = String::new();
    model::json::write_attribute_value(&mut out, value);
    out
}
