//! The plan of a run: its faults and their times, derived from a seed before the run begins.

use std::fmt;

use node::ring::REPLICAS;
use partition::mutation::Mutation;
use storage::disk::SplitMix64;

/// A fault, or another change, to inject during a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The process of a node dies. The operating system keeps written data.
    Kill {
        /// The node, from 1.
        node: usize,
    },
    /// The process of a node dies at some step of a transaction over several arcs that it
    /// coordinates.
    KillCoordinator {
        /// The node, from 1.
        node: usize,
        /// The time in microseconds after the transaction was first seen. It is random, so that the
        /// fault can hit any step.
        after_us: u64,
    },
    /// Every process dies.
    KillAll,
    /// A node loses power. Unsynced data is lost, torn or kept.
    PowerCut {
        /// The node.
        node: usize,
    },
    /// All nodes lose power.
    PowerCutAll,
    /// A node loses power, and loses it again while it recovers.
    PowerCutInRecovery {
        /// The node.
        node: usize,
        /// The number of disk operations of the recovery before the second power cut.
        operations: u64,
    },
    /// A sync of a node's disk fails.
    SyncError {
        /// The node.
        node: usize,
    },
    /// A node's disk has no space.
    FullDisk {
        /// The node.
        node: usize,
    },
    /// Every sync of a node's disk takes up to this much longer.
    SlowDisk {
        /// The node.
        node: usize,
        /// The maximum additional time in milliseconds.
        millis: u64,
    },
    /// A node cannot exchange messages with any other node or with the clients.
    Partition {
        /// The node.
        node: usize,
    },
    /// A node and its peers cannot reach each other, but clients can reach all nodes. If the node
    /// is the leader, the fault lasts until the other nodes have elected a new leader that this
    /// node does not know.
    CutFromPeers {
        /// The node.
        node: usize,
    },
    /// A node that leads an arc and the other nodes of this arc cannot reach each other, but clients and the
    /// nodes without the arc can reach all nodes. The fault lasts like [`Fault::CutFromPeers`].
    CutFromGroup {
        /// The node.
        node: usize,
    },
    /// A partition of a node that leads an arc with undelivered index entries.
    CutSender {
        /// The node.
        node: usize,
    },
    /// Messages from one place to another are lost, but not in the opposite direction. Place 0 is
    /// the place of the clients.
    OneWay {
        /// The sender's place.
        from: usize,
        /// The receiver's place.
        to: usize,
    },
    /// A percentage of messages is lost.
    Loss {
        /// The percentage.
        percent: u64,
    },
    /// Messages are delayed by random times up to a maximum, and are therefore reordered.
    Delay {
        /// The maximum delay in milliseconds.
        millis: u64,
    },
    /// A percentage of messages between nodes arrives twice. The second copy is late.
    Duplication {
        /// The percentage.
        percent: u64,
    },
    /// A node's clock is ahead of the other nodes' clocks, or behind them.
    Skew {
        /// The node.
        node: usize,
        /// The skew in milliseconds; negative if the clock is behind.
        millis: i64,
    },
    /// A node loses all its data, and returns with a new identity.
    Wipe {
        /// The node.
        node: usize,
    },
    /// Some old data on a node's disk is damaged while the node is down.
    DiskDamage {
        /// The node.
        node: usize,
    },
    /// A block of a state of a running node becomes unreadable.
    StateDamage {
        /// The node.
        node: usize,
        /// The arc, modulo the number of arcs.
        place: usize,
    },
    /// A partition of the table is split.
    Split {
        /// The partition, modulo the number of partitions.
        place: usize,
    },
    /// A global index is created on the table while clients use the table.
    MakeIndex,
    /// A node joins the ring.
    Join {
        /// The node.
        node: usize,
    },
    /// A node leaves the ring.
    Leave {
        /// The node.
        node: usize,
    },
    /// Store time jumps ahead on all nodes, as after a machine was suspended.
    Advance {
        /// The number of minutes by which store time jumps.
        minutes: u64,
    },
}

