//! What the store does of its own accord, in store time: expire items, rotate and trim stream
//! shards, split partitions, finish TTL changes, build and remove indexes, remove what deleted
//! tables left.
//!
//! Nothing is changed here: each finding becomes a command in the log, and the command checks again
//! when it is applied. A tick that is missed, late, or repeated does no harm.

use std::time::Duration;

use partition::{
    Command, ReadError, Reply, TableId, find_deleted_table, find_due_rotations, find_due_splits,
    find_due_trims, find_expired, find_index_work, find_split_work, find_time_to_live_work,
    has_expired_tokens,
};

use crate::store::{Store, Unavailable, WeakStore};

/// Time between two ticks. TTL promises seconds, so a fraction of a second is soon enough.
pub const TICK: Duration = Duration::from_millis(250);
/// Expired items that one log entry deletes at most.
const EXPIRED_PER_ENTRY: usize = 500;
/// Log entries that one tick makes for one purpose at most, so that requests are not held up.
const ENTRIES_PER_TICK: usize = 20;

/// Ticks for as long as somebody else keeps the store running and it is available.
pub(crate) async fn run(store: WeakStore) {
    let mut interval = tokio::time::interval(TICK);
    interval.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        interval.tick().await;
        let Some(store) = store.upgrade() else {
            return;
        };
        store.follow_time();
        // Where the leader is; elsewhere the same would be found, later. What is hot is seen by the
        // process that takes the requests.
        let done = if store.leads() { tick(&store).await } else { split_hot(&store).await };
        if let Err(error) = done {
            // The next tick finds again what this one did not do.
            tracing::debug!(%error, "a tick was cut short");
        }
    }
}

/// Does once what is due now.
///
/// # Errors
/// When the store is stopping or its storage cannot be read.
pub async fn tick(store: &Store) -> Result<(), Unavailable> {
    sweep(store, ENTRIES_PER_TICK).await?;
    let (now, catalogue) = (store.now(), store.catalogue());
    let tables = || catalogue.by_name().map(AsRef::as_ref);
    for table in find_time_to_live_work(tables()) {
        repeat(store, || Command::StepTimeToLive { table }).await?;
    }
    for table in find_index_work(tables()) {
        repeat(store, || Command::StepIndexes { table }).await?;
    }
    split(store).await?;
    for table in find_due_rotations(tables(), now) {
        store.submit(vec![Command::RotateShards { table }]).await?;
    }
    for table in find(store, |store| find_due_trims(&*store.view(), tables(), now))? {
        repeat(store, || Command::TrimStreams { table }).await?;
    }
    if find(store, |store| has_expired_tokens(&*store.view(), now))? {
        repeat(store, || Command::ForgetTokens).await?;
    }
    let deleted: Option<TableId> = find(store, |store| find_deleted_table(&*store.view()))?;
    if let Some(table) = deleted {
        repeat(store, || Command::PurgeTable { table }).await?;
    }
    Ok(())
}

/// Begins the splits of partitions that requests to this process made hot.
async fn split_hot(store: &Store) -> Result<(), Unavailable> {
    for (table, partition, at) in store.traffic().find_hot(&store.catalogue(), store.now()) {
        // What is refused (it was begun for another reason, say) is found again when it matters.
        store.submit(vec![Command::SplitPartition { table, partition, at }]).await?;
    }
    Ok(())
}

/// Begins the splits that are due and goes on with those that have begun.
async fn split(store: &Store) -> Result<(), Unavailable> {
    split_hot(store).await?;
    let catalogue = store.catalogue();
    let tables = || catalogue.by_name().map(AsRef::as_ref);
    let bytes_max = store.traffic().limits().bytes;
    let due = find(store, |store| find_due_splits(&*store.view(), tables(), bytes_max))?;
    for (table, partition, at) in due {
        // What is refused (it was begun for another reason, say) is found again when it matters.
        store.submit(vec![Command::SplitPartition { table, partition, at }]).await?;
    }
    for table in find_split_work(store.catalogue().by_name().map(AsRef::as_ref)) {
        repeat(store, || Command::StepSplits { table }).await?;
    }
    Ok(())
}

/// Deletes what has expired, in at most `entries_max` log entries for each table. Gives the number
/// of delete commands.
pub(crate) async fn sweep(store: &Store, entries_max: usize) -> Result<u64, Unavailable> {
    let mut expired = 0;
    for table in store.catalogue().by_name() {
        for _ in 0..entries_max {
            let now = store.now();
            let commands =
                find(store, |s| find_expired(&*s.view(), table, now, EXPIRED_PER_ENTRY))?;
            let count = commands.len();
            if count > 0 {
                store.submit(commands).await?;
                expired += u64::try_from(count).unwrap_or(u64::MAX);
            }
            if count < EXPIRED_PER_ENTRY {
                break;
            }
        }
    }
    Ok(expired)
}

async fn repeat(store: &Store, command: impl Fn() -> Command) -> Result<(), Unavailable> {
    for _ in 0..ENTRIES_PER_TICK {
        let replies = store.submit(vec![command()]).await?;
        if replies.first() != Some(&Reply::Done { more: true }) {
            break;
        }
    }
    Ok(())
}

fn find<T>(
    store: &Store,
    read: impl FnOnce(&Store) -> Result<T, ReadError>,
) -> Result<T, Unavailable> {
    read(store).map_err(|error| Unavailable::NotDone(error.to_string()))
}
