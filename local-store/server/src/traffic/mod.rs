//! The traffic of each partition: its heat, its hottest keys, and the token at which to split it.
//!
//! Each process counts its requests in memory, so the counts are zero after a restart. Only the decision to
//! split is written to the log. `heat` and `top_keys` count requests, and `limiter` and `bucket` enforce
//! throughput. These four modules are pure.

mod bucket;
mod heat;
mod limiter;
mod top_keys;

use std::collections::BTreeMap;
use std::sync::MutexGuard;
use std::sync::atomic::{AtomicBool, Ordering};

use locks::Mutex;
use model::limits::{PARTITION_BYTES_MAX, PARTITION_READ_UNITS, PARTITION_WRITE_UNITS};
use model::{EpochMillis, KeyValue, Token};
use partition::{Catalogue, PartitionNumber, SplitPoint, Table, TableId};

use self::heat::Heat;
pub(crate) use self::limiter::{Access, Demand, Excess};
use self::limiter::{Limiter, Sums};
use self::top_keys::HotKeys;

/// The limits above which a partition is split because of its traffic or size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SplitLimits {
    /// The limit of write capacity units per second.
    pub write_units: u64,
    /// The limit of read capacity units per second.
    pub read_units: u64,
    /// The time for which traffic must stay above a limit, in milliseconds of the store's clock.
    pub sustained_ms: u64,
    /// The maximum size of a partition's items, in bytes.
    pub bytes: u64,
}

/// The time for which a hot partition was above its limit: a minute. Shorter peaks are served from burst
/// capacity.
const SUSTAINED_MS: u64 = 60_000;

impl Default for SplitLimits {
    fn default() -> Self {
        Self {
            write_units: PARTITION_WRITE_UNITS,
            read_units: PARTITION_READ_UNITS,
            sustained_ms: SUSTAINED_MS,
            bytes: PARTITION_BYTES_MAX,
        }
    }
}

/// The handling of requests that exceed the throughput of their table.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum Throughput {
    /// Count and show the excess, but do not throttle requests
    #[default]
    Count,
    /// Throttle requests as DynamoDB does
    Enforce,
}

/// Capacity in half units, because an eventually consistent read costs half a unit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Units {
    pub(crate) read_halves: u64,
    pub(crate) write_halves: u64,
}

/// The traffic of one partition.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct PartitionRate {
    pub(crate) read_units_per_second: f64,
    pub(crate) write_units_per_second: f64,
}

/// One of the hottest partition keys of a table.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct HotKey {
    pub(crate) key: KeyValue,
    pub(crate) units_per_second: f64,
    /// The maximum error: the true value is lower than the reported value by at most this number, and
    /// is never higher.
    pub(crate) error_per_second: f64,
}

/// The traffic of all partitions.
#[derive(Debug, Default)]
pub struct Traffic {
    state: Mutex<State>,
    is_enforced: AtomicBool,
}

#[derive(Debug, Default)]
struct State {
    limits: SplitLimits,
    tables: BTreeMap<TableId, TableTraffic>,
}

#[derive(Debug, Default)]
struct TableTraffic {
    partitions: BTreeMap<PartitionNumber, Heat>,
    reads: HotKeys,
    writes: HotKeys,
    limiter: Limiter,
}

impl Traffic {
    /// Sets the limits above which partitions are split.
    pub fn set_limits(&self, limits: SplitLimits) {
        self.lock().limits = limits;
    }

    /// Returns the limits above which partitions are split.
    #[must_use]
    pub fn limits(&self) -> SplitLimits {
        self.lock().limits
    }

    /// Sets the handling of requests that exceed the throughput of their table.
    pub fn set_throughput(&self, throughput: Throughput) {
        self.is_enforced.store(throughput == Throughput::Enforce, Ordering::Relaxed);
    }

    /// Returns whether requests are throttled.
    pub(crate) fn is_enforced(&self) -> bool {
        self.is_enforced.load(Ordering::Relaxed)
    }

    /// Takes the known units of a request's operations before the request is executed. Returns for each
    /// operation the limit that it exceeds together with the other operations, or `None`. If a limit is
    /// exceeded, takes no units.
    pub(crate) fn admit(
        &self,
        operations: &[(&Table, Vec<Demand>)],
        now: EpochMillis,
    ) -> Vec<Option<Excess>> {
        if !self.is_enforced() {
            return vec![None; operations.len()];
        }
        let mut sums: BTreeMap<TableId, Sums> = BTreeMap::new();
        for (table, demands) in operations {
            sums.entry(table.id).or_default().add(table, demands);
        }
        let mut state = self.lock();
        let limits = state.limits;
        let mut excesses = Vec::with_capacity(operations.len());
        for (table, demands) in operations {
            let limiter = &mut state.tables.entry(table.id).or_default().limiter;
            let sums = sums.entry(table.id).or_default();
            excesses.push(limiter.excess(table, demands, sums, &limits, now));
        }
        if excesses.iter().all(Option::is_none) {
            for (table, demands) in operations {
                let limiter = &mut state.tables.entry(table.id).or_default().limiter;
                demands.iter().for_each(|demand| limiter.take(table, demand, &limits, now));
            }
        }
        excesses
    }

