//! The state of one group on one node: the partition machine and its storage, as the state machine
//! of the consensus library.
//!
//! Each committed entry becomes one atomic batch that contains the position of the entry. Therefore
//! the state always records exactly which entries it contains, and applying an entry again after a
//! crash has no effect. This module makes no decisions and has no clock: the time is in the entry.

mod arrivals;
mod place;
pub(crate) mod recent_entries;

use std::io;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use futures::{Stream, StreamExt};
use locks::{Mutex, RwLock};
use openraft::EntryPayload;
use openraft::storage::{EntryResponder, RaftSnapshotBuilder, RaftStateMachine};
use partition::mutation::{self, Mutation};
use partition::{ArcPosition, Batch, Catalogue, Machine, Op, Reply, Ring, TableId, View};
use tokio::sync::{Notify, watch};

use crate::failure::FailureHandler;
use crate::leadership::Electorate;
use crate::log_id::LogId;
use crate::node_log::bytes_of;
use crate::payload::{Outcome, Payload};
use crate::replica::arrivals::Arrivals;
use crate::replica::place::{APPLIED_KEY, encode, read_place};
use crate::replica::recent_entries::{RecentBoundary, RecentEntries};
use crate::state_location::{StagedStorage, StateLocation};
use crate::types::{Entry, Replies, SnapshotMeta, StoredMembership, TypeConfig};
use crate::worker::{Worker, run_on};
use storage::Storage;

/// The exclusive end of all keys.
const END: [u8; 1] = [0xff];
/// The size in bytes of a part of a snapshot, which is sent in one message and installed in one
/// batch.
pub(super) const PART_BYTES: usize = 512 * 1024;
/// The size of new entries in bytes at which the state is persisted and the log is truncated:
/// slightly less than two segments of the log, so that segments are reused.
const PERSIST_BYTES: usize = 40 * 1024 * 1024;
/// The divisor of an entry's changed bytes. An entry counts towards [`PERSIST_BYTES`] with its
/// bytes in the log, or with its changed bytes divided by this number, whichever is larger. This
/// limits the replay after a restart: applying 160 MB of unpersisted changes takes a second or two.
/// A write of an item with a few indexes and a stream changes about this many times the item's
/// bytes.
const CHANGED_PART: usize = 4;

pub use self::place::check_continuity;
pub(crate) use self::place::{MEMBERSHIP_KEY, decode_membership};

/// Keys and values.
pub(super) type Pairs = Vec<(Vec<u8>, Vec<u8>)>;

/// The interval of entries that each node of a process applies itself, to compare its result with
/// the shared result. This detects diverged states within 16 entries, at a sixteenth of the cost of
/// applying all entries.
pub(super) const COMPARED_EVERY: u64 = 16;

/// The state that readers see. It never contains only a part of an entry.
pub(super) struct Shared {
    storage: RwLock<Arc<dyn Storage>>,
    catalogue: RwLock<Arc<Catalogue>>,
    /// The ring, which only the first arc has.
    ring: RwLock<Arc<Ring>>,
    /// A log index as of which the tables are those of `catalogue`, and the ring is `ring`.
    tables_version: AtomicU64,
    applied: watch::Sender<Option<u64>>,
    arrivals: Arrivals,
    /// The electorate as of the last entry that was published. The storage contains this entry.
    electorate: RwLock<Electorate>,
    /// The latest time of an applied entry.
    now: AtomicU64,
}

impl Shared {
    pub(super) fn now(&self) -> model::EpochMillis {
        model::EpochMillis(self.now.load(Ordering::Relaxed))
    }

    pub(super) fn view(&self) -> Box<dyn View + Send + Sync> {
        self.storage().view()
    }

    pub(super) fn catalogue(&self) -> Arc<Catalogue> {
        Arc::clone(&self.catalogue.read())
    }

    /// Returns a receiver of the index of the last applied entry.
    pub(super) fn applied(&self) -> watch::Receiver<Option<u64>> {
        self.applied.subscribe()
    }

