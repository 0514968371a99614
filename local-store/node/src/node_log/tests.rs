//! Tests of a node's log: the consensus library's own suite, power cuts, and truncation.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

use bytes::Bytes;
use futures::TryStreamExt;
use openraft::entry::RaftEntry;
use openraft::impls::leader_id_std::LeaderId;
use openraft::storage::{IOFlushed, RaftLogReader, RaftLogStorage};
use openraft::testing::log::{StoreBuilder, Suite};
use openraft::type_config::TypeConfigExt;
use openraft::{EntryPayload, StorageError};

use super::*;
use crate::OnFatal;
use crate::log_id::{LogId, log_id};
use crate::node::tests::TaskWorker;
use crate::replica::Replica;
use crate::state_location::MemoryLocation;
use crate::types::{Payload, Vote};
use storage::disk::{Damage, Disk, SimulatedDisk};
use storage::log::Options;

const ARC: ArcId = ArcId(0);

fn die() -> OnFatal {
    Arc::new(|reason| panic!("{reason}"))
}

fn open(disk: &SimulatedDisk, segment_bytes: u64) -> NodeLog {
    let disk: Arc<dyn Disk> = Arc::new(disk.clone());
    let log = Log::open(disk, Options { segment_bytes, ..Options::default() }).unwrap();
    NodeLog::open(log, Arc::new(TaskWorker::start(Duration::from_micros(100))), die()).unwrap()
}

struct Builder;

impl StoreBuilder<TypeConfig, GroupLog, Replica> for Builder {
    async fn build(&self) -> Result<((), GroupLog, Replica), StorageError<TypeConfig>> {
        let log = open(&SimulatedDisk::new(), 64 * 1024).group(ARC);
        let worker = Arc::new(TaskWorker::start(Duration::ZERO));
        let replica = Replica::open(
            partition::ArcPosition::default(),
            Arc::new(MemoryLocation::default()),
            worker,
            true,
            die(),
        )
        .unwrap();
        Ok(((), log, replica))
    }
}

#[tokio::test(start_paused = true)]
async fn passes_the_suite_of_the_consensus_library() {
    Suite::test_all(Builder).await.unwrap();
}

fn entry(index: u64, bytes: usize) -> Entry {
    let body = Payload::new(Bytes::from(vec![u8::try_from(index % 251).unwrap(); bytes]));
    Entry::new(log_id(1, index), EntryPayload::Normal(body))
}

fn vote(term: u64) -> Vote {
    openraft::Vote { leader_id: LeaderId { term, voted_for: 2 }, committed: false }
}

/// Appends entries and waits until they are durable.
async fn append(log: &mut GroupLog, entries: Vec<Entry>) {
    let (sender, durable) = TypeConfig::oneshot();
    log.append(entries, IOFlushed::signal(sender)).await.unwrap();
    durable.await.unwrap().unwrap();
}

async fn indexes(log: &mut GroupLog) -> Vec<u64> {
    let entries = log.try_get_log_entries(0..1000).await.unwrap();
    entries.iter().map(|entry| entry.log_id.index).collect()
}

#[tokio::test(start_paused = true)]
async fn reported_records_survive_a_power_cut() {
    for seed in 0..40 {
        let disk = SimulatedDisk::new();
        let mut log = open(&disk, 64 * 1024).group(ARC);
        log.save_vote(&vote(seed + 1)).await.unwrap();
        append(&mut log, (0..10).map(|index| entry(index, 300)).collect()).await;
        log.truncate_after(Some(log_id(1, 5))).await.unwrap();
        append(&mut log, vec![entry(6, 10)]).await;
        // The entry is queued, and perhaps written, but not reported as durable.
        log.append([entry(7, 3000)], IOFlushed::noop()).await.unwrap();
        tokio::time::sleep(Duration::from_micros(150 * (seed % 2))).await;
        drop(log);
        disk.power_cut(seed);
        let mut log = open(&disk, 64 * 1024).group(ARC);
        assert_eq!(log.read_vote().await.unwrap(), Some(vote(seed + 1)), "seed {seed}");
        let found = indexes(&mut log).await;
        assert_eq!(found[..7], [0, 1, 2, 3, 4, 5, 6], "seed {seed}");
        assert!(found.len() <= 8, "seed {seed}");
        assert_eq!(log.try_get_log_entries(6..7).await.unwrap(), [entry(6, 10)], "seed {seed}");
    }
}

