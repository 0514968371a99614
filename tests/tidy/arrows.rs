//! A check of the allowed dependencies between crates, with `cargo metadata`.

use std::collections::{BTreeMap, BTreeSet};
use std::process::Command;

use serde_json::Value;

use crate::{assert_none, root};

/// Every crate of this project, and the project's crates that it may use. ARCHITECTURE.md has the
/// same list.
const ARROWS: [(&str, &[&str]); 26] = [
    ("locks", &[]),
    ("model", &[]),
    ("rules", &["model", "locks"]),
    ("control", &["rules"]),
    ("processor", &["control", "rules", "model", "locks"]),
    ("expression", &["model"]),
    ("partition", &["expression", "model"]),
    ("base2histogram", &[]),
    ("platform", &[]),
    ("storage", &["partition", "platform", "locks"]),
    ("node", &["storage", "partition", "expression", "model", "locks"]),
    ("server", &["node", "storage", "partition", "expression", "model", "platform", "locks"]),
    ("local-store", &["server", "node", "partition", "platform", "locks"]),
    ("simulation", &["server", "node", "storage", "partition", "expression", "model", "locks"]),
    ("mapping", &["model"]),
    ("template", &["mapping"]),
    ("design", &["template", "model"]),
    ("client", &["template", "mapping", "model", "locks"]),
    ("local", &["client", "template", "mapping", "server", "node", "model", "platform", "locks"]),
    (
        "operations",
        &[
            "client", "design", "template", "mapping", "control", "rules", "model", "platform",
            "locks",
        ],
    ),
    ("load", &["operations", "client", "template", "model"]),
    (
        "console",
        &[
            "local",
            "operations",
            "client",
            "template",
            "mapping",
            "control",
            "local-store",
            "server",
            "model",
            "locks",
        ],
    ),
    (
        "runner",
        &[
            "console",
            "load",
            "local",
            "operations",
            "client",
            "design",
            "template",
            "mapping",
            "rules",
            "server",
            "model",
            "platform",
            "locks",
        ],
    ),
    ("testing", &["client", "server"]),
    ("load-generator", &["storage"]),
    ("tests", &[]),
];

/// Crates that a pure or deterministic crate must not depend on, not even indirectly.
const SHELL_ONLY: [&str; 9] = [
    "tokio",
    "hyper",
    "reqwest",
    "rand",
    "getrandom",
    "lsm-tree",
    "aws-config",
    "lambda_runtime",
    "mio",
];
/// Crates without a clock, a disk, a socket, randomness or async, each with a `clippy.toml` that
/// forbids them.
pub(crate) const PURE: [&str; 7] =
    ["model", "rules", "control", "expression", "partition", "mapping", "design"];
/// A crate with the same restrictions, except that it opens packages to find out how a function is
/// built.
const ALMOST_PURE: &str = "template";

pub(crate) fn metadata() -> Value {
    // The local registry contains only the crates for this machine's target.
    let rustc = Command::new("rustc").arg("-vV").output().expect("rustc runs");
    let version = String::from_utf8_lossy(&rustc.stdout).into_owned();
    let host = version.lines().find_map(|line| line.strip_prefix("host: ")).expect("a host");
    let output = Command::new(env!("CARGO"))
        .args(["metadata", "--format-version", "1", "--offline", "--locked"])
        .args(["--filter-platform", host])
        .current_dir(root())
        .output()
        .expect("cargo runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).expect("cargo metadata is JSON")
}

/// Returns the packages of the workspace and the names of their direct dependencies, without
/// dependencies of tests.
pub(crate) fn members(metadata: &Value) -> BTreeMap<String, BTreeSet<String>> {
    let ids: BTreeSet<_> = metadata["workspace_members"]
        .as_array()
        .unwrap()
        .iter()
        .map(|id| id.as_str().unwrap())
        .collect();
    let name = |value: &Value| value["name"].as_str().unwrap().to_owned();
    metadata["packages"]
        .as_array()
        .unwrap()
        .iter()
        .filter(|package| ids.contains(package["id"].as_str().unwrap()))
        .map(|package| {
            let dependencies = package["dependencies"].as_array().unwrap().iter();
            (name(package), dependencies.filter(|d| d["kind"] != "dev").map(name).collect())
        })
        .collect()
}

#[test]
fn crates_depend_only_along_the_arrows() {
    let members = members(&metadata());
    let known: BTreeSet<_> = ARROWS.iter().map(|(name, _)| (*name).to_owned()).collect();
    assert_eq!(members.keys().cloned().collect::<BTreeSet<_>>(), known, "crates of the workspace");
    let mut complaints = Vec::new();
    for (name, allowed) in ARROWS {
        for dependency in members[name].intersection(&known) {
            if !allowed.contains(&dependency.as_str()) {
                complaints.push(format!("{name} -> {dependency}"));
            }
        }
    }
    assert_none("these dependencies are not allowed", &complaints);
}

#[test]
fn architecture_states_the_same_arrows() {
    let text = crate::read("ARCHITECTURE.md");
    let complaints: Vec<_> = ARROWS
        .iter()
        .filter(|(_, to)| !to.is_empty())
        .map(|(from, to)| format!("{from} -> {}", to.join(", ")))
        .filter(|line| !text.contains(line))
        .collect();
    assert_none("ARCHITECTURE.md lacks these lines", &complaints);
}

#[test]
fn pure_crates_reach_nothing_of_the_shell() {
    let metadata = metadata();
    let mut edges: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    let mut names: BTreeMap<&str, &str> = BTreeMap::new();
    for package in metadata["packages"].as_array().unwrap() {
        names.insert(package["id"].as_str().unwrap(), package["name"].as_str().unwrap());
    }
    for node in metadata["resolve"]["nodes"].as_array().unwrap() {
        let normal = |dep: &&Value| {
            dep["dep_kinds"].as_array().unwrap().iter().any(|kind| kind["kind"].is_null())
        };
        let targets = node["deps"].as_array().unwrap().iter().filter(normal);
        edges.insert(
            node["id"].as_str().unwrap(),
            targets.map(|dep| dep["pkg"].as_str().unwrap()).collect(),
        );
    }
    let mut complaints = Vec::new();
    for (start, name) in
        names.iter().filter(|(_, name)| PURE.contains(name) || **name == ALMOST_PURE)
    {
        let (mut seen, mut open) = (BTreeSet::new(), vec![*start]);
        while let Some(id) = open.pop() {
            if seen.insert(id) {
                open.extend(&edges[id]);
                if SHELL_ONLY.contains(&names[id]) {
                    complaints.push(format!("{name} reaches {}", names[id]));
                }
            }
        }
    }
    assert_none("pure and deterministic crates reach the shell", &complaints);
}
