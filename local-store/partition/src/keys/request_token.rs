//! Keys: `[10] token`, whose value is the result of the transaction with this token; and `[11]
//! expires-at-ms:u64 token`, with an empty value, which lists tokens by expiry time.
//!
//! The module `transaction` explains tokens.

use std::ops::ControlFlow;

use model::EpochMillis;
use serde::{Deserialize, Serialize};

use super::{Family, decode_value, encode_value, take};
use crate::storage::overlay::Overlay;
use crate::storage::{ReadError, View};

/// A transaction that was committed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct TokenResult {
    /// Hash of the operations, to detect that a request reuses the token for other operations.
    pub(crate) fingerprint: u128,
    /// The time at which the token expires.
    pub(crate) expires_at: EpochMillis,
    /// For each operation: the size of the item in bytes before and after.
    pub(crate) sizes: Vec<(usize, usize)>,
}

fn key(token: &str) -> Vec<u8> {
    [&[Family::RequestToken as u8], token.as_bytes()].concat()
}

fn expiry_key(expires_at: EpochMillis, token: &str) -> Vec<u8> {
    [&[Family::RequestTokenExpiry as u8][..], &expires_at.0.to_be_bytes(), token.as_bytes()]
        .concat()
}

pub(crate) fn read(view: &dyn View, token: &str) -> Result<Option<TokenResult>, ReadError> {
    view.get(&key(token))?.map(|bytes| decode_value(&bytes)).transpose()
}

pub(crate) fn write(
    overlay: &mut Overlay<'_>,
    token: &str,
    remembered: &TokenResult,
) -> Result<(), ReadError> {
    overlay.put(key(token), encode_value(remembered)?);
    overlay.put(expiry_key(remembered.expires_at, token), Vec::new());
    Ok(())
}

/// Deletes a token and its result, if they are stored.
pub(crate) fn delete(overlay: &mut Overlay<'_>, token: &str, expires_at: EpochMillis) {
    overlay.delete(key(token));
    overlay.delete(expiry_key(expires_at, token));
}

/// Returns at most `limit` expired tokens and their expiry times, the oldest first.
pub(crate) fn find_expired(
    view: &dyn View,
    now: EpochMillis,
    limit: usize,
) -> Result<Vec<(EpochMillis, String)>, ReadError> {
    let mut found = Ok(Vec::new());
    let from = [Family::RequestTokenExpiry as u8];
    let to = expiry_key(EpochMillis(now.0.saturating_add(1)), "");
    view.scan(&from, &to, false, &mut |key, _| {
        let Ok(tokens) = &mut found else { return ControlFlow::Break(()) };
        if tokens.len() == limit {
            return ControlFlow::Break(());
        }
        match decode_expiry(key) {
            Some(expired) => tokens.push(expired),
            None => found = Err(ReadError(format!("damaged request token key: {key:02x?}"))),
        }
        ControlFlow::Continue(())
    })?;
    found
}

fn decode_expiry(key: &[u8]) -> Option<(EpochMillis, String)> {
    let (expires_at, token) = take::<8>(key.get(1..)?)?;
    Some((EpochMillis(u64::from_be_bytes(expires_at)), String::from_utf8(token.to_vec()).ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::storage::testing::MapStorage;

    #[test]
    fn tokens_are_found_when_they_expire() {
        let mut storage = MapStorage::default();
        let below = storage.clone();
        let mut overlay = Overlay::new(&below);
        let remembered = |at| TokenResult {
            fingerprint: u128::MAX,
            expires_at: EpochMillis(at),
            sizes: vec![(0, 7)],
        };
        for (token, at) in [("b", 300), ("a", 301), ("", 5)] {
            write(&mut overlay, token, &remembered(at)).unwrap();
        }
        storage.apply(overlay.into_batch());
        assert_eq!(read(&storage, "b"), Ok(Some(remembered(300))));
        assert_eq!(read(&storage, "c"), Ok(None));
        let expired = |now, limit| find_expired(&storage, EpochMillis(now), limit).unwrap();
        assert_eq!(
            expired(300, 9),
            [(EpochMillis(5), String::new()), (EpochMillis(300), "b".to_owned())]
        );
        assert_eq!(expired(u64::MAX, 1).len(), 1);
        assert_eq!(expired(4, 9), []);
        let below = storage.clone();
        let mut overlay = Overlay::new(&below);
        delete(&mut overlay, "b", EpochMillis(300));
        storage.apply(overlay.into_batch());
        assert_eq!((read(&storage, "b"), storage.0.len()), (Ok(None), 4));
    }
}
