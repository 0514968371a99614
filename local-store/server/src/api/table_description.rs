//! Writes `TableDescription`, DynamoDB's description of a table, to a response.
//!
//! Item counts and sizes are exact. In DynamoDB they are updated only every six hours.

use std::collections::BTreeMap;

use model::json;
use model::key::KeyAttributeType;
use partition::{
    Billing, IndexKind, IndexNumber, IndexProjection, OnDemandLimit, ReadError, SecondaryIndex,
    Statistics, Table, Units, View, read_index_statistics, read_statistics,
};

use super::answer::{
    begin_member, boolean_member, index_key_schema_member, key_schema_member, number_member,
    text_member, time_member,
};
use super::tables::table_arn;
use crate::store::{Store, Unavailable};

/// The status after `CreateTable`.
pub(crate) const CREATING: &str = "CREATING";
/// The status after `UpdateTable`.
pub(crate) const UPDATING: &str = "UPDATING";
/// The status after `DeleteTable`.
pub(crate) const DELETING: &str = "DELETING";

/// The warm throughput that a response contains.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum WarmThroughput {
    /// The values of the table and of every index, as in `DescribeTable`.
    All,
    /// The values that this request or an earlier request has set. If `table` is false, the table's
    /// own value is omitted.
    Requested { table: bool },
}

/// The status of a table in a response.
///
/// As in DynamoDB, the response to a change shows the change in progress (`CREATING`, `UPDATING`),
/// although this store has already completed it. A later `DescribeTable` returns `ACTIVE`.
#[derive(Clone, Copy)]
pub(crate) struct Status<'t> {
    pub(crate) text: &'t str,
    pub(crate) warm: WarmThroughput,
    /// The encryption key before a change of the encryption. The inner `None` means the default
    /// key.
    pub(crate) encrypted_before: Option<Option<&'t str>>,
    /// Two flags: whether this request has removed the limit of on-demand reads, and whether it has
    /// removed the limit of on-demand writes.
    pub(crate) ended_limits: (bool, bool),
}

impl<'t> Status<'t> {
    pub(crate) fn new(text: &'t str, warm: WarmThroughput) -> Self {
        Self { text, warm, encrypted_before: None, ended_limits: (false, false) }
    }
}

/// The sizes of a table and of its indexes.
#[derive(Default)]
pub(crate) struct Sizes {
    table: Statistics,
    indexes: Vec<(IndexNumber, Statistics)>,
}

impl Sizes {
    /// Reads the sizes of a table.
    pub(crate) async fn read(store: &Store, table: &Table) -> Result<Self, Unavailable> {
        let read = |view: &dyn View| {
            let numbers = table.indexes.iter().map(|index| index.number);
            let indexes =
                numbers.map(|number| Ok((number, read_index_statistics(view, table, number)?)));
            let indexes = indexes.collect::<Result<_, ReadError>>()?;
            Ok(Self { table: read_statistics(view, table)?, indexes })
        };
        store.read(read).await
    }

    fn of_index(&self, number: IndexNumber) -> Statistics {
        let known = self.indexes.iter().find(|(known, _)| *known == number);
        known.map(|(_, statistics)| *statistics).unwrap_or_default()
    }
}

/// Appends the member `name` with the description of a table.
pub(crate) fn description_member(
    out: &mut String,
    name: &str,
    store: &Store,
    table: &Table,
    sizes: &Sizes,
    status: Status<'_>,
) {
    begin_member(out, name);
    out.push('{');
    // The description of a table that is being deleted has no keys and attributes, as in DynamoDB.
    let has_shape = status.text != DELETING;
    if has_shape {
        attribute_definitions_member(out, table);
        key_schema_member(out, &table.key_schema);
        time_member(out, "CreationDateTime", table.created_at);
    }
    text_member(out, "TableName", &table.name);
    text_member(out, "TableStatus", status.text);
    billing_members(out, store, table);
    option_members(out, table, &status);
    encryption_member(out, table, &status);
    number_member(out, "TableSizeBytes", sizes.table.bytes);
    number_member(out, "ItemCount", sizes.table.items);
    text_member(out, "TableArn", &table_arn(store, &table.name).to_string());
    // Clients expect a UUID.
    text_member(out, "TableId", &format!("00000000-0000-4000-8000-{:012x}", table.id.0));
    let kinds = [
        ("LocalSecondaryIndexes", IndexKind::Local),
        ("GlobalSecondaryIndexes", IndexKind::Global),
    ];
    for (list, kind) in kinds.into_iter().filter(|_| has_shape) {
        indexes_member(out, list, store, (table, &status, sizes), table.indexes_of(kind));
    }
    stream_members(out, store, table);
    boolean_member(out, "DeletionProtectionEnabled", table.deletion_protection);
    out.push('}');
}

