//! `BatchWriteItem`: executes up to 25 puts and deletes in several tables.
//!
//! All requests for one arc are in one log entry, so they need only one sync of the disk. Requests of
//! a batch have no conditions. A request is returned as unprocessed if a transaction has locked the
//! item, or if the request exceeds the throughput of its table.

use std::collections::BTreeSet;
use std::sync::Arc;

use model::key::KeyError;
use model::limits::BATCH_WRITE_ITEMS_MAX;
use model::{EncodedItem, Item, KeyValue, PrimaryKey};
use partition::{Command, Reply, Table, TableId, Write, WriteAction};

use super::answer::{begin_member, item_member};
use super::batch;
use super::batch_quotation::{self, QuotedRequest};
use super::capacity::{CapacityDetail, Consumption};
use super::constraints::{Constraints, RETURN_CONSUMED_CAPACITY, RETURN_ITEM_COLLECTION_METRICS};
use super::error::ApiError;
use super::item_collections;
use super::item_write::written;
use super::metering::{self, Admitted};
use super::parameters::{self, Parameters};
use super::put_item::{check_indexes, check_size, damaged};
use super::tables;
use super::wording::Checked;
use crate::store::Store;

/// DynamoDB's name for one request of a batch.
const KIND: &str = "WriteRequest";

/// One request of a batch, as it was sent.
enum Request {
    Put(Checked<EncodedItem>),
    Delete(Checked<Item>),
    /// A request that is both a put and a delete, or neither, with its missing required members.
    Invalid(Missing),
}

/// Flags: whether the put, and whether the delete, is present without its required member.
#[derive(Clone, Copy)]
struct Missing {
    key: bool,
    item: bool,
}

/// The requests for one table.
struct TableWrites<'j> {
    name: &'j str,
    requests: Vec<Request>,
}

/// A batch that can be submitted.
struct Plan<'j> {
    commands: Vec<Command>,
    /// The tables in order of the request: the name as it was sent, and the number of commands for
    /// the table.
    tables: Vec<(&'j str, Arc<Table>, usize)>,
}

pub(super) async fn batch_write_item(
    store: &Store,
    parameters: Parameters<'_>,
) -> Result<String, ApiError> {
    let items = request_items(parameters)?;
    let writes = items.map(read_tables).transpose()?.unwrap_or_default();
    let capacity_detail = parameters.string("ReturnConsumedCapacity")?;
    let metrics = parameters.string("ReturnItemCollectionMetrics")?;

    let mut constraints = Constraints::new();
    constraints.one_of("returnConsumedCapacity", capacity_detail, RETURN_CONSUMED_CAPACITY);
    constraints.one_of("returnItemCollectionMetrics", metrics, RETURN_ITEM_COLLECTION_METRICS);
    // DynamoDB reports failures of the map only if the other parameters have no failure.
    if constraints.is_empty() {
        constraints.required("requestItems", items.is_some());
        constrain_map(&mut constraints, &writes);
    }
    constraints.finish()?;
    if writes.is_empty() {
        let text = "The requestItems parameter is required for BatchWriteItem";
        return Err(ApiError::validation(text));
    }
    if writes.iter().map(|write| write.requests.len()).sum::<usize>() > BATCH_WRITE_ITEMS_MAX {
        return Err(ApiError::validation("Too many items requested for the BatchWriteItem call"));
    }

    let plan = plan(store, writes)?;
    let Admission { commands, tables, throttled: mut left } = admit(store, plan).await?;
    let mut partitions: Vec<KeyValue> = Vec::with_capacity(commands.len());
    partitions.extend(commands.iter().filter_map(partition_key));
    let mut written_keys = partitions.iter();
    let mut replies = match commands.is_empty() {
        true => Vec::new(),
        false => store.submit(commands).await?,
    }
    .into_iter();
    let detail = CapacityDetail::from_parameter(capacity_detail);
    let now = store.now();
    let mut capacities = Vec::with_capacity(tables.len());
    let mut done = Vec::new();
    for (name, table, admitted) in tables {
        let mut consumption = Consumption::default();
        for (number, admitted) in admitted {
            let (reply, key) = (replies.next(), written_keys.next());
            if reply == Some(Reply::Conflict) {
                left.insert(number);
                continue;
            }
            let written = written(reply)?;
            if let Some(key) = key {
                metering::record_write(store, &table, key, &written, 1, admitted, now);
            }
            consumption = consumption.plus(Consumption::of_write(&table, &written, detail));
            if item_collections::are_asked_for(metrics) {
                done.push((name, Arc::clone(&table), written));
            }
        }
        capacities.push((name, consumption));
    }
    let mut out = String::from("{\"UnprocessedItems\":{");
    if let Some(items) = items.filter(|_| !left.is_empty()) {
        write_unprocessed(&mut out, read_tables(items)?, &left)?;
    }
    out.push('}');
    detail.write_list_member(&mut out, &capacities);
    let done = done.iter().map(|(name, table, written)| (*name, &**table, written));
    item_collections::write_map_member(&mut out, done);
    out.push('}');
    Ok(out)
}

