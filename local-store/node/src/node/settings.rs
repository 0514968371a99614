//! The parts and the settings of a node.

use std::sync::Arc;
use std::time::Duration;

use openraft::{Config, ConfigError, SnapshotPolicy};
use partition::mutation::{self, Mutation};
use storage::disk::Damage;

use crate::clock::Clock;
use crate::failure::OnFatal;
use crate::node_log::NodeLog;
use crate::ring::ArcId;
use crate::state_location::StateLocation;
use crate::transfer::Transfers;
use crate::transport::Transport;
use crate::types::NodeId;
use crate::worker::Worker;

/// Times and sizes of a node.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Time between two heartbeats of a leader.
    pub heartbeat: Duration,
    /// The election timeout. A follower that gets no heartbeat starts an election after the second
    /// value plus a random time between the first and the second value. The default is 0.9 to 1.2
    /// s. A busy computer rarely pauses for longer, and a killed leader is replaced within two
    /// seconds, even if the first election has a split vote.
    pub election: (Duration, Duration),
    /// Number of entries after which the state is made durable. The log is then purged up to the
    /// durable entry.
    pub snapshot_entries: u64,
    /// Number of applied entries that are kept in the log for peers that are slightly behind.
    pub entries_kept: u64,
    /// Time without a new entry after which a node frees unused disk space.
    pub quiet: Duration,
    /// Time-out for a part of a snapshot, and for the installation after the last part. If a peer
    /// times out, the leader sends the snapshot again from the first part, and sends no entries
    /// until it is installed.
    pub snapshot_part: Duration,
    /// Time-out of a request, including elections and forwarding. After a time-out, the outcome is
    /// unknown.
    pub request: Duration,
    /// The transfers of states to other nodes, which the replicas of the process share.
    pub transfers: Arc<Transfers>,
    /// The number of arcs of the ring.
    pub arcs: u32,
    /// Whether this process has other replicas of the group. If it does, the first replica that
    /// applies an entry caches the result for the others.
    pub has_neighbours: bool,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            heartbeat: Duration::from_millis(100),
            election: (Duration::from_millis(300), Duration::from_millis(600)),
            snapshot_entries: 10_000,
            entries_kept: 1_000,
            quiet: Duration::from_secs(20),
            snapshot_part: Duration::from_secs(30),
            request: Duration::from_secs(10),
            transfers: Arc::default(),
            arcs: 1,
            has_neighbours: true,
        }
    }
}

impl Settings {
    /// Returns the settings of nodes that are all in one process. The nodes end together, and a
    /// node with a damaged disk transfers its leadership, so elections after a time-out are only a
    /// fallback. Heartbeats are rare, because their timers would use most of the CPU time of an
    /// idle store.
    #[must_use]
    pub fn of_one_process() -> Self {
        Self {
            heartbeat: Duration::from_secs(2),
            // Less than the time-out of a request, even after some missed heartbeats.
            election: (Duration::from_secs(3), Duration::from_secs(4)),
            // No network limits the transfers inside a process.
            transfers: Arc::new(Transfers::new(u64::MAX)),
            ..Self::default()
        }
    }

    pub(super) fn config(&self) -> Result<Config, ConfigError> {
        let millis = |time: Duration| u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
        let config = Config {
            cluster_name: "weir".to_owned(),
            heartbeat_interval: millis(self.heartbeat),
            election_timeout_min: millis(self.election.0),
            election_timeout_max: millis(self.election.1),
            snapshot_policy: SnapshotPolicy::LogsSinceLast(self.snapshot_entries),
            // The maintenance of the node purges the log.
            max_in_snapshot_log_to_keep: u64::MAX,
            // A lagging peer gets log entries as long as the log has them. It gets a snapshot only
            // if the log lacks entries.
            replication_lag_threshold: u64::MAX / 2,
            // A restarted leader must be elected again, because its state may lack entries that it
            // had applied, and it has lost the index of the committed entries.
            enable_leader_restore: Some(mutation::is_active(Mutation::LeaderRestore)),
            // A node that leaves the group drops its log. If the leader has made it a learner again before it knew,
            // the leader has already seen the old log, and must send everything again. The log of a voter never
            // becomes shorter: a node that has lost its disk returns with another id.
            allow_log_reversion: Some(true),
            ..Config::default()
        };
        config.validate()
    }
}

/// The parts of a node.
pub struct Parts {
    /// The identity of the node.
    pub id: NodeId,
    /// The arc that this node replicates. Each arc is one Raft group.
    pub arc: ArcId,
    /// The log of the node.
    pub log: NodeLog,
    /// The location of the state.
    pub state_location: Arc<dyn StateLocation>,
    /// The worker for blocking work on the state. The log has its own worker.
    pub worker: Arc<dyn Worker>,
    /// The transport of messages to the peers.
    pub transport: Arc<dyn Transport>,
    /// The clock that gives proposed entries their time.
    pub clock: Arc<Clock>,
    /// Times and sizes.
    pub settings: Settings,
    /// The seed of the random election timeouts.
    pub seed: u64,
    /// The record of damage of the log and of the state.
    pub damage: Damage,
    /// The callback for the failure of the node.
    pub on_fatal: OnFatal,
}
