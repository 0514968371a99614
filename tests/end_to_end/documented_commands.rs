//! Test that the commands and flags in the documents exist in the help of the programs.
//!
//! This test runs only `--help`; `documents` runs the commands of README.md and of the help.

use std::fs;
use std::path::{Path, PathBuf};

use crate::process::{binary, root};

/// Returns the help of a program's verb; `None` if the program has no such subcommand.
fn help_of(program: &str, path: &[String]) -> Option<String> {
    let output = binary(program).args(path).arg("--help").output().unwrap();
    output.status.success().then(|| String::from_utf8_lossy(&output.stdout).into_owned())
}

/// Returns whether a help contains a subcommand or a flag.
fn names(help: &str, word: &str) -> bool {
    let is_end = |rest: &str| !rest.starts_with(|c: char| c.is_ascii_alphanumeric() || c == '-');
    help.match_indices(word).any(|(place, _)| {
        let before = help.get(..place).unwrap_or_default();
        let starts = before.ends_with([' ', '[', '<']);
        starts && is_end(help.get(place + word.len()..).unwrap_or_default())
    })
}

/// Returns the commands in a document: in code blocks and between backticks.
fn commands_shown(text: &str) -> Vec<String> {
    let text = text.replace("\\\n", " ");
    let mut shown = Vec::new();
    for (number, part) in text.split("```").enumerate() {
        let lines: Vec<&str> = match number % 2 {
            1 => part.lines().collect(),
            _ => part.split('`').skip(1).step_by(2).collect(),
        };
        let commands = lines.iter().map(|line| line.split("  #").next().unwrap_or_default().trim());
        shown.extend(commands.map(|line| line.replace("cargo run -- ", "weir ")));
    }
    shown
}

/// Returns the files in a folder and its subfolders.
fn files_below(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    entries.flat_map(|path| if path.is_dir() { files_below(&path) } else { vec![path] }).collect()
}

#[test]
fn every_command_and_flag_that_a_document_names_is_there() {
    let mut paths = files_below(&root().join("docs"));
    paths.sort();
    paths.push(root().join("README.md"));
    let (mut looked_up, mut wrong) = (0, Vec::new());
    for path in paths.iter().filter(|path| path.extension().is_some_and(|it| it == "md")) {
        for command in commands_shown(&fs::read_to_string(path).unwrap()) {
            let mut words = command.split_whitespace();
            let Some(program @ ("weir" | "local-store")) = words.next() else { continue };
            looked_up += 1;
            if let Err(missing) = look_up(program, words) {
                wrong.push(format!("{}: `{command}`: {missing}", path.display()));
            }
        }
    }
    assert!(looked_up > 100, "{looked_up}");
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// Looks up the subcommands and flags of a command in the help.
fn look_up<'a>(program: &str, words: impl Iterator<Item = &'a str>) -> Result<(), String> {
    let mut path = Vec::new();
    let mut help = help_of(program, &path).ok_or("no help")?;
    let (mut is_verb, mut after_flag) = (true, false);
    for word in words {
        if ["|", "&&", "#", ">"].contains(&word) {
            break;
        }
        let has_verbs = help.contains("\nCommands:\n");
        if is_verb && has_verbs && word.starts_with(|c: char| c.is_ascii_lowercase()) {
            path.push(word.trim_end_matches([',', ';']).to_owned());
            match help_of(program, &path) {
                Some(of_verb) => help = of_verb,
                // A word after a flag is the value of the flag.
                None if after_flag => drop(path.pop()),
                None => return Err(format!("there is no `{word}`")),
            }
        } else if word.starts_with("--") {
            let flag = word.split('=').next().unwrap_or(word).trim_end_matches(']');
            if !names(&help, flag) {
                return Err(format!("there is no `{flag}`"));
            }
        } else {
            is_verb = false;
        }
        after_flag = word.starts_with("--") && !word.contains('=');
    }
    Ok(())
}
