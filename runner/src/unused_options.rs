//! Reports options that every command accepts but the given command ignores, before the command
//! starts.
//!
//! If an option has no effect on the given table, template or state, its command reports the
//! option. The test in this file lists all options of all commands, so that a new option cannot be
//! forgotten.

use clap::ArgMatches;
use clap::parser::ValueSource;

use client::output::no_effect;

/// An option that several commands accept.
struct SharedOption {
    /// The name of the argument in clap.
    id: &'static str,
    flag: &'static str,
    /// The first word of the commands that accept the option; empty for all commands.
    within: &'static str,
    /// True if `verbs` are the only commands that use the option; false if `verbs` are the only
    /// commands that ignore the option.
    are_users: bool,
    verbs: &'static [&'static str],
}

const USE_TEMPLATE: &[&str] = &["demo", "up", "check", "load", "counters", "fan-out", "doctor"];
const HAVE_HOOKS: &[&str] =
    &["migrate cutover", "migrate revert", "migrate complete", "migrate abort"];

const SHARED: [SharedOption; 5] = [
    SharedOption {
        id: "template",
        flag: "--template",
        within: "",
        are_users: true,
        verbs: USE_TEMPLATE,
    },
    SharedOption {
        id: "parameters",
        flag: "--parameter",
        within: "",
        are_users: true,
        verbs: USE_TEMPLATE,
    },
    SharedOption {
        id: "output",
        flag: "--output",
        within: "",
        are_users: false,
        verbs: &["up", "model template", "model export", "invoke", "console", "mcp", "completions"],
    },
    SharedOption {
        id: "folder",
        flag: "--hooks",
        within: "migrate",
        are_users: true,
        verbs: HAVE_HOOKS,
    },
    SharedOption {
        id: "hook-timeout",
        flag: "--hook-timeout",
        within: "migrate",
        are_users: true,
        verbs: HAVE_HOOKS,
    },
];

/// Reports the options on the command line that `verb` ignores.
pub(crate) fn report(verb: &str, matches: &ArgMatches) {
    for option in ignored(verb, matches) {
        no_effect(option, &format!("`weir {verb}` does not use it"));
    }
}

fn ignored(verb: &str, matches: &ArgMatches) -> Vec<&'static str> {
    let mut own = matches;
    while let Some((_, inner)) = own.subcommand() {
        own = inner;
    }
    let is_one_of = |verbs: &[&str]| verbs.iter().any(|of| begins_with(verb, of));
    let ignores = |option: &&SharedOption| {
        begins_with(verb, option.within)
            && is_one_of(option.verbs) != option.are_users
            && own.try_contains_id(option.id).is_ok_and(|is_there| is_there)
            && own.value_source(option.id) == Some(ValueSource::CommandLine)
    };
    SHARED.iter().filter(ignores).map(|option| option.flag).collect()
}

/// Returns whether a command begins with these words.
fn begins_with(verb: &str, words: &str) -> bool {
    let rest = verb.strip_prefix(words);
    words.is_empty() || rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(' '))
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, BTreeSet};
    use std::path::Path;

    use super::*;
    use crate::command_line::{parser, verb_of};

    #[test]
    fn an_option_that_a_verb_ignores_is_reported() {
        for (line, expected) in [
            ("streams ls --template t.yaml", &["--template"][..]),
            ("--template t.yaml --parameter A=1 streams ls", &["--template", "--parameter"]),
            ("up --template t.yaml --output json", &["--output"]),
            ("check --output json", &[]),
            ("counters read c --parameter A=1", &[]),
            ("migrate list --hooks h --hook-timeout 5", &["--hooks", "--hook-timeout"]),
            ("migrate cutover shop --hooks h", &[]),
            ("archive ls --folder f", &[]),
        ] {
            let words = std::iter::once("weir").chain(line.split(' '));
            let matches = parser().try_get_matches_from(words).unwrap();
            assert_eq!(ignored(&verb_of(&matches), &matches), expected, "{line}");
        }
    }

    /// Returns the options of each command, without the options in `SHARED`.
    fn options(command: &clap::Command, path: &str, all: &mut BTreeMap<String, BTreeSet<String>>) {
        for inner in command.get_subcommands().filter(|inner| inner.get_name() != "help") {
            options(inner, format!("{path} {}", inner.get_name()).trim_start(), all);
        }
        if command.has_subcommands() {
            return;
        }
        let is_shared = |flag: &str| {
            let of_verb = |it: &&SharedOption| begins_with(path, it.within);
            SHARED.iter().filter(of_verb).any(|shared| shared.flag == flag)
        };
        let flags = command.get_arguments();
        let flags = flags.filter_map(|argument| Some(format!("--{}", argument.get_long()?)));
        let flags = flags.filter(|flag| !matches!(flag.as_str(), "--help" | "--version"));
        all.insert(path.to_owned(), flags.filter(|flag| !is_shared(flag)).collect());
    }

    /// Each line of the list has a command and its options that always have an effect. After `|` it
    /// has the other options, each with the file that reports or refuses the option if it has no
    /// effect.
    #[test]
    fn every_option_always_has_an_effect_or_is_reported() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR"));
        let mut command = parser();
        command.build();
        let (mut found, mut listed) = (BTreeMap::new(), BTreeMap::new());
        options(&command, "", &mut found);
        for line in
            include_str!("../testdata/options.txt").lines().filter(|it| !it.starts_with('#'))
        {
            let (verb, rest) = line.split_once(':').unwrap();
            let (always, reported) = rest.split_once('|').unwrap_or((rest, ""));
            let mut flags: BTreeSet<String> =
                always.split_whitespace().map(str::to_owned).collect();
            let reported: Vec<&str> = reported.split_whitespace().collect();
            for pair in reported.chunks(2) {
                let text = std::fs::read_to_string(root.join(pair[1])).unwrap();
                assert!(
                    text.contains(&format!("\"{}", pair[0])),
                    "{line}: {} in {}",
                    pair[0],
                    pair[1]
                );
                flags.insert(pair[0].to_owned());
            }
            listed.insert(verb.to_owned(), flags);
        }
        for (verb, flags) in &found {
            let known = listed.get(verb).cloned().unwrap_or_default();
            assert_eq!(&known, flags, "`{verb}` in testdata/options.txt");
        }
        assert_eq!(listed.len(), found.len());
    }
}