/// Case: a later leader has replaced an entry. The state on disk contains the new entry, but the
/// log contains the old entry.
#[tokio::test(start_paused = true)]
async fn replaced_entries_are_removed_when_the_state_is_ahead() {
    for (applied, last, left) in [
        (log_id(2, 7), log_id(1, 6), 7),
        (log_id(2, 0), log_id(0, 0), 0),
        (log_id(1, 7), log_id(1, 9), 10),
        (log_id(2, 10), log_id(1, 9), 10),
    ] {
        let disk = SimulatedDisk::new();
        let node = open(&disk, 64 * 1024);
        let mut log = node.group(ARC);
        append(&mut log, (0..10).map(|index| entry(index, 100)).collect()).await;
        node.cut_replaced(ARC, applied).unwrap();
        let last = (left > 0).then_some(last);
        assert_eq!(log.get_log_state().await.unwrap().last_log_id, last, "{applied}");
        assert_eq!(indexes(&mut log).await, Vec::from_iter(0..left), "{applied}");
        // The consensus library purges the log in the same way if the state is ahead.
        if last < Some(applied) {
            log.purge(applied).await.unwrap();
            append(&mut log, vec![entry(applied.index + 1, 10)]).await;
            drop((node, log));
            let mut log = open(&disk, 64 * 1024).group(ARC);
            let state = log.get_log_state().await.unwrap();
            assert_eq!(state.last_purged_log_id, Some(applied));
            assert_eq!(indexes(&mut log).await, [applied.index + 1]);
        }
    }
}

/// Goal: the vote and the purge survive the truncation of the oldest files.
#[tokio::test(start_paused = true)]
async fn the_vote_survives_a_truncation_of_the_log() {
    let disk = SimulatedDisk::new();
    let node = open(&disk, 16 * 1024);
    let (mut log, mut other) = (node.group(ARC), node.group(ArcId(7)));
    other.save_vote(&vote(3)).await.unwrap();
    log.save_vote(&vote(9)).await.unwrap();
    for index in 0..60 {
        append(&mut log, vec![entry(index, 1000)]).await;
    }
    let before = node.usage();
    log.purge(log_id(1, 54)).await.unwrap();
    append(&mut log, vec![entry(60, 10)]).await;
    let after = node.usage();
    assert!(after.file_bytes < before.file_bytes, "{after:?} after {before:?}");
    assert!(after.synced_bytes > before.synced_bytes && before.synced_bytes > 60 * 1000);
    drop((node, log, other));
    disk.power_cut(1);
    let node = open(&disk, 16 * 1024);
    let (mut log, mut other) = (node.group(ARC), node.group(ArcId(7)));
    assert_eq!(log.read_vote().await.unwrap(), Some(vote(9)));
    assert_eq!(other.read_vote().await.unwrap(), Some(vote(3)));
    let state = log.get_log_state().await.unwrap();
    assert_eq!(state.last_purged_log_id, Some(log_id(1, 54)));
    assert_eq!(indexes(&mut log).await, [55, 56, 57, 58, 59, 60]);
    let last: Option<LogId> = state.last_log_id;
    assert_eq!(last, Some(log_id(1, 60)));
}

/// Goal: a long log is applied without all its entries in memory. Method: removes later entries
/// while the first entries are applied, and checks that the removed entries were not read before.
#[tokio::test(start_paused = true)]
async fn entries_to_apply_are_read_in_parts() {
    for (count, bytes, kept) in [(3_000, 100, 2_000), (12, 1024 * 1024, 8)] {
        let disk = SimulatedDisk::new();
        let mut log = open(&disk, 24 * 1024 * 1024).group(ARC);
        append(&mut log, (0..count).map(|index| entry(index, bytes)).collect()).await;
        drop(log);
        let mut log = open(&disk, 24 * 1024 * 1024).group(ARC);
        let entries: Vec<Entry> = log.entries_stream(1..count).await.try_collect().await.unwrap();
        let found: Vec<u64> = entries.iter().map(|entry| entry.log_id.index).collect();
        assert_eq!(found, Vec::from_iter(1..count));
        assert_eq!(entries.last(), Some(&entry(count - 1, bytes)));
        let mut reader = log.clone();
        let mut entries = std::pin::pin!(reader.entries_stream(0..count).await);
        assert_eq!(entries.try_next().await.unwrap(), Some(entry(0, bytes)));
        log.truncate_after(Some(log_id(1, kept - 1))).await.unwrap();
        let rest: Vec<Entry> = entries.try_collect().await.unwrap();
        assert_eq!(rest.len() as u64, kept - 1);
        let nothing: Vec<Entry> = log.entries_stream(5..5).await.try_collect().await.unwrap();
        assert_eq!(nothing, []);
    }
}

/// A worker that records whether its log was locked when the last job was submitted.
struct Noting {
    inner: TaskWorker,
    log: OnceLock<Weak<Shared>>,
    is_locked: AtomicBool,
}

