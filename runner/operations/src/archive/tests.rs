//! Tests of the subcommands on small Parquet files in the archive's layout, as tables of cases.

use std::fs::{self, File};
use std::path::Path;
use std::sync::Arc;

use arrow_array::builder::{ListBuilder, StringBuilder};
use arrow_array::{
    ArrayRef, Decimal128Array, Int64Array, RecordBatch, StringArray, TimestampMillisecondArray,
};
use clap::Parser;
use parquet::arrow::ArrowWriter;
use parquet::file::metadata::KeyValue;
use parquet::file::properties::WriterProperties;

use super::cell::rows_of;
use super::condition::are_met_by;
use super::reading::Reading;
use super::*;
use client::failure::Failure;

#[derive(Parser)]
struct CommandLine {
    #[command(flatten)]
    archive: ArchiveArguments,
    #[arg(long, global = true, value_enum, default_value_t)]
    output: client::output::Output,
}

/// Year, title, rating in tenths, second of the delete, number of the event.
type Film = (&'static str, &'static str, i128, i64, u32);

/// Films whose year does not fit into the column.
const MISFITS: [Film; 3] = [
    ("2013.5", "Half", 10, 50, 5),
    ("1000000000000000000000000000000", "Far", 10, 60, 6),
    ("unknown", "Lost", 10, 70, 7),
];

const FILMS: [Film; 4] = [
    ("2013", "Rush", 81, 10, 1),
    ("1999", "O'Brien", 75, 20, 2),
    ("2013", "Rush", 82, 30, 3),
    ("9007199254740993", "Big", 10, 40, 4),
];

