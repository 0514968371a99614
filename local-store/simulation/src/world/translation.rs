//! The translation of requests to commands and reads, like in the server's API. Other tests cover
//! HTTP and JSON.

use std::collections::BTreeMap;
use std::ops::ControlFlow;

use expression::{ExpressionKind, Placeholders, parse_condition, parse_update};
use model::{
    Item, KeyAttribute, KeyAttributeType, KeySchema, KeyValue, Number, PrimaryKey, StreamViewType,
};
use partition::{
    Billing, CancellationReason, Command, CreateTable, IndexChange, IndexDefinition, IndexKind,
    IndexProjection, Position, Reply, Sequence, Table, TableId, Transaction, UpdateTable,
    WriteAction, read_item, read_last_sequence, read_shard_records,
};

use super::replica::{Replica, Snapshot};
use crate::error::NodeError;
use crate::request::{
    Answer, Change, Expression, Failure, INDEX, KEY, LATE_INDEX, OWNER, Request, Shard, Start,
    TABLE, WRITE_ID, Write,
};

fn attribute(name: &str) -> KeyAttribute {
    KeyAttribute { name: name.to_owned(), attribute_type: KeyAttributeType::S }
}

fn index(name: &str) -> IndexDefinition {
    IndexDefinition {
        name: name.to_owned(),
        kind: IndexKind::Global,
        key_schema: KeySchema { partition: attribute(OWNER), sort: None }.into(),
        projection: IndexProjection::All,
        throughput: None,
    }
}

/// Returns the command that creates the second index of the table.
#[must_use]
pub fn make_index(table: TableId) -> Command {
    let indexes = vec![IndexChange::Create(index(LATE_INDEX))];
    Command::UpdateTable(Box::new(UpdateTable {
        indexes,
        ..UpdateTable::of_options(table, Vec::new())
    }))
}

/// Returns the command that creates the table, with its stream and its index.
#[must_use]
pub fn create_table() -> Command {
    Command::CreateTable(Box::new(CreateTable {
        name: TABLE.into(),
        key_schema: KeySchema { partition: attribute(KEY), sort: None },
        billing: Billing::OnDemand,
        deletion_protection: false,
        stream: Some((StreamViewType::NewAndOldImages, "stream".to_owned())),
        indexes: vec![index(INDEX)],
        options: Vec::new(),
    }))
}

/// Returns the key of an item.
#[must_use]
pub fn key(name: &str) -> PrimaryKey {
    PrimaryKey { partition: KeyValue::S(name.to_owned()), sort: None }
}

/// Handles a request on a node.
///
/// # Errors
/// The node cannot handle the request, or its reply is not valid for the request.
pub async fn serve(replica: &dyn Replica, request: Request) -> Result<Answer, Failure> {
    let is_read =
        matches!(request, Request::Get { .. } | Request::Shards | Request::Records { .. });
    let is_power_off = |what: &str| matches!(NodeError::from(what), NodeError::PowerLost(_));
    match serve_inner(replica, request).await {
        // As in the API, an error from a damaged node is not a defect: another node executes the
        // read, or the client retries. A node without power would not answer at all.
        Err(Failure::Defect(what))
            if is_read && (replica.damage().is_some() || is_power_off(&what)) =>
        {
            Err(Failure::Refused(what))
        }
        served => served,
    }
}

