//! Throughput limits: admits a request before it is executed, and records the capacity that it
//! consumed.
//!
//! `capacity` computes the consumption, and the module `traffic` enforces the limits. The full cost of
//! a request is known only after its execution. A request is admitted if the limits allow the minimum
//! cost. The rest is charged afterwards, even if the remaining capacity becomes negative.

use model::{EpochMillis, Item, KeyValue, PrimaryKey, Token};
use partition::{
    Billing, IndexKind, ItemRange, SecondaryIndex, Table, Write, WriteAction, Written,
    global_index_tokens, read_item,
};

use super::cancellation::Reason;
use super::capacity::Capacity;
use super::error::ApiError;
use super::index_choice::Source;
use super::page_request::PageRequest;
use super::tables::table_arn;
use crate::store::Store;
use crate::traffic::{Access, Demand, Excess, Units};

/// The capacity that was taken before a request was executed, in half units.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Admitted {
    halves: u64,
}

/// Returns the cost of the smallest read, in half units.
fn least_read(is_consistent: bool) -> u64 {
    Capacity::of_read(0, is_consistent).halves()
}

impl Admitted {
    /// Returns the capacity that an operation takes from its table: the first of its demands.
    fn of(demands: &[Demand]) -> Self {
        Self { halves: demands.first().map_or(0, |demand| demand.halves) }
    }
}

fn throttled(store: &Store, table: &Table, excess: &Excess) -> ApiError {
    ApiError::throttled(excess, &table_arn(store, &table.name).to_string())
}

fn admit(store: &Store, table: &Table, demands: Vec<Demand>) -> Result<Admitted, ApiError> {
    if !store.traffic().is_enforced() {
        return Ok(Admitted::default());
    }
    let admitted = Admitted::of(&demands);
    match store.traffic().admit(&[(table, demands)], store.now()).into_iter().flatten().next() {
        Some(excess) => Err(throttled(store, table, &excess)),
        None => Ok(admitted),
    }
}

/// Returns the demands of the read of an item. `times` is the factor of the cost: 2 in a transaction,
/// and otherwise 1.
pub(crate) fn read_demands(key: &PrimaryKey, is_consistent: bool, times: u64) -> Vec<Demand> {
    let halves = least_read(is_consistent) * times;
    vec![Demand { index: None, access: Access::Read, token: Some(key.token()), halves }]
}

/// Admits the read of an item.
pub(crate) fn admit_read(
    store: &Store,
    table: &Table,
    key: &PrimaryKey,
    is_consistent: bool,
) -> Result<Admitted, ApiError> {
    admit(store, table, read_demands(key, is_consistent, 1))
}

/// Records the capacity that the read of an item consumed.
pub(crate) fn record_read(
    store: &Store,
    table: &Table,
    key: &KeyValue,
    capacity: Capacity,
    admitted: Admitted,
) {
    // The read is repeated with the data of other processes.
    if store.is_missing() {
        return;
    }
    let now = store.now();
    let units = Units { read_halves: capacity.halves(), write_halves: 0 };
    let token = Token::of(key);
    store.traffic().record(table, (key, token), units, now);
    let halves = capacity.halves().saturating_sub(admitted.halves);
    let demand = Demand { index: None, access: Access::Read, token: Some(token), halves };
    store.traffic().charge(table, demand, now);
}

/// Refuses a write if too many changes of the table's global indexes wait for an unavailable arc.
/// Otherwise, the waiting changes would fill the disk. DynamoDB also throttles such writes.
async fn check_indexes_follow(store: &Store, table: &Table, write: &Write) -> Result<(), ApiError> {
    if matches!(write.action, WriteAction::Check) || !store.blocks_writes(table, &write.key).await?
    {
        return Ok(());
    }
    let index = table.indexes_of(IndexKind::Global).find(|index| index.is_maintained());
    let excess = Excess {
        index: index.map(|index| index.definition.name.clone()),
        access: Access::Write,
        is_key_range: true,
        is_provisioned: table.billing != Billing::OnDemand,
    };
    Err(throttled(store, table, &excess))
}

