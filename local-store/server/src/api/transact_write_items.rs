//! `TransactWriteItems`: executes up to 100 operations on different items atomically.
//!
//! A transaction is one command in the log. Its outcome is decided when the command is applied. An
//! error that can be found without the table fails the request with a `ValidationException`. An
//! invalid key or a failed condition cancels the transaction with a reason for each operation.

use std::collections::BTreeSet;
use std::sync::Arc;

use expression::{Condition, Update};
use model::key::KeyError;
use model::limits::{REQUEST_TOKEN_LENGTH_MAX, TRANSACTION_BYTES_MAX, TRANSACTION_OPERATIONS_MAX};
use model::{Item, KeyValue, PrimaryKey};
use partition::{
    Command, Reply, TRANSACTION_TOO_LARGE, Table, Transaction, Write, WriteAction, Written,
};
use serde::Serialize;

use super::cancellation::Reason;
use super::capacity::{Capacity, CapacityDetail, Consumption, TransactionUnits};
use super::constraints::{
    Constraints, RETURN_CONSUMED_CAPACITY, RETURN_ITEM_COLLECTION_METRICS, RETURN_VALUES_ON_FAILURE,
};
use super::error::ApiError;
use super::expressions::Substitutions;
use super::item_collections;
use super::metering::{self, Admitted};
use super::parameters::Parameters;
use super::put_item::{check_size, damaged};
use super::tables;
use super::update_item::{check_leaves_key, read_expressions};
use super::wording::{Checked, Wording};
use crate::store::Store;

/// The error for two operations on one item.
pub(crate) const DUPLICATES: &str =
    "Transaction request cannot include multiple operations on one item";

/// The kind of an operation.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Check,
    Put,
    Delete,
    Update,
}

impl Kind {
    /// All kinds, each with its name as a request parameter and its name in the messages of
    /// constraints.
    const ALL: [(Self, &'static str, &'static str); 4] = [
        (Self::Check, "ConditionCheck", "conditionCheck"),
        (Self::Put, "Put", "put"),
        (Self::Delete, "Delete", "delete"),
        (Self::Update, "Update", "update"),
    ];
}

/// One operation, as it was sent.
struct OperationParameters<'j> {
    kind: Kind,
    table: Option<&'j str>,
    /// The item of a `Put`; for any other kind of operation, the key.
    subject: Option<Checked<Item>>,
    update: Option<&'j str>,
    condition: Option<&'j str>,
    substitutions: Substitutions,
    return_on_failure: Option<&'j str>,
}

/// One operation with valid parameters.
struct Operation<'j> {
    kind: Kind,
    table: &'j str,
    subject: Item,
    update: Update,
    condition: Option<Condition>,
    return_on_failure: bool,
}

/// A transaction that can be submitted.
struct Plan<'j> {
    writes: Vec<Write>,
    /// The table of each operation, and the table's name as it was sent.
    tables: Vec<(&'j str, Arc<Table>)>,
}