    /// Returns a receiver that is notified when an entry that this node proposed has added records
    /// to a table's stream.
    pub(super) fn arrivals(&self, table: TableId) -> watch::Receiver<()> {
        self.arrivals.of_table(table)
    }

    /// Returns whether this node has applied the entry at this index.
    pub(super) fn has_applied(&self, index: u64) -> bool {
        *self.applied.borrow() >= Some(index)
    }

    pub(super) fn with_electorate<T>(&self, ask: impl FnOnce(&Electorate) -> T) -> T {
        ask(&self.electorate.read())
    }

    /// Wakes the tasks that wait for an entry, so that they check whether the node has stopped.
    pub(super) fn wake_waiting(&self) {
        self.applied.send_modify(|_| {});
    }

    pub(super) fn storage(&self) -> Arc<dyn Storage> {
        Arc::clone(&self.storage.read())
    }

    /// Returns the index of the last applied entry, and a number that identifies the tables and the ring: the
    /// number differs whenever they differ.
    pub(super) fn versions(&self) -> (u64, u64) {
        let applied = self.applied.borrow().unwrap_or(0);
        (applied, self.tables_version.load(Ordering::Acquire))
    }

    pub(super) fn ring(&self) -> Arc<Ring> {
        Arc::clone(&self.ring.read())
    }

    /// Publishes the tables and the ring as of the entry at `index`.
    fn set_definitions(&self, machine: &Machine, index: u64) {
        let (catalogue, ring) = (machine.catalogue(), machine.ring());
        if !Arc::ptr_eq(&self.catalogue(), catalogue) || !Arc::ptr_eq(&self.ring(), ring) {
            *self.catalogue.write() = Arc::clone(catalogue);
            *self.ring.write() = Arc::clone(ring);
            self.tables_version.store(index, Ordering::Release);
        }
    }
}

/// The content of a snapshot.
pub enum SnapshotData {
    /// A snapshot view of a state, to be sent.
    View(Arc<dyn View + Send + Sync>),
    /// A received storage, to be installed.
    Received(StagedStorage),
}

pub(super) type Snapshot = openraft::alias::SnapshotOf<TypeConfig, SnapshotData>;

/// The state machine of one group.
pub struct Replica {
    arc_position: ArcPosition,
    machine: Machine,
    applied: Option<LogId>,
    membership: StoredMembership,
    state_location: Arc<dyn StateLocation>,
    worker: Arc<dyn Worker>,
    shared: Arc<Shared>,
    unpersisted_bytes: usize,
    persist_due: Arc<Notify>,
    recent: RecentEntries,
    /// Whether results are cached for other replicas of this process.
    has_neighbours: bool,
    on_failure: FailureHandler,
}

impl Replica {
    /// Opens the state in `location`, and persists it. If `has_neighbours` is true, caches results
    /// for other replicas: see [`crate::Settings::has_neighbours`].
    ///
    /// # Errors
    /// When the state cannot be read, or is damaged.
    pub(super) fn open(
        position: ArcPosition,
        location: Arc<dyn StateLocation>,
        worker: Arc<dyn Worker>,
        has_neighbours: bool,
        on_failure: impl Into<FailureHandler>,
    ) -> Result<Self, io::Error> {
        let storage = location.open().map_err(io::Error::other)?;
        storage.persist().map_err(io::Error::other)?;
        let view = storage.patient_view();
        let (mut applied, membership) = read_place(&*view)?;
        if mutation::is_active(Mutation::ApplyTwice)
            && let Some(at) = &mut applied
        {
            at.index = at.index.saturating_sub(1);
        }
        let machine = Machine::open_in(position, &*view).map_err(io::Error::other)?;
        let shared = Arc::new(Shared {
            storage: RwLock::new(storage),
            catalogue: RwLock::new(Arc::clone(machine.catalogue())),
            ring: RwLock::new(Arc::clone(machine.ring())),
            tables_version: AtomicU64::new(applied.map_or(0, |at| at.index)),
            applied: watch::Sender::new(applied.map(|at| at.index)),
            arrivals: Arrivals::default(),
            // The electorate is empty, because the node must be elected again before it can prove
            // its leadership.
            electorate: RwLock::default(),
            now: AtomicU64::new(machine.now().0),
        });
        let (unpersisted_bytes, persist_due) = (0, Arc::new(Notify::new()));
        Ok(Self {
            arc_position: position,
            machine,
            applied,
            membership,
            state_location: location,
            worker,
            shared,
            unpersisted_bytes,
            persist_due,
            recent: RecentEntries::default(),
            has_neighbours,
            on_failure: on_failure.into(),
        })
    }

