//! A check for import cycles: files of a crate that import each other, directly or indirectly.
//!
//! A cycle may consist only of a file and its parts: `foo/mod.rs` and files below `foo/`. The
//! crate's root counts as a file like any other. It may re-export items of its modules, so a module
//! must import an item from the file that defines it. `imports` reads the files.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use crate::imports::{self, Graph, Module};
use crate::{arrows, assert_none};

/// Modules that all import each other, directly or indirectly.
type ImportCycle = BTreeSet<Module>;

/// Returns every module that a module imports, directly or indirectly.
fn reachable<'g>(graph: &'g Graph, start: &Module) -> BTreeSet<&'g Module> {
    let (mut seen, mut open) = (BTreeSet::new(), vec![start]);
    while let Some(module) = open.pop() {
        for imported in &graph[module] {
            if seen.insert(imported) {
                open.push(imported);
            }
        }
    }
    seen
}

/// Returns the strongly connected components of more than one module.
fn cycles(graph: &Graph) -> Vec<ImportCycle> {
    let reach: BTreeMap<_, _> =
        graph.keys().map(|module| (module, reachable(graph, module))).collect();
    let mut found: Vec<ImportCycle> = Vec::new();
    for (module, reached) in &reach {
        if found.iter().any(|cycle| cycle.contains(*module)) {
            continue;
        }
        let cycle: ImportCycle = reached
            .iter()
            .filter(|other| reach[**other].contains(module))
            .map(|m| (*m).clone())
            .collect();
        if cycle.len() > 1 {
            found.push(cycle);
        }
    }
    found
}

/// Returns whether one module of the cycle contains all others, and is not the crate's root.
fn is_a_file_and_its_parts(cycle: &ImportCycle) -> bool {
    let shortest = cycle.iter().min_by_key(|module| module.len());
    shortest.is_some_and(|top| !top.is_empty() && cycle.iter().all(|part| part.starts_with(top)))
}

/// Returns a shortest path from a module through its cycle back to the same module.
fn shortest_loop(graph: &Graph, cycle: &ImportCycle, start: &Module) -> Vec<Module> {
    let mut ways = vec![vec![start.clone()]];
    let mut seen = BTreeSet::new();
    while !ways.is_empty() {
        let mut longer = Vec::new();
        for way in ways {
            for next in graph[&way[way.len() - 1]].intersection(cycle) {
                let way = [way.as_slice(), std::slice::from_ref(next)].concat();
                if next == start {
                    return way;
                }
                if seen.insert(next.clone()) {
                    longer.push(way);
                }
            }
        }
        ways = longer;
    }
    Vec::new()
}

fn show(module: &Module) -> String {
    if module.is_empty() { "the crate's root".to_owned() } else { module.join("::") }
}

/// Returns the files of a cycle, and one loop through it.
fn describe(graph: &Graph, cycle: &ImportCycle) -> String {
    let files: Vec<_> = cycle.iter().map(show).collect();
    let loops = cycle.iter().map(|start| shortest_loop(graph, cycle, start));
    let shortest = loops.min_by_key(Vec::len).unwrap_or_default();
    let way: Vec<_> = shortest.iter().map(show).collect();
    format!("{} files: {}; a loop: {}", files.len(), files.join(", "), way.join(" -> "))
}

/// Returns the root files of each crate's library and binaries.
fn roots() -> Vec<(String, PathBuf)> {
    let metadata = arrows::metadata();
    let members = arrows::members(&metadata);
    let mut roots = Vec::new();
    for package in metadata["packages"].as_array().unwrap() {
        let name = package["name"].as_str().unwrap();
        if !members.contains_key(name) || package["source"].is_string() {
            continue;
        }
        for target in package["targets"].as_array().unwrap() {
            let is = |kind: &str| target["kind"].as_array().unwrap().iter().any(|k| k == kind);
            if is("lib") || is("bin") {
                roots.push((name.to_owned(), target["src_path"].as_str().unwrap().into()));
            }
        }
    }
    roots
}

/// Returns the cycles of a crate that are larger than a file and its parts.
fn large(graph: &Graph) -> Vec<ImportCycle> {
    let mut cycles = cycles(graph);
    cycles.retain(|cycle| !is_a_file_and_its_parts(cycle));
    cycles
}

