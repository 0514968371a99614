//! Keeps the newest row of a key, for any order of puts, even concurrent puts of one key.
//!
//! A row is put in three cases: the table has no item of its key, it has a migration's tombstone,
//! or it has an unchanged item that was restored from an older row of the same archive. The put has
//! the condition that the table still has this item. If the condition fails, the row is compared
//! with the new item. An item that another writer wrote is never replaced.

use model::Item;
use rules::marks::restored::{self, Origin};
use rules::migration::is_bare_tombstone_of;

use super::PUTS_AT_ONCE;
use super::form::Form;
use client::failure::{Failure, Result};

/// Maximum number of comparisons for a row. Each comparison after the first follows a put of
/// another row of the key, and a batch has at most [`PUTS_AT_ONCE`] rows. Further changes of the
/// item come from other writers.
const LOOKS_MAX: usize = PUTS_AT_ONCE + 2;

/// The result of one put.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum PutResult {
    /// The put succeeded.
    Put,
    /// The condition failed, because the table has this item; `None` if the table has no item, or
    /// if the store did not return the item.
    GuardFailed(Option<Item>),
    /// DynamoDB rejects the item, for this reason.
    Refused(String),
}

/// The result of a row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum RowResult {
    /// The row was restored.
    Restored {
        /// True if the row replaced the item of an older row, or a tombstone.
        replaces: bool,
    },
    /// The existing item was kept.
    Kept(KeepReason),
    /// The row could not be put, for this reason.
    Skipped(String),
}

/// The reason why an existing item is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum KeepReason {
    /// The item was restored from the same row or a newer row.
    Newer,
    /// Another writer wrote or changed the item, or it was restored from another table's archive.
    Written,
}

/// Decides whether a row replaces the item in the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RowDecision {
    /// The row replaces the item.
    Put,
    /// The existing item is kept.
    Keep(KeepReason),
}

/// Puts a row with `attempt`, which gets the expected current item, or `None` for no item.
///
/// # Errors
/// When an attempt fails, or the item changes at every attempt.
pub(super) async fn put_newest(
    origin: Origin<'_>,
    form: &Form,
    attempt: impl AsyncFn(Option<&Item>) -> Result<PutResult>,
) -> Result<RowResult> {
    let mut live: Option<Item> = None;
    for _ in 0..LOOKS_MAX {
        match attempt(live.as_ref()).await? {
            PutResult::Put => return Ok(RowResult::Restored { replaces: live.is_some() }),
            PutResult::Refused(reason) => return Ok(RowResult::Skipped(reason)),
            PutResult::GuardFailed(Some(item)) => match verdict(Some(&item), origin, form) {
                RowDecision::Put => live = Some(item),
                RowDecision::Keep(kept) => return Ok(RowResult::Kept(kept)),
            },
            // The item was deleted between the read and the put.
            PutResult::GuardFailed(None) if live.is_some() => live = None,
            PutResult::GuardFailed(None) => return Ok(RowResult::Kept(KeepReason::Written)),
        }
    }
    Err(Failure::Retry(format!(
        "the item of event `{}` changed at each of {LOOKS_MAX} attempts; stop the other restore, and run the command again",
        origin.event_id
    )))
}