impl Worker for Noting {
    fn run(&self, job: super::super::worker::Job) {
        let shared = self.log.get().and_then(Weak::upgrade);
        let is_locked = shared.is_some_and(|shared| shared.state.try_lock().is_none());
        self.is_locked.store(is_locked, Ordering::Relaxed);
        self.inner.run(job);
    }

    fn run_later(&self, delay: Duration, job: super::super::worker::Job) {
        self.inner.run_later(delay, job);
    }
}

/// Goal: a purge cannot remove the entries of a queued read before its job runs. A read of removed
/// entries would end the process.
#[tokio::test(start_paused = true)]
async fn a_read_is_queued_before_a_purge() {
    let disk = SimulatedDisk::new();
    let mut log = open(&disk, 64 * 1024).group(ARC);
    append(&mut log, (0..5).map(|index| entry(index, 100)).collect()).await;
    drop(log);
    let disk: Arc<dyn Disk> = Arc::new(disk);
    let log = Log::open(disk, Options::default()).unwrap();
    let worker = Arc::new(Noting {
        inner: TaskWorker::start(Duration::ZERO),
        log: OnceLock::new(),
        is_locked: AtomicBool::new(false),
    });
    let log = NodeLog::open(log, worker.clone(), die()).unwrap();
    worker.log.set(Arc::downgrade(&log.shared)).unwrap();
    assert_eq!(indexes(&mut log.group(ARC)).await, [0, 1, 2, 3, 4]);
    assert!(worker.is_locked.load(Ordering::Relaxed));
}

/// Goal: a record that the log cannot accept is rejected before it can stop the log for all groups.
#[tokio::test(start_paused = true)]
async fn a_record_that_is_too_large_is_refused_alone() {
    let node = open(&SimulatedDisk::new(), 64 * 1024);
    let mut log = node.group(ARC);
    append(&mut log, vec![entry(0, 100)]).await;
    assert!(log.append([entry(1, 64 * 1024)], IOFlushed::noop()).await.is_err());
    append(&mut log, vec![entry(1, 100)]).await;
    assert_eq!(indexes(&mut log).await, [0, 1]);
}

/// Goal: a long log is truncated, even if it has only one group.
#[tokio::test(start_paused = true)]
async fn the_oldest_entry_prevents_truncation() {
    let node = open(&SimulatedDisk::new(), 64 * 1024);
    assert!(!node.is_held_by(ARC));
    append(&mut node.group(ARC), vec![entry(0, 100)]).await;
    append(&mut node.group(ArcId(7)), vec![entry(0, 100)]).await;
    assert!(node.is_held_by(ARC) && !node.is_held_by(ArcId(7)));
    node.group(ARC).purge(log_id(1, 0)).await.unwrap();
    assert!(!node.is_held_by(ARC) && node.is_held_by(ArcId(7)));
    let alone = open(&SimulatedDisk::new(), 64 * 1024);
    append(&mut alone.group(ARC), vec![entry(0, 100)]).await;
    assert!(alone.is_held_by(ARC));
}

#[tokio::test(start_paused = true)]
async fn records_queued_together_share_a_sync() {
    let node = open(&SimulatedDisk::new(), 64 * 1024);
    let mut log = node.group(ARC);
    for index in 0..50 {
        log.append([entry(index, 100)], IOFlushed::noop()).await.unwrap();
    }
    append(&mut log, vec![entry(50, 100)]).await;
    assert!(node.usage().syncs <= 2, "{:?}", node.usage());
}

/// Goal: a log whose entries no group needs shrinks to one small file, with its last vote and
/// purge.
#[tokio::test(start_paused = true)]
async fn a_log_shrinks_to_what_is_needed() {
    let disk = SimulatedDisk::new();
    let open = || {
        let first_segment_bytes = 8 * 1024;
        let options =
            Options { segment_bytes: 64 * 1024, first_segment_bytes, ..Options::default() };
        let log = Log::open(Arc::new(disk.clone()), options).unwrap();
        NodeLog::open(log, Arc::new(TaskWorker::start(Duration::from_micros(100))), die()).unwrap()
    };
    let node = open();
    let mut log = node.group(ARC);
    log.save_vote(&vote(3)).await.unwrap();
    append(&mut log, (0..200).map(|index| entry(index, 1_000)).collect()).await;
    assert!(!node.is_small());
    log.purge(log_id(1, 199)).await.unwrap();
    node.shrink().await.unwrap();
    append(&mut log, vec![entry(200, 100)]).await;
    assert!(node.is_small() && node.usage().file_bytes == 8 * 1024);
    assert_eq!(disk.list().unwrap().len(), 1);
    drop((node, log));
    tokio::time::sleep(Duration::from_secs(1)).await;
    disk.power_cut(1);
    let node = open();
    assert_eq!(node.position(ARC), (3, Some(200)));
    assert_eq!(indexes(&mut node.group(ARC)).await, [200]);
}

