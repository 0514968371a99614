//! Generates docs/parity.md: each rule of mappings and streams, Weir's tests of the rule, and the
//! behaviour of other local tools. `UPDATE=1 cargo test -p mapping parity` writes the page.
//!
//! Cases of `testdata` test the rules; `text_tests` and `filter` run them. The page also names
//! tests in Rust. `tests/parity/run` recorded the behaviour of MiniStack and moto; the last column
//! gives sources for other tools.

mod facts;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

use facts::{FACTS, Source};

/// A rule of the page, with its number and AWS's behaviour. Its tests are cases
/// (`file: beginning of the comment`) and tests in Rust. `others` describes tools that were not
/// probed.
struct Rule {
    number: &'static str,
    text: &'static str,
    cases: &'static [(&'static str, &'static str)],
    tests: &'static [(&'static str, &'static str)],
    others: &'static str,
}

const RULES: &[Rule] = &[
    Rule {
        number: "1",
        text: "The checkpoint is the last record up to which all records are finished; with several lanes it is the lowest of their checkpoints",
        cases: &[
            ("machine/lanes", "The checkpoint is the contiguous minimum"),
            ("machine/lanes", "A restart delivers again what was done beyond"),
        ],
        tests: &[(
            "runner/mapping/src/property_tests.rs",
            "fn every_record_is_done_or_given_up_in_order",
        )],
        others: "LocalStack, floci and vorpalstacks keep checkpoints in memory, so a restart begins from scratch",
    },
    Rule {
        number: "2",
        text: "`ParallelizationFactor` keeps the order of records of the same item, not of the same partition key",
        cases: &[
            ("machine/lanes", "Two lanes: a and b fall into one"),
            ("machine/lanes", "A newer record of the failing item waits"),
        ],
        tests: &[],
        others: "LocalStack and vorpalstacks store the setting and do not use it",
    },
    Rule {
        number: "3",
        text: "A child shard is read from its beginning, after its parent is fully processed",
        cases: &[
            ("machine/lineage", "A child is read when its parent is done"),
            ("machine/lineage", "The records of the last page count"),
            ("machine/lineage", "A tombstone keeps a finished shard"),
        ],
        tests: &[(
            "tests/end_to_end/pipe.rs",
            "fn shards_that_rotate_while_votes_arrive_lose_none",
        )],
        others: "LocalStack does not follow a shard that splits; floci and yulin have one constant shard",
    },
    Rule {
        number: "4",
        text: "The page without a next iterator can contain records; a closed shard without a known child is listed again; a shard that is listed before it is readable is not a gap",
        cases: &[
            ("machine/lineage", "The records of the last page count"),
            ("machine/lineage", "A shard that ends without a known child"),
            ("machine/lineage", "An open parent that has a child is read on"),
            ("machine/reading", "A child that is listed before it can be read is tried again"),
        ],
        tests: &[],
        others: "not known",
    },
    Rule {
        number: "5",
        text: "An expired iterator is replaced by an iterator after the last record; trimmed records that were not read are reported as a gap",
        cases: &[
            ("machine/reading", "An expired iterator"),
            ("machine/reading", "Nothing was read yet"),
            ("machine/reading", "Trimmed: a gap is reported"),
        ],
        tests: &[],
        others: "LocalStack streams stop after idling (localstack#8378, #5182)",
    },
    Rule {
        number: "6",
        text: "`LATEST` applies to the shards that exist when the mapping begins; later shards are read from their beginning",
        cases: &[
            ("machine/lineage", "LATEST is for the shards that take records"),
            ("machine/lineage", "A shard that appears later is read from its beginning"),
        ],
        tests: &[],
        others: "not known",
    },
    Rule {
        number: "7",
        text: "`ReportBatchItemFailures`: the numerically lowest identifier counts; an unknown identifier fails the entire batch",
        cases: &[
            ("machine/partial_batch", "Several items: the numerically lowest counts"),
            ("machine/partial_batch", "An identifier that is not in the batch"),
            ("machine/partial_batch", "The empty string is success"),
            ("machine/partial_batch", "A wrong key name"),
        ],
        tests: &[],
        others: "LocalStack, floci (#3466) and yulin (#371) support it; the AWS .NET test tool logs errors and drops them",
    },
    Rule {
        number: "8",
        text: "Bisecting and throttles use no retry; the age of each record is checked, even before its first delivery",
        cases: &[
            ("machine/retries", "Bisect: halves"),
            ("machine/retries", "A function that was not reached uses up no retry"),
            ("machine/record_age", "MaximumRecordAgeInSeconds is per record"),
            ("machine/record_age", "A record can be too old before its first delivery"),
        ],
        tests: &[],
        others: "LocalStack does not bisect, and never discards DynamoDB records by age; yulin (#1296) and vorpalstacks bisect",
    },
    Rule {
        number: "9",
        text: "Filtered records advance the checkpoint; `numeric` never matches an `N`; `exists` checks only leaves, so `exists: false` on an attribute always matches",
        cases: &[
            ("machine/batching", "Filtered records do not count for the batch"),
            ("machine/batching", "A page of filtered records alone"),
            ("filter/dynamodb_traps", "A DynamoDB number is a string"),
            ("filter/dynamodb_traps", "exists: false on the attribute itself always matches"),
        ],
        tests: &[],
        others: "LocalStack filters; yulin rejects FilterCriteria (#1347)",
    },
    Rule {
        number: "10",
        text: "A tumbling window has one lane; every response must contain its state of at most 1 MB; the end of the shard closes it",
        cases: &[
            ("machine/tumbling", "Windows are aligned to 1970"),
            ("machine/tumbling", "An answer without a state"),
            ("machine/tumbling", "The end of the shard closes the window"),
            ("machine/tumbling", "A state over 1 MB"),
        ],
        tests: &[],
        others: "vorpalstacks supports tumbling windows; LocalStack and floci do not",
    },
    Rule {
        number: "11",
        text: "6 MB is the limit of the entire event; a larger single record is still sent as its own batch",
        cases: &[
            ("machine/batching", "6 MB end a batch"),
            ("machine/batching", "A record that is larger than that goes alone"),
        ],
        tests: &[("runner/mapping/src/queue.rs", "fn a_batch_ends_at_six_megabytes_to_the_byte")],
        others: "not known",
    },
    Rule {
        number: "12",
        text: "A write that changes nothing creates no stream record; each changed item of a transaction creates one record",
        cases: &[],
        tests: &[(
            "local-store/partition/src/machine/tests.rs",
            "fn histories_keep_every_invariant",
        )],
        others: "DynamoDB Local 3.3.0 writes TTL deletions as `UNKNOWN_TO_SDK_VERSION` without `userIdentity`",
    },
    Rule {
        number: "13",
        text: "A stream that is enabled again has a new ARN and therefore new checkpoints",
        cases: &[("machine/lineage", "A disabled stream that is drained has ended")],
        tests: &[
            (
                "local-store/partition/src/machine/tests.rs",
                "fn a_stream_that_is_enabled_again_is_another_stream",
            ),
            (
                "runner/local/src/poller/checkpoint_store.rs",
                "fn a_stream_that_was_enabled_again_has_other_checkpoints",
            ),
        ],
        others: "floci: a recreated table skipped records (#2076)",
    },
];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Returns the comment of a case without the fact numbers at its beginning.
fn without_numbers(line: &str) -> Option<&str> {
    let mut rest = line.strip_prefix("# ")?;
    while let Some((_, behind)) = rest.strip_prefix('[').and_then(|it| it.split_once("] ")) {
        rest = behind;
    }
    Some(rest)
}

