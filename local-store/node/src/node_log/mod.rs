//! The log of a node: one ordered stream of records for all its groups, synced by group commit.
//!
//! Entries, votes, truncations and purges are queued in order. A job on the worker appends all
//! queued records; a second job syncs them together and reports them as durable, in order. Records
//! that arrive in the meantime form the next batch. Therefore votes and entries of different groups
//! share a sync, and no record becomes durable before an earlier one.
//!
//! The last vote and the last purge of every group survive a truncation of the log, because each
//! truncation first appends them again at the end. The committed index is not stored. After a
//! start, a node waits until a leader announces which entries are committed, and then applies the
//! entries that its state lacks. A failed sync is never retried, because it means that the node has
//! failed.

mod damage;
mod group;
#[cfg(test)]
mod power_cut_tests;
mod presence;
mod raft_storage;
mod record;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::io;
use std::sync::{Arc, MutexGuard, mpsc};
use std::time::Duration;

use locks::Mutex;
use openraft::storage::IOFlushed;
use partition::mutation::{self, Mutation};
use tokio::sync::oneshot;

use self::damage::{cannot_be_read, is_damage};
pub(super) use self::group::bytes_of;
use self::group::{FoundEntry, Group};
pub(super) use self::record::HEAD_BYTES as RECORD_HEAD_BYTES;
use self::record::{HEAD_BYTES, Record};
use crate::failure::FailureHandler;
use crate::leadership::Ballot;
use crate::ring::ArcId;
use crate::status::LogUsage;
use crate::types::{Entry, TypeConfig};
use crate::worker::{Worker, run_on};
use storage::log::{self, Log};

pub use self::raft_storage::GroupLog;

/// The maximum size in bytes of the entries that are kept in memory for replication and applying.
/// The nodes of a process share the bytes of entries.
const KEPT_BYTES_MAX: usize = 8 * 1024 * 1024;
/// The maximum number of bytes that wait for the disk; if more bytes wait, appending waits. With a
/// healthy disk, fewer than three of the largest entries wait. If the leader's own disk is blocked,
/// the other nodes can still form a majority, so the leader continues to append. Without this
/// limit, the leader would keep all these entries in memory.
const WAITING_BYTES_MAX: usize = 64 * 1024 * 1024;
/// The pause before an append that a full disk rejected is retried. The rejected append wrote
/// nothing, so a retry is safe. Requests may time out in the meantime.
const FULL_DISK_RETRY: Duration = Duration::from_millis(500);

/// A queued item for the disk.
enum QueuedItem {
    Record(log::Entry),
    Done(Completion),
    /// Truncate the log up to the given position, inclusive. The state durably contains these
    /// entries.
    Shorten(u64),
    /// Continue the log in a small file, and remove unused files.
    Shrink,
}

/// The action to run when all earlier records are durable.
enum Completion {
    Flushed(IOFlushed<TypeConfig>),
    Signal(oneshot::Sender<()>),
}

struct State {
    groups: BTreeMap<ArcId, Group>,
    queue: Vec<QueuedItem>,
    /// The largest record that the log accepts, in bytes.
    record_bytes_max: usize,
    /// Bytes of the queued records, and of the records that a job has taken but not synced yet.
    queued_bytes: usize,
    writing_bytes: usize,
    /// Whether a job is running. A running job schedules the next one for records that were queued
    /// in the meantime.
    running: bool,
    next_position: u64,
    /// The reason of the first failure. When it is set, the log accepts no further records.
    failed: Option<String>,
    syncs: u64,
    synced_bytes: u64,
    log_bytes: u64,
    /// The size of a small segment, in bytes: see [`log::Options::small_bytes`].
    small_bytes: u64,
}

struct Shared {
    worker: Arc<dyn Worker>,
    /// The log on disk, which only jobs use, one at a time.
    log: Mutex<Log>,
    state: Mutex<State>,
    on_failure: FailureHandler,
}

/// A handle on a node's log.
#[derive(Clone)]
pub struct NodeLog {
    shared: Arc<Shared>,
}