#[test]
fn no_import_cycle_is_larger_than_a_file_and_its_parts() {
    let mut complaints = Vec::new();
    for (name, file) in roots() {
        let graph = imports::graph_of(&|path| std::fs::read_to_string(path).ok(), &file);
        let found = large(&graph).into_iter();
        complaints.extend(found.map(|cycle| format!("{name}: {}", describe(&graph, &cycle))));
    }
    assert_none("import cycles", &complaints);
}

/// Returns the import graph of a crate with these files, each with its path below `src/` and its
/// text.
fn graph(files: &[(&str, &str)]) -> Graph {
    let read = |path: &std::path::Path| {
        let found = files.iter().find(|(name, _)| path == PathBuf::from("src").join(name));
        found.map(|(_, text)| (*text).to_owned())
    };
    imports::graph_of(&read, &PathBuf::from("src/lib.rs"))
}

/// Returns the cycles in a crate with these files, without cycles of a file and its parts.
fn large_cycles(files: &[(&str, &str)]) -> Vec<Vec<String>> {
    let large = large(&graph(files)).into_iter();
    large.map(|cycle| cycle.iter().map(|module| module.join("::")).collect()).collect()
}

#[test]
fn two_files_that_import_each_other_are_a_circle() {
    let root = ("lib.rs", "mod a;\nmod b;\nmod c;");
    let b = ("b.rs", "fn f() -> u8 { crate::a::f() }");
    let c = ("c/mod.rs", "use crate::{a::{self, f as g}, b};");
    for (text, expected) in [
        ("use crate::b::f;", vec![vec!["a", "b"]]),
        ("use super::b;", vec![vec!["a", "b"]]),
        ("use std::b; // crate::b::f", vec![]),
        ("/* /* */ use crate::b; */ const A: &str = \"crate::b\";", vec![]),
        (
            "const A: &str = r#\"\"crate::b\"#; const B: char = '\"'; use crate::c;",
            vec![vec!["a", "b", "c"]],
        ),
        ("fn f<'a>(b: &'a str) { crate::b::f(b) }", vec![vec!["a", "b"]]),
        ("mod inner { use super::super::b; }", vec![vec!["a", "b"]]),
        ("mod inner { use super::b; }", vec![]),
        ("pub(in crate::b) fn f() {}", vec![]),
    ] {
        assert_eq!(large_cycles(&[root, ("a.rs", text), b, c]), expected, "{text}");
    }
}

#[test]
fn a_reexport_counts_for_the_file_that_reexports() {
    let files = |text| {
        [("lib.rs", "mod a;\nmod b;\npub use b::B;"), ("a.rs", "pub fn f() {}"), ("b.rs", text)]
    };
    assert!(large_cycles(&files("use crate::a::f;")).is_empty());
    assert_eq!(
        large_cycles(&files("use crate::B;")),
        [["", "b"]],
        "the root is no file with parts"
    );
    let through_module = [
        ("lib.rs", "mod a;\nmod b;"),
        ("a.rs", "use crate::b; fn f() { b::c::f() }"),
        ("b/mod.rs", "mod c;\npub use c::f;"),
        ("b/c.rs", "use crate::a::f;"),
    ];
    assert_eq!(large_cycles(&through_module), [["a", "b", "b::c"]]);
}

#[test]
fn a_file_and_its_parts_may_be_a_circle() {
    let root = ("lib.rs", "mod a;");
    let (a, b) = (("a.rs", "mod b;\nmod c;\nuse b::f;"), ("a/b.rs", "use super::c;"));
    assert!(large_cycles(&[root, a, b, ("a/c.rs", "use crate::a::g;")]).is_empty());
    assert!(large_cycles(&[root, a, b, ("a/c.rs", "")]).is_empty());
    let parts_alone = large_cycles(&[root, a, b, ("a/c.rs", "use super::b;")]);
    assert_eq!(parts_alone, [["a::b", "a::c"]]);
}

#[test]
fn test_modules_do_not_count() {
    let files = |a| [("lib.rs", "mod a;\nmod b;"), ("a.rs", a), ("b.rs", "use crate::a::f;")];
    for a in [
        "#[cfg(test)]\nmod tests { use crate::b; }",
        "#[cfg(test)]\nmod tests;",
        "#[cfg(all(test, unix))]\n#[expect(dead_code)]\nfn f(a: [u8; 2]) { crate::b::f() }",
        "#[cfg(test)]\nuse crate::b;",
    ] {
        assert!(large_cycles(&files(a)).is_empty(), "{a}");
    }
    assert!(!large_cycles(&files("#[cfg(unix)]\nuse crate::b;")).is_empty());
}
