//! A check that the references in documents exist: links to files and headings, and paths between
//! backticks.
//!
//! Web links are not checked. The end-to-end tests check commands.

use std::collections::BTreeSet;

use crate::{assert_none, files, read};

/// Returns the Markdown files of the repository.
fn documents() -> Vec<String> {
    files().into_iter().filter(|path| path.ends_with(".md")).collect()
}

/// Returns a path without `.` and `..`, relative to the folder of a document.
fn resolved(document: &str, link: &str) -> String {
    let mut parts: Vec<&str> = document.split('/').collect();
    parts.pop();
    for part in link.split('/') {
        match part {
            "" | "." => {}
            ".." => {
                parts.pop();
            }
            part => parts.push(part),
        }
    }
    parts.join("/")
}

/// Returns every file, and every folder that contains a file.
fn places(files: &[String]) -> BTreeSet<String> {
    let mut places = BTreeSet::new();
    for file in files {
        let mut path = file.as_str();
        while places.insert(path.to_owned()) {
            path = path.rsplit_once('/').map_or("", |(folder, _)| folder);
        }
    }
    places
}

/// Returns a heading's anchor.
fn anchor(heading: &str) -> String {
    let kept = heading.trim().to_lowercase();
    let kept = kept.chars().filter(|c| c.is_alphanumeric() || [' ', '-', '_'].contains(c));
    kept.collect::<String>().replace(' ', "-")
}

/// Returns the targets of the links in a text, without links in code.
fn links(text: &str) -> Vec<String> {
    let prose: String = text.split("```").step_by(2).collect();
    let prose: String = prose.split('`').step_by(2).collect();
    let behind = prose.split("](").skip(1);
    behind.filter_map(|rest| rest.split_once(')')).map(|(target, _)| target.to_owned()).collect()
}

#[test]
fn links_of_documents_lead_somewhere() {
    let places = places(&files());
    let (mut complaints, mut followed) = (Vec::new(), 0);
    for document in documents() {
        for link in links(&read(&document)) {
            if link.contains("://") || link.starts_with("mailto:") {
                continue;
            }
            followed += 1;
            let (path, heading) = link.split_once('#').unwrap_or((&link, ""));
            let target = if path.is_empty() { document.clone() } else { resolved(&document, path) };
            if !places.contains(&target) {
                complaints.push(format!("{document}: {link}"));
            } else if !heading.is_empty()
                && !read(&target)
                    .lines()
                    .filter(|line| line.starts_with('#'))
                    .any(|line| anchor(line.trim_start_matches('#')) == heading)
            {
                complaints.push(format!("{document}: {link}: no such heading"));
            }
        }
    }
    assert!(followed > 100, "{followed}");
    assert_none("these links are broken", &complaints);
}

#[test]
fn paths_that_documents_name_are_there() {
    let files = files();
    let places = places(&files);
    let folders: BTreeSet<&str> =
        files.iter().filter_map(|path| path.split_once('/')).map(|(folder, _)| folder).collect();
    let (mut complaints, mut looked_up) = (Vec::new(), 0);
    for document in documents() {
        // The changelog and the decisions may refer to files that no longer exist.
        if document == "CHANGELOG.md" || document.starts_with("docs/decisions/") {
            continue;
        }
        let text = read(&document);
        let prose: String = text.split("```").step_by(2).collect();
        for code in prose.split('`').skip(1).step_by(2) {
            let path = code.split_whitespace().next().unwrap_or_default();
            let path = path.trim_end_matches('/');
            // `state/<index>` and `tests/*/run` are patterns, and data folders are not in the
            // repository.
            let is_plain = !path.contains(['<', '*', '{', '$', ':', '…', '#']);
            let starts = path.split_once('/').is_some_and(|(folder, _)| folders.contains(folder));
            if is_plain && starts {
                looked_up += 1;
                if !places.contains(path) {
                    complaints.push(format!("{document}: `{code}`"));
                }
            }
        }
    }
    assert!(looked_up > 30, "{looked_up}");
    assert_none("these paths do not exist", &complaints);
}
