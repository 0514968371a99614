//! Writes data to standard output: a table for people, JSON for programs.
//!
//! Output has no colours.

use std::io::{self, Write};

use clap::ValueEnum;
use serde_json::Value;
pub use template::diagnostic::counted;

/// The format of data on standard output.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum Output {
    /// A table for people
    #[default]
    #[value(alias = "text")]
    Table,
    /// One JSON document
    Json,
    /// One JSON object per line
    Ndjson,
}

/// Writes text to standard output. If the reader has closed the pipe (`| head`), the process exits,
/// as other tools do.
pub fn show(text: &str) {
    let mut out = io::stdout().lock();
    let written = out.write_all(text.as_bytes()).and_then(|()| out.flush());
    if written.is_err() {
        std::process::exit(0);
    }
}

/// Writes a message for people to standard error.
#[expect(clippy::print_stderr, reason = "this is the one place that speaks to a person")]
pub fn say(text: &str) {
    eprintln!("{text}");
}

/// Warns that an option has no effect. A command calls this function before any other work.
pub fn no_effect(option: &str, why: &str) {
    say(&format!("warning: {option} has no effect: {why}"));
}

/// Quotes a string as one word of a shell command.
#[must_use]
pub fn shell_word(text: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "/.:_-+,=@%".contains(c);
    if !text.is_empty() && text.chars().all(is_plain) {
        return text.to_owned();
    }
    format!("'{}'", text.replace('\'', r"'\''"))
}

/// Suggests next commands, on standard error.
pub fn next(commands: &[(&str, &str)]) {
    // Cargo sets this variable for `cargo run`. In that case `weir` is probably not on the path.
    let by_cargo = std::env::var_os("CARGO").is_some();
    for (index, (command, why)) in commands.iter().enumerate() {
        let head = if index == 0 { "Next" } else { "    " };
        let command = as_started(command, by_cargo);
        say(&format!("{head}  {command:<45}  {why}"));
    }
}

/// Returns a command of `weir` as the user has to type it: with `cargo run` if this process was started
/// by `cargo run`.
fn as_started(command: &str, by_cargo: bool) -> String {
    match command.strip_prefix("weir ") {
        Some(rest) if by_cargo => format!("cargo run -- {rest}"),
        _ => command.to_owned(),
    }
}

/// Writes a table with these headings; as JSON, one object per row with the headings as member
/// names.
pub fn rows(output: Output, headings: &[&str], rows: &[Vec<Value>]) {
    let objects = rows.iter().map(|row| {
        let members = headings.iter().zip(row);
        Value::Object(
            members.map(|(name, value)| ((*name).replace(' ', "_"), value.clone())).collect(),
        )
    });
    match output {
        Output::Table => show(&table(headings, rows)),
        Output::Json => show(&format!("{}\n", Value::Array(objects.collect()))),
        Output::Ndjson => objects.for_each(|object| show(&format!("{object}\n"))),
    }
}

fn table(headings: &[&str], rows: &[Vec<Value>]) -> String {
    let heading_cells: Vec<String> = headings.iter().map(|text| (*text).to_owned()).collect();
    let cells: Vec<Vec<String>> = std::iter::once(heading_cells)
        .chain(rows.iter().map(|row| row.iter().map(cell).collect()))
        .collect();
    let widths: Vec<usize> = (0..headings.len())
        .map(|column| {
            let lengths = cells.iter().filter_map(|row| row.get(column));
            lengths.map(|cell| cell.chars().count()).max().unwrap_or(0)
        })
        .collect();
    let mut text = String::new();
    for row in &cells {
        let padded: Vec<String> =
            row.iter().zip(&widths).map(|(cell, width)| format!("{cell:<width$}")).collect();
        text.push_str(padded.join("  ").trim_end());
        text.push('\n');
    }
    text
}

fn cell(value: &Value) -> String {
    match value {
        Value::Null => "-".to_owned(),
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_shell_reads_one_word() {
        for (text, word) in [
            ("aws/lambda/F/x-1.json", "aws/lambda/F/x-1.json"),
            ("my data/x", "'my data/x'"),
            ("it's", r"'it'\''s'"),
            ("", "''"),
        ] {
            assert_eq!(shell_word(text), word);
        }
    }

    #[test]
    fn next_commands_can_be_typed_as_they_are() {
        assert_eq!(as_started("weir up", false), "weir up");
        assert_eq!(as_started("weir up --port 0", true), "cargo run -- up --port 0");
        assert_eq!(as_started("duckdb", true), "duckdb");
    }

    #[test]
    fn columns_are_as_wide_as_their_widest_cell() {
        let rows = [vec![json!("votes"), json!(3)], vec![json!("m"), Value::Null]];
        assert_eq!(table(&["table", "shards"], &rows), "table  shards\nvotes  3\nm      -\n");
    }
}