impl NodeLog {
    /// Restores the groups from a log that was just opened.
    pub fn open(
        log: Log,
        worker: Arc<dyn Worker>,
        on_failure: impl Into<FailureHandler>,
    ) -> Result<Self, log::Error> {
        let mut groups: BTreeMap<ArcId, Group> = BTreeMap::new();
        for entry in log.read(log.first_index(), log.next_index())? {
            let entry = entry?;
            let position = entry.index;
            let (arc, record) = record::decode(entry.term, entry.payload.into_bytes())
                .map_err(|error| corrupt(position, &error))?;
            let taken = groups.entry(arc).or_default().take(position, record, false);
            taken.map_err(|gap| corrupt(position, &gap))?;
        }
        for (arc, group) in &groups {
            let at = group.oldest_position().unwrap_or_default();
            group.check().map_err(|gap| corrupt(at, &format_args!("{arc}: {gap}")))?;
        }
        let state = State {
            groups,
            queue: Vec::new(),
            record_bytes_max: log.payload_bytes_max(),
            queued_bytes: 0,
            writing_bytes: 0,
            running: false,
            next_position: log.next_index(),
            failed: None,
            syncs: 0,
            synced_bytes: 0,
            log_bytes: log.file_bytes(),
            small_bytes: log.options().small_bytes(),
        };
        let on_failure = on_failure.into();
        let shared = Shared { worker, log: Mutex::new(log), state: Mutex::new(state), on_failure };
        Ok(Self { shared: Arc::new(shared) })
    }

    /// Returns the log of one group.
    #[must_use]
    pub fn group(&self, arc: ArcId) -> GroupLog {
        GroupLog::new(self.clone(), arc)
    }

    /// Returns whether the log is new, so that no record was ever written to it.
    #[must_use]
    pub fn is_fresh(&self) -> bool {
        self.shared.lock().groups.is_empty()
    }

    /// Returns the progress of a group: the term of its vote, and the index of its last entry, even
    /// if it was purged; 0 before the first vote, and `None` before the first entry.
    pub fn position(&self, arc: ArcId) -> (u64, Option<u64>) {
        let state = self.shared.lock();
        let group = state.groups.get(&arc);
        let term = group.and_then(|group| group.vote).map_or(0, |vote| vote.leader_id.term);
        (term, group.and_then(Group::last_log_id).map(|at| at.index))
    }

    /// Returns the last vote of a group, which may be only queued. A vote is durable before it is
    /// sent.
    pub(super) fn ballot(&self, arc: ArcId) -> Option<Ballot> {
        let vote = self.shared.lock().groups.get(&arc)?.vote?;
        Some(Ballot { term: vote.leader_id.term, node: vote.leader_id.voted_for })
    }

    /// Returns the index of the last purged entry of a group.
    pub(super) fn purged(&self, arc: ArcId) -> Option<u64> {
        Some(self.shared.lock().groups.get(&arc)?.purged?.index)
    }

    /// Returns the work of the log since the node started, and the size of its files.
    #[must_use]
    pub fn usage(&self) -> LogUsage {
        let state = self.shared.lock();
        let State { syncs, synced_bytes, log_bytes, .. } = *state;
        LogUsage { syncs, synced_bytes, file_bytes: log_bytes }
    }

    /// Returns whether the oldest entry of this group prevents the truncation of the files.
    #[must_use]
    pub fn is_held_by(&self, arc: ArcId) -> bool {
        let state = self.shared.lock();
        let oldest = |group: &Group| group.oldest_position();
        let first = state.groups.values().filter_map(oldest).min();
        first.is_some() && state.groups.get(&arc).and_then(oldest) == first
    }

    /// Removes entries that a later leader has replaced. Called before a group starts. If the entry
    /// at the index of the state's last entry has another term, removes this entry and all later
    /// entries. A power loss can leave such entries, because a node applies an entry that a
    /// majority of other nodes has synced, without waiting for its own sync.
    pub(super) fn cut_replaced(&self, arc: ArcId, applied: crate::log_id::LogId) -> io::Result<()> {
        let there = self.shared.lock().groups.get(&arc).and_then(|g| g.term_of(applied.index));
        match there {
            Some(term) if term != applied.leader_id.term => {
                self.write(arc, [Record::Cut(applied.index)], None).map(|_| ())
            }
            _ => Ok(()),
        }
    }

    /// Queues records of a group, and the notification to send when they are durable. Returns the
    /// number of bytes that wait for the disk.
    fn write(
        &self,
        arc: ArcId,
        records: impl IntoIterator<Item = Record>,
        completion: Option<Completion>,
    ) -> io::Result<usize> {
        let mut state = self.shared.lock();
        state.check()?;
        for record in records {
            state.push(arc, record)?;
        }
        state.queue.extend(completion.map(QueuedItem::Done));
        self.shared.schedule(&mut state);
        Ok(state.queued_bytes + state.writing_bytes)
    }

