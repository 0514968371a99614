//! Tests that write and read journals: rotation, incomplete lines, and histories of records.

use std::fs;

use super::writer::SEGMENTS_MAX;
use super::{
    End, Entry, FilterRejection, Journal, Line, Messages, Reader, RecordName, histories_of,
    history_of, newest_record, records_between,
};
use mapping::SequenceNumber;

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
        messages: Some(Messages::Queue("Failed".to_owned())),
        report_batch_item_failures: false,
        starting_position: None,
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
        request: None,
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
    assert_eq!(given_up.discarded.unwrap().key.as_deref(), Some("key"));
    let (_, delivered) = history("10");
    assert!(delivered.discarded.is_none() && delivered.attempts[1].has_done_it());
    assert_eq!(delivered.attempts[1].end, Some(End::Succeeded { took_ms: 3 }));
    let (_, refused) = history("9");
    assert_eq!(
        refused.filter_rejection,
        Some(FilterRejection::Reasons(vec!["because".to_owned()]))
    );
    let (unknown, untouched) = history("77");
    assert!(
        unknown.is_none() && untouched.attempts.is_empty() && untouched.filter_rejection.is_none()
    );
    let newest = |table| newest_record(Reader::open(folder.path()).unwrap(), table);
    assert_eq!(newest(Some("t")), Some(record("12")));
    assert_eq!(newest(Some("other")), None);
}

/// Goal: if a crash of the poller interrupts an attempt, its history shows the attempt as ended
/// once the record is delivered again.
#[test]
fn an_interrupted_attempt_ends_with_the_next_one() {
    let folder = tempfile::tempdir().unwrap();
    let journal = Journal::begin(folder.path(), 1).unwrap();
    journal.introduce(mapping());
    journal.write([invoked(1, 1, &["10", "11"]), invoked(2, 1, &["10"])]);
    let ends = |wanted: &str| {
        let history = history_of(Reader::open(folder.path()).unwrap(), wanted);
        let ends = history.mappings["m"].attempts.iter().map(|attempt| attempt.end.clone());
        ends.collect::<Vec<_>>()
    };
    assert_eq!(ends("11"), [Some(End::Missed), None]);
    let done = Entry::Succeeded { mapping: "m".to_owned(), tick_ms: 203, batch: 2 };
    journal.write([done, invoked(3, 1, &["11"])]);
    let succeeded = Some(End::Succeeded { took_ms: 3 });
    assert_eq!(ends("10"), [Some(End::Missed), succeeded.clone(), None]);
    assert_eq!(ends("11"), [Some(End::Missed), succeeded, None]);
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
    // A run that was killed before its first line has left an empty segment.
    fs::write(folder.path().join("00000002.ndjson"), "").unwrap();
    let second = Journal::begin(folder.path(), 2).unwrap();
    second.introduce(mapping());
    second.write([invoked(1, 1, &["5"])]);
    let history = history_of(Reader::open(folder.path()).unwrap(), "5");
    let runs: Vec<u64> = history.mappings["m"].attempts.iter().map(|it| it.run).collect();
    assert_eq!(runs, [1, 2]);
    assert!(Reader::open(&folder.path().join("none")).is_err());
}

fn gave_up(shard: &str, first: &str, last: &str) -> Entry {
    Entry::GaveUp {
        mapping: "m".to_owned(),
        shard: shard.to_owned(),
        at_ms: 6,
        first: first.to_owned(),
        last: last.to_owned(),
        count: 2,
        condition: "RecordAgeExceeded".to_owned(),
        key: None,
    }
}

