//! A check that every direct dependency is used, and has a table row with its purpose in the
//! decision record.

use std::path::Path;

use serde_json::Value;

use crate::{arrows, assert_none, files, read, root};

const PAGE: &str = "docs/decisions/0011-dependencies.md";

/// Returns the names of the libraries in the root's `[workspace.dependencies]`, without the
/// libraries of this repository, which have a path.
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

/// Dependencies that are not used in code: they only enable a feature of an indirect dependency.
const FEATURES_ONLY: [&str; 1] = ["regex_syntax"];

#[test]
fn every_dependency_of_a_crate_is_used() {
    let metadata = arrows::metadata();
    let mut complaints = Vec::new();
    let mut count = 0;
    let packages = metadata["packages"].as_array().unwrap().iter();
    for package in packages.filter(|package| package["source"].is_null()) {
        let manifest = Path::new(package["manifest_path"].as_str().unwrap());
        let folder = manifest.parent().unwrap().strip_prefix(root()).unwrap();
        let own = |path: &String| path.ends_with(".rs") && Path::new(path).starts_with(folder);
        let code: String = files().iter().filter(|path| own(path)).map(|path| read(path)).collect();
        for dependency in package["dependencies"].as_array().unwrap() {
            count += 1;
            let name = dependency["rename"].as_str().or(dependency["name"].as_str()).unwrap();
            let word = library(&metadata, name).replace('-', "_");
            if !is_named(&code, &word) && !FEATURES_ONLY.contains(&word.as_str()) {
                complaints.push(format!("{}: nothing uses `{name}`", folder.display()));
            }
        }
    }
    assert!(count > 200, "only {count} dependencies found");
    assert_none("remove these from Cargo.toml", &complaints);
}

/// Returns the name of a package in code: the name of its library, or the name that a manifest
/// gives it.
fn library<'a>(metadata: &'a Value, name: &'a str) -> &'a str {
    let packages = metadata["packages"].as_array().unwrap().iter();
    let targets = packages.filter(|package| package["name"] == name);
    let mut targets = targets.flat_map(|package| package["targets"].as_array().unwrap());
    let is_library = |target: &&Value| {
        let kinds = target["kind"].as_array().unwrap();
        kinds.iter().any(|kind| ["lib", "rlib", "proc-macro"].iter().any(|own| kind == own))
    };
    targets.find(is_library).map_or(name, |target| target["name"].as_str().unwrap())
}

/// Returns whether `code` uses `word` as a path or a macro of the dependency.
fn is_named(code: &str, word: &str) -> bool {
    let is_part = |c: char| c.is_alphanumeric() || c == '_';
    code.match_indices(word).any(|(at, _)| {
        let before = code[..at].chars().next_back().is_none_or(|c| !is_part(c));
        let after = code[at + word.len()..].chars().next();
        before && matches!(after, Some(':' | ';' | '}' | ' ' | ','))
    })
}

#[test]
fn a_dependency_without_use_is_found() {
    assert!(is_named("use http_body::Body;", "http_body"));
    assert!(!is_named("use http_body_util::Full;", "http_body"));
    assert!(!is_named("let jiffy = 1;", "jiff"));
}
