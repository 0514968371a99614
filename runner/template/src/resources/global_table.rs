//! The additional properties of an `AWS::DynamoDB::GlobalTable`.
//!
//! On this machine, a global table is a single table: the replica of the stack's region. It is
//! always on-demand, because AWS scales the throughput of a provisioned global table automatically.

use crate::evaluation::properties::{Catalogue, Properties};

pub(crate) const NOT_EMULATED: Catalogue = &[
    ("GlobalTableSettingsReplicationMode", "the table has only one replica"),
    ("GlobalTableSourceArn", "the table has only one replica"),
    ("GlobalTableWitnesses", "the table has only one replica"),
    ("MultiRegionConsistency", "the table has only one replica"),
    ("ReadOnDemandThroughputSettings", "this throughput limit is not enforced"),
    ("ReadProvisionedThroughputSettings", "the table is on-demand on this machine"),
    ("Replicas", "the table has only the replica on this machine"),
    ("SSESpecification", "the table's files are not encrypted"),
    ("WarmThroughput", "the table starts with the default partitions"),
    ("WriteOnDemandThroughputSettings", "this throughput limit is not enforced"),
    ("WriteProvisionedThroughputSettings", "the table is on-demand on this machine"),
];

/// Checks CloudFormation's additional requirements for global tables.
pub(crate) fn check(properties: &Properties<'_, '_>) {
    if !properties.has("Replicas") {
        properties.missing("Replicas", "[{Region: !Ref AWS::Region}]");
    }
    let modes = [("PAY_PER_REQUEST", true), ("PROVISIONED", false)];
    // The default in CloudFormation is PROVISIONED.
    let is_provisioned = match properties.has("BillingMode") {
        true => properties.choice("BillingMode", &modes).is_some_and(|mode| !mode.value),
        false => true,
    };
    if is_provisioned && !properties.has("WriteProvisionedThroughputSettings") {
        properties.resolver.findings.error(
            properties.at,
            "the table has neither provisioned throughput nor on-demand billing",
            "write `BillingMode: PAY_PER_REQUEST`, or `WriteProvisionedThroughputSettings:`",
        );
    }
}