/// The mapping has two lanes. Records 10, 12 and 14 fail until they are discarded, 11 and 15 wait
/// in the other lane, and the filter rejected 13.
#[test]
fn only_what_was_in_a_batch_is_given_up_with_it() {
    let folder = tempfile::tempdir().unwrap();
    let journal = Journal::begin(folder.path(), 1).unwrap();
    journal.introduce(mapping());
    let more = Entry::PassedOverMore {
        mapping: "m".to_owned(),
        shard: "other".to_owned(),
        at_ms: 5,
        first: "10".to_owned(),
        last: "19".to_owned(),
        count: 7,
    };
    let refused = Entry::PassedOver {
        mapping: "m".to_owned(),
        shard: "s".to_owned(),
        at_ms: 5,
        record: record("13"),
        why: vec!["because".to_owned()],
    };
    journal.write([refused, invoked(1, 1, &["10", "12", "14"]), failed(1, 0)]);
    journal.write([invoked(2, 1, &["11", "15"]), gave_up("s", "10", "14"), more]);
    // These records were too old when they were read, so no attempt contains them.
    journal.write([gave_up("s", "30", "39")]);
    let cases = [
        ("10", true),
        ("11", false),
        ("id-12", true),
        ("13", false),
        ("14", true),
        ("15", false),
        ("29", false),
        ("35", true),
    ];
    for (wanted, expected) in cases {
        let history = history_of(Reader::open(folder.path()).unwrap(), wanted);
        assert_eq!(history.mappings["m"].discarded.is_some(), expected, "{wanted}");
    }
    let of_other_shard = history_of(Reader::open(folder.path()).unwrap(), "11");
    assert_eq!(of_other_shard.mappings["m"].filter_rejection, None);
}

/// A later run of `weir up` forms different batches. If it discards records without an attempt,
/// only the position of a record decides whether it was discarded.
#[test]
fn what_a_later_run_found_too_old_is_given_up_whatever_was_tried_before() {
    let folder = tempfile::tempdir().unwrap();
    let before = Journal::begin(folder.path(), 1).unwrap();
    before.introduce(mapping());
    before.write([invoked(1, 1, &["10", "12"]), failed(1, 0)]);
    let succeeded = Entry::Succeeded { mapping: "m".to_owned(), tick_ms: 9, batch: 2 };
    before.write([invoked(2, 1, &["14"]), succeeded]);
    drop(before);
    let after = Journal::begin(folder.path(), 2).unwrap();
    after.introduce(mapping());
    after.write([gave_up("s", "10", "16")]);
    for (wanted, expected) in [("10", true), ("12", true), ("14", false), ("16", true)] {
        let history = history_of(Reader::open(folder.path()).unwrap(), wanted);
        assert_eq!(history.mappings["m"].discarded.is_some(), expected, "{wanted}");
    }
}

#[test]
fn the_last_invocation_of_a_window_belongs_to_no_record() {
    let folder = tempfile::tempdir().unwrap();
    let journal = Journal::begin(folder.path(), 1).unwrap();
    journal.write([invoked(1, 1, &["10"]), invoked(2, 1, &[]), invoked(3, 1, &[])]);
    let history = history_of(Reader::open(folder.path()).unwrap(), "10");
    let batches: Vec<u64> = history.mappings["m"].attempts.iter().map(|it| it.batch).collect();
    assert_eq!(batches, [1]);
}

#[test]
fn the_records_of_a_batch_are_found_between_those_of_other_lanes() {
    let folder = tempfile::tempdir().unwrap();
    let journal = Journal::begin(folder.path(), 1).unwrap();
    journal.write([invoked(1, 1, &["10", "12", "14", "16"]), invoked(2, 1, &["11", "13"])]);
    let between = |shard, first, last, count| {
        let lines = Reader::open(folder.path()).unwrap();
        records_between(lines, "m", shard, (first, last), count).map(|found| found.join(" "))
    };
    let cases = [
        (("s", "10", "16", 4), Some("10 12 14 16")),
        (("s", "12", "14", 2), Some("12 14")),
        (("s", "11", "13", 2), Some("11 13")),
        (("s", "10", "16", 3), None),
        (("s", "10", "13", 2), None),
        (("s", "14", "12", 2), None),
        (("other", "10", "16", 4), None),
    ];
    for ((shard, first, last, count), expected) in cases {
        let found = between(shard, first, last, count);
        assert_eq!(found.as_deref(), expected, "{first} to {last}");
    }
}

