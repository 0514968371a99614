//! Reading a file line by line as rows, with their line numbers.
//!
//! A bad line is a value here, not an error: the reader goes on behind it.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read};
use std::ops::Range;

use model::{AttributeType, AttributeValue, Item};
use serde_json::value::RawValue;

use super::input::{Input, Reading};
use super::typing::item_from_plain_json;
use super::{BadLine, Format, csv_file};

/// One line of a file.
#[derive(Clone, Debug)]
pub(crate) struct Row {
    /// From 1; for a JSON array, the position in the array.
    pub(crate) line: u64,
    /// The line as it stands, for putting aside.
    pub(crate) text: String,
    pub(crate) item: Item,
}

/// Bytes of one line at most: an item of 400 KB, written wide.
pub(super) const LINE_BYTES_MAX: u64 = 8 * 1024 * 1024;
/// Bytes of a JSON array at most; it is read as a whole. Longer files are to be NDJSON.
const ARRAY_BYTES_MAX: u64 = 512 * 1024 * 1024;

/// An open file.
pub(crate) struct Source {
    rows: Box<dyn Iterator<Item = Result<Row, BadLine>> + Send>,
    bytes: u64,
    columns: Option<Vec<String>>,
}

impl Source {
    /// Opens a file and looks at its beginning; types that are not declared are inferred from the
    /// whole of a CSV file.
    pub(super) fn open(
        input: &Input,
        format: Format,
        types: &BTreeMap<String, AttributeType>,
        null: Option<&str>,
    ) -> Result<Self, String> {
        let (file, bytes) = (input.open()?, input.bytes()?);
        if matches!(format, Format::Ndjson | Format::DynamodbJson) {
            refuse_array(input)?;
        }
        let columns = match format {
            Format::Csv => Some(csv_file::columns(input)?),
            _ => None,
        };
        let rows: Box<dyn Iterator<Item = _> + Send> = match format {
            Format::Csv => Box::new(csv_file::rows(input, types, null)?),
            Format::Ndjson => Box::new(lines(file).map(|line| line.and_then(plain_row))),
            Format::DynamodbJson => Box::new(lines(file).map(|line| line.and_then(dynamodb_row))),
            Format::Json => Box::new(array_rows(&input.name(), file, bytes)?),
        };
        Ok(Self { rows, bytes, columns })
    }

    /// The columns, if the file says them before its first line.
    pub(crate) fn columns(&self) -> Option<&[String]> {
        self.columns.as_deref()
    }

    /// Size of the file.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }
}

impl Iterator for Source {
    type Item = Result<Row, BadLine>;

    fn next(&mut self) -> Option<Self::Item> {
        self.rows.next()
    }
}

/// A JSON array is one object on each line in no way: every line of it would be put aside.
fn refuse_array(input: &Input) -> Result<(), String> {
    let name = input.name();
    let failed = |error: std::io::Error| format!("cannot read `{name}`: {error}");
    let mut reader = BufReader::new(input.open()?);
    let begins_with = loop {
        let read = reader.fill_buf().map_err(failed)?;
        let Some(blank) = read.iter().position(|byte| !byte.is_ascii_whitespace()) else {
            if read.is_empty() {
                break None;
            }
            let length = read.len();
            reader.consume(length);
            continue;
        };
        break read.get(blank).copied();
    };
    match begins_with {
        Some(b'[') => Err(format!(
            "`{name}` begins with `[`, so it is a JSON array: write --format json, or one object on each line"
        )),
        _ => Ok(()),
    }
}

/// Lines with their numbers; empty ones are left out.
fn lines(file: Reading) -> impl Iterator<Item = Result<(u64, String), BadLine>> + Send {
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
                Err(error) => return bad(format!("cannot be read: {error}")),
            }
        }
    })
}

fn plain_row((line, text): (u64, String)) -> Result<Row, BadLine> {
    match item_from_plain_json(&text) {
        Ok(item) => Ok(Row { line, text, item }),
        Err(reason) => Err(BadLine { line, reason, text }),
    }
}

