//! `weir load`: puts the lines of a file into a table, or counts them into sharded counters.
//!
//! The command works on any DynamoDB endpoint. A line that cannot be loaded is put aside: the load
//! writes it to a file, with its line number and the reason. The exit code shows that lines were
//! put aside.

mod arguments;
mod counting;
#[cfg(test)]
mod counting_tests;
mod csv_file;
mod export_folder;
mod foreign;
mod input;
mod json_rows;
mod lanes;
mod mark;
mod put_aside;
mod reading;
mod record;
mod row;
mod source;
mod typing;
mod unused_options;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use aws_sdk_dynamodb::Client;
use indicatif::{ProgressBar, ProgressStyle};
use model::{AttributeType, KeyAttributeType};
use serde_json::json;

use client::endpoint;
use client::exit::Exit;
use client::failure::{Context, Failure, Result, fatal, refused};
use client::output::{Output, counted, say, show};
use client::table_description::key_attributes;
use counting::Counting;
use csv_file::CsvForm;
use input::Input;
use operations::counters::slots_to_count_in;
use put_aside::PutAside;
use record::{CountSettings, Destination, Record};
use source::Source;
use template::Stack;

pub use arguments::{Format, LoadArguments};

/// The counts of a load.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LoadReport {
    /// Number of lines that are in the table.
    pub loaded: u64,
    /// Number of lines that an earlier run of the same count had counted.
    pub counted_before: u64,
    /// Number of lines that were put aside.
    pub put_aside: u64,
    /// The file of the lines that were put aside, if there are any.
    pub put_aside_file: Option<PathBuf>,
}

impl LoadReport {
    fn text(&self, arguments: &LoadArguments, output: Output) -> String {
        let Self { loaded, counted_before, put_aside, put_aside_file } = self;
        let table = &arguments.table;
        if output == Output::Table {
            let before = match counted_before {
                0 => String::new(),
                lines => format!(" {lines} counted by an earlier load,"),
            };
            return format!("{loaded} loaded into {table},{before} {put_aside} put aside\n");
        }
        let path = |path: &Path| path.display().to_string();
        let reasons = put_aside_file.as_deref().map(path);
        let report = json!({
            "schema": "weir.load/v1", "file": path(&arguments.file), "table": table,
            "loaded": loaded, "counted_before": counted_before, "put_aside": put_aside, "put_aside_file": reasons,
        });
        format!("{report}\n")
    }
}

/// Loads a file into the store that the flags name, and reports the counts.
///
/// # Errors
/// When nothing can be loaded: the store, the file or the table is missing, or a flag is wrong.
pub async fn run(
    mut arguments: LoadArguments,
    output: Output,
    stack: impl Fn() -> Result<Option<Stack>>,
) -> Result<Exit> {
    let endpoint = endpoint::find(arguments.endpoint.as_deref())?;
    arguments.endpoint = Some(endpoint.clone());
    if arguments.count_into.is_some() {
        let slots = slots_to_count_in(&stack, &arguments.table, arguments.slots)?;
        arguments.slots = Some(slots);
    }
    let client = endpoint::client(&endpoint);
    let now = endpoint::store_seconds(&endpoint, &client).await;
    let flags = arguments.clone();
    let report = match load(arguments, client, now).await {
        Err(Failure::Refused(why)) => return Err(refused!("refused: {why}")),
        report => report?,
    };
    show(&report.text(&flags, output));
    if report.counted_before > 0 {
        say(&format!(
            "{} counted by an earlier load and skipped; use --load-name NAME to count every line again",
            counted(report.counted_before, "line was", "lines were")
        ));
    }
    if report.put_aside == 0 {
        return Ok(Exit::Done);
    }
    let aside = report.put_aside_file.as_deref().unwrap_or(&flags.put_aside).display();
    say(&format!("error: rejected lines were put aside, with their reasons, in {aside}"));
    if report.loaded == 0 && report.counted_before == 0 {
        say("error: nothing was loaded: check that --format, --types and the columns fit the file");
        return Ok(Exit::Failed);
    }
    Ok(Exit::Differences)
}

/// Loads a file.
///
/// # Errors
/// When nothing can be loaded: the file or the table is missing, or a flag is wrong. When lines would
/// be counted twice.
pub async fn load(
    arguments: LoadArguments,
    client: Client,
    now_seconds: i64,
) -> Result<LoadReport> {
    let format = arguments.format.map_or_else(|| Format::of_file(&arguments.file), Ok)?;
    let keys = key_attributes(&client, &arguments.table).await?;
    unused_options::report(&arguments, format, &client).await;
    // The key of an item must be in the file. The key of a slot is computed from other columns.
    let key_columns = if arguments.count_into.is_some() { &[] } else { keys.as_slice() };
    let types = declared_types(&arguments.types, key_columns)?;
    let counting = Counting::from_arguments(&arguments, &keys)?;
    let input = Input::new(&arguments.file, std::io::stdin())?;
    let form = CsvForm { null: arguments.null.as_deref(), separator: arguments.separator };
    let source = Source::open(&input, format, &types, form)?;
    if let (Some(counting), Some(columns)) = (&counting, source.columns()) {
        counting.check_columns(&arguments.file, columns)?;
    }
    let run = match &counting {
        Some(counting) => Some(CountingRun::begin(&arguments, &input, format, counting)?),
        None => None,
    };
    let progress = progress_bar(source.bytes());
    let mut aside = PutAside::new(&arguments.file, &arguments.put_aside);
    let table = &arguments.table;
    let report = match counting.as_ref().zip(run.as_ref()) {
        Some((counting, run)) => {
            let slots = lanes::Slots::new(&client, table, counting, &run.record.mark());
            lanes::count(slots, source, counting, &progress, &mut aside).await
        }
        None => {
            let time = arguments.expires_in.zip(arguments.ttl_attribute.clone());
            let expires = time.map(|(seconds, attribute)| (attribute, now_seconds + seconds));
            lanes::put(&client, table, source, &keys, expires, &progress, &mut aside).await
        }
    };
    progress.finish_and_clear();
    let lanes::Loaded { loaded, counted_before } = report?;
    let (put_aside, put_aside_file) = aside.finish()?;
    if let Some(run) = run {
        run.complete(&input)?;
    }
    Ok(LoadReport { loaded, counted_before, put_aside, put_aside_file })
}

