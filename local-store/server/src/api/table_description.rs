//! `TableDescription`: what the service tells about a table.
//!
//! Counts and sizes are exact here; the service updates its own every six hours.

use partition::{Billing, Statistics, Table};

use super::answer::{
    begin_member, boolean_member, key_schema_member, number_member, text_member, time_member,
};
use super::tables::table_arn;
use crate::store::Store;

/// Appends the member `name` with the description of a table.
pub(crate) fn description_member(
    out: &mut String,
    name: &str,
    store: &Store,
    table: &Table,
    statistics: Statistics,
    status: &str,
) {
    begin_member(out, name);
    out.push('{');
    attribute_definitions_member(out, table);
    text_member(out, "TableName", &table.name);
    key_schema_member(out, &table.key_schema);
    text_member(out, "TableStatus", status);
    time_member(out, "CreationDateTime", table.created_at);
    billing_members(out, table);
    number_member(out, "TableSizeBytes", statistics.bytes);
    number_member(out, "ItemCount", statistics.items);
    text_member(out, "TableArn", &table_arn(store, &table.name).to_string());
    // In the form of a UUID, because that is what clients expect.
    text_member(out, "TableId", &format!("00000000-0000-4000-8000-{:012x}", table.id.0));
    stream_members(out, store, table);
    boolean_member(out, "DeletionProtectionEnabled", table.deletion_protection);
    out.push('}');
}

fn attribute_definitions_member(out: &mut String, table: &Table) {
    begin_member(out, "AttributeDefinitions");
    out.push('[');
    for (position, attribute) in table.key_schema.attributes().enumerate() {
        out.push_str(if position > 0 { ",{" } else { "{" });
        text_member(out, "AttributeName", &attribute.name);
        text_member(out, "AttributeType", attribute.attribute_type.descriptor());
        out.push('}');
    }
    out.push(']');
}

fn billing_members(out: &mut String, table: &Table) {
    let (read_units, write_units) = match table.billing {
        Billing::OnDemand => (0, 0),
        Billing::Provisioned { read_units, write_units } => (read_units, write_units),
    };
    begin_member(out, "ProvisionedThroughput");
    out.push('{');
    number_member(out, "NumberOfDecreasesToday", 0);
    number_member(out, "ReadCapacityUnits", read_units);
    number_member(out, "WriteCapacityUnits", write_units);
    out.push('}');
    if table.billing == Billing::OnDemand {
        begin_member(out, "BillingModeSummary");
        out.push('{');
        text_member(out, "BillingMode", "PAY_PER_REQUEST");
        // Only the creation is recorded; the table became on-demand then or later.
        time_member(out, "LastUpdateToPayPerRequestDateTime", table.created_at);
        out.push('}');
    }
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