fn dynamodb_row((line, text): (u64, String)) -> Result<Row, BadLine> {
    let item =
        model::json::parse(text.as_bytes()).map_err(|error| error.to_string()).and_then(|json| {
            let wrapped = json.as_object().filter(|members| members.len() == 1);
            let inner = wrapped.and_then(|_| json.get("Item")).unwrap_or(&json);
            model::json::decode_item(inner).map_err(|error| error.to_string())
        });
    match item {
        Ok(item) => Ok(Row { line, text, item }),
        Err(reason) => Err(BadLine { line, reason, text }),
    }
}

fn array_rows(
    name: &str,
    file: Reading,
    bytes: u64,
) -> Result<impl Iterator<Item = Result<Row, BadLine>> + Send + use<>, String> {
    if bytes > ARRAY_BYTES_MAX {
        return Err(format!("`{name}` is a JSON array of more than 512 MiB: write it as NDJSON"));
    }
    let mut text = String::new();
    BufReader::new(file)
        .read_to_string(&mut text)
        .map_err(|error| format!("cannot read `{name}`: {error}"))?;
    let members: Vec<&RawValue> = serde_json::from_str(&text).map_err(|error| {
        let hint = match text.trim_start().starts_with('{') {
            true => "; if it has one object on each line, write --format ndjson",
            false => "",
        };
        format!("`{name}` is not a JSON array: {error}{hint}")
    })?;
    let (mut line, mut told) = (1, 0);
    let places = members.into_iter().map(|raw| {
        // A member is a part of the text, so its address says where it begins.
        let begins = (raw.get().as_ptr() as usize).saturating_sub(text.as_ptr() as usize);
        let between = text.as_bytes().get(told..begins).unwrap_or_default();
        line += between.iter().filter(|byte| **byte == b'\n').count() as u64;
        told = begins;
        (line, begins..begins + raw.get().len())
    });
    let places: Vec<(u64, Range<usize>)> = places.collect();
    Ok(places.into_iter().map(move |(line, range)| {
        plain_row((line, text.get(range).unwrap_or_default().to_owned()))
    }))
}

