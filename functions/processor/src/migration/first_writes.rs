//! First writes: the backfill's writes of targets that do not exist yet, 25 per request.
//!
//! A PartiQL `INSERT` fails if the item exists, which is what a first write needs. Source: DynamoDB
//! developer guide, "PartiQL insert statements", "Running batch operations". A statement may fail
//! because the item exists, the table is throttled, or the role may not insert. Other code then
//! writes the effect by a separate request, which determines the cause.

use futures::{StreamExt, stream};
use model::Item;
use model::json::write_string;
use rules::migration::{Effect, Folded, MARK, Registers, Target};
use rules::{Fold, Joined};

use super::targets::{Targets, WRITES_AT_ONCE};
use crate::back_off::Deadline;
use crate::tables::statements::{
    STATEMENT_LENGTH_MAX, STATEMENTS_MAX, StatementOutcome, Statements,
};

/// Maximum size of one request in bytes, so that repeating a failed request is cheap.
const BYTES_MAX: usize = 1024 * 1024;
/// Number of concurrent single writes that one concurrent request of statements replaces.
const WRITES_PER_REQUEST: usize = 8;

/// Effects that are sent together, and their statements in the same order.
#[derive(Default)]
struct Batch {
    registers: Vec<(Target, Joined<Registers>)>,
    statements: Statements,
}

/// Writes the effects whose target does not exist. The number of concurrent requests corresponds to
/// `width` concurrent writes. Takes each effect from `effects` only when it writes the effect,
/// because the effects of a page are several times as large as the page. Returns the number of
/// written targets, and the effects that were not written.
pub(super) async fn write(
    targets: &Targets,
    effects: impl Iterator<Item = (usize, Effect)>,
    width: usize,
    deadline: Deadline,
) -> (usize, Folded) {
    let (requests, size) = shape(width);
    let sent = some_targets(effects, size).map(|mut folded| async move {
        let mut written = 0;
        for Batch { registers, statements } in batches(&mut folded, size) {
            let sent = async { Ok(statements.send(&targets.client).await) };
            // If no response arrives in time, the request may have succeeded. Its effects are
            // written again, which is idempotent.
            let outcomes = deadline.limit(sent).await.unwrap_or_default();
            for (position, (target, joined)) in registers.into_iter().enumerate() {
                if outcomes.get(position) == Some(&StatementOutcome::Done) {
                    written += 1;
                } else {
                    folded.registers.insert(target, joined);
                }
            }
        }
        (written, folded)
    });
    let (mut written, mut left) = (0, Folded::default());
    let mut answers = stream::iter(sent).buffer_unordered(requests);
    while let Some((more, rest)) = answers.next().await {
        written += more;
        left.join(rest);
    }
    (written, left)
}

/// Folds the effects in groups of `size` targets. A group may have more targets, because one item
/// may have several targets.
fn some_targets(
    mut effects: impl Iterator<Item = (usize, Effect)>,
    size: usize,
) -> impl Iterator<Item = Folded> {
    std::iter::from_fn(move || {
        let mut folded = Folded::default();
        let mut is_over = true;
        for (position, effect) in effects.by_ref() {
            effect.fold_into(&mut folded, position);
            is_over = false;
            if folded.registers.len() + folded.rewrites.len() >= size {
                break;
            }
        }
        (!is_over).then_some(folded)
    })
}

/// Returns the number of concurrent requests, and the number of statements in each request, for
/// `width` concurrent writes.
fn shape(width: usize) -> (usize, usize) {
    let width = width.clamp(1, WRITES_AT_ONCE);
    let size = (width * STATEMENTS_MAX).div_ceil(WRITES_PER_REQUEST).min(STATEMENTS_MAX);
    ((width / WRITES_PER_REQUEST).max(1), size)
}

