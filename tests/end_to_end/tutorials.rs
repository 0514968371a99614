//! Tests of the tutorials. They run every command of a page in order, from an empty folder, and
//! check each line of output that the page shows.
//!
//! `weir up` gets free ports and runs concurrently with the following commands. `weir status
//! --exit-code` is repeated, as the pages instruct. All other commands run exactly as printed.

use std::fs;
use std::time::Duration;

use crate::process::{Process, root, shell, wait_for};

/// The maximum number of commands in a tutorial that a beginner types without a break.
const COMMANDS_MAX: usize = 10;
const START_MAX: Duration = Duration::from_secs(120);
const SETTLE_MAX: Duration = Duration::from_secs(60);

/// A command, and the lines that a page shows after it.
struct Step {
    command: String,
    shown: Vec<String>,
}

/// Returns the steps of a page. Commands are in code blocks without a language, and output is in
/// code blocks with the language `text`.
fn steps(page: &str) -> Vec<Step> {
    let mut steps: Vec<Step> = Vec::new();
    for block in page.split("```").skip(1).step_by(2) {
        let (language, lines) = block.split_once('\n').unwrap();
        let lines = lines.replace("\\\n", " ");
        let lines = lines.lines().map(str::trim).filter(|line| !line.is_empty());
        match (language, steps.last_mut()) {
            ("", _) => {
                steps
                    .extend(lines.map(|line| Step { command: line.to_owned(), shown: Vec::new() }));
            }
            ("text", Some(step)) => step.shown.extend(lines.map(str::to_owned)),
            (language, _) => unreachable!("a block of `{language}` is neither command nor output"),
        }
    }
    steps
}

/// Returns whether a line matches the line that a page shows, in which `…` matches any text.
fn is_shown(line: &str, shown: &str) -> bool {
    let mut rest = line;
    shown.split('…').all(|piece| {
        let found = rest.split_once(piece.trim()).map(|(_, behind)| behind);
        rest = found.unwrap_or_default();
        found.is_some()
    })
}

fn run(page: &str) {
    let text = fs::read_to_string(root().join("docs/tutorials").join(page)).unwrap();
    let steps = steps(&text);
    assert!((5..=COMMANDS_MAX).contains(&steps.len()), "{page}: {} commands", steps.len());
    let home = tempfile::tempdir().unwrap();
    let folder = tempfile::tempdir().unwrap();
    let mut up = None;
    for Step { command, shown } in steps {
        if command == "weir up" {
            let shell = shell(folder.path(), "exec weir up --port 0 --s3-port 0");
            up = Some(Process::start(shell, home.path().join("up.log")));
            let running = folder.path().join(".weir/running.json");
            wait_for("weir up", START_MAX, || running.exists().then_some(()));
            continue;
        }
        let run = || shell(folder.path(), &command).output().unwrap();
        let ended = match command.as_str() {
            "weir status --exit-code" => wait_for(&command, SETTLE_MAX, || {
                Some(run()).filter(|ended| ended.status.success())
            }),
            _ => run(),
        };
        let output =
            String::from_utf8_lossy(&ended.stdout) + String::from_utf8_lossy(&ended.stderr);
        assert!(ended.status.success(), "{page}: `{command}`: {:?}\n{output}", ended.status.code());
        for shown in shown {
            let is_there = output.lines().any(|line| is_shown(line, &shown));
            assert!(is_there, "{page}: `{command}` does not show `{shown}`:\n{output}");
        }
    }
    assert!(up.is_some_and(|mut up| up.interrupt()), "{page}: weir up did not end in order");
}

#[test]
fn archive_my_table() {
    run("archive-my-table.md");
}

#[test]
fn count_votes() {
    run("count-votes.md");
}

#[test]
fn restructure_a_live_table() {
    run("restructure-a-live-table.md");
}

#[test]
fn every_tutorial_is_run() {
    let own = fs::read_to_string(root().join("tests/end_to_end/tutorials.rs")).unwrap();
    for page in fs::read_dir(root().join("docs/tutorials")).unwrap() {
        let name = page.unwrap().file_name().into_string().unwrap();
        assert!(own.contains(&format!("run(\"{name}\")")), "{name}");
    }
}

#[test]
fn what_a_page_shows_is_found_in_a_line() {
    assert!(is_shown("a  1  b", "a … b") && is_shown("x a b", "a b") && is_shown("anything", "…"));
    assert!(!is_shown("b 1 a", "a … b") && !is_shown("a", "a … b"));
}
