//! Reads DynamoDB tables: `AWS::DynamoDB::Table` and SAM's `AWS::Serverless::SimpleTable`.
//! It creates nothing.

use crate::template::{
    diagnostic::Findings,
    properties::{At, Catalogue, Properties},
    resource::{Resource, ResourceKind},
    stack::{AttributeDefinition, Billing, KeyType, StreamViewType, Table},
};

const NO_INDEX: &str =
    "the table is created without this index; a Query or Scan with its IndexName fails";

const NOT_EMULATED: Catalogue = &[
    ("ContributorInsightsSpecification", "nothing is measured per key"),
    ("DeletionProtectionEnabled", "the table can be deleted"),
    ("GlobalSecondaryIndexes", NO_INDEX),
    ("ImportSourceSpecification", "the table begins empty"),
    ("KinesisStreamSpecification", "changes go to the table's own stream only"),
    ("LocalSecondaryIndexes", NO_INDEX),
    ("OnDemandThroughput", "throughput has no such limit"),
    (
        "PointInTimeRecoverySpecification",
        "there is no backup of the table; its files are below ./.weir",
    ),
    ("ResourcePolicy", "permissions are not checked"),
    ("SSESpecification", "the table's files are not encrypted"),
    ("TableClass", "there is one class of storage"),
    ("Tags", "the table has no tags"),
    ("WarmThroughput", "the table begins with its usual partitions"),
];

const KEY_TYPES: &[(&str, KeyType)] =
    &[("S", KeyType::String), ("N", KeyType::Number), ("B", KeyType::Binary)];

const SIMPLE_KEY_TYPES: &[(&str, KeyType)] =
    &[("String", KeyType::String), ("Number", KeyType::Number), ("Binary", KeyType::Binary)];

const VIEW_TYPES: &[(&str, StreamViewType)] = &[
    ("KEYS_ONLY", StreamViewType::KeysOnly),
    ("NEW_AND_OLD_IMAGES", StreamViewType::NewAndOldImages),
    ("NEW_IMAGE", StreamViewType::NewImage),
    ("OLD_IMAGE", StreamViewType::OldImage),
];

/// The parts of a primary key.
#[derive(Clone, Copy)]
enum KeyPart {
    Partition,
    Sort,
}

const KEY_PARTS: &[(&str, KeyPart)] = &[("HASH", KeyPart::Partition), ("RANGE", KeyPart::Sort)];

/// Reads one table; `None` when an error was reported.
pub(super) fn read(properties: &Properties<'_, '_>, resource: &Resource<'_>) -> Option<Table> {
    let findings = properties.resolver.findings;
    let name = name(properties, resource);
    let keys = match resource.kind {
        ResourceKind::SimpleTable => simple_keys(properties),
        _ => keys(properties),
    };
    let billing = match resource.kind {
        ResourceKind::SimpleTable => simple_billing(properties),
        _ => billing(properties),
    };
    let stream = properties.mapping("StreamSpecification").and_then(|stream| {
        if !stream.has("StreamViewType") {
            stream.missing("StreamViewType", "NEW_AND_OLD_IMAGES");
        }
        let view = stream.choice("StreamViewType", VIEW_TYPES);
        stream.finish(&[("ResourcePolicy", "permissions are not checked")]);
        view.map(|view| view.value)
    });
    let ttl_attribute = properties.mapping("TimeToLiveSpecification").and_then(|ttl| {
        let enabled = ttl.boolean("Enabled");
        if !ttl.has("Enabled") {
            ttl.missing("Enabled", "true");
        }
        let attribute = ttl.text("AttributeName");
        if enabled == Some(true) && !ttl.has("AttributeName") {
            ttl.missing("AttributeName", "expires_at");
        }
        ttl.finish(&[]);
        attribute.filter(|_| enabled == Some(true)).map(|attribute| attribute.value)
    });
    properties.finish(NOT_EMULATED);
    let (name, keys) = (name?, keys?);
    if let Some(attribute) = &ttl_attribute
        && keys.attributes.iter().any(|key| key.name == *attribute && key.kind != KeyType::Number)
    {
        findings.error(
            properties.key_place("TimeToLiveSpecification").unwrap_or(resource.at),
            format!("the TTL attribute `{attribute}` is a key that is not a number"),
            "name a number attribute with seconds since 1970",
        );
    }
    Some(Table {
        logical_id: resource.id.to_owned(),
        arn: properties.resolver.context.table_arn(&name),
        name,
        attributes: keys.attributes,
        partition_key: keys.partition_key,
        sort_key: keys.sort_key,
        billing: billing?,
        stream,
        ttl_attribute,
        at: resource.at,
    })
}

/// The physical name: 3 to 255 letters, digits, `_`, `-` and `.`, as CreateTable wants it.
fn name(properties: &Properties<'_, '_>, resource: &Resource<'_>) -> Option<String> {
    let at = properties.node("TableName").map_or(resource.at, |node| node.at);
    let name = properties.resolver.name_text(resource, at)?;
    let allowed = |letter: char| letter.is_ascii_alphanumeric() || "_-.".contains(letter);
    if (3..=255).contains(&name.len()) && name.chars().all(allowed) {
        return Some(name);
    }
    properties.resolver.findings.error(
        at,
        format!("`{name}` is no table name"),
        "write 3 to 255 letters, digits, `_`, `-` or `.`",
    );
    None
}

