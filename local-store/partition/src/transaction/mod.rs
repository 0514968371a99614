//! Transactions: several operations on several items, applied atomically.
//!
//! A transaction in one arc is one command, so no other command runs between its operations, and
//! the order of the log makes transactions serializable (see
//! `docs/decisions/0005-transactions-are-one-log-entry.md`). Transactions over several arcs are in
//! `two_phase_commit`. Each operation is an ordinary write (see `write`); this module applies all
//! operations or none. Source: AWS, "DynamoDB transactions: how it works".

pub(crate) mod locks;
pub(crate) mod state;
#[cfg(test)]
mod tests;
pub(crate) mod two_phase_commit;
#[cfg(test)]
mod two_phase_commit_tests;

use model::EpochMillis;
use model::limits::REQUEST_TOKEN_LIFE_MS;

use crate::catalogue::Catalogue;
use crate::command::reply::{CancellationReason, Reply, Written};
use crate::command::{Transaction, Write};
use crate::entry::sequence::Sequence;
use crate::keys::item;
use crate::keys::request_token::{self, TokenResult};
use crate::mutation::{self, Mutation};
use crate::storage::overlay::Overlay;
use crate::storage::{ReadError, View};
use crate::transaction::locks::Locks;
use crate::write;

/// The maximum number of expired tokens that one command deletes, so that no batch becomes too
/// large.
const FORGOTTEN_MAX: usize = 1000;
/// DynamoDB's message for a transaction that is too large.
pub const TRANSACTION_TOO_LARGE: &str = "Transaction payload size cannot exceed 4 MB";

/// Applies a transaction, unless an earlier transaction with the same token was applied.
pub(crate) fn apply(
    overlay: &mut Overlay<'_>,
    catalogue: &Catalogue,
    locks: &Locks,
    first: Sequence,
    now: EpochMillis,
    transaction: &Transaction,
) -> Result<Reply, ReadError> {
    let Transaction { token, operations } = transaction;
    let fingerprint = if token.is_some() { fingerprint(operations)? } else { 0 };
    if let Some(token) = token
        && let Some(reply) = find_token_result(overlay, now, token, fingerprint)?
    {
        return Ok(reply);
    }
    if let Some(reasons) = locks.conflicts(operations) {
        return Ok(Reply::TransactionCancelled(reasons));
    }
    // The operations run in a separate overlay, which becomes part of the state only if all
    // operations succeed.
    let mut attempt = Overlay::new(overlay);
    let writes = match attempt_all(&mut attempt, catalogue, first, now, operations)? {
        Ok(writes) => writes,
        Err(refusal) => return Ok(refusal),
    };
    let made = attempt.into_batch();
    overlay.adopt(made);
    if let Some(token) = token
        && !mutation::is_active(Mutation::ForgetToken)
    {
        let sizes = writes.iter().map(|written| (written.old_bytes, written.new_bytes)).collect();
        record_token_result(overlay, now, token, fingerprint, sizes)?;
    }
    Ok(Reply::Transacted { writes, repeated: false })
}

/// Applies every operation, even after one has failed, so that each operation has its cancellation
/// reason.
pub(crate) fn attempt_all(
    attempt: &mut Overlay<'_>,
    catalogue: &Catalogue,
    first: Sequence,
    now: EpochMillis,
    operations: &[Write],
) -> Result<Result<Vec<Written>, Reply>, ReadError> {
    let mut writes = Vec::with_capacity(operations.len());
    let mut reasons = Vec::with_capacity(operations.len());
    for (position, operation) in (first.position..).zip(operations) {
        let Some(table) = catalogue.get(operation.table) else {
            return Ok(Err(Reply::TableNotFound));
        };
        let sequence = Sequence { position, ..first };
        let stored = item::encode(table.id, &operation.key);
        let reason = match write::apply_write(attempt, table, sequence, now, operation, stored)? {
            Reply::Written(written) => {
                writes.push(written);
                CancellationReason::None
            }
            Reply::ConditionFailed { item, .. } => CancellationReason::ConditionFailed { item },
            Reply::Invalid(text) => CancellationReason::Invalid(text),
            Reply::ItemCollectionTooLarge => CancellationReason::ItemCollectionTooLarge,
            Reply::EmptyIndexKey(text) => return Ok(Err(Reply::Invalid(text))),
            other => return Ok(Err(other)),
        };
        reasons.push(reason);
    }
    let made_whole = writes.is_empty() || !mutation::is_active(Mutation::PartialTransaction);
    if made_whole && reasons.iter().any(|reason| *reason != CancellationReason::None) {
        return Ok(Err(Reply::TransactionCancelled(reasons)));
    }
    Ok(Ok(writes))
}

