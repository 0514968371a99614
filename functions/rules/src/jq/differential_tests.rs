//! Compares the results of this module with recorded results of the `jq` command.

#![expect(clippy::disallowed_methods, reason = "the answers are in files")]

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use super::{Fault, Program, Val, json, read};

fn folder() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("testdata/jq")
}

/// Returns the cases of a file: an expression, an input, and jq's answer.
fn cases(text: &str) -> Vec<(String, String, String)> {
    let case = |block: &str| {
        let (head, answer) = block.split_once("\n----").unwrap();
        let (expression, input) = head.rsplit_once('\n').unwrap();
        (expression.to_owned(), input.to_owned(), answer.trim_matches('\n').to_owned())
    };
    text.trim_matches('\n').split("\n\n").map(case).collect()
}

/// Returns the result of this module in the form of a recorded answer.
fn answer(expression: &str, input: &Val) -> Result<Vec<Val>, Fault> {
    let program = Program::parse(expression).map_err(|error| Fault::Refused(error.reason))?;
    program.run(input, 10_000)
}

fn recorded(answer: &str) -> Option<Vec<Val>> {
    let fails = answer.lines().any(|line| line.starts_with("error: ") || line == "not a program");
    (!fails).then(|| answer.lines().map(|line| read(line).unwrap()).collect())
}

/// Returns whether the values are equal, including every digit of their numbers. `-0` equals 0.
/// Strings must be identical, even if they contain numbers.
fn is_same(ours: &[Val], jqs: &[Val]) -> bool {
    // Infinity and NaN are compared in their written form.
    let written = |values: &[Val]| -> Vec<Val> {
        values.iter().map(|value| read(&json::write(value)).unwrap()).collect()
    };
    written(ours) == jqs && written(ours).iter().zip(jqs).all(|(a, b)| names(a) == names(b))
}

/// Returns the names in a value in their order, which jq's `==` ignores.
fn names(value: &Val) -> Vec<String> {
    match value {
        Val::Arr(array) => array.members().iter().flat_map(names).collect(),
        Val::Obj(object) => {
            let members = object.members().iter();
            members
                .flat_map(|(name, value)| [vec![name.to_string()], names(value)].concat())
                .collect()
        }
        _ => Vec::new(),
    }
}

#[test]
fn values_and_errors_are_those_of_jq_or_refused() {
    let (mut pairs, mut equal, mut refused) = (0, 0, BTreeMap::new());
    let mut wrong = Vec::new();
    let mut files: Vec<_> =
        std::fs::read_dir(folder()).unwrap().map(|file| file.unwrap().path()).collect();
    files.sort();
    for path in files {
        for (expression, input, jq) in cases(&std::fs::read_to_string(path).unwrap()) {
            pairs += 1;
            let ours = answer(&expression, &read(&input).unwrap());
            match (ours, recorded(&jq)) {
                (Err(_), None) => equal += 1,
                (Ok(ours), Some(jqs)) if is_same(&ours, &jqs) => equal += 1,
                // A refusal must be listed with its reason.
                (Err(Fault::Refused(reason)), Some(_)) => {
                    refused.insert(format!("{expression}\t{input}"), reason);
                }
                // A failure is worse than a refusal: `try` catches a failure, so the program would
                // yield a different value than jq.
                (Err(Fault::Failed(reason)), Some(_)) => {
                    wrong.push(format!("{expression} of {input} fails: {reason}, jq: {jq}"));
                }
                (Ok(ours), jqs) => {
                    let ours: Vec<_> = ours.iter().map(json::write).collect();
                    wrong.push(format!("{expression} of {input}: {ours:?}, jq: {jqs:?} {jq}"));
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{} of {pairs}:\n{}", wrong.len(), wrong.join("\n"));
    assert!(pairs >= 1_000 && equal * 20 >= pairs * 19, "{equal} of {pairs} are equal");
    let found: BTreeSet<String> =
        refused.iter().map(|(case, reason)| format!("{case}\t{reason}")).collect();
    let list = folder().with_file_name("jq-refused.tsv");
    if std::env::var_os("WRITE_REFUSED").is_some() {
        let lines: Vec<_> = found.iter().map(String::as_str).collect();
        std::fs::write(&list, lines.join("\n") + "\n").unwrap();
    }
    let listed: BTreeSet<String> =
        std::fs::read_to_string(&list).unwrap().lines().map(str::to_owned).collect();
    let unlisted: Vec<_> = found.symmetric_difference(&listed).collect();
    assert!(
        unlisted.is_empty(),
        "not as in jq-refused.tsv (WRITE_REFUSED=1 rewrites it): {unlisted:#?}"
    );
}

#[test]
fn filters_outside_of_the_item_and_endless_ones_are_refused() {
    for expression in [
        "input",
        "inputs",
        "env",
        "$ENV",
        "now",
        "halt",
        "halt_error",
        "debug",
        "stderr",
        "localtime",
        "strflocaltime(\"%Y\")",
        "input_line_number",
        "builtins",
        "repeat(.)",
        "$__loc__",
        "$__prog_args",
        "def f: f; f",
        "import \"a\" as a; 1",
        ". as [$a] ?// $a | $a",
        "getpath",
        "nosuch",
        "@base32",
    ] {
        assert!(Program::parse(expression).is_err(), "{expression}");
    }
    for expression in [
        "[range(1e12)] | length",
        "[recurse(. + 1)] | length",
        "[limit(1e12; range(1e12))] | length",
        "until(false; . + 1)",
        "reduce range(1000) as $i (.; [.])",
        "reduce range(60) as $i (.; [., .])",
        "reduce range(60) as $i (\"abc\"; . + .)",
        "\"abc\" * 1e12",
        ".[1e9] = 1",
        "[range(100000)] | [combinations(3)]",
        "[range(3000)] | map([range(3000)]) | length",
    ] {
        let ended = Program::parse(expression).unwrap().run(&Val::Null, 1);
        let fault = ended.expect_err(expression);
        let is_refused = matches!(&fault, Fault::Refused(why) if why.starts_with("the program "));
        assert!(is_refused, "{expression}: {fault}");
    }
    let caught = "try ([range(1e12)] | length) catch 1";
    assert!(Program::parse(caught).unwrap().run(&Val::Null, 1).is_err());
}

#[test]
fn a_long_program_runs_and_a_longer_one_is_refused() {
    for (first, more) in [("1", " | . + 1"), ("1", " + 1"), ("true", " and true"), ("1", ", 1")] {
        let program = format!("{first}{}", more.repeat(100));
        let values = Program::parse(&program).unwrap().run(&Val::Null, 1_000);
        assert!(values.is_ok(), "{more}: {values:?}");
        let program = format!("{first}{}", more.repeat(4_000));
        assert!(Program::parse(&program).is_err(), "{more}");
    }
    for (open, close) in
        [("[", "]"), ("(", ")"), ("{a: ", "}"), ("[.[] | ", "]"), ("if ", "1 then 1 end")]
    {
        for depth in [20, 5_000] {
            let program = format!("{}1{}", open.repeat(depth), close.repeat(depth));
            assert_eq!(Program::parse(&program).is_ok(), depth == 20 && open != "if ", "{open}");
        }
    }
}
