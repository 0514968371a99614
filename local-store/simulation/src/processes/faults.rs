//! Injection of faults into a store under load, and measurement of the recovery times.

use std::fmt;
use std::time::{Duration, Instant};

use futures::future::try_join_all;
use storage::disk::SplitMix64;

use super::cluster::{Cluster, LOOK};
use super::damage::{self, Files};
use super::proxy::LinkState;
use super::wire::WireEndpoint;
use crate::error::HarnessError;
use crate::request::{Answer, Change, Endpoint, Request};

/// The maximum time until a new leader must exist. On an idle computer an election takes less than
/// two seconds. The maximum is generous, so that the test does not fail on a busy computer.
const LEADER_MAX: Duration = Duration::from_secs(15);
/// The maximum time until a write must be accepted. The store promises five seconds.
const WRITE_MAX: Duration = Duration::from_secs(20);

/// One kind of fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Fault {
    /// `kill -9` of one process. In every second case, this process is the leader.
    KillOne,
    /// `kill -9` of all processes at the same time.
    KillAll,
    /// A pause of one process (`SIGSTOP`). In every second case, this process is the leader.
    Pause,
    /// A temporary partition of one process. In every second case, this process is the leader.
    CutOff,
    /// `kill -9` of one process, and the loss of its disk.
    Wipe,
    /// `kill -9` of one process, and a flipped bit in a file of its node.
    Damage(Files),
    /// The start of a process whose node joins the ring.
    Join,
    /// A node that leaves the ring.
    Leave,
}

impl fmt::Display for Fault {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = match self {
            Self::KillOne => "kill one",
            Self::KillAll => "kill all",
            Self::Pause => "pause",
            Self::CutOff => "cut off",
            Self::Wipe => "wipe",
            Self::Join => "join",
            Self::Leave => "leave",
            Self::Damage(files) => return write!(formatter, "damage in {}", files.folder()),
        };
        formatter.write_str(name)
    }
}

/// The number of first starts of an empty store that are killed. Each kill comes before the store
/// accepts requests, or shortly afterwards.
const FIRST_STARTS: usize = 4;
/// The latest time of a kill during a first start, in milliseconds. Creating logs and states takes
/// less time.
const FIRST_START_MS: u64 = 400;

/// Starts an empty store. Repeatedly kills one or all of its processes while they create their first logs and
/// states.
///
/// # Errors
/// The store does not start after the kills.
pub async fn start_under_kills(
    cluster: &mut Cluster,
    random: &mut SplitMix64,
) -> Result<Recovery, HarnessError> {
    for _ in 0..FIRST_STARTS {
        cluster.spawn_missing()?;
        tokio::time::sleep(Duration::from_millis(random.next_u64() % FIRST_START_MS)).await;
        // This check must precede the next kill. A kill would hide that a process ended by itself,
        // because of the state after an earlier kill.
        cluster.check_that_all_run()?;
        let all = cluster.members();
        let one = vec![choose(&all, random)?];
        let victims = if random.up_to(1) == 0 { one } else { all };
        cluster.kill(&victims);
    }
    cluster.spawn_missing()?;
    let begun = Instant::now();
    cluster.wait_until_all_listen().await?;
    let leader = begun.elapsed();
    cluster.wait_until_whole().await?;
    Ok(Recovery { leader, write: begun.elapsed() })
}

/// The number of items to write if there are several arcs. With this number of items, each partition of the
/// table, and so each arc, must accept at least one write.
const PROBES: usize = 18;

fn probe_key(number: usize) -> String {
    format!("probe-{number}")
}

/// Returns one of several processes at random.
fn choose(places: &[usize], random: &mut SplitMix64) -> Result<usize, HarnessError> {
    let chosen = places.get(random.up_to(places.len().saturating_sub(1))).copied();
    chosen.ok_or_else(|| "no process can be chosen".into())
}

