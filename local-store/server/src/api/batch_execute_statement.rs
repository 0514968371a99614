//! `BatchExecuteStatement`: executes up to 25 PartiQL statements, either all reads of single items or
//! all writes. Each statement succeeds or fails independently.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use expression::partiql::{Select, Statement, StatementText};
use model::{Item, KeyValue, PrimaryKey};
use partition::{Command, Reply, Table, TableId, read_item};

use super::answer::{begin_member, item_member, text_member};
use super::batch::DUPLICATES;
use super::capacity::{Capacity, CapacityDetail, Consumption};
use super::constraints::{Constraints, RETURN_CONSUMED_CAPACITY};
use super::error::ApiError;
use super::item_write::{record_reply, written};
use super::metering::{self, Admitted};
use super::parameters::Parameters;
use super::statements::{
    EXISTS_MISPLACED, SEVERAL_KEY_ATTRIBUTES, StatementParameters, StatementWrite, WriteContext,
    only_key_of,
};
use super::tables;
use crate::store::Store;
use crate::store::long_reads::SHORT_READ_KEYS;

/// The maximum number of statements in one request, inclusive.
const STATEMENTS_MAX: usize = 25;
/// The error for a read without a key.
const KEY_REQUIRED: &str = "Select statements within BatchExecuteStatement must specify the primary key in the where clause.";

/// One statement with its own `ConsistentRead`.
struct MemberStatement<'j> {
    statement: StatementParameters<'j>,
    is_consistent: bool,
}

/// The result of one statement.
struct Answer {
    item: Option<Item>,
    consumption: Consumption,
}

/// The error of a failed statement, and the capacity that the statement consumed.
struct StatementFailure {
    error: ApiError,
    consumed: Option<Capacity>,
}

impl From<ApiError> for StatementFailure {
    fn from(error: ApiError) -> Self {
        Self { error, consumed: None }
    }
}

/// The consumed capacity by table. A table without a successful statement has no entry.
#[derive(Default)]
struct ConsumedUnits {
    succeeded: BTreeMap<String, Consumption>,
    refused: BTreeMap<String, Capacity>,
}

impl ConsumedUnits {
    fn into_tables(self) -> Vec<(String, Consumption)> {
        let Self { succeeded, mut refused } = self;
        let with_refused = succeeded.into_iter().map(|(table, mut consumption)| {
            consumption.add_refused(refused.remove(&table).unwrap_or_default());
            (table, consumption)
        });
        with_refused.collect()
    }
}

pub(super) async fn batch_execute_statement(
    store: &Store,
    parameters: Parameters<'_>,
) -> Result<String, ApiError> {
    let members = parameters.structures("Statements", "BatchStatementRequest")?;
    let capacity = parameters.string("ReturnConsumedCapacity")?;
    let mut statements = Vec::new();
    for member in members.iter().flatten() {
        let is_consistent = member.boolean("ConsistentRead")?.unwrap_or(false);
        statements.push(MemberStatement {
            statement: StatementParameters::read(*member)?,
            is_consistent,
        });
    }
    let mut constraints = Constraints::new();
    constraints.one_of("returnConsumedCapacity", capacity, RETURN_CONSUMED_CAPACITY);
    constraints.required("statements", members.is_some());
    if members.is_some() {
        constraints.length_at_least("statements", &"[]", statements.len(), 1);
        constraints.list_at_most("statements", statements.len(), STATEMENTS_MAX);
    }
    for (number, member) in (1..).zip(&statements) {
        member.statement.constrain(&mut constraints, format_args!("statements.{number}.member."));
    }
    constraints.finish()?;

    let mut text = None;
    let prepared = statements.into_iter().map(|member| prepare(store, member, &mut text)).collect();
    answer_all(store, prepared, CapacityDetail::from_parameter(capacity)).await
}