/// The text of a value as it would stand in a key of our own making.
pub(crate) fn value_text(value: &AttributeValue) -> String {
    let mut out = String::new();
    model::json::write_attribute_value(&mut out, value);
    out
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    fn named(path: &Path) -> Input {
        Input::new(path, std::io::empty()).unwrap()
    }

    fn read(
        format: Format,
        content: &str,
        types: &[(&str, AttributeType)],
    ) -> Vec<Result<String, (u64, String)>> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        std::fs::write(&path, content).unwrap();
        let types = types.iter().map(|(name, t)| ((*name).to_owned(), *t)).collect();
        Source::open(&named(&path), format, &types, Some("NULL"))
            .unwrap()
            .map(|row| match row {
                Ok(row) => Ok(model::json::item_to_string(&row.item)),
                Err(bad) => Err((bad.line, bad.reason)),
            })
            .collect()
    }

    #[test]
    fn csv_types_are_declared_or_inferred_and_bad_lines_are_named() {
        let rows = read(
            Format::Csv,
            "id,zip,n,note\n1,01234,5,NULL\nx,99,7.50,hi\n3,1,2\n4,5,,z\n",
            &[("id", AttributeType::N)],
        );
        assert_eq!(rows[0], Ok(r#"{"id":{"N":"1"},"n":{"N":"5"},"zip":{"S":"01234"}}"#.to_owned()));
        assert_eq!(
            rows[1],
            Err((
                3,
                "column `id`: The parameter cannot be converted to a numeric value: x".to_owned()
            ))
        );
        assert!(matches!(&rows[2], Err((4, reason)) if reason.contains("fields")), "{rows:?}");
        assert_eq!(rows[3], Ok(r#"{"id":{"N":"4"},"note":{"S":"z"},"zip":{"S":"5"}}"#.to_owned()));
    }

    #[test]
    fn a_file_of_another_format_is_refused_before_its_first_line() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        for (format, content, hint) in [
            (Format::Ndjson, " \n[{\"a\":1}]", "write --format json"),
            (Format::DynamodbJson, "[\n", "write --format json"),
            (Format::Json, "{\"a\":1}\n{\"a\":2}", "write --format ndjson"),
        ] {
            std::fs::write(&path, content).unwrap();
            let refused =
                Source::open(&named(&path), format, &BTreeMap::new(), None).err().unwrap();
            assert!(refused.contains(hint), "{content}: {refused}");
        }
        std::fs::write(&path, "\n  \n").unwrap();
        assert!(Source::open(&named(&path), Format::Ndjson, &BTreeMap::new(), None).is_ok());
    }

    #[test]
    fn standard_input_is_a_file_that_is_read_twice() {
        let text = "id,n\n1,5\n2,x\n";
        let input = Input::new(Path::new("-"), text.as_bytes()).unwrap();
        let source = Source::open(&input, Format::Csv, &BTreeMap::new(), None).unwrap();
        let items: Vec<_> =
            source.map(|row| model::json::item_to_string(&row.unwrap().item)).collect();
        let expected = [r#"{"id":{"N":"1"},"n":{"S":"5"}}"#, r#"{"id":{"N":"2"},"n":{"S":"x"}}"#];
        assert_eq!(items, expected);
        let input = Input::new(Path::new("-"), "[1]".as_bytes()).unwrap();
        let refused = Source::open(&input, Format::Ndjson, &BTreeMap::new(), None).err().unwrap();
        assert!(refused.starts_with("`-` begins with `[`"), "{refused}");
    }

    #[test]
    fn a_pipe_is_a_file_that_is_read_twice() {
        let (read, mut write) = std::io::pipe().unwrap();
        std::io::Write::write_all(&mut write, b"id,n\n1,5\n2,x\n").unwrap();
        let path = format!("/dev/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&read));
        let opened = std::thread::spawn(move || Input::new(Path::new(&path), std::io::empty()));
        drop(write);
        let input = opened.join().unwrap().unwrap();
        let source = Source::open(&input, Format::Csv, &BTreeMap::new(), None).unwrap();
        assert_eq!(source.map(|row| row.unwrap().item.len()).collect::<Vec<_>>(), [2, 2]);
        assert_eq!(input.bytes().unwrap(), 13);
    }

    #[test]
    fn a_member_of_an_array_has_the_line_where_it_begins() {
        let content = "[\n  {\"a\": 1},\n  {\n    \"a\": 2\n  }, 7,\n\n  8]";
        let rows = read(Format::Json, content, &[]);
        let lines: Vec<_> =
            rows.iter().map(|row| row.as_ref().err().map(|(line, _)| *line)).collect();
        assert_eq!(lines, [None, None, Some(5), Some(7)]);
    }

    #[test]
    fn json_in_three_forms() {
        let item = Ok(r#"{"a":{"N":"1"}}"#.to_owned());
        assert_eq!(read(Format::Json, r#"[{"a":1},{"a":1}]"#, &[]), [item.clone(), item.clone()]);
        let lines = read(Format::Ndjson, "{\"a\":1}\n\nnope\n{\"a\":1}", &[]);
        assert_eq!(lines[0], item);
        assert!(matches!(&lines[1], Err((3, _))));
        assert_eq!(lines[2], item);
        let export = "{\"Item\":{\"a\":{\"N\":\"1\"}}}\n{\"a\":{\"N\":\"1\"}}\n{\"a\":1}";
        let lines = read(Format::DynamodbJson, export, &[]);
        assert_eq!(lines[..2], [item.clone(), item]);
        assert!(lines[2].is_err());
    }
}