#[test]
fn a_mapping_of_an_older_journal_reports_failures_and_has_no_queue() {
    let folder = tempfile::tempdir().unwrap();
    let run = r#"{"run":1,"kind":"run","format":1,"at_ms":1}"#;
    let older = r#"{"run":1,"kind":"mapping","mapping":"m","function":"f","table":"t","stream":"arn","filters":[],"bucket":null}"#;
    fs::write(folder.path().join("00000001.ndjson"), format!("{run}\n{older}\n")).unwrap();
    let facts = || {
        let history = history_of(Reader::open(folder.path()).unwrap(), "1");
        history.mappings["m"].facts.clone()
    };
    assert_eq!((facts().messages, facts().report_batch_item_failures), (None, true));
    Journal::begin(folder.path(), 2).unwrap().introduce(mapping());
    let queue = Messages::Queue("Failed".to_owned());
    assert_eq!(
        (facts().messages, facts().report_batch_item_failures),
        (Some(queue.clone()), false)
    );
    let file = queue.file(std::path::Path::new("up"), "aws/lambda/m/s/2026/11/20/time-id");
    assert_eq!(file, std::path::Path::new("up/destinations/Failed/time-id.json"));
}

/// Goal: the histories of several records equal the histories that are collected one by one.
#[test]
fn several_histories_are_collected_in_one_pass() {
    let folder = tempfile::tempdir().unwrap();
    for run in 0..2 {
        let journal = Journal::begin(folder.path(), 1).unwrap();
        journal.introduce(mapping());
        journal.write([
            invoked(1, 1, &["41", "42", "43", "44"]),
            failed(1, 0),
            invoked(2, 1, &["41", "42"]),
            Entry::Succeeded { mapping: "m".to_owned(), tick_ms: 207, batch: 2 },
            invoked(3, 1, &["43", "44"]),
            failed(3, 1),
            Entry::PassedOverMore {
                mapping: "m".to_owned(),
                shard: "s".to_owned(),
                at_ms: 5,
                first: "45".to_owned(),
                last: "47".to_owned(),
                count: 3,
            },
            Entry::GaveUp {
                mapping: "m".to_owned(),
                shard: "s".to_owned(),
                at_ms: 5,
                first: "44".to_owned(),
                last: "44".to_owned(),
                count: 1 + run,
                condition: "RetryAttemptsExhausted".to_owned(),
                key: None,
            },
            invoked(4, 1, &["50"]),
        ]);
    }
    let wanted: Vec<SequenceNumber> =
        (40..52).map(|number: u32| SequenceNumber::parse(&number.to_string()).unwrap()).collect();
    let together = histories_of(Reader::open(folder.path()).unwrap(), &wanted);
    for (history, sequence) in together.iter().zip(&wanted) {
        let alone = history_of(Reader::open(folder.path()).unwrap(), sequence.as_str());
        assert_eq!(*history, alone, "{}", sequence.as_str());
        let own = Reader::open(folder.path()).unwrap().of_records(vec![sequence.clone()]);
        assert_eq!(history_of(own, sequence.as_str()), alone, "{}", sequence.as_str());
    }
    let selected = Reader::open(folder.path()).unwrap().of_records(wanted.clone());
    assert_eq!(histories_of(selected, &wanted), together);
    let strange = vec![SequenceNumber::parse("7").unwrap()];
    let count = Reader::open(folder.path()).unwrap().of_records(strange).count();
    assert!(count < Reader::open(folder.path()).unwrap().count(), "{count}");
    let newest = Reader::open_newest(folder.path(), 1).unwrap();
    assert!(newest.count() < Reader::open(folder.path()).unwrap().count());
}

