//! Counters of the faults that occurred. A planned fault without an effect is not counted, because
//! it tests nothing.

use std::collections::BTreeMap;

use locks::Mutex;

/// The number of occurrences of each class of fault.
pub type Counts = BTreeMap<&'static str, u64>;

/// The classes that must occur in every batch of runs with one node.
pub const ONE_NODE: [&str; 21] = [
    "engine on disk",
    "kill one",
    "power cut",
    "power cut in recovery",
    "lost sectors",
    "torn writes",
    "lost batches",
    "sync error",
    "full disk",
    "slow disk",
    "partition",
    "one-way partition",
    "loss",
    "delay",
    "reordering",
    "clock skew",
    "clock advance",
    "partition split",
    "index made in use",
    "records trimmed",
    "writes alike",
];
/// The additional classes that must occur in every batch of runs with several nodes.
pub const SEVERAL_NODES: [&str; 11] = [
    "kill all",
    "power cut of all",
    "duplication",
    "snapshot installed",
    "wiped disk",
    "damaged disk",
    "damaged block",
    "damaged file",
    "node rebuilt",
    "votes seen",
    "cut off from peers",
];

/// The additional classes that must occur in every batch of runs with several arcs.
pub const SEVERAL_ARCS: [&str; 12] = [
    "several arcs",
    "node joined",
    "node left",
    "nodes without some arc",
    "write to another node's arc",
    "read of another node's arc",
    "coordinator lost",
    "left over undecided",
    "left over decided",
    "split beside an outbox",
    "sender cut off",
    "leader cut off from its arc",
];

/// The counters of one run.
#[derive(Debug, Default)]
pub struct Coverage(Mutex<Counts>);

impl Coverage {
    /// Counts one occurrence.
    pub fn hit(&self, class: &'static str) {
        self.add(class, 1);
    }

    /// Counts several occurrences.
    pub fn add(&self, class: &'static str, times: u64) {
        if times > 0 {
            *self.0.lock().entry(class).or_default() += times;
        }
    }

    /// Returns the current counts.
    #[must_use]
    pub fn counts(&self) -> Counts {
        self.0.lock().clone()
    }
}

/// Returns the required classes that did not occur.
#[must_use]
pub fn missing(counts: &Counts, nodes: usize) -> Vec<&'static str> {
    let several = if nodes > 1 { SEVERAL_NODES.as_slice() } else { &[] };
    // With several nodes, half of the seeds have several arcs.
    let arcs = if nodes > 1 { SEVERAL_ARCS.as_slice() } else { &[] };
    let needed = ONE_NODE.iter().chain(several).chain(arcs);
    needed.filter(|class| !counts.contains_key(*class)).copied().collect()
}