/// The recovery times after a fault.
#[derive(Clone, Copy, Debug)]
pub struct Recovery {
    /// The time until the remaining or restarted processes had a leader for each arc.
    pub leader: Duration,
    /// The time until the processes accepted a write in each arc.
    pub write: Duration,
}

/// Injects one fault into the store, and waits until it recovers.
///
/// # Errors
/// The store does not recover.
pub async fn inflict(
    fault: Fault,
    cluster: &mut Cluster,
    random: &mut SplitMix64,
) -> Result<Recovery, HarnessError> {
    let victim = choose_victim(fault, cluster, random).await?;
    let lasts = Duration::from_millis(300 + random.next_u64() % 2500);
    match fault {
        Fault::KillOne | Fault::Wipe => {
            cluster.kill(&[victim]);
            if fault == Fault::Wipe {
                cluster.wipe(victim)?;
            }
            let recovery = wait(cluster, Some(victim), random).await?;
            // A node that has left the ring meanwhile is not started again.
            cluster.release_left().await?;
            cluster.spawn_missing()?;
            cluster.wait_until_all_listen().await?;
            cluster.wait_until_whole().await?;
            Ok(recovery)
        }
        Fault::Damage(files) => damage(files, victim, cluster, random).await,
        Fault::KillAll => {
            cluster.kill(&cluster.members());
            cluster.spawn_missing()?;
            let begun = Instant::now();
            cluster.wait_until_all_listen().await?;
            let started = begun.elapsed();
            let recovery = wait(cluster, None, random).await?;
            Ok(Recovery { leader: started + recovery.leader, write: started + recovery.write })
        }
        Fault::Pause => {
            cluster.pause(victim, true)?;
            let recovery = wait(cluster, Some(victim), random).await;
            tokio::time::sleep(lasts).await;
            cluster.pause(victim, false)?;
            cluster.wait_until_whole().await?;
            recovery
        }
        Fault::CutOff => {
            let way = if random.up_to(1) == 0 { LinkState::Broken } else { LinkState::Silent };
            cluster.cut_off(victim, way);
            let recovery = wait(cluster, Some(victim), random).await;
            tokio::time::sleep(lasts).await;
            cluster.cut_off(victim, LinkState::Open);
            cluster.wait_until_whole().await?;
            recovery
        }
        Fault::Join => join(cluster, random).await,
        Fault::Leave => leave(cluster, random).await,
    }
}

/// Chooses the process for a fault of one process. In half of the cases, it is the leader of the first arc.
async fn choose_victim(
    fault: Fault,
    cluster: &Cluster,
    random: &mut SplitMix64,
) -> Result<usize, HarnessError> {
    let candidates = match fault {
        Fault::CutOff => cluster.separable(),
        Fault::Wipe => cluster.replaceable(),
        _ => cluster.members(),
    };
    let victim = choose(&candidates, random)?;
    if random.up_to(1) == 0
        && let Some(leader) = cluster.leader(None).await
        && candidates.contains(&leader)
    {
        return Ok(leader);
    }
    Ok(victim)
}

/// Damages a node that is down, starts it, and waits until it was set aside and rebuilt.
async fn damage(
    files: Files,
    victim: usize,
    cluster: &mut Cluster,
    random: &mut SplitMix64,
) -> Result<Recovery, HarnessError> {
    let node = cluster.node_folder(victim);
    damage::wait_for_file(&node, files).await?;
    cluster.kill(&[victim]);
    damage::flip_a_bit(&node, files)?;
    let recovery = wait(cluster, Some(victim), random).await?;
    cluster.spawn_missing()?;
    cluster.wait_until_all_listen().await?;
    damage::read_until_set_aside(cluster, victim, files).await?;
    cluster.wait_until_whole().await?;
    cluster.check_that_all_run()?;
    cluster.remove_set_aside(victim)?;
    Ok(recovery)
}