#[test]
fn older_deliveries_and_those_of_other_mappings_are_left_out() {
    let folder = tempfile::tempdir().unwrap();
    let lines = |mapping: &str, at_ms: i64, batch: u64| {
        let name = |it: &str| {
            RecordName(it.to_owned(), "\"at_ms\":9,\"kind\":\"run\"".to_owned(), String::new())
        };
        let (mapping, shard) = (mapping.to_owned(), "s".to_owned());
        let invoked = Entry::Invoked {
            mapping: mapping.clone(),
            shard,
            at_ms,
            tick_ms: 0,
            batch,
            attempt: 1,
            records: vec![name("41")],
            request: None,
        };
        let succeeded = Entry::Succeeded { mapping, tick_ms: 0, batch };
        let line = |entry| serde_json::to_string(&Line { run: 1, entry }).unwrap() + "\n";
        line(invoked) + &line(succeeded)
    };
    let run = "{\"run\":1,\"kind\":\"run\",\"format\":1,\"at_ms\":1}\n";
    let text = [run, &lines("m", 10, 1), &lines("n", 20, 2), &lines("m", 20, 3)].concat();
    fs::write(folder.path().join("00000001.ndjson"), text).unwrap();
    let batches = |reader: Reader| -> Vec<u64> {
        let batch = |line: Line| match line.entry {
            Entry::Run { .. } | Entry::Mapping { .. } => 0,
            Entry::Invoked { batch, .. } | Entry::Succeeded { batch, .. } => batch,
            other => panic!("{other:?}"),
        };
        reader.map(batch).collect()
    };
    let open = || Reader::open(folder.path()).unwrap();
    assert_eq!(batches(open()), [0, 1, 1, 2, 2, 3, 3]);
    assert_eq!(batches(open().since(None)), [0, 1, 1, 2, 2, 3, 3]);
    assert_eq!(batches(open().since(Some(20))), [0, 2, 2, 3, 3]);
    assert_eq!(batches(open().since(Some(21))), [0]);
    assert_eq!(batches(open().of_mappings(vec!["m".to_owned()])), [0, 1, 1, 3, 3]);

    // A later run gives the name `m` to a mapping of another table.
    let reads = |run: u64, mapping: &str, table: &str| {
        let filter = r#"{\"table\":\"x\"}"#;
        format!(
            "{{\"run\":{run},\"kind\":\"mapping\",\"mapping\":\"{mapping}\",\"function\":\"F\",\"table\":\"{table}\",\"stream\":\"a\",\"filters\":[\"{filter}\"],\"bucket\":null}}\n"
        )
    };
    let text = [
        run,
        &reads(1, "m", "t"),
        &reads(1, "n", "u"),
        &lines("m", 10, 1),
        &lines("n", 20, 2),
        &reads(2, "m", "u"),
        &lines("m", 20, 3),
    ]
    .concat();
    fs::write(folder.path().join("00000001.ndjson"), text).unwrap();
    let of = |tables: &[&str]| {
        batches(open().of_tables(tables.iter().map(|it| (*it).to_owned()).collect()))
    };
    assert_eq!(of(&["t", "u"]), [0, 0, 0, 1, 1, 2, 2, 0, 3, 3]);
    assert_eq!(of(&["t"]), [0, 0, 0, 1, 1, 0]);
    assert_eq!(of(&["u"]), [0, 0, 0, 2, 2, 0, 3, 3]);
    assert_eq!(of(&[]), [0, 0, 0, 0]);
}

/// Goal: a segment is not read if the next one begins before the wanted time.
#[test]
fn segments_with_only_older_deliveries_are_not_read() {
    let folder = tempfile::tempdir().unwrap();
    let name = |segment: u32| folder.path().join(format!("{segment:08}.ndjson"));
    for segment in 1..=3 {
        let Entry::Invoked { mapping, shard, records, .. } = invoked(1, 1, &["41"]) else {
            panic!()
        };
        let (at_ms, batch) = (i64::from(segment) * 10, u64::from(segment));
        let (tick_ms, attempt, request) = (0, 1, None);
        let entry =
            Entry::Invoked { mapping, shard, at_ms, tick_ms, batch, attempt, records, request };
        let lines =
            [Line { run: 1, entry: Entry::Run { format: 1, at_ms: 1 } }, Line { run: 1, entry }];
        let lines = lines.map(|line| serde_json::to_string(&line).unwrap() + "\n");
        fs::write(name(segment), lines.concat()).unwrap();
    }
    for (since_ms, runs, deliveries) in [
        (None, 3, 3),
        (Some(5), 3, 3),
        (Some(10), 3, 3),
        (Some(11), 3, 2),
        (Some(25), 2, 1),
        (Some(31), 1, 0),
    ] {
        let lines: Vec<Line> = Reader::open(folder.path()).unwrap().since(since_ms).collect();
        let are_runs = lines.iter().filter(|line| matches!(line.entry, Entry::Run { .. })).count();
        assert_eq!((are_runs, lines.len() - are_runs), (runs, deliveries), "{since_ms:?}");
    }
}
