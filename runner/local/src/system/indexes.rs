//! Creates the secondary indexes of a table as in the template.
//!
//! This module adds missing global indexes, and never removes or replaces an index. An existing index with
//! different keys or a different projection is an error. A missing local index is an error, too, because
//! DynamoDB creates local indexes only together with their table.

use aws_sdk_dynamodb::Client;
use aws_sdk_dynamodb::types::{
    AttributeDefinition, CreateGlobalSecondaryIndexAction, GlobalSecondaryIndex,
    GlobalSecondaryIndexUpdate, IndexStatus, KeySchemaElement, KeyType, LocalSecondaryIndex,
    Projection, ProjectionType, ProvisionedThroughput, ScalarAttributeType, TableDescription,
};

use super::table_state::{LOOKS_MAX, PAUSE, describe};
use client::failure::{Failure, Result, fatal};
use template::{self, Billing, Index, IndexKind, Table};

/// Adds the global indexes that the table lacks, sequentially, because DynamoDB creates only one index
/// at a time.
///
/// # Errors
/// An index differs from the template and cannot be changed. The error names the index and the
/// correction.
pub(super) async fn carry_out(
    client: &Client,
    table: &Table,
    description: &TableDescription,
) -> Result<()> {
    for index in &table.indexes {
        match (found(description, index), index.kind) {
            (Some(shape), _) => check(index, &shape)?,
            (None, IndexKind::Local) => {
                return Err(fatal!(
                    "the table exists without the local index `{}`, and a local index can be created only together with its table; rename the table in the template, or delete the data folder to start over",
                    index.name
                ));
            }
            (None, IndexKind::Global) => {
                add(client, table, index).await?;
                wait_until_active(client, table, index).await?;
            }
        }
    }
    Ok(())
}

/// Returns the keys and the projection of an index as text, for comparison and messages.
fn shape_of(keys: &[KeySchemaElement], projection: Option<&Projection>) -> String {
    // If a key has at most one attribute of each key type, the text omits the key types.
    let of_kind = |kind: KeyType| keys.iter().filter(move |key| *key.key_type() == kind).count();
    let is_plain = of_kind(KeyType::Hash) <= 1 && of_kind(KeyType::Range) <= 1;
    let name = |key: &KeySchemaElement| match is_plain {
        true => key.attribute_name().to_owned(),
        false => format!("{} {}", key.attribute_name(), key.key_type()),
    };
    let keys: Vec<String> = keys.iter().map(name).collect();
    let kind = projection.and_then(Projection::projection_type).map_or("", ProjectionType::as_str);
    let mut attributes: Vec<&str> = projection
        .map(|projection| projection.non_key_attributes().iter().map(String::as_str).collect())
        .unwrap_or_default();
    attributes.sort_unstable();
    format!("({}) {kind} {}", keys.join(", "), attributes.join(", ")).trim_end().to_owned()
}

fn found(description: &TableDescription, index: &Index) -> Option<String> {
    match index.kind {
        IndexKind::Global => description
            .global_secondary_indexes()
            .iter()
            .find(|found| found.index_name() == Some(index.name.as_str()))
            .map(|found| shape_of(found.key_schema(), found.projection())),
        IndexKind::Local => description
            .local_secondary_indexes()
            .iter()
            .find(|found| found.index_name() == Some(index.name.as_str()))
            .map(|found| shape_of(found.key_schema(), found.projection())),
    }
}

fn check(index: &Index, shape: &str) -> Result<()> {
    let keys = key_schema(&index.partition_keys, &index.sort_keys)?;
    let wanted = shape_of(&keys, Some(&projection(index)));
    if wanted == shape {
        return Ok(());
    }
    Err(fatal!(
        "the table's index `{}` exists as {shape}, but the template has {wanted}; give the index a different name in the template, or delete the existing index first",
        index.name
    ))
}