fn write_part(folder: &Path, name: &str, films: &[Film], with_text_years: bool) {
    let directory = folder.join("bucket/archive/table=movies/dt=1970-01-01");
    fs::create_dir_all(&directory).unwrap();
    let texts = |of: &dyn Fn(&Film) -> String| -> ArrayRef {
        Arc::new(films.iter().map(|film| Some(of(film))).collect::<StringArray>())
    };
    let years: ArrayRef = if with_text_years {
        texts(&|film| film.0.to_owned())
    } else {
        Arc::new(films.iter().map(|film| film.0.parse::<i64>().ok()).collect::<Int64Array>())
    };
    let rating = films.iter().map(|film| Some(film.2)).collect::<Decimal128Array>();
    let times = films.iter().map(|film| Some(film.3 * 1000));
    let mut coercions = ListBuilder::new(StringBuilder::new());
    let year_type = |film: &Film| if film.0.parse::<model::Number>().is_ok() { "N" } else { "S" };
    for film in films {
        if !with_text_years && film.0.parse::<i64>().is_err() {
            let note = format!("year: {} does not fit bigint", year_type(film));
            coercions.values().append_value(note);
        }
        coercions.append(true);
    }
    let item = |film: &Film| {
        let (year, title, year_type) = (film.0, film.1, year_type(film));
        format!(r#"{{"title":{{"S":"{title}"}},"year":{{"{year_type}":"{year}"}}}}"#)
    };
    let columns: [(&str, ArrayRef); 8] = [
        ("title", texts(&|film| film.1.to_owned())),
        ("year", years),
        ("rating", Arc::new(rating.with_precision_and_scale(4, 1).unwrap())),
        ("_item", texts(&item)),
        ("_event_id", texts(&|film| format!("e{}", film.4))),
        ("_sequence_number", texts(&|film| format!("{:040}", film.4))),
        (
            "_deleted_at",
            Arc::new(times.collect::<TimestampMillisecondArray>().with_timezone("UTC")),
        ),
        ("_coercions", Arc::new(coercions.finish())),
    ];
    let batch = RecordBatch::try_from_iter(columns).unwrap();
    let paths =
        r#"{"title":{"path":"title","type":"string"},"year":{"path":"year","type":"bigint"}}"#;
    let paths = KeyValue::new("weir.columns".to_owned(), paths.to_owned());
    let properties = WriterProperties::builder().set_key_value_metadata(Some(vec![paths])).build();
    let file = File::create(directory.join(name)).unwrap();
    let mut writer = ArrowWriter::try_new(file, batch.schema(), Some(properties)).unwrap();
    writer.write(&batch).unwrap();
    writer.close().unwrap();
}

/// The rows have the second of the expiry, but no column for the TTL attribute.
#[test]
fn a_time_to_live_with_a_fraction_is_compared_as_it_is() {
    let folder = tempfile::tempdir().unwrap();
    let directory = folder.path().join("bucket/archive/table=movies/dt=1970-01-01");
    fs::create_dir_all(&directory).unwrap();
    let texts = |texts: [&str; 2]| -> ArrayRef { Arc::new(StringArray::from(texts.to_vec())) };
    let mut coercions = ListBuilder::new(StringBuilder::new());
    coercions.append(true);
    coercions.values().append_value("_ttl_raw: N does not fit bigint");
    coercions.append(true);
    let seconds = TimestampMillisecondArray::from(vec![90_000, 100_000]);
    let columns: [(&str, ArrayRef); 6] = [
        (
            "_item",
            texts([
                r#"{"n":{"N":"1.5"},"t":{"N":"90"}}"#,
                r#"{"n":{"N":"1.5"},"t":{"N":"100.75"}}"#,
            ]),
        ),
        ("_event_id", texts(["e1", "e2"])),
        ("_sequence_number", texts(["1", "2"])),
        ("_ttl_raw", Arc::new(Int64Array::from(vec![Some(90), None]))),
        ("_expires_at", Arc::new(seconds.with_timezone("UTC"))),
        ("_coercions", Arc::new(coercions.finish())),
    ];
    let batch = RecordBatch::try_from_iter(columns).unwrap();
    let file = File::create(directory.join("part-1.parquet")).unwrap();
    let mut writer = ArrowWriter::try_new(file, batch.schema(), None).unwrap();
    writer.write(&batch).unwrap();
    writer.close().unwrap();
    for (condition, expected) in [
        ("_ttl_raw > 0", "e1 e2"),
        ("_ttl_raw = 100.75", "e2"),
        ("_ttl_raw > 100.75", ""),
        ("_ttl_raw < 2", ""),
        ("_ttl_raw != 90", "e2"),
    ] {
        assert_eq!(found(folder.path(), &[condition]).as_deref(), Ok(expected), "{condition}");
    }
}

/// Writes a part with these items, each with the number of its event, and no other columns.
pub(super) fn write_items(folder: &Path, name: &str, items: &[(u32, String)]) {
    let directory = folder.join("bucket/archive/table=movies/dt=1970-01-01");
    fs::create_dir_all(&directory).unwrap();
    let texts = |of: &dyn Fn(&(u32, String)) -> String| -> ArrayRef {
        Arc::new(items.iter().map(|item| Some(of(item))).collect::<StringArray>())
    };
    let columns = [
        ("_item", texts(&|(_, item)| item.clone())),
        ("_event_id", texts(&|(number, _)| format!("e{number}"))),
        ("_sequence_number", texts(&|(number, _)| format!("{number:040}"))),
    ];
    let batch = RecordBatch::try_from_iter(columns).unwrap();
    let file = File::create(directory.join(name)).unwrap();
    let mut writer = ArrowWriter::try_new(file, batch.schema(), None).unwrap();
    writer.write(&batch).unwrap();
    writer.close().unwrap();
}

pub(super) fn archive() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    write_part(folder.path(), "part-1.parquet", &FILMS[..2], false);
    write_part(folder.path(), "part-2.parquet", &FILMS[2..], false);
    fs::create_dir_all(folder.path().join(".objects/table=movies/dt=1970-01-01")).unwrap();
    fs::write(folder.path().join(".objects/table=movies/dt=1970-01-01/x.parquet"), "?").unwrap();
    fs::write(folder.path().join("bucket/note.txt"), "?").unwrap();
    folder
}

