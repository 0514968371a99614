//! The throughput limits of one table and of its global indexes.
//!
//! A provisioned table or index has a bucket for its provisioned units, which retains the unused
//! units of up to 300 seconds. Every partition has a bucket for 1,000 write and 3,000 read units
//! per second, which retains the unused units of up to one second. A request is admitted if both
//! buckets contain enough units. The module is pure: the caller passes the time. Source: AWS,
//! "DynamoDB burst and adaptive capacity", "Best practices for designing and using partition keys
//! effectively".

use std::collections::BTreeMap;

use model::{EpochMillis, Token};
use partition::{Billing, IndexNumber, PartitionNumber, SecondaryIndex, Table, partition_count};

use super::SplitLimits;
use super::bucket::{Bucket, Rate};

/// The number of seconds for which a provisioned table or index retains unused capacity.
const BURST_SECONDS: u64 = 300;
/// The number of seconds for which a partition retains unused capacity. It must be more than zero,
/// because requests within a second do not arrive evenly.
const PARTITION_BURST_SECONDS: u64 = 1;

/// The kind of access: read or write.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Access {
    Read,
    Write,
}

/// The capacity that a request consumes of a table or a global index.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Demand {
    /// The index; `None` for the table itself.
    pub(crate) index: Option<IndexNumber>,
    pub(crate) access: Access,
    /// The token of the requested item; `None` if it is unknown.
    pub(crate) token: Option<Token>,
    pub(crate) halves: u64,
}

/// The limit that a request exceeds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Excess {
    /// The name of the index; `None` for the table itself.
    pub(crate) index: Option<String>,
    pub(crate) access: Access,
    /// True for the limit of a partition, false for the provisioned throughput of the table or
    /// index.
    pub(crate) is_key_range: bool,
    pub(crate) is_provisioned: bool,
}

/// A part of a ring with its own limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Range {
    Partition(PartitionNumber),
    /// A part of an index's ring. The store does not partition indexes, so the limit applies to equal
    /// parts of the ring. Their number is the number of partitions of a new table with this
    /// throughput.
    Part(u64),
}

/// The units that a request demands from each bucket of a table. A bucket without a range is for
/// provisioned throughput.
#[derive(Debug, Default)]
pub(super) struct Sums(BTreeMap<(Option<IndexNumber>, Access, Option<Range>), u64>);

impl Sums {
    /// Adds the demands of an operation.
    pub(super) fn add(&mut self, table: &Table, demands: &[Demand]) {
        for demand in demands {
            let range = range_of(table, demand);
            for range in [None].into_iter().chain(range.map(Some)) {
                *self.0.entry((demand.index, demand.access, range)).or_default() += demand.halves;
            }
        }
    }
}

/// The buckets of one table.
#[derive(Debug, Default)]
pub(super) struct Limiter {
    settings: BTreeMap<(Option<IndexNumber>, Access), Bucket>,
    ranges: BTreeMap<(Option<IndexNumber>, Access, Range), Bucket>,
}

impl Limiter {
    /// Returns the limit that an operation exceeds. The operations of a request share the buckets, so
    /// `sums` must contain the demands of all operations.
    pub(super) fn excess(
        &mut self,
        table: &Table,
        demands: &[Demand],
        sums: &Sums,
        limits: &SplitLimits,
        now: EpochMillis,
    ) -> Option<Excess> {
        demands.iter().find_map(|demand| {
            let sum_of = |range| sums.0.get(&(demand.index, demand.access, range)).copied();
            let (whole, part) = (sum_of(None), sum_of(range_of(table, demand)));
            let is_refused = |bucket: Option<&mut Bucket>, sum: Option<u64>| {
                bucket.zip(sum).is_some_and(|(bucket, sum)| !bucket.has(sum))
            };
            let is_above_setting = is_refused(self.setting(table, demand, now), whole);
            if !is_above_setting && !is_refused(self.range(table, demand, limits, now), part) {
                return None;
            }
            Some(Excess {
                index: index_of(table, demand.index).map(|index| index.definition.name.clone()),
                access: demand.access,
                is_key_range: !is_above_setting,
                is_provisioned: setting(table, demand.index, demand.access).is_some(),
            })
        })
    }