/// Returns, for each fact's number, the files of `testdata` that test the fact and the number of
/// cases in each file.
fn cases_by_number(testdata: &Path) -> BTreeMap<String, BTreeMap<String, usize>> {
    let mut found: BTreeMap<String, BTreeMap<String, usize>> = BTreeMap::new();
    for folder in ["machine", "filter"] {
        for entry in fs::read_dir(testdata.join(folder)).unwrap() {
            let path = entry.unwrap().path();
            let file = format!("{folder}/{}", path.file_stem().unwrap().to_str().unwrap());
            for line in fs::read_to_string(&path).unwrap().lines() {
                let mut rest = line.strip_prefix("# ").unwrap_or_default();
                while let Some((number, behind)) =
                    rest.strip_prefix('[').and_then(|it| it.split_once("] "))
                {
                    let files = found.entry(number.to_owned()).or_default();
                    *files.entry(file.clone()).or_default() += 1;
                    rest = behind;
                }
            }
        }
    }
    found
}

/// Returns the second table of the page: each fact with its cases and tests.
fn facts_table(testdata: &Path) -> String {
    let mut held = cases_by_number(testdata);
    let mut table = String::from(FACTS_HEAD);
    for fact in FACTS {
        let files = held.remove(fact.number).unwrap_or_default();
        let mut here: Vec<String> = files
            .into_iter()
            .map(|(file, count)| {
                let what = if count == 1 { "case" } else { "cases" };
                format!("{count} {what} in [{file}](../runner/mapping/testdata/{file}.txt)")
            })
            .collect();
        here.extend(fact.tests.iter().map(|(file, piece)| link_to_test(file, piece)));
        assert!(!here.is_empty(), "fact {} has no test", fact.number);
        let source = match fact.source {
            Source::Documented => "documented",
            Source::Recorded => "recorded",
        };
        let (number, text, here) = (fact.number, fact.text, here.join("; "));
        writeln!(table, "| {number} | {text} | {source} | {here} |").unwrap();
    }
    assert!(held.is_empty(), "cases name unknown facts: {:?}", held.keys());
    let numbers: BTreeSet<_> = FACTS.iter().map(|fact| fact.number).collect();
    assert_eq!(numbers.len(), FACTS.len(), "two facts have the same number");
    table
}

