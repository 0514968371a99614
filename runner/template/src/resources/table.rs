//! Parses DynamoDB tables: `AWS::DynamoDB::Table` and SAM's `AWS::Serverless::SimpleTable`.

use crate::{
    declarations::resource::{Resource, ResourceKind},
    evaluation::properties::{Catalogue, PlacedValue, Properties},
    resources::global_table,
    resources::index,
    resources::table_parts::{Keys, is_name, key_schema, provisioned},
    stack::{AttributeDefinition, Billing, Index, KeyType, StreamViewType, Table},
};

const NOT_EMULATED: Catalogue = &[
    ("ContributorInsightsSpecification", "no metrics are collected per key"),
    ("DeletionProtectionEnabled", "the table can be deleted"),
    ("ImportSourceSpecification", "the table is initially empty"),
    ("KinesisStreamSpecification", "changes go to the table's own stream only"),
    ("OnDemandThroughput", "this throughput limit is not enforced"),
    (
        "PointInTimeRecoverySpecification",
        "there is no backup of the table; its files are below ./.weir",
    ),
    ("ResourcePolicy", "permissions are not checked"),
    ("SSESpecification", "the table's files are not encrypted"),
    ("TableClass", "there is only one storage class"),
    ("Tags", "the table has no tags"),
    ("WarmThroughput", "the table starts with the default partitions"),
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

/// Parses one table; `None` if an error was reported.
pub(crate) fn read(properties: &Properties<'_, '_>, resource: &Resource<'_>) -> Option<Table> {
    let findings = properties.resolver.findings;
    let name = name(properties, resource);
    if resource.kind == ResourceKind::GlobalTable {
        global_table::check(properties);
    }
    let (keys, indexes, attributes, billing) = match resource.kind {
        ResourceKind::SimpleTable => {
            let keys = simple_keys(properties);
            let attributes = keys.iter().map(|(_, definition)| definition.clone()).collect();
            (keys.map(|(keys, _)| keys), Vec::new(), attributes, simple_billing(properties))
        }
        kind => keys_and_indexes(properties, kind),
    };
    let stream = properties.mapping("StreamSpecification").and_then(|stream| {
        if !stream.has("StreamViewType") {
            stream.missing("StreamViewType", "NEW_AND_OLD_IMAGES");
        }
        let view = stream.choice("StreamViewType", VIEW_TYPES).or_else(|| {
            // If the view type is known only on AWS, the view type with both images is used.
            let PlacedValue { at, .. } = stream.unknown("StreamViewType")?;
            Some(PlacedValue { value: StreamViewType::NewAndOldImages, at })
        });
        stream.finish(&[("ResourcePolicy", "permissions are not checked")]);
        view
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
    match resource.kind {
        ResourceKind::GlobalTable => properties.finish(global_table::NOT_EMULATED),
        _ => properties.finish(NOT_EMULATED),
    }
    let (name, keys) = (name?, keys?);
    if let Some(attribute) = &ttl_attribute
        && attributes.iter().any(|key| key.name == *attribute && key.kind != KeyType::Number)
    {
        findings.error(
            properties.key_place("TimeToLiveSpecification").unwrap_or(resource.at),
            format!("the TTL attribute `{attribute}` is a key attribute that is not a number"),
            "name a number attribute with seconds since 1970",
        );
    }
    Some(Table {
        logical_id: resource.id.to_owned(),
        arn: properties.resolver.context.table_arn(&name),
        name,
        attributes,
        partition_key: keys.partition_key,
        sort_key: keys.sort_key,
        indexes,
        billing: billing?,
        stream_at: stream.as_ref().map(|view| view.at),
        stream: stream.map(|view| view.value),
        ttl_attribute,
        at: resource.at,
    })
}

/// Returns the table's physical name: 3 to 255 letters, digits, `_`, `-` and `.`, as required by
/// CreateTable.
fn name(properties: &Properties<'_, '_>, resource: &Resource<'_>) -> Option<String> {
    let at = properties.node("TableName").map_or(resource.at, |node| node.at);
    let name = properties.resolver.name_text(resource, at)?;
    if is_name(&name) {
        return Some(name);
    }
    properties.resolver.findings.error(
        at,
        format!("`{name}` is not a valid table name"),
        "write 3 to 255 letters, digits, `_`, `-` or `.`",
    );
    None
}

type KeysAndIndexes = (Option<Keys>, Vec<Index>, Vec<AttributeDefinition>, Option<Billing>);

/// Parses the parts of a table that depend on each other. The keys of the table and its indexes
/// determine the required attribute definitions. An index has the billing mode of its table.
fn keys_and_indexes(properties: &Properties<'_, '_>, kind: ResourceKind) -> KeysAndIndexes {
    let definitions = definitions(properties);
    let keys = key_schema(properties, &definitions, 1).and_then(|mut key| {
        Some(Keys { partition_key: key.partition.pop()?, sort_key: key.sort.pop() })
    });
    let billing = match kind {
        ResourceKind::GlobalTable => Some(Billing::OnDemand),
        _ => billing(properties),
    };
    let Some(found) = &keys else {
        // The key has an error, so the indexes cannot be checked. This call marks the property as
        // read, so that it is not reported as unknown.
        let _ = properties.node("GlobalSecondaryIndexes");
        let _ = properties.node("LocalSecondaryIndexes");
        return (keys, Vec::new(), Vec::new(), billing);
    };
    let (indexes, is_complete) = index::read(properties, found, &definitions, billing);
    let attributes =
        index::used_definitions(properties, found, (&indexes, is_complete), definitions);
    (keys, indexes, attributes, billing)
}

fn definitions(properties: &Properties<'_, '_>) -> Vec<PlacedValue<AttributeDefinition>> {
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
            let PlacedValue { value: name, at } = name?;
            Some(PlacedValue { value: AttributeDefinition { name, kind: kind?.value }, at })
        })
        .collect()
}

fn billing(properties: &Properties<'_, '_>) -> Option<Billing> {
    let modes = [("PAY_PER_REQUEST", true), ("PROVISIONED", false)];
    let on_demand = match properties.has("BillingMode") {
        // If the mode is known only on AWS, on-demand is used, because it needs no throughput.
        true => properties.choice("BillingMode", &modes).is_none_or(|mode| mode.value),
        false => false,
    };
    if on_demand {
        if properties.has("ProvisionedThroughput") {
            properties.resolver.findings.error(
                properties.key_place("ProvisionedThroughput").unwrap_or(properties.at),
                "an on-demand table cannot have ProvisionedThroughput",
                "remove it, or write `BillingMode: PROVISIONED`",
            );
        }
        return Some(Billing::OnDemand);
    }
    if !properties.has("ProvisionedThroughput") {
        properties.resolver.findings.error(
            properties.at,
            "the table has neither provisioned throughput nor on-demand billing",
            "write `BillingMode: PAY_PER_REQUEST`, or `ProvisionedThroughput:`",
        );
        return None;
    }
    provisioned(properties)
}

/// Returns the key of a SAM simple table. The default is the attribute `id` of type String.
fn simple_keys(properties: &Properties<'_, '_>) -> Option<(Keys, AttributeDefinition)> {
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
    let definition = AttributeDefinition { name: name.clone(), kind };
    Some((Keys { partition_key: name, sort_key: None }, definition))
}

/// Returns the billing mode of a SAM simple table. A table without a throughput is on-demand.
fn simple_billing(properties: &Properties<'_, '_>) -> Option<Billing> {
    if properties.has("ProvisionedThroughput") {
        provisioned(properties)
    } else {
        Some(Billing::OnDemand)
    }
}