impl Fault {
    /// Returns the class under which the fault is counted.
    #[must_use]
    pub fn class(&self) -> &'static str {
        match self {
            Self::Kill { .. } => "kill one",
            Self::KillCoordinator { .. } => "coordinator lost",
            Self::KillAll => "kill all",
            Self::PowerCut { .. } => "power cut",
            Self::PowerCutAll => "power cut of all",
            Self::PowerCutInRecovery { .. } => "power cut in recovery",
            Self::SyncError { .. } => "sync error",
            Self::FullDisk { .. } => "full disk",
            Self::SlowDisk { .. } => "slow disk",
            Self::Partition { .. } => "partition",
            Self::CutFromPeers { .. } => "cut off from peers",
            Self::CutFromGroup { .. } => "leader cut off from its arc",
            Self::CutSender { .. } => "sender cut off",
            Self::OneWay { .. } => "one-way partition",
            Self::Loss { .. } => "loss",
            Self::Delay { .. } => "delay",
            Self::Duplication { .. } => "duplication",
            Self::Skew { .. } => "clock skew",
            Self::Wipe { .. } => "wiped disk",
            Self::DiskDamage { .. } => "damaged disk",
            Self::StateDamage { .. } => "damaged block",
            Self::Split { .. } => "partition split",
            Self::MakeIndex => "index made in use",
            Self::Join { .. } => "node joined",
            Self::Leave { .. } => "node left",
            Self::Advance { .. } => "clock advance",
        }
    }
}

/// A fault and its time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PlannedFault {
    /// The time when the fault begins, in milliseconds since the start of the run.
    pub at_ms: u64,
    /// The duration of the fault in milliseconds. A killed node is down for this time.
    pub for_ms: u64,
    /// The fault.
    pub fault: Fault,
}

impl fmt::Display for PlannedFault {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{:>6} ms  {:?} for {} ms", self.at_ms, self.fault, self.for_ms)
    }
}

/// The parameters of a run, all derived from its seed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    /// The seed.
    pub seed: u64,
    /// The number of nodes that create the cluster: 1, or 3 to 5.
    pub nodes: usize,
    /// The number of further machines, whose nodes may join.
    pub spares: usize,
    /// The number of arcs of the ring, each a group with its own log: 1 or 3.
    pub arcs: u32,
    /// The time for which clients run, in simulated seconds.
    pub seconds: u64,
    /// The maximum number of files that a log keeps for reuse.
    pub log_spares: usize,
    /// The size in bytes of the tables in memory of the production engine; `None` for states in
    /// memory.
    pub memtable_bytes: Option<u64>,
    /// The maximum time between two requests of a client, in milliseconds.
    pub pause_ms: u64,
    /// The number of clients of each kind.
    pub clients: Clients,
    /// A deliberate fault in the store's own code. It needs the feature `mutations`.
    pub mutation: Option<Mutation>,
    /// The faults, in the order of their times.
    pub faults: Vec<PlannedFault>,
}

/// The number of clients of each kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Clients {
    /// The number of clients of `workload::registers`. The maximum is eight, so that the checker
    /// can search the history.
    pub registers: usize,
    /// The number of clients of `workload::bank`.
    pub bank: usize,
    /// The number of clients of `workload::counters`.
    pub counters: usize,
    /// The number of clients of `workload::expiring`.
    pub expiring: usize,
    /// The number of clients of `workload::readers`.
    pub readers: usize,
    /// The number of clients of `workload::transactions`.
    pub transactions: usize,
}

impl Default for Clients {
    fn default() -> Self {
        Self { registers: 6, bank: 3, counters: 3, expiring: 3, readers: 3, transactions: 3 }
    }
}

