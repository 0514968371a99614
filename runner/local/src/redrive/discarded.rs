//! Finds the failure objects of batches that mappings discarded since a given time, according to the
//! journal of `weir up`.

use std::collections::BTreeMap;
use std::path::Path;

use crate::journal::{Entry, JournalError, Reader};

use super::log::{self, Batch};

/// The batches that mappings discarded since a given time.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Discarded {
    /// Their failure objects, oldest first, each once: keys in a bucket, or files of queues and topics.
    pub objects: Vec<String>,
    /// The number of failure objects whose records were all redriven and processed.
    pub done: usize,
    /// The number of batches without a failure object.
    pub without_object: usize,
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
    }
}
