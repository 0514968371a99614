//! First writes: what the backfill says of targets that are not there yet, 25 in a request.
//!
//! A PartiQL `INSERT` fails if an item stands there, so each statement has the guard of a first
//! write. Source: DynamoDB developer guide, "PartiQL insert statements", "Running batch operations".
//! Whatever it leaves open (something stands there, a throttled table, a role that may not insert) is
//! written by a request of its own elsewhere, which finds out what is the matter.

use std::collections::BTreeMap;

use futures::{StreamExt, stream};
use model::Item;
use rules::migration::{MARK, Registers, Target};
use rules::{Folded, Joined};

use super::targets::{Targets, WRITES_AT_ONCE};
use crate::back_off::Deadline;
use crate::tables::statements::{STATEMENTS_MAX, StatementOutcome, Statements};

/// Bytes of one request: below it, what is repeated after a failure is little.
const BYTES_MAX: usize = 1024 * 1024;
/// Characters of one statement, inclusive (DynamoDB API reference, `BatchStatementRequest`).
const STATEMENT_LENGTH_MAX: usize = 8192;
/// Writes at the same time for which one more request is under way.
const WRITES_PER_REQUEST: usize = 8;

/// What is said together, and the statements that say it, in the same order.
#[derive(Default)]
struct Batch {
    said: Vec<(Target, Joined<Registers>)>,
    statements: Statements,
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
    let batches = batches(std::mem::take(&mut folded.registers), size, folded);
    let sent = batches.into_iter().map(|Batch { said, statements }| async move {
        let limited = deadline.limit(async { Ok(statements.send(&targets.client).await) }).await;
        // What was not answered in time may have been written; saying it again changes nothing.
        (limited.unwrap_or_default(), said)
    });
    let mut written = 0;
    let mut answers = stream::iter(sent).buffer_unordered(requests);
    while let Some((outcomes, said)) = answers.next().await {
        for (position, (target, joined)) in said.into_iter().enumerate() {
            if outcomes.get(position) == Some(&StatementOutcome::Done) {
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
    size: usize,
    folded: &mut Folded,
) -> Vec<Batch> {
    let (mut batches, mut batch) = (Vec::new(), Batch::default());
    for (target, joined) in registers {
        let live = joined.value.only_live().filter(|_| !target.adopts);
        let said = live.and_then(|(item, mark)| {
            let text = insert(&target.table, item)?;
            batch.statements.push(&text, item.values().chain([&mark]));
            Some(())
        });
        if said.is_none() {
            folded.registers.insert(target, joined);
            continue;
        }
        batch.said.push((target, joined));
        if batch.said.len() >= size || batch.statements.bytes() >= BYTES_MAX {
            batches.push(std::mem::take(&mut batch));
        }
    }
    if !batch.said.is_empty() {
        batches.push(batch);
    }
    batches
}

/// The statement that puts an item and its mark where no item stands. `None` if PartiQL cannot say
/// it.
fn insert(table: &str, item: &Item) -> Option<String> {
    if table.contains('"') || item.keys().any(|name| name.contains('\'')) {
        return None;
    }
    let mut text = format!("INSERT INTO \"{table}\" VALUE {{");
    for name in item.keys() {
        text.push('\'');
        text.push_str(name);
        text.push_str("': ?, ");
    }
    text.push('\'');
    text.push_str(MARK);
    text.push_str("': ?}");
    // Bytes are as many as characters, or more.
    (text.len() <= STATEMENT_LENGTH_MAX).then_some(text)
}

#[cfg(test)]
mod tests {
    use model::json::item_from_str;

    use super::*;

    #[test]
    fn an_item_is_put_where_none_stands() {
        let item = item_from_str(r#"{"a":{"N":"1"},"b c":{"SS":["x"]}}"#).unwrap();
        assert_eq!(
            insert("my-table", &item).unwrap(),
            r#"INSERT INTO "my-table" VALUE {'a': ?, 'b c': ?, '_weir': ?}"#
        );
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
