//! The common parts of tables and indexes: names, key schemas and provisioned throughput.

use crate::{
    evaluation::properties::{PlacedValue, Properties},
    stack::{AttributeDefinition, Billing},
};

/// The key attribute types of a `KeySchema`, in the required order.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum KeyPart {
    Partition,
    Sort,
}

const KEY_PARTS: &[(&str, KeyPart)] = &[("HASH", KeyPart::Partition), ("RANGE", KeyPart::Sort)];

/// Returns true if the name is valid for a table or an index.
pub(crate) fn is_name(name: &str) -> bool {
    let allowed = |letter: char| letter.is_ascii_alphanumeric() || "_-.".contains(letter);
    (3..=255).contains(&name.len()) && name.chars().all(allowed)
}

/// The names of a table's key attributes.
pub(crate) struct Keys {
    pub(crate) partition_key: String,
    pub(crate) sort_key: Option<String>,
}

/// The names of the attributes in a `KeySchema`.
pub(crate) struct KeySchema {
    /// The HASH attributes, at least one.
    pub(crate) partition: Vec<String>,
    /// The RANGE attributes.
    pub(crate) sort: Vec<String>,
}

/// Parses a `KeySchema`. All of its attributes must be defined. The key may have at most `each_max`
/// HASH attributes and at most `each_max` RANGE attributes.
pub(crate) fn key_schema(
    properties: &Properties<'_, '_>,
    definitions: &[PlacedValue<AttributeDefinition>],
    each_max: usize,
) -> Option<KeySchema> {
    let findings = properties.resolver.findings;
    if !properties.has("KeySchema") {
        properties.missing("KeySchema", "[{AttributeName: id, KeyType: HASH}]");
    }
    let mut is_sound = true;
    let elements = properties.mappings("KeySchema");
    let schema: Vec<(PlacedValue<String>, KeyPart)> = elements
        .iter()
        .filter_map(|element| {
            let name = element.required_text("AttributeName", "id");
            let part = element.choice("KeyType", KEY_PARTS);
            if !element.has("KeyType") {
                element.missing("KeyType", "HASH");
            }
            element.finish(&[]);
            Some((name?, part?.value))
        })
        .collect();
    is_sound &= schema.len() == elements.len();
    for (name, _) in &schema {
        if !definitions.iter().any(|definition| definition.value.name == name.value) {
            findings.error(
                name.at,
                format!("the key attribute `{}` has no type", name.value),
                format!(
                    "add `{{AttributeName: {}, AttributeType: S}}` to AttributeDefinitions",
                    name.value
                ),
            );
            return None;
        }
    }
    if !is_sound {
        return None;
    }
    let names = |wanted: KeyPart| -> Vec<String> {
        let of_kind = schema.iter().filter(|(_, part)| *part == wanted);
        of_kind.map(|(name, _)| name.value.clone()).collect()
    };
    let key = KeySchema { partition: names(KeyPart::Partition), sort: names(KeyPart::Sort) };
    let is_ordered = schema.is_sorted_by_key(|(_, part)| *part);
    let counts = (1..=each_max, 0..=each_max);
    if is_ordered && counts.0.contains(&key.partition.len()) && counts.1.contains(&key.sort.len()) {
        return Some(key);
    }
    if let Some(node) = properties.node("KeySchema") {
        let message = match each_max {
            1 => "a key is one HASH attribute, and at most one RANGE attribute after it".to_owned(),
            _ => format!(
                "the key of a global index is 1 to {each_max} HASH attributes, and at most \
                 {each_max} RANGE attributes after them"
            ),
        };
        let help = "write `- {AttributeName: id, KeyType: HASH}`";
        findings.error(node.at, message, help);
    }
    None
}

/// Parses the `ProvisionedThroughput` of a table or an index.
pub(crate) fn provisioned(properties: &Properties<'_, '_>) -> Option<Billing> {
    let throughput = properties.mapping("ProvisionedThroughput")?;
    for name in ["ReadCapacityUnits", "WriteCapacityUnits"] {
        if !throughput.has(name) {
            throughput.missing(name, "5");
        }
    }
    let read = throughput.integer("ReadCapacityUnits", 1..=i64::MAX);
    let write = throughput.integer("WriteCapacityUnits", 1..=i64::MAX);
    throughput.finish(&[]);
    // If the capacity units are known only on AWS, the throughput is not limited on this machine.
    let (Some(read), Some(write)) = (read, write) else { return Some(Billing::OnDemand) };
    Some(Billing::Provisioned {
        read_units: u64::try_from(read.value).ok()?,
        write_units: u64::try_from(write.value).ok()?,
    })
}
