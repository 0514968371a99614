//! `weir model export`: reads existing tables into a model.
//!
//! It reads the description, the TTL setting, and one page of items of each table. It changes no
//! table.

use std::collections::BTreeSet;

use aws_sdk_dynamodb::Client;
use aws_sdk_dynamodb::types::{
    KeySchemaElement, Projection as SdkProjection, ProvisionedThroughputDescription, TableClass,
    TableClassSummary, TableDescription,
};
use clap::Args;
use design::data_model::{
    AttributeDefinition, BillingMode, Index, IndexWorkload, KeyAttributeType, KeyElement, KeyType,
    Projection, ProjectionType, StreamSpecification, Table, TableWorkload, Throughput,
};
use design::{DataModel, FILE_BYTES_MAX};
use model::Item;
use serde_json::{Map, Value};

use client::attribute::from_sdk_item;
use client::endpoint;
use client::exit::Exit;
use client::failure::{Context, Result, fatal};
use client::output::{counted, say, show};
use client::table_description::ttl_attribute;

/// Number of items of each table whose sizes are averaged: one page of a scan.
const SIZED_ITEMS: i32 = 200;
/// Maximum number of tables. All tables of a large account would not be a useful model.
const TABLES_MAX: usize = 100;

/// Arguments of `weir model export`.
#[derive(Clone, Debug, Args)]
#[command(
    after_help = "Examples:\n  weir model export > exported.json\n  weir model export orders shop --samples 0 > exported.json\n  weir model export --region eu-west-1 > exported.json\n\nThe model contains --samples items of each table, unmodified; fewer if the file would have more than 1,000,000 bytes. Remove confidential data before you share the file"
)]
pub(super) struct ExportArguments {
    /// The tables to export [default: all]
    tables: Vec<String>,
    /// The endpoint of the store [default: AWS_ENDPOINT_URL_DYNAMODB, or the running `weir up`]
    #[arg(long, value_name = "URL")]
    endpoint: Option<String>,
    /// The Region of tables on AWS
    #[arg(long, conflicts_with = "endpoint")]
    region: Option<String>,
    /// Number of items of each table to write into the model
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u16).range(0..=100))]
    samples: u16,
}

/// Writes the model of existing tables to standard output.
pub(super) async fn run(arguments: &ExportArguments) -> Result<Exit> {
    let of_region = |region: &String| format!("https://dynamodb.{region}.amazonaws.com");
    let flag = arguments.endpoint.clone().or_else(|| arguments.region.as_ref().map(of_region));
    let url = endpoint::find_to_read(flag.as_deref())?;
    let samples = usize::from(arguments.samples);
    let found = export(&endpoint::client(&url), &arguments.tables, samples).await?;
    show(&found.text);
    if found.left_out > 0 {
        say(&format!(
            "omitted {}, beginning with the largest: a model file has at most {FILE_BYTES_MAX} bytes; use fewer `--samples`",
            counted(found.left_out, "sampled item", "sampled items")
        ));
    }
    Ok(Exit::Done)
}

/// The model of existing tables.
pub(super) struct Exported {
    /// The text of the model file.
    pub(super) text: String,
    /// The number of sampled items that were omitted because the file would be too large.
    pub(super) left_out: usize,
}

/// Returns the model of the tables in `names`, or of all tables if `names` is empty.
pub(super) async fn export(client: &Client, names: &[String], samples: usize) -> Result<Exported> {
    let names = if names.is_empty() { all_tables(client).await? } else { names.to_vec() };
    let (mut model, mut left_out) = (DataModel::default(), 0);
    for name in &names {
        add(client, name, samples, &mut model).await?;
        // Only items that fit into a model file stay in memory.
        let bytes: usize = model.items.values().flatten().map(written_bytes).sum();
        left_out += remove_largest(&mut model, bytes.saturating_sub(FILE_BYTES_MAX));
    }
    loop {
        let text = serde_json::to_string_pretty(&model.to_json()).unwrap_or_default() + "\n";
        let removed = match text.len().saturating_sub(FILE_BYTES_MAX) {
            0 => return Ok(Exported { text, left_out }),
            over => remove_largest(&mut model, over),
        };
        left_out += removed;
        if removed == 0 {
            return Err(fatal!(
                "the model of {} has {} bytes even without items, more than {FILE_BYTES_MAX}; name only tables that belong together",
                counted(names.len(), "table", "tables"),
                text.len()
            ));
        }
    }
}