/// Lets a new node join the ring. In half of the cases its process is killed during its start, and in half of
/// these it loses its disk.
async fn join(cluster: &mut Cluster, random: &mut SplitMix64) -> Result<Recovery, HarnessError> {
    if cluster.vacant().is_empty() {
        // The nodes that leave still have their places.
        cluster.wait_until_whole().await?;
    }
    let place = choose(&cluster.vacant(), random)?;
    cluster.join(place)?;
    let mut is_wiped = false;
    if random.up_to(1) == 0 {
        tokio::time::sleep(Duration::from_millis(random.next_u64() % FIRST_START_MS)).await;
        cluster.check_that_all_run()?;
        cluster.kill(&[place]);
        is_wiped = random.up_to(1) == 0;
        if is_wiped {
            cluster.wipe(place)?;
        }
        cluster.spawn_missing()?;
    }
    cluster.wait_until_all_listen().await?;
    let recovery = wait(cluster, None, random).await?;
    // The node may have been a voter when it lost its disk. Then the arc must not lose another one.
    rest_sometimes(cluster, random, is_wiped).await?;
    Ok(recovery)
}

/// Lets a node leave the ring.
async fn leave(cluster: &mut Cluster, random: &mut SplitMix64) -> Result<Recovery, HarnessError> {
    let place = choose(&cluster.staying(), random)?;
    cluster.leave(place).await?;
    let recovery = wait(cluster, None, random).await?;
    rest_sometimes(cluster, random, false).await?;
    Ok(recovery)
}

/// Waits until the store is at rest, always or in half of the cases. In the others, the next fault happens while
/// replicas move.
async fn rest_sometimes(
    cluster: &mut Cluster,
    random: &mut SplitMix64,
    always: bool,
) -> Result<(), HarnessError> {
    if always || random.up_to(1) == 0 {
        return cluster.wait_until_whole().await;
    }
    cluster.check_that_all_run()
}

/// Waits until each arc has a leader and accepts a write. Sends requests to any process except one, and except
/// those whose nodes leave the ring: after they have left, they cannot answer.
async fn wait(
    cluster: &Cluster,
    without: Option<usize>,
    random: &mut SplitMix64,
) -> Result<Recovery, HarnessError> {
    let begun = Instant::now();
    while cluster.leader(without).await.is_none() {
        if begun.elapsed() > LEADER_MAX {
            return Err(format!("no leader was elected within {LEADER_MAX:?}").into());
        }
        tokio::time::sleep(LOOK).await;
    }
    let leader = begun.elapsed();
    let avoided = cluster.leaving().into_iter().chain(without).collect();
    let endpoint = WireEndpoint::without(&cluster.addresses, random.next_u64(), avoided);
    let probes = if cluster.arcs() > 1 { PROBES } else { 1 };
    let accepted = (0..probes).map(|number| probe(&endpoint, number, begun));
    try_join_all(accepted).await?;
    Ok(Recovery { leader, write: begun.elapsed() })
}

/// Retries a write until it is accepted.
async fn probe(endpoint: &WireEndpoint, number: usize, begun: Instant) -> Result<(), HarnessError> {
    let write = crate::workload::write(&probe_key(number), Change::Delete);
    loop {
        match endpoint.call(Request::Write(write.clone())).await {
            Ok(Answer::Written { .. }) => return Ok(()),
            other if begun.elapsed() > WRITE_MAX => {
                return Err(format!("no write was accepted within {WRITE_MAX:?}: {other:?}").into());
            }
            _ => tokio::time::sleep(LOOK).await,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use model::{KeyValue, Token};

    use super::*;

    /// Goal: the probes reach all arcs. An on-demand table has four partitions of equal token ranges, and each
    /// partition is in one arc.
    #[test]
    fn the_probes_are_in_all_partitions_of_the_table() {
        let quarter = |number| Token::of(&KeyValue::S(probe_key(number))).0 >> 62;
        let quarters: BTreeSet<u64> = (0..PROBES).map(quarter).collect();
        assert_eq!(quarters.len(), 4);
    }
}
