//! Reads a JSON file as rows: one object per line, an array, or the output of DynamoDB tools.
//!
//! The first value of a file determines its format. Shapes: AWS CLI reference, `dynamodb scan` and
//! `batch-write-item`; AWS DynamoDB guide, "DynamoDB table export output format".

use std::io::{BufReader, Read};
use std::ops::Range;

use model::AttributeType;
use serde_json::value::RawValue;

use super::arguments::Format;
use super::input::Input;
use super::reading::Reading;
use super::row::{BadLine, Row, lines};
use client::failure::{Context, Failure, Result, fatal};
use client::output::say;
use client::plain_json::{Members, item_from_plain_json};

/// Maximum size of a file that is read into memory. A larger file must have one object per line.
const WHOLE_BYTES_MAX: u64 = 512 * 1024 * 1024;

/// The rows of a file. An invalid row is returned with its reason.
pub(super) type Rows = Box<dyn Iterator<Item = Result<Row, BadLine>> + Send>;

/// The encoding of a row's attributes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Writing {
    /// Plain JSON.
    Plain,
    /// DynamoDB JSON, in any [`Shape`].
    Dynamodb,
}

/// The content of an object in DynamoDB JSON.
enum Shape<'t> {
    /// The attributes of an item.
    Attributes,
    /// `{"Item": …}`, the form in an export and in the output of `get-item`.
    Wrapped(&'t RawValue),
    /// `{"Items": […]}`, the output of `scan` and `query`.
    Items(&'t RawValue),
    /// Tables, each with a list of items (output of `batch-get-item`) or of requests (input of
    /// `batch-write-item`).
    Tables(Vec<&'t RawValue>),
    /// The tables of [`Shape::Tables`] within the member `RequestItems` or `Responses`.
    Within(&'t RawValue),
    /// `{"PutRequest": {"Item": …}}`.
    Request(&'t RawValue),
    /// The new image of a change in an incremental export, or `None` for a deletion.
    Change(Option<&'t RawValue>),
    /// A request to delete an item.
    Deletion,
}

/// The text of one row, and the reason if it is invalid.
struct Part<'t> {
    text: &'t str,
    refusal: Option<&'static str>,
}

const DELETED: &str =
    "the row deletes an item, but a load only puts items; use `aws dynamodb delete-item`";

/// Members that may occur next to the member that determines the shape.
const BESIDE_ITEMS: &[&str] =
    &["Items", "Count", "ScannedCount", "ConsumedCapacity", "LastEvaluatedKey", "NextToken"];
const BESIDE_ITEM: &[&str] = &["Item", "ConsumedCapacity"];
const BESIDE_RESPONSES: &[&str] = &["Responses", "UnprocessedKeys", "ConsumedCapacity"];
const BESIDE_REQUESTS: &[&str] =
    &["RequestItems", "ReturnConsumedCapacity", "ReturnItemCollectionMetrics"];
const OF_CHANGE: &[&str] = &["Metadata", "Keys", "NewImage", "OldImage"];

/// Maximum depth of nested shapes, such as a list of tables, of requests, of items.
const DEPTH_MAX: usize = 6;

/// Returns the rows of a file.
///
/// # Errors
/// When the file cannot be read, or is not JSON.
pub(super) fn open(input: &Input, format: Format) -> Result<Rows> {
    let name = input.name();
    let first = lines(input.open_text()?).next();
    let first = match first {
        Some(Ok((_, line))) => line,
        None if format == Format::Json => return Err(fatal!("`{name}` is empty")),
        // A line that is not text is reported when its row is read.
        Some(Err(_)) | None => String::new(),
    };
    let is_array = first.trim_start().starts_with('[');
    let is_complete = serde_json::from_str::<&RawValue>(&first).is_ok() && !is_array;
    if !is_complete && let Some(rows) = whole(input, format, is_array)? {
        return Ok(rows);
    }
    // In a file with one object per line, each invalid line has its own reason.
    let writing = writing(&name, &first, format);
    let rows = lines(input.open_text()?);
    Ok(Box::new(rows.flat_map(move |line| match line {
        Ok((number, text)) => rows_of(number, &text, writing),
        Err(bad) => vec![Err(bad)],
    })))
}

/// Returns the rows of a file whose values span several lines. Returns `None` if the file has one
/// object per line and one of them is invalid.
fn whole(input: &Input, format: Format, is_array: bool) -> Result<Option<Rows>> {
    let (name, file) = (input.name(), input.open_text()?);
    if input.bytes()? > WHOLE_BYTES_MAX {
        if format != Format::Json && !is_array {
            return Ok(None);
        }
        return Err(fatal!(
            "`{name}` has more than 512 MiB and is not one object on each line: convert it to NDJSON, \
             for example with `jq -c '.[]'`"
        ));
    }
    let text = match read(&name, file) {
        Ok(text) => text,
        Err(reason) if format == Format::Json => return Err(reason),
        Err(_) => return Ok(None),
    };
    let mut values = Vec::new();
    for value in serde_json::Deserializer::from_str(&text).into_iter::<&RawValue>() {
        match value {
            Ok(value) => values.push(value.get()),
            Err(error) if format == Format::Json => {
                return Err(fatal!("`{name}` is not JSON: {error}"));
            }
            Err(_) => return Ok(None),
        }
    }
    let writing = writing(&name, values.first().copied().unwrap_or_default(), format);
    let mut parts = Vec::new();
    values.iter().for_each(|value| find_parts(value, writing, DEPTH_MAX, &mut parts));
    let (mut line, mut told) = (1, 0);
    let places = parts.into_iter().map(|part| {
        // Each row is a slice of `text`, so the difference of the addresses is its offset.
        let begins = (part.text.as_ptr() as usize).saturating_sub(text.as_ptr() as usize);
        let between = text.as_bytes().get(told..begins).unwrap_or_default();
        line += between.iter().filter(|byte| **byte == b'\n').count() as u64;
        told = begins.max(told);
        (line, begins..begins + part.text.len(), part.refusal)
    });
    let places: Vec<(u64, Range<usize>, Option<&'static str>)> = places.collect();
    Ok(Some(Box::new(places.into_iter().map(move |(line, range, refusal)| {
        let part = Part { text: text.get(range).unwrap_or_default(), refusal };
        row(line, &part, writing)
    }))))
}

fn read(name: &str, file: Reading) -> Result<String> {
    let mut text = String::new();
    BufReader::new(file).read_to_string(&mut text).context(|| format!("cannot read `{name}`"))?;
    Ok(text)
}

/// Returns the encoding of a file from its first value.
fn writing(name: &str, first: &str, format: Format) -> Writing {
    if format == Format::DynamodbJson {
        warn_of_more(name, first);
        return Writing::Dynamodb;
    }
    if !is_dynamodb(first, DEPTH_MAX) {
        return Writing::Plain;
    }
    say(&format!("`{name}` is read as DynamoDB JSON, because its values have types"));
    warn_of_more(name, first);
    Writing::Dynamodb
}

/// Warns if the file has only one page of a table's items.
fn warn_of_more(name: &str, first: &str) {
    let Ok(Members(members)) = serde_json::from_str(first) else { return };
    let has = |wanted: &str| members.iter().any(|(member, _)| member == wanted);
    if has("Items") && (has("LastEvaluatedKey") || has("NextToken")) {
        say(&format!(
            "warning: `{name}` contains only a part of the table: the scan or query that wrote it has more pages"
        ));
    }
}

/// Returns true for DynamoDB JSON. Plain JSON cannot have this form, because it would have no
/// scalar and hence no key.
fn is_dynamodb(text: &str, depth: usize) -> bool {
    let Some(depth) = depth.checked_sub(1) else { return false };
    if let Ok(items) = serde_json::from_str::<Vec<&RawValue>>(text) {
        return items.first().is_some_and(|item| is_dynamodb(item.get(), depth));
    }
    let Ok(Members(members)) = serde_json::from_str(text) else { return false };
    match shape(&members) {
        Shape::Attributes => {
            !members.is_empty() && members.iter().all(|(_, value)| is_typed(value.get()))
        }
        Shape::Items(list) => list.get() == "[]" || is_dynamodb(list.get(), depth),
        Shape::Tables(lists) => lists.iter().any(|list| is_dynamodb(list.get(), depth)),
        Shape::Wrapped(inner) | Shape::Within(inner) | Shape::Request(inner) => {
            is_dynamodb(inner.get(), depth)
        }
        Shape::Change(Some(image)) => is_dynamodb(image.get(), depth),
        Shape::Change(None) | Shape::Deletion => true,
    }
}

/// Returns true for a typed value, such as `{"S": "a"}`.
fn is_typed(text: &str) -> bool {
    let Ok(Members(members)) = serde_json::from_str(text) else { return false };
    matches!(members.as_slice(), [(name, _)] if AttributeType::from_descriptor(name).is_some())
}

fn shape<'t>(members: &[(String, &'t RawValue)]) -> Shape<'t> {
    let get =
        |wanted: &str| members.iter().find(|(name, _)| name == wanted).map(|(_, value)| *value);
    let only = |known: &[&str]| members.iter().all(|(name, _)| known.contains(&name.as_str()));
    if let Some(items) = get("Items").filter(|_| only(BESIDE_ITEMS)) {
        return Shape::Items(items);
    }
    if let Some(item) = get("Item").filter(|_| only(BESIDE_ITEM)) {
        return Shape::Wrapped(item);
    }
    if let Some(tables) = get("Responses").filter(|_| only(BESIDE_RESPONSES)) {
        return Shape::Within(tables);
    }
    if let Some(tables) = get("RequestItems").filter(|_| only(BESIDE_REQUESTS)) {
        return Shape::Within(tables);
    }
    if get("Keys").is_some() && get("Metadata").is_some() && only(OF_CHANGE) {
        return Shape::Change(get("NewImage"));
    }
    if let Some(request) = get("PutRequest").filter(|_| members.len() == 1) {
        return Shape::Request(request);
    }
    if get("DeleteRequest").is_some() && members.len() == 1 {
        return Shape::Deletion;
    }
    let is_list = |value: &RawValue| value.get().starts_with('[');
    if !members.is_empty() && members.iter().all(|(_, value)| is_list(value)) {
        return Shape::Tables(members.iter().map(|(_, value)| *value).collect());
    }
    Shape::Attributes
}

/// Finds the rows in a value.
fn find_parts<'t>(text: &'t str, writing: Writing, depth: usize, into: &mut Vec<Part<'t>>) {
    let whole = Part { text, refusal: None };
    let Some(depth) = depth.checked_sub(1) else { return into.push(whole) };
    if let Ok(items) = serde_json::from_str::<Vec<&RawValue>>(text) {
        return items.iter().for_each(|item| find_parts(item.get(), writing, depth, into));
    }
    // A value that is not an object is rejected later, when it is read as an item.
    let members = serde_json::from_str::<Members<'_>>(text).ok().map(|Members(members)| members);
    let Some(members) = members.filter(|_| writing == Writing::Dynamodb) else {
        return into.push(whole);
    };
    match shape(&members) {
        Shape::Attributes => into.push(whole),
        Shape::Wrapped(item) | Shape::Change(Some(item)) => {
            into.push(Part { text: item.get(), refusal: None });
        }
        Shape::Items(inner) | Shape::Within(inner) | Shape::Request(inner) => {
            find_parts(inner.get(), writing, depth, into);
        }
        Shape::Tables(lists) => {
            lists.iter().for_each(|list| find_parts(list.get(), writing, depth, into));
        }
        Shape::Change(None) | Shape::Deletion => {
            into.push(Part { text, refusal: Some(DELETED) });
        }
    }
}

