//! `weir check`: reports errors and probable mistakes of a template before anything runs.
//!
//! The crate `template` has the checks; this module shows the findings and sets the exit code.

use std::collections::BTreeMap;
use std::path::PathBuf;

use clap::Args;
use serde_json::{Value, json};

use client::exit::Exit;
use client::output::{Output, say, show};
use template::{Absent, Diagnostic, Diagnostics, NotEmulated, NotRun, Severity, Stack};

/// The maximum number of characters in a line of the list of names.
const LINE_CHARS_MAX: usize = 100;

/// Flags of `weir check`.
#[derive(Clone, Debug, Args)]
#[command(
    after_help = "Examples:\n  weir check\n  weir check hello/template.yaml\n  weir check --verbose                  # each setting that is not emulated, and the local behavior\n  weir check --deny-warnings            # exit code 3 when there are only warnings\n  weir check --output ndjson            # one finding on each line\n\nTo accept a warning, list its check on the resource: Metadata: {Weir: {Accept: [latest]}}"
)]
pub struct CheckArguments {
    /// The template, instead of `--template`
    pub file: Option<PathBuf>,
    /// Exit with 3 when there are warnings
    #[arg(long)]
    pub deny_warnings: bool,
    /// Show each setting that is not emulated on this machine, its line, and what `weir up` does
    /// instead
    #[arg(long)]
    pub verbose: bool,
}

/// Writes the findings to standard output and hints to standard error.
///
/// A table shows each finding with its source lines, and a summary; JSON has an object for each
/// finding.
#[must_use]
pub fn run(arguments: &CheckArguments, output: Output, read: &Result<Stack, Diagnostics>) -> Exit {
    let (findings, more, stack) = match read {
        Ok(stack) => (&stack.warnings, 0, Some(stack)),
        Err(diagnostics) => (&diagnostics.shown, diagnostics.more, None),
    };
    let is_error = |found: &&Diagnostic| found.severity == Severity::Error;
    let errors = findings.iter().filter(is_error).count();
    let warnings = findings.len() - errors;
    match output {
        Output::Table => {
            for found in findings {
                show(&format!("{found}\n\n"));
            }
            if more > 0 {
                show(&format!("findings not shown: {more}\n\n"));
            }
            if let Some(stack) = stack {
                show_not_emulated(stack, arguments.verbose);
            }
            show(&format!("{}\n", summary(errors + more, warnings, stack)));
        }
        Output::Json => {
            let findings: Vec<Value> = findings.iter().map(object).collect();
            let document = json!({
                "schema": "weir.check/v1", "errors": errors + more, "warnings": warnings,
                "findings": findings,
                "not_run": stack.map(|stack| stack.not_run.iter().map(absent).collect::<Vec<_>>()),
                "not_emulated": stack.map(|stack| stack.not_emulated.iter().map(place).collect::<Vec<_>>()),
            });
            show(&format!("{document}\n"));
        }
        Output::Ndjson => findings.iter().for_each(|found| show(&format!("{}\n", object(found)))),
    }
    match (stack, warnings) {
        (None, _) => Exit::Failed,
        (Some(_), 1..) if arguments.deny_warnings => Exit::Differences,
        (Some(_), _) => Exit::Done,
    }
}

/// Shows the settings that are not emulated: their names, or with `verbose` each reason and its
/// places.
fn show_not_emulated(stack: &Stack, verbose: bool) {
    if verbose {
        for (reason, places) in stack.not_emulated_by_reason() {
            show(&format!("not emulated: {reason}: {}\n", places.join(", ")));
        }
    } else if !stack.not_emulated.is_empty() {
        for line in names_not_emulated(stack) {
            show(&format!("{line}\n"));
        }
        say(
            "`weir check --verbose` shows the line of each of these settings, and what `weir up` does instead",
        );
    }
}

/// Returns the names of properties and types that are not emulated, with their number of
/// occurrences.
fn names_not_emulated(stack: &Stack) -> Vec<String> {
    let mut names: BTreeMap<&str, usize> = BTreeMap::new();
    for entry in &stack.not_emulated {
        // A section such as `Globals.Api` has no type.
        let possible = [&entry.property, &entry.kind, &entry.resource];
        let Some(name) = possible.into_iter().find(|name| !name.is_empty()) else { continue };
        *names.entry(name).or_default() += 1;
    }
    let mut lines = vec!["not emulated:".to_owned()];
    let count = names.len();
    for (index, (name, times)) in names.into_iter().enumerate() {
        let comma = if index + 1 == count { "" } else { "," };
        let word = match times {
            1 => format!(" {name}{comma}"),
            _ => format!(" {name} ({times}){comma}"),
        };
        match lines.last_mut() {
            Some(line) if line.chars().count() + word.chars().count() <= LINE_CHARS_MAX => {
                line.push_str(&word);
            }
            _ => lines.push(format!("             {word}")),
        }
    }
    lines
}