    /// Returns the last entry that the state contains.
    pub(super) fn applied(&self) -> Option<LogId> {
        self.applied
    }

    /// Returns a shared handle on the index of the last entry that is not a recent entry (see
    /// `recent_entries`).
    pub(super) fn before_recent(&self) -> RecentBoundary {
        self.recent.before()
    }

    /// Returns the notification that a large part of the state is not persisted.
    pub(super) fn persist_due(&self) -> Arc<Notify> {
        Arc::clone(&self.persist_due)
    }

    pub(super) fn shared(&self) -> Arc<Shared> {
        Arc::clone(&self.shared)
    }

    /// Returns the latest time of the applied entries.
    pub(super) fn now(&self) -> model::EpochMillis {
        self.machine.now()
    }

    /// Applies an entry. Returns the replies to its commands only if `is_asked`.
    fn apply_entry(&mut self, entry: Entry, is_asked: bool) -> Result<Replies, io::Error> {
        let at = entry.log_id;
        let log_bytes = bytes_of(&entry);
        self.recent.note(at.index, log_bytes);
        let applied = Op::Put(APPLIED_KEY.to_vec(), encode(&at)?.into());
        let is_membership = matches!(entry.payload, EntryPayload::Membership(_));
        let (batch, replies) = match entry.payload {
            EntryPayload::Normal(payload) => self.outcome_of(at, &payload, applied, is_asked)?,
            EntryPayload::Membership(membership) => {
                self.membership = StoredMembership::new(Some(at), membership);
                let membership = encode(&self.membership)?.into();
                let ops = vec![applied, Op::Put(MEMBERSHIP_KEY.to_vec(), membership)];
                (Arc::new(Batch { ops }), Vec::new())
            }
            EntryPayload::Blank => (Arc::new(Batch { ops: vec![applied] }), Vec::new()),
        };
        // A write whose condition fails changes nothing, but occupies space in the log.
        self.unpersisted_bytes += log_bytes.max(batch.size() / CHANGED_PART);
        if self.unpersisted_bytes > PERSIST_BYTES {
            self.unpersisted_bytes = 0;
            self.persist_due.notify_one();
        }
        self.shared.storage().apply(&batch).map_err(io::Error::other)?;
        let is_first_of_term = self.applied.is_none_or(|before| before.leader_id != at.leader_id);
        self.applied = Some(at);
        if is_first_of_term || is_membership {
            self.set_standing();
        }
        self.shared.set_definitions(&self.machine, at.index);
        self.shared.now.store(self.machine.now().0, Ordering::Relaxed);
        // Only the proposing replica notifies, and only after the entry is visible, so that every woken task
        // sees it.
        if is_asked {
            self.shared.arrivals.notify(&batch);
        }
        Ok(Replies(replies))
    }

