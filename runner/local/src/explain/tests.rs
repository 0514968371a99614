//! Tests of the answers of `explain`, with journals like those of real mappings. Each line of a
//! test's text is one journal entry.

use std::path::Path;

use super::verdict::UndeliveredRecord;
use super::*;
use crate::journal::{Entry, Journal, Messages, RecordName};
use crate::redrive::log::Redrive;

fn record(sequence: &str) -> RecordName {
    RecordName(sequence.to_owned(), format!("id-{sequence}"), "MODIFY".to_owned())
}

/// Parses one journal entry: `invoked BATCH ATTEMPT SEQ…`, `ok BATCH`, `failed BATCH DONE REASON…`,
/// `gave-up FIRST LAST KEY`, `unstored WHY…` or `passed-over SEQ WHY…`. An attempt takes 7 ms.
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
            request: None,
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
        "unstored" => {
            Entry::DestinationUnavailable { mapping, shard, at_ms: 6, reason: words[1..].join(" ") }
        }
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

/// Returns the first entry of a mapping, with this bucket, queue or topic.
fn introduction(bucket: Option<&str>, messages: Option<Messages>) -> Entry {
    Entry::Mapping {
        mapping: "votes".to_owned(),
        function: "counters".to_owned(),
        table: "votes".to_owned(),
        stream: "arn".to_owned(),
        filters: Vec::new(),
        bucket: bucket.map(str::to_owned),
        messages,
        report_batch_item_failures: true,
        starting_position: None,
    }
}

fn explain(lines: &str, sequence: &str) -> String {
    explain_with(lines, sequence, (Some("failures"), None), &[]).0
}

/// Returns the text and the argument of the suggested `redrive`, for a mapping with this bucket,
/// queue or topic.
fn explain_with(
    lines: &str,
    sequence: &str,
    (bucket, messages): (Option<&str>, Option<Messages>),
    redrives: &[Redrive],
) -> (String, Option<String>) {
    let folder = tempfile::tempdir().unwrap();
    let journal = Journal::begin(folder.path(), 1).unwrap();
    journal.introduce(introduction(bucket, messages));
    journal.write(lines.lines().map(entry));
    let history = history_of(Reader::open(folder.path()).unwrap(), sequence);
    let place = Surroundings {
        found: None,
        status: None,
        directory: Path::new("up"),
        redrives,
        shard: history.shard.as_deref(),
        is_running: true,
        hindered: None,
    };
    let verdicts = verdicts(&history, &place, sequence);
    let object = verdicts[0].failure_object.clone();
    (text(sequence, &history, Err(&NotFound::Gone), &verdicts), object)
}

/// A batch of four records whose third record always fails: the batch is bisected twice, then this
/// record is retried in its own batch and discarded.
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
 (from the journal only: the record is no longer in a stream)
 └─ votes  discarded      RetryAttemptsExhausted, stored in s3://failures/aws/lambda/x
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

/// Goal: a sequence number with leading zeros, as in the archive, is found.
#[test]
fn a_number_may_have_zeros_before_it() {
    let end_of = |sequence: &str| {
        let text = explain(BISECTED, sequence);
        text.split_once('\n').map(|(_, verdicts)| verdicts.to_owned())
    };
    assert_eq!(end_of("00043"), end_of("43"));
    assert_ne!(end_of("00041"), end_of("43"));
}

#[test]
fn a_partial_answer_and_a_filter_are_named() {
    let partial =
        "invoked 1 1 41 42\nfailed 1 1 the function reported 42 as failed\ninvoked 2 1 42\nok 2";
    let expected = "\
record 42  votes  MODIFY  shardId-1
 (from the journal only: the record is no longer in a stream)
 └─ votes  delivered
     batch 1-1 (2 records) · attempt 1 · error, 1 done after 7 ms: the function reported 42 as failed
       batch 1-2 (1 record) · attempt 1 · ok 7 ms
";
    assert_eq!(explain(partial, "42"), expected);
    let filtered = explain("passed-over 9 `eventName` wants \"REMOVE\", found \"MODIFY\"", "9");
    let line = " └─ votes  filtered out   `eventName` wants \"REMOVE\", found \"MODIFY\"\n";
    assert!(filtered.ends_with(line), "{filtered}");
}