pub(super) async fn transact_write_items(
    store: &Store,
    parameters: Parameters<'_>,
) -> Result<String, ApiError> {
    let members = parameters.structures("TransactItems", "TransactWriteItem")?;
    let token = parameters.string("ClientRequestToken")?;
    let capacity_detail = parameters.string("ReturnConsumedCapacity")?;
    let metrics = parameters.string("ReturnItemCollectionMetrics")?;
    let operations: Vec<Vec<OperationParameters<'_>>> =
        members.iter().flatten().map(|member| read_member(*member)).collect::<Result<_, _>>()?;

    let mut constraints = Constraints::new();
    if let Some(token) = token {
        constraints.length("clientRequestToken", token, 1, REQUEST_TOKEN_LENGTH_MAX);
    }
    constraints.one_of("returnConsumedCapacity", capacity_detail, RETURN_CONSUMED_CAPACITY);
    constraints.one_of("returnItemCollectionMetrics", metrics, RETURN_ITEM_COLLECTION_METRICS);
    constrain_operations(&mut constraints, members.as_ref().map(Vec::len), "TransactWriteItem");
    for (number, member) in (1..).zip(&operations) {
        member.iter().for_each(|operation| constrain(&mut constraints, number, operation));
    }
    constraints.finish()?;

    let mut checked = Vec::with_capacity(operations.len());
    for member in operations {
        checked.push(check_operation(only(member)?)?);
    }
    let Plan { writes, tables } = plan(store, checked)?;
    let partitions: Vec<KeyValue> =
        writes.iter().map(|write| write.key.partition.clone()).collect();
    check_payload(&writes)?;
    let token = token.map(|token| store.request_token(token));
    let subjects = writes.iter().zip(tables.iter().map(|(_, table)| &**table));
    let admitted = admit(store, token.as_deref(), subjects).await?;
    let transaction = Transaction { token, operations: writes };
    let replies = store.submit(vec![Command::Transaction(Box::new(transaction))]).await?;
    let (writes, repeated) = transacted(replies.into_iter().next())?;

    if !repeated {
        let now = store.now();
        let done = partitions.iter().zip(&tables).zip(&writes).zip(admitted);
        for (((key, (_, table)), written), admitted) in done {
            // A write in a transaction costs twice as much as a single write.
            metering::record_write(store, table, key, written, 2, admitted, now);
        }
    }
    let mut out = String::from("{");
    let units = if repeated { TransactionUnits::Read } else { TransactionUnits::Write };
    let detail = CapacityDetail::from_parameter(capacity_detail);
    let consumed = tables.iter().zip(&writes).map(|((name, table), written)| {
        let consumption = match units {
            TransactionUnits::Read => Capacity::of_repeat(written).into(),
            TransactionUnits::Write => Consumption::of_write(table, written, detail),
        };
        (*name, consumption)
    });
    detail.write_transaction_member(&mut out, units, consumed.collect());
    if item_collections::are_asked_for(metrics) {
        let done = tables.iter().zip(&writes);
        let done = done.map(|((name, table), written)| (*name, &**table, written));
        item_collections::write_map_member(&mut out, done);
    }
    out.push('}');
    Ok(out)
}

/// Checks that the total size of the operations is at most 4 MB.
pub(crate) fn check_payload(writes: &[Write]) -> Result<(), ApiError> {
    if payload_bytes(writes)? > TRANSACTION_BYTES_MAX {
        return Err(ApiError::validation(TRANSACTION_TOO_LARGE));
    }
    Ok(())
}

/// Returns the size of operations in bytes: the items of puts, and the values of updates and
/// conditions. Existing items do not count, as a test by Scylla shows, which deletes 5 MB in one
/// transaction of DynamoDB.
fn payload_bytes(writes: &[Write]) -> Result<usize, ApiError> {
    let mut bytes = 0;
    for write in writes {
        bytes += match &write.action {
            WriteAction::Put(item) => item.size().map_err(damaged)?,
            WriteAction::Update(update) => encoded_bytes(update)?,
            WriteAction::Delete | WriteAction::Check => 0,
        };
        bytes += write.condition.as_deref().map_or(Ok(0), encoded_bytes)?;
    }
    Ok(bytes)
}

fn encoded_bytes<T: Serialize>(expression: &T) -> Result<usize, ApiError> {
    postcard::experimental::serialized_size(expression)
        .map_err(|error| ApiError::defect(&error.to_string()))
}

/// Admits the operations. Cancels the transaction if an operation exceeds the throughput of its
/// table. A transaction that was executed earlier is not cancelled, because the repeated request
/// writes nothing, and the client gets the earlier result.
pub(crate) async fn admit<'w>(
    store: &Store,
    token: Option<&str>,
    writes: impl ExactSizeIterator<Item = (&'w Write, &'w Table)>,
) -> Result<Vec<Admitted>, ApiError> {
    let count = writes.len();
    let mut demands = Vec::with_capacity(count);
    for (write, table) in writes {
        demands.push((table, metering::write_demands(store, table, write, 2).await));
    }
    match (metering::admit_transaction(store, demands.into_iter()), token) {
        (Err(refused), Some(token)) => match store.remembers(token).await? {
            true => Ok(vec![Admitted::default(); count]),
            false => Err(refused),
        },
        (outcome, _) => outcome,
    }
}