/// The maximum clock skew of a node in milliseconds.
pub const SKEW_MS_MAX: i64 = 5_000;
/// The number of arcs of a ring with several arcs.
const ARCS: u32 = 3;
/// The usual duration of a transaction over several arcs, in microseconds.
const COORDINATION_US: u64 = 12_000;
/// The time in milliseconds after which the other nodes have replaced a partitioned leader.
const ELECTION_MS: u64 = 2_000;
/// The minimum time in milliseconds for which a node stays that joins and leaves again: long enough for the moves of
/// its arcs, if no other fault delays them.
const STAY_MS: u64 = 4_000;
/// The time in milliseconds before the first fault. The table is created in this time.
const QUIET_MS: u64 = 1_000;
/// The average interval of faults in milliseconds.
const FAULT_EVERY_MS: u64 = 1_700;
/// The sizes of the production engine's tables in memory. With the smallest size a state is flushed
/// and merged often, with the largest only when it is persisted.
const MEMTABLE_BYTES: [u64; 3] = [16 * 1024, 128 * 1024, 1024 * 1024];
/// The maximum number of minutes by which store time advances in one run. It is less than a day,
/// because stream records are trimmed after a day, and the checkers need all of them.
const ADVANCE_MINUTES_MAX: u64 = 20 * 60;

impl Plan {
    /// Creates the plan of a seed.
    #[must_use]
    pub fn of(seed: u64, nodes: usize, seconds: u64) -> Self {
        let arcs = draw_arcs(seed, nodes);
        let (nodes, spares) = if arcs > 1 { draw_nodes(seed, nodes) } else { (nodes, 0) };
        let mut random = SplitMix64::new(seed ^ 0x706c_616e);
        let end = (seconds * 1_000).max(QUIET_MS + 1);
        let count = (end - QUIET_MS) / FAULT_EVERY_MS + 1;
        let mut advance_left = ADVANCE_MINUTES_MAX;
        let mut faults: Vec<PlannedFault> = (0..count)
            .map(|_| {
                let at_ms = QUIET_MS + random.next_u64() % (end - QUIET_MS);
                let (mut fault, for_ms) = draw(&mut random, nodes + spares);
                if let Fault::Advance { minutes } = &mut fault {
                    *minutes = (*minutes).min(advance_left);
                    advance_left -= *minutes;
                }
                PlannedFault { at_ms, for_ms, fault }
            })
            .collect();
        faults.push(PlannedFault {
            at_ms: draw_index(seed, end),
            for_ms: 0,
            fault: Fault::MakeIndex,
        });
        faults.extend(draw_state_damage(seed, nodes, end));
        faults.extend(draw_moves(seed, nodes, spares, end));
        if arcs > 1 {
            faults.iter_mut().for_each(|planned| adapt_to_arcs(planned, nodes + spares));
            faults.extend(draw_cut(seed, nodes + spares, end));
        }
        faults.sort_by_key(|planned| planned.at_ms);
        let log_spares = random.up_to(2);
        let pause_ms = 20 + random.next_u64() % 100;
        let clients = Clients::default();
        Self {
            seed,
            nodes,
            spares,
            arcs,
            seconds,
            log_spares,
            memtable_bytes: draw_engine(seed),
            pause_ms,
            clients,
            mutation: None,
            faults,
        }
    }
}

/// Chooses the number of arcs: several arcs for half of the seeds with several nodes. The choice
/// has its own random numbers, so that it does not change the faults of a seed.
fn draw_arcs(seed: u64, nodes: usize) -> u32 {
    let several = nodes > 1 && SplitMix64::new(seed ^ 0x6172_6373).next_u64().is_multiple_of(2);
    if several { ARCS } else { 1 }
}

/// Chooses the number of nodes of a ring with several arcs: up to two more for half of the seeds, so that
/// nodes lack some arcs. Chooses also the number of machines whose nodes may join. The choice has its own random
/// numbers.
fn draw_nodes(seed: u64, nodes: usize) -> (usize, usize) {
    let mut random = SplitMix64::new(seed ^ 0x6e6f_6465);
    (nodes + random.up_to(3).saturating_sub(1), random.up_to(2))
}

