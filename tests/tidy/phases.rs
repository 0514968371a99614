//! A check that only the crate `control` sets the phase of a migration.

use crate::{assert_none, files, read};

/// Returns whether a line assigns a phase, possibly together with other fields.
fn assigns(line: &str) -> bool {
    line.contains(".phase = ") || line.trim_start().starts_with("(state.phase, ")
}

/// A file that may set a phase: it simulates the next transition of a command, and writes nothing.
const LOOKS_AHEAD: &str = "runner/operations/src/migrate/report/backfill.rs";

/// Returns the lines of production code that set a phase. Tests are excluded, because they may set
/// up any state.
fn assignments(path: &str, text: &str) -> Vec<String> {
    let is_test = path.ends_with("tests.rs");
    if is_test || path == LOOKS_AHEAD {
        return Vec::new();
    }
    let production = text.split("#[cfg(test)]\nmod tests").next().unwrap_or_default();
    let lines = production.lines().filter(|line| assigns(line));
    lines.map(|line| format!("{path}: `{}`", line.trim())).collect()
}

#[test]
fn only_moves_set_the_phase_of_a_migration() {
    let of_migrations = ["functions/processor/src/migration/", "runner/operations/src/migrate/"];
    let sources = files().into_iter().filter(|path| {
        path.ends_with(".rs") && of_migrations.iter().any(|root| path.starts_with(root))
    });
    let found = sources.flat_map(|path| assignments(&path, &read(&path)));
    assert_none("phases that no move sets", &found.collect::<Vec<_>>());
}

#[test]
fn an_assignment_of_a_phase_is_found() {
    let text = "    state.phase = Phase::Ready;\n#[cfg(test)]\nmod tests {\n    state.phase = x;\n";
    assert_eq!(assignments("runner/a.rs", text).len(), 1);
    assert_eq!(assignments("runner/a_tests.rs", text).len(), 0);
}