/// Decides whether a row replaces `live`. The row replaces it in three cases: there is no item;
/// there is a tombstone (which readers treat as no item); or there is an unchanged item that was
/// restored from an older row of the same archive. A tombstone that another writer updated counts
/// as an item.
pub(super) fn verdict(live: Option<&Item>, origin: Origin<'_>, form: &Form) -> RowDecision {
    let Some(live) = live else { return RowDecision::Put };
    let is_key = |name: &str| form.is_key(name);
    if is_bare_tombstone_of(live, is_key) {
        return RowDecision::Put;
    }
    match restored::stamp_of(live) {
        Some(known) if restored::is_as_restored(live, origin.table, is_key) => {
            if known < origin.stamp {
                RowDecision::Put
            } else {
                RowDecision::Keep(KeepReason::Newer)
            }
        }
        _ => RowDecision::Keep(KeepReason::Written),
    }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use futures::future::join_all;
    use model::AttributeValue;
    use proptest::prelude::*;
    use rules::marks::restored::RESTORED;

    use super::*;

    fn form() -> Form {
        Form { keys: vec!["id".to_owned()], ..Form::default() }
    }

    fn row(number: usize, table: &str) -> Item {
        let text = |text: String| AttributeValue::S(text);
        let item = Item::new().with("id", text("k".to_owned())).with("n", text(number.to_string()));
        let stamp = format!("{number:04}");
        let mark = restored::mark(
            &item,
            Origin { archive: None, table, event_id: "e", stamp: &stamp },
            None,
        );
        item.with(RESTORED, mark)
    }

    /// Puts rows of one key concurrently; `waits` are the durations of the puts.
    async fn put_all(
        cell: &RefCell<Option<Item>>,
        numbers: &[usize],
        waits: &[usize],
    ) -> Vec<RowResult> {
        let waits = RefCell::new(waits.iter().cycle());
        let puts = numbers.iter().map(async |number| {
            let stamp = format!("{number:04}");
            let origin = Origin { archive: None, table: "t", event_id: "e", stamp: &stamp };
            let attempt = async |expected: Option<&Item>| {
                let turns = *waits.borrow_mut().next().unwrap();
                for _ in 0..turns {
                    tokio::task::yield_now().await;
                }
                let mut live = cell.borrow_mut();
                if live.as_ref() != expected {
                    return Ok(PutResult::GuardFailed(live.clone()));
                }
                *live = Some(row(*number, "t"));
                Ok(PutResult::Put)
            };
            put_newest(origin, &form(), attempt).await.unwrap()
        });
        join_all(puts).await
    }

    fn block_on<F: Future>(work: F) -> F::Output {
        tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(work)
    }

    proptest! {
        #[test]
        fn the_newest_of_rows_that_are_put_at_once_stays(
            numbers in prop::collection::vec(0..40_usize, 1..32),
            waits in prop::collection::vec(0..6_usize, 1..20),
        ) {
            let cell = RefCell::new(None);
            block_on(put_all(&cell, &numbers, &waits));
            let newest = numbers.iter().max().unwrap();
            prop_assert_eq!(cell.into_inner(), Some(row(*newest, "t")));
        }
    }

    #[test]
    fn items_of_other_writers_and_other_archives_are_kept() {
        let item = |text: &str| model::json::item_from_str(text).unwrap();
        let gone = r#"{"id":{"S":"k"},"_weir":{"M":{"at":{"S":"x"},"gone":{"BOOL":true}}}}"#;
        let written = item(gone).with("n", AttributeValue::Null);
        let changed = row(1, "t").with("n", AttributeValue::S("changed".to_owned()));
        let put = |replaces| RowResult::Restored { replaces };
        let (newer, other) =
            (RowResult::Kept(KeepReason::Newer), RowResult::Kept(KeepReason::Written));
        for (live, fate) in [
            (None, put(false)),
            (Some(row(1, "t")), put(true)),
            (Some(row(5, "t")), newer.clone()),
            (Some(row(9, "t")), newer),
            (Some(row(1, "other")), other.clone()),
            (Some(changed), other.clone()),
            (Some(item(gone)), put(true)),
            (Some(written), other.clone()),
            (Some(Item::new().with("id", AttributeValue::S("k".to_owned()))), other),
        ] {
            let cell = RefCell::new(live.clone());
            let fates = block_on(put_all(&cell, &[5], &[0]));
            assert_eq!(fates, std::slice::from_ref(&fate), "{live:?}");
            let stands =
                if matches!(fate, RowResult::Restored { .. }) { Some(row(5, "t")) } else { live };
            assert_eq!(cell.into_inner(), stands);
        }
        let refused = block_on(put_newest(
            Origin { archive: None, table: "t", event_id: "e", stamp: "1" },
            &form(),
            async |_| Ok(PutResult::Refused("too large".to_owned())),
        ));
        assert_eq!(refused, Ok(RowResult::Skipped("too large".to_owned())));
    }
}