    /// Queues records like [`NodeLog::write`], and waits until all these records are durable.
    async fn write_durably(
        &self,
        arc: ArcId,
        records: impl IntoIterator<Item = Record>,
    ) -> io::Result<()> {
        let (signal, durable) = oneshot::channel();
        self.write(arc, records, Some(Completion::Signal(signal)))?;
        durable.await.map_err(|_| io::Error::other("the log has stopped"))
    }

    /// Purges a group's entries, and truncates the files up to the first entry that any group
    /// needs.
    fn purge(&self, arc: ArcId, upto: crate::log_id::LogId) -> io::Result<()> {
        let mut state = self.shared.lock();
        state.check()?;
        state.push(arc, Record::Purged(upto))?;
        self.shorten(&mut state)
    }

    /// Truncates the files up to the first entry that any group needs.
    fn shorten(&self, state: &mut State) -> io::Result<()> {
        // The other records that must survive are appended again at the end, after the truncated
        // part.
        let last: Vec<(ArcId, Record)> = state
            .groups
            .iter()
            .flat_map(|(arc, group)| {
                let vote = group.vote.map(Record::Vote);
                let purged = group.purged.map(Record::Purged);
                let presence = match (group.has_left, group.vote, group.purged) {
                    (true, ..) => Some(Record::Left),
                    (false, None, None) => Some(Record::Joined),
                    (false, ..) => None,
                };
                let records = vote.into_iter().chain(purged).chain(presence);
                records.map(|record| (*arc, record))
            })
            .collect();
        let first_kept = state.next_position;
        for (arc, record) in last {
            state.push(arc, record)?;
        }
        let needed = state.groups.values().filter_map(Group::oldest_position).min();
        let mut upto = needed.unwrap_or(first_kept).min(first_kept).saturating_sub(1);
        if mutation::is_active(Mutation::ShortenTooFar) {
            upto = first_kept.saturating_sub(1);
        }
        state.queue.push(QueuedItem::Shorten(upto));
        self.shared.schedule(state);
        Ok(())
    }

    /// Returns whether the log's files are so small that [`NodeLog::shrink`] would not change them.
    #[must_use]
    pub fn is_small(&self) -> bool {
        let state = self.shared.lock();
        state.log_bytes <= state.small_bytes
    }

    /// Frees the disk space of files that no group needs. Later records begin in a small file.
    pub(super) async fn shrink(&self) -> io::Result<()> {
        let (signal, durable) = oneshot::channel();
        {
            let mut state = self.shared.lock();
            state.check()?;
            state.queue.extend([QueuedItem::Shrink, QueuedItem::Done(Completion::Signal(signal))]);
            self.shared.schedule(&mut state);
        }
        durable.await.map_err(|_| io::Error::other("the log has stopped"))?;
        // The records that the truncation appended are now after all records that it removes.
        let mut state = self.shared.lock();
        state.check()?;
        self.shorten(&mut state)
    }

    /// Reads the records after a position from disk, about `bytes_max` bytes but at least one
    /// record, and verifies their checksums. Returns the position of the last record read and the
    /// number of bytes; `None` if there are no further records. Reports damage. Blocks the thread.
    ///
    /// # Errors
    /// When the log is damaged, or the node has stopped.
    pub fn verify(&self, after: Option<u64>, bytes_max: usize) -> io::Result<Option<(u64, usize)>> {
        let shared = Arc::clone(&self.shared);
        let (sender, verified) = mpsc::channel();
        // Each verification is a separate job, because it blocks the worker, which must be able to
        // append between two verifications.
        self.shared.worker.run(Box::new(move || {
            // The caller may have stopped waiting.
            let _ = sender.send(shared.verify(after, bytes_max));
        }));
        verified.recv().unwrap_or_else(|_| Err(io::Error::other("the log's worker has ended")))
    }

