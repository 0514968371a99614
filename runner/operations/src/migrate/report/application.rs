//! Describes the duties of an application during a migration. `plan`, `cutover` and `revert` print
//! the description.

use rules::migration::plan::Kind;

use client::output::say;

/// Prints the duties of the application, if the plan moves items between tables.
pub(crate) fn remind(kind: Kind) {
    if let Some(text) = reminder(kind) {
        say(text);
    }
}

fn reminder(kind: Kind) -> Option<&'static str> {
    match kind {
        Kind::Restructure | Kind::Split => Some(
            "the application must look up the route, skip tombstones on reads, and overwrite them on inserts: see docs/migration.md, and examples/migrations/route.py, route.mjs and route.rs",
        ),
        // The items stay in their table, so the application needs no change.
        Kind::InPlace | Kind::Purge => None,
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    #[test]
    fn what_is_named_is_there() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        for kind in [Kind::Restructure, Kind::Split] {
            let text = reminder(kind).unwrap();
            let page = std::fs::read_to_string(root.join("docs/migration.md")).unwrap();
            for name in ["route.py", "route.mjs", "route.rs"] {
                assert!(text.contains(name) && page.contains(name), "{name}");
                assert!(root.join("examples/migrations").join(name).is_file(), "{name}");
            }
        }
        assert_eq!((reminder(Kind::InPlace), reminder(Kind::Purge)), (None, None));
    }
}