struct Keys {
    attributes: Vec<AttributeDefinition>,
    partition_key: String,
    sort_key: Option<String>,
}

fn keys(properties: &Properties<'_, '_>) -> Option<Keys> {
    let findings = properties.resolver.findings;
    let definitions = definitions(properties);
    if !properties.has("KeySchema") {
        properties.missing("KeySchema", "[{AttributeName: id, KeyType: HASH}]");
    }
    let schema: Vec<(At<String>, KeyPart)> = properties
        .mappings("KeySchema")
        .into_iter()
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
    let (partition_key, sort_key) = match schema.as_slice() {
        [(partition, KeyPart::Partition)] => (partition.value.clone(), None),
        [(partition, KeyPart::Partition), (sort, KeyPart::Sort)] => {
            (partition.value.clone(), Some(sort.value.clone()))
        }
        _ => {
            if let Some(node) = properties.node("KeySchema")
                && !findings.has_errors()
            {
                findings.error(
                    node.at,
                    "a key is one HASH attribute, and at most one RANGE attribute after it",
                    "write `- {AttributeName: id, KeyType: HASH}`",
                );
            }
            return None;
        }
    };
    let is_key = |name: &String| {
        *name == partition_key || sort_key.as_ref().is_some_and(|sort| sort == name)
    };
    // An index may use the others; without one, CreateTable refuses them.
    if !properties.has("GlobalSecondaryIndexes") && !properties.has("LocalSecondaryIndexes") {
        unused(&definitions, is_key, findings);
    }
    let attributes =
        definitions.into_iter().map(|found| found.value).filter(|found| is_key(&found.name));
    Some(Keys { attributes: attributes.collect(), partition_key, sort_key })
}

fn definitions(properties: &Properties<'_, '_>) -> Vec<At<AttributeDefinition>> {
    if !properties.has("AttributeDefinitions") {
        properties.missing("AttributeDefinitions", "[{AttributeName: id, AttributeType: S}]");
    }
    properties
        .mappings("AttributeDefinitions")
        .into_iter()
        .filter_map(|definition| {
            let name = definition.required_text("AttributeName", "id");
            let kind = definition.choice("AttributeType", KEY_TYPES);
            if !definition.has("AttributeType") {
                definition.missing("AttributeType", "S");
            }
            definition.finish(&[]);
            let At { value: name, at } = name?;
            Some(At { value: AttributeDefinition { name, kind: kind?.value }, at })
        })
        .collect()
}

fn unused(
    definitions: &[At<AttributeDefinition>],
    is_key: impl Fn(&String) -> bool,
    findings: &Findings<'_>,
) {
    for definition in definitions.iter().filter(|definition| !is_key(&definition.value.name)) {
        findings.error(
            definition.at,
            format!("`{}` is defined but is no key", definition.value.name),
            "remove it; only attributes of the key are defined, and items may have any others",
        );
    }
}

fn billing(properties: &Properties<'_, '_>) -> Option<Billing> {
    let modes = [("PAY_PER_REQUEST", true), ("PROVISIONED", false)];
    let on_demand = match properties.has("BillingMode") {
        true => properties.choice("BillingMode", &modes)?.value,
        false => false,
    };
    if on_demand {
        if properties.has("ProvisionedThroughput") {
            properties.resolver.findings.error(
                properties.key_place("ProvisionedThroughput").unwrap_or(properties.at),
                "an on-demand table has no ProvisionedThroughput",
                "remove it, or write `BillingMode: PROVISIONED`",
            );
        }
        return Some(Billing::OnDemand);
    }
    if !properties.has("ProvisionedThroughput") {
        properties.resolver.findings.error(
            properties.at,
            "the table has no throughput",
            "write `BillingMode: PAY_PER_REQUEST`, or `ProvisionedThroughput:`",
        );
        return None;
    }
    provisioned(properties)
}

fn provisioned(properties: &Properties<'_, '_>) -> Option<Billing> {
    let throughput = properties.mapping("ProvisionedThroughput")?;
    for name in ["ReadCapacityUnits", "WriteCapacityUnits"] {
        if !throughput.has(name) {
            throughput.missing(name, "5");
        }
    }
    let read = throughput.integer("ReadCapacityUnits", 1..=i64::MAX);
    let write = throughput.integer("WriteCapacityUnits", 1..=i64::MAX);
    throughput.finish(&[]);
    Some(Billing::Provisioned {
        read_units: u64::try_from(read?.value).ok()?,
        write_units: u64::try_from(write?.value).ok()?,
    })
}

/// SAM's simple table has one key, `id` of type String when it is not given.
fn simple_keys(properties: &Properties<'_, '_>) -> Option<Keys> {
    let (mut name, mut kind) = ("id".to_owned(), KeyType::String);
    if let Some(key) = properties.mapping("PrimaryKey") {
        if let Some(given) = key.text("Name") {
            name = given.value;
        }
        if !key.has("Type") {
            key.missing("Type", "String");
        }
        kind = key.choice("Type", SIMPLE_KEY_TYPES)?.value;
        key.finish(&[]);
    }
    let attributes = vec![AttributeDefinition { name: name.clone(), kind }];
    Some(Keys { attributes, partition_key: name, sort_key: None })
}

/// SAM's simple table is on demand unless it has a throughput.
fn simple_billing(properties: &Properties<'_, '_>) -> Option<Billing> {
    if properties.has("ProvisionedThroughput") {
        provisioned(properties)
    } else {
        Some(Billing::OnDemand)
    }
}
