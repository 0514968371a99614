//! Creates the tables of a template in any store.
//!
//! This module never removes or replaces a table or an index: an existing table with a different key is an
//! error. It sets billing mode, throughput and TTL as in the template, as CloudFormation does.

use std::collections::BTreeMap;

use aws_sdk_dynamodb::Client;
use aws_sdk_dynamodb::types::{
    BillingMode, KeySchemaElement, StreamSpecification, StreamViewType, TableDescription,
};

use super::table_state::{describe, wait_until_active};
use super::{billing, indexes, time_to_live};
use client::failure::{Context, Failure, Result, fatal};
use template::{IndexKind, Table};

/// Creates or changes all tables. Returns the ARN of each enabled stream, by the table's logical id.
///
/// # Errors
/// A table differs from the template and cannot be changed. The error names the table and the reason.
pub(crate) async fn carry_out(
    client: &Client,
    tables: &[Table],
) -> Result<BTreeMap<String, String>> {
    let mut streams = BTreeMap::new();
    for table in tables {
        let stream = carry_out_one(client, table).await.context(|| name_of(table))?;
        if let Some(arn) = stream {
            streams.insert(table.logical_id.clone(), arn);
        }
    }
    Ok(streams)
}

fn name_of(table: &Table) -> String {
    format!("table `{}` ({})", table.name, table.logical_id)
}

/// Finds all tables without changing anything. Returns the same as [`carry_out`].
///
/// # Errors
/// A table does not exist, or differs from the template.
pub(crate) async fn find(client: &Client, tables: &[Table]) -> Result<BTreeMap<String, String>> {
    let mut streams = BTreeMap::new();
    for table in tables {
        let doing = || name_of(table);
        let description = describe(client, table).await.context(doing)?.ok_or(
            "the table does not exist; deploy the template first, or set the table's name with --parameter",
        );
        let description = description.context(doing)?;
        check_key(table, &description).context(doing)?;
        if table.stream.is_none() {
            continue;
        }
        let is_on =
            description.stream_specification().is_some_and(|stream| stream.stream_enabled());
        let arn = description
            .latest_stream_arn()
            .filter(|_| is_on)
            .ok_or("the table's stream is not enabled")
            .context(doing)?;
        streams.insert(table.logical_id.clone(), arn.to_owned());
    }
    Ok(streams)
}

async fn carry_out_one(client: &Client, table: &Table) -> Result<Option<String>> {
    if describe(client, table).await?.is_none() {
        create(client, table).await?;
    }
    let mut description = wait_until_active(client, table).await?;
    check_key(table, &description)?;
    // Sets the billing mode before the indexes, because a new index has the billing mode of its table.
    if billing::carry_out(client, table, &description).await? {
        description = wait_until_active(client, table).await?;
    }
    indexes::carry_out(client, table, &description).await?;
    let stream = ensure_stream(client, table, &description).await?;
    time_to_live::carry_out(client, table).await?;
    Ok(stream)
}

async fn create(client: &Client, table: &Table) -> Result<()> {
    let mut request = client
        .create_table()
        .table_name(&table.name)
        .set_attribute_definitions(Some(indexes::definitions(table)?))
        .set_key_schema(Some(indexes::key_schema(
            std::slice::from_ref(&table.partition_key),
            table.sort_key.as_slice(),
        )?));
    for index in &table.indexes {
        request = match index.kind {
            IndexKind::Global => request.global_secondary_indexes(indexes::global(index)?),
            IndexKind::Local => request.local_secondary_indexes(indexes::local(index)?),
        };
    }
    request = match indexes::throughput(table.billing)? {
        None => request.billing_mode(BillingMode::PayPerRequest),
        Some(throughput) => {
            request.billing_mode(BillingMode::Provisioned).provisioned_throughput(throughput)
        }
    };
    if let Some(view) = table.stream {
        request = request.stream_specification(stream_specification(view.as_str())?);
    }
    request.send().await.map(drop).map_err(Failure::from)
}

fn stream_specification(view: &str) -> Result<StreamSpecification> {
    StreamSpecification::builder()
        .stream_enabled(true)
        .stream_view_type(StreamViewType::from(view))
        .build()
        .map_err(Failure::fatal)
}

fn check_key(table: &Table, description: &TableDescription) -> Result<()> {
    let wanted: Vec<&str> =
        std::iter::once(table.partition_key.as_str()).chain(table.sort_key.as_deref()).collect();
    let found: Vec<&str> =
        description.key_schema().iter().map(KeySchemaElement::attribute_name).collect();
    let instead = "rename the table in the template, or delete the data folder to start over";
    if wanted != found {
        return Err(fatal!(
            "the existing table has a different key: the template has ({}), the table has ({}); {instead}",
            wanted.join(", "),
            found.join(", ")
        ));
    }
    for attribute in &table.attributes {
        let (name, kind) = (&attribute.name, attribute.kind.as_str());
        let mut definitions = description.attribute_definitions().iter();
        let other = definitions.find(|definition| {
            definition.attribute_name() == name && definition.attribute_type().as_str() != kind
        });
        if let Some(other) = other {
            return Err(fatal!(
                "the key attribute `{name}` of the existing table or of its index has type {}, but the template has {kind}; {instead}",
                other.attribute_type().as_str()
            ));
        }
    }
    Ok(())
}

/// Enables the stream if it is disabled. An enabled stream with a different view type is an error,
/// because DynamoDB cannot change it.
async fn ensure_stream(
    client: &Client,
    table: &Table,
    description: &TableDescription,
) -> Result<Option<String>> {
    let Some(view) = table.stream else {
        return Ok(None);
    };
    let enabled = description.stream_specification().filter(|stream| stream.stream_enabled());
    if let Some(stream) = enabled {
        let found = stream.stream_view_type().map_or("", |view| view.as_str());
        if found != view.as_str() {
            return Err(fatal!(
                "the table's stream has the view type {found}, but the template has {}; a view type cannot be changed: disable the stream with `aws dynamodb update-table --table-name {} --stream-specification StreamEnabled=false` while `weir up` runs with the previous view type, then restart `weir up`; records that have not been read by then are lost with the old stream",
                view.as_str(),
                table.name
            ));
        }
        return Ok(description.latest_stream_arn().map(str::to_owned));
    }
    client
        .update_table()
        .table_name(&table.name)
        .stream_specification(stream_specification(view.as_str())?)
        .send()
        .await
        .map_err(Failure::from)?;
    let description = wait_until_active(client, table).await?;
    Ok(description.latest_stream_arn().map(str::to_owned))
}
