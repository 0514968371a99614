//! Reads a CSV file as rows: its header, the types of its columns, and its records with line
//! numbers and original text.
//!
//! The reader returns an unreadable record as a value, not as an error, and continues after it.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{BufRead, BufReader, Read, Seek, SeekFrom};

use csv::{ByteRecord, Position, Reader, ReaderBuilder, StringRecord};
use model::{AttributeType, Item};

use super::input::Input;
use super::reading::Reading;
use super::row::{BadLine, LINE_BYTES_MAX, Row};
use super::typing::{is_plain_number, typed};
use client::failure::{Context, Result, fatal};
use client::output::{counted, say};

/// The format of a CSV file, from the flags.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct CsvForm<'f> {
    /// The text of a missing value, in addition to the empty string.
    pub(crate) null: Option<&'f str>,
    /// The separator of columns; `None` to detect it in the header.
    pub(crate) separator: Option<u8>,
}

/// Parses a separator: one ASCII character, `tab` or `\t`.
///
/// # Errors
/// When the text is not one character, or the character has a different meaning in CSV.
pub(super) fn parse_separator(text: &str) -> Result<u8> {
    match text.as_bytes() {
        b"tab" | b"\\t" => Ok(b'\t'),
        [byte] if byte.is_ascii() && !matches!(byte, b'"' | b'\r' | b'\n' | 0) => Ok(*byte),
        _ => Err(fatal!("a separator is one ASCII character other than a quote, or `tab`")),
    }
}

/// Returns the column names of the header line.
///
/// # Errors
/// When there is no header, or two columns have the same name.
pub(super) fn columns(input: &Input, form: CsvForm<'_>) -> Result<Vec<String>> {
    let name = input.name();
    let mut reader = open(input, form)?;
    let header = reader.headers();
    let header = header.map_err(|error| fatal!("cannot read the header of `{name}`: {error}"))?;
    if header.is_empty() {
        return Err(fatal!("`{name}` is empty: its first line must name the columns"));
    }
    let mut seen = BTreeSet::new();
    if let Some(twice) = header.iter().find(|column| !seen.insert(*column)) {
        return Err(fatal!("`{name}` has two columns named `{twice}`: rename one of them"));
    }
    Ok(header.iter().map(str::to_owned).collect())
}

/// Returns the records of a file. Undeclared types are inferred from all records.
///
/// # Errors
/// When the file cannot be read, or a declared column does not exist.
pub(super) fn rows(
    input: &Input,
    declared: &BTreeMap<String, AttributeType>,
    form: CsvForm<'_>,
) -> Result<impl Iterator<Item = Result<Row, BadLine>> + Send + use<>> {
    let name = input.name();
    let columns = columns(input, form)?;
    if let Some(unknown) = declared.keys().find(|column| !columns.contains(column)) {
        return Err(fatal!(
            "`{name}` has no column `{unknown}`; columns are {}",
            columns.join(", ")
        ));
    }
    let (file, bytes, separator) = (input.open()?, input.bytes()?, separator(input, form)?);
    if separator != b',' && form.separator.is_none() {
        let shown = char::from(separator).escape_default();
        say(&format!("the columns of `{name}` are separated by `{shown}`"));
    }
    let null = form.null.map(str::to_owned);
    let types = columns.iter().map(|column| declared.get(column).copied()).collect();
    let reader = open(input, form)?;
    let mut records = Records { reader, file, bytes, separator, columns, types, null };
    records.infer(open(input, form)?);
    Ok(std::iter::from_fn(move || records.next()))
}

/// Opens a reader that accepts records of any length. Their fields are counted later, because the
/// reader's own error has no line number.
fn open(input: &Input, form: CsvForm<'_>) -> Result<Reader<Reading>> {
    let separator = separator(input, form)?;
    Ok(ReaderBuilder::new().flexible(true).delimiter(separator).from_reader(input.open()?))
}

/// Returns the separator from the flags; without a flag, detects it in the header. The detected
/// separator is a comma, unless the header has no comma but another character of [`SEPARATORS`].
///
/// # Errors
/// When the file cannot be read.
fn separator(input: &Input, form: CsvForm<'_>) -> Result<u8> {
    if let Some(separator) = form.separator {
        return Ok(separator);
    }
    let name = input.name();
    let mut header = Vec::new();
    let mut reader = BufReader::new(input.open_text()?).take(LINE_BYTES_MAX);
    reader.read_until(b'\n', &mut header).context(|| format!("cannot read `{name}`"))?;
    let mut is_quoted = false;
    let mut unquoted = header.into_iter().filter(|byte| {
        is_quoted ^= *byte == b'"';
        !is_quoted
    });
    let found: BTreeSet<u8> = unquoted.by_ref().filter(|byte| SEPARATORS.contains(byte)).collect();
    Ok(SEPARATORS.iter().copied().find(|byte| found.contains(byte)).unwrap_or(b','))
}