/// Chooses the times at which nodes join and leave, if there are further machines: within the first two thirds of
/// a run, so that every move can end. The choice has its own random numbers.
fn draw_moves(seed: u64, nodes: usize, spares: usize, end: u64) -> Vec<PlannedFault> {
    let mut random = SplitMix64::new(seed ^ 0x6d6f_7665);
    if spares == 0 {
        return Vec::new();
    }
    let (last, count) = ((end - QUIET_MS) * 2 / 3, spares + random.up_to(3));
    let mut moves = Vec::new();
    for number in 0..count {
        let at_ms = QUIET_MS + random.next_u64() % last.max(1);
        let fault = match number < spares {
            true => Fault::Join { node: nodes + 1 + number },
            false => Fault::Leave { node: 1 + random.up_to(nodes + spares - 1) },
        };
        moves.push(PlannedFault { at_ms, for_ms: 0, fault });
    }
    // In half of the plans the first node that joined leaves again, so that arcs return to nodes that had them.
    let joined_ms = moves.first().map_or(0, |planned| planned.at_ms);
    let at_ms = joined_ms + STAY_MS + random.next_u64() % STAY_MS;
    if random.next_u64().is_multiple_of(2) && at_ms < QUIET_MS + last {
        moves.push(PlannedFault { at_ms, for_ms: 0, fault: Fault::Leave { node: nodes + 1 } });
    }
    moves
}

/// Chooses the engine: the production engine for half of the seeds. The choice has its own random
/// numbers.
fn draw_engine(seed: u64) -> Option<u64> {
    let drawn = SplitMix64::new(seed ^ 0x656e_6769).up_to(2 * MEMTABLE_BYTES.len() - 1);
    MEMTABLE_BYTES.get(drawn).copied()
}

/// Chooses the time in milliseconds at which the second index is created: in the first two thirds
/// of a run. The choice has its own random numbers.
fn draw_index(seed: u64, end: u64) -> u64 {
    QUIET_MS + SplitMix64::new(seed ^ 0x696e_6478).next_u64() % ((end - QUIET_MS) * 2 / 3).max(1)
}

/// With several nodes, chooses the node on which a block of a state is
/// damaged, and the time. The choice has its own random numbers.
fn draw_state_damage(seed: u64, nodes: usize, end: u64) -> Option<PlannedFault> {
    let mut random = SplitMix64::new(seed ^ 0x726f_7462);
    let at_ms = QUIET_MS + random.next_u64() % (end - QUIET_MS);
    let (node, place) = (1 + random.up_to(nodes - 1), random.up_to(15));
    (nodes > 1).then_some(PlannedFault {
        at_ms,
        for_ms: 0,
        fault: Fault::StateDamage { node, place },
    })
}

/// For a ring with more nodes than an arc has, chooses the node that is cut off from the nodes of an arc, and the
/// time. The choice has its own random numbers.
fn draw_cut(seed: u64, nodes: usize, end: u64) -> Option<PlannedFault> {
    let mut random = SplitMix64::new(seed ^ 0x6775_7463);
    let at_ms = QUIET_MS + random.next_u64() % (end - QUIET_MS);
    let fault = Fault::CutFromGroup { node: 1 + random.up_to(nodes - 1) };
    let for_ms = ELECTION_MS + random.next_u64() % 2_000;
    (nodes > REPLICAS).then_some(PlannedFault { at_ms, for_ms, fault })
}

/// Adapts faults to several arcs. Most kills of a node become kills of a coordinator. Most partitions become
/// partitions of a node with undelivered index entries, which last until the other nodes have elected a
/// leader. If the ring has nodes without some arc, most leaders that are cut off from all peers are cut off from the
/// nodes of one arc instead.
fn adapt_to_arcs(planned: &mut PlannedFault, nodes: usize) {
    let at_ms = planned.at_ms;
    match planned.fault {
        Fault::Kill { node } if !at_ms.is_multiple_of(4) => {
            planned.fault = Fault::KillCoordinator { node, after_us: at_ms % COORDINATION_US };
        }
        Fault::CutFromPeers { node } if nodes > REPLICAS && !at_ms.is_multiple_of(4) => {
            planned.fault = Fault::CutFromGroup { node };
        }
        Fault::Partition { node } if !at_ms.is_multiple_of(4) => {
            planned.fault = Fault::CutSender { node };
            planned.for_ms += ELECTION_MS;
        }
        _ => {}
    }
}