    /// Takes the units that a request consumed in addition to its admitted units.
    pub(crate) fn charge(&self, table: &Table, demand: Demand, now: EpochMillis) {
        if demand.halves == 0 || !self.is_enforced() {
            return;
        }
        let mut state = self.lock();
        let limits = state.limits;
        let traffic = state.tables.entry(table.id).or_default();
        traffic.limiter.take(table, &demand, &limits, now);
    }

    /// Counts the units that a request consumed for items with one partition key. `token` is the token
    /// of this key.
    pub(crate) fn record(
        &self,
        table: &Table,
        (key, token): (&KeyValue, Token),
        units: Units,
        now: EpochMillis,
    ) {
        let Some(partition) = table.partitions.get(table.partition_of(token)) else {
            return;
        };
        let mut state = self.lock();
        let sustained_ms = state.limits.sustained_ms;
        let traffic = state.tables.entry(table.id).or_default();
        let heat = traffic.partitions.entry(partition.number).or_default();
        heat.record(now, sustained_ms, units, Some(token));
        traffic.reads.record(now, token, key, units.read_halves);
        traffic.writes.record(now, token, key, units.write_halves);
    }

    /// Counts the units that a page of a scan consumed between two tokens (inclusive). Each partition between
    /// the tokens gets an equal share.
    pub(crate) fn record_scan(
        &self,
        table: &Table,
        (first, last): (Token, Token),
        read_halves: u64,
        now: EpochMillis,
    ) {
        let (from, to) = (table.partition_of(first), table.partition_of(last));
        let Some(partitions) = table.partitions.get(from..=to.max(from)) else {
            return;
        };
        let count = u64::try_from(partitions.len()).unwrap_or(u64::MAX).max(1);
        let mut state = self.lock();
        let sustained_ms = state.limits.sustained_ms;
        let traffic = state.tables.entry(table.id).or_default();
        for partition in partitions {
            let units = Units { read_halves: read_halves.div_ceil(count), write_halves: 0 };
            let heat = traffic.partitions.entry(partition.number).or_default();
            heat.record(now, sustained_ms, units, None);
        }
    }

    /// Returns the hot partitions, each with the token that divides its traffic into equal halves.
    /// Omits a partition whose traffic is for one key, because a split would not divide it.
    pub(crate) fn find_hot(
        &self,
        catalogue: &Catalogue,
        now: EpochMillis,
    ) -> Vec<(TableId, PartitionNumber, SplitPoint)> {
        let mut state = self.lock();
        let limits = state.limits;
        forget_gone(&mut state.tables, catalogue);
        let mut hot = Vec::new();
        for (id, traffic) in &state.tables {
            let Some(table) = catalogue.get(*id) else { continue };
            for (place, partition) in table.partitions.iter().enumerate() {
                let Some(heat) = traffic.partitions.get(&partition.number) else { continue };
                let range = table.token_range(place).filter(|_| partition.split.is_none());
                if let Some(range) = range
                    && heat.is_hot(now, &limits)
                    && let Some(at) = heat.split_point(range)
                {
                    hot.push((*id, partition.number, SplitPoint::Token(at)));
                }
            }
        }
        hot
    }

    /// Returns the recent traffic of a partition.
    pub(crate) fn rate(
        &self,
        table: TableId,
        partition: PartitionNumber,
        now: EpochMillis,
    ) -> PartitionRate {
        let state = self.lock();
        let heat = state.tables.get(&table).and_then(|t| t.partitions.get(&partition));
        heat.map_or(
            PartitionRate { read_units_per_second: 0.0, write_units_per_second: 0.0 },
            |heat| heat.rate(now, state.limits.sustained_ms),
        )
    }

    /// Returns the hottest partition keys of a table, by reads and by writes, hottest first.
    pub(crate) fn hot_keys(&self, table: TableId, now: EpochMillis) -> (Vec<HotKey>, Vec<HotKey>) {
        let state = self.lock();
        match state.tables.get(&table) {
            Some(traffic) => (traffic.reads.hottest(now), traffic.writes.hottest(now)),
            None => (Vec::new(), Vec::new()),
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }
}

/// Removes the counts of tables and partitions that no longer exist.
fn forget_gone(tables: &mut BTreeMap<TableId, TableTraffic>, catalogue: &Catalogue) {
    tables.retain(|id, traffic| match catalogue.get(*id) {
        Some(table) => {
            traffic.partitions.retain(|number, _| table.find_partition(*number).is_some());
            traffic.limiter.forget_gone(table);
            true
        }
        None => false,
    });
}
