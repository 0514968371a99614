//! Every direct dependency has a row in the decision record, with its purpose.

use crate::{assert_none, read};

const PAGE: &str = "docs/decisions/0011-dependencies.md";

/// Returns the names of the libraries in the root's `[workspace.dependencies]`, without those of
/// this repository, which have a path.
fn declared(manifest: &str) -> Vec<&str> {
    let (_, section) = manifest.split_once("[workspace.dependencies]").expect("the section");
    let lines = section.lines().take_while(|line| !line.starts_with("[workspace.lints"));
    lines
        .filter(|line| !line.starts_with('#') && !line.contains("path = "))
        .filter_map(|line| line.split_once(" = ").map(|(name, _)| name))
        .collect()
}

#[test]
fn every_dependency_has_its_reason() {
    let (manifest, page) = (read("Cargo.toml"), read(PAGE));
    let names = declared(&manifest);
    assert!(names.len() > 40, "only {} dependencies found", names.len());
    let without = names.iter().filter(|name| !page.contains(&format!("`{name}`")));
    let complaints: Vec<_> = without.map(|name| format!("`{name}` has no row")).collect();
    assert_none(PAGE, &complaints);
}
