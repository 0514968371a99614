//! The batches that currently block a shard, according to the journal, with the time of their first
//! attempt and the last error.
//!
//! The module has no side effects.

use std::collections::BTreeMap;

use super::entry::{Entry, Line};

/// A batch that blocks its shard: its attempts failed, or its records cannot be stored at their destination.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failing {
    /// The mapping's name.
    pub mapping: String,
    /// The shard's id.
    pub shard: String,
    /// The sequence number of the first record of the batch.
    pub first: String,
    /// The store's time of the first attempt.
    pub since_ms: i64,
    /// The number of attempts for these records.
    pub attempts: u32,
    /// The error of the last attempt.
    pub reason: String,
}

/// An attempt whose result has not been read from the journal yet.
struct Open {
    shard: String,
    at_ms: i64,
    attempt: u32,
    first: String,
    records: Vec<String>,
}

/// Returns the batches that block a shard after the last line, oldest first. A batch of an earlier
/// run blocks no shard of the current run.
#[must_use]
pub fn failing(lines: impl Iterator<Item = Line>) -> Vec<Failing> {
    let (mut run, mut open, mut failing) = (0, BTreeMap::new(), Vec::<Failing>::new());
    for line in lines {
        if line.run != run {
            run = line.run;
            open.clear();
            failing.clear();
        }
        match line.entry {
            Entry::Invoked { mapping, shard, at_ms, batch, attempt, records, .. } => {
                let Some(first) = records.first().map(|record| record.sequence().to_owned()) else {
                    continue;
                };
                let records = records.into_iter().map(|record| record.0).collect();
                open.insert((mapping, batch), Open { shard, at_ms, attempt, first, records });
            }
            Entry::Succeeded { mapping, batch, .. } => {
                if let Some(ended) = open.remove(&(mapping.clone(), batch)) {
                    failing
                        .retain(|it| it.mapping != mapping || !ended.records.contains(&it.first));
                }
            }
            Entry::Failed { mapping, batch, reason, done, .. } => {
                let Some(ended) = open.remove(&(mapping.clone(), batch)) else { continue };
                let earlier = failing
                    .iter()
                    .position(|it| it.mapping == mapping && ended.records.contains(&it.first))
                    .map(|place| failing.remove(place));
                let first = ended.records.get(done).cloned().unwrap_or(ended.first);
                let since_ms = earlier.map_or(ended.at_ms, |earlier| earlier.since_ms);
                let (shard, attempts) = (ended.shard, ended.attempt);
                failing.push(Failing { mapping, shard, first, since_ms, attempts, reason });
            }
            Entry::GaveUp { mapping, shard, .. } => {
                failing.retain(|it| it.mapping != mapping || it.shard != shard);
            }
            Entry::DestinationUnavailable { mapping, shard, reason, .. } => {
                let own = failing.iter_mut().find(|it| it.mapping == mapping && it.shard == shard);
                if let Some(own) = own {
                    own.reason = format!("its failure destination cannot be reached: {reason}");
                }
            }
            _ => {}
        }
    }
    failing
}

#[cfg(test)]
mod tests {
    use super::super::entry::RecordName;
    use super::*;

    /// Parses `RUN invoked BATCH ATTEMPT SEQ…`, `RUN ok BATCH`, `RUN failed BATCH DONE`, `RUN gave-up`.
    fn line(text: &str) -> Line {
        let words: Vec<&str> = text.split(' ').collect();
        let number = |place: usize| words[place].parse::<u64>().unwrap();
        let (mapping, shard) = ("m".to_owned(), "s".to_owned());
        let name = |it: &&str| RecordName((*it).to_owned(), String::new(), String::new());
        let entry = match words[1] {
            "invoked" => Entry::Invoked {
                mapping,
                shard,
                at_ms: 10 * i64::try_from(number(2)).unwrap(),
                tick_ms: 0,
                batch: number(2),
                attempt: words[3].parse().unwrap(),
                records: words[4..].iter().map(name).collect(),
                request: None,
            },
            "ok" => Entry::Succeeded { mapping, tick_ms: 0, batch: number(2) },
            "failed" => Entry::Failed {
                mapping,
                tick_ms: 0,
                batch: number(2),
                done: words[3].parse().unwrap(),
                reason: format!("no {}", words[2]),
            },
            _ => Entry::GaveUp {
                mapping,
                shard,
                at_ms: 0,
                first: String::new(),
                last: String::new(),
                count: 1,
                condition: String::new(),
                key: None,
            },
        };
        Line { run: number(0), entry }
    }

    #[test]
    fn the_batch_that_blocks_is_found_with_its_beginning() {
        for (text, expected) in [
            ("1 invoked 1 1 41 42", None),
            ("1 invoked 1 1 41 42\n1 failed 1 0", Some(("41", 10, 1, "no 1"))),
            (
                "1 invoked 1 1 41 42\n1 failed 1 0\n1 invoked 2 2 41 42\n1 failed 2 0",
                Some(("41", 10, 2, "no 2")),
            ),
            ("1 invoked 1 1 41 42\n1 failed 1 0\n1 invoked 2 2 41 42\n1 ok 2", None),
            // The function has processed 41, and 42 is the first record to retry.
            ("1 invoked 1 1 41 42\n1 failed 1 1", Some(("42", 10, 1, "no 1"))),
            ("1 invoked 1 1 41\n1 failed 1 0\n1 gave-up", None),
            ("1 invoked 1 1 41\n1 failed 1 0\n2 invoked 1 1 41", None),
            // The first half of a bisected batch succeeds, and the second half fails.
            (
                "1 invoked 1 1 41 42\n1 failed 1 0\n1 invoked 2 1 41\n1 ok 2\n1 invoked 3 1 42\n1 failed 3 0",
                Some(("42", 30, 1, "no 3")),
            ),
        ] {
            let found = failing(text.lines().map(line));
            let found = found.first().map(|it| (&*it.first, it.since_ms, it.attempts, &*it.reason));
            assert_eq!(found, expected, "{text}");
        }
    }
}