    /// Takes consumed units, even if the buckets contain fewer units.
    pub(super) fn take(
        &mut self,
        table: &Table,
        demand: &Demand,
        limits: &SplitLimits,
        now: EpochMillis,
    ) {
        if let Some(bucket) = self.setting(table, demand, now) {
            bucket.take(demand.halves);
        }
        if let Some(bucket) = self.range(table, demand, limits, now) {
            bucket.take(demand.halves);
        }
    }

    /// Removes the buckets of partitions and indexes that no longer exist.
    pub(super) fn forget_gone(&mut self, table: &Table) {
        let is_there =
            |index: &Option<IndexNumber>| index.is_none() || index_of(table, *index).is_some();
        self.settings.retain(|(index, _), _| is_there(index));
        self.ranges.retain(|(index, _, range), _| match range {
            Range::Partition(number) => table.find_partition(*number).is_some(),
            Range::Part(_) => is_there(index),
        });
    }

    fn setting(&mut self, table: &Table, demand: &Demand, now: EpochMillis) -> Option<&mut Bucket> {
        let units_per_second = setting(table, demand.index, demand.access)?;
        let rate = Rate { units_per_second, burst_seconds: BURST_SECONDS };
        let bucket = self.settings.entry((demand.index, demand.access));
        let bucket = bucket.or_insert_with(|| Bucket::full(rate, now));
        bucket.refill(rate, now);
        Some(bucket)
    }

    fn range(
        &mut self,
        table: &Table,
        demand: &Demand,
        limits: &SplitLimits,
        now: EpochMillis,
    ) -> Option<&mut Bucket> {
        let range = range_of(table, demand)?;
        let units_per_second = match demand.access {
            Access::Read => limits.read_units,
            Access::Write => limits.write_units,
        };
        let rate = Rate { units_per_second, burst_seconds: PARTITION_BURST_SECONDS };
        let bucket = self.ranges.entry((demand.index, demand.access, range));
        let bucket = bucket.or_insert_with(|| Bucket::full(rate, now));
        bucket.refill(rate, now);
        Some(bucket)
    }
}

/// Returns the part of the ring to which a demand applies; `None` if it is unknown.
fn range_of(table: &Table, demand: &Demand) -> Option<Range> {
    let token = demand.token?;
    Some(match demand.index {
        None => Range::Partition(table.partitions.get(table.partition_of(token))?.number),
        Some(_) => {
            let billing = index_billing(table, demand.index);
            let parts = u128::from(partition_count(billing));
            let part = (u128::from(token.0) * parts) >> 64;
            Range::Part(u64::try_from(part).unwrap_or(0))
        }
    })
}

fn index_of(table: &Table, index: Option<IndexNumber>) -> Option<&SecondaryIndex> {
    table.indexes.iter().find(|known| Some(known.number) == index)
}

fn index_billing(table: &Table, index: Option<IndexNumber>) -> Billing {
    match (table.billing, index_of(table, index).and_then(|index| index.definition.throughput)) {
        (Billing::Provisioned { .. }, Some((read_units, write_units))) => {
            Billing::Provisioned { read_units, write_units }
        }
        (billing, _) => billing,
    }
}

/// Returns the provisioned units per second of a table or index; `None` in on-demand mode.
fn setting(table: &Table, index: Option<IndexNumber>, access: Access) -> Option<u64> {
    let billing = match index {
        None => table.billing,
        Some(_) => index_billing(table, index),
    };
    match (billing, access) {
        (Billing::OnDemand, _) => None,
        (Billing::Provisioned { read_units, .. }, Access::Read) => Some(read_units),
        (Billing::Provisioned { write_units, .. }, Access::Write) => Some(write_units),
    }
}
