//! `ExecuteTransaction`: executes up to 100 PartiQL statements. They are either all reads, of one
//! snapshot, or all writes, which are atomic.

use std::collections::BTreeSet;
use std::sync::Arc;

use expression::partiql::{Select, Statement};
use model::key::KeyError;
use model::limits::{REQUEST_TOKEN_LENGTH_MAX, TRANSACTION_BYTES_MAX, TRANSACTION_OPERATIONS_MAX};
use model::{Item, PrimaryKey};
use partition::{CancellationReason, Command, Reply, Table, TableId, Transaction, Write};

use super::answer::{begin_member, item_member};
use super::cancellation::Reason;
use super::capacity::{Capacity, CapacityDetail, Consumption, TransactionUnits};
use super::constraints::{Constraints, RETURN_CONSUMED_CAPACITY};
use super::error::ApiError;
use super::metering;
use super::parameters::Parameters;
use super::statements::{PlanError, StatementParameters, StatementWrite, only_key_of};
use super::tables;
use super::transact_get_items::{admit_together, read_together};
use super::transact_write_items::{DUPLICATES, admit, check_payload, transacted};
use crate::store::Store;
use crate::store::transactions::WantedItem;

/// The error for a read without a key.
const KEY_REQUIRED: &str =
    "Select statements within ExecuteTransaction must specify the primary key in the where clause.";

pub(super) async fn execute_transaction(
    store: &Store,
    parameters: Parameters<'_>,
) -> Result<String, ApiError> {
    let members = parameters.structures("TransactStatements", "ParameterizedStatement")?;
    let token = parameters.string("ClientRequestToken")?;
    let capacity = parameters.string("ReturnConsumedCapacity")?;
    let statements: Vec<StatementParameters<'_>> = members
        .iter()
        .flatten()
        .map(|member| StatementParameters::read(*member))
        .collect::<Result<_, _>>()?;
    let mut constraints = Constraints::new();
    if let Some(token) = token {
        constraints.length("clientRequestToken", token, 1, REQUEST_TOKEN_LENGTH_MAX);
    }
    constraints.required("transactStatements", members.is_some());
    if members.is_some() {
        constraints.length_at_least("transactStatements", &"[]", statements.len(), 1);
        constraints.list_at_most(
            "transactStatements",
            statements.len(),
            TRANSACTION_OPERATIONS_MAX,
        );
    }
    for (number, statement) in (1..).zip(&statements) {
        statement.constrain(&mut constraints, format_args!("transactStatements.{number}.member."));
    }
    constraints.one_of("returnConsumedCapacity", capacity, RETURN_CONSUMED_CAPACITY);
    constraints.finish()?;

    let detail = CapacityDetail::from_parameter(capacity);
    let mut reads: Vec<Select> = Vec::new();
    let mut writes: Vec<(usize, Statement, bool)> = Vec::new();
    for (position, parameters) in statements.iter().enumerate() {
        let of_failure = parameters.returns_item_on_failure();
        // Errors of invalid parameters are returned without the position of the statement.
        parameters.check_values()?;
        match parameters.parse().map_err(|error| in_statement(position, error))? {
            Statement::Select(select) => reads.push(select),
            write => writes.push((position, write, of_failure)),
        }
    }
    match (reads.is_empty(), writes.is_empty()) {
        (false, false) => Err(ApiError::validation(
            "ExecuteTransaction API does not support both read and write operations in the same request.",
        )),
        (false, true) => answer_reads(store, &reads, detail).await,
        _ => answer_writes(store, writes, token, detail).await,
    }
}

/// Adds the position of the statement, counted from 0, to an error.
fn in_statement(position: usize, error: ApiError) -> ApiError {
    error.prefixed(&format!("Validation failed in TransactStatements[{position}]: "))
}

/// The planned statements of a transaction, and the reasons of the statements that are invalid.
struct Planned<T> {
    found: Vec<T>,
    /// The cancellation reason of each statement that was added; [`Reason::NONE`] for a valid
    /// statement.
    reasons: Vec<Reason>,
}

impl<T> Default for Planned<T> {
    fn default() -> Self {
        Self { found: Vec::new(), reasons: Vec::new() }
    }
}

impl<T> Planned<T> {
    /// Adds the next statement, or the reason if it is invalid.
    fn add(&mut self, position: usize, planned: Result<T, PlanError>) -> Result<(), ApiError> {
        self.reasons.push(match planned {
            Ok(found) => {
                self.found.push(found);
                Reason::NONE
            }
            Err(PlanError::Statement(error)) => return Err(in_statement(position, error)),
            Err(PlanError::Item(error)) if error.is_of_operation() => error.into_reason(),
            Err(PlanError::Item(error)) => return Err(error),
            Err(PlanError::KeyMissing) => Reason::invalid(KeyError::SchemaMismatch.to_string()),
        });
        Ok(())
    }

    /// Returns the planned statements if all are valid and no two statements concern the same item.
    fn finish(self, item: impl Fn(&T) -> (TableId, &PrimaryKey)) -> Result<Vec<T>, ApiError> {
        if self.reasons.iter().any(|reason| *reason != Reason::NONE) {
            return Err(ApiError::transaction_cancelled(self.reasons));
        }
        let mut seen = BTreeSet::new();
        if !self.found.iter().all(|found| seen.insert(item(found))) {
            return Err(ApiError::validation(DUPLICATES));
        }
        Ok(self.found)
    }
}