/// Checks that the list has 1 to 100 operations. `kind` is the name of an operation in DynamoDB's
/// error messages.
pub(crate) fn constrain_operations(
    constraints: &mut Constraints,
    count: Option<usize>,
    kind: &str,
) {
    constraints.required("transactItems", count.is_some());
    if let Some(count) = count {
        constraints.length_at_least("transactItems", &"[]", count, 1);
        if count > TRANSACTION_OPERATIONS_MAX {
            let shown = format!("[{}]", vec![kind; count].join(", "));
            let max = TRANSACTION_OPERATIONS_MAX;
            constraints.length_at_most("transactItems", &shown, count, max);
        }
    }
}

/// Checks the table name of one operation. `at` is the path of the operation in the request.
pub(crate) fn constrain_table_name(constraints: &mut Constraints, at: &str, name: Option<&str>) {
    let at = format!("{at}.tableName");
    match name {
        None => constraints.required(&at, false),
        // The name may also be the ARN of the table.
        Some(name) if name.starts_with("arn:") => {}
        Some(name) => constraints.name(&at, name),
    }
}

fn read_member(member: Parameters<'_>) -> Result<Vec<OperationParameters<'_>>, ApiError> {
    let mut operations = Vec::new();
    for (kind, name, _) in Kind::ALL {
        let Some(parameters) = member.structure(name)? else { continue };
        let subject = if kind == Kind::Put { "Item" } else { "Key" };
        operations.push(OperationParameters {
            kind,
            table: parameters.string("TableName")?,
            subject: parameters.item(subject)?,
            update: if kind == Kind::Update {
                parameters.string("UpdateExpression")?
            } else {
                None
            },
            condition: parameters.string("ConditionExpression")?,
            substitutions: Substitutions::read(parameters, Wording::Older)?,
            return_on_failure: parameters.string("ReturnValuesOnConditionCheckFailure")?,
        });
    }
    Ok(operations)
}

fn constrain(constraints: &mut Constraints, number: usize, operation: &OperationParameters<'_>) {
    let kind = Kind::ALL.iter().find(|(kind, ..)| *kind == operation.kind);
    let at = format!("transactItems.{number}.member.{}", kind.map_or("", |(_, _, name)| *name));
    constraints.one_of(
        format_args!("{at}.returnValuesOnConditionCheckFailure"),
        operation.return_on_failure,
        RETURN_VALUES_ON_FAILURE,
    );
    constrain_table_name(constraints, &at, operation.table);
    let subject = if operation.kind == Kind::Put { "item" } else { "key" };
    constraints.required(format_args!("{at}.{subject}"), operation.subject.is_some());
    match operation.kind {
        Kind::Check => {
            let at = format!("{at}.conditionExpression");
            constraints.required(&at, operation.condition.is_some());
        }
        Kind::Update => {
            constraints.required(format_args!("{at}.updateExpression"), operation.update.is_some());
        }
        Kind::Put | Kind::Delete => {}
    }
}

/// Returns the operation of a member of the list, which must contain exactly one.
fn only(member: Vec<OperationParameters<'_>>) -> Result<OperationParameters<'_>, ApiError> {
    let mut operations = member.into_iter();
    match (operations.next(), operations.next()) {
        (Some(operation), None) => Ok(operation),
        (None, _) => Err(ApiError::validation(
            "Invalid Request: TransactWriteRequest should contain Delete or Put or Update request",
        )),
        (Some(_), Some(_)) => Err(ApiError::validation(
            "TransactItems can only contain one of Check, Put, Update or Delete",
        )),
    }
}

/// Does the checks that do not depend on the table. Placeholders without an expression are ignored,
/// unlike in the single-item operations.
fn check_operation(operation: OperationParameters<'_>) -> Result<Operation<'_>, ApiError> {
    let (Some(table), Some(subject)) = (operation.table, operation.subject) else {
        return Err(ApiError::defect("an invalid operation passed validation"));
    };
    let subject = match (operation.kind, subject) {
        (Kind::Put, subject) => {
            let item = subject.map_err(|wrong| wrong.older())?;
            check_size(item.size())?;
            Ok(item)
        }
        (_, subject) => subject,
    };
    let (update, condition) =
        read_expressions(operation.update, operation.condition, operation.substitutions)?;
    // DynamoDB checks the expressions of an operation before its key, but the item of a put before
    // its expressions.
    let subject = subject.map_err(|wrong| wrong.older())?;
    let return_on_failure = operation.return_on_failure == Some("ALL_OLD");
    Ok(Operation { kind: operation.kind, table, subject, update, condition, return_on_failure })
}

/// Checks the tables, then the keys, and then that no item occurs twice. An invalid key becomes the
/// cancellation reason of its operation.
fn plan<'j>(store: &Store, operations: Vec<Operation<'j>>) -> Result<Plan<'j>, ApiError> {
    let mut plan = Plan { writes: Vec::new(), tables: Vec::new() };
    for operation in &operations {
        plan.tables.push((operation.table, tables::find_for_items(store, operation.table)?));
    }
    let count = operations.len();
    for (operation, (_, table)) in operations.into_iter().zip(&plan.tables) {
        match key_of(&operation, table) {
            Ok(key) => plan.writes.push(write(operation, table, key)),
            Err(KeyProblem::Empty(text)) => return Err(ApiError::validation(text)),
            // Like DynamoDB, stops at the first invalid operation, so later operations have no
            // reason.
            Err(KeyProblem::Wrong(text)) => {
                let mut reasons = vec![Reason::NONE; plan.writes.len()];
                reasons.push(Reason::invalid(text));
                reasons.resize(count, Reason::NONE);
                return Err(ApiError::transaction_cancelled(reasons));
            }
        }
    }
    let mut seen = BTreeSet::new();
    if plan.writes.iter().all(|write| seen.insert((write.table, &write.key))) {
        Ok(plan)
    } else {
        Err(ApiError::validation(DUPLICATES))
    }
}

/// The reason why an operation has no valid key.
pub(crate) enum KeyProblem {
    /// The key has an empty value, which fails the entire request.
    Empty(String),
    /// The key is invalid for any other reason, which cancels the transaction.
    Wrong(String),
}

impl From<KeyError> for KeyProblem {
    fn from(error: KeyError) -> Self {
        match error {
            KeyError::Empty { .. } => Self::Empty(error.to_string()),
            other => Self::Wrong(other.to_string()),
        }
    }
}

/// Returns the key of an operation, or the reason why it has no valid key.
fn key_of(operation: &Operation<'_>, table: &Table) -> Result<PrimaryKey, KeyProblem> {
    let schema = &table.key_schema;
    let key = match operation.kind {
        Kind::Put => schema.key_of_item(&operation.subject),
        Kind::Check | Kind::Delete | Kind::Update => schema.key_of_parameter(&operation.subject),
    };
    let key = key?;
    check_leaves_key(&operation.update, table)
        .map_err(|error| KeyProblem::Wrong(error.message().to_owned()))?;
    Ok(key)
}

fn write(operation: Operation<'_>, table: &Table, key: PrimaryKey) -> Write {
    Write {
        table: table.id,
        key,
        action: match operation.kind {
            Kind::Check => WriteAction::Check,
            Kind::Put => WriteAction::put(&operation.subject),
            Kind::Delete => WriteAction::Delete,
            Kind::Update => WriteAction::Update(operation.update),
        },
        condition: operation.condition.map(Box::new),
        return_old: false,
        return_new: false,
        return_on_failure: operation.return_on_failure,
    }
}

/// Returns the result of each operation, and whether the transaction was executed earlier.
pub(crate) fn transacted(reply: Option<Reply>) -> Result<(Vec<Written>, bool), ApiError> {
    match reply {
        Some(Reply::Transacted { writes, repeated }) => Ok((writes, repeated)),
        Some(Reply::TransactionCancelled(reasons)) => Err(ApiError::transaction_cancelled(reasons)),
        Some(Reply::TokenMismatch) => Err(ApiError::token_mismatch()),
        Some(Reply::TransactionInProgress) => Err(ApiError::transaction_in_progress()),
        Some(Reply::Invalid(text)) => Err(ApiError::validation(text)),
        Some(Reply::TableNotFound) => Err(ApiError::resource_not_found()),
        _ => Err(ApiError::defect("unexpected reply to a transaction")),
    }
}