/// Returns the result of the transaction with the given token, if this arc has applied it and the
/// token has not expired. Returns `TokenMismatch` if the token belongs to another transaction.
///
/// # Errors
/// When the storage cannot be read.
pub fn find_result(
    view: &dyn View,
    now: EpochMillis,
    transaction: &Transaction,
) -> Result<Option<Reply>, ReadError> {
    let Some(token) = &transaction.token else { return Ok(None) };
    find_token_result(view, now, token, fingerprint(&transaction.operations)?)
}

/// Does the same as [`find_result`] for a token and a fingerprint.
pub(crate) fn find_token_result(
    view: &dyn View,
    now: EpochMillis,
    token: &str,
    fingerprint: u128,
) -> Result<Option<Reply>, ReadError> {
    Ok(remembered(view, now, token)?.map(|known| repeat(&known, fingerprint)))
}

/// Returns whether this arc has applied a transaction with this token and the token has not
/// expired.
///
/// # Errors
/// When the storage cannot be read.
pub fn is_remembered(view: &dyn View, now: EpochMillis, token: &str) -> Result<bool, ReadError> {
    Ok(remembered(view, now, token)?.is_some())
}

fn remembered(
    view: &dyn View,
    now: EpochMillis,
    token: &str,
) -> Result<Option<TokenResult>, ReadError> {
    Ok(request_token::read(view, token)?.filter(|known| now < known.expires_at))
}

/// Stores the result of the transaction with a token. Replaces an expired result of the same token.
pub(crate) fn record_token_result(
    overlay: &mut Overlay<'_>,
    now: EpochMillis,
    token: &str,
    fingerprint: u128,
    sizes: Vec<(usize, usize)>,
) -> Result<(), ReadError> {
    if let Some(known) = request_token::read(overlay, token)? {
        request_token::delete(overlay, token, known.expires_at);
    }
    let expires_at = EpochMillis(now.0.saturating_add(REQUEST_TOKEN_LIFE_MS));
    request_token::write(overlay, token, &TokenResult { fingerprint, expires_at, sizes })
}

fn repeat(known: &TokenResult, fingerprint: u128) -> Reply {
    if known.fingerprint != fingerprint {
        return Reply::TokenMismatch;
    }
    let written = |&(old_bytes, new_bytes)| Written { old_bytes, new_bytes, ..Written::default() };
    Reply::Transacted { writes: known.sizes.iter().map(written).collect(), repeated: true }
}

/// Returns a hash that identifies the operations of a transaction.
///
/// # Errors
/// When the operations cannot be encoded, which is a bug.
pub fn fingerprint(operations: &[Write]) -> Result<u128, ReadError> {
    let bytes = postcard::to_stdvec(operations)
        .map_err(|error| ReadError(format!("cannot encode a transaction: {error}")))?;
    Ok(xxhash_rust::xxh3::xxh3_128(&bytes))
}

/// Deletes the next expired tokens. Returns whether more expired tokens remain.
pub(crate) fn forget_tokens(
    overlay: &mut Overlay<'_>,
    now: EpochMillis,
) -> Result<bool, ReadError> {
    let expired = request_token::find_expired(overlay, now, FORGOTTEN_MAX)?;
    let more = expired.len() == FORGOTTEN_MAX;
    for (expires_at, token) in expired {
        request_token::delete(overlay, &token, expires_at);
    }
    Ok(more)
}

/// Returns whether there are expired tokens to delete.
///
/// # Errors
/// When the storage cannot be read.
pub fn has_expired_tokens(view: &dyn View, now: EpochMillis) -> Result<bool, ReadError> {
    Ok(!request_token::find_expired(view, now, 1)?.is_empty())
}