/// Returns the demands of a write. `times` is the factor of the cost: 2 in a transaction, and
/// otherwise 1. As in DynamoDB, a global index without remaining capacity blocks writes that may
/// change it.
///
/// # Errors
/// The global indexes of the table cannot be updated.
pub(crate) async fn write_demands(
    store: &Store,
    table: &Table,
    write: &Write,
    times: u64,
) -> Result<Vec<Demand>, ApiError> {
    check_indexes_follow(store, table, write).await?;
    if !store.traffic().is_enforced() {
        return Ok(Vec::new());
    }
    let new = match &write.action {
        WriteAction::Put(encoded) => {
            Some(encoded.decode().map_err(|error| ApiError::defect(&error.to_string()))?)
        }
        WriteAction::Delete | WriteAction::Update(_) | WriteAction::Check => None,
    };
    let new = new.as_ref();
    let known = Capacity::of_write(0, new.map_or(0, Item::size));
    let halves = known.halves() * times;
    let token = Some(write.key.token());
    let mut demands = vec![Demand { index: None, access: Access::Write, token, halves }];
    if table.indexes_of(IndexKind::Global).next().is_some() {
        let old = store.read(|view| read_item(view, table, &write.key)).await?;
        for item in old.iter().chain(new) {
            for (index, token) in global_index_tokens(table, item) {
                // It is unknown whether the write changes the entry, so no capacity is taken for the entry.
                let demand = Demand {
                    index: Some(index),
                    access: Access::Write,
                    token: Some(token),
                    halves: 0,
                };
                demands.push(demand);
            }
        }
    }
    Ok(demands)
}

/// Admits a write outside a transaction.
pub(crate) async fn admit_write(
    store: &Store,
    table: &Table,
    write: &Write,
) -> Result<Admitted, ApiError> {
    admit(store, table, write_demands(store, table, write, 1).await?)
}

/// Admits the operations of a transaction as one request, and returns the admitted capacity of each.
///
/// # Errors
/// `TransactionCanceledException` with a reason for each operation, or an error of an operation that the client
/// did not cause. No capacity is taken.
pub(crate) fn admit_transaction<'t>(
    store: &Store,
    operations: impl Iterator<Item = (&'t Table, Result<Vec<Demand>, ApiError>)>,
) -> Result<Vec<Admitted>, ApiError> {
    let (mut demanded, mut reasons, mut is_refused) = (Vec::new(), Vec::new(), false);
    for (table, demands) in operations {
        if let Err(error) = &demands {
            if error.is_of_server() {
                return Err(error.clone());
            }
            is_refused = true;
        }
        reasons.push(
            demands.as_ref().map_or_else(|error| error.clone().into_reason(), |_| Reason::NONE),
        );
        demanded.push((table, demands.unwrap_or_default()));
    }
    if !is_refused {
        let excesses = store.traffic().admit(&demanded, store.now());
        if excesses.iter().all(Option::is_none) {
            return Ok(demanded.iter().map(|(_, demands)| Admitted::of(demands)).collect());
        }
        for ((table, _), (reason, excess)) in demanded.iter().zip(reasons.iter_mut().zip(excesses))
        {
            if let Some(excess) = excess {
                *reason = throttled(store, table, &excess).into_reason();
            }
        }
    }
    Err(ApiError::transaction_cancelled(reasons))
}

/// Records the capacity that the write of an item consumed at the time `now`, including changed
/// index entries. `times` is the factor of the item's cost: 2 in a transaction, and otherwise 1.
/// This factor does not apply to index entries.
pub(crate) fn record_write(
    store: &Store,
    table: &Table,
    key: &KeyValue,
    written: &Written,
    times: u64,
    admitted: Admitted,
    now: EpochMillis,
) {
    let mut halves = Capacity::of_write(written.old_bytes, written.new_bytes).halves() * times;
    for write in &written.index_writes {
        let consumed = Capacity::of_write(write.old_bytes, write.new_bytes).halves();
        match table.indexes.iter().find(|index| index.number == write.index) {
            Some(index) if index.definition.kind == IndexKind::Global => {
                let (index, token) = (Some(write.index), Some(write.token));
                let demand = Demand { index, access: Access::Write, token, halves: consumed };
                store.traffic().charge(table, demand, now);
            }
            // A local index shares the partitions of its table, so its capacity counts towards the
            // table.
            Some(_) => halves += consumed,
            None => {}
        }
    }
    let (token, units) = (Token::of(key), Units { read_halves: 0, write_halves: halves });
    store.traffic().record(table, (key, token), units, now);
    let halves = halves.saturating_sub(admitted.halves);
    let demand = Demand { index: None, access: Access::Write, token: Some(token), halves };
    store.traffic().charge(table, demand, now);
}