async fn add(client: &Client, table: &Table, index: &Index) -> Result<()> {
    let mut action = CreateGlobalSecondaryIndexAction::builder()
        .index_name(&index.name)
        .set_key_schema(Some(key_schema(&index.partition_keys, &index.sort_keys)?))
        .projection(projection(index));
    if let Some(throughput) = index.billing.map(throughput).transpose()?.flatten() {
        action = action.provisioned_throughput(throughput);
    }
    let update = GlobalSecondaryIndexUpdate::builder()
        .create(action.build().map_err(Failure::fatal)?)
        .build();
    let of_index =
        |name: &str| index.partition_keys.iter().chain(&index.sort_keys).any(|key| key == name);
    let definitions = definitions(table)?
        .into_iter()
        .filter(|definition| of_index(definition.attribute_name()))
        .collect();
    client
        .update_table()
        .table_name(&table.name)
        .set_attribute_definitions(Some(definitions))
        .global_secondary_index_updates(update)
        .send()
        .await
        .map(drop)
        .map_err(Failure::from)
}

/// Waits until a new index is complete, up to a limit. On a large table the backfill takes longer; it
/// then continues while `weir up` runs.
async fn wait_until_active(client: &Client, table: &Table, index: &Index) -> Result<()> {
    for _ in 0..LOOKS_MAX {
        let is_active = describe(client, table).await?.is_some_and(|description| {
            description.global_secondary_indexes().iter().any(|found| {
                found.index_name() == Some(index.name.as_str())
                    && found.index_status() == Some(&IndexStatus::Active)
            })
        });
        if is_active {
            return Ok(());
        }
        tokio::time::sleep(PAUSE).await;
    }
    tracing::warn!(
        "the index `{}` of table `{}` is still being backfilled",
        index.name,
        table.name
    );
    Ok(())
}

/// Returns the key attributes of the table and its indexes with their types.
pub(super) fn definitions(table: &Table) -> Result<Vec<AttributeDefinition>> {
    let definition = |attribute: &template::AttributeDefinition| {
        AttributeDefinition::builder()
            .attribute_name(&attribute.name)
            .attribute_type(ScalarAttributeType::from(attribute.kind.as_str()))
            .build()
            .map_err(Failure::fatal)
    };
    table.attributes.iter().map(definition).collect()
}

/// Returns a key schema: the HASH attributes, then the RANGE attributes.
pub(super) fn key_schema(partition: &[String], sort: &[String]) -> Result<Vec<KeySchemaElement>> {
    let element = |(name, kind): (&String, KeyType)| {
        KeySchemaElement::builder()
            .attribute_name(name)
            .key_type(kind)
            .build()
            .map_err(Failure::fatal)
    };
    let partition = partition.iter().map(|name| (name, KeyType::Hash));
    let sort = sort.iter().map(|name| (name, KeyType::Range));
    partition.chain(sort).map(element).collect()
}

pub(super) fn global(index: &Index) -> Result<GlobalSecondaryIndex> {
    let mut built = GlobalSecondaryIndex::builder()
        .index_name(&index.name)
        .set_key_schema(Some(key_schema(&index.partition_keys, &index.sort_keys)?))
        .projection(projection(index));
    if let Some(throughput) = index.billing.map(throughput).transpose()?.flatten() {
        built = built.provisioned_throughput(throughput);
    }
    built.build().map_err(Failure::fatal)
}

pub(super) fn local(index: &Index) -> Result<LocalSecondaryIndex> {
    LocalSecondaryIndex::builder()
        .index_name(&index.name)
        .set_key_schema(Some(key_schema(&index.partition_keys, &index.sort_keys)?))
        .projection(projection(index))
        .build()
        .map_err(Failure::fatal)
}

/// Returns the provisioned throughput; `None` for on-demand.
pub(super) fn throughput(billing: Billing) -> Result<Option<ProvisionedThroughput>> {
    let Billing::Provisioned { read_units, write_units } = billing else { return Ok(None) };
    let units = |units: u64| i64::try_from(units).unwrap_or(i64::MAX);
    ProvisionedThroughput::builder()
        .read_capacity_units(units(read_units))
        .write_capacity_units(units(write_units))
        .build()
        .map(Some)
        .map_err(Failure::fatal)
}

fn projection(index: &Index) -> Projection {
    let (kind, attributes) = match &index.projection {
        template::Projection::All => (ProjectionType::All, None),
        template::Projection::KeysOnly => (ProjectionType::KeysOnly, None),
        template::Projection::Include(names) => (ProjectionType::Include, Some(names.clone())),
    };
    Projection::builder().projection_type(kind).set_non_key_attributes(attributes).build()
}