/// Returns the output of a command, or its error.
fn weir(folder: &Path, arguments: &[&str]) -> Result<String> {
    let (written, result) = written(folder, arguments);
    result.map(|()| written)
}

/// Returns the output of a command, even if it fails.
fn written(folder: &Path, arguments: &[&str]) -> (String, Result<()>) {
    let folder = folder.to_str().unwrap();
    let words = ["archive"].iter().chain(arguments).copied().chain(["--folder", folder]);
    let line = match CommandLine::try_parse_from(words) {
        Ok(line) => line,
        Err(error) => return (String::new(), Err(Failure::fatal(error))),
    };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let mut out = Vec::new();
    let result = runtime.block_on(run(line.archive, line.output, &mut out));
    (String::from_utf8(out).unwrap(), result.map(drop))
}

/// Returns the event ids of the rows that match all conditions.
fn found(folder: &Path, conditions: &[&str]) -> Result<String> {
    let source = Source::Folder(folder.to_owned());
    let texts: Vec<String> = conditions.iter().map(|text| (*text).to_owned()).collect();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let (parts, conditions) = selected(&source, None, &texts).await?;
        let mut reading = Reading::of(&source, of_days(parts, &conditions, &mut Vec::new()));
        let mut ids = Vec::new();
        while let Some((_, batches)) = reading.next(None).await? {
            for batch in batches {
                for row in rows_of(&batch.unwrap())? {
                    if are_met_by(&conditions, &row)? {
                        ids.push(row.text("_event_id").to_owned());
                    }
                }
            }
        }
        Ok(ids.join(" "))
    })
}

/// Returns the event ids in NDJSON.
fn events(text: &str) -> String {
    let lines = text.lines().map(|line| {
        let row: serde_json::Value = serde_json::from_str(line).unwrap();
        row["_event_id"].as_str().unwrap().to_owned()
    });
    lines.collect::<Vec<_>>().join(" ")
}

