//! The log of a node: one ordered stream of records for all its groups, synced by group commit.
//!
//! Entries, votes, truncations and purges are queued in the order in which they happen. A job on the
//! worker appends everything that is queued, a second one syncs it once and reports what is durable,
//! in that order; what is queued meanwhile makes the next group. So a vote and an entry of any group
//! share their sync, and no record can become durable before one that was queued earlier.
//!
//! The last vote and the last purge of every group survive when the log is shortened: they are
//! written again before. The committed index is not kept: a node that starts applies what its state
//! lacks when a leader says what is committed. A failed sync is never retried: the node is dead.

mod group;
#[cfg(test)]
mod power_cut_tests;
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

pub(super) use self::group::bytes_of;
use self::group::{Found, Group};
pub(super) use self::record::HEAD_BYTES as RECORD_HEAD_BYTES;
use self::record::{HEAD_BYTES, Record};
use crate::failure::FailureHandler;
use crate::leadership::Ballot;
use crate::ring::ArcId;
use crate::types::{Entry, TypeConfig};
use crate::worker::{Worker, run_on};
use storage::log::{self, Log};

pub use self::raft_storage::GroupLog;

/// Entries that are kept in memory for replication and applying. What one node of a process keeps
/// is shared with the others, as they share the bytes.
const KEPT_BYTES_MAX: usize = 8 * 1024 * 1024;
/// Bytes of records that may wait for the disk: beyond that, whoever appends waits, too. A healthy disk
/// has less than three of the largest entries before it. One that stands still does not hold up a leader
/// whose entries a majority of others has synced: without a bound it would gather them all.
const WAITING_BYTES_MAX: usize = 64 * 1024 * 1024;
/// After a full disk refused an append, time until the next try: nothing was written, so it may be
/// tried again, and requests meanwhile time out.
const FULL_DISK_RETRY: Duration = Duration::from_millis(500);

/// What waits for the disk.
enum Item {
    Record(log::Entry),
    Done(Completion),
    /// Everything before is durable elsewhere: let go of the log up to this position, inclusive.
    Shorten(u64),
}

/// Who wants to know that everything before is durable.
enum Completion {
    Flushed(IOFlushed<TypeConfig>),
    Signal(oneshot::Sender<()>),
}

struct State {
    groups: BTreeMap<ArcId, Group>,
    queue: Vec<Item>,
    /// What the log takes as one record.
    record_bytes_max: usize,
    /// The bytes of the records in it, and of those that a job has taken and not yet synced.
    queued_bytes: usize,
    taken_bytes: usize,
    /// Whether a job is under way; it takes what is queued meanwhile.
    running: bool,
    next_position: u64,
    /// Set by the first failure, for good.
    failed: Option<String>,
    syncs: u64,
    log_bytes: u64,
}

struct Shared {
    worker: Arc<dyn Worker>,
    /// Used by jobs only, one at a time.
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
    /// Finds the groups in a log that was just opened.
    ///
    /// # Errors
    /// When its records contradict each other: the node has to be rebuilt.
    pub fn open(
        log: Log,
        worker: Arc<dyn Worker>,
        on_failure: impl Into<FailureHandler>,
    ) -> Result<Self, log::Error> {
        let mut groups: BTreeMap<ArcId, Group> = BTreeMap::new();
        for entry in log.read(log.first_index(), log.next_index())? {
            let entry = entry?;
            let position = entry.index;
            let corrupt = |reason: String| corrupt(position, reason);
            let (arc, record) = record::decode(entry.term, entry.payload.into_bytes())
                .map_err(|e| corrupt(e.to_string()))?;
            groups.entry(arc).or_default().take(position, record, false).map_err(corrupt)?;
        }
        for (arc, group) in &groups {
            let at = group.oldest_position().unwrap_or_default();
            group.check().map_err(|reason| corrupt(at, format!("{arc}: {reason}")))?;
        }
        let state = State {
            groups,
            queue: Vec::new(),
            record_bytes_max: log.payload_bytes_max(),
            queued_bytes: 0,
            taken_bytes: 0,
            running: false,
            next_position: log.next_index(),
            failed: None,
            syncs: 0,
            log_bytes: log.file_bytes(),
        };
        let on_failure = on_failure.into();
        let shared = Shared { worker, log: Mutex::new(log), state: Mutex::new(state), on_failure };
        Ok(Self { shared: Arc::new(shared) })
    }

