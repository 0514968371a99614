//! One migration of a table `cats` into a table `pets`, driven by tests through the real binaries.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use serde_json::{Value, json};

use crate::process::{LocalStore, Process, root, wait_for, weir_on};

/// The time-out of every wait, on a busy machine.
pub(crate) const LIMIT: Duration = Duration::from_secs(240);
pub(crate) const SECOND_MS: u64 = 1_000;
pub(crate) const PLAN: &str = "migration: move
kind: restructure
from:
  - table: cats
    items: [{to: pets}]
inverse:
  - table: pets
    items: [{to: cats}]
segments: 2
gate_seconds: 0
function_seconds: 10
";

/// A migration in a folder, on a store.
pub(crate) struct Migrating<'m> {
    pub(crate) folder: &'m Path,
    pub(crate) store: &'m LocalStore,
}

impl Migrating<'_> {
    pub(crate) fn prepare(&self, write_units: u64, plan: &str) {
        for (table, units) in [("cats", 1_000), ("pets", write_units)] {
            self.store.endpoint.ok(
                "CreateTable",
                &json!({
                    "TableName": table,
                    "ProvisionedThroughput": {"ReadCapacityUnits": 1000, "WriteCapacityUnits": units},
                    "AttributeDefinitions": [{"AttributeName": "p", "AttributeType": "S"}],
                    "KeySchema": [{"AttributeName": "p", "KeyType": "HASH"}],
                    "StreamSpecification": {"StreamEnabled": true, "StreamViewType": "NEW_AND_OLD_IMAGES"},
                }),
            );
        }
        fs::write(self.folder.join("plan.yaml"), plan).unwrap();
    }

    pub(crate) fn put(&self, number: usize, bytes: usize) {
        let item = json!({"p": {"S": format!("n{number:03}")}, "text": {"S": "x".repeat(bytes)}});
        let request = json!({"TableName": "cats", "Item": item});
        // The store may throttle the table. One second later, the table has new capacity.
        while self.store.endpoint.send("PutItem", &request).status != 200 {
            self.store.endpoint.advance_clock(SECOND_MS);
        }
    }

    /// Freezes the store's clock, or resumes it.
    pub(crate) fn clock(&self, change: &Value) {
        let body = change.to_string();
        let clock = "/_weir/clock";
        let answer = self.store.endpoint.request("POST", clock, "", body.as_bytes()).unwrap();
        assert_eq!(answer.status, 200, "{}", answer.body);
    }

    /// Returns the command of a subcommand on this store, with the store's keys.
    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = weir_on(&self.store.endpoint);
        command.arg("migrate").args(arguments).current_dir(self.folder);
        command
    }

    /// Runs a subcommand to completion, and returns its exit code and its output.
    pub(crate) fn verb(&self, arguments: &[&str]) -> (i32, String) {
        let ended = self.command(arguments).output().unwrap();
        let said = [ended.stdout, ended.stderr].concat();
        (ended.status.code().unwrap(), String::from_utf8_lossy(&said).into_owned())
    }

    pub(crate) fn ok(&self, arguments: &[&str]) -> String {
        let (code, said) = self.verb(arguments);
        assert_eq!(code, 0, "{arguments:?}: {said}");
        said
    }

    pub(crate) fn status(&self) -> Value {
        let (_, said) = self.verb(&["status", "move", "--output", "json"]);
        said.lines().find_map(|line| serde_json::from_str(line).ok()).unwrap_or_default()
    }

    pub(crate) fn work(&self, verb: &str, subject: &str) -> Process {
        let package = root().join("functions/processor").display().to_string();
        let work = self.command(&[verb, subject, "--local-workers", "2", "--package", &package]);
        Process::start(work, self.folder.join("worker.log"))
    }

    /// Starts the plan with this rate in items per second, and local workers.
    pub(crate) fn start_at(&self, rate: &str, workers: &str) -> Process {
        let package = root().join("functions/processor").display().to_string();
        let flags = ["--rate", rate, "--local-workers", workers, "--package", &package];
        let start = self.command(&[&["start", "plan.yaml"][..], &flags].concat());
        Process::start(start, self.folder.join("worker.log"))
    }

    pub(crate) fn wait_for_phase(
        &self,
        phase: &str,
        worker: &mut Process,
        mut meanwhile: impl FnMut(&Value),
    ) {
        wait_for(phase, LIMIT * 2, || {
            assert!(!worker.has_ended(), "{}", worker.log());
            let status = self.status();
            meanwhile(&status);
            (status["phase"] == phase).then_some(())
        });
    }
}
