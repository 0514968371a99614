//! Which faults happen when: all of it follows from a seed, before the run begins. It makes nothing
//! happen.

use std::fmt;

use partition::mutation::Mutation;
use storage::disk::SplitMix64;

/// What goes wrong, or changes, for a while.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The process of a node dies; what its operating system holds stays.
    Kill {
        /// Which node, from 1.
        node: usize,
    },
    /// The process of a node dies while it coordinates a transaction over several arcs.
    KillCoordinator {
        /// Which node, from 1.
        node: usize,
        /// So long after the transaction was seen, in microseconds: any of its steps.
        after_us: u64,
    },
    /// Every process dies.
    KillAll,
    /// A node loses its power: what was not synced is lost, torn or kept.
    PowerCut {
        /// Which node.
        node: usize,
    },
    /// All nodes lose their power.
    PowerCutAll,
    /// A node loses its power, and again while it recovers.
    PowerCutInRecovery {
        /// Which node.
        node: usize,
        /// After so many disk operations of the recovery.
        operations: u64,
    },
    /// A sync of a node's disk fails.
    SyncError {
        /// Which node.
        node: usize,
    },
    /// A node's disk has no space.
    FullDisk {
        /// Which node.
        node: usize,
    },
    /// Every sync of a node's disk takes this long.
    SlowDisk {
        /// Which node.
        node: usize,
        /// Milliseconds at most.
        millis: u64,
    },
    /// Nobody reaches a node, and it reaches nobody.
    Partition {
        /// Which node.
        node: usize,
    },
    /// A node and its peers do not reach each other, and clients reach all of them, until others have
    /// been elected if it leads: then it does not know that it leads no more.
    CutFromPeers {
        /// Which node.
        node: usize,
    },
    /// As a partition, of a node that leads an arc whose index entries are on their way to another.
    CutSender {
        /// Which node.
        node: usize,
    },
    /// Messages from one place to another do not arrive; the other way they do. Place 0 are the
    /// clients.
    OneWay {
        /// From where.
        from: usize,
        /// To where.
        to: usize,
    },
    /// So many of a hundred messages are lost.
    Loss {
        /// Percent.
        percent: u64,
    },
    /// Messages take up to this long, each as long as it likes, so that they overtake each other.
    Delay {
        /// Milliseconds.
        millis: u64,
    },
    /// So many of a hundred messages between nodes arrive twice, the second time late.
    Duplication {
        /// Percent.
        percent: u64,
    },
    /// A node's clock is ahead of the others, or behind.
    Skew {
        /// Which node.
        node: usize,
        /// Milliseconds.
        millis: i64,
    },
    /// A node loses everything that it had, and comes back as a new one.
    Wipe {
        /// Which node.
        node: usize,
    },
    /// Some of what a node's disk had kept for long changes while it is down.
    Rot {
        /// Which node.
        node: usize,
    },
    /// A block of a state of a running node can no longer be read.
    RotState {
        /// Which node.
        node: usize,
        /// Which arc: the remainder by the number of arcs.
        place: usize,
    },
    /// A partition of the table is split.
    Split {
        /// Which: the remainder by the number of partitions.
        place: usize,
    },
    /// A global index is made over the table, which is in use.
    MakeIndex,
    /// Store time jumps ahead everywhere, as after a suspended machine.
    Advance {
        /// Minutes.
        minutes: u64,
    },
}

impl Fault {
    /// The class that it counts for.
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
            Self::CutSender { .. } => "sender cut off",
            Self::OneWay { .. } => "one-way partition",
            Self::Loss { .. } => "loss",
            Self::Delay { .. } => "delay",
            Self::Duplication { .. } => "duplication",
            Self::Skew { .. } => "clock skew",
            Self::Wipe { .. } => "wiped disk",
            Self::Rot { .. } => "damaged disk",
            Self::RotState { .. } => "damaged block",
            Self::Split { .. } => "partition split",
            Self::MakeIndex => "index made in use",
            Self::Advance { .. } => "clock advance",
        }
    }
}

/// A fault and its time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Planned {
    /// When it begins, in milliseconds of the run.
    pub at_ms: u64,
    /// How long it lasts; a node that died is down for so long.
    pub for_ms: u64,
    /// What.
    pub fault: Fault,
}

impl fmt::Display for Planned {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{:>6} ms  {:?} for {} ms", self.at_ms, self.fault, self.for_ms)
    }
}

/// Everything about a run that its seed decides beforehand.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    /// The seed.
    pub seed: u64,
    /// Nodes: one, or three.
    pub nodes: usize,
    /// Arcs of the ring, each a group with a log of its own: one, or three.
    pub arcs: u32,
    /// How long clients run, in simulated seconds.
    pub seconds: u64,
    /// Files that a log keeps for use again.
    pub log_spares: usize,
    /// The longest time between two requests of a client, in milliseconds.
    pub pause_ms: u64,
    /// How many clients of each kind there are.
    pub clients: Clients,
    /// A deliberate fault of the store itself; it needs the feature `mutations`.
    pub mutation: Option<Mutation>,
    /// The faults by their beginnings.
    pub faults: Vec<Planned>,
}