    /// Returns the changes of an entry and the replies to its commands. Another node of this
    /// process may already have computed them from the same state.
    fn outcome_of(
        &mut self,
        at: LogId,
        payload: &Payload,
        applied: Op,
        is_asked: bool,
    ) -> Result<(Arc<Batch>, Vec<Reply>), io::Error> {
        let place = (self.arc_position.arc, at);
        let known = payload.outcome(place);
        let is_compared = at.index.is_multiple_of(COMPARED_EVERY);
        // To compare this node's result with the shared result, the bytes are decoded again,
        // because the shared commands come from the proposer.
        let own_reading = is_compared && known.is_some();
        let commands = if own_reading { payload.decode_anew() } else { payload.decode() };
        let commands = commands.map_err(io::Error::other)?;
        if !is_compared
            && let Some(known) = &known
            && let Some(replies) = known.replies(is_asked)
            && self.machine.take_over(at.index, &commands)
        {
            return Ok((Arc::clone(&known.batch), replies));
        }
        let view = self.shared.storage().patient_view();
        let (mut batch, replies) =
            self.machine.apply(&*view, at.index, &commands).map_err(io::Error::other)?;
        batch.ops.push(applied);
        if let Some(known) = known {
            return if *known.batch == batch {
                Ok((known.batch.clone(), replies))
            } else {
                Err(differs(at))
            };
        }
        let batch = Arc::new(batch);
        if !self.has_neighbours {
            return Ok((batch, if is_asked { replies } else { Vec::new() }));
        }
        let (kept, given) = if is_asked { (None, replies) } else { (Some(replies), Vec::new()) };
        if commands.only_writes() {
            let (batch, replies) = (Arc::clone(&batch), Mutex::new(kept));
            payload.keep_outcome(Outcome { place, batch, replies });
        }
        Ok((batch, given))
    }

    /// Publishes the term and the voters as of the last entry.
    fn set_standing(&self) {
        let term = self.applied.map_or(0, |at| at.leader_id.term);
        let electorate = Electorate::new(term, self.membership.membership());
        *self.shared.electorate.write() = electorate;
    }

    async fn fail<T>(&self, what: &str, error: io::Error) -> Result<T, io::Error> {
        self.on_failure.report_and_wait(&format!("{what}: {error}")).await;
        Err(error)
    }

    fn meta(&self) -> SnapshotMeta {
        SnapshotMeta { last_log_id: self.applied, last_membership: self.membership.clone() }
    }

    async fn install(&mut self, meta: &SnapshotMeta, data: SnapshotData) -> Result<(), io::Error> {
        let (position, location, meta) =
            (self.arc_position, Arc::clone(&self.state_location), meta.clone());
        let installed = run_on(&*self.worker, move || -> Result<_, io::Error> {
            let staged = match data {
                SnapshotData::Received(staged) => staged,
                SnapshotData::View(view) => {
                    let staged = location.begin().map_err(io::Error::other)?;
                    copy(&*view, &*staged.storage)?;
                    staged
                }
            };
            let storage = Arc::clone(&staged.storage);
            let mut ops = Vec::new();
            if let Some(at) = &meta.last_log_id {
                ops.push(Op::Put(APPLIED_KEY.to_vec(), encode(at)?.into()));
            }
            ops.push(Op::Put(MEMBERSHIP_KEY.to_vec(), encode(&meta.last_membership)?.into()));
            storage.apply(&Batch { ops }).map_err(io::Error::other)?;
            location.adopt(&staged).map_err(io::Error::other)?;
            let machine =
                Machine::open_in(position, &*storage.patient_view()).map_err(io::Error::other)?;
            Ok((storage, machine, meta))
        });
        let lost = || Err(io::Error::other("the node's worker thread has stopped"));
        let (storage, machine, meta) = installed.await.unwrap_or_else(lost)?;
        self.machine = machine;
        self.applied = meta.last_log_id;
        self.membership = meta.last_membership;
        *self.shared.storage.write() = storage;
        let index = self.applied.map_or(0, |at| at.index);
        self.shared.set_definitions(&self.machine, index);
        self.shared.now.store(self.machine.now().0, Ordering::Relaxed);
        self.set_standing();
        self.shared.applied.send_replace(self.applied.map(|at| at.index));
        Ok(())
    }
}

