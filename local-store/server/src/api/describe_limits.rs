//! `DescribeLimits`: returns the maximum throughput of a new account, which the store does not
//! enforce.

use super::answer::number_member;

/// The maximum capacity units of all tables of an account (AWS, "Quotas in Amazon DynamoDB").
const ACCOUNT_UNITS_MAX: u64 = 80_000;
/// The maximum capacity units of one table.
const TABLE_UNITS_MAX: u64 = 40_000;

pub(super) fn describe_limits() -> String {
    let mut out = String::from("{");
    number_member(&mut out, "AccountMaxReadCapacityUnits", ACCOUNT_UNITS_MAX);
    number_member(&mut out, "AccountMaxWriteCapacityUnits", ACCOUNT_UNITS_MAX);
    number_member(&mut out, "TableMaxReadCapacityUnits", TABLE_UNITS_MAX);
    number_member(&mut out, "TableMaxWriteCapacityUnits", TABLE_UNITS_MAX);
    out.push('}');
    out
}
