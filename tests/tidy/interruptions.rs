//! A check that every long-running subcommand reports its progress when a signal ends it.

use std::collections::BTreeSet;

use crate::{assert_none, read};

/// The file with the list of subcommands and the effect of a signal on each.
const VERBS: &str = "runner/client/src/interruption.rs";

/// For each long-running subcommand, the file that updates the reported progress.
const REPORTED_BY: &[(&str, &str)] = &[
    ("demo", "runner/src/demo/mod.rs"),
    ("load", "runner/load/src/lanes.rs"),
    ("copy", "runner/src/copy/mod.rs"),
    ("streams redrive", "runner/src/streams/redrive.rs"),
    ("ttl sweep", "runner/src/clock.rs"),
    ("archive check", "runner/operations/src/archive/check.rs"),
    ("archive restore", "runner/operations/src/archive/restore/mod.rs"),
    ("archive compact", "runner/operations/src/archive/maintenance.rs"),
    ("archive erase", "runner/operations/src/archive/erasure.rs"),
    ("counters fold", "runner/operations/src/counters/fold.rs"),
    ("counters recount", "runner/operations/src/counters/ballots/mod.rs"),
    ("counters generate", "runner/operations/src/counters/generate.rs"),
    ("versions backfill", "runner/operations/src/versions/backfill.rs"),
    ("versions check", "runner/operations/src/versions/check.rs"),
    ("migrate plan", "runner/operations/src/migrate/plan/estimate/mod.rs"),
    ("migrate wait", "runner/operations/src/migrate/report/wait.rs"),
    ("migrate verify", "runner/operations/src/migrate/switch/verify.rs"),
    ("migrate complete", "runner/operations/src/migrate/switch/verify.rs"),
    ("migrate abort", "runner/operations/src/migrate/adjust.rs"),
    ("editions prepare", "runner/operations/src/editions/prepare.rs"),
    ("editions check", "runner/operations/src/editions/compare.rs"),
    ("editions prune", "runner/operations/src/editions/prune.rs"),
    ("fan-out prune", "runner/operations/src/fan_out/prune.rs"),
    ("fan-out repair", "runner/operations/src/fan_out/repair.rs"),
];

/// Returns the subcommands that a list marks as long-running.
fn long_verbs(text: &str) -> BTreeSet<String> {
    let pieces: Vec<&str> = text.split("Long(").collect();
    let before_each = pieces.iter().rev().skip(1).filter_map(|piece| {
        let name = piece.trim_end().strip_suffix("\",")?;
        name.rsplit_once('"').map(|(_, name)| name.to_owned())
    });
    before_each.collect()
}

#[test]
fn each_long_verb_reports_how_far_it_got() {
    let text = read(VERBS);
    let list = text.split("pub const NATURES").nth(1).and_then(|rest| rest.split("];").next());
    let long = long_verbs(list.unwrap_or_default());
    assert!(long.len() > 15, "the list is not found: {long:?}");
    let listed: BTreeSet<String> = REPORTED_BY.iter().map(|(verb, _)| (*verb).to_owned()).collect();
    assert_eq!(long, listed);
    let silent = REPORTED_BY.iter().filter(|(_, path)| {
        let text = read(path);
        !["interruption::reached(", "interruption::progress_bar("]
            .iter()
            .any(|it| text.contains(it))
    });
    let silent = silent.map(|(verb, path)| format!("`{verb}`: {path}"));
    assert_none("long verbs that report nothing", &silent.collect::<Vec<_>>());
}

#[test]
fn a_long_verb_is_found_on_one_line_and_on_several() {
    let list = "(\"a b\", Long(\"x\")),\n(\"c\", Short),\n(\n \"d\",\n Long(\n \"y\"),\n),";
    assert_eq!(long_verbs(list).into_iter().collect::<Vec<_>>(), ["a b", "d"]);
}