impl RaftStateMachine<TypeConfig> for Replica {
    type SnapshotData = SnapshotData;
    type SnapshotBuilder = Builder;

    async fn applied_state(&mut self) -> Result<(Option<LogId>, StoredMembership), io::Error> {
        Ok((self.applied, self.membership.clone()))
    }

    async fn apply<S>(&mut self, mut entries: S) -> Result<(), io::Error>
    where
        S: Stream<Item = Result<EntryResponder<TypeConfig>, io::Error>> + Unpin + Send,
    {
        while let Some(next) = entries.next().await {
            let (entry, responder) = next?;
            let replies = match self.apply_entry(entry, responder.is_some()) {
                Ok(replies) => replies,
                Err(error) => return self.fail("cannot apply a log entry", error).await,
            };
            self.shared.applied.send_replace(self.applied.map(|at| at.index));
            if let Some(responder) = responder {
                responder.send(replies);
            }
        }
        Ok(())
    }

    async fn get_snapshot_builder(&mut self) -> Builder {
        Builder {
            storage: self.shared.storage(),
            view: Arc::from(self.shared.view()),
            meta: self.meta(),
            worker: Arc::clone(&self.worker),
            on_failure: self.on_failure.clone(),
        }
    }

    async fn install_snapshot(
        &mut self,
        meta: &SnapshotMeta,
        data: SnapshotData,
    ) -> Result<(), io::Error> {
        match self.install(meta, data).await {
            Ok(()) => Ok(()),
            Err(error) => self.fail("cannot install a snapshot", error).await,
        }
    }

    async fn get_current_snapshot(&mut self) -> Result<Option<Snapshot>, io::Error> {
        if self.applied.is_none() {
            return Ok(None);
        }
        let view = SnapshotData::View(Arc::from(self.shared.view()));
        Ok(Some(Snapshot { meta: self.meta(), snapshot: view }))
    }
}

/// A builder of snapshots. It persists the state as of its creation. The persisted state itself is
/// the snapshot, so nothing is copied, and the log may be truncated up to the snapshot's last
/// entry.
pub struct Builder {
    storage: Arc<dyn Storage>,
    view: Arc<dyn View + Send + Sync>,
    meta: SnapshotMeta,
    worker: Arc<dyn Worker>,
    on_failure: FailureHandler,
}

impl RaftSnapshotBuilder<TypeConfig> for Builder {
    type SnapshotData = SnapshotData;

    async fn build_snapshot(&mut self) -> Result<Snapshot, io::Error> {
        let storage = Arc::clone(&self.storage);
        let persisted = run_on(&*self.worker, move || storage.persist().map_err(io::Error::other));
        let lost = || Err(io::Error::other("the node's worker thread has stopped"));
        if let Err(error) = persisted.await.unwrap_or_else(lost) {
            self.on_failure.report_and_wait(&format!("cannot persist the state: {error}")).await;
            return Err(error);
        }
        let snapshot = SnapshotData::View(Arc::clone(&self.view));
        Ok(Snapshot { meta: self.meta.clone(), snapshot })
    }
}

fn differs(at: LogId) -> io::Error {
    io::Error::other(format!(
        "entry {at} has different effects on two nodes of this process: the state of one of them is damaged"
    ))
}

/// Returns the next pairs of a state from a key on: about [`PART_BYTES`] bytes, but at least one
/// pair. Also returns the key to continue from, or `None` at the end.
pub(super) fn read_part(
    view: &dyn View,
    from: &[u8],
) -> Result<(Pairs, Option<Vec<u8>>), io::Error> {
    let mut pairs = Vec::new();
    let (mut bytes, mut next) = (0, None);
    view.scan(from, &END, false, &mut |key, value| {
        if bytes >= PART_BYTES {
            next = Some(key.to_vec());
            return ControlFlow::Break(());
        }
        bytes += key.len() + value.len();
        pairs.push((key.to_vec(), value.to_vec()));
        ControlFlow::Continue(())
    })
    .map_err(io::Error::other)?;
    Ok((pairs, next))
}