#[test]
fn a_discarded_record_is_shown_with_its_place() {
    let queue = Messages::Queue("Failed".to_owned());
    let topic = Messages::Topic("Alarms".to_owned());
    let cases = [
        ((Some("failures"), None), "stored in s3://failures/aws/lambda/x", Some("aws/lambda/x")),
        (
            (None, Some(queue)),
            "stored in up/destinations/Failed/x.json",
            Some("up/destinations/Failed/x.json"),
        ),
        (
            (None, Some(topic)),
            "stored in up/destinations/Alarms/x.json",
            Some("up/destinations/Alarms/x.json"),
        ),
        ((None, None), "stored below up/destinations, in a file `x.json`", None),
    ];
    for (destination, place, object) in cases {
        let (text, found) = explain_with(BISECTED, "43", destination, &[]);
        assert!(text.contains(&format!("RetryAttemptsExhausted, {place}\n")), "{text}");
        assert_eq!(found.as_deref(), object, "{text}");
    }
}

#[test]
fn a_record_between_discarded_ones_was_filtered_out() {
    let lines = "\
passed-over 42 because
invoked 1 1 41 43
failed 1 0 Unhandled: bad
gave-up 41 43 aws/lambda/x";
    let text = explain(lines, "42");
    assert!(text.ends_with(" └─ votes  filtered out   because\n"), "{text}");
    assert!(explain(lines, "41").contains("discarded"));
}

/// Goal: a record that was discarded and then redriven is reported as redriven.
#[test]
fn a_redriven_record_is_reported_as_that() {
    let redrive = |at_ms, done| Redrive {
        at_ms,
        function: "counters".to_owned(),
        stream: Some("arn".to_owned()),
        shard: None,
        sequences: vec!["43".to_owned()],
        done,
    };
    let said =
        |redrives: &[Redrive]| explain_with(BISECTED, "43", (Some("failures"), None), redrives).0;
    let given_up = "RetryAttemptsExhausted, stored in s3://failures/aws/lambda/x";
    let (first, second) = ("1970-01-01T00:00:00.001Z", "1970-01-01T00:00:00.002Z");
    for (redrives, expected) in [
        (vec![redrive(1, 0)], format!("discarded      {given_up}; the redrive at {first} failed")),
        (
            vec![redrive(1, 0), redrive(2, 1), redrive(3, 0)],
            format!("redriven       processed at {second}; discarded earlier: {given_up}"),
        ),
    ] {
        let said = said(&redrives);
        assert!(said.contains(&format!(" └─ votes  {expected}\n")), "{said}");
    }
}

fn waiting<'a>(
    mapping: &'a str,
    sequence: &'a str,
    shard: Option<&'a str>,
) -> UndeliveredRecord<'a> {
    let (missed, starts_at, is_running, hindered) = (0, None, true, None);
    UndeliveredRecord { mapping, sequence, shard, missed, starts_at, is_running, hindered }
}

/// Goal: a record's state follows its own shard.
#[test]
fn the_state_of_a_waiting_record_follows_its_own_shard() {
    let shard = |id: &str, state: &str, checkpoint: &str, last_read: &str| json!({"id": id, "state": state, "checkpoint": checkpoint, "last_read": last_read});
    let status = json!({"mappings": [
        {"mapping": "votes", "shards": [
            shard("a", "retrying", "3", "90"), shard("b", "caught up", "80", "80"),
            shard("c", "working", "3", "50"), shard("d", "gap", "3", "4"),
            {"id": "f", "state": "done", "checkpoint": null, "last_read": "50"},
        ]},
        {"mapping": "over", "ended": true, "end": "its stream is disabled", "shards": []},
    ]});
    let latest = Some("LATEST");
    for (mapping, of, missed, expected) in [
        ("votes", Some("a"), 0, "it waits behind a failing batch"),
        (
            "votes",
            Some("b"),
            0,
            "it was processed or discarded, but the journal no longer has the outcome",
        ),
        ("votes", Some("b"), 7, "it was processed or discarded; the journal lacks 7 reports"),
        ("votes", Some("c"), 0, "it was read and waits for its batch"),
        ("votes", Some("d"), 0, "its shard is blocked at a gap"),
        ("votes", Some("e"), 0, "its shard has not been read yet"),
        (
            "votes",
            Some("f"),
            0,
            "it was processed or discarded, but the journal no longer has the outcome",
        ),
        ("votes", None, 0, "its shard has not been read yet"),
        ("over", Some("a"), 0, "the mapping has ended: its stream is disabled"),
        ("other", Some("a"), 0, "the mapping is not running"),
    ] {
        let waiting = UndeliveredRecord { missed, ..waiting(mapping, "41", of) };
        let said = waiting.text(Some(&status));
        assert!(said.starts_with(expected), "{mapping} {of:?}: {said}");
    }
    for (of, sequence, starts_at, expected) in [
        (
            "b",
            "41",
            latest,
            "it was written before the mapping started (`StartingPosition: LATEST`), or it was processed",
        ),
        ("b", "41", None, "it was processed or discarded, but"),
        (
            "b",
            "81",
            latest,
            "it was written before the mapping started (`StartingPosition: LATEST`), or",
        ),
        ("b", "81", None, "it has not been read yet"),
        ("c", "51", latest, "it has not been read yet"),
    ] {
        let of = Some(of);
        let waiting = UndeliveredRecord { starts_at, ..waiting("votes", sequence, of) };
        let said = waiting.text(Some(&status));
        assert!(said.starts_with(expected), "{of:?} {sequence}: {said}");
    }
}