async fn serve_inner(replica: &dyn Replica, request: Request) -> Result<Answer, Failure> {
    match request {
        Request::Write(write) => {
            let table = find_table(&replica.read(false).await?)?;
            let command = Command::Write(Box::new(translate(table, write)?));
            answer(first(replica.submit(vec![command]).await?)?)
        }
        Request::Transact(token, writes) => {
            let table = find_table(&replica.read(false).await?)?;
            let operations: Result<_, Failure> =
                writes.into_iter().map(|write| translate(table, write)).collect();
            let transaction = Transaction { token, operations: operations? };
            let command = Command::Transaction(Box::new(transaction));
            answer(first(replica.submit(vec![command]).await?)?)
        }
        Request::RaiseEach { by, expected } => {
            let table = find_table(&replica.read(false).await?)?;
            let writes =
                expected.into_iter().map(|(key, from)| translate(table, raise(key, from, by)));
            let commands = writes.map(|write| Ok(Command::Write(Box::new(write?))));
            let replies = replica.submit(commands.collect::<Result<_, Failure>>()?).await?;
            let is_made = |reply| match answer(reply)? {
                Answer::ConditionFailed(_) => Ok(false),
                _ => Ok(true),
            };
            Ok(Answer::Each(replies.into_iter().map(is_made).collect()))
        }
        Request::Get { keys, strong: true } if keys.len() > 1 => {
            replica.get_together(keys).await.map(Answer::Items)
        }
        Request::Get { keys, strong } => {
            let snapshot = replica.read(strong).await?;
            snapshot.read(|snapshot| get_from(snapshot, &keys)).await.map(Answer::Items)
        }
        Request::Shards => Ok(Answer::Shards(shards(table(&replica.read(true).await?)?))),
        Request::Records { shard, start, limit } => {
            let snapshot = replica.read(false).await?;
            snapshot.read(|snapshot| records(snapshot, &shard, &start, limit)).await
        }
    }
}

/// Returns a write that adds `by` to an item's number if the number is `from`.
fn raise(key: String, from: u64, by: u64) -> Write {
    let change = Expression::new(&format!("SET {WRITE_ID} = {WRITE_ID} + :by"));
    let condition = Expression::new(&format!("{WRITE_ID} = :from"));
    Write {
        key,
        change: Change::Update(change.with(":by", Number::from(by))),
        condition: Some(condition.with(":from", Number::from(from))),
    }
}

/// Reads items from one state.
///
/// # Errors
/// The table does not exist yet, or the state cannot be read.
pub fn get_from(snapshot: &Snapshot, keys: &[String]) -> Result<Vec<Option<Item>>, Failure> {
    let table = table(snapshot)?;
    let items = keys.iter().map(|name| read_item(&*snapshot.view, table, &key(name)));
    items.collect::<Result<_, _>>().map_err(|error| defect(&error))
}

fn first(replies: Vec<Reply>) -> Result<Reply, Failure> {
    replies.into_iter().next().ok_or_else(|| Failure::Unknown("no reply".to_owned()))
}

fn defect(error: &dyn std::fmt::Display) -> Failure {
    Failure::Defect(error.to_string())
}

/// Returns the table. A replica that lags behind may not have it yet.
fn table(snapshot: &Snapshot) -> Result<&Table, Failure> {
    let found = snapshot.catalogue.find(TABLE);
    found
        .map(AsRef::as_ref)
        .ok_or_else(|| Failure::Refused("the table does not exist yet".to_owned()))
}

fn find_table(snapshot: &Snapshot) -> Result<TableId, Failure> {
    table(snapshot).map(|table| table.id)
}

fn placeholders(expression: &Expression) -> Result<Placeholders, Failure> {
    let values: Option<BTreeMap<_, _>> =
        (!expression.values.is_empty()).then(|| expression.values.clone());
    Placeholders::new(None, values).map_err(|error| defect(&error))
}

fn translate(table: TableId, write: Write) -> Result<partition::Write, Failure> {
    let action = match write.change {
        Change::Put(item) => WriteAction::put(&item),
        Change::Delete => WriteAction::Delete,
        Change::Check => WriteAction::Check,
        Change::Update(update) => {
            let parsed = parse_update(&update.text, &mut placeholders(&update)?);
            WriteAction::Update(parsed.map_err(|error| defect(&error))?)
        }
    };
    let parse = |condition: Expression| {
        let mut placeholders = placeholders(&condition)?;
        parse_condition(&condition.text, ExpressionKind::Condition, &mut placeholders)
            .map_err(|error| defect(&error))
    };
    Ok(partition::Write {
        table,
        key: key(&write.key),
        action,
        condition: write.condition.map(parse).transpose()?.map(Box::new),
        return_old: true,
        return_new: true,
        return_on_failure: true,
    })
}