/// Executes the statements, and returns their results in the order of the request.
async fn answer_all(
    store: &Store,
    prepared: Vec<Result<Prepared, ApiError>>,
    capacity_detail: CapacityDetail,
) -> Result<String, ApiError> {
    check_together(&prepared)?;
    let mut writes = Vec::new();
    let mut sent = Vec::with_capacity(prepared.len());
    for one in prepared {
        let admitted = match one {
            Ok(one) => admit(store, one).await,
            Err(error) => Err(error),
        };
        sent.push(admitted.map(|one| one.send(&mut writes)));
    }
    // All writes go into one log entry, and the replies have the order of the writes.
    let replies = if writes.is_empty() { Vec::new() } else { store.submit(writes).await? };
    let mut out = String::from("{");
    begin_member(&mut out, "Responses");
    out.push('[');
    let mut consumed = ConsumedUnits::default();
    let is_short = sent.len() <= SHORT_READ_KEYS;
    let answer = || write_answers(store, sent, replies, capacity_detail, &mut out, &mut consumed);
    if is_short {
        answer()?;
    } else {
        store.long_reads().run(answer).await?;
    }
    out.push(']');
    let consumed = consumed.into_tables();
    if !consumed.is_empty() {
        capacity_detail.write_list_member(&mut out, &consumed);
    }
    out.push('}');
    Ok(out)
}

/// Executes the reads, and appends the results of all statements in the order of the request.
fn write_answers(
    store: &Store,
    sent: Vec<Result<Submission, ApiError>>,
    replies: Vec<Reply>,
    capacity_detail: CapacityDetail,
    out: &mut String,
    consumed: &mut ConsumedUnits,
) -> Result<(), ApiError> {
    let mut replies = replies.into_iter();
    for (position, sent) in sent.into_iter().enumerate() {
        out.push_str(if position > 0 { ",{" } else { "{" });
        match sent {
            Ok(sent) => {
                let answer = match &sent {
                    Submission::Read(read, admitted) => {
                        answer_read(store, read, *admitted).map_err(StatementFailure::from)
                    }
                    Submission::Write(write) => {
                        answer_write(store, write, replies.next(), capacity_detail)
                    }
                };
                answer_members(out, &sent.table().name, answer, consumed)?;
            }
            Err(error) => error_member(out, &error)?,
        }
        out.push('}');
    }
    Ok(())
}

/// Appends the result of a statement on a table.
fn answer_members(
    out: &mut String,
    table: &str,
    answer: Result<Answer, StatementFailure>,
    consumed: &mut ConsumedUnits,
) -> Result<(), ApiError> {
    match answer {
        Ok(answer) => {
            if let Some(item) = &answer.item {
                item_member(out, "Item", item);
            }
            text_member(out, "TableName", table);
            let sum = consumed.succeeded.entry(table.to_owned()).or_default();
            *sum = std::mem::take(sum).plus(answer.consumption);
        }
        Err(refused) => {
            error_member(out, &refused.error)?;
            if let Some(capacity) = refused.consumed {
                let sum = consumed.refused.entry(table.to_owned()).or_default();
                *sum = sum.plus(capacity);
            }
            // Only the errors of executed statements contain the table name.
            text_member(out, "TableName", table);
        }
    }
    Ok(())
}

/// Checks the throughput limits for a statement. A statement that exceeds a limit fails, but the
/// other statements are executed.
async fn admit(store: &Store, prepared: Prepared) -> Result<Prepared, ApiError> {
    match prepared {
        Prepared::Read(read, _) => {
            let taken = metering::admit_read(store, &read.table, &read.key, read.is_consistent)?;
            Ok(Prepared::Read(read, taken))
        }
        Prepared::Write(planned, _) => {
            let taken =
                metering::admit_write(store, &planned.context.table, &planned.write).await?;
            Ok(Prepared::Write(planned, taken))
        }
    }
}

/// A statement that can be executed, with the capacity that was admitted for it.
enum Prepared {
    Read(Box<Read>, Admitted),
    Write(Box<StatementWrite>, Admitted),
}

/// A read of one item.
struct Read {
    table: Arc<Table>,
    key: PrimaryKey,
    select: Select,
    is_consistent: bool,
}

/// A submitted write, or a read that was not submitted because it needs no log entry.
enum Submission {
    Read(Box<Read>, Admitted),
    Write(SentWrite),
}

/// A write that was submitted.
struct SentWrite {
    context: WriteContext,
    partition: KeyValue,
    admitted: Admitted,
}

impl Prepared {
    fn item(&self) -> (TableId, &PrimaryKey) {
        match self {
            Self::Read(read, _) => (read.table.id, &read.key),
            Self::Write(planned, _) => planned.item(),
        }
    }

    /// Appends the statement's command to `writes` if the statement is a write.
    fn send(self, writes: &mut Vec<Command>) -> Submission {
        match self {
            Self::Read(read, admitted) => Submission::Read(read, admitted),
            Self::Write(planned, admitted) => {
                let StatementWrite { write, context } = *planned;
                let partition = write.key.partition.clone();
                writes.push(Command::Write(Box::new(write)));
                Submission::Write(SentWrite { context, partition, admitted })
            }
        }
    }
}