/// Possible separators, the most likely first.
const SEPARATORS: &[u8] = b",;\t|";

/// The records of a file after its header.
struct Records {
    reader: Reader<Reading>,
    /// A second handle of the file, to read the original text of a record.
    file: Reading,
    bytes: u64,
    separator: u8,
    columns: Vec<String>,
    types: Vec<Option<AttributeType>>,
    /// The text of a missing value, in addition to the empty string.
    null: Option<String>,
}

/// The position and the original text of a record.
struct Place {
    line: u64,
    text: String,
}

impl Records {
    fn is_missing(&self, text: &str) -> bool {
        text.is_empty() || Some(text) == self.null.as_deref()
    }

    fn next(&mut self) -> Option<Result<Row, BadLine>> {
        let mut record = ByteRecord::new();
        let from = self.reader.position().clone();
        match self.reader.read_byte_record(&mut record) {
            Ok(false) => None,
            Ok(true) => {
                let begins = record.position().cloned().unwrap_or(from);
                let Place { line, text } = self.place(&begins);
                let is_last = self.reader.position().byte() >= self.bytes;
                let item = match is_last && is_unclosed(&text, self.separator) {
                    true => Err(fatal!("a quoted field has no closing quote")),
                    false => self.item(record),
                };
                Some(match item {
                    Ok(item) => Ok(Row { line, text, item }),
                    Err(failure) => Err(BadLine { line, reason: failure.to_string(), text }),
                })
            }
            Err(error) => {
                let Place { line, text } = self.place(&from);
                Some(Err(BadLine { line, reason: error.to_string(), text }))
            }
        }
    }

    /// Returns the item of a record, or the reason why the record is invalid.
    fn item(&self, record: ByteRecord) -> Result<Item> {
        let record = StringRecord::from_byte_record(record).map_err(|_| "not UTF-8")?;
        if record.len() != self.columns.len() {
            let (fields, columns) = (record.len(), self.columns.len());
            let fields = counted(fields, "field", "fields");
            return Err(fatal!("the line has {fields}, but the header has {columns}"));
        }
        let mut item = Item::new();
        for ((column, text), attribute_type) in self.columns.iter().zip(&record).zip(&self.types) {
            if !self.is_missing(text) {
                let value = typed(text, attribute_type.unwrap_or(AttributeType::S))
                    .context(|| format!("column `{column}`"));
                item.insert(column.clone(), value?);
            }
        }
        Ok(item)
    }

    /// Returns the text between a position and the reader's current position. The text may lack its
    /// line end, or a part of it, which then belongs to the next record.
    fn place(&mut self, from: &Position) -> Place {
        let length = self.reader.position().byte().saturating_sub(from.byte());
        let mut raw = Vec::new();
        let read = self.file.seek(SeekFrom::Start(from.byte())).and_then(|_| {
            self.file.by_ref().take(length.min(LINE_BYTES_MAX)).read_to_end(&mut raw)
        });
        // If the text cannot be read again, the record is still reported with its reason.
        if read.is_err() {
            raw.clear();
        }
        let ends = raw.iter().take_while(|byte| matches!(byte, b'\r' | b'\n'));
        let (begin, newlines) = ends.fold((0, 0), |(count, newlines), byte| {
            (count + 1, newlines + u64::from(*byte == b'\n'))
        });
        let text = String::from_utf8_lossy(raw.get(begin..).unwrap_or_default());
        let text = text.trim_end_matches(['\r', '\n']).to_owned();
        Place { line: from.line() + newlines, text }
    }

    /// Infers the type of undeclared columns: a number if every value is a number in its canonical
    /// form.
    fn infer(&mut self, mut reader: Reader<Reading>) {
        let mut numbers = vec![true; self.types.len()];
        let mut seen = vec![false; self.types.len()];
        for record in reader.records().flatten() {
            if record.len() != self.columns.len() {
                continue;
            }
            for ((text, number), seen) in record.iter().zip(&mut numbers).zip(&mut seen) {
                if !self.is_missing(text) {
                    *seen = true;
                    *number &= is_plain_number(text);
                }
            }
        }
        for ((attribute_type, number), seen) in self.types.iter_mut().zip(numbers).zip(seen) {
            if attribute_type.is_none() && number && seen {
                *attribute_type = Some(AttributeType::N);
            }
        }
    }
}

