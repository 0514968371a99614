//! `weir check`: what is wrong in a template, or probably not meant, before anything runs.
//!
//! What is checked is in `template`; this only shows it and says how it ended.

use clap::Args;
use serde_json::{Value, json};

use crate::exit::Exit;
use crate::output::{Output, say, show};
use crate::template::{Diagnostic, Diagnostics, NotEmulated, Severity, Stack};

/// How to judge.
#[derive(Clone, Debug, Args)]
#[command(
    after_help = "Examples:\n  weir check\n  weir check --template examples/hello-stream/template.yaml\n  weir check --deny-warnings            # 3 when there are only warnings\n  weir check --output ndjson            # one finding on each line\n\nA check that does not apply is accepted on the resource: Metadata: {Weir: {Accept: [latest]}}"
)]
pub struct CheckArguments {
    /// End with 3 when there are warnings
    #[arg(long)]
    pub deny_warnings: bool,
}

/// Shows the findings: for people on standard error with the lines they are about, and a summary on
/// standard output; for programs each as an object.
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
                say(&format!("{found}\n"));
            }
            if more > 0 {
                say(&format!("and {more} more\n"));
            }
            if let Some(stack) = stack {
                say_not_emulated(stack);
            }
            show(&format!("{}\n", summary(errors + more, warnings, stack)));
        }
        Output::Json => {
            let findings: Vec<Value> = findings.iter().map(object).collect();
            let document = json!({
                "schema": "weir.check/v1", "errors": errors + more, "warnings": warnings,
                "findings": findings,
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

/// What of the template this machine does not carry out, each reason with all its places.
fn say_not_emulated(stack: &Stack) {
    for (reason, places) in stack.not_emulated_by_reason() {
        say(&format!("not here: {reason}: {}", places.join(", ")));
    }
}

fn place(entry: &NotEmulated) -> Value {
    json!({
        "resource": entry.resource, "property": entry.property, "line": entry.at.line,
        "instead": entry.instead,
    })
}

fn summary(errors: usize, warnings: usize, stack: Option<&Stack>) -> String {
    let count = |number: usize, what: &str| match number {
        1 => format!("1 {what}"),
        _ => format!("{number} {what}s"),
    };
    let found = format!("{}, {}", count(errors, "error"), count(warnings, "warning"));
    match stack {
        None => found,
        Some(stack) => format!(
            "{found}: {}, {}, {}, {}, {}; {} not carried out on this machine",
            count(stack.tables.len(), "table"),
            count(stack.buckets.len(), "bucket"),
            count(stack.functions.len(), "function"),
            count(stack.mappings.len(), "mapping"),
            count(stack.schedules.len(), "schedule"),
            count(stack.not_emulated.len(), "setting"),
        ),
    }
}

fn object(found: &Diagnostic) -> Value {
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