fn draw(random: &mut SplitMix64, nodes: usize) -> (Fault, u64) {
    let node = 1 + random.up_to(nodes - 1);
    let down_ms = 50 + random.next_u64() % 2_500;
    let while_ms = 300 + random.next_u64() % 4_000;
    match random.up_to(111) {
        0..10 => (Fault::Kill { node }, down_ms),
        10..14 => (Fault::KillAll, down_ms),
        14..26 => (Fault::PowerCut { node }, down_ms),
        26..34 => (Fault::PowerCutAll, down_ms),
        34..40 => (Fault::PowerCutInRecovery { node, operations: random.next_u64() % 12 }, down_ms),
        40..45 => (Fault::SyncError { node }, down_ms),
        45..51 => (Fault::FullDisk { node }, while_ms),
        51..57 => (Fault::SlowDisk { node, millis: 50 + random.next_u64() % 600 }, while_ms),
        57..65 if nodes > 1 && while_ms.is_multiple_of(2) => {
            (Fault::CutFromPeers { node }, while_ms + ELECTION_MS)
        }
        57..65 => (Fault::Partition { node }, while_ms),
        65..72 => {
            let others = nodes;
            let from = random.up_to(others);
            let to = (from + 1 + random.up_to(others - 1)) % (others + 1);
            (Fault::OneWay { from, to }, while_ms)
        }
        72..78 => (Fault::Loss { percent: 5 + random.next_u64() % 25 }, while_ms),
        78..84 => (Fault::Delay { millis: 20 + random.next_u64() % 300 }, while_ms),
        84..89 => (Fault::Duplication { percent: 10 + random.next_u64() % 40 }, while_ms),
        89..92 => (Fault::Split { place: random.up_to(15) }, 0),
        92..96 => {
            let span = SKEW_MS_MAX.unsigned_abs() * 2;
            let off = i64::try_from(random.next_u64() % span).unwrap_or_default();
            (Fault::Skew { node, millis: off - SKEW_MS_MAX }, while_ms)
        }
        96..100 => (Fault::Advance { minutes: 30 + random.next_u64() % 300 }, 0),
        // A single node cannot recover lost data.
        _ if nodes == 1 => (Fault::Kill { node }, down_ms),
        100..106 => (Fault::Wipe { node }, down_ms),
        _ => (Fault::DiskDamage { node }, down_ms),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn a_seed_has_one_plan_and_many_seeds_cover_every_fault() {
        let mut classes = BTreeSet::new();
        for seed in 0..40 {
            let plan = Plan::of(seed, 3, 30);
            assert_eq!(plan, Plan::of(seed, 3, 30));
            assert!(plan.faults.len() > 10);
            assert!(plan.faults.is_sorted_by_key(|planned| planned.at_ms));
            let minutes: u64 = plan
                .faults
                .iter()
                .map(|planned| match planned.fault {
                    Fault::Advance { minutes } => minutes,
                    _ => 0,
                })
                .sum();
            assert!(minutes <= ADVANCE_MINUTES_MAX);
            classes.extend(plan.faults.iter().map(|planned| planned.fault.class()));
        }
        assert_eq!(classes.len(), 26, "{classes:?}");
        assert_ne!(Plan::of(1, 3, 30).faults, Plan::of(2, 3, 30).faults);
    }

    #[test]
    fn a_third_of_the_seeds_at_least_have_the_production_engine() {
        let engines: Vec<_> = (0..300).map(|seed| Plan::of(seed, 3, 30).memtable_bytes).collect();
        assert!(engines.iter().flatten().count() >= 100);
        for bytes in MEMTABLE_BYTES.map(Some) {
            assert!(engines.contains(&bytes), "{bytes:?}");
        }
    }
}