impl Submission {
    fn table(&self) -> &Table {
        match self {
            Self::Read(read, _) => &read.table,
            Self::Write(write) => &write.context.table,
        }
    }
}

/// Checks that the statements are either all reads or all writes, and that no two statements
/// concern the same item. Statements that have already failed are ignored.
fn check_together(prepared: &[Result<Prepared, ApiError>]) -> Result<(), ApiError> {
    let is_read = |prepared: &&Prepared| matches!(prepared, Prepared::Read(..));
    let reads = prepared.iter().flatten().filter(is_read).count();
    if reads > 0 && reads < prepared.iter().flatten().count() {
        return Err(ApiError::validation(
            "Read and write requests together in the same batch is not supported.",
        ));
    }
    let mut seen = BTreeSet::new();
    match prepared.iter().flatten().all(|prepared| seen.insert(prepared.item())) {
        true => Ok(()),
        false => Err(ApiError::validation(DUPLICATES)),
    }
}

fn prepare<'j>(
    store: &Store,
    member: MemberStatement<'j>,
    text: &mut Option<StatementText<'j>>,
) -> Result<Prepared, ApiError> {
    let select = match member.statement.parse_after(text)? {
        Statement::Select(select) => select,
        Statement::Exists(_) => return Err(ApiError::validation(EXISTS_MISPLACED)),
        write => {
            // `ReturnValuesOnConditionCheckFailure` has no effect in a batch. Contrary to its documentation,
            // DynamoDB never returns the item.
            let planned = StatementWrite::of(store, write, false)?;
            return Ok(Prepared::Write(Box::new(planned), Admitted::default()));
        }
    };
    let table = tables::find_for_items(store, &select.table)?;
    if let Some(name) = &select.index {
        let index = table.index(name);
        let is_read_by_none =
            index.is_some_and(|index| index.definition.key_schema.has_several_attributes());
        let refusal = if is_read_by_none { SEVERAL_KEY_ATTRIBUTES } else { KEY_REQUIRED };
        return Err(ApiError::validation(refusal));
    }
    let key = only_key_of(&select.condition, &table.key_schema, KEY_REQUIRED)?;
    let is_consistent = member.is_consistent;
    let read = Box::new(Read { table, key, select, is_consistent });
    Ok(Prepared::Read(read, Admitted::default()))
}

/// Appends the error of one statement. An internal error fails the entire request.
fn error_member(out: &mut String, error: &ApiError) -> Result<(), ApiError> {
    let Some(code) = error.statement_code() else {
        return Err(error.clone());
    };
    begin_member(out, "Error");
    out.push('{');
    text_member(out, "Code", code);
    text_member(out, "Message", error.message());
    out.push('}');
    Ok(())
}

fn answer_write(
    store: &Store,
    sent: &SentWrite,
    reply: Option<Reply>,
    detail: CapacityDetail,
) -> Result<Answer, StatementFailure> {
    let SentWrite { context, partition, admitted } = sent;
    record_reply(store, &context.table, partition, reply.as_ref(), *admitted);
    let consumed = match &reply {
        Some(Reply::ConditionFailed { bytes, .. }) => Some(Capacity::of_write(*bytes, 0)),
        _ => None,
    };
    let written = written(reply).map_err(|error| StatementFailure {
        error: error.for_insert(context.is_insert),
        consumed,
    })?;
    let consumption = Consumption::of_write(&context.table, &written, detail);
    Ok(Answer { item: context.returned(&written), consumption })
}

fn answer_read(store: &Store, read: &Read, admitted: Admitted) -> Result<Answer, ApiError> {
    let found = read_item(&*store.view(), &read.table, &read.key)?;
    let capacity = Capacity::of_read(found.as_ref().map_or(0, Item::size), read.is_consistent);
    metering::record_read(store, &read.table, &read.key.partition, capacity, admitted);
    let condition = read.select.condition.clone().into_condition();
    let matches = |item: &Item| condition.as_ref().is_none_or(|c| c.evaluate(item));
    let item = found.filter(matches).map(|item| match &read.select.projection {
        Some(projection) => projection.apply(&item),
        None => item,
    });
    Ok(Answer { item, consumption: capacity.into() })
}