/// Clients by what they do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Clients {
    /// See `workload::registers`; at most eight, so that a history can be searched.
    pub registers: usize,
    /// See `workload::bank`.
    pub bank: usize,
    /// See `workload::counters`.
    pub counters: usize,
    /// See `workload::expiring`.
    pub expiring: usize,
    /// See `workload::readers`.
    pub readers: usize,
    /// See `workload::transactions`.
    pub transactions: usize,
}

impl Default for Clients {
    fn default() -> Self {
        Self { registers: 6, bank: 3, counters: 3, expiring: 3, readers: 3, transactions: 3 }
    }
}

/// A node's clock is off by this at most, in milliseconds.
pub const SKEW_MS_MAX: i64 = 5_000;
/// Arcs, where there are several.
const ARCS: u32 = 3;
/// A transaction over several arcs takes about this long, in microseconds.
const COORDINATION_US: u64 = 12_000;
/// After so many milliseconds a node that is cut off is no leader to the others any more.
const ELECTION_MS: u64 = 2_000;
/// Faults begin after this: the table has to be made first.
const QUIET_MS: u64 = 1_000;
/// One fault begins per this many milliseconds, on average.
const FAULT_EVERY_MS: u64 = 1_700;
/// Store time advances by this at most in one run, in minutes: stream records are kept for a day.
const ADVANCE_MINUTES_MAX: u64 = 20 * 60;

impl Plan {
    /// The plan of a seed.
    #[must_use]
    pub fn of(seed: u64, nodes: usize, seconds: u64) -> Self {
        let mut random = SplitMix64::new(seed ^ 0x706c_616e);
        let end = (seconds * 1_000).max(QUIET_MS + 1);
        let count = (end - QUIET_MS) / FAULT_EVERY_MS + 1;
        let mut advance_left = ADVANCE_MINUTES_MAX;
        let mut faults: Vec<Planned> = (0..count)
            .map(|_| {
                let at_ms = QUIET_MS + random.next_u64() % (end - QUIET_MS);
                let (mut fault, for_ms) = draw(&mut random, nodes);
                if let Fault::Advance { minutes } = &mut fault {
                    *minutes = (*minutes).min(advance_left);
                    advance_left -= *minutes;
                }
                Planned { at_ms, for_ms, fault }
            })
            .collect();
        faults.push(Planned { at_ms: draw_index(seed, end), for_ms: 0, fault: Fault::MakeIndex });
        faults.extend(draw_rot(seed, nodes, end));
        let arcs = draw_arcs(seed, nodes);
        if arcs > 1 {
            faults.iter_mut().for_each(aim);
        }
        faults.sort_by_key(|planned| planned.at_ms);
        let log_spares = random.up_to(2);
        let pause_ms = 20 + random.next_u64() % 100;
        let clients = Clients::default();
        Self { seed, nodes, arcs, seconds, log_spares, pause_ms, clients, mutation: None, faults }
    }
}

/// Half of the seeds with several nodes have several arcs. Chosen apart from the faults, so that
/// these stay what they are.
fn draw_arcs(seed: u64, nodes: usize) -> u32 {
    let several = nodes > 1 && SplitMix64::new(seed ^ 0x6172_6373).next_u64().is_multiple_of(2);
    if several { ARCS } else { 1 }
}

/// When the second index is made, in milliseconds: in the first two thirds of a run. Chosen apart from
/// the faults, too.
fn draw_index(seed: u64, end: u64) -> u64 {
    QUIET_MS + SplitMix64::new(seed ^ 0x696e_6478).next_u64() % ((end - QUIET_MS) * 2 / 3).max(1)
}

/// When a block of a state rots, and of which node: in half of the seeds with several nodes. Chosen
/// apart from the faults, too.
fn draw_rot(seed: u64, nodes: usize, end: u64) -> Option<Planned> {
    let mut random = SplitMix64::new(seed ^ 0x726f_7462);
    let is_meant = nodes > 1 && random.next_u64().is_multiple_of(2);
    let at_ms = QUIET_MS + random.next_u64() % (end - QUIET_MS);
    let (node, place) = (1 + random.up_to(nodes - 1), random.up_to(15));
    is_meant.then_some(Planned { at_ms, for_ms: 0, fault: Fault::RotState { node, place } })
}

/// Where there are several arcs, what kills a node kills a coordinator, mostly; and what cuts one off
/// from everybody cuts off one that sends to another arc, mostly, until after others have been elected.
fn aim(planned: &mut Planned) {
    let at_ms = planned.at_ms;
    match planned.fault {
        Fault::Kill { node } if !at_ms.is_multiple_of(4) => {
            planned.fault = Fault::KillCoordinator { node, after_us: at_ms % COORDINATION_US };
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
        // What the only node loses is lost.
        _ if nodes == 1 => (Fault::Kill { node }, down_ms),
        100..106 => (Fault::Wipe { node }, down_ms),
        _ => (Fault::Rot { node }, down_ms),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn a_seed_has_one_plan_and_many_seeds_have_every_fault() {
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
        assert_eq!(classes.len(), 23, "{classes:?}");
        assert_ne!(Plan::of(1, 3, 30).faults, Plan::of(2, 3, 30).faults);
    }
}