/// Goal: the answer lists every mapping of the table, including mappings that do not run.
#[test]
fn mappings_that_do_not_run_are_listed() {
    let status = json!({
        "disabled": [{"mapping": "off", "function": "f", "table": "votes"}],
        "not_run": [
            {"mapping": "elsewhere", "function": "g", "table": "votes", "reason": "only Rust"},
            {"mapping": "other", "function": "h", "table": "movies", "reason": "only Rust"},
            {"mapping": "unknown", "function": "h", "table": null, "reason": "only Rust"},
        ],
    });
    let found = Found {
        table: "votes".to_owned(),
        shard: "a".to_owned(),
        record: Record::new(
            SequenceNumber::parse("41").unwrap(),
            None,
            None,
            r#"{"eventName":"INSERT"}"#.into(),
        ),
    };
    let place = Surroundings {
        found: Some(&found),
        status: Some(&status),
        directory: Path::new("up"),
        redrives: &[],
        shard: None,
        is_running: true,
        hindered: None,
    };
    let verdicts = verdicts(&History::default(), &place, "41");
    let said = text("41", &History::default(), Ok(&found), &verdicts);
    let expected = "record 41  votes  INSERT  a
 ├─ off        not delivered  the mapping is disabled now (`Enabled: false` in the template)
 └─ elsewhere  not delivered  the mapping's function does not run on this machine: only Rust
";
    assert_eq!(said, expected);
}

#[test]
fn a_discarded_record_waits_for_its_destination() {
    let failed = "invoked 1 1 41\nfailed 1 0 bad\nunstored no bucket";
    let waits =
        "in progress    discarded; its batch waits for the OnFailure destination: no bucket";
    assert!(explain(failed, "41").contains(waits), "{}", explain(failed, "41"));
    let again = explain(&format!("{failed}\ninvoked 2 2 41"), "41");
    assert!(again.contains("no attempt has succeeded yet"), "{again}");
    let kept = explain(&format!("{failed}\ngave-up 41 41 aws/lambda/x"), "41");
    assert!(kept.contains("discarded      RetryAttemptsExhausted, stored in"), "{kept}");
}

/// Goal: a record is blocked if its batch has failed, and the status says that its shard retries.
#[test]
fn a_record_of_a_failing_batch_is_blocked() {
    let status = |failed_attempts: u32| {
        let shard =
            json!({"id": "shardId-1", "state": "retrying", "failed_attempts": failed_attempts});
        json!({"mappings": [{"mapping": "votes", "shards": [shard]}]})
    };
    let again = "invoked 1 1 41\nfailed 1 0 bad\ninvoked 2 2 41";
    for (lines, failed_attempts, is_running, expected) in [
        ("invoked 1 1 41\nfailed 1 0 bad", 1, true, true),
        (again, 1, true, true),
        (again, 1, false, false),
        (again, 0, true, false),
        // Another batch of the shard fails.
        ("invoked 1 1 41", 1, true, false),
        ("invoked 1 1 40 41\nfailed 1 0 bad\ninvoked 2 2 40 41\nok 2", 1, true, false),
    ] {
        let folder = tempfile::tempdir().unwrap();
        let journal = Journal::begin(folder.path(), 1).unwrap();
        journal.introduce(introduction(None, None));
        journal.write(lines.lines().map(entry));
        let history = history_of(Reader::open(folder.path()).unwrap(), "41");
        let place = Surroundings {
            found: None,
            status: Some(&status(failed_attempts)),
            directory: Path::new("up"),
            redrives: &[],
            shard: history.shard.as_deref(),
            is_running,
            hindered: None,
        };
        let verdicts = verdicts(&history, &place, "41");
        assert_eq!(verdicts[0].is_blocked, expected, "{lines} {failed_attempts} {is_running}");
    }
}