/// Records the capacity of a write whose condition failed. Such a write consumes as much capacity
/// as a successful write. The cost depends on the larger of the existing and the new item. Source:
/// DynamoDB developer guide, "Working with items: conditional writes".
pub(crate) fn record_refused_write(
    store: &Store,
    table: &Table,
    key: &KeyValue,
    bytes: usize,
    admitted: Admitted,
) {
    let written = Written { old_bytes: bytes, ..Written::default() };
    record_write(store, table, key, &written, 1, admitted, store.now());
}

/// Returns the index whose own capacity a page consumes. Only a global index has its own capacity.
fn own_index<'t>(source: Source<'t>) -> Option<&'t SecondaryIndex> {
    source.index.filter(|index| index.definition.kind == IndexKind::Global)
}

/// Returns the token of an item in the source of a page: the token of its partition key in the index
/// or in the table.
fn token_in(source: Source<'_>, item: &Item) -> Option<Token> {
    match source.index {
        None => source.table.key_schema.key_of_item(item).ok().map(|key| key.token()),
        Some(index) => {
            let schema = &index.definition.key_schema;
            schema.values_of_item(item).ok().map(|values| values.token())
        }
    }
}

/// Admits a page of a Query or a Scan.
pub(crate) fn admit_page(store: &Store, request: &PageRequest<'_>) -> Result<Admitted, ApiError> {
    if !store.traffic().is_enforced() {
        return Ok(Admitted::default());
    }
    let token = match (&request.range, &request.start_after) {
        (ItemRange::Collection { partition, .. }, _) => Token::of(partition),
        (ItemRange::Entries(entries), _) => Token::of_parts(&entries.partition),
        (ItemRange::Tokens(_), Some(place)) => place.index.token(),
        (ItemRange::Tokens(tokens), None) => tokens.first,
    };
    let halves = least_read(request.is_consistent);
    let index = own_index(request.source).map(|index| index.number);
    let demand = Demand { index, access: Access::Read, token: Some(token), halves };
    admit(store, request.source.table, vec![demand])
}

/// Records the read capacity that a page of a Query or Scan consumed. `last` is the last item of
/// the page, or `None` if the page is empty.
pub(crate) fn record_page(
    store: &Store,
    request: &PageRequest<'_>,
    last: Option<&Item>,
    capacity: Capacity,
    admitted: Admitted,
) {
    // The page is read again with the data of other processes.
    if store.is_missing() {
        return;
    }
    let (source, range) = (request.source, &request.range);
    let (table, now) = (source.table, store.now());
    let reached = match range {
        ItemRange::Collection { partition, .. } => Token::of(partition),
        ItemRange::Entries(entries) => Token::of_parts(&entries.partition),
        ItemRange::Tokens(tokens) => {
            last.and_then(|item| token_in(source, item)).unwrap_or(tokens.first)
        }
    };
    let index = own_index(source).map(|index| index.number);
    match range {
        _ if index.is_some() => {}
        ItemRange::Collection { partition, .. } => {
            let units = Units { read_halves: capacity.halves(), write_halves: 0 };
            store.traffic().record(table, (partition, reached), units, now);
        }
        // A local index shares the partitions and the partition key of its table.
        ItemRange::Entries(entries) => {
            let units = Units { read_halves: capacity.halves(), write_halves: 0 };
            if let Some(partition) = entries.partition.first() {
                let place = (partition, Token::of(partition));
                store.traffic().record(table, place, units, now);
            }
        }
        ItemRange::Tokens(tokens) => {
            let span = (tokens.first.min(reached), reached);
            store.traffic().record_scan(table, span, capacity.halves(), now);
        }
    }
    // The cost of the entire page is charged to the partition of its last item. If the remaining
    // capacity of this partition becomes negative, the next page is throttled.
    let halves = capacity.halves().saturating_sub(admitted.halves);
    let demand = Demand { index, access: Access::Read, token: Some(reached), halves };
    store.traffic().charge(table, demand, now);
}
