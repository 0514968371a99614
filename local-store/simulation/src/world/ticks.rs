//! The background work of a replica without a group, such as TTL, shard rotation and the expiry of
//! client request tokens. The nodes of a group run `server::ticks`.

use std::sync::Arc;
use std::time::Duration;

use partition::{
    Command, find_due_rotations, find_due_trims, find_expired, find_index_work, find_split_work,
    find_time_to_live_work, has_expired_tokens,
};

use super::environment::Environment;
use super::replica::Replica;
use crate::request::Failure;

/// The interval of ticks.
const TICK: Duration = Duration::from_millis(250);
/// The maximum number of items that one entry deletes.
const EXPIRED_MAX: usize = 500;

/// Runs the background work at each tick, until it is aborted together with its node.
pub async fn run(replica: Arc<dyn Replica>) {
    loop {
        tokio::time::sleep(TICK).await;
        // If a part of the work fails, the next tick retries it.
        let _ = tick(&*replica).await;
    }
}

/// Records the time of a node's clock, until it is aborted together with its node.
pub async fn watch_clock(replica: Arc<dyn Replica>, environment: Arc<Environment>) {
    loop {
        tokio::time::sleep(TICK).await;
        environment.note_clock(replica.now());
    }
}

async fn tick(replica: &dyn Replica) -> Result<(), Failure> {
    let snapshot = replica.read(false).await?;
    let now = replica.now();
    let view = &*snapshot.view;
    let failed = |error: partition::ReadError| Failure::Defect(error.to_string());
    let mut commands = Vec::new();
    for table in snapshot.catalogue.by_name() {
        commands
            .extend(find_expired(view, table, now, EXPIRED_MAX, None).map_err(failed)?.commands);
    }
    let tables = || snapshot.catalogue.by_name().map(AsRef::as_ref);
    let steps = find_time_to_live_work(tables()).into_iter();
    commands.extend(steps.map(|table| Command::StepTimeToLive { table }));
    let builds = find_index_work(tables()).into_iter();
    commands.extend(builds.map(|table| Command::StepIndexes { table }));
    let splits = find_split_work(tables()).into_iter();
    commands.extend(splits.map(|table| Command::StepSplits { table }));
    let rotations = find_due_rotations(tables(), now).into_iter();
    commands.extend(rotations.map(|table| Command::RotateShards { table }));
    let trims = find_due_trims(view, tables(), now).map_err(failed)?.into_iter();
    commands.extend(trims.map(|table| Command::TrimStreams { table }));
    if has_expired_tokens(view, now).map_err(failed)? {
        commands.push(Command::ForgetTokens);
    }
    drop(snapshot);
    if !commands.is_empty() {
        replica.submit(commands).await?;
    }
    Ok(())
}
