//! The periodic background work of the store, which uses the store's clock. It deletes expired items, rotates
//! and trims stream shards, splits partitions, completes TTL changes, builds and removes indexes, and removes
//! the data of deleted tables.
//!
//! The leader of each arc does the work of its arc. The leader of the first arc also does the work that
//! concerns all arcs. A tick is one execution of this work. Ticks change the state only with commands in the
//! log. A command checks its preconditions when it is applied, so a missed, late or repeated tick is harmless.

use std::collections::BTreeSet;
use std::time::Duration;

use futures::future::join_all;
use partition::{
    ArcPosition, Command, Reply, TableId, View, adds_entries, find_deleted_table,
    find_due_rotations, find_due_splits, find_due_trims, find_expired, find_index_work,
    find_split_work, find_time_to_live_work, has_expired_tokens, has_old_transactions,
};

use crate::store::group::Group;
use crate::store::outbox_relay;
use crate::store::transaction_recovery::TransactionRecovery;
use crate::store::{Store, Unavailable, WeakStore, routes};
use node::ring::ArcId;

/// The interval between two ticks. A delay of a fraction of a second is acceptable, because TTL may
/// delete an item seconds after it expires.
pub const TICK: Duration = Duration::from_millis(250);
/// The maximum number of expired items that one log entry deletes. An entry with large items
/// deletes fewer.
const EXPIRED_PER_ENTRY: usize = 500;
/// The maximum number of log entries of one tick for one purpose. The limit keeps ticks from blocking
/// requests.
const ENTRIES_PER_TICK: usize = 20;
/// The maximum number of log entries of a requested sweep for each table and arc. This number of entries
/// deletes ten million items, or 80 GB of large items, which takes longer than a client waits. Tests use
/// a small number.
pub(crate) const ENTRIES_PER_SWEEP: usize = if cfg!(test) { 3 } else { 20_000 };

/// Runs ticks until the last other handle on the store is dropped.
pub(crate) async fn run(store: WeakStore) {
    let mut interval = tokio::time::interval(TICK);
    interval.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    let mut transaction_recovery = TransactionRecovery::default();
    loop {
        interval.tick().await;
        let Some(store) = store.upgrade() else {
            return;
        };
        store.follow_time();
        // Every process must search for hot partitions, because each process counts only the requests
        // that it serves.
        if let Err(error) = split_hot(&store).await {
            tracing::debug!(%error, "cannot split hot partitions; the next tick retries");
        }
        // Only the leader of an arc does the arc's work, because its state is the most recent.
        let leads = |arc: &ArcId| store.replica(*arc).is_some_and(|replica| replica.leads());
        for arc in store.arcs().filter(leads) {
            // If the work fails, the next tick retries it.
            if let Err(error) = tick_arc(&store, arc).await {
                tracing::debug!(%error, "the periodic work failed; the next tick retries it");
            }
            if let Err(error) = transaction_recovery.finish(&store, arc).await {
                tracing::debug!(%error, "cannot recover an unfinished transaction yet");
            }
        }
    }
}

/// Keeps the tables of the arcs that only other processes have up to date, until the last other handle on
/// the store is dropped.
pub(crate) async fn follow_tables(store: WeakStore) {
    let Some(arcs) = store.upgrade().map(|store| store.arcs()) else { return };
    let store = &store;
    // Each arc is followed on its own, because an unavailable arc answers only after a time-out.
    let follow = |arc| async move {
        let mut interval = tokio::time::interval(TICK);
        interval.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            interval.tick().await;
            let Some(store) = store.upgrade() else { return };
            if let Group::Elsewhere(group) = store.group(arc)
                && let Err(error) = group.refresh(false).await
            {
                tracing::debug!(%error, "cannot read the tables of {arc} yet");
            }
        }
    };
    join_all(arcs.map(follow)).await;
}

/// Does all work that is due now in every arc.
///
/// # Errors
/// The store is stopping, or its storage cannot be read.
pub async fn tick(store: &Store) -> Result<(), Unavailable> {
    split_hot(store).await?;
    for arc in store.arcs() {
        tick_arc(store, arc).await?;
    }
    Ok(())
}

/// Does all work that is due now in an arc.
async fn tick_arc(store: &Store, arc: ArcId) -> Result<(), Unavailable> {
    let outcome = tick_items(store, arc).await;
    // The update of the other arcs is last, because it may wait for an unavailable arc until the
    // request time-out. It runs even if the other work has failed.
    if arc == ArcId::FIRST
        && store.arc_count() > 1
        && let Err(error) = routes::bring_along(store).await
    {
        tracing::debug!(%error, "table changes have not reached every arc yet");
    }
    outcome
}