/// Returns the bytes of an item in a model file, without white space.
fn written_bytes(item: &Item) -> usize {
    model::json::item_to_string(item).len()
}

/// Removes the largest items until at least `bytes` bytes are removed. Returns the number of
/// removed items.
fn remove_largest(model: &mut DataModel, bytes: usize) -> usize {
    let mut largest: Vec<(usize, String, usize)> = Vec::new();
    for (table, items) in &model.items {
        let items = items.iter().enumerate();
        largest.extend(items.map(|(at, item)| (written_bytes(item), table.clone(), at)));
    }
    largest.sort_unstable_by(|one, other| other.cmp(one));
    let mut found = 0;
    let needed = largest.into_iter().take_while(|(size, ..)| {
        let is_needed = found < bytes;
        found += size;
        is_needed
    });
    let removed: BTreeSet<_> = needed.map(|(_, table, at)| (table, at)).collect();
    for (table, items) in &mut model.items {
        let all = std::mem::take(items).into_iter().enumerate();
        let kept = all.filter(|(at, _)| !removed.contains(&(table.clone(), *at)));
        *items = kept.map(|(_, item)| item).collect();
    }
    removed.len()
}

/// Returns the names of all tables.
async fn all_tables(client: &Client) -> Result<Vec<String>> {
    let mut names: Vec<String> = Vec::new();
    let mut after = None;
    loop {
        let page = client.list_tables().set_exclusive_start_table_name(after).send().await;
        let page = page.context(|| "cannot list the tables")?;
        names.extend_from_slice(page.table_names());
        after = page.last_evaluated_table_name;
        if names.len() > TABLES_MAX {
            return Err(fatal!(
                "there are more than {TABLES_MAX} tables; name the tables that belong together"
            ));
        }
        if after.is_none() {
            return Ok(names);
        }
    }
}

/// Adds a table with its items and sizes to the model.
async fn add(client: &Client, name: &str, samples: usize, model: &mut DataModel) -> Result<()> {
    let doing = || format!("cannot read table `{name}`");
    let described = client.describe_table().table_name(name).send().await.context(doing)?;
    let description = described
        .table
        .ok_or_else(|| fatal!("DescribeTable returned no description of table `{name}`"))?;
    let page = client.scan().table_name(name).limit(SIZED_ITEMS).send().await.context(doing)?;
    let items = page.items.unwrap_or_default().into_iter().map(from_sdk_item);
    let mut items = items.collect::<Result<Vec<Item>>>().context(doing)?;
    let sampled: usize = items.iter().map(Item::size).sum();
    let average = sampled.div_ceil(items.len().max(1)) as u64;
    let workload = TableWorkload {
        time_to_live: ttl_attribute(client, name).await?,
        ..workload(&description, average)
    };
    items.truncate(samples);
    model.tables.push(table(&description));
    model.items.insert(name.to_owned(), items);
    model.workload.insert(name.to_owned(), workload);
    Ok(())
}

/// Converts a count from DynamoDB, which is never negative.
fn count(number: Option<i64>) -> u64 {
    u64::try_from(number.unwrap_or(0)).unwrap_or(0)
}

/// Returns the counts and sizes of a table. `average` is the average size of the sampled items. It
/// is used if the table's description does not have the number of items yet.
fn workload(description: &TableDescription, average: u64) -> TableWorkload {
    let items = count(description.item_count);
    let bytes = match items {
        0 => average,
        items => count(description.table_size_bytes).div_ceil(items),
    };
    let indexes = description.global_secondary_indexes().iter().map(|index| {
        let items = Some(count(index.item_count));
        let workload = IndexWorkload { items, ..IndexWorkload::default() };
        (index.index_name().unwrap_or_default().to_owned(), workload)
    });
    TableWorkload {
        items: Some(items),
        item_bytes: Some(bytes),
        indexes: indexes.collect(),
        ..TableWorkload::default()
    }
}

