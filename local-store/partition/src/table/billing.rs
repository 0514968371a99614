//! Billing modes, and the initial number of partitions of a table for its throughput.

use model::limits::{ON_DEMAND_PARTITIONS, PARTITION_READ_UNITS, PARTITION_WRITE_UNITS};
use serde::{Deserialize, Serialize};

use crate::table::partition::PARTITIONS_MAX;

/// The billing mode of a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Billing {
    /// `PAY_PER_REQUEST`.
    OnDemand,
    /// `PROVISIONED`, with units per second.
    Provisioned {
        /// Read capacity units, at least 1.
        read_units: u64,
        /// Write capacity units, at least 1.
        write_units: u64,
    },
}

/// Returns the number of partitions of a new table: enough for the throughput of a provisioned
/// table, and four for an on-demand table. The result is at most [`PARTITIONS_MAX`], whatever
/// throughput a log entry contains.
#[must_use]
pub fn partition_count(billing: Billing) -> u32 {
    let for_throughput = match billing {
        Billing::OnDemand => u64::from(ON_DEMAND_PARTITIONS),
        Billing::Provisioned { read_units, write_units } => {
            // Computes read/3000 + write/1000 in integers, and rounds up only once.
            let for_reads = read_units.saturating_mul(PARTITION_WRITE_UNITS);
            let for_writes = write_units.saturating_mul(PARTITION_READ_UNITS);
            for_reads
                .saturating_add(for_writes)
                .div_ceil(PARTITION_READ_UNITS * PARTITION_WRITE_UNITS)
        }
    };
    u32::try_from(for_throughput.clamp(1, PARTITIONS_MAX as u64)).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn partition_counts_follow_the_formula() {
        let provisioned =
            |read_units, write_units| Billing::Provisioned { read_units, write_units };
        for (billing, count) in [
            (Billing::OnDemand, 4),
            (provisioned(1, 1), 1),
            (provisioned(3000, 0), 1),
            (provisioned(3000, 1), 2),
            (provisioned(1500, 500), 1),
            (provisioned(6000, 2000), 4),
            (provisioned(0, 1_024_000), 1024),
            (provisioned(1_000_000, 1_000_000), 1024),
            (provisioned(u64::MAX, u64::MAX), 1024),
        ] {
            assert_eq!(partition_count(billing), count, "{billing:?}");
        }
    }
}
