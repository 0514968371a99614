//! `weir model check`: runs the access patterns of a model on a temporary store, and prints the
//! report.

use std::collections::BTreeMap;

use design::command::Command;
use design::estimate::estimate;
use design::report::Report;
use design::trial::{self, Outcome, Run};
use design::{DataModel, Prices, findings};
use serde_json::Value;
use template::Diagnostics;

use super::scratch_store::ScratchStore;
use super::{CheckArguments, ModelFile, refuse};
use crate::check::object;
use client::exit::Exit;
use client::failure::Result;
use client::output::{Output, show};

/// Maximum number of pages of a scan that counts items. A model of 1 MB needs two pages.
const PAGES_MAX: usize = 1_000;

/// Runs a model and shows the report. The exit code is 3 if there are findings.
pub(super) async fn run(
    arguments: &CheckArguments,
    file: &ModelFile,
    prices: &Prices,
    output: Output,
) -> Result<Exit> {
    let store = ScratchStore::open().await?;
    if let Some(diagnostics) = prepare(&store, file).await {
        return Ok(refuse(&diagnostics, output));
    }
    let trial = try_patterns(&store, &file.model).await;
    let (model, source) = (&file.model, (file.name.as_str(), file.text.as_str()));
    let estimate = estimate(model, &trial, prices);
    let found = findings::find(source, model, &trial, (&estimate, prices));
    let report = Report { model, trial: &trial, estimate: &estimate, findings: &found, prices };
    match output {
        Output::Table => show(&report.text()),
        Output::Json | Output::Ndjson => {
            let findings: Vec<_> = found.shown.iter().map(object).collect();
            show(&format!("{}\n", report.json(&findings)));
        }
    }
    if arguments.keep {
        store.serve(arguments.port).await?;
    }
    Ok(if found.shown.is_empty() { Exit::Done } else { Exit::Differences })
}

/// Creates the tables and puts the items. Returns the errors that the store reports for them.
pub(super) async fn prepare(store: &ScratchStore, file: &ModelFile) -> Option<Diagnostics> {
    for (place, request) in trial::preparation(&file.model) {
        let answer = store.send(&request).await;
        if !answer.is_success {
            let body: Value = serde_json::from_str(&answer.body).unwrap_or_default();
            let message = body.get("message").or_else(|| body.get("Message"));
            let message = message.and_then(Value::as_str).unwrap_or(&answer.body);
            return Some(findings::refused_preparation(
                (&file.name, &file.text),
                file.model.place(&place),
                (request.operation, message),
            ));
        }
    }
    None
}

/// Runs the access patterns in their order, and returns an outcome for each that has a command.
pub(super) async fn try_patterns(store: &ScratchStore, model: &DataModel) -> Vec<Option<Outcome>> {
    let mut outcomes = Vec::with_capacity(model.patterns.len());
    for pattern in &model.patterns {
        outcomes.push(match &pattern.command {
            Some(command) => Some(try_pattern(store, command).await),
            None => None,
        });
    }
    outcomes
}

async fn try_pattern(store: &ScratchStore, command: &Command) -> Outcome {
    let counted = trial::may_create(command.operation);
    let before = if counted { count_items(store, command).await } else { BTreeMap::new() };
    let mut run = Run::new(command);
    while let Some(request) = run.request() {
        let answer = store.send(&request).await;
        run.take(answer.is_success, &answer.body);
    }
    let mut outcome = run.outcome();
    if counted {
        for (table, after) in count_items(store, command).await {
            let before = before.get(&table).copied().unwrap_or(0);
            outcome.created.insert(table, after - before);
        }
    }
    outcome
}

/// Counts the items of the tables of a command.
async fn count_items(store: &ScratchStore, command: &Command) -> BTreeMap<String, i64> {
    let mut counts = BTreeMap::new();
    for table in command.tables() {
        let (mut total, mut after) = (0, None);
        for _ in 0..PAGES_MAX {
            let answer = store.send(&trial::count(table, after.as_ref())).await;
            let page: Value = serde_json::from_str(&answer.body).unwrap_or_default();
            total += page.get("Count").and_then(Value::as_i64).unwrap_or(0);
            after = page.get("LastEvaluatedKey").cloned();
            if after.is_none() {
                break;
            }
        }
        counts.insert(table.to_owned(), total);
    }
    counts
}
