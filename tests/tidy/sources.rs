//! Checks of source files: module docs, sizes, path names, leftovers, and paths of developers'
//! machines.

use std::collections::BTreeMap;

use crate::{assert_none, files, read};

/// The maximum number of lines in a file.
const FILE_LINES_MAX: usize = 600;
/// The maximum number of lines in all files of a crate, so that a reader can understand the entire
/// crate.
const CRATE_LINES_MAX: usize = 35_000;
/// The maximum number of lines in template.yaml, which describes the entire deployment on one page.
const TEMPLATE_LINES_MAX: usize = 700;
/// The maximum number of lines in a function, from its `fn` to its closing brace.
const FUNCTION_LINES_MAX: usize = 70;
/// The maximum number of lines in a `fn main`.
const MAIN_LINES_MAX: usize = 20;
/// File names that do not state the file's purpose.
const EMPTY_NAMES: [&str; 4] = ["utils", "helpers", "common", "manager"];

fn rust_files() -> Vec<(String, String)> {
    let is_rust = |path: &String| path.ends_with(".rs");
    files().into_iter().filter(is_rust).map(|path| (path.clone(), read(&path))).collect()
}

#[test]
fn every_module_states_its_purpose() {
    let silent = |(path, text): (String, String)| (!text.starts_with("//!")).then_some(path);
    let complaints: Vec<_> = rust_files().into_iter().filter_map(silent).collect();
    assert_none("these files do not begin with `//!`", &complaints);
}

#[test]
fn files_and_functions_are_small() {
    let mut complaints = Vec::new();
    for (path, text) in rust_files() {
        let lines = text.lines().count();
        if lines > FILE_LINES_MAX {
            complaints.push(format!("{path}: {lines} lines, at most {FILE_LINES_MAX}"));
        }
        for (name, line, length) in functions(&text) {
            let most = if name == "main" { MAIN_LINES_MAX } else { FUNCTION_LINES_MAX };
            if length > most {
                complaints
                    .push(format!("{path}:{line}: fn {name} has {length} lines, at most {most}"));
            }
        }
    }
    let lines = read("template.yaml").lines().count();
    if lines > TEMPLATE_LINES_MAX {
        complaints.push(format!("template.yaml: {lines} lines, at most {TEMPLATE_LINES_MAX}"));
    }
    assert_none("too long", &complaints);
}

#[test]
fn crates_are_small() {
    let members: Vec<_> = files()
        .into_iter()
        .filter_map(|p| Some(p.strip_suffix("Cargo.toml")?.to_owned()))
        .collect();
    let mut sizes = BTreeMap::<&str, usize>::new();
    for (path, text) in rust_files() {
        let own = members.iter().filter(|member| path.starts_with(*member));
        let member = own.max_by_key(|member| member.len()).expect("a file belongs to a crate");
        *sizes.entry(member).or_default() += text.lines().count();
    }
    assert!(sizes.len() > 20, "only {} crates found", sizes.len());
    let large = sizes.iter().filter(|(_, lines)| **lines > CRATE_LINES_MAX);
    let complaints: Vec<_> =
        large.map(|(member, lines)| format!("{member}: {lines} lines")).collect();
    assert_none("these crates are too large", &complaints);
}

/// Returns name, first line and number of lines of each function, based on rustfmt's indentation.
fn functions(text: &str) -> Vec<(String, usize, usize)> {
    let lines: Vec<_> = text.lines().collect();
    let mut found = Vec::new();
    for (start, line) in lines.iter().enumerate() {
        let code = line.trim_start();
        let indent = line.len() - code.len();
        let head = code.split("fn ").next().unwrap_or("");
        let is_function = code.contains("fn ")
            && head.split_whitespace().all(|word| {
                matches!(word, "const" | "async" | "pub" | "default" | "extern")
                    || word.starts_with("pub(")
            });
        if !is_function {
            continue;
        }
        // A trait method without a body ends with its signature.
        let signature_end = lines[start..].iter().find(|line| line.ends_with(['{', ';', '}']));
        if signature_end.is_none_or(|line| line.ends_with(';')) {
            continue;
        }
        let name: String = code[head.len() + 3..]
            .chars()
            .take_while(|c| c.is_alphanumeric() || *c == '_')
            .collect();
        let closing = format!("{}}}", " ".repeat(indent));
        let end =
            lines[start..].iter().position(|line| *line == closing).map_or(0, |length| length + 1);
        found.push((name, start + 1, end));
    }
    found
}

#[test]
fn paths_are_named_for_their_purpose() {
    let empty =
        |path: &String| path.split(['/', '.', '_', '-']).any(|word| EMPTY_NAMES.contains(&word));
    let complaints: Vec<_> = files().into_iter().filter(empty).collect();
    assert_none("these names state no purpose", &complaints);
}

#[test]
fn nothing_unfinished_is_left() {
    // Each mark is written in two parts, so that the check does not report this file.
    let marks = [
        concat!("FIX", "ME"),
        concat!("TO", "DO"),
        concat!("X", "XX"),
        concat!("todo", "!("),
        concat!("unimplemented", "!("),
        concat!("#[ig", "nore"),
        concat!("#[should", "_panic"),
    ];
    let mut complaints = Vec::new();
    for (path, text) in rust_files() {
        for (number, line) in text.lines().enumerate() {
            if marks.iter().any(|mark| line.contains(mark)) {
                complaints.push(format!("{path}:{}: {}", number + 1, line.trim()));
            }
        }
    }
    assert_none("unfinished", &complaints);
}

#[test]
fn no_path_of_a_machine_is_in_the_repository() {
    let roots = [
        concat!("/wo", "rk/"),
        concat!("/ro", "ot/"),
        concat!("/ho", "me/"),
        concat!("index.crates", ".io"),
    ];
    let text_files = |path: &String| {
        [".rs", ".md", ".toml", ".yaml", ".yml", ".py", ".txt", ".json", ".sh", "run"]
            .iter()
            .any(|ending| path.ends_with(ending))
    };
    let mut complaints = Vec::new();
    for path in files().into_iter().filter(text_files) {
        let Ok(text) = std::fs::read_to_string(crate::root().join(&path)) else { continue };
        for (number, line) in text.lines().enumerate() {
            if roots.iter().any(|root| line.contains(root)) {
                complaints.push(format!("{path}:{}: {}", number + 1, line.trim()));
            }
        }
    }
    assert_none("paths of a machine", &complaints);
}

#[test]
fn docs_that_are_promised_are_there() {
    let files = files();
    let promised = [
        "README.md",
        "ARCHITECTURE.md",
        "CHANGELOG.md",
        "LICENSE",
        "Cargo.lock",
        "template.yaml",
        "docs/differences-from-dynamodb.md",
        "docs/glossary.md",
        "docs/formats/log.md",
        "docs/formats/keys.md",
        "docs/formats/items.md",
        ".ci/run",
    ];
    let complaints: Vec<_> = promised
        .into_iter()
        .filter(|path| !files.iter().any(|file| file == path))
        .map(str::to_owned)
        .collect();
    assert_none("these files are missing", &complaints);
}
