//! Finds the batches that mappings discarded, and their failure objects, according to the journal of
//! `weir up`.

use std::collections::BTreeMap;
use std::path::Path;

use crate::journal::{Entry, JournalError, Reader};

use super::log::{self, Batch};

/// The batches that mappings discarded since a given time.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Discarded {
    /// The failure objects of these batches, without duplicates and oldest first: keys in a bucket,
    /// or files of queues and topics.
    pub objects: Vec<String>,
    /// The number of failure objects whose records were all redriven and processed.
    pub done: usize,
    /// The number of batches without a failure object.
    pub without_object: usize,
}

/// The maximum number of batches that the status names. An operator needs only a few examples.
const NAMED_MAX: usize = 3;

/// The batches that a mapping discarded in the last run of `weir up`, and that were not redriven and
/// processed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LeftBatches {
    /// The names of the oldest batches, at most `NAMED_MAX`: the sequence number of the batch's
    /// only record, or of its first and last record.
    pub named: Vec<String>,
    /// Whether there are more batches than those in `named`.
    pub has_more: bool,
    /// The time in milliseconds since 1970 at which the first batch with a failure object was
    /// discarded.
    pub kept_since_ms: Option<i64>,
}

impl LeftBatches {
    fn add(&mut self, name: String, at_ms: i64, is_kept: bool) {
        if is_kept {
            self.kept_since_ms = Some(self.kept_since_ms.map_or(at_ms, |since| since.min(at_ms)));
        }
        // After a crash of the poller, a record may have been discarded twice.
        if self.named.contains(&name) {
            return;
        }
        if self.named.len() < NAMED_MAX {
            self.named.push(name);
        } else {
            self.has_more = true;
        }
    }
}

/// Finds, by mapping, the batches that were discarded in the last run of `weir up` and have not
/// been redriven and processed. Reads the complete journal. Returns an empty map if the journal
/// cannot be read.
#[must_use]
pub fn left(directory: &Path) -> BTreeMap<String, LeftBatches> {
    let redrives = log::read(directory);
    let Ok(lines) = Reader::open(&directory.join("journal")) else { return BTreeMap::new() };
    let (mut run, mut facts, mut mappings) = (0, BTreeMap::new(), BTreeMap::new());
    for line in lines {
        if line.run != run {
            run = line.run;
            mappings.clear();
        }
        match line.entry {
            Entry::Mapping { mapping, function, stream, .. } => {
                facts.insert(mapping, (function, stream));
            }
            Entry::GaveUp { mapping, shard, at_ms, first, last, count, key, .. } => {
                let Some((function, stream)) = facts.get(&mapping) else { continue };
                let batch =
                    Batch { function, stream, shard: &shard, at_ms, first: &first, last: &last };
                if log::done_of(&redrives, batch) < count {
                    let name = if count == 1 { first } else { format!("{first} to {last}") };
                    let own: &mut LeftBatches = mappings.entry(mapping).or_default();
                    own.add(name, at_ms, key.is_some());
                }
            }
            _ => {}
        }
    }
    mappings
}

/// Finds the batches that were discarded at or after a time in milliseconds since 1970.
///
/// # Errors
/// There is no journal, or it cannot be read.
pub fn since(directory: &Path, since_ms: i64) -> Result<Discarded, JournalError> {
    let redrives = log::read(directory);
    let (mut facts, mut found) = (BTreeMap::new(), Discarded::default());
    for line in Reader::open(&directory.join("journal"))? {
        match line.entry {
            Entry::Mapping { mapping, function, stream, messages, .. } => {
                facts.insert(mapping, (function, stream, messages));
            }
            Entry::GaveUp { mapping, shard, at_ms, first, last, count, key, .. }
                if at_ms >= since_ms =>
            {
                let Some(key) = key else {
                    found.without_object += 1;
                    continue;
                };
                let (shard, first, last) = (shard.as_str(), first.as_str(), last.as_str());
                let facts = facts.get(&mapping);
                let done = facts.map_or(0, |(function, stream, _)| {
                    let batch = Batch { function, stream, shard, at_ms, first, last };
                    log::done_of(&redrives, batch)
                });
                // For a queue or topic, the failure object is a file; for a bucket, it is an object.
                let messages = facts.and_then(|(_, _, messages)| messages.as_ref());
                let object = messages.map_or_else(
                    || key.clone(),
                    |messages| messages.file(directory, &key).display().to_string(),
                );
                if done >= count {
                    found.done += 1;
                } else if !found.objects.contains(&object) {
                    found.objects.push(object);
                }
            }
            _ => {}
        }
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use crate::journal::{Journal, Messages};

    use super::super::log::Redrive;
    use super::*;

    #[test]
    fn batches_discarded_since_and_not_redriven_are_found() {
        let folder = tempfile::tempdir().unwrap();
        assert!(since(folder.path(), 0).is_err(), "there is no journal");
        let gave_up_of = |mapping: &str, at_ms, first: &str, key: Option<&str>| Entry::GaveUp {
            mapping: mapping.to_owned(),
            shard: "a".to_owned(),
            at_ms,
            first: first.to_owned(),
            last: first.to_owned(),
            count: 1,
            condition: "RetryAttemptsExhausted".to_owned(),
            key: key.map(str::to_owned),
        };
        let gave_up = |at_ms, first: &str, key| gave_up_of("votes", at_ms, first, key);
        let journal = Journal::begin(&folder.path().join("journal"), 1).unwrap();
        for (mapping, messages) in
            [("votes", None), ("queued", Some(Messages::Queue("Failed".to_owned())))]
        {
            journal.introduce(Entry::Mapping {
                mapping: mapping.to_owned(),
                function: "counters".to_owned(),
                table: "votes".to_owned(),
                stream: "arn".to_owned(),
                filters: Vec::new(),
                bucket: None,
                messages,
                report_batch_item_failures: true,
                starting_position: None,
            });
        }
        let entries = [
            gave_up(10, "1", Some("before")),
            gave_up(20, "2", Some("done")),
            gave_up(21, "3", Some("left")),
            gave_up(22, "3", Some("left")),
            gave_up(23, "4", None),
            gave_up(24, "5", Some("failed again")),
            gave_up_of("queued", 25, "6", Some("aws/lambda/queued/a/2026/11/20/message")),
        ];
        journal.write(entries);
        for (sequence, done) in [("2", 1), ("5", 0)] {
            let redrive = Redrive {
                at_ms: 30,
                function: "counters".to_owned(),
                stream: Some("arn".to_owned()),
                shard: Some("a".to_owned()),
                sequences: vec![sequence.to_owned()],
                done,
            };
            log::note(folder.path(), &redrive).unwrap();
        }
        let message = folder.path().join("destinations/Failed/message.json").display().to_string();
        let objects = vec!["left".to_owned(), "failed again".to_owned(), message.clone()];
        let expected = Discarded { objects, done: 1, without_object: 1 };
        assert_eq!(since(folder.path(), 20).unwrap(), expected);
        let later = since(folder.path(), 24).unwrap();
        assert_eq!(later.objects, ["failed again".to_owned(), message]);
        let named = ["1", "3", "4"].map(str::to_owned).to_vec();
        let votes = LeftBatches { named, has_more: true, kept_since_ms: Some(10) };
        let named = vec!["6".to_owned()];
        let queued = LeftBatches { named, has_more: false, kept_since_ms: Some(25) };
        let expected = [("votes".to_owned(), votes), ("queued".to_owned(), queued)].into();
        assert_eq!(left(folder.path()), expected);
    }
}
