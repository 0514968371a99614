//! What `explain` says of a record, from journals as mappings write them: one line for each entry.

use super::*;
use crate::journal::{Entry, Journal, RecordName};

fn record(sequence: &str) -> RecordName {
    RecordName(sequence.to_owned(), format!("id-{sequence}"), "MODIFY".to_owned())
}

/// `invoked BATCH ATTEMPT SEQ…`, `ok BATCH`, `failed BATCH DONE REASON…`, `gave-up FIRST LAST KEY`,
/// `passed-over SEQ WHY…`; an attempt takes 7 ms.
fn entry(line: &str) -> Entry {
    let words: Vec<&str> = line.split_whitespace().collect();
    let (mapping, shard) = ("votes".to_owned(), "shardId-1".to_owned());
    let batch = || words[1].parse::<u64>().unwrap();
    match words[0] {
        "invoked" => Entry::Invoked {
            mapping,
            shard,
            at_ms: 5,
            tick_ms: 100 * batch(),
            batch: batch(),
            attempt: words[2].parse().unwrap(),
            records: words[3..].iter().map(|sequence| record(sequence)).collect(),
        },
        "ok" => Entry::Succeeded { mapping, tick_ms: 100 * batch() + 7, batch: batch() },
        "failed" => Entry::Failed {
            mapping,
            tick_ms: 100 * batch() + 7,
            batch: batch(),
            done: words[2].parse().unwrap(),
            reason: words[3..].join(" "),
        },
        "gave-up" => Entry::GaveUp {
            mapping,
            shard,
            at_ms: 6,
            first: words[1].to_owned(),
            last: words[2].to_owned(),
            count: 1,
            condition: "RetryAttemptsExhausted".to_owned(),
            key: Some(words[3].to_owned()),
        },
        "passed-over" => Entry::PassedOver {
            mapping,
            shard,
            at_ms: 5,
            record: record(words[1]),
            why: vec![words[2..].join(" ")],
        },
        other => panic!("unknown line {other}"),
    }
}

fn explain(lines: &str, sequence: &str) -> String {
    let folder = tempfile::tempdir().unwrap();
    let journal = Journal::begin(folder.path(), 1).unwrap();
    journal.introduce(Entry::Mapping {
        mapping: "votes".to_owned(),
        function: "counters".to_owned(),
        table: "votes".to_owned(),
        stream: "arn".to_owned(),
        filters: Vec::new(),
        bucket: Some("failures".to_owned()),
    });
    journal.write(lines.lines().map(entry));
    let history = history_of(Reader::open(folder.path()).unwrap(), sequence);
    let verdicts = verdicts(&history, None, None, sequence);
    text(sequence, &history, Err(&NotFound::Gone), &verdicts)
}

/// A batch of four whose third record is bad: bisected twice, then retried alone and given up.
const BISECTED: &str = "\
invoked 1 1 41 42 43 44
failed 1 0 Unhandled: bad
invoked 2 1 41 42
ok 2
invoked 3 1 43 44
failed 3 0 Unhandled: bad
invoked 4 1 43
failed 4 0 Unhandled: bad
invoked 5 2 43
failed 5 0 Unhandled: bad
gave-up 43 43 aws/lambda/x
invoked 6 1 44
ok 6";

#[test]
fn a_bisected_batch_is_a_tree() {
    let expected = "\
record 43  votes  MODIFY  shardId-1
 (from the journal alone: the record is no longer in a stream)
 └─ votes  given up       RetryAttemptsExhausted, kept in s3://failures/aws/lambda/x
     batch 1-1 (4 records) · attempt 1 · error after 7 ms: Unhandled: bad
       batch 1-2 (2 records) (another part) · attempt 1 · ok 7 ms
       batch 1-3 (2 records) · attempt 1 · error after 7 ms: Unhandled: bad
         batch 1-4 (1 record) · attempt 1 · error after 7 ms: Unhandled: bad
         batch 1-5 (1 record) · attempt 2 · error after 7 ms: Unhandled: bad
         batch 1-6 (1 record) (another part) · attempt 1 · ok 7 ms
";
    assert_eq!(explain(BISECTED, "43"), expected);
    let other = explain(BISECTED, "41");
    assert!(other.contains(" └─ votes  delivered\n"), "{other}");
}

#[test]
fn a_partial_answer_and_a_filter_are_named() {
    let partial =
        "invoked 1 1 41 42\nfailed 1 1 the function reported 42 as failed\ninvoked 2 1 42\nok 2";
    let expected = "\
record 42  votes  MODIFY  shardId-1
 (from the journal alone: the record is no longer in a stream)
 └─ votes  delivered
     batch 1-1 (2 records) · attempt 1 · error, 1 done after 7 ms: the function reported 42 as failed
       batch 1-2 (1 record) · attempt 1 · ok 7 ms
";
    assert_eq!(explain(partial, "42"), expected);
    let filtered = explain("passed-over 9 `eventName` wants \"REMOVE\", found \"MODIFY\"", "9");
    let line = " └─ votes  filtered out   `eventName` wants \"REMOVE\", found \"MODIFY\"\n";
    assert!(filtered.ends_with(line), "{filtered}");
}