/// Writes pairs into a storage as one batch.
pub(super) fn write_part(storage: &dyn Storage, pairs: Pairs) -> Result<(), io::Error> {
    if !pairs.is_sorted_by(|(before, _), (key, _)| before < key) {
        return Err(io::Error::other("the keys of the snapshot part are not in ascending order"));
    }
    let ops = pairs.into_iter().map(|(key, value)| Op::Put(key, value.into())).collect();
    storage.apply(&Batch { ops }).map_err(io::Error::other)
}

fn copy(view: &dyn View, storage: &dyn Storage) -> Result<(), io::Error> {
    let mut from = Some(vec![0]);
    while let Some(start) = from {
        let (pairs, next) = read_part(view, &start)?;
        write_part(storage, pairs)?;
        from = next;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use bytes::Bytes;
    use futures::FutureExt;
    use model::{EpochMillis, Item, KeyValue, PrimaryKey};
    use openraft::entry::RaftEntry;
    use partition::{Command, TableId, Write, WriteAction, encode_entry};

    use super::*;
    use crate::log_id::log_id;
    use crate::node::tests::TaskWorker;
    use crate::{MemoryLocation, OnFatal};

    #[tokio::test(start_paused = true)]
    async fn results_are_kept_only_for_neighbours() {
        let nothing = partition::Entry { now: EpochMillis(7), commands: Vec::new() };
        for has_neighbours in [true, false] {
            let location = Arc::new(MemoryLocation::default());
            let worker = Arc::new(TaskWorker::start(Duration::ZERO));
            let die: OnFatal = Arc::new(|reason| panic!("{reason}"));
            let mut replica =
                Replica::open(ArcPosition::default(), location, worker, has_neighbours, die)
                    .unwrap();
            let (at, payload) = (log_id(1, 1), Bytes::from(encode_entry(&nothing).unwrap()));
            let payload = Payload::new(payload);
            let entry = Entry::new(at, EntryPayload::Normal(payload.clone()));
            replica.apply_entry(entry, false).unwrap();
            let kept = payload.outcome((ArcPosition::default().arc, at));
            assert_eq!(kept.is_some(), has_neighbours);
        }
    }

    /// Goal: entries without changes also trigger a truncation of the log, because their size in
    /// the log counts.
    #[tokio::test(start_paused = true)]
    async fn entries_without_changes_count() {
        let worker = Arc::new(TaskWorker::start(Duration::ZERO));
        let die: OnFatal = Arc::new(|reason| panic!("{reason}"));
        let location = Arc::new(MemoryLocation::default());
        let mut replica =
            Replica::open(ArcPosition::default(), location, worker, false, die).unwrap();
        let due = replica.persist_due();
        let is_due = || due.notified().now_or_never().is_some();
        let key = PrimaryKey { partition: KeyValue::S("k".to_owned()), sort: None };
        let item = Item::new().with("p", "k").with("v", "x".repeat(1024 * 1024));
        // The table of this write does not exist.
        let write = Command::Write(Box::new(Write {
            table: TableId(1),
            key,
            action: WriteAction::put(&item),
            condition: None,
            return_old: false,
            return_new: false,
            return_on_failure: false,
        }));
        let nothing = partition::Entry { now: EpochMillis(7), commands: vec![write] };
        let bytes = Bytes::from(encode_entry(&nothing).unwrap());
        let count = PERSIST_BYTES / bytes.len();
        for index in 1..=count + 1 {
            assert!(!is_due(), "after {} entries", index - 1);
            let at = log_id(1, index as u64);
            let payload = EntryPayload::Normal(Payload::new(bytes.clone()));
            replica.apply_entry(Entry::new(at, payload), false).unwrap();
        }
        assert!(is_due(), "after {} MB", count + 1);
    }
}