fn answer(reply: Reply) -> Result<Answer, Failure> {
    match reply {
        Reply::Written(written) => Ok(Answer::Written { old: written.old, new: written.new }),
        Reply::ConditionFailed { item, .. } => Ok(Answer::ConditionFailed(item)),
        Reply::Transacted { .. } => Ok(Answer::Transacted),
        Reply::TransactionInProgress => {
            Err(Failure::Refused("an earlier attempt is in progress".to_owned()))
        }
        // A conflict with another transaction is temporary, so a retry may succeed.
        Reply::Conflict => Err(Failure::Refused("another transaction is in progress".to_owned())),
        Reply::TransactionCancelled(reasons) if reasons.contains(&CancellationReason::Conflict) => {
            Err(Failure::Refused("another transaction is in progress".to_owned()))
        }
        Reply::TransactionCancelled(reasons) => {
            let invalid = reasons.into_iter().find_map(|reason| match reason {
                CancellationReason::Invalid(text) => Some(text),
                CancellationReason::None
                | CancellationReason::ConditionFailed { .. }
                | CancellationReason::Conflict
                | CancellationReason::ItemCollectionTooLarge => None,
            });
            invalid.map_or(Ok(Answer::Cancelled), |text| Err(Failure::Defect(text)))
        }
        other => Err(Failure::Defect(format!("unexpected reply: {other:?}"))),
    }
}

/// Returns the shards of the table's stream.
#[must_use]
pub fn shards(table: &Table) -> Vec<Shard> {
    let shard = |shard: &partition::Shard| Shard {
        id: shard.id.clone(),
        parent: shard.parent.clone(),
        range: (shard.first.to_string(), shard.last.map(|last| last.to_string())),
    };
    table.shards().map(shard).collect()
}

fn sequence(text: &str) -> Result<Sequence, Failure> {
    text.parse().map_err(|()| Failure::Defect(format!("`{text}` is not a sequence number")))
}

/// Returns the next records of a shard. Returns an empty page if this replica does not have the
/// shard yet.
fn records(snapshot: &Snapshot, id: &str, start: &Start, limit: usize) -> Result<Answer, Failure> {
    let table = table(snapshot)?;
    let found = table
        .streams
        .iter()
        .find_map(|stream| Some((stream, stream.shards.iter().find(|shard| shard.id == id)?)));
    let Some((stream, shard)) = found else {
        return Ok(Answer::Records(Vec::new(), None));
    };
    let position = match start {
        Start::TrimHorizon => Position::At(shard.first),
        Start::At(text) => Position::At(sequence(text)?),
        Start::After(text) => Position::After(sequence(text)?),
        Start::Iterator(_) => {
            return Err(Failure::Defect(
                "the simulated store does not support iterators".to_owned(),
            ));
        }
        Start::Latest => {
            let last = read_last_sequence(&*snapshot.view, table, shard);
            match last.map_err(|error| defect(&error))? {
                Some(last) => Position::After(last),
                None => Position::At(shard.first),
            }
        }
    };
    let mut records = Vec::new();
    let view = &*snapshot.view;
    read_shard_records(view, table, stream, shard, position, &mut |_, record| {
        records.push(record.decode());
        if records.len() < limit { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
    })
    .map_err(|error| defect(&error))?;
    let records = records.into_iter().collect::<Result<Vec<_>, _>>();
    let records = records.map_err(|error| defect(&error))?;
    let next = match (records.last(), position) {
        (Some(last), _) => Start::After(last.sequence_number.as_str().to_owned()),
        (None, Position::At(sequence)) => Start::At(sequence.to_string()),
        (None, Position::After(sequence)) => Start::After(sequence.to_string()),
    };
    Ok(Answer::Records(records, Some(next)))
}