/// A counting load, from the check of earlier loads to its completion.
struct CountingRun {
    record: Record,
    folder: PathBuf,
}

impl CountingRun {
    /// Records that the load of the file has begun.
    ///
    /// # Errors
    /// When this run would count lines of an earlier run again, or the record cannot be written.
    fn begin(
        arguments: &LoadArguments,
        input: &Input,
        format: Format,
        counting: &Counting,
    ) -> Result<Self> {
        let into = Destination {
            endpoint: arguments.endpoint.clone().unwrap_or_default(),
            table: arguments.table.clone(),
            count_attribute: arguments.count_attribute.clone(),
            name: arguments.load_name.clone(),
        };
        let how = CountSettings {
            counter: arguments.count_into.clone().unwrap_or_default(),
            voter: arguments.voter.clone().unwrap_or_default(),
            amount: arguments.amount.clone(),
            slots: counting.slots(),
            format: format!("{format:?}"),
            separator: arguments.separator.map(char::from),
        };
        let file = std::path::absolute(&arguments.file).unwrap_or(arguments.file.clone());
        let file = match input {
            Input::Named(_) => file.display().to_string(),
            // A pipe's name does not identify its content, so it counts as standard input.
            Input::Kept { .. } => input::STANDARD_INPUT.to_owned(),
        };
        let record = Record::new(into, file, content(input)?, how);
        let folder = arguments.records.clone();
        if let Some(earlier) = record.earlier(&folder)? {
            record.check_after(&earlier)?;
        }
        record.keep(&folder)?;
        Ok(Self { record, folder })
    }

    /// Records that every line was counted or put aside.
    ///
    /// # Errors
    /// When the file has changed since the load began, or the record cannot be written.
    fn complete(mut self, input: &Input) -> Result<()> {
        if content(input)? != self.record.content {
            return Err(fatal!(
                "`{}` was changed while it was counted, so it is unknown which of its lines are counted",
                input.name()
            ));
        }
        self.record.is_complete = true;
        self.record.keep(&self.folder)
    }
}

fn content(input: &Input) -> Result<String> {
    let read = mark::content_of(input.open()?);
    read.context(|| format!("cannot read `{}`", input.name()))
}

fn declared_types(
    flags: &[String],
    keys: &[(String, KeyAttributeType)],
) -> Result<BTreeMap<String, AttributeType>> {
    let mut types: BTreeMap<_, _> =
        keys.iter().map(|(name, key)| (name.clone(), key.attribute_type())).collect();
    for flag in flags {
        let (name, descriptor) = flag.rsplit_once(':').unwrap_or((flag, ""));
        let known = AttributeType::from_descriptor(descriptor).filter(|attribute_type| {
            matches!(
                attribute_type,
                AttributeType::S | AttributeType::N | AttributeType::B | AttributeType::Bool
            )
        });
        let attribute_type = known.ok_or_else(|| {
            fatal!("--types: `{flag}` is not NAME:TYPE with TYPE one of S, N, B, BOOL; for example orderID:N")
        })?;
        types.insert(name.to_owned(), attribute_type);
    }
    Ok(types)
}

fn progress_bar(bytes: u64) -> ProgressBar {
    // indicatif hides the bar if standard error is not a terminal.
    let bar = ProgressBar::new(bytes);
    if let Ok(style) =
        ProgressStyle::with_template("{bar:30} {percent}%  {bytes}/{total_bytes}  {msg}  ETA {eta}")
    {
        bar.set_style(style);
    }
    bar
}

#[cfg(test)]
mod tests {
    use clap::{Args as _, FromArgMatches as _};

    use super::*;

    #[test]
    fn a_program_reads_what_became_of_the_lines() {
        let command = LoadArguments::augment_args(clap::Command::new("load"));
        let flags = ["load", "--table", "movies", "--format", "ndjson", "m.json"];
        let matches = command.try_get_matches_from(flags).unwrap();
        let arguments = LoadArguments::from_arg_matches(&matches).unwrap();
        let file = Some(PathBuf::from(".weir/put-aside.2.ndjson"));
        let some = LoadReport { loaded: 2, counted_before: 0, put_aside: 3, put_aside_file: file };
        let text = some.text(&arguments, Output::Table);
        assert_eq!(text, "2 loaded into movies, 3 put aside\n");
        let all = LoadReport { loaded: 5, counted_before: 0, put_aside: 0, put_aside_file: None };
        for (report, reasons) in [(some, json!(".weir/put-aside.2.ndjson")), (all, json!(null))] {
            let LoadReport { loaded, put_aside, .. } = report;
            let expected = json!({
                "schema": "weir.load/v1", "file": "m.json", "table": "movies",
                "loaded": loaded, "counted_before": 0, "put_aside": put_aside,
                "put_aside_file": reasons,
            });
            for output in [Output::Json, Output::Ndjson] {
                let text = report.text(&arguments, output);
                assert!(text.ends_with("}\n") && text.lines().count() == 1, "{text}");
                assert_eq!(serde_json::from_str::<serde_json::Value>(&text).unwrap(), expected);
            }
        }
    }
}