/// The name of a table as it was sent, the table, and its admitted commands. Each command has its
/// position in the batch, counted from 1, and its admitted capacity.
type AdmittedWrites<'j> = (&'j str, Arc<Table>, Vec<(usize, Admitted)>);

/// The commands of a batch that the throughput limits admit.
struct Admission<'j> {
    commands: Vec<Command>,
    tables: Vec<AdmittedWrites<'j>>,
    /// The positions of the commands that exceed the throughput of their table.
    throttled: BTreeSet<usize>,
}

/// Removes the commands that exceed the throughput of their table. Rejects the batch if all
/// commands exceed the throughput.
async fn admit<'j>(store: &Store, plan: Plan<'j>) -> Result<Admission<'j>, ApiError> {
    let mut admission = Admission {
        commands: Vec::with_capacity(plan.commands.len()),
        tables: Vec::with_capacity(plan.tables.len()),
        throttled: BTreeSet::new(),
    };
    let mut refusal = None;
    let mut commands = (1..).zip(plan.commands);
    for (name, table, count) in plan.tables {
        let mut admitted = Vec::with_capacity(count);
        for (number, command) in commands.by_ref().take(count) {
            let Command::Write(write) = &command else { continue };
            match metering::admit_write(store, &table, write).await {
                Ok(taken) => {
                    admitted.push((number, taken));
                    admission.commands.push(command);
                }
                Err(error) => {
                    refusal = Some(error);
                    admission.throttled.insert(number);
                }
            }
        }
        admission.tables.push((name, table, admitted));
    }
    match refusal {
        Some(error) if admission.commands.is_empty() => Err(error),
        _ => Ok(admission),
    }
}

/// Writes the requests at these positions, counted from 1, as unprocessed: they exceed the
/// throughput of their table, or a running transaction has locked their items.
fn write_unprocessed(
    out: &mut String,
    tables: Vec<TableWrites<'_>>,
    left: &BTreeSet<usize>,
) -> Result<(), ApiError> {
    let mut number = 0;
    for TableWrites { name, requests } in tables {
        let mut separator = '[';
        for request in requests {
            number += 1;
            if !left.contains(&number) {
                continue;
            }
            let (kind, member, item) = match request {
                Request::Put(Ok(item)) => ("PutRequest", "Item", item.decode().map_err(damaged)?),
                Request::Delete(Ok(key)) => ("DeleteRequest", "Key", key),
                _ => continue,
            };
            if separator == '[' {
                begin_member(out, name);
            }
            out.push(separator);
            separator = ',';
            out.push('{');
            begin_member(out, kind);
            out.push('{');
            item_member(out, member, &item);
            out.push_str("}}");
        }
        if separator == ',' {
            out.push(']');
        }
    }
    Ok(())
}

fn partition_key(command: &Command) -> Option<KeyValue> {
    match command {
        Command::Write(write) => Some(write.key.partition.clone()),
        _ => None,
    }
}

