//! A check that every listener of the product uses the gate: no other code accepts connections or
//! serves HTTP.

use std::collections::BTreeSet;

use crate::{assert_none, files, read};

/// Code that opens a listener or serves HTTP. Each string is written in parts, so that the check
/// does not report this file.
const MARKS: [&str; 4] = [
    concat!("TcpListener::", "bind("),
    concat!("UnixListener::", "bind("),
    concat!("TcpSocket::", "new_v"),
    concat!("server::", "conn::"),
];
/// Files that may contain such code, and the reasons.
const EXCEPTIONS: [(&str, &str); 3] = [
    ("local-store/server/src/gate/bound_listener.rs", "the gate's own, and the port for peers"),
    ("local-store/server/src/gate/connection.rs", "the gate's own"),
    ("runner/src/doctor.rs", "looks whether a port is free and accepts nothing"),
];

/// Returns whether a file belongs to the product, not to its tests.
fn is_product(path: &str) -> bool {
    let is_test = |part: &str| {
        let name = part.trim_end_matches(".rs");
        name.starts_with("test") || name.ends_with("_tests") || name == "scripted"
    };
    ["local-store/", "runner/", "functions/processor/src/"]
        .iter()
        .any(|folder| path.starts_with(folder))
        && path.contains("/src/")
        && !path.starts_with("local-store/simulation/")
        && !path.split('/').any(is_test)
}

#[test]
fn every_listener_goes_through_the_gate() {
    let mut complaints = Vec::new();
    let mut unused: Vec<_> = EXCEPTIONS.iter().map(|(path, _)| *path).collect();
    for path in files().iter().filter(|path| is_product(path)) {
        let text = read(path);
        let product = text.split("#[cfg(test)]\nmod tests {").next().unwrap_or_default();
        if !MARKS.iter().any(|mark| product.contains(mark)) {
            continue;
        }
        if unused.contains(&path.as_str()) {
            unused.retain(|exception| exception != path);
        } else {
            complaints.push(format!("{path}: serve with `server::gate::Listener`"));
        }
    }
    complaints.extend(unused.iter().map(|path| format!("{path} no longer needs its exception")));
    assert_none("listeners outside of the gate", &complaints);
}

/// Returns the names in calls that bind a port, from `call` to the next quotation mark.
fn names_of_ports(text: &str, call: &str) -> Vec<String> {
    let name = |rest: &str| rest.strip_prefix('"')?.split('"').next().map(str::to_owned);
    text.split(call).skip(1).filter_map(name).collect()
}

#[test]
fn the_security_page_has_every_listener() {
    const CALLS: [&str; 4] =
        ["BoundListener::new(", "BoundListener::with_keys(", "bind(", "take_port("];
    let mut names = BTreeSet::new();
    for path in files().iter().filter(|path| is_product(path)) {
        let text = read(path);
        let product = text.split("#[cfg(test)]\nmod tests {").next().unwrap_or_default();
        names.extend(CALLS.iter().flat_map(|call| names_of_ports(product, call)));
    }
    assert!(names.len() >= 6, "{names:?}");
    let page = read("SECURITY.md");
    let (_, table) = page.split_once("| part | listens on |").unwrap();
    let rows = table.lines().skip(1).take_while(|line| line.starts_with('|'));
    let parts: Vec<&str> = rows.filter_map(|row| row.split('|').nth(1)).collect();
    let missing = names.iter().filter(|name| !parts.iter().any(|part| part.contains(*name)));
    let missing: Vec<String> = missing.cloned().collect();
    assert_none("listeners that the table of SECURITY.md lacks", &missing);
}