/// Returns a link to a test. Panics if the test does not exist.
fn link_to_test(file: &str, piece: &str) -> String {
    let text = fs::read_to_string(root().join(file)).unwrap();
    assert!(text.contains(piece), "{file}: {piece}");
    format!("[{}](../{file})", file.rsplit('/').next().unwrap())
}

/// Returns the recorded behaviour of each probed tool, by rule.
fn seen() -> BTreeMap<String, BTreeMap<String, Vec<String>>> {
    let text = fs::read_to_string(root().join("tests/parity/seen.tsv")).unwrap();
    let mut seen: BTreeMap<String, BTreeMap<String, Vec<String>>> = BTreeMap::new();
    for line in text.lines() {
        let [tool, rule, _probe, word, what] = line.split('\t').collect::<Vec<_>>()[..] else {
            panic!("`{line}` does not have five columns")
        };
        assert!(["same", "differs", "no answer"].contains(&word), "{line}");
        let cell = if word == "same" { what.to_owned() } else { format!("**{word}**: {what}") };
        seen.entry(rule.to_owned()).or_default().entry(tool.to_owned()).or_default().push(cell);
    }
    seen
}

#[test]
fn the_page_says_what_the_cases_and_the_probes_say() {
    let testdata = Path::new(env!("CARGO_MANIFEST_DIR")).join("testdata");
    let seen = seen();
    let mut page = String::from(HEAD);
    for Rule { number, text, cases, tests, others } in RULES {
        let mut here = Vec::new();
        let mut files: BTreeMap<&str, usize> = BTreeMap::new();
        for (file, beginning) in *cases {
            let path = testdata.join(format!("{file}.txt"));
            let found = fs::read_to_string(&path).unwrap();
            let is_there = found.lines().any(|line| {
                without_numbers(line).is_some_and(|comment| comment.starts_with(beginning))
            });
            assert!(is_there, "rule {number}: {file} has no case `{beginning}`");
            *files.entry(file).or_default() += 1;
        }
        for (file, count) in files {
            let what = if count == 1 { "case" } else { "cases" };
            here.push(format!("{count} {what} in [{file}](../runner/mapping/testdata/{file}.txt)"));
        }
        here.extend(tests.iter().map(|(file, piece)| link_to_test(file, piece)));
        assert!(!here.is_empty(), "rule {number} has no test");
        let by_tool = seen.get(*number);
        let of = |name: &str| {
            by_tool
                .and_then(|tools| tools.iter().find(|(tool, _)| tool.starts_with(name)))
                .map_or_else(|| "not probed".to_owned(), |(_, cells)| cells.join("; "))
        };
        if let Some(own) = by_tool.and_then(|tools| tools.get("Weir")) {
            assert!(own.iter().all(|cell| !cell.starts_with("**")), "rule {number}: {own:?}");
            here.extend(own.iter().cloned());
        }
        let here = here.join("; ");
        writeln!(
            page,
            "| {number} | {text} | {here} | {} | {} | {others} |",
            of("MiniStack"),
            of("moto")
        )
        .unwrap();
    }
    page += &facts_table(&testdata);
    let path = root().join("docs/parity.md");
    if std::env::var_os("UPDATE").is_some() {
        fs::write(&path, &page).unwrap();
    }
    let written = fs::read_to_string(&path).unwrap();
    assert_eq!(written, page, "UPDATE=1 cargo test -p mapping parity writes docs/parity.md");
}

const HEAD: &str = "# Parity with AWS

For engineers who want to know how closely a local tool follows Lambda's event source mappings and DynamoDB Streams.
Afterwards you can compare tools rule by rule, and find Weir's test of each rule.
This page is a reference. A test generates it, and fails if it is outdated.

- `cargo test -p mapping` runs the cases in text files, `cargo test` runs all tests that this page names.
- `tests/parity/run` probes MiniStack and moto again; *differs* means that the result differs from AWS. moto runs functions in Docker, which was not available, so its probes with a function have no answer.
- The last column quotes sources and issues of other tools as of 2026-09; they change quickly.

| rule | AWS | tested here by | MiniStack | moto | others |
|---|---|---|---|---|---|
";

const FACTS_HEAD: &str = "
## Known facts about AWS

*Documented* facts come from the AWS Lambda guide and the DynamoDB guide; *recorded* facts come from AWS's responses to the tests that LocalStack records.
Each case has the number of the fact that it tests.

| | fact | known from | tested here by |
|---|---|---|---|
";
