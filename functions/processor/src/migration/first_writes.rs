//! First writes: what the backfill says of targets that are not there yet, 25 in a request.
//!
//! A PartiQL `INSERT` fails if an item stands there, so each statement has the guard of a first
//! write. Source: DynamoDB developer guide, "PartiQL insert statements", "Running batch operations".
//! Whatever it leaves open (something stands there, a throttled table, a role that may not insert) is
//! written by a request of its own elsewhere, which finds out what is the matter.

use std::collections::BTreeMap;

use aws_sdk_dynamodb::types::BatchStatementRequest;
use futures::{StreamExt, stream};
use model::Item;
use rules::migration::{Registers, Target};
use rules::{Folded, Joined};

use super::targets::{Targets, WRITES_AT_ONCE};
use crate::back_off::Deadline;
use crate::tables::attribute_value::to_sdk;

/// Statements of one request, inclusive (DynamoDB developer guide, "Running batch operations").
const STATEMENTS_MAX: usize = 25;
/// Bytes of the items of one request: below it, what is repeated after a failure is little.
const BYTES_MAX: usize = 1024 * 1024;
/// Characters of one statement, inclusive (DynamoDB API reference, `BatchStatementRequest`).
const STATEMENT_LENGTH_MAX: usize = 8192;
/// Writes at the same time for which one more request is under way.
const WRITES_PER_REQUEST: usize = 8;

/// What is said together, and the statements that say it, in the same order.
#[derive(Default)]
struct Batch {
    said: Vec<(Target, Joined<Registers>)>,
    statements: Vec<BatchStatementRequest>,
}

/// Writes the targets that nothing stands at, as many requests at the same time as `width` writes
/// stand for. Gives how many it wrote; what it did not write stays in `folded`.
pub(super) async fn write(
    targets: &Targets,
    folded: &mut Folded,
    width: usize,
    deadline: Deadline,
) -> usize {
    let (requests, size) = shape(width);
    let batches = batches(std::mem::take(&mut folded.registers), targets, size, folded);
    let sent = batches.into_iter().map(|Batch { said, statements }| async move {
        let limited = deadline.limit(async { Ok(send(targets, statements).await) }).await;
        // What was not answered in time may have been written; saying it again changes nothing.
        (limited.unwrap_or_default(), said)
    });
    let mut written = 0;
    let mut answers = stream::iter(sent).buffer_unordered(requests);
    while let Some((is_written, said)) = answers.next().await {
        for (position, (target, joined)) in said.into_iter().enumerate() {
            if is_written.get(position) == Some(&true) {
                written += 1;
            } else {
                folded.registers.insert(target, joined);
            }
        }
    }
    written
}

/// Requests at the same time, and statements in each, for so many writes at the same time.
fn shape(width: usize) -> (usize, usize) {
    let width = width.clamp(1, WRITES_AT_ONCE);
    let size = (width * STATEMENTS_MAX).div_ceil(WRITES_PER_REQUEST).min(STATEMENTS_MAX);
    ((width / WRITES_PER_REQUEST).max(1), size)
}

/// Statements of so many targets together; what cannot be said so goes back to `folded`.
fn batches(
    registers: BTreeMap<Target, Joined<Registers>>,
    targets: &Targets,
    size: usize,
    folded: &mut Folded,
) -> Vec<Batch> {
    let (mut batches, mut batch, mut bytes) = (Vec::new(), Batch::default(), 0);
    for (target, joined) in registers {
        let item = targets.key(&target).ok().map(|key| joined.value.to_item(&key));
        let is_first = joined.value.only().is_some_and(|(_, register)| register.item.is_some());
        let statement = item.as_ref().filter(|_| is_first && !target.adopts);
        let Some(statement) = statement.and_then(|item| insert(&target.table, item)) else {
            folded.registers.insert(target, joined);
            continue;
        };
        bytes += item.as_ref().map_or(0, Item::size);
        batch.said.push((target, joined));
        batch.statements.push(statement);
        if batch.said.len() >= size || bytes >= BYTES_MAX {
            batches.push(std::mem::take(&mut batch));
            bytes = 0;
        }
    }
    if !batch.said.is_empty() {
        batches.push(batch);
    }
    batches
}

/// The statement that puts an item where none stands. `None` if PartiQL cannot say it.
fn insert(table: &str, item: &Item) -> Option<BatchStatementRequest> {
    if table.contains('"') || item.keys().any(|name| name.contains('\'')) {
        return None;
    }
    let mut text = format!("INSERT INTO \"{table}\" VALUE {{");
    for (position, name) in item.keys().enumerate() {
        text.push_str(if position > 0 { ", '" } else { "'" });
        text.push_str(name);
        text.push_str("': ?");
    }
    text.push('}');
    // Bytes are as many as characters, or more.
    if text.len() > STATEMENT_LENGTH_MAX {
        return None;
    }
    let parameters = item.values().map(to_sdk).collect();
    BatchStatementRequest::builder().statement(text).set_parameters(Some(parameters)).build().ok()
}

/// Sends statements; answers for each whether it wrote its item.
async fn send(targets: &Targets, statements: Vec<BatchStatementRequest>) -> Vec<bool> {
    let request = targets.client.batch_execute_statement().set_statements(Some(statements));
    let Ok(answer) = request.send().await else { return Vec::new() };
    answer.responses().iter().map(|answer| answer.error().is_none()).collect()
}

#[cfg(test)]
mod tests {
    use model::json::item_from_str;

    use super::*;

    #[test]
    fn an_item_is_put_where_none_stands() {
        let item = item_from_str(r#"{"a":{"N":"1"},"b c":{"SS":["x"]},"_weir":{"M":{}}}"#).unwrap();
        let request = insert("my-table", &item).unwrap();
        assert_eq!(
            request.statement(),
            r#"INSERT INTO "my-table" VALUE {'_weir': ?, 'a': ?, 'b c': ?}"#
        );
        assert_eq!(request.parameters().len(), 3);
        for odd in [format!("o{}", "d".repeat(STATEMENT_LENGTH_MAX)), "o'd".to_owned()] {
            assert!(insert("t", &item.clone().with(&odd, "x")).is_none());
        }
        assert!(insert("t\"", &item).is_none());
    }

    #[test]
    fn fewer_writes_are_fewer_and_smaller_requests() {
        for (width, expected) in [
            (64, (8, 25)),
            (200, (8, 25)),
            (32, (4, 25)),
            (8, (1, 25)),
            (4, (1, 13)),
            (1, (1, 4)),
            (0, (1, 4)),
        ] {
            assert_eq!(shape(width), expected, "{width}");
        }
    }
}
