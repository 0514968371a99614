//! Parses a table's `GlobalSecondaryIndexes` and `LocalSecondaryIndexes`, and the definitions of
//! the key attributes that the table and its indexes use.
//!
//! Limits: AWS DynamoDB guide, "Quotas in Amazon DynamoDB", secondary indexes.

use std::collections::BTreeSet;

use crate::{
    evaluation::properties::{Catalogue, PlacedValue, Properties},
    evaluation::value::Data,
    resources::table_parts::{self, Keys},
    stack::{AttributeDefinition, Billing, Index, IndexKind, Projection},
};

/// DynamoDB's maximum number of local indexes per table.
const LOCAL_MAX: usize = 5;
/// DynamoDB's default maximum number of global indexes per table. AWS can raise this quota.
const GLOBAL_MAX: usize = 20;
/// Maximum number of HASH attributes, and also of RANGE attributes, in the key of a global index
/// (AWS DynamoDB guide, "Multi-attribute keys").
const GLOBAL_KEY_ATTRIBUTES_MAX: usize = 4;
/// Maximum number of `NonKeyAttributes`.
const NON_KEY_ATTRIBUTES_MAX: usize = 20;

const NOT_EMULATED: Catalogue = &[
    ("ContributorInsightsSpecification", "no metrics are collected per key"),
    ("OnDemandThroughput", "this throughput limit is not enforced"),
    ("ReadOnDemandThroughputSettings", "this throughput limit is not enforced"),
    ("ReadProvisionedThroughputSettings", "the index is on-demand on this machine"),
    ("WarmThroughput", "the index starts with the default partitions"),
    ("WriteOnDemandThroughputSettings", "this throughput limit is not enforced"),
    ("WriteProvisionedThroughputSettings", "the index is on-demand on this machine"),
];

/// Returns the valid indexes of a table, and true if all indexes are valid. Invalid indexes are
/// reported.
pub(crate) fn read(
    properties: &Properties<'_, '_>,
    keys: &Keys,
    definitions: &[PlacedValue<AttributeDefinition>],
    billing: Option<Billing>,
) -> (Vec<Index>, bool) {
    let mut names = BTreeSet::new();
    let (mut indexes, mut is_complete) = (Vec::new(), true);
    let kinds = [
        ("GlobalSecondaryIndexes", IndexKind::Global, GLOBAL_MAX),
        ("LocalSecondaryIndexes", IndexKind::Local, LOCAL_MAX),
    ];
    for (property, kind, count_max) in kinds {
        let written = properties.mappings(property);
        if written.len() > count_max {
            properties.resolver.findings.error(
                properties.key_place(property).unwrap_or(properties.at),
                format!("this table has {} {property}", written.len()),
                format!("DynamoDB allows at most {count_max} of them"),
            );
        }
        for index in written {
            let read = read_one(&index, kind, keys, definitions, billing);
            index.finish(NOT_EMULATED);
            let Some(PlacedValue { value, at }) = read else {
                is_complete = false;
                continue;
            };
            if !names.insert(value.name.clone()) {
                properties.resolver.findings.error(
                    at,
                    format!("there are two indexes with the name `{}`", value.name),
                    "rename one of them",
                );
            }
            indexes.push(value);
        }
    }
    (indexes, is_complete)
}

fn read_one(
    index: &Properties<'_, '_>,
    kind: IndexKind,
    keys: &Keys,
    definitions: &[PlacedValue<AttributeDefinition>],
    billing: Option<Billing>,
) -> Option<PlacedValue<Index>> {
    let findings = index.resolver.findings;
    let name = index.required_text("IndexName", "by-author");
    let each_max = match kind {
        IndexKind::Global => GLOBAL_KEY_ATTRIBUTES_MAX,
        IndexKind::Local => 1,
    };
    let own = table_parts::key_schema(index, definitions, each_max);
    let projection = projection(index);
    let billing = match kind {
        IndexKind::Local => None,
        IndexKind::Global => throughput(index, billing),
    };
    let (PlacedValue { value: name, at }, own) = (name?, own?);
    if !table_parts::is_name(&name) {
        findings.error(
            at,
            format!("`{name}` is not a valid index name"),
            "write 3 to 255 letters, digits, `_`, `-` or `.`",
        );
        return None;
    }
    let is_of_table = own.partition.iter().eq([&keys.partition_key]);
    if kind == IndexKind::Local && (!is_of_table || own.sort.is_empty()) {
        findings.error(
            at,
            format!(
                "the local index `{name}` has a different partition key from its table, or no sort key"
            ),
            format!(
                "write `{}` as HASH and another attribute as RANGE, or make it a global index",
                keys.partition_key
            ),
        );
        return None;
    }
    if kind == IndexKind::Local && keys.sort_key.is_none() {
        findings.error(
            at,
            format!("the local index `{name}` is on a table without a sort key"),
            "make it a global index",
        );
        return None;
    }
    let projection = projection?;
    let (partition_keys, sort_keys) = (own.partition, own.sort);
    Some(PlacedValue {
        value: Index { name, kind, partition_keys, sort_keys, projection, billing },
        at,
    })
}