/// Does all work that is due now for the items of an arc.
async fn tick_items(store: &Store, arc: ArcId) -> Result<(), Unavailable> {
    let group = &store.group(arc);
    sweep_arc(store, arc, ENTRIES_PER_TICK, Duration::ZERO).await?;
    let (now, catalogue) = (store.now(), group.catalogue());
    let tables = || catalogue.tables().map(AsRef::as_ref);
    for table in find_time_to_live_work(tables()) {
        repeat(group, || Command::StepTimeToLive { table }).await?;
    }
    for table in find_index_work(tables()) {
        step_indexes(store, arc, table).await?;
    }
    split(store, arc).await?;
    for table in find_due_rotations(tables(), now) {
        group.submit(vec![Command::RotateShards { table }]).await?;
    }
    for table in store.read_arc(arc, |view| find_due_trims(view, tables(), now)).await? {
        repeat(group, || Command::TrimStreams { table }).await?;
    }
    if store.read_arc(arc, |view| has_expired_tokens(view, now)).await? {
        repeat(group, || Command::ForgetTokens).await?;
    }
    if store.read_arc(arc, |view| has_old_transactions(view, now)).await? {
        repeat(group, || Command::ForgetTransactions).await?;
    }
    let deleted: Option<TableId> = store.read_arc(arc, find_deleted_table).await?;
    if let Some(table) = deleted {
        repeat(group, || Command::PurgeTable { table }).await?;
    }
    Ok(())
}

/// Begins the splits of partitions that are hot because of requests to this process.
async fn split_hot(store: &Store) -> Result<(), Unavailable> {
    for (table, partition, at) in store.traffic().find_hot(&store.catalogue(), store.now()) {
        // A split may be refused, for example because it has already begun. If it is still necessary, a later
        // tick finds it again.
        store.submit(vec![Command::SplitPartition { table, partition, at }]).await?;
    }
    Ok(())
}

/// Begins the splits that are due in an arc, and continues the splits that have begun.
async fn split(store: &Store, arc: ArcId) -> Result<(), Unavailable> {
    let group = &store.group(arc);
    let position = ArcPosition { arc, arcs: store.arc_count() };
    let catalogue = group.catalogue();
    let tables = || catalogue.tables().map(AsRef::as_ref);
    let bytes_max = store.traffic().limits().bytes;
    let find_due = |view: &dyn View| find_due_splits(view, position, tables(), bytes_max);
    let due = store.read_arc(arc, find_due).await?;
    for (table, partition, at) in due {
        // A split may be refused, for example because it has already begun. If it is still necessary, a later
        // tick finds it again.
        group.submit(vec![Command::SplitPartition { table, partition, at }]).await?;
    }
    for table in find_split_work(group.catalogue().tables().map(AsRef::as_ref)) {
        repeat(group, || Command::StepSplits { table }).await?;
    }
    Ok(())
}

/// Deletes expired items, in at most `entries_max` log entries for each table and arc. If too many index
/// changes of a table are undelivered, the sweep waits. If the wait times out, the sweep skips the table.
pub(crate) async fn sweep(store: &Store, entries_max: usize) -> Result<SweepResult, Unavailable> {
    let mut swept = SweepResult::default();
    for arc in store.arcs() {
        // After a time-out, the sweep does not wait a second time.
        let patience =
            if swept.blocked.is_empty() { outbox_relay::PATIENCE } else { Duration::ZERO };
        let some = sweep_arc(store, arc, entries_max, patience).await?;
        swept.expired += some.expired;
        swept.blocked.extend(some.blocked);
    }
    Ok(swept)
}

/// The result of a sweep.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SweepResult {
    /// The number of delete commands.
    pub expired: u64,
    /// The tables that still have expired items, because too many of their index changes wait for
    /// delivery.
    pub blocked: BTreeSet<String>,
}

async fn sweep_arc(
    store: &Store,
    arc: ArcId,
    entries_max: usize,
    mut patience: Duration,
) -> Result<SweepResult, Unavailable> {
    let mut swept = SweepResult::default();
    let group = store.group(arc);
    for table in group.catalogue().tables() {
        let mut behind: Option<Vec<u8>> = None;
        for _ in 0..entries_max {
            let now = store.now();
            let place = behind.as_deref();
            let find = |view: &dyn View| find_expired(view, table, now, EXPIRED_PER_ENTRY, place);
            let found = store.read_arc(arc, find).await?;
            if !found.commands.is_empty() {
                if !outbox_relay::wait_for_room(store, arc, table, patience).await? {
                    swept.blocked.insert(table.name.as_str().to_owned());
                    patience = Duration::ZERO;
                    break;
                }
                // After a handover nothing is deleted: the items stay as they were copied.
                let Ok(_permit) = store.handover().permit_write().await else {
                    return Ok(swept);
                };
                swept.expired += u64::try_from(found.commands.len()).unwrap_or(u64::MAX);
                group.submit(found.commands).await?;
            }
            match found.next_position {
                Some(place) => behind = Some(place),
                None => break,
            }
        }
    }
    Ok(swept)
}

/// Builds and removes indexes. While too many index entries wait for delivery, adds no entries, so that
/// clients can continue to write.
async fn step_indexes(store: &Store, arc: ArcId, table: TableId) -> Result<(), Unavailable> {
    let group = store.group(arc);
    for _ in 0..ENTRIES_PER_TICK {
        let known = group.catalogue();
        if let Some(table) = known.get(table)
            && adds_entries(table)
            && !outbox_relay::has_room(store, arc, table).await?
        {
            break;
        }
        let replies = group.submit(vec![Command::StepIndexes { table }]).await?;
        if replies.first() != Some(&Reply::Done { more: true }) {
            break;
        }
    }
    Ok(())
}

async fn repeat(group: &Group, command: impl Fn() -> Command) -> Result<(), Unavailable> {
    for _ in 0..ENTRIES_PER_TICK {
        let replies = group.submit(vec![command()]).await?;
        if replies.first() != Some(&Reply::Done { more: true }) {
            break;
        }
    }
    Ok(())
}