    /// The log of one group.
    #[must_use]
    pub fn group(&self, arc: ArcId) -> GroupLog {
        GroupLog::new(self.clone(), arc)
    }

    /// Whether nothing was ever written here.
    #[must_use]
    pub fn is_fresh(&self) -> bool {
        self.shared.lock().groups.is_empty()
    }

    /// How far a group is: the term of its vote, and the index of its last entry, also if that was
    /// let go of; 0 and none before the first ones.
    pub fn position(&self, arc: ArcId) -> (u64, Option<u64>) {
        let state = self.shared.lock();
        let group = state.groups.get(&arc);
        let term = group.and_then(|group| group.vote).map_or(0, |vote| vote.leader_id.term);
        (term, group.and_then(Group::last_log_id).map(|at| at.index))
    }

    /// The last vote of a group that is queued here or durable: what is given is durable before.
    pub(super) fn ballot(&self, arc: ArcId) -> Option<Ballot> {
        let vote = self.shared.lock().groups.get(&arc)?.vote?;
        Some(Ballot { term: vote.leader_id.term, node: vote.leader_id.voted_for })
    }

    /// The index of the last entry of a group that was let go of.
    pub(super) fn purged(&self, arc: ArcId) -> Option<u64> {
        Some(self.shared.lock().groups.get(&arc)?.purged?.index)
    }

    /// Syncs since the start, and the bytes that the files take.
    #[must_use]
    pub fn usage(&self) -> (u64, u64) {
        let state = self.shared.lock();
        (state.syncs, state.log_bytes)
    }

    /// Whether it is this group's oldest entry that the files cannot be shortened beyond.
    #[must_use]
    pub fn is_held_by(&self, arc: ArcId) -> bool {
        let state = self.shared.lock();
        let oldest = |group: &Group| group.oldest_position();
        let first = state.groups.values().filter_map(oldest).min();
        first.is_some() && state.groups.get(&arc).and_then(oldest) == first
    }

    /// Before a group starts: lets go of the entry at the place of the state's last one, and of those
    /// behind it, if it is of another term. A later leader has replaced them; the state had that on
    /// disk, and the log had not, when the power went: an entry that others have synced is applied
    /// without waiting for the sync here.
    pub(super) fn cut_replaced(&self, arc: ArcId, applied: crate::log_id::LogId) -> io::Result<()> {
        let there = self.shared.lock().groups.get(&arc).and_then(|g| g.term_of(applied.index));
        match there {
            Some(term) if term != applied.leader_id.term => {
                self.write(arc, [Record::Cut(applied.index)], None).map(|_| ())
            }
            _ => Ok(()),
        }
    }