fn absent(entry: &NotRun) -> Value {
    let what = match entry.what {
        Absent::Function => "function",
        Absent::Mapping => "mapping",
        Absent::Schedule => "schedule",
    };
    json!({
        "what": what, "resource": entry.resource, "function": entry.function,
        "line": entry.at.line, "reason": entry.reason, "accepted": entry.accepted,
    })
}

fn place(entry: &NotEmulated) -> Value {
    json!({
        "resource": entry.resource, "type": entry.kind, "property": entry.property,
        "line": entry.at.line, "instead": entry.instead,
    })
}

fn summary(errors: usize, warnings: usize, stack: Option<&Stack>) -> String {
    let count = |number: usize, what: &str| match number {
        1 => format!("1 {what}"),
        _ => format!("{number} {what}s"),
    };
    let found = format!("{}, {}", count(errors, "error"), count(warnings, "warning"));
    let absent = |stack: &Stack| {
        let kinds = [
            (Absent::Function, "function"),
            (Absent::Mapping, "mapping"),
            (Absent::Schedule, "schedule"),
        ];
        let number = |kind| stack.not_run.iter().filter(|entry| entry.what == kind).count();
        let counts = kinds.map(|(kind, what)| (number(kind), what));
        let words = counts.into_iter().filter(|(number, _)| *number > 0);
        let words: Vec<String> = words.map(|(number, what)| count(number, what)).collect();
        match words.is_empty() {
            true => String::new(),
            false => format!("; {} do not run here", words.join(" and ")),
        }
    };
    match stack {
        None => found,
        Some(stack) => format!(
            "{found}: {}, {}, {}, {}, {}{}; {} not emulated on this machine",
            count(stack.tables.len(), "table"),
            count(stack.buckets.len(), "bucket"),
            count(stack.functions.len(), "function"),
            count(stack.mappings.len(), "mapping"),
            count(stack.schedules.len(), "schedule"),
            absent(stack),
            count(stack.not_emulated.len(), "setting"),
        ),
    }
}

/// Returns a finding as JSON.
pub(crate) fn object(found: &Diagnostic) -> Value {
    json!({
        "severity": match found.severity { Severity::Error => "error", Severity::Warning => "warning" },
        "check": found.check,
        "file": found.file,
        "line": found.line,
        "column": found.column,
        "width": found.width,
        "source_line": found.source_line,
        "message": found.message,
        "help": found.help,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use template::{Context, read};

    const TEMPLATE: &str = "Transform: [AWS::Serverless-2016-10-31, Own]
Globals: {Api: {Name: api}}
Resources:
  People:
    Type: AWS::DynamoDB::Table
    Properties:
      AttributeDefinitions: [{AttributeName: name, AttributeType: S}]
      KeySchema: [{AttributeName: name, KeyType: HASH}]
      BillingMode: PAY_PER_REQUEST
      StreamSpecification: {StreamViewType: NEW_IMAGE}
  HelloFunction:
    Type: AWS::Serverless::Function
    Properties:
      CodeUri: .
      Handler: example.Handler
      Runtime: java21
      Events:
        Added:
          Type: DynamoDB
          Properties: {Stream: !GetAtt People.StreamArn, StartingPosition: TRIM_HORIZON}
  Errors:
    Type: AWS::CloudWatch::Alarm
    Properties: {}
  More:
    Type: AWS::CloudWatch::Alarm
    Properties: {}
";

    #[test]
    fn resources_that_do_not_run_here_are_counted() {
        let read = read("template.yaml", TEMPLATE, &Context::default());
        let stack = read.as_ref().unwrap();
        let line = summary(0, stack.warnings.len(), Some(stack));
        assert!(line.starts_with("0 errors, 3 warnings: 1 table,"), "{line}");
        assert!(line.contains("; 1 function and 1 mapping do not run here; "), "{line}");
        let strict = CheckArguments { file: None, deny_warnings: true, verbose: false };
        assert_eq!(run(&strict, Output::Json, &read), Exit::Differences);
        let names = names_not_emulated(stack);
        assert_eq!(
            names,
            [
                "not emulated: AWS::CloudWatch::Alarm (2), AWS::Serverless::Function, Globals.Api, Transform"
            ]
        );
        let accepted = TEMPLATE.replace(
            "    Properties:\n      CodeUri",
            "    Metadata: {Weir: {Accept: [not-run-here, whole-batch, retries-forever]}}\n    \
             Properties:\n      CodeUri",
        );
        let stack = template::read("template.yaml", &accepted, &Context::default()).unwrap();
        assert!(stack.warnings.is_empty(), "{:?}", stack.warnings);
        assert!(stack.not_run.iter().all(|entry| entry.accepted));
    }
}