#[test]
fn rows_are_found() {
    let folder = archive();
    let rush = r#"{"year":2013,"title":"Rush"}"#;
    for (arguments, expected) in [
        (vec!["get", "--key", rush], "e1 e3"),
        (vec!["get", "--key", r#"{"year":{"N":"2013.0"},"title":{"S":"Rush"}}"#], "e1 e3"),
        (vec!["get", "--key", rush, "--as-of", "30"], "e3"),
        (vec!["get", "--key", rush, "--as-of", "1970-01-01T00:00:29Z"], "e1"),
        // As floating-point values, both numbers would be equal.
        (vec!["get", "--key", r#"{"year":9007199254740993}"#], "e4"),
    ] {
        let found = weir(folder.path(), &arguments).unwrap();
        assert_eq!(events(&found), expected, "{arguments:?}");
    }
}

#[test]
fn conditions_select_rows() {
    let folder = archive();
    for (conditions, expected) in [
        (&[][..], "e1 e2 e3 e4"),
        (&["year > 9007199254740992"], "e4"),
        (&["year=2013", "rating > 8.1"], "e3"),
        (&["rating = 8.10"], "e1"),
        (&["title = O'Brien"], "e2"),
        (&["title != 'Rush'"], "e2 e4"),
        (&["_deleted_at <= 1970-01-01T00:00:20Z"], "e1 e2"),
        (&["year < 2013"], "e2"),
        (&["dt = 1970-01-01"], "e1 e2 e3 e4"),
        (&["dt >= '1970-01-01'", "title = Big"], "e4"),
        (&["dt != 1970-01-01"], ""),
        (&["dt > 1970-01-01", "year = 2013"], ""),
        (&["dt < 1970-01-02", "dt > 1969-12-31"], "e1 e2 e3 e4"),
    ] {
        assert_eq!(found(folder.path(), conditions).as_deref(), Ok(expected), "{conditions:?}");
    }
}

/// The column is NULL for a year that does not fit; the item still has the value.
#[test]
fn values_that_do_not_fit_their_column_are_compared_as_they_are() {
    let folder = archive();
    write_part(folder.path(), "part-3.parquet", &MISFITS, false);
    for (condition, expected) in [
        ("year = 2013.5", "e5"),
        ("year = 1E30", "e6"),
        ("year > 2013", "e4 e5 e6"),
        ("year >= 2013.5", "e4 e5 e6"),
        ("year < 2014", "e1 e2 e3 e5"),
        ("year <= 2013", "e1 e2 e3"),
        // A string differs from every number, and is neither less nor greater.
        ("year != 2013", "e2 e4 e5 e6 e7"),
        ("year != 2013.5", "e1 e2 e3 e4 e6 e7"),
        ("title = Lost", "e7"),
    ] {
        assert_eq!(found(folder.path(), &[condition]).as_deref(), Ok(expected), "{condition}");
    }
}

#[test]
fn rows_keep_every_digit() {
    let folder = archive();
    let found = weir(folder.path(), &["get", "--key", r#"{"title":"Big"}"#]).unwrap();
    assert_eq!(
        found,
        format!(
            "{{\"title\":\"Big\",\"year\":9007199254740993,\"rating\":1,\"_item\":{{\"title\":{{\"S\":\"Big\"}},\"year\":{{\"N\":\"9007199254740993\"}}}},\"_event_id\":\"e4\",\"_sequence_number\":\"{:040}\",\"_deleted_at\":\"1970-01-01T00:00:40Z\",\"_coercions\":[]}}\n",
            4
        )
    );
}

#[test]
fn mistakes_are_named() {
    let folder = archive();
    let rush = r#"{"year":2013,"title":"Rush"}"#;
    for (arguments, expected) in [
        (vec!["get", "films", "--key", rush], "no table `films`; tables are movies"),
        (vec!["get", "--key", r#"{"year":1}"#], "no version of this key"),
        (vec!["get", "--key", r#"{"year":1}"#, "--as-of", "9"], "no version of this key"),
        (
            vec!["get", "--key", r#"{"title":"Rush"}"#, "--as-of", "9"],
            "deleted at or before 1970-01-01T00:00:09Z: the first version was deleted at 1970-01-01T00:00:10Z",
        ),
        (
            vec!["get", "--key", r#"{"name":"Rush"}"#],
            "this key; archived items of this table have no `name`",
        ),
        (
            vec!["get", "--key", r#"{"year":"2013","title":"Rush"}"#],
            "`year` is a number in archived",
        ),
        (
            vec!["erase", "--table", "movies", "--equals", r#"{"title":"Rush"}"#],
            "remove --folder and --s3-endpoint",
        ),
        (
            vec!["erase", "--table", "movies"],
            "select rows with --equals, for example '{\"title\":\"Rush\"}'",
        ),
        (vec!["compact"], "on AWS invoke `archive-maintenance`"),
        (vec!["get", "--key", "2013"], "not a JSON object"),
        (vec!["get", "--key", r#"{"year":true}"#], "one or two attributes"),
        (vec!["get", "--key", "{}"], "one or two attributes"),
        (vec!["get", "--key", r#"{"year":1}"#, "--as-of", "noon"], "`noon` is not a time"),
        (vec!["ddl", "--engine", "athena", "--key-columns", "id"], "unknown column `id`"),
    ] {
        let error = weir(folder.path(), &arguments).unwrap_err().to_string();
        assert!(error.contains(expected), "{arguments:?}: {error}");
    }
    for (condition, expected) in [
        ("year", "write COLUMN OPERATOR VALUE"),
        ("year ! 3", "write COLUMN OPERATOR VALUE"),
        ("yeer = 3", "unknown column `yeer`; columns are title, year"),
        ("year = Rush", "`Rush` is not a number"),
        ("dt = 21.11.2026", "`21.11.2026` is not a day: write, for example,"),
        ("dt >= 2026-11-31", "`2026-11-31` is not a day"),
        ("_coercions = 1", "which cannot be compared"),
    ] {
        let error = found(folder.path(), &[condition]).unwrap_err().to_string();
        assert!(error.contains(expected), "{condition}: {error}");
    }
    for day in ["yesterday", "2026-11-31"] {
        let error = of_day(Vec::new(), day, &mut Vec::new()).unwrap_err().to_string();
        assert!(
            error.contains(&format!("`{day}` is not a day: write, for example, 2026-11-21")),
            "{error}"
        );
    }
    fs::write(folder.path().join("bucket/archive/table=movies/dt=1970-01-01/z.parquet"), "?")
        .unwrap();
    let error = weir(folder.path(), &["get", "--key", rush]).unwrap_err().to_string();
    assert!(error.contains("cannot read part `") && error.contains("z.parquet"), "{error}");
}

/// Readable parts are listed, and then the command fails.
#[test]
fn a_damaged_part_does_not_end_the_list() {
    let folder = archive();
    let days = folder.path().join("bucket/archive/table=movies");
    fs::create_dir_all(days.join("dt=1970-01-02")).unwrap();
    for name in ["dt=1970-01-01/a.parquet", "dt=1970-01-02/b.parquet"] {
        fs::write(days.join(name), "?").unwrap();
    }
    let (written, result) = written(folder.path(), &["ls", "--output", "json"]);
    let error = result.unwrap_err().to_string();
    assert!(error.starts_with("2 parts listed above cannot be read"), "{error}");
    let json: serde_json::Value = serde_json::from_str(&written).unwrap();
    let counts = |day: usize| {
        ["parts", "damaged_parts", "rows"].map(|name| json["days"][day][name].as_u64().unwrap())
    };
    assert_eq!([counts(0), counts(1)], [[3, 1, 4], [1, 1, 0]]);
    let (table, result) = self::written(folder.path(), &["ls"]);
    assert!(result.is_err() && table.lines().count() == 3, "{table}");
    // If no part can be read, the store has probably failed.
    for number in 0..100 {
        fs::write(days.join(format!("dt=1970-01-02/c{number}.parquet")), "?").unwrap();
    }
    let (list, result) = self::written(folder.path(), &["ls"]);
    assert!(
        list.is_empty()
            && result.unwrap_err().to_string().starts_with("more than 100 parts cannot be")
    );
}

#[test]
fn a_table_is_named_as_a_word_or_with_a_flag() {
    let folder = archive();
    let key = ["--key", r#"{"title":"Big","year":9007199254740993}"#];
    let found = |table: &[&str]| weir(folder.path(), &[&["get"], &key[..], table].concat());
    let expected = found(&[]).unwrap();
    assert!(!expected.is_empty());
    for table in [&["movies"][..], &["--table", "movies"]] {
        assert_eq!(found(table), Ok(expected.clone()), "{table:?}");
    }
    let both = found(&["movies", "--table", "films"]).unwrap_err().to_string();
    assert!(both.contains("cannot be used with"), "{both}");
    assert!(found(&["films"]).unwrap_err().to_string().contains("tables are movies"));
    for verb in [
        &["ddl", "--engine", "duckdb"][..],
        &["check"],
        &["restore", "--all"],
        &["compact"],
        &["erase", "--begins-with", "title=R"],
    ] {
        for table in [&["movies"][..], &["--table", "movies"]] {
            let words = [&["archive"][..], verb, table].concat();
            assert!(CommandLine::try_parse_from(&words).is_ok(), "{words:?}");
        }
    }
    let none = CommandLine::try_parse_from(["archive", "erase", "--begins-with", "a=b"]);
    let none = none.err().unwrap().to_string();
    assert!(
        none.contains("required arguments were not provided") && none.contains("TABLE"),
        "{none}"
    );
}

/// The archive has more parts than are read concurrently. They are returned in order.
#[test]
fn parts_that_are_read_ahead_come_in_their_order() {
    let folder = tempfile::tempdir().unwrap();
    for number in 0..50 {
        let item = (number, r#"{"title":{"S":"A"},"year":{"N":"1"}}"#.to_owned());
        write_items(folder.path(), &format!("part-{number:02}.parquet"), &[item]);
    }
    let expected: Vec<String> = (0..50).map(|number| format!("e{number}")).collect();
    assert_eq!(found(folder.path(), &[]), Ok(expected.join(" ")));
    // One of the parts that were read ahead was moved into another object before its turn.
    let source = Source::Folder(folder.path().to_owned());
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let listed = source.parts(None, None).await.unwrap();
        fs::remove_file(&listed[5].name).unwrap();
        let item = (5, r#"{"title":{"S":"A"},"year":{"N":"1"}}"#.to_owned());
        write_items(folder.path(), "compact-1.parquet", &[item]);
        let mut reading = Reading::of(&source, listed);
        let mut names = Vec::new();
        while let Some((part, _)) = reading.next(None).await.unwrap() {
            names.push(part.name.rsplit('/').next().unwrap().to_owned());
        }
        let before = ["00", "01", "02", "03", "04"].map(|number| format!("part-{number}.parquet"));
        assert_eq!((names[..5].to_vec(), &*names[5]), (before.to_vec(), "compact-1.parquet"));
        assert_eq!(names.len(), 50, "each once: {names:?}");
    });
}

#[test]
fn the_list_counts_parts_and_rows() {
    let folder = archive();
    let json = weir(folder.path(), &["ls", "--output", "json"]).unwrap();
    let json: serde_json::Value = serde_json::from_str(&json).unwrap();
    let day = &json["days"][0];
    let part = "bucket/archive/table=movies/dt=1970-01-01/part-";
    let bytes =
        |number| fs::metadata(folder.path().join(format!("{part}{number}.parquet"))).unwrap().len();
    assert_eq!(
        (&day["table"], &day["dt"], &day["parts"], &day["rows"], &day["bytes"]),
        (
            &"movies".into(),
            &"1970-01-01".into(),
            &2.into(),
            &4.into(),
            &(bytes(1) + bytes(2)).into()
        )
    );
    assert_eq!(
        [&day["first_deleted_at"], &day["last_deleted_at"]],
        ["1970-01-01T00:00:10Z", "1970-01-01T00:00:40Z"]
    );
    let lines = weir(folder.path(), &["ls", "--output", "ndjson"]).unwrap();
    assert_eq!(serde_json::from_str::<serde_json::Value>(&lines).unwrap(), *day);
    let table = weir(folder.path(), &["ls"]).unwrap();
    assert!(table.starts_with("TABLE ") && table.lines().count() == 2, "{table}");
}

#[test]
fn ddl_is_made_of_what_the_parts_have() {
    let folder = archive();
    let at = ["--location", "s3://b/archive/", "--key-columns", "year,title"];
    let ddl = |engine: &str| {
        weir(folder.path(), &[&["ddl", "--engine", engine], &at[..]].concat()).unwrap()
    };
    for (engine, expected) in [
        ("athena", "  `year` bigint,\n  `rating` decimal(4,1),\n  `_item` string,\n"),
        ("athena", "LOCATION 's3://b/archive/table=movies/'"),
        ("athena", "'projection.dt.range' = '1970-01-01,NOW'"),
        ("athena", "'storage.location.template' = 's3://b/archive/table=movies/dt=${dt}/'"),
        ("athena", "PARTITION BY dt, _event_id"),
        (
            "athena",
            "PARTITION BY \"year\", CASE WHEN \"year\" IS NULL THEN json_format(json_extract(_item, '$[\"year\"]')) END, \"title\", CASE WHEN \"title\" IS NULL THEN json_format(json_extract(_item, '$[\"title\"]')) END\n",
        ),
        ("duckdb", "read_parquet('s3://b/archive/table=movies/**/*.parquet'"),
        ("duckdb", "CREATE OR REPLACE VIEW movies_archive_latest AS"),
        ("glue", "\"Type\": \"array<string>\""),
    ] {
        let text = ddl(engine);
        assert!(text.contains(expected), "{engine} has not {expected}:\n{text}");
    }
    assert!(serde_json::from_str::<serde_json::Value>(&ddl("glue")).is_ok());

    write_part(folder.path(), "part-3.parquet", &FILMS[..1], true);
    let text = ddl("athena");
    assert!(text.starts_with("-- column left out (`_item` has its values): column `year` has several types: string in 1 part, first in "), "{text}");
    assert!(text.contains("bigint in 2 parts") && !text.contains("`year` bigint,"), "{text}");
    assert!(
        text.contains("PARTITION BY json_format(json_extract(_item, '$[\"year\"]')), \"title\""),
        "{text}"
    );
    let error = found(folder.path(), &["year = 1"]).unwrap_err().to_string();
    assert!(error.contains("several types"), "{error}");
}

/// Compaction merges two parts after they were listed and one of them was read.
#[test]
fn parts_that_compaction_removes_meanwhile_are_read_where_their_rows_went() {
    let folder = archive();
    let source = Source::Folder(folder.path().to_owned());
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let listed = source.parts(None, None).await.unwrap();
        let mut reading = Reading::of(&source, listed.clone());
        let (first, _) = reading.next(None).await.unwrap().unwrap();
        assert_eq!(first, listed[0]);
        for part in &listed {
            fs::remove_file(&part.name).unwrap();
        }
        write_part(folder.path(), "compact-1.parquet", &FILMS, false);
        let (second, batches) = reading.next(None).await.unwrap().unwrap();
        assert!(second.is_compacted(), "{second:?}");
        assert_eq!(batches.map(|batch| batch.unwrap().num_rows()).sum::<usize>(), 4);
        assert!(reading.next(None).await.unwrap().is_none());

        // A step that needs all parts starts again after a change.
        let lists = std::cell::Cell::new(0);
        let list = async || {
            lists.set(lists.get() + 1);
            if lists.get() == 1 { Ok(listed.clone()) } else { source.parts(None, None).await }
        };
        let union =
            while_parts_change(list, async |parts: &[Part]| Union::read(&source, parts).await);
        assert!(union.await.unwrap().column("year").is_some());

        // A part that exists and cannot be read is still an error.
        fs::write(&second.name, "?").unwrap();
        let listed = source.parts(None, None).await.unwrap();
        let mut reading = Reading::of(&source, listed.clone());
        assert!(reading.next(None).await.is_err());
        let list = async || source.parts(None, None).await;
        let union =
            while_parts_change(list, async |parts: &[Part]| Union::read(&source, parts).await);
        assert!(union.await.is_err());
    });
}

#[test]
fn a_key_is_that_of_its_table() {
    use model::KeyAttributeType as Type;
    let known = [("year".to_owned(), Type::N), ("title".to_owned(), Type::S)];
    for (key, problem) in [
        (r#"{"year":2013,"title":"Rush"}"#, ""),
        (r#"{"title":{"S":"Rush"},"year":{"N":"2013"}}"#, ""),
        (r#"{"year":2013}"#, "--key: `title` is missing; the key is year, title"),
        (r#"{"name":"Rush"}"#, "--key: `name` is not a key attribute; the key is year, title"),
        (
            r#"{"year":"2013","title":"Rush"}"#,
            "--key: `year` must be a number; the key is year, title",
        ),
        (r#"{"year":2013,"title":7}"#, "--key: `title` must be a string; the key is year, title"),
    ] {
        let checked = versions::check_key(&item_key::parse(key).unwrap(), &known);
        assert_eq!(
            checked.err().map(|failure| failure.to_string()).unwrap_or_default(),
            problem,
            "{key}"
        );
    }
}

/// A flag overrides an environment variable, and clap does not read the variables.
#[test]
fn a_place_is_named_by_flags_alone() {
    let command = <CommandLine as clap::CommandFactory>::command();
    for name in ["s3_endpoint", "bucket", "folder"] {
        let argument = command.get_arguments().find(|argument| argument.get_id() == name).unwrap();
        assert_eq!(argument.get_env(), None, "{name}");
    }
    let both = ["archive", "ls", "--folder", "a", "--bucket", "b"];
    assert!(CommandLine::try_parse_from(both).is_err());
}
