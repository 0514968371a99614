//! Journals written and read back: rotation, torn lines, histories of records.

use std::fs;

use super::writer::SEGMENTS_MAX;
use super::{End, Entry, Journal, PassedOver, Reader, RecordName, history_of, newest_record};

fn record(sequence: &str) -> RecordName {
    RecordName(sequence.to_owned(), format!("id-{sequence}"), "INSERT".to_owned())
}

fn mapping() -> Entry {
    Entry::Mapping {
        mapping: "m".to_owned(),
        function: "f".to_owned(),
        table: "t".to_owned(),
        stream: "arn".to_owned(),
        filters: Vec::new(),
        bucket: None,
    }
}

fn invoked(batch: u64, attempt: u32, sequences: &[&str]) -> Entry {
    Entry::Invoked {
        mapping: "m".to_owned(),
        shard: "s".to_owned(),
        at_ms: 5,
        tick_ms: 100 * batch,
        batch,
        attempt,
        records: sequences.iter().map(|sequence| record(sequence)).collect(),
    }
}

fn failed(batch: u64, done: usize) -> Entry {
    let reason = "no".to_owned();
    Entry::Failed { mapping: "m".to_owned(), tick_ms: 100 * batch + 7, batch, done, reason }
}

#[test]
fn a_bisected_batch_is_followed_to_its_end() {
    let folder = tempfile::tempdir().unwrap();
    let journal = Journal::begin(folder.path(), 1).unwrap();
    journal.introduce(mapping());
    let passed_over = Entry::PassedOver {
        mapping: "m".to_owned(),
        shard: "s".to_owned(),
        at_ms: 5,
        record: record("9"),
        why: vec!["because".to_owned()],
    };
    let gave_up = Entry::GaveUp {
        mapping: "m".to_owned(),
        shard: "s".to_owned(),
        at_ms: 6,
        first: "11".to_owned(),
        last: "11".to_owned(),
        count: 1,
        condition: "RetryAttemptsExhausted".to_owned(),
        key: Some("key".to_owned()),
    };
    let done = Entry::Succeeded { mapping: "m".to_owned(), tick_ms: 203, batch: 2 };
    journal.write([
        passed_over,
        invoked(1, 1, &["10", "11"]),
        failed(1, 0),
        invoked(2, 1, &["10"]),
    ]);
    journal.write([done, invoked(3, 2, &["11"]), failed(3, 0), gave_up, invoked(4, 1, &["12"])]);
    let history = |wanted: &str| {
        let history = history_of(Reader::open(folder.path()).unwrap(), wanted);
        (history.record.clone(), history.mappings["m"].clone())
    };
    let (named, given_up) = history("id-11");
    assert_eq!(named, Some(record("11")));
    let batches: Vec<_> = given_up.attempts.iter().map(|it| (it.batch, it.place)).collect();
    assert_eq!(batches, [(1, Some(1)), (2, None), (3, Some(0))]);
    assert_eq!(given_up.given_up.unwrap().key.as_deref(), Some("key"));
    let (_, delivered) = history("10");
    assert!(delivered.given_up.is_none() && delivered.attempts[1].has_done_it());
    assert_eq!(delivered.attempts[1].end, Some(End::Succeeded { took_ms: 3 }));
    let (_, refused) = history("9");
    assert_eq!(refused.passed_over, Some(PassedOver::Why(vec!["because".to_owned()])));
    let (unknown, untouched) = history("77");
    assert!(unknown.is_none() && untouched.attempts.is_empty() && untouched.passed_over.is_none());
    let newest = |table| newest_record(Reader::open(folder.path()).unwrap(), table);
    assert_eq!(newest(Some("t")), Some(record("12")));
    assert_eq!(newest(Some("other")), None);
}

#[test]
fn a_journal_stays_small_and_each_segment_names_its_mappings() {
    let folder = tempfile::tempdir().unwrap();
    let journal = Journal::with_limit(folder.path(), 1, 600).unwrap();
    journal.introduce(mapping());
    for batch in 0..200 {
        journal.write([invoked(batch, 1, &[&batch.to_string()])]);
    }
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), SEGMENTS_MAX);
    let bytes: u64 =
        fs::read_dir(folder.path()).unwrap().map(|it| it.unwrap().metadata().unwrap().len()).sum();
    assert!(bytes <= 600 * SEGMENTS_MAX as u64, "{bytes}");
    let history = history_of(Reader::open(folder.path()).unwrap(), "199");
    assert_eq!(history.mappings["m"].facts.function, "f");
    assert!(history_of(Reader::open(folder.path()).unwrap(), "0").record.is_none());
}

#[test]
fn a_torn_line_is_passed_over_and_the_next_run_has_the_next_number() {
    let folder = tempfile::tempdir().unwrap();
    let journal = Journal::begin(folder.path(), 1).unwrap();
    journal.introduce(mapping());
    journal.write([invoked(1, 1, &["5"])]);
    drop(journal);
    let path = folder.path().join("00000001.ndjson");
    let mut text = fs::read_to_string(&path).unwrap();
    text.push_str(r#"{"run":1,"kind":"invo"#);
    fs::write(&path, text).unwrap();
    let second = Journal::begin(folder.path(), 2).unwrap();
    second.introduce(mapping());
    second.write([invoked(1, 1, &["5"])]);
    let history = history_of(Reader::open(folder.path()).unwrap(), "5");
    let runs: Vec<u64> = history.mappings["m"].attempts.iter().map(|it| it.run).collect();
    assert_eq!(runs, [1, 2]);
    assert!(Reader::open(&folder.path().join("none")).is_err());
}