/// Goal: the queue for a blocked disk is bounded.
#[tokio::test(start_paused = true)]
async fn appending_waits_for_a_slow_disk() {
    let disk: Arc<dyn Disk> = Arc::new(SimulatedDisk::new());
    let options = Options { segment_bytes: 24 * 1024 * 1024, ..Options::default() };
    let (pause, worker) = (Duration::from_secs(5), TaskWorker::start(Duration::from_secs(5)));
    let log = Log::open(disk, options).unwrap();
    let mut log = NodeLog::open(log, Arc::new(worker), die()).unwrap().group(ARC);
    let begun = tokio::time::Instant::now();
    let bytes = WAITING_BYTES_MAX / 4;
    for index in 0..4 {
        log.append([entry(index, bytes - 100)], IOFlushed::noop()).await.unwrap();
    }
    assert_eq!(begun.elapsed(), Duration::ZERO);
    log.append([entry(4, bytes)], IOFlushed::noop()).await.unwrap();
    assert!(begun.elapsed() > pause, "{:?}", begun.elapsed());
    let begun = tokio::time::Instant::now();
    log.append([entry(5, bytes)], IOFlushed::noop()).await.unwrap();
    assert_eq!(begun.elapsed(), Duration::ZERO, "all earlier records are on disk");
}

#[tokio::test(start_paused = true)]
async fn a_full_disk_delays_and_loses_nothing() {
    let disk = SimulatedDisk::new();
    let mut log = open(&disk, 16 * 1024).group(ARC);
    append(&mut log, vec![entry(0, 100)]).await;
    // The creation of the next segment fails once for lack of space.
    disk.fail_at(disk.operations(), storage::disk::Fault::OutOfSpace);
    append(&mut log, (1..40).map(|index| entry(index, 1000)).collect()).await;
    let found: BTreeSet<u64> = indexes(&mut log).await.into_iter().collect();
    assert_eq!(found.len(), 40);
}

#[tokio::test(start_paused = true)]
async fn a_failed_sync_is_final() {
    let disk = SimulatedDisk::new();
    let log: Arc<dyn Disk> = Arc::new(disk.clone());
    let log = Log::open(log, Options { segment_bytes: 64 * 1024, ..Options::default() }).unwrap();
    let (sender, died) = mpsc::channel();
    let on_fatal: OnFatal = Arc::new(move |reason| sender.send(reason.to_owned()).unwrap());
    let worker = Arc::new(TaskWorker::start(Duration::ZERO));
    let mut log = NodeLog::open(log, worker, on_fatal).unwrap().group(ARC);
    // The next operation is the write, and the following operation is the sync.
    disk.fail_at(disk.operations() + 1, storage::disk::Fault::Io);
    assert!(log.save_vote(&vote(1)).await.is_err());
    assert!(died.recv().unwrap().contains("cannot be synced"));
    assert!(log.save_vote(&vote(1)).await.is_err(), "it is never retried");
    assert!(died.try_recv().is_err(), "it is reported once");
}

/// Goal: verification finds damage that no read has found yet, and a damaged node with peers
/// continues to vote.
#[tokio::test(start_paused = true)]
async fn verification_finds_damage_and_stops_nothing() {
    let disk = SimulatedDisk::new();
    let log: Arc<dyn Disk> = Arc::new(disk.clone());
    let log = Log::open(log, Options { segment_bytes: 64 * 1024, ..Options::default() }).unwrap();
    let damage = Damage::of_one_among_peers();
    let worker = Arc::new(TaskWorker::start(Duration::ZERO));
    let node_log = NodeLog::open(log, worker, FailureHandler::new(damage.clone(), die())).unwrap();
    let mut log = node_log.group(ARC);
    append(&mut log, (0..40).map(|index| entry(index, 1_000)).collect()).await;
    let verify_all = || {
        let (mut after, mut bytes) = (None, 0);
        while let Some((last, read)) = node_log.shared.verify(after, 5_000)? {
            assert!(Some(last) > after && read < 10_000);
            (after, bytes) = (Some(last), bytes + read);
        }
        io::Result::Ok(bytes)
    };
    assert!(verify_all().unwrap() > 40_000);
    assert_eq!(damage.reason(), None);
    let name = disk.list().unwrap().into_iter().min().unwrap();
    disk.corrupt(&name, 20_000, &[1]);
    assert!(verify_all().is_err());
    assert!(damage.reason().is_some());
    log.save_vote(&vote(1)).await.unwrap();
    append(&mut log, vec![entry(40, 1_000)]).await;
}