/// Goal: an attempt whose outcome the journal lacks is reported as running, as cut off by a kill, or as
/// ended. The checkpoint and the run decide which.
#[test]
fn an_attempt_without_an_outcome_is_over_once_its_run_is() {
    let missed = "the outcome is not in the journal: `weir up` was killed or";
    let not_yet = "· the outcome is not in the journal yet";
    let shard =
        |checkpoint: &str| json!({"id": "shardId-1", "state": "working", "checkpoint": checkpoint});
    let status = |checkpoint: &str| json!({"mappings": [{"mapping": "votes", "shards": [shard(checkpoint)]}]});
    let (before, past) = (status("40"), status("41"));
    for (runs, status, is_running, outcome, detail, end) in [
        (1, Some(&before), true, "in progress", "no attempt has succeeded yet", "· running"),
        (1, None, true, "in progress", "no attempt has succeeded yet", "· running"),
        (1, None, false, "in progress", "no attempt is known to have succeeded;", missed),
        (2, Some(&before), true, "in progress", "no attempt has succeeded yet", missed),
        (2, Some(&past), true, "end unknown", "not have the outcome: `weir up` was killed", missed),
        (
            1,
            Some(&past),
            true,
            "end unknown",
            "not have the outcome yet; run this command again",
            not_yet,
        ),
    ] {
        let folder = tempfile::tempdir().unwrap();
        for run in 0..runs {
            let journal = Journal::begin(folder.path(), 1).unwrap();
            journal.introduce(introduction(None, None));
            if run == 0 {
                journal.write(std::iter::once(entry("invoked 1 1 41")));
            }
        }
        let history = history_of(Reader::open(folder.path()).unwrap(), "41");
        let place = Surroundings {
            found: None,
            status,
            directory: Path::new("up"),
            redrives: &[],
            shard: history.shard.as_deref(),
            is_running,
            hindered: None,
        };
        let said = text("41", &history, Err(&NotFound::Gone), &verdicts(&history, &place, "41"));
        for expected in [outcome, detail, end] {
            assert!(said.contains(expected), "{expected}: {said}");
        }
        assert_eq!(said.contains("killed"), end == missed, "{said}");
    }
}

/// Goal: if the journal cannot be written, the answer has the reason, and does not suggest another
/// run of the command.
#[test]
fn a_journal_that_cannot_be_written_is_explained_without_a_rerun() {
    let shard = |checkpoint: &str| json!({"id": "s", "state": "working", "checkpoint": checkpoint});
    let status = |checkpoint: &str| json!({"mappings": [{"mapping": "votes", "shards": [shard(checkpoint)]}]});
    let (before, past) = (status("40"), status("41"));
    let full = Some("the journal cannot be written: make room");
    for (status, is_running, hindered, expected) in [
        (
            Some(&past),
            true,
            full,
            "does not have the outcome: the journal cannot be written: make room",
        ),
        (
            Some(&past),
            true,
            None,
            "it was processed or discarded, but the journal no longer has the outcome",
        ),
        (Some(&before), true, full, "it has not been read yet"),
        (None, true, full, "`weir up` is running, but its status is unknown"),
        (None, false, None, "`weir up` is not running"),
    ] {
        let waiting =
            UndeliveredRecord { is_running, hindered, ..waiting("votes", "41", Some("s")) };
        let said = waiting.text(status);
        assert!(said.contains(expected), "{said}");
    }

    let folder = tempfile::tempdir().unwrap();
    let journal = Journal::begin(folder.path(), 1).unwrap();
    journal.introduce(introduction(None, None));
    journal.write(std::iter::once(entry("invoked 1 1 41")));
    let history = history_of(Reader::open(folder.path()).unwrap(), "41");
    let place = Surroundings {
        found: None,
        status: Some(&past),
        directory: Path::new("up"),
        redrives: &[],
        shard: Some("s"),
        is_running: true,
        hindered: full,
    };
    let said = text("41", &history, Err(&NotFound::Gone), &verdicts(&history, &place, "41"));
    assert!(
        said.contains("end unknown") && said.contains("not have the outcome: the journal"),
        "{said}"
    );
    assert!(said.contains("· the outcome is not in the journal\n"), "{said}");
    assert!(!said.contains("run this command again") && !said.contains("killed"), "{said}");
}
