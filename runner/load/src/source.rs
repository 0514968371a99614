//! An open file of any format as a sequence of rows.

use std::collections::BTreeMap;

use model::AttributeType;

use super::arguments::Format;
use super::csv_file::{self, CsvForm};
use super::input::Input;
use super::json_rows;
use super::row::{BadLine, Row};
use client::failure::Result;

/// An open file whose rows can be read.
pub(crate) struct Source {
    rows: Box<dyn Iterator<Item = Result<Row, BadLine>> + Send>,
    bytes: u64,
    columns: Option<Vec<String>>,
}

impl Source {
    /// Opens a file and reads its header. Undeclared types are inferred from all records of a CSV
    /// file.
    pub(super) fn open(
        input: &Input,
        format: Format,
        types: &BTreeMap<String, AttributeType>,
        form: CsvForm<'_>,
    ) -> Result<Self> {
        let bytes = input.bytes()?;
        let columns = match format {
            Format::Csv => Some(csv_file::columns(input, form)?),
            _ => None,
        };
        let rows: Box<dyn Iterator<Item = _> + Send> = match format {
            Format::Csv => Box::new(csv_file::rows(input, types, form)?),
            Format::Ndjson | Format::DynamodbJson | Format::Json => json_rows::open(input, format)?,
        };
        Ok(Self { rows, bytes, columns })
    }

    /// Returns the names of the columns, if the file has a header.
    pub(crate) fn columns(&self) -> Option<&[String]> {
        self.columns.as_deref()
    }

    /// Returns the size of the file in bytes.
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
        let form = CsvForm { null: Some("NULL"), ..CsvForm::default() };
        Source::open(&named(&path), format, &types, form)
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
    fn standard_input_is_a_file_that_is_read_twice() {
        let text = "id,n\n1,5\n2,x\n";
        let input = Input::new(Path::new("-"), text.as_bytes()).unwrap();
        let source =
            Source::open(&input, Format::Csv, &BTreeMap::new(), CsvForm::default()).unwrap();
        let items: Vec<_> =
            source.map(|row| model::json::item_to_string(&row.unwrap().item)).collect();
        let expected = [r#"{"id":{"N":"1"},"n":{"S":"5"}}"#, r#"{"id":{"N":"2"},"n":{"S":"x"}}"#];
        assert_eq!(items, expected);
    }

    #[test]
    fn a_pipe_is_a_file_that_is_read_twice() {
        let (read, mut write) = std::io::pipe().unwrap();
        std::io::Write::write_all(&mut write, b"id,n\n1,5\n2,x\n").unwrap();
        let path = format!("/dev/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&read));
        let opened = std::thread::spawn(move || Input::new(Path::new(&path), std::io::empty()));
        drop(write);
        let input = opened.join().unwrap().unwrap();
        let source =
            Source::open(&input, Format::Csv, &BTreeMap::new(), CsvForm::default()).unwrap();
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