/// Appends a member named `list` with the descriptions of indexes; appends nothing if there are
/// none.
fn indexes_member<'t>(
    out: &mut String,
    list: &str,
    store: &Store,
    of: (&Table, &Status<'_>, &Sizes),
    indexes: impl Iterator<Item = &'t SecondaryIndex>,
) {
    let mut indexes = indexes.peekable();
    if indexes.peek().is_none() {
        return;
    }
    begin_member(out, list);
    let mut separator = "[{";
    for index in indexes {
        out.push_str(separator);
        separator = ",{";
        index_members(out, store, of, index);
        out.push('}');
    }
    out.push(']');
}

fn index_members(
    out: &mut String,
    store: &Store,
    (table, status, sizes): (&Table, &Status<'_>, &Sizes),
    index: &SecondaryIndex,
) {
    let definition = &index.definition;
    let statistics = sizes.of_index(index.number);
    text_member(out, "IndexName", &definition.name);
    index_key_schema_member(out, &definition.key_schema);
    projection_member(out, &definition.projection);
    if definition.kind == IndexKind::Global {
        let is_new = status.text == CREATING;
        let text = if is_new { CREATING } else { index.status_text() };
        text_member(out, "IndexStatus", text);
        if !is_new && index.is_being_built() {
            boolean_member(out, "Backfilling", true);
        }
        let units = definition.throughput.filter(|_| table.billing != Billing::OnDemand);
        throughput_member(out, units.unwrap_or_default());
        let options = table.options.indexes.get(&definition.name);
        let limit = options.map_or_else(OnDemandLimit::default, |o| o.on_demand_limit);
        on_demand_member(out, limit, (false, false));
        let is_requested = options.is_some_and(|options| options.warm != Units::default());
        if is_requested || status.warm == WarmThroughput::All {
            warm_member(out, table.options.warm_of_index(&definition.name, table.billing, units));
        }
    }
    number_member(out, "IndexSizeBytes", statistics.bytes);
    number_member(out, "ItemCount", statistics.items);
    let arn = format!("{}/index/{}", table_arn(store, &table.name), definition.name);
    text_member(out, "IndexArn", &arn);
}

fn projection_member(out: &mut String, projection: &IndexProjection) {
    begin_member(out, "Projection");
    out.push('{');
    match projection {
        IndexProjection::KeysOnly => text_member(out, "ProjectionType", "KEYS_ONLY"),
        IndexProjection::All => text_member(out, "ProjectionType", "ALL"),
        IndexProjection::Include(names) => {
            text_member(out, "ProjectionType", "INCLUDE");
            begin_member(out, "NonKeyAttributes");
            let mut separator = '[';
            let mut names: Vec<&String> = names.iter().collect();
            names.sort_unstable();
            for name in names {
                out.push(separator);
                separator = ',';
                json::write_string(out, name);
            }
            out.push(']');
        }
    }
    out.push('}');
}

fn throughput_member(out: &mut String, (read_units, write_units): (u64, u64)) {
    begin_member(out, "ProvisionedThroughput");
    out.push('{');
    number_member(out, "NumberOfDecreasesToday", 0);
    number_member(out, "ReadCapacityUnits", read_units);
    number_member(out, "WriteCapacityUnits", write_units);
    out.push('}');
}

/// Appends the on-demand limits. A removed limit is shown as -1, but only in the response to the request that
/// removed it.
fn on_demand_member(out: &mut String, limit: OnDemandLimit, (ends_read, ends_write): (bool, bool)) {
    let limits = [
        ("MaxReadRequestUnits", limit.read, ends_read),
        ("MaxWriteRequestUnits", limit.write, ends_write),
    ];
    if limits.iter().all(|(_, limit, ends)| limit.is_none() && !ends) {
        return;
    }
    begin_member(out, "OnDemandThroughput");
    out.push('{');
    for (name, limit, ends) in limits {
        match limit {
            Some(units) => number_member(out, name, units),
            None if ends => {
                begin_member(out, name);
                out.push_str("-1");
            }
            None => {}
        }
    }
    out.push('}');
}

fn warm_member(out: &mut String, warm: Units) {
    begin_member(out, "WarmThroughput");
    out.push('{');
    number_member(out, "ReadUnitsPerSecond", warm.read);
    number_member(out, "WriteUnitsPerSecond", warm.write);
    text_member(out, "Status", "ACTIVE");
    out.push('}');
}

/// Appends the attribute definitions in the order of their names, as DynamoDB does.
fn attribute_definitions_member(out: &mut String, table: &Table) {
    begin_member(out, "AttributeDefinitions");
    let of_indexes =
        table.indexes.iter().flat_map(|index| index.definition.key_schema.attributes());
    let types: BTreeMap<&str, KeyAttributeType> = table
        .key_schema
        .attributes()
        .chain(of_indexes)
        .map(|attribute| (attribute.name.as_str(), attribute.attribute_type))
        .collect();
    let mut separator = "[{";
    for (name, attribute_type) in types {
        out.push_str(separator);
        separator = ",{";
        text_member(out, "AttributeName", name);
        text_member(out, "AttributeType", attribute_type.descriptor());
        out.push('}');
    }
    out.push(']');
}

fn billing_members(out: &mut String, store: &Store, table: &Table) {
    let (read_units, write_units) = match table.billing {
        Billing::OnDemand => (0, 0),
        Billing::Provisioned { read_units, write_units } => (read_units, write_units),
    };
    let options = &table.options;
    begin_member(out, "ProvisionedThroughput");
    out.push('{');
    if let Some(time) = options.increased_at {
        time_member(out, "LastIncreaseDateTime", time);
    }
    if let Some(time) = options.decreased_at {
        time_member(out, "LastDecreaseDateTime", time);
    }
    let decreases = options.decreases_today(store.now());
    number_member(out, "NumberOfDecreasesToday", u64::from(decreases));
    number_member(out, "ReadCapacityUnits", read_units);
    number_member(out, "WriteCapacityUnits", write_units);
    out.push('}');
    // Like DynamoDB, omits the summary for a table that was never on-demand.
    if let Some(time) = options.on_demand_at {
        let mode =
            if table.billing == Billing::OnDemand { "PAY_PER_REQUEST" } else { "PROVISIONED" };
        // Since mid-2026, DynamoDB returns the billing mode in two members.
        for (summary, member) in [
            ("BillingModeSummary", "BillingMode"),
            ("TableThroughputModeSummary", "TableThroughputMode"),
        ] {
            begin_member(out, summary);
            out.push('{');
            text_member(out, member, mode);
            time_member(out, "LastUpdateToPayPerRequestDateTime", time);
            out.push('}');
        }
    }
}

fn option_members(out: &mut String, table: &Table, status: &Status<'_>) {
    let options = &table.options;
    on_demand_member(out, options.on_demand_limit, status.ended_limits);
    if !matches!(status.warm, WarmThroughput::Requested { table: false }) {
        warm_member(out, options.warm_of_table(table.billing));
    }
    if let Some(is_infrequent) = options.infrequent_access {
        begin_member(out, "TableClassSummary");
        out.push('{');
        let class = if is_infrequent { "STANDARD_INFREQUENT_ACCESS" } else { "STANDARD" };
        text_member(out, "TableClass", class);
        out.push('}');
    }
}

/// Appends the encryption. Like DynamoDB, shows the previous key in the response to a change of the
/// key.
fn encryption_member(out: &mut String, table: &Table, status: &Status<'_>) {
    let (text, key) = match status.encrypted_before {
        Some(before) => ("UPDATING", before),
        None => match table.options.encryption_key.as_deref() {
            Some(key) => ("ENABLED", Some(key)),
            None => return,
        },
    };
    begin_member(out, "SSEDescription");
    out.push('{');
    text_member(out, "Status", text);
    if let Some(key) = key {
        text_member(out, "SSEType", "KMS");
        text_member(out, "KMSMasterKeyArn", key);
    }
    out.push('}');
}

fn stream_members(out: &mut String, store: &Store, table: &Table) {
    if let Some(stream) = table.enabled_stream() {
        begin_member(out, "StreamSpecification");
        out.push('{');
        boolean_member(out, "StreamEnabled", true);
        text_member(out, "StreamViewType", stream.view_type.as_str());
        out.push('}');
    }
    if let Some(stream) = table.streams.last() {
        text_member(out, "LatestStreamLabel", &stream.label);
        let arn = super::streams::stream_arn(store, table, stream);
        text_member(out, "LatestStreamArn", &arn.to_string());
    }
}
