//! Tests of the poller under `--chaos`: after each injected crash, it resumes from its checkpoints.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::tests::{Bench, FakeFunction, open};
use super::*;
use crate::journal::{Journal, MappingJournal, Reader, history_of};
use mapping::{Command, Event};

#[tokio::test]
async fn chaos_delivers_everything_all_the_same() {
    let mut bench = Bench::new(vec![("s1", open(1..=99))]).await;
    bench.settings.batch_size = 2;
    bench.settings.parallelization_factor = 3;
    let chaos = Chaos::new(5);
    bench.chaos = Some(Arc::clone(&chaos));
    let function = Arc::new(FakeFunction::default());
    let mut running = bench.run(&function);
    running.drain().await;
    let delivered: BTreeSet<u64> = function.delivered().into_iter().collect();
    assert_eq!(delivered, (1..=99).filter(|one| one % 5 != 0).collect());
    assert!(function.delivered().len() > delivered.len(), "nothing came twice");
    assert!(chaos.to_string().contains("crash "), "{chaos}");
    assert_eq!(running.stop().await, RunEnd::Stopped);
}

/// Goal: a crash loses no count, and a discarded record is not reported as delivered.
#[tokio::test]
async fn a_crash_keeps_the_counts_and_the_numbers_of_batches() {
    let mut bench = Bench::new(vec![("s1", open(1..=99))]).await;
    bench.settings.batch_size = 2;
    bench.settings.retry_attempts = Some(0);
    bench.settings.has_failure_destination = false;
    let chaos = Chaos::new(5);
    bench.chaos = Some(Arc::clone(&chaos));
    // The record that always fails is in the first batch, so it is discarded before any crash.
    let function = Arc::new(FakeFunction { poison: vec![1], ..FakeFunction::default() });
    let mut running = bench.run(&function);
    let status = running.drain().await;
    assert!(chaos.to_string().contains("crash "), "{chaos}");

    let folder = tempfile::tempdir().unwrap();
    let journal = Journal::begin(folder.path(), 1).unwrap();
    let journal = MappingJournal::new(journal, "Mapping", bench.settings.filter.clone());
    let (mut batches, mut discarded, mut succeeded) = (Vec::new(), 0, 0);
    while let Ok(observed) = running.events.try_recv() {
        assert_eq!(observed.missed, 0);
        journal.write(&observed);
        match observed.command {
            Command::Invoke { batch, .. } => batches.push(batch),
            Command::Report(Event::Discarded { count, .. }) => discarded += count as u64,
            Command::Report(Event::Succeeded { count, .. }) => succeeded += count as u64,
            _ => {}
        }
    }
    let distinct: BTreeSet<_> = batches.iter().collect();
    assert_eq!(distinct.len(), batches.len(), "a number was given twice: {batches:?}");
    assert!(discarded > 0, "the record was not discarded");
    assert_eq!((status.totals.discarded, status.totals.done), (discarded, succeeded));
    assert!(status.totals.read >= 99, "{:?}", status.totals);

    let history = history_of(Reader::open(folder.path()).unwrap(), "1");
    let own = &history.mappings["Mapping"];
    assert!(own.discarded.is_some());
    assert!(own.attempts.iter().all(|attempt| !attempt.has_done_it()), "{:?}", own.attempts);
    // Batches that a crash interrupted have no outcome, and `explain` does not show them as
    // running.
    for sequence in (1..=99).filter(|one| one % 5 != 0) {
        let history = history_of(Reader::open(folder.path()).unwrap(), &sequence.to_string());
        let own = &history.mappings["Mapping"];
        assert!(own.attempts.iter().all(|attempt| attempt.end.is_some()), "{:?}", own.attempts);
    }
}
