//! Keys of transactions over several arcs:
//!
//! - `[15] id:u128`: the operations that a transaction has prepared in this arc.
//! - `[16] began-ms:u64 id:u128`, with an empty value: a transaction that has ended in this arc.
//! - `[17] began-ms:u64 id:u128`: this arc's decision about a transaction.
//! - `[18] began-ms:u64 id:u128`: the same decision, once every arc has applied it.
//! - `[19]`: the number of steps of such transactions in this arc.
//!
//! The module `transaction::two_phase_commit` describes the steps of a transaction.

use std::ops::ControlFlow;

use model::EpochMillis;
use serde::de::DeserializeOwned;

use super::{Family, decode_value, encode_value};
use crate::storage::overlay::Overlay;
use crate::storage::{ReadError, View};
use crate::transaction::state::{Decision, Prepared, PreparedHead, TransactionId};

fn key(id: TransactionId) -> Vec<u8> {
    [&[Family::Prepared as u8][..], &id.0.to_be_bytes()].concat()
}

fn timed(family: Family, began: EpochMillis, id: TransactionId) -> Vec<u8> {
    [&[family as u8][..], &began.0.to_be_bytes(), &id.0.to_be_bytes()].concat()
}

fn read<T: DeserializeOwned>(view: &dyn View, key: &[u8]) -> Result<Option<T>, ReadError> {
    view.get(key)?.map(|value| decode_value(&value)).transpose()
}

/// Returns all values of a family whose keys end with a transaction id.
fn read_all<T: DeserializeOwned>(
    view: &dyn View,
    family: Family,
) -> Result<Vec<(TransactionId, T)>, ReadError> {
    let mut all = Ok(Vec::new());
    let (from, to) = ([family as u8], [family as u8 + 1]);
    view.scan(&from, &to, false, &mut |key, value| {
        let Ok(found) = &mut all else { return ControlFlow::Break(()) };
        match (key.last_chunk::<16>(), decode_value(value)) {
            (Some(id), Ok(value)) => found.push((TransactionId(u128::from_be_bytes(*id)), value)),
            (_, Err(error)) => all = Err(error),
            (None, _) => all = Err(ReadError(format!("damaged transaction key: {key:02x?}"))),
        }
        ControlFlow::Continue(())
    })?;
    all
}

pub(crate) fn read_prepared(
    view: &dyn View,
    id: TransactionId,
) -> Result<Option<Prepared>, ReadError> {
    read(view, &key(id))
}

pub(crate) fn read_all_prepared(
    view: &dyn View,
) -> Result<Vec<(TransactionId, Prepared)>, ReadError> {
    read_all(view, Family::Prepared)
}

/// Returns the head of each prepared transaction, without decoding its items.
pub(crate) fn read_prepared_heads(
    view: &dyn View,
) -> Result<Vec<(TransactionId, PreparedHead)>, ReadError> {
    read_all(view, Family::Prepared)
}

pub(crate) fn write_prepared(
    overlay: &mut Overlay<'_>,
    id: TransactionId,
    prepared: &Prepared,
) -> Result<(), ReadError> {
    overlay.insert(key(id), encode_value(prepared)?);
    Ok(())
}

/// Records that a transaction has ended in this arc, so that late messages about it are recognised,
/// and deletes its prepared operations.
pub(crate) fn finish(overlay: &mut Overlay<'_>, id: TransactionId, began: EpochMillis) {
    overlay.delete(key(id));
    overlay.insert(timed(Family::FinishedTransaction, began, id), Vec::new());
}

pub(crate) fn is_finished(
    view: &dyn View,
    began: EpochMillis,
    id: TransactionId,
) -> Result<bool, ReadError> {
    Ok(view.get(&timed(Family::FinishedTransaction, began, id))?.is_some())
}

pub(crate) fn read_decision(
    view: &dyn View,
    began: EpochMillis,
    id: TransactionId,
) -> Result<Option<Decision>, ReadError> {
    match read(view, &timed(Family::Decision, began, id))? {
        Some(decision) => Ok(Some(decision)),
        None => read(view, &timed(Family::SettledDecision, began, id)),
    }
}

pub(crate) fn read_unsettled(view: &dyn View) -> Result<Vec<(TransactionId, Decision)>, ReadError> {
    read_all(view, Family::Decision)
}

/// Stores a decision, as settled or as unsettled.
pub(crate) fn write_decision(
    overlay: &mut Overlay<'_>,
    id: TransactionId,
    decision: &Decision,
    settled: bool,
) -> Result<(), ReadError> {
    let open = timed(Family::Decision, decision.began, id);
    if settled {
        overlay.delete(open);
        let over = timed(Family::SettledDecision, decision.began, id);
        overlay.put(over, encode_value(decision)?);
    } else {
        overlay.insert(open, encode_value(decision)?);
    }
    Ok(())
}

/// Returns the keys of the next transactions that have ended and that began before a time, oldest
/// first.
pub(crate) fn find_old(
    view: &dyn View,
    before: EpochMillis,
    limit: usize,
) -> Result<Vec<Vec<u8>>, ReadError> {
    let mut found = Vec::new();
    for family in [Family::FinishedTransaction, Family::SettledDecision] {
        let to = timed(family, before, TransactionId(0));
        view.scan(&[family as u8], &to, false, &mut |key, _| {
            if found.len() == limit {
                return ControlFlow::Break(());
            }
            found.push(key.to_vec());
            ControlFlow::Continue(())
        })?;
    }
    Ok(found)
}

/// Returns the number of steps that transactions over several arcs have taken in this arc.
pub(crate) fn read_steps(view: &dyn View) -> Result<u64, ReadError> {
    Ok(read(view, &[Family::TransactionSteps as u8])?.unwrap_or(0))
}

pub(crate) fn count_step(overlay: &mut Overlay<'_>) -> Result<(), ReadError> {
    let steps = read_steps(overlay)? + 1;
    overlay.put(vec![Family::TransactionSteps as u8], encode_value(&steps)?);
    Ok(())
}