/// Converts the description of a table into a table of a model.
fn table(description: &TableDescription) -> Table {
    let is_on_demand = description.billing_mode_summary().is_some_and(|summary| {
        summary.billing_mode() == Some(&aws_sdk_dynamodb::types::BillingMode::PayPerRequest)
    });
    let units = |throughput: Option<&ProvisionedThroughputDescription>| {
        let throughput = throughput.filter(|_| !is_on_demand)?;
        let units = |units: Option<i64>| u64::try_from(units.unwrap_or(0)).unwrap_or(0);
        Some(Throughput {
            read_capacity_units: units(throughput.read_capacity_units),
            write_capacity_units: units(throughput.write_capacity_units),
        })
    };
    let global = description.global_secondary_indexes().iter().map(|found| {
        let throughput = units(found.provisioned_throughput());
        index(found.index_name(), found.key_schema(), found.projection(), throughput)
    });
    let local = description
        .local_secondary_indexes()
        .iter()
        .map(|found| index(found.index_name(), found.key_schema(), found.projection(), None));
    let definitions = description.attribute_definitions().iter().map(|definition| {
        let kind = match definition.attribute_type().as_str() {
            "N" => KeyAttributeType::N,
            "B" => KeyAttributeType::B,
            _ => KeyAttributeType::S,
        };
        let attribute_name = definition.attribute_name().to_owned();
        AttributeDefinition { attribute_name, attribute_type: kind }
    });
    let stream = description.stream_specification().filter(|stream| stream.stream_enabled());
    Table {
        table_name: description.table_name().unwrap_or_default().to_owned(),
        attribute_definitions: definitions.collect(),
        key_schema: key(description.key_schema()),
        global_secondary_indexes: global.collect(),
        local_secondary_indexes: local.collect(),
        billing_mode: match is_on_demand {
            true => BillingMode::PayPerRequest,
            false => BillingMode::Provisioned,
        },
        provisioned_throughput: units(description.provisioned_throughput()),
        stream_specification: stream.map(|stream| StreamSpecification {
            stream_enabled: true,
            stream_view_type: stream.stream_view_type().map(|view| view.as_str().to_owned()),
        }),
        other: other(description),
    }
}

/// Returns the table class as a member of the model; an empty map for the class Standard.
fn other(description: &TableDescription) -> Map<String, Value> {
    let class = description.table_class_summary().and_then(TableClassSummary::table_class);
    let class = class.filter(|class| **class != TableClass::Standard);
    class.map(|class| ("TableClass".to_owned(), Value::from(class.as_str()))).into_iter().collect()
}

fn index(
    name: Option<&str>,
    elements: &[KeySchemaElement],
    projection: Option<&SdkProjection>,
    provisioned_throughput: Option<Throughput>,
) -> Index {
    use aws_sdk_dynamodb::types::ProjectionType as SdkType;
    let kind = match projection.and_then(SdkProjection::projection_type) {
        Some(SdkType::All) => ProjectionType::All,
        Some(SdkType::Include) => ProjectionType::Include,
        _ => ProjectionType::KeysOnly,
    };
    let names = projection.map(SdkProjection::non_key_attributes).unwrap_or_default();
    Index {
        index_name: name.unwrap_or_default().to_owned(),
        key_schema: key(elements),
        projection: Projection { projection_type: kind, non_key_attributes: names.to_vec() },
        provisioned_throughput,
    }
}

fn key(elements: &[KeySchemaElement]) -> Vec<KeyElement> {
    let element = |element: &KeySchemaElement| KeyElement {
        attribute_name: element.attribute_name().to_owned(),
        key_type: match element.key_type() == &aws_sdk_dynamodb::types::KeyType::Hash {
            true => KeyType::Hash,
            false => KeyType::Range,
        },
    };
    elements.iter().map(element).collect()
}