/// Parses the throughput of a global index of a provisioned table.
fn throughput(index: &Properties<'_, '_>, table: Option<Billing>) -> Option<Billing> {
    match table {
        // An invalid billing mode was already reported.
        None => index.node("ProvisionedThroughput").and(None),
        Some(Billing::OnDemand) => {
            if index.has("ProvisionedThroughput") {
                index.resolver.findings.error(
                    index.key_place("ProvisionedThroughput").unwrap_or(index.at),
                    "an index of an on-demand table cannot have ProvisionedThroughput",
                    "remove it",
                );
                let _ = index.node("ProvisionedThroughput");
            }
            Some(Billing::OnDemand)
        }
        Some(Billing::Provisioned { .. }) => {
            if !index.has("ProvisionedThroughput") {
                index.missing(
                    "ProvisionedThroughput",
                    "{ReadCapacityUnits: 5, WriteCapacityUnits: 5}",
                );
                return None;
            }
            table_parts::provisioned(index)
        }
    }
}

fn projection(index: &Properties<'_, '_>) -> Option<Projection> {
    const KINDS: &[(&str, &str)] =
        &[("ALL", "ALL"), ("INCLUDE", "INCLUDE"), ("KEYS_ONLY", "KEYS_ONLY")];
    let findings = index.resolver.findings;
    if !index.has("Projection") {
        index.missing("Projection", "{ProjectionType: ALL}");
        return None;
    }
    let projection = index.mapping("Projection")?;
    if !projection.has("ProjectionType") {
        projection.missing("ProjectionType", "ALL");
    }
    let kind = projection.choice("ProjectionType", KINDS);
    let attributes = non_key_attributes(&projection);
    projection.finish(&[]);
    let PlacedValue { value: kind, at } = kind?;
    match (kind, attributes.is_empty()) {
        ("INCLUDE", false) => return Some(Projection::Include(attributes)),
        ("INCLUDE", true) => findings.error(
            at,
            "INCLUDE without NonKeyAttributes is the same as KEYS_ONLY",
            "write `NonKeyAttributes: [title]`, or `ProjectionType: KEYS_ONLY`",
        ),
        (_, false) => findings.error(
            at,
            format!("NonKeyAttributes need the projection type INCLUDE, not {kind}"),
            "write `ProjectionType: INCLUDE`, or remove NonKeyAttributes",
        ),
        ("ALL", true) => return Some(Projection::All),
        (_, true) => return Some(Projection::KeysOnly),
    }
    None
}

fn non_key_attributes(projection: &Properties<'_, '_>) -> Vec<String> {
    let findings = projection.resolver.findings;
    let Some(value) = projection.value("NonKeyAttributes") else { return Vec::new() };
    let at = value.at;
    let Data::List(items) = value.data else {
        findings.error(at, "NonKeyAttributes is a list", "write `NonKeyAttributes: [title]`");
        return Vec::new();
    };
    if items.len() > NON_KEY_ATTRIBUTES_MAX {
        findings.error(
            at,
            format!("this index projects {} attributes", items.len()),
            format!(
                "DynamoDB allows at most {NON_KEY_ATTRIBUTES_MAX}; write `ProjectionType: ALL` for more"
            ),
        );
    }
    items.into_iter().filter_map(|item| item.text(findings)).collect()
}

/// Returns the attributes that the table and its indexes use as keys. Reports an unused definition
/// as an error, because CreateTable rejects it. If an index was invalid, nothing is reported,
/// because that index may use the definition.
pub(crate) fn used_definitions(
    properties: &Properties<'_, '_>,
    keys: &Keys,
    (indexes, is_complete): (&[Index], bool),
    definitions: Vec<PlacedValue<AttributeDefinition>>,
) -> Vec<AttributeDefinition> {
    let findings = properties.resolver.findings;
    let mut used: BTreeSet<&str> = BTreeSet::from([keys.partition_key.as_str()]);
    used.extend(keys.sort_key.as_deref());
    for index in indexes {
        used.extend(index.partition_keys.iter().chain(&index.sort_keys).map(String::as_str));
    }
    let mut kept = Vec::new();
    for PlacedValue { value, at } in definitions {
        if used.contains(value.name.as_str()) {
            kept.push(value);
        } else if is_complete {
            findings.error(
                at,
                format!("`{}` is defined but not used as a key", value.name),
                "remove the definition; only key attributes are defined, and items may have any other attributes",
            );
        }
    }
    kept
}