/// Returns the table and the key of the item to read.
fn plan_read(store: &Store, select: &Select) -> Result<(Arc<Table>, PrimaryKey), PlanError> {
    let table = tables::find_for_items(store, &select.table).map_err(PlanError::Item)?;
    if select.index.is_some() {
        let text = "Reads on indices are not supported within transactions.";
        return Err(ApiError::validation(text).into());
    }
    let key = only_key_of(&select.condition, &table.key_schema, KEY_REQUIRED)?;
    Ok((table, key))
}

async fn answer_reads(
    store: &Store,
    reads: &[Select],
    detail: CapacityDetail,
) -> Result<String, ApiError> {
    let mut planned = Planned::default();
    for (position, select) in reads.iter().enumerate() {
        let read = plan_read(store, select);
        planned.add(position, read)?;
    }
    let planned = planned.finish(|(table, key)| (table.id, key))?;
    let wanted: Vec<WantedItem<'_>> = planned.iter().map(|(table, key)| (table, key)).collect();
    let admitted = admit_together(store, &wanted)?;
    let all = read_together(store, &wanted).await?;
    let (mut bytes, mut consumed) = (0, Vec::with_capacity(reads.len()));
    let mut out = String::from("{");
    begin_member(&mut out, "Responses");
    out.push('[');
    for (position, (((select, (table, key)), found), admitted)) in
        reads.iter().zip(&planned).zip(all).zip(admitted).enumerate()
    {
        let size = found.as_ref().map_or(0, Item::size);
        bytes += size;
        let cost = Capacity::of_read(size, true);
        // A read in a transaction costs twice as much as a single read.
        metering::record_read(store, table, &key.partition, cost.plus(cost), admitted);
        consumed.push((select.table.as_str(), cost.into()));
        out.push_str(if position > 0 { ",{" } else { "{" });
        if let Some(item) = found {
            match &select.projection {
                Some(projection) => item_member(&mut out, "Item", &projection.apply(&item)),
                None => item_member(&mut out, "Item", &item),
            }
        }
        out.push('}');
    }
    if bytes > TRANSACTION_BYTES_MAX {
        return Err(ApiError::validation(
            "Collection size of the items in the transaction exceeds 4 MB",
        ));
    }
    out.push(']');
    detail.write_transaction_member(&mut out, TransactionUnits::Read, consumed);
    out.push('}');
    Ok(out)
}

async fn answer_writes(
    store: &Store,
    statements: Vec<(usize, Statement, bool)>,
    token: Option<&str>,
    detail: CapacityDetail,
) -> Result<String, ApiError> {
    let mut planned = Planned::default();
    for (position, statement, return_on_failure) in statements {
        let write = StatementWrite::of(store, statement, return_on_failure);
        if write.as_ref().is_ok_and(|write| write.context.has_returning()) {
            let text = "RETURNING clause is not supported in ExecuteTransaction.";
            return Err(in_statement(position, ApiError::validation(text)));
        }
        planned.add(position, write)?;
    }
    let planned = planned.finish(StatementWrite::item)?;
    let operations: Vec<Write> = planned.iter().map(|planned| planned.write.clone()).collect();
    check_payload(&operations)?;
    let token = token.map(|token| store.request_token(token));
    let subjects = planned.iter().map(|planned| (&planned.write, &*planned.context.table));
    let admitted = admit(store, token.as_deref(), subjects).await?;
    let transaction = Transaction { token, operations };
    let replies = store.submit(vec![Command::Transaction(Box::new(transaction))]).await?;
    let reply = replies.into_iter().next();
    if let Some(Reply::TransactionCancelled(reasons)) = reply {
        return Err(ApiError::transaction_cancelled(reasons_for_inserts(reasons, &planned)));
    }
    let (written, repeated) = transacted(reply)?;
    if !repeated {
        let now = store.now();
        for ((planned, written), admitted) in planned.iter().zip(&written).zip(admitted) {
            let key = &planned.write.key.partition;
            // A write in a transaction costs twice as much as a single write.
            metering::record_write(store, &planned.context.table, key, written, 2, admitted, now);
        }
    }
    let mut out = String::from("{");
    begin_member(&mut out, "Responses");
    out.push_str("[]");
    let units = if repeated { TransactionUnits::Read } else { TransactionUnits::Write };
    let consumed = planned.iter().zip(&written).map(|(planned, written)| {
        let consumption = match units {
            TransactionUnits::Read => Capacity::of_repeat(written).into(),
            TransactionUnits::Write => {
                Consumption::of_write(&planned.context.table, written, detail)
            }
        };
        (planned.context.table.name.as_str(), consumption)
    });
    detail.write_transaction_member(&mut out, units, consumed.collect());
    out.push('}');
    Ok(out)
}

/// Replaces the reason of each insert whose condition failed: the item already exists.
fn reasons_for_inserts(
    reasons: Vec<CancellationReason>,
    planned: &[StatementWrite],
) -> Vec<Reason> {
    let told = reasons.into_iter().zip(planned).map(|(reason, planned)| match reason {
        CancellationReason::ConditionFailed { .. } if planned.context.is_insert => {
            Reason::DuplicateItem
        }
        other => other.into(),
    });
    told.collect()
}