    /// Reads entries of a group from `from` (inclusive) to `to` (exclusive), as far as they exist:
    /// about `bytes_max` bytes, but at least one entry.
    async fn read(
        &self,
        arc: ArcId,
        from: u64,
        to: u64,
        bytes_max: usize,
    ) -> io::Result<Vec<Entry>> {
        let read = {
            let state = self.shared.lock();
            state.check()?;
            let found =
                state.groups.get(&arc).map(|group| group.find(from, to)).unwrap_or_default();
            if found.iter().all(|found| matches!(found, FoundEntry::InMemory(_))) {
                let here = found.into_iter().filter_map(|found| match found {
                    FoundEntry::InMemory(entry) => Some(entry),
                    FoundEntry::OnDisk(_) => None,
                });
                return Ok(take_bytes(here, bytes_max));
            }
            // The read is queued under the lock, like every append and sync. A job that truncates
            // the files for a later purge therefore runs after this read, so the positions stay
            // valid until then.
            let shared = Arc::clone(&self.shared);
            run_on(&*self.shared.worker, move || shared.read_found(found, bytes_max))
        };
        let read = read.await;
        let lost = || Err(io::Error::other("the log's worker has ended"));
        let entries = read.unwrap_or_else(lost);
        if let Err(error) = &entries {
            self.shared.fail_to_read(error);
        }
        entries
    }
}

fn corrupt(position: u64, reason: &dyn std::fmt::Display) -> log::Error {
    log::Error::Corrupt {
        file: format!("record {position}"),
        offset: 0,
        expected: "consecutive records".to_owned(),
        found: reason.to_string(),
    }
}

fn take_bytes(entries: impl Iterator<Item = Entry>, bytes_max: usize) -> Vec<Entry> {
    let mut bytes = 0;
    let mut taken = Vec::new();
    for entry in entries {
        bytes += bytes_of(&entry);
        if !taken.is_empty() && bytes > bytes_max {
            break;
        }
        taken.push(entry);
    }
    taken
}

impl State {
    fn check(&self) -> io::Result<()> {
        match &self.failed {
            None => Ok(()),
            Some(reason) => Err(io::Error::other(reason.clone())),
        }
    }

    fn push(&mut self, arc: ArcId, record: Record) -> io::Result<()> {
        let (term, payload) = record::encode(arc, &record).map_err(io::Error::other)?;
        let (bytes, bytes_max) = (payload.len(), self.record_bytes_max);
        if bytes > bytes_max {
            // The record is rejected here, because a queued record of this size would stop the log
            // for all groups.
            return Err(io::Error::other(format!(
                "the record has {bytes} bytes; the log accepts at most {bytes_max}"
            )));
        }
        let position = self.next_position;
        let group = self.groups.entry(arc).or_default();
        group.take(position, record, true).map_err(io::Error::other)?;
        self.queued_bytes += payload.len();
        self.queue.push(QueuedItem::Record(log::Entry { index: position, term, payload }));
        self.next_position += 1;
        Ok(())
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }

    fn lock_log(&self) -> MutexGuard<'_, Log> {
        self.log.lock()
    }

    /// Schedules a job for the queue if no job is scheduled or running.
    fn schedule(self: &Arc<Self>, state: &mut State) {
        if !state.running && !state.queue.is_empty() {
            state.running = true;
            let shared = Arc::clone(self);
            self.worker.run(Box::new(move || shared.append(Vec::new())));
        }
    }

    /// Runs the first job: appends the items that a full disk rejected earlier, and all queued
    /// items.
    fn append(self: Arc<Self>, refused: Vec<QueuedItem>) {
        let mut items = refused;
        {
            let mut state = self.lock();
            items.append(&mut state.queue);
            state.writing_bytes += std::mem::take(&mut state.queued_bytes);
        }
        let mut entries = Vec::new();
        for item in &mut items {
            if let QueuedItem::Record(entry) = item {
                entries.push(std::mem::take(entry));
            }
        }
        let appended = self.lock_log().append(&entries);
        let worker = Arc::clone(&self.worker);
        match appended {
            Ok(()) => worker.run(Box::new(move || self.sync(items))),
            Err(error) if matches!(error, log::Error::OutOfSpace(_)) => {
                tracing::error!(%error, "the disk is full, and writes wait; free disk space");
                let mut entries = entries.into_iter();
                for item in &mut items {
                    if let QueuedItem::Record(entry) = item {
                        *entry = entries.next().unwrap_or_default();
                    }
                }
                worker.run_later(FULL_DISK_RETRY, Box::new(move || self.append(items)));
            }
            Err(error) => self.fail(&format!("the log cannot be written: {error}")),
        }
    }

    /// Runs the second job: syncs the items of the first job, and reports them as durable, in
    /// order.
    fn sync(self: Arc<Self>, items: Vec<QueuedItem>) {
        let synced = self.sync_log(&items);
        let (written, log_bytes) = match synced {
            Ok(written) => written,
            Err(error) => return self.fail(&format!("the log cannot be synced: {error}")),
        };
        for item in items {
            match item {
                QueuedItem::Done(Completion::Flushed(flushed)) => flushed.io_completed(Ok(())),
                // The receiver may have stopped waiting.
                QueuedItem::Done(Completion::Signal(signal)) => drop(signal.send(())),
                QueuedItem::Record(_) | QueuedItem::Shorten(_) | QueuedItem::Shrink => {}
            }
        }
        let mut state = self.lock();
        state.syncs += 1;
        state.synced_bytes += std::mem::take(&mut state.writing_bytes) as u64;
        state.log_bytes = log_bytes;
        for group in state.groups.values_mut() {
            group.shrink(written, KEPT_BYTES_MAX);
        }
        state.running = false;
        self.schedule(&mut state);
    }

    fn sync_log(&self, items: &[QueuedItem]) -> Result<(u64, u64), log::Error> {
        let mut log = self.lock_log();
        log.sync()?;
        for item in items {
            let changed = match item {
                QueuedItem::Shorten(upto) => {
                    let last = log.last_index();
                    log.truncate_prefix((*upto).min(last))
                }
                QueuedItem::Shrink => log.shrink(),
                QueuedItem::Record(_) | QueuedItem::Done(_) => Ok(()),
            };
            match changed {
                // The log is unchanged, and a later truncation frees the space.
                Err(log::Error::OutOfSpace(_)) => {}
                changed => changed?,
            }
        }
        Ok((log.next_index(), log.file_bytes()))
    }

    fn verify(&self, after: Option<u64>, bytes_max: usize) -> io::Result<Option<(u64, usize)>> {
        let log = self.lock_log();
        let first = log.first_index().max(after.map_or(0, |after| after.saturating_add(1)));
        if first >= log.next_index() {
            return Ok(None);
        }
        let (mut bytes, mut last) = (0, first);
        let records = log.read(first, log.next_index()).map_err(io::Error::other)?;
        for record in records {
            match record {
                Ok(record) => {
                    last = record.index;
                    bytes += record.payload.len() + HEAD_BYTES;
                }
                Err(error) => {
                    let error = io::Error::other(error);
                    // The node only reports a damaged record. It continues to vote and to append
                    // until it is set aside.
                    if is_damage(&error) {
                        self.on_failure.damage().report(&cannot_be_read(&error));
                    }
                    return Err(error);
                }
            }
            if bytes >= bytes_max {
                break;
            }
        }
        Ok(Some((last, bytes)))
    }

    fn read_found(&self, found: Vec<FoundEntry>, bytes_max: usize) -> io::Result<Vec<Entry>> {
        let log = self.lock_log();
        let read = |position: u64| -> io::Result<Entry> {
            let mut entries = log.read(position, position + 1).map_err(io::Error::other)?;
            let missing = || io::Error::other(format!("record {position} is missing"));
            let entry = entries.next().ok_or_else(missing)?.map_err(io::Error::other)?;
            match record::decode(entry.term, entry.payload.into_bytes())
                .map_err(io::Error::other)?
            {
                (_, Record::Entry(entry)) => Ok(entry),
                _ => Err(io::Error::other(format!("record {position} is not an entry"))),
            }
        };
        let mut entries = Vec::new();
        let mut bytes = 0;
        for found in found {
            let entry = match found {
                FoundEntry::InMemory(entry) => entry,
                FoundEntry::OnDisk(position) => read(position)?,
            };
            bytes += bytes_of(&entry);
            if !entries.is_empty() && bytes > bytes_max {
                break;
            }
            entries.push(entry);
        }
        Ok(entries)
    }

    /// Handles a record that cannot be read, usually because the node's disk is damaged.
    fn fail_to_read(&self, error: &io::Error) {
        let reason = cannot_be_read(error);
        if self.on_failure.damage().has_peers() && is_damage(error) {
            self.on_failure.damage().report(&reason);
        }
        self.fail(&reason);
    }

    /// Fails the node: no further record is reported as durable.
    fn fail(&self, reason: &str) {
        let first = {
            let mut state = self.lock();
            state.queue.clear();
            state.failed.replace(reason.to_owned()).is_none()
        };
        if first {
            self.on_failure.report(reason);
        }
    }
}