/// Returns true if the last record ends within a quote. Such a record also contains the lines that
/// follow it.
fn is_unclosed(record: &str, separator: u8) -> bool {
    let with_another = format!("{record}\nanother");
    let mut builder = ReaderBuilder::new();
    builder.has_headers(false).flexible(true).delimiter(separator);
    builder.from_reader(with_another.as_bytes()).byte_records().count() < 2
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the item of each record, or its line, reason and text.
    fn read(content: &[u8]) -> Result<Vec<String>> {
        read_as(content, CsvForm::default())
    }

    fn read_as(content: &[u8], form: CsvForm<'_>) -> Result<Vec<String>> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file.csv");
        std::fs::write(&path, content).unwrap();
        let rows = rows(&Input::new(&path, std::io::empty()).unwrap(), &BTreeMap::new(), form)?;
        let told = |row| match row {
            Ok(Row { line, item, .. }) => format!("{line} {}", model::json::item_to_string(&item)),
            Err(BadLine { line, reason, text }) => format!("{line} {reason}: {text:?}"),
        };
        Ok(rows.map(told).collect())
    }

    #[test]
    fn records_have_their_lines_and_their_text() {
        for (content, expected) in [
            (
                &b"a,b\r\nx,1\r\n\"y\r\nz\",2\r\nw\r\n"[..],
                vec![
                    r#"2 {"a":{"S":"x"},"b":{"N":"1"}}"#,
                    r#"3 {"a":{"S":"y\r\nz"},"b":{"N":"2"}}"#,
                    r#"5 the line has 1 field, but the header has 2: "w""#,
                ],
            ),
            (
                b"a,b\n\xff,1\n\n\"p,q\",1,\"r\"",
                vec![
                    "2 not UTF-8: \"\u{fffd},1\"",
                    r#"4 the line has 3 fields, but the header has 2: "\"p,q\",1,\"r\"""#,
                ],
            ),
            (
                b"a,b\n1,\"x\n2,y\n3,z\n",
                vec![r#"2 a quoted field has no closing quote: "1,\"x\n2,y\n3,z""#],
            ),
            (b"a,b\n1,\"x\"", vec![r#"2 {"a":{"N":"1"},"b":{"S":"x"}}"#]),
            (b"\xef\xbb\xbfa;b\nx,1;2\n", vec![r#"2 {"a":{"S":"x,1"},"b":{"N":"2"}}"#]),
            (b"a\tb\n1\t\"x\ty\"", vec![r#"2 {"a":{"N":"1"},"b":{"S":"x\ty"}}"#]),
            (b"\"a;c\",b\n1,2\n", vec![r#"2 {"a;c":{"N":"1"},"b":{"N":"2"}}"#]),
            (b"a|b\n1|\"x\n", vec![r#"2 a quoted field has no closing quote: "1|\"x""#]),
            (b"a,b\n1,5\" disc\n", vec![r#"2 {"a":{"N":"1"},"b":{"S":"5\" disc"}}"#]),
        ] {
            assert_eq!(read(content).unwrap(), expected, "{}", String::from_utf8_lossy(content));
        }
    }

    #[test]
    fn a_separator_can_be_named() {
        for (name, content, expected) in [
            ("^", "a^b\nx^1,2\n", r#"2 {"a":{"S":"x"},"b":{"S":"1,2"}}"#),
            ("tab", "a,b\tc\n1\t2\n", r#"2 {"a,b":{"N":"1"},"c":{"N":"2"}}"#),
            ("\\t", "a\tc\n1\t2\n", r#"2 {"a":{"N":"1"},"c":{"N":"2"}}"#),
            (";", "a,b;c\n\"x;y\";2\n", r#"2 {"a,b":{"S":"x;y"},"c":{"N":"2"}}"#),
        ] {
            let separator = Some(parse_separator(name).unwrap());
            let form = CsvForm { separator, ..CsvForm::default() };
            assert_eq!(read_as(content.as_bytes(), form).unwrap(), [expected], "{name}");
        }
        for wrong in ["", "\"", ",,", "\n", "ä"] {
            assert!(parse_separator(wrong).is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn a_header_names_each_column_once() {
        for (content, expected) in
            [("name,age,name\nx,1,y\n", "has two columns named `name`"), ("", "is empty")]
        {
            let refused = read(content.as_bytes()).unwrap_err().to_string();
            assert!(refused.contains(expected), "{refused}");
        }
    }
}
