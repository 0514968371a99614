//! The definition of a table: its keys and indexes. Compares two definitions, and creates a table as
//! another table is defined.
//!
//! Settings that do not decide which items a table accepts, such as the billing mode, are not compared.

use std::collections::BTreeSet;

use aws_sdk_dynamodb::Client;
use aws_sdk_dynamodb::types::{
    BillingMode, GlobalSecondaryIndex, KeySchemaElement, LocalSecondaryIndex, Projection,
    ProvisionedThroughput, ProvisionedThroughputDescription, TableClassSummary, TableDescription,
    Tag,
};

use client::failure::{Context, Result};

/// Returns a part of the definition that only one of two tables has; `None` if the definitions are equal.
pub(super) fn difference(one: &TableDescription, other: &TableDescription) -> Option<String> {
    let (one, other) = (parts(one), parts(other));
    one.symmetric_difference(&other).next().cloned()
}

/// Returns the keys, the types of the key attributes, and the indexes.
fn parts(table: &TableDescription) -> BTreeSet<String> {
    let types = table.attribute_definitions().iter();
    let types =
        types.map(|it| format!("attribute {} {}", it.attribute_name(), it.attribute_type()));
    let local = table
        .local_secondary_indexes()
        .iter()
        .map(|it| index("local", it.index_name(), it.key_schema(), it.projection()));
    let global = table
        .global_secondary_indexes()
        .iter()
        .map(|it| index("global", it.index_name(), it.key_schema(), it.projection()));
    let key = format!("key {}", key(table.key_schema()));
    types.chain(local).chain(global).chain([key]).collect()
}

fn key(elements: &[KeySchemaElement]) -> String {
    let names: Vec<&str> = elements.iter().map(KeySchemaElement::attribute_name).collect();
    names.join(" ")
}

fn index(
    kind: &str,
    name: Option<&str>,
    elements: &[KeySchemaElement],
    projection: Option<&Projection>,
) -> String {
    let projects = projection.and_then(Projection::projection_type);
    let projects = projects.map_or("", |it| it.as_str());
    let names = projection.map(Projection::non_key_attributes).unwrap_or_default();
    let names: BTreeSet<&String> = names.iter().collect();
    let (name, key) = (name.unwrap_or_default(), key(elements));
    format!("{kind} index {name} with key {key} and projection {projects} {names:?}")
}

/// Creates a table as `table` is described, with tags, but without a stream and TTL.
///
/// # Errors
/// When the endpoint refuses it.
pub(super) async fn create(
    client: &Client,
    table: &TableDescription,
    tags: Vec<Tag>,
) -> Result<()> {
    let name = table.table_name().unwrap_or_default();
    let billing = table.billing_mode_summary().and_then(|summary| summary.billing_mode());
    let is_on_demand = billing == Some(&BillingMode::PayPerRequest);
    let units = |units: Option<&ProvisionedThroughputDescription>| {
        let Some(units) = units.filter(|_| !is_on_demand) else { return Ok(None) };
        let throughput = ProvisionedThroughput::builder()
            .set_read_capacity_units(units.read_capacity_units())
            .set_write_capacity_units(units.write_capacity_units());
        throughput.build().map(Some)
    };
    let mut request = client.create_table().table_name(name).set_tags(Some(tags));
    for index in table.local_secondary_indexes() {
        let local = LocalSecondaryIndex::builder()
            .set_index_name(index.index_name().map(str::to_owned))
            .set_key_schema(index.key_schema.clone())
            .set_projection(index.projection().cloned());
        request = request.local_secondary_indexes(local.build()?);
    }
    for index in table.global_secondary_indexes() {
        let global = GlobalSecondaryIndex::builder()
            .set_index_name(index.index_name().map(str::to_owned))
            .set_key_schema(index.key_schema.clone())
            .set_projection(index.projection().cloned())
            .set_provisioned_throughput(units(index.provisioned_throughput())?)
            .set_on_demand_throughput(index.on_demand_throughput().cloned());
        request = request.global_secondary_indexes(global.build()?);
    }
    let class = table.table_class_summary().and_then(TableClassSummary::table_class);
    let mode = if is_on_demand { BillingMode::PayPerRequest } else { BillingMode::Provisioned };
    let created = request
        .set_attribute_definitions(table.attribute_definitions.clone())
        .set_key_schema(table.key_schema.clone())
        .billing_mode(mode)
        .set_provisioned_throughput(units(table.provisioned_throughput())?)
        .set_on_demand_throughput(table.on_demand_throughput().cloned())
        .set_table_class(class.cloned())
        .set_deletion_protection_enabled(table.deletion_protection_enabled())
        .send()
        .await;
    created.context(|| format!("cannot create table `{name}` at the target"))?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use aws_sdk_dynamodb::types::{
        AttributeDefinition, GlobalSecondaryIndexDescription, KeyType, ProjectionType,
        ScalarAttributeType,
    };

    use super::*;

    fn table(partition: &str, kind: ScalarAttributeType, projected: &[&str]) -> TableDescription {
        let key = |name| KeySchemaElement::builder().attribute_name(name).key_type(KeyType::Hash);
        let attribute = AttributeDefinition::builder().attribute_name("p").attribute_type(kind);
        let names = projected.iter().map(|name| (*name).to_owned()).collect();
        let projection = Projection::builder().projection_type(ProjectionType::Include);
        let index = GlobalSecondaryIndexDescription::builder()
            .index_name("i")
            .key_schema(key("g").build().unwrap())
            .projection(projection.set_non_key_attributes(Some(names)).build());
        TableDescription::builder()
            .attribute_definitions(attribute.build().unwrap())
            .key_schema(key(partition).build().unwrap())
            .set_global_secondary_indexes((!projected.is_empty()).then(|| vec![index.build()]))
            .build()
    }

    #[test]
    fn a_different_key_type_or_index_is_named() {
        let (text, number) = (ScalarAttributeType::S, ScalarAttributeType::N);
        let one = table("p", text.clone(), &["a", "b"]);
        for (other, expected) in [
            (table("p", text.clone(), &["b", "a"]), None),
            (table("q", text.clone(), &["a", "b"]), Some("key p")),
            (table("p", number, &["a", "b"]), Some("attribute p N")),
            (table("p", text.clone(), &[]), Some("global index i with key g")),
            (table("p", text, &["a"]), Some("global index i with key g")),
        ] {
            let found = difference(&one, &other);
            let is_expected = match (&found, expected) {
                (Some(found), Some(expected)) => found.starts_with(expected),
                (found, expected) => found.is_none() && expected.is_none(),
            };
            assert!(is_expected, "{found:?} instead of {expected:?}");
        }
    }
}