/// Returns the statements in batches of `size` targets. Effects that a statement cannot express
/// stay in `folded`.
fn batches(folded: &mut Folded, size: usize) -> Vec<Batch> {
    let (mut batches, mut batch) = (Vec::new(), Batch::default());
    let mut insert = Insert::default();
    for (target, joined) in std::mem::take(&mut folded.registers) {
        let live = joined.value.only_live().filter(|_| !target.adopts);
        let said = live.and_then(|(item, mark)| {
            let text = insert.json(&target.table, item)?;
            batch.statements.push_written(text, |parameters| {
                item.values().for_each(|value| parameters.push(value));
                parameters.push_written(|body| mark.write(body));
            });
            Some(())
        });
        if said.is_none() {
            folded.registers.insert(target, joined);
            continue;
        }
        batch.registers.push((target, joined));
        if batch.registers.len() >= size || batch.statements.bytes() >= BYTES_MAX {
            batches.push(std::mem::take(&mut batch));
        }
    }
    if !batch.registers.is_empty() {
        batches.push(batch);
    }
    batches
}

/// A statement that puts an item and its mark if no item exists. Items of one table with the same
/// attribute names use the same statement.
#[derive(Default)]
struct Insert {
    table: String,
    names: Vec<String>,
    /// The statement as a JSON string; `None` if PartiQL cannot express it.
    json: Option<String>,
}

impl Insert {
    /// Returns the statement for this item as a JSON string; `None` if PartiQL cannot express it.
    fn json(&mut self, table: &str, item: &Item) -> Option<&str> {
        if self.table != table || !item.keys().eq(&self.names) {
            self.json = insert(table, item).map(|text| {
                let mut json = String::with_capacity(text.len() + 16);
                write_string(&mut json, &text);
                json
            });
            table.clone_into(&mut self.table);
            self.names = item.keys().cloned().collect();
        }
        self.json.as_deref()
    }
}

/// Returns the text of the statement; `None` if PartiQL cannot express it.
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
    // The limit is in characters. A string has at least as many bytes as characters.
    (text.len() <= STATEMENT_LENGTH_MAX).then_some(text)
}

#[cfg(test)]
mod tests {
    use model::json::item_from_str;
    use model::{KeyValue, PrimaryKey};
    use rules::Stamp;
    use rules::migration::Register;

    use super::*;

    #[test]
    fn an_item_is_put_only_if_absent() {
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
    fn a_statement_is_reused_for_the_same_attributes_of_one_table() {
        let items = [r#"{"a":{"N":"1"}}"#, r#"{"a":{"S":"x"}}"#, r#"{"'":{"S":"x"}}"#, "{}"];
        let mut known = Insert::default();
        for table in ["t", "u"] {
            for item in items.into_iter().chain(items) {
                let item = item_from_str(item).unwrap();
                let mut expected = Insert::default();
                assert_eq!(known.json(table, &item), expected.json(table, &item));
            }
        }
    }

    #[test]
    fn targets_are_grouped_by_number() {
        let source = |number: usize| {
            Registers::of(
                "t|{}".to_owned(),
                Register {
                    stamp: Stamp::lowest(),
                    item: Some(Item::new().with("n", number.to_string())),
                },
            )
        };
        let target = |number: usize| Target {
            migration: "m".to_owned(),
            table: "u".to_owned(),
            key: PrimaryKey { partition: KeyValue::S(number.to_string()), sort: None },
            adopts: false,
        };
        // The fourth target occurs twice.
        let said = [1, 2, 3, 4, 4, 5, 6].map(|number| {
            (number, Effect::Registers { target: target(number), registers: source(number) })
        });
        let folded: Vec<Folded> = some_targets(said.into_iter(), 3).collect();
        let targets: Vec<Vec<Target>> =
            folded.iter().map(|folded| folded.registers.keys().cloned().collect()).collect();
        assert_eq!(
            targets,
            [vec![target(1), target(2), target(3)], vec![target(4), target(5), target(6)]]
        );
        assert_eq!(some_targets(std::iter::empty(), 3).count(), 0);
        for (mut folded, sizes) in folded.into_iter().zip([[2, 1], [2, 1]]) {
            let batches = batches(&mut folded, 2);
            assert_eq!(folded, Folded::default());
            assert_eq!(
                batches.iter().map(|batch| batch.registers.len()).collect::<Vec<_>>(),
                sizes
            );
        }
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
