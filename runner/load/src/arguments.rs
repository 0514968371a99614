//! The arguments of `weir load`, and the format of its file.

use std::path::{Path, PathBuf};

use clap::{Args, ValueEnum};

use super::csv_file::parse_separator;
use client::failure::{Result, fatal};

/// The format of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// Values with a header line, separated by commas, semicolons, tabs or bars
    Csv,
    /// One JSON object per line
    Ndjson,
    /// One JSON array of objects
    Json,
    /// Items in DynamoDB JSON: lines, an array, an export, output of `scan`, or input of
    /// `batch-write-item`
    DynamodbJson,
}

impl Format {
    /// Returns the format for a file name.
    ///
    /// # Errors
    /// When the extension is unknown.
    pub(super) fn of_file(file: &Path) -> Result<Self> {
        // A folder contains an export of a table.
        if file.is_dir() {
            return Ok(Self::DynamodbJson);
        }
        let ending = |name: &Path| name.extension().unwrap_or_default().to_ascii_lowercase();
        let packed = ending(file);
        let ending = match packed.to_str() {
            Some("gz" | "zst" | "zstd") => ending(Path::new(file.file_stem().unwrap_or_default())),
            _ => packed,
        };
        match ending.to_str() {
            Some("csv" | "tsv") => Ok(Self::Csv),
            Some("json") => Ok(Self::Json),
            Some("ndjson" | "jsonl") => Ok(Self::Ndjson),
            _ => Err(fatal!(
                "`{}`: unknown format: add --format csv, ndjson, json or dynamodb-json",
                file.display()
            )),
        }
    }
}

/// Arguments of `weir load`.
#[derive(Clone, Debug, Args)]
#[command(after_help = "Examples:\n  \
    weir load --table movies --format json movies.json --expires-in 3600 --ttl-attribute expires_at\n  \
    weir load --table orders --format csv orders.csv --types orderID:N --null NULL\n  \
    weir load --table orders orders.csv.gz --null NULL\n  \
    weir load --table orders orders.txt --format csv --separator '^'\n  \
    aws dynamodb scan --table-name orders | weir load --table orders --format dynamodb-json -\n  \
    weir load --table orders AWSDynamoDB/01693685827463-2d8752fd   # an export to S3\n  \
    weir load --table votes --format csv points.csv \\\n    \
    --count-into '{year}#{round}#{kind}#{contestant}' --voter voter --amount points --slots 20")]
pub struct LoadArguments {
    /// The file, plain or compressed with gzip or zstd; the folder of an export to S3; or `-` for
    /// standard input, which needs --format
    pub file: PathBuf,
    /// The table to write to
    #[arg(long)]
    pub table: String,
    /// Format of the file [default: by extension: .csv, .tsv, .json, .ndjson or .jsonl, optionally
    /// with .gz or .zst]
    #[arg(long, value_enum)]
    pub format: Option<Format>,
    /// The endpoint of the store [default: AWS_ENDPOINT_URL_DYNAMODB, or the running `weir up`]
    #[arg(long, value_name = "URL")]
    pub endpoint: Option<String>,
    /// Types of CSV columns: NAME:TYPE,… with S, N, BOOL or B (base64); others are inferred
    #[arg(long, value_delimiter = ',', value_name = "NAME:TYPE")]
    pub types: Vec<String>,
    /// The CSV text of a missing value; an empty value is always missing
    #[arg(long, value_name = "TEXT")]
    pub null: Option<String>,
    /// The separator of CSV columns: one character, or `tab` [default: from the header, one of , ; tab |]
    #[arg(long, value_name = "CHARACTER", value_parser = parse_separator)]
    pub separator: Option<u8>,
    /// Time to live of every item in seconds from now (store time)
    #[arg(long, value_name = "SECONDS", requires = "ttl_attribute")]
    pub expires_in: Option<i64>,
    /// The attribute for the time to live
    #[arg(long, value_name = "NAME", requires = "expires_in")]
    pub ttl_attribute: Option<String>,
    /// Count lines instead of putting items; the template of a counter's name, with {column} placeholders
    #[arg(long, value_name = "TEMPLATE", requires = "voter", conflicts_with = "expires_in")]
    pub count_into: Option<String>,
    /// The column whose hash chooses the slot
    #[arg(long, value_name = "COLUMN", requires = "count_into")]
    pub voter: Option<String>,
    /// The column with the amount to count [default: 1 per line]
    #[arg(long, value_name = "COLUMN", requires = "count_into")]
    pub amount: Option<String>,
    /// Number of slots of each counter [default: SLOT_COUNT of the template's function, else 20]
    #[arg(long, requires = "count_into", value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub slots: Option<u32>,
    /// The attribute that holds a slot's count
    #[arg(long, value_name = "NAME", default_value = "votes", requires = "count_into")]
    pub count_attribute: String,
    /// Count every line of an already counted file once more, as a load with this name
    #[arg(
        long,
        value_name = "NAME",
        default_value = "",
        hide_default_value = true,
        requires = "count_into"
    )]
    pub load_name: String,
    /// Folder of the records of files that were counted
    #[arg(long, value_name = "DIRECTORY", default_value = ".weir/loads", requires = "count_into")]
    pub records: PathBuf,
    /// File for lines that cannot be loaded; the file of an earlier load is renamed
    #[arg(long, value_name = "FILE", default_value = ".weir/put-aside.ndjson")]
    pub put_aside: PathBuf,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_determines_a_files_format() {
        for (name, expected) in [
            ("orders.csv", Some(Format::Csv)),
            ("a.b/MOVIES.JSON", Some(Format::Json)),
            ("orders.ndjson", Some(Format::Ndjson)),
            ("orders.jsonl", Some(Format::Ndjson)),
            ("orders.csv.gz", Some(Format::Csv)),
            ("orders.JSONL.zst", Some(Format::Ndjson)),
            ("orders.tsv", Some(Format::Csv)),
            ("orders.gz", None),
            ("/", Some(Format::DynamodbJson)),
            ("-", None),
        ] {
            assert_eq!(Format::of_file(Path::new(name)).ok(), expected, "{name}");
        }
        let refused = Format::of_file(Path::new("orders")).unwrap_err().to_string();
        assert!(refused.contains("add --format csv"), "{refused}");
    }
}
