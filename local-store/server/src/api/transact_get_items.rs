//! `TransactGetItems`: reads up to 100 items of one snapshot.
//!
//! With one arc, all reads use one view, which contains a transaction completely or not at all. With
//! several arcs, a running transaction can conflict with the request; see `store::transactions`.

use std::collections::BTreeSet;
use std::sync::Arc;

use expression::Projection;
use model::limits::TRANSACTION_BYTES_MAX;
use model::{Item, PrimaryKey};
use partition::Table;

use super::answer::item_member;
use super::cancellation::Reason;
use super::capacity::{Capacity, CapacityDetail, Consumption, TransactionUnits};
use super::constraints::{Constraints, RETURN_CONSUMED_CAPACITY};
use super::error::ApiError;
use super::expressions::{self, Substitutions};
use super::metering::{self, Admitted};
use super::parameters::Parameters;
use super::tables;
use super::transact_write_items::{
    DUPLICATES, KeyProblem, constrain_operations, constrain_table_name,
};
use super::wording::Checked;
use crate::store::Store;
use crate::store::long_reads::SHORT_READ_BYTES;
use crate::store::transactions::WantedItem;

/// One read, as it was sent.
struct Get<'j> {
    table: Option<&'j str>,
    key: Option<Checked<Item>>,
    projection: Option<&'j str>,
    substitutions: Substitutions,
}

/// One planned read.
struct Read<'j> {
    name: &'j str,
    table: Arc<Table>,
    key: PrimaryKey,
    projection: Option<Projection>,
}

pub(super) async fn transact_get_items(
    store: &Store,
    parameters: Parameters<'_>,
) -> Result<String, ApiError> {
    let operations = parameters.structures("TransactItems", "TransactGetItem")?;
    let capacity_detail = parameters.string("ReturnConsumedCapacity")?;
    let gets: Vec<Option<Get<'_>>> =
        operations.iter().flatten().map(|member| read_get(*member)).collect::<Result<_, _>>()?;

    let mut constraints = Constraints::new();
    constraints.one_of("returnConsumedCapacity", capacity_detail, RETURN_CONSUMED_CAPACITY);
    constrain_operations(&mut constraints, operations.as_ref().map(Vec::len), "TransactGetItem");
    for (number, get) in (1..).zip(&gets) {
        let at = format!("transactItems.{number}.member.get");
        constraints.required(&at, get.is_some());
        if let Some(get) = get {
            constrain_table_name(&mut constraints, &at, get.table);
            constraints.required(format_args!("{at}.key"), get.key.is_some());
        }
    }
    constraints.finish()?;

    let reads = plan(store, gets.into_iter().flatten().collect())?;
    let wanted: Vec<WantedItem<'_>> = reads.iter().map(|read| (&read.table, &read.key)).collect();
    let admitted = admit_together(store, &wanted)?;
    let found = read_together(store, &wanted).await?;
    let bytes: usize = found.iter().flatten().map(Item::size).sum();
    let mut consumed = Vec::with_capacity(reads.len());
    let write = || write_responses(store, &reads, found, admitted, &mut consumed);
    let is_short = bytes <= SHORT_READ_BYTES;
    let mut out = if is_short { write() } else { store.long_reads().run(write).await };
    if bytes > TRANSACTION_BYTES_MAX {
        return Err(ApiError::validation(
            "Collection size of the items in the transaction exceeds 4 MB",
        ));
    }
    out.push(']');
    CapacityDetail::from_parameter(capacity_detail).write_transaction_member(
        &mut out,
        TransactionUnits::Read,
        consumed,
    );
    out.push('}');
    Ok(out)
}

/// Writes the items to the response and records the consumed capacity.
fn write_responses<'j>(
    store: &Store,
    reads: &[Read<'j>],
    found: Vec<Option<Item>>,
    admitted: Vec<Admitted>,
    consumed: &mut Vec<(&'j str, Consumption)>,
) -> String {
    let mut out = String::from("{\"Responses\":[");
    for (position, ((read, found), admitted)) in reads.iter().zip(found).zip(admitted).enumerate() {
        out.push_str(if position > 0 { ",{" } else { "{" });
        let size = found.as_ref().map_or(0, Item::size);
        let capacity = Capacity::of_read(size, true);
        let twice = capacity.plus(capacity);
        metering::record_read(store, &read.table, &read.key.partition, twice, admitted);
        consumed.push((read.name, capacity.into()));
        let shown = found.map(|item| match &read.projection {
            Some(projection) => projection.apply(&item),
            None => item,
        });
        // Unlike in `GetItem`, the response has no `Item` if the item has none of the requested attributes.
        if let Some(item) = shown.filter(|item| !item.is_empty()) {
            item_member(&mut out, "Item", &item);
        }
        out.push('}');
    }
    out
}

/// Admits the reads of a transaction, which cost twice as much as reads outside a transaction. If
/// one read exceeds the throughput of its table, the entire transaction is cancelled.
pub(crate) fn admit_together(
    store: &Store,
    wanted: &[WantedItem<'_>],
) -> Result<Vec<Admitted>, ApiError> {
    let reads = wanted.iter();
    let reads = reads.map(|(table, key)| (&***table, Ok(metering::read_demands(key, true, 2))));
    metering::admit_transaction(store, reads)
}

/// Reads all items from one snapshot.
pub(crate) async fn read_together(
    store: &Store,
    wanted: &[WantedItem<'_>],
) -> Result<Vec<Option<Item>>, ApiError> {
    store.read_together(wanted).await?.map_err(ApiError::transaction_cancelled)
}

fn read_get(member: Parameters<'_>) -> Result<Option<Get<'_>>, ApiError> {
    let Some(parameters) = member.structure("Get")? else {
        return Ok(None);
    };
    Ok(Some(Get {
        table: parameters.string("TableName")?,
        key: parameters.item("Key")?,
        projection: parameters.string("ProjectionExpression")?,
        substitutions: Substitutions::of_names(parameters.strings("ExpressionAttributeNames")?),
    }))
}

/// Checks the expressions, then the tables, and then the keys.
fn plan<'j>(store: &Store, gets: Vec<Get<'j>>) -> Result<Vec<Read<'j>>, ApiError> {
    let mut parsed = Vec::with_capacity(gets.len());
    for get in gets {
        let mut placeholders = get.substitutions.into_placeholders()?;
        let projection = expressions::projection(get.projection, &mut placeholders)?;
        // Unlike in `GetItem`, DynamoDB accepts `ExpressionAttributeNames` without an expression.
        if projection.is_some() {
            placeholders.check_all_used()?;
        }
        let key = get.key.transpose().map_err(|wrong| wrong.older())?.unwrap_or_default();
        parsed.push((get.table.unwrap_or_default(), key, projection));
    }
    let (mut reads, mut reasons) = (Vec::with_capacity(parsed.len()), Vec::new());
    let mut seen = BTreeSet::new();
    for (name, key, projection) in parsed {
        let table = tables::find_for_items(store, name)?;
        match table.key_schema.key_of_parameter(&key) {
            Ok(key) => {
                if !seen.insert((table.id, key.clone())) {
                    return Err(ApiError::validation(DUPLICATES));
                }
                reasons.push(Reason::NONE);
                reads.push(Read { name, table, key, projection });
            }
            Err(error) => match KeyProblem::from(error) {
                KeyProblem::Empty(text) => return Err(ApiError::validation(text)),
                KeyProblem::Wrong(text) => reasons.push(Reason::invalid(text)),
            },
        }
    }
    if reads.len() < reasons.len() {
        return Err(ApiError::transaction_cancelled(reasons));
    }
    Ok(reads)
}
