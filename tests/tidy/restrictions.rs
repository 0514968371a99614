//! A check of the restrictions of the pure and deterministic crates: functions that their code must
//! not call.
//!
//! Clippy enforces them through the `clippy.toml` of each such crate. This test checks only that
//! the files exist and are complete; `arrows` checks the dependencies.

use std::path::Path;

use crate::arrows::{self, PURE};
use crate::{assert_none, read};

/// The entries that each restriction must contain at least.
const RESTRICTIONS: [&str; 9] = [
    "std::time::SystemTime::now",
    "std::time::Instant::now",
    "std::fs::read",
    "std::fs::File",
    "std::net::TcpStream",
    "std::env::var",
    "std::thread::spawn",
    "std::collections::HashMap",
    "std::collections::HashSet",
];

/// Returns the missing entries of a `clippy.toml`.
fn missing(text: &str, root: &str) -> Vec<String> {
    let settings = root.lines().filter(|line| !text.lines().any(|own| own == *line));
    let settings = settings.map(|line| format!("the root's setting `{line}`"));
    let restrictions = RESTRICTIONS
        .iter()
        .filter(|restriction| !text.contains(&format!("{{ path = \"{restriction}\", reason")));
    settings
        .chain(restrictions.map(|restriction| format!("`{restriction}` with a reason")))
        .collect()
}

#[test]
fn pure_crates_have_the_restrictions_and_the_settings_of_the_root() {
    let root = read("clippy.toml");
    let metadata = arrows::metadata();
    let mut complaints = Vec::new();
    let mut texts = Vec::new();
    for name in PURE {
        let packages = metadata["packages"].as_array().unwrap().iter();
        let mut own = packages.filter(|p| p["name"] == name && p["source"].is_null());
        let manifest = own.next().unwrap()["manifest_path"].as_str().unwrap().to_owned();
        let file = Path::new(&manifest).with_file_name("clippy.toml");
        let text = std::fs::read_to_string(&file).unwrap_or_default();
        complaints.extend(missing(&text, &root).iter().map(|what| format!("{name} lacks {what}")));
        texts.push((name, text));
    }
    let differing = texts.iter().filter(|(_, text)| *text != texts[0].1);
    complaints.extend(differing.map(|(name, _)| format!("{name} and {} differ", texts[0].0)));
    assert_none("clippy.toml of pure and deterministic crates", &complaints);
}

/// Goal: the crate `node` has the restrictions of the pure crates and of the store. It is
/// deterministic, but depends on crates that are not. Its exceptions are in its code.
#[test]
fn the_node_has_the_restrictions_of_pure_crates_and_of_the_store() {
    let (own, store) = (read("local-store/node/clippy.toml"), read("local-store/clippy.toml"));
    let settings: Vec<_> = store.lines().filter(|line| !line.starts_with('#')).collect();
    assert_none("local-store/node/clippy.toml lacks", &missing(&own, &settings.join("\n")));
}

#[test]
fn the_store_has_the_settings_of_the_root() {
    let (root, own) = (read("clippy.toml"), read("local-store/clippy.toml"));
    let lacks = root.lines().filter(|line| !own.lines().any(|other| other == *line));
    let mut complaints: Vec<_> = lacks.map(|line| format!("the root's setting `{line}`")).collect();
    for lock in ["Mutex", "RwLock", "Condvar"] {
        if !own.contains(&format!("{{ path = \"std::sync::{lock}\", reason")) {
            complaints.push(format!("`std::sync::{lock}` with a reason"));
        }
    }
    assert_none("local-store/clippy.toml lacks", &complaints);
}

/// The entry points of the programs that serve or store data, and the functions that start them.
const BEGINNINGS: [(&str, &str); 3] = [
    ("local-store/command-line/src/main.rs", "fn main()"),
    ("runner/src/main.rs", "fn main()"),
    ("functions/processor/src/lambda.rs", "pub async fn run_"),
];

#[test]
fn programs_end_at_a_poisoned_lock() {
    let ends = |(path, beginning): &(&str, &str)| {
        let text = read(path);
        let (all, ending) =
            (text.matches(beginning), text.matches("locks::abort_when_poisoned();"));
        let (all, ending) = (all.count(), ending.count());
        (all == 0 || ending < all).then(|| format!("{path}: {ending} of {all}"))
    };
    let complaints: Vec<_> = BEGINNINGS.iter().filter_map(ends).collect();
    assert_none("these do not call `locks::abort_when_poisoned` first", &complaints);
}

#[test]
fn missing_restrictions_are_found() {
    let whole: String = RESTRICTIONS
        .iter()
        .map(|restriction| format!("{{ path = \"{restriction}\", reason = \"\" }}\n"))
        .collect();
    assert!(missing(&format!("a = 1\n{whole}"), "a = 1\n").is_empty());
    let without_clock = whole.replace("std::time::Instant::now", "std::time::Duration::new");
    let found = missing(&without_clock, "a = 1\n");
    assert_eq!(found, ["the root's setting `a = 1`", "`std::time::Instant::now` with a reason"]);
}