    /// Queues records of a group, and what to do when they are durable. Gives the bytes that wait for
    /// the disk.
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
        state.queue.extend(completion.map(Item::Done));
        self.shared.schedule(&mut state);
        Ok(state.queued_bytes + state.taken_bytes)
    }

    /// As [`NodeLog::write`], and returns when all of it is durable.
    async fn write_durably(
        &self,
        arc: ArcId,
        records: impl IntoIterator<Item = Record>,
    ) -> io::Result<()> {
        let (signal, durable) = oneshot::channel();
        self.write(arc, records, Some(Completion::Signal(signal)))?;
        durable.await.map_err(|_| io::Error::other("the log has stopped"))
    }

    /// Lets go of a group's entries, and of as much of the files as no group needs.
    fn purge(&self, arc: ArcId, upto: crate::log_id::LogId) -> io::Result<()> {
        let mut state = self.shared.lock();
        state.check()?;
        state.push(arc, Record::Purged(upto))?;
        // What else must survive is written again, so that it stands behind what goes.
        let last: Vec<(ArcId, Record)> = state
            .groups
            .iter()
            .flat_map(|(arc, group)| {
                let vote = group.vote.map(Record::Vote);
                let purged = group.purged.map(Record::Purged);
                vote.into_iter().chain(purged).map(|record| (*arc, record))
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
        state.queue.push(Item::Shorten(upto));
        self.shared.schedule(&mut state);
        Ok(())
    }

    /// Reads the records behind a position anew, about `bytes_max` of them and at least one, and
    /// compares them with their checksums. Gives the position of the last one and the bytes that were
    /// read; `None` behind the last record. Damage is reported. Blocks the thread.
    ///
    /// # Errors
    /// When the log is damaged, or the node has ended.
    pub fn verify(&self, after: Option<u64>, bytes_max: usize) -> io::Result<Option<(u64, usize)>> {
        let shared = Arc::clone(&self.shared);
        let (sender, verified) = mpsc::channel();
        // The worker appends in between: what is verified at a time holds it up for as long as it takes
        // to read that.
        self.shared.worker.run(Box::new(move || {
            // Whoever asked may have ended.
            let _ = sender.send(shared.verify(after, bytes_max));
        }));
        verified.recv().unwrap_or_else(|_| Err(io::Error::other("the log's worker has ended")))
    }

    /// Reads entries of a group from `from` (inclusive) to `to` (exclusive), as many as are there
    /// and about `bytes_max`, at least one.
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
            if found.iter().all(|found| matches!(found, Found::Here(_))) {
                let here = found.into_iter().filter_map(|found| match found {
                    Found::Here(entry) => Some(entry),
                    Found::At(_) => None,
                });
                return Ok(take_bytes(here, bytes_max));
            }
            // Queued under the lock, as every append and sync is: the job that shortens the files for
            // a purge that comes after this comes after the read, whose places stay until then.
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

/// The code of an error of the disk itself, as Linux and macOS number it: `EIO`.
const DISK_ERROR: i32 = 5;

/// Whether it is the disk that made a read fail: wrong bytes, or none.
fn is_damage(error: &io::Error) -> bool {
    match error.get_ref().and_then(|source| source.downcast_ref::<log::Error>()) {
        Some(log::Error::Disk(disk)) => disk.source.raw_os_error() == Some(DISK_ERROR),
        Some(log::Error::Corrupt { .. }) | None => true,
        Some(_) => false,
    }
}

fn cannot_be_read(error: &io::Error) -> String {
    format!("the log cannot be read: {error}")
}

fn corrupt(position: u64, reason: String) -> log::Error {
    log::Error::Corrupt {
        file: format!("record {position}"),
        offset: 0,
        expected: "records that continue each other".to_owned(),
        found: reason,
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
            // Queued, it would be the end of the log for everybody.
            return Err(io::Error::other(format!("a record of {bytes} bytes, beyond {bytes_max}")));
        }
        let position = self.next_position;
        let group = self.groups.entry(arc).or_default();
        group.take(position, record, true).map_err(io::Error::other)?;
        self.queued_bytes += payload.len();
        self.queue.push(Item::Record(log::Entry { index: position, term, payload }));
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

    /// Sees to it that a job takes what is queued.
    fn schedule(self: &Arc<Self>, state: &mut State) {
        if !state.running && !state.queue.is_empty() {
            state.running = true;
            let shared = Arc::clone(self);
            self.worker.run(Box::new(move || shared.append(Vec::new())));
        }
    }

    /// The first job: appends what a full disk refused before, and everything queued.
    fn append(self: Arc<Self>, refused: Vec<Item>) {
        let mut items = refused;
        {
            let mut state = self.lock();
            items.append(&mut state.queue);
            state.taken_bytes += std::mem::take(&mut state.queued_bytes);
        }
        let mut entries = Vec::new();
        for item in &mut items {
            if let Item::Record(entry) = item {
                entries.push(std::mem::take(entry));
            }
        }
        let appended = self.lock_log().append(&entries);
        let worker = Arc::clone(&self.worker);
        match appended {
            Ok(()) => worker.run(Box::new(move || self.sync(items))),
            Err(error) if matches!(error, log::Error::OutOfSpace(_)) => {
                tracing::error!(%error, "writes wait until there is space");
                let mut entries = entries.into_iter();
                for item in &mut items {
                    if let Item::Record(entry) = item {
                        *entry = entries.next().unwrap_or_default();
                    }
                }
                worker.run_later(FULL_DISK_RETRY, Box::new(move || self.append(items)));
            }
            Err(error) => self.fail(&format!("the log cannot be written: {error}")),
        }
    }

    /// The second job: syncs what the first one appended, and reports it, in order.
    fn sync(self: Arc<Self>, items: Vec<Item>) {
        let synced = self.sync_log(&items);
        let (written, log_bytes) = match synced {
            Ok(written) => written,
            Err(error) => return self.fail(&format!("the log cannot be synced: {error}")),
        };
        for item in items {
            match item {
                Item::Done(Completion::Flushed(flushed)) => flushed.io_completed(Ok(())),
                // Whoever asked may have gone away.
                Item::Done(Completion::Signal(signal)) => drop(signal.send(())),
                Item::Record(_) | Item::Shorten(_) => {}
            }
        }
        let mut state = self.lock();
        state.syncs += 1;
        state.taken_bytes = 0;
        state.log_bytes = log_bytes;
        for group in state.groups.values_mut() {
            group.shrink(written, KEPT_BYTES_MAX);
        }
        state.running = false;
        self.schedule(&mut state);
    }

    fn sync_log(&self, items: &[Item]) -> Result<(u64, u64), log::Error> {
        let mut log = self.lock_log();
        log.sync()?;
        for item in items {
            if let Item::Shorten(upto) = item {
                let last = log.last_index();
                log.truncate_prefix((*upto).min(last))?;
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
                    // The node still votes, and appends behind the damage, until it is set aside.
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

    fn read_found(&self, found: Vec<Found>, bytes_max: usize) -> io::Result<Vec<Entry>> {
        let log = self.lock_log();
        let read = |position: u64| -> io::Result<Entry> {
            let mut entries = log.read(position, position + 1).map_err(io::Error::other)?;
            let missing = || io::Error::other(format!("record {position} is not there"));
            let entry = entries.next().ok_or_else(missing)?.map_err(io::Error::other)?;
            match record::decode(entry.term, entry.payload.into_bytes())
                .map_err(io::Error::other)?
            {
                (_, Record::Entry(entry)) => Ok(entry),
                _ => Err(io::Error::other(format!("record {position} is no entry"))),
            }
        };
        let mut entries = Vec::new();
        let mut bytes = 0;
        for found in found {
            let entry = match found {
                Found::Here(entry) => entry,
                Found::At(position) => read(position)?,
            };
            bytes += bytes_of(&entry);
            if !entries.is_empty() && bytes > bytes_max {
                break;
            }
            entries.push(entry);
        }
        Ok(entries)
    }

    /// What was written cannot be read, mostly because the node's disk is damaged.
    fn fail_to_read(&self, error: &io::Error) {
        let reason = cannot_be_read(error);
        if self.on_failure.damage().has_peers() && is_damage(error) {
            self.on_failure.damage().report(&reason);
        }
        self.fail(&reason);
    }

    /// The node is dead: nothing that was not reported ever will be.
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