fn rows_of(line: u64, text: &str, writing: Writing) -> Vec<Result<Row, BadLine>> {
    let mut parts = Vec::new();
    match writing {
        // In plain JSON, each line is one row.
        Writing::Plain => parts.push(Part { text, refusal: None }),
        Writing::Dynamodb => find_parts(text, writing, DEPTH_MAX, &mut parts),
    }
    parts.iter().map(|part| row(line, part, writing)).collect()
}

fn row(line: u64, part: &Part<'_>, writing: Writing) -> Result<Row, BadLine> {
    let text = part.text.to_owned();
    let item = match (part.refusal, writing) {
        (Some(refusal), _) => Err(refusal.into()),
        (None, Writing::Plain) => item_from_plain_json(&text),
        (None, Writing::Dynamodb) => model::json::item_from_str(&text).map_err(Failure::fatal),
    };
    match item {
        Ok(item) => Ok(Row { line, text, item }),
        Err(failure) => Err(BadLine { line, reason: failure.to_string(), text }),
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    /// Returns the item of each row, or its line and reason.
    fn read(format: Format, content: &[u8]) -> Result<Vec<String>> {
        let input = Input::new(Path::new("-"), content)?;
        let rows = open(&input, format)?.map(|row| match row {
            Ok(row) => format!("{} {}", row.line, model::json::item_to_string(&row.item)),
            Err(bad) => format!("{} {}", bad.line, bad.reason),
        });
        Ok(rows.collect())
    }

    #[test]
    fn exports_of_dynamodb_tools_are_read_unchanged() {
        let (a, b) = (r#"{"pk":{"S":"a"}}"#, r#"{"pk":{"S":"b"}}"#);
        let deleted = format!("1 {DELETED}");
        for (content, expected) in [
            (format!("{a}\n{b}\n"), vec![format!("1 {a}"), format!("2 {b}")]),
            (
                format!("{{\"Item\":{a}}}\n{{\"Item\":{b}}}"),
                vec![format!("1 {a}"), format!("2 {b}")],
            ),
            (format!("[{a},\n{b}]"), vec![format!("1 {a}"), format!("2 {b}")]),
            (
                format!(
                    "{{\n \"Items\": [\n  {a},\n  {b}\n ],\n \"Count\": 2, \"ScannedCount\": 2, \"ConsumedCapacity\": null}}"
                ),
                vec![format!("3 {a}"), format!("4 {b}")],
            ),
            (r#"{"Items":[],"Count":0,"ScannedCount":0}"#.to_owned(), vec![]),
            (
                format!(
                    r#"{{"t":[{{"PutRequest":{{"Item":{a}}}}},{{"DeleteRequest":{{"Key":{b}}}}}]}}"#
                ),
                vec![format!("1 {a}"), deleted.clone()],
            ),
            (
                format!(r#"{{"RequestItems":{{"t":[{{"PutRequest":{{"Item":{a}}}}}]}}}}"#),
                vec![format!("1 {a}")],
            ),
            (
                format!(r#"{{"Responses":{{"t":[{a}]}},"UnprocessedKeys":{{}}}}"#),
                vec![format!("1 {a}")],
            ),
            (
                format!(
                    r#"{{"Metadata":{{"WriteTimestampMicros":{{"N":"1"}}}},"Keys":{a},"NewImage":{a}}}"#
                ) + "\n"
                    + &format!(r#"{{"Metadata":{{}},"Keys":{b},"OldImage":{b}}}"#),
                vec![format!("1 {a}"), deleted.replace("1 the", "2 the")],
            ),
        ] {
            for format in [Format::Json, Format::Ndjson, Format::DynamodbJson] {
                assert_eq!(read(format, content.as_bytes()), Ok(expected.clone()), "{content}");
            }
        }
    }

    #[test]
    fn plain_json_stays_plain() {
        for (content, expected) in [
            (r#"{"pk":"a"}"#, vec![r#"1 {"pk":{"S":"a"}}"#]),
            (r#"{"Item":{"pk":"a"}}"#, vec![r#"1 {"Item":{"M":{"pk":{"S":"a"}}}}"#]),
            (
                r#"{"pk":"a","m":{"S":"x"}}"#,
                vec![r#"1 {"m":{"M":{"S":{"S":"x"}}},"pk":{"S":"a"}}"#],
            ),
            (
                "[{\"pk\":\"a\"},{\"pk\":\"b\"}]",
                vec![r#"1 {"pk":{"S":"a"}}"#, r#"1 {"pk":{"S":"b"}}"#],
            ),
            (
                "{\n\"pk\":\"a\"\n}\n{\n\"pk\":\"b\"}",
                vec![r#"1 {"pk":{"S":"a"}}"#, r#"4 {"pk":{"S":"b"}}"#],
            ),
            (r#"{"pk":"a","pk":"b"}"#, vec!["1 an object has two values for `pk`"]),
        ] {
            for format in [Format::Json, Format::Ndjson] {
                let read = read(format, content.as_bytes()).unwrap();
                assert_eq!(read, expected, "{content}");
            }
        }
        // An invalid first line does not prevent the reader from reading the following lines.
        let rows = read(Format::Ndjson, b"{\"pk\":\n{\"pk\":\"b\"}\n").unwrap();
        assert_eq!(rows.len(), 2, "{rows:?}");
        assert_eq!(rows[1], r#"2 {"pk":{"S":"b"}}"#);
        assert!(
            read(Format::Json, b"{\"pk\":\n{\"pk\":\"b\"}\n")
                .unwrap_err()
                .to_string()
                .contains("is not JSON")
        );
        assert!(read(Format::Json, b"").unwrap_err().to_string().contains("is empty"));
        assert_eq!(read(Format::Ndjson, b"\n  \n"), Ok(vec![]));
    }

    #[test]
    fn a_byte_order_mark_is_no_part_of_the_text() {
        for (format, content) in [
            (Format::Json, "\u{feff}[{\"pk\":\"a\"}]"),
            (Format::Ndjson, "\u{feff}{\"pk\":\"a\"}\n"),
            (Format::DynamodbJson, "\u{feff}{\"Item\":{\"pk\":{\"S\":\"a\"}}}\n"),
        ] {
            let expected = Ok(vec![r#"1 {"pk":{"S":"a"}}"#.to_owned()]);
            assert_eq!(read(format, content.as_bytes()), expected, "{content}");
        }
    }

    #[test]
    fn compressed_files_are_unpacked_and_foreign_ones_are_named() {
        use std::io::Write;
        let text = b"{\"pk\":\"a\"}\n";
        let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        gzip.write_all(text).unwrap();
        let gzip = gzip.finish().unwrap();
        // Concatenated gzip files count as one file.
        let joined = [gzip.as_slice(), &gzip].concat();
        let zstd = zstd::stream::encode_all(text.as_slice(), 1).unwrap();
        for (packed, count) in [(&gzip, 1), (&joined, 2), (&zstd, 1)] {
            assert_eq!(read(Format::Ndjson, packed).unwrap().len(), count);
        }
        let cut = &gzip[..gzip.len() - 4];
        assert!(read(Format::Ndjson, cut).unwrap_err().to_string().starts_with("cannot read `-`"));
        for (content, what) in [
            (&b"$ion_1_0 {Item:{pk:\"a\"}}"[..], "is Amazon Ion: export the table again"),
            (b"\xff\xfe{\0", "is UTF-16: convert it to UTF-8"),
            (b"PAR1\x15\0\0\0", "is Parquet"),
            (b"PK\x03\x04\0\0\0\0", "an Excel workbook"),
        ] {
            let refused = read(Format::Ndjson, content).unwrap_err().to_string();
            assert!(refused.contains(what), "{refused}");
        }
    }
}