fn request_items(parameters: Parameters<'_>) -> Result<Option<Parameters<'_>>, ApiError> {
    let lists = format_args!("java.util.List<{}>", parameters::Class(KIND));
    parameters.map_of("RequestItems", lists)
}

fn read_tables(items: Parameters<'_>) -> Result<Vec<TableWrites<'_>>, ApiError> {
    batch::check_distinct(items)?;
    let mut writes = Vec::new();
    for (name, json) in items.map() {
        let elements = parameters::elements(json)?;
        let mut requests = Vec::with_capacity(elements.len().min(BATCH_WRITE_ITEMS_MAX));
        for json in elements {
            requests.push(read_request(parameters::member(json, KIND)?)?);
        }
        writes.push(TableWrites { name, requests });
    }
    Ok(writes)
}

fn read_request(request: Parameters<'_>) -> Result<Request, ApiError> {
    let put = request.structure("PutRequest")?.map(|put| put.encoded_item("Item")).transpose()?;
    let delete =
        request.structure("DeleteRequest")?.map(|delete| delete.item("Key")).transpose()?;
    Ok(match (put, delete) {
        (Some(Some(item)), None) => Request::Put(item),
        (None, Some(Some(key))) => Request::Delete(key),
        (put, delete) => Request::Invalid(Missing {
            key: matches!(delete, Some(None)),
            item: matches!(put, Some(None)),
        }),
    })
}

/// Adds the failures of the map of tables: an invalid name, a number of requests for a table that is
/// not from 1 to 25, or a request that is not exactly one put or delete.
fn constrain_map(constraints: &mut Constraints, writes: &[TableWrites<'_>]) {
    let names = writes.iter().map(|write| write.name);
    batch::constrain_names(constraints, names, || shown(writes));
    for TableWrites { name, requests } in writes {
        for (number, request) in (1..).zip(requests) {
            let Request::Invalid(missing) = request else { continue };
            let at = format_args!("requestItems.{name}.member.{number}.member");
            constraints.required(format_args!("{at}.deleteRequest.key"), !missing.key);
            constraints.required(format_args!("{at}.putRequest.item"), !missing.item);
        }
    }
    let is_wrong = |count: usize| count == 0 || count > BATCH_WRITE_ITEMS_MAX;
    if writes.iter().any(|write| is_wrong(write.requests.len())) {
        constraints.other(
            "requestItems",
            &shown(writes),
            &format!("Map value must satisfy constraint: [Member must have length less than or equal to {BATCH_WRITE_ITEMS_MAX}, Member must have length greater than or equal to 1]"),
        );
    }
}

/// Returns the map in the form in which DynamoDB's errors quote it.
fn shown(writes: &[TableWrites<'_>]) -> String {
    let request = |request: &Request| match request {
        Request::Put(item) => {
            QuotedRequest::Put(item.as_ref().ok().and_then(|item| item.decode().ok()))
        }
        Request::Delete(key) => QuotedRequest::Delete(key.as_ref().ok().cloned()),
        Request::Invalid(_) => QuotedRequest::Invalid,
    };
    batch_quotation::writes_of(
        writes.iter().map(|write| (write.name, write.requests.iter().map(request))),
    )
}

/// Checks the values, then the tables, and then the keys. One invalid request fails the entire batch.
fn plan<'j>(store: &Store, writes: Vec<TableWrites<'j>>) -> Result<Plan<'j>, ApiError> {
    writes.iter().flat_map(|table| &table.requests).try_for_each(check_values)?;
    let count = writes.iter().map(|table| table.requests.len()).sum();
    let mut plan = Plan { commands: Vec::with_capacity(count), tables: Vec::new() };
    for TableWrites { name, requests } in writes {
        let table = tables::find_for_items(store, name)?;
        plan.tables.push((name, Arc::clone(&table), requests.len()));
        for request in requests {
            let (key, action) = key_and_action(&table, request)?;
            // There are at most 25 commands, so a linear search without copies is enough.
            if plan.commands.iter().any(|command| is_write_of(command, table.id, &key)) {
                return Err(ApiError::validation(batch::DUPLICATES));
            }
            plan.commands.push(Command::Write(Box::new(Write {
                table: table.id,
                key,
                action,
                condition: None,
                return_old: false,
                return_new: false,
                return_on_failure: false,
            })));
        }
    }
    Ok(plan)
}

fn is_write_of(command: &Command, table: TableId, key: &PrimaryKey) -> bool {
    matches!(command, Command::Write(write) if write.table == table && write.key == *key)
}

fn check_values(request: &Request) -> Result<(), ApiError> {
    match request {
        Request::Put(Ok(item)) => check_size(item.size().map_err(damaged)?),
        Request::Put(Err(wrong)) | Request::Delete(Err(wrong)) => Err(wrong.older()),
        Request::Delete(Ok(_)) => Ok(()),
        Request::Invalid(_) => Err(ApiError::validation(
            "Supplied AttributeValue has more than one datatypes set, must contain exactly one of the supported datatypes",
        )),
    }
}

fn key_and_action(table: &Table, request: Request) -> Result<(PrimaryKey, WriteAction), ApiError> {
    match request {
        Request::Put(Ok(item)) => {
            let key = item.primary_key(&table.key_schema).map_err(damaged)?;
            let key = key.map_err(|error| match error {
                // For the items of a batch, DynamoDB uses the error message that other operations use
                // for keys.
                KeyError::Missing(_) | KeyError::TypeMismatch { .. } => KeyError::SchemaMismatch,
                other => other,
            })?;
            check_indexes(table, &item)?;
            Ok((key, WriteAction::Put(item)))
        }
        Request::Delete(Ok(key)) => {
            Ok((table.key_schema.key_of_parameter(&key)?, WriteAction::Delete))
        }
        Request::Put(Err(wrong)) | Request::Delete(Err(wrong)) => Err(wrong.older()),
        Request::Invalid(_) => Err(ApiError::defect("an invalid batch request passed validation")),
    }
}
