//! Shard iterators: the opaque strings that `GetShardIterator` and `GetRecords` return.
//!
//! The string is `<stream ARN>|2|<hexadecimal bytes>`. The bytes are the postcard encoding of a
//! [`ShardIterator`] and a MAC with the store's key. The MAC also covers the ARN. Therefore a client
//! cannot forge an iterator, or use it for another stream, account or Region.

use std::fmt::Write as _;

use model::EpochMillis;
use model::limits::ITERATOR_LIFE_MS;
use partition::Sequence;
use serde::{Deserialize, Serialize};

use super::error::ApiError;
use crate::mac::MAC_BYTES;
use crate::token_key::TokenKey;

/// The version of the string format.
const VERSION: &str = "2";
/// The domain of the MACs of iterators. A MAC of another domain is invalid for an iterator.
const KIND: &str = "shard iterator";

/// The position of an iterator in its shard.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Place {
    /// The oldest record that still exists when the iterator is used.
    TrimHorizon,
    /// The record with the given sequence number and all later records.
    At(Sequence),
    /// The records after the given sequence number.
    After(Sequence),
}

/// A shard iterator.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ShardIterator {
    pub(crate) shard_id: String,
    pub(crate) place: Place,
    /// The time when the iterator was issued. An iterator is valid for 15 minutes.
    pub(crate) issued_at: EpochMillis,
}

impl ShardIterator {
    /// Encodes the iterator as a string.
    pub(crate) fn to_text(&self, stream_arn: &str, key: &TokenKey) -> Result<String, ApiError> {
        let bytes = postcard::to_stdvec(self).map_err(|error| {
            ApiError::defect(&format!("cannot encode a shard iterator: {error}"))
        })?;
        let mac = key.mac(KIND, stream_arn, &bytes);
        let mut text = String::with_capacity(stream_arn.len() + 2 * bytes.len() + 40);
        let _ = write!(text, "{stream_arn}|{VERSION}|");
        for byte in bytes.iter().chain(&mac) {
            let _ = write!(text, "{byte:02x}");
        }
        Ok(text)
    }

    /// Parses an iterator that this store has issued. Returns the ARN of the stream, and the iterator.
    pub(crate) fn from_text<'t>(
        text: &'t str,
        key: &TokenKey,
    ) -> Result<(&'t str, Self), ApiError> {
        let invalid = || {
            ApiError::validation(
                "Invalid ShardIterator: neither GetShardIterator nor GetRecords returned this value",
            )
        };
        let (rest, digits) = text.rsplit_once('|').ok_or_else(invalid)?;
        let (arn, version) = rest.rsplit_once('|').ok_or_else(invalid)?;
        let bytes = decode_hexadecimal(digits).ok_or_else(invalid)?;
        let (bytes, mac) = bytes.split_last_chunk::<MAC_BYTES>().ok_or_else(invalid)?;
        if version != VERSION || !key.verify(KIND, arn, bytes, mac) {
            return Err(invalid());
        }
        let iterator = postcard::from_bytes(bytes).map_err(|_| invalid())?;
        Ok((arn, iterator))
    }

    /// Refuses an iterator that is older than 15 minutes by the store's clock.
    pub(crate) fn check_age(&self, now: EpochMillis) -> Result<(), ApiError> {
        let age_ms = now.since(self.issued_at);
        if age_ms > ITERATOR_LIFE_MS {
            return Err(ApiError::expired_iterator(age_ms, ITERATOR_LIFE_MS));
        }
        Ok(())
    }
}

/// Decodes hexadecimal digits; `None` if they are malformed.
pub(super) fn decode_hexadecimal(digits: &str) -> Option<Vec<u8>> {
    let (pairs, rest) = digits.as_bytes().as_chunks::<2>();
    if !rest.is_empty() {
        return None;
    }
    let nibble = |digit: u8| char::from(digit).to_digit(16).and_then(|n| u8::try_from(n).ok());
    pairs.iter().map(|[high, low]| Some(nibble(*high)? << 4 | nibble(*low)?)).collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const ARN: &str =
        "arn:aws:dynamodb:us-east-1:000000000000:table/votes/stream/2026-11-21T02:30:00.000";

    fn key() -> TokenKey {
        TokenKey::new([7; 32])
    }

    fn iterator() -> ShardIterator {
        ShardIterator {
            shard_id: "shardId-00000001795000000000-0a1b2c3d".to_owned(),
            place: Place::After(Sequence { index: 7, position: 3 }),
            issued_at: EpochMillis(1_795_000_000_000),
        }
    }

    #[test]
    fn texts_round_trip() {
        let text = iterator().to_text(ARN, &key()).unwrap();
        assert_eq!(ShardIterator::from_text(&text, &key()), Ok((ARN, iterator())));
        assert!(text.len() <= 2048);
    }

    #[test]
    fn texts_of_other_keys_and_streams_are_refused() {
        let text = iterator().to_text(ARN, &key()).unwrap();
        assert!(ShardIterator::from_text(&text, &TokenKey::new([8; 32])).is_err());
        for (from, to) in
            [("votes", "vote2"), (":000000000000:", ":000000000001:"), ("east", "west")]
        {
            assert!(ShardIterator::from_text(&text.replace(from, to), &key()).is_err(), "{to}");
        }
    }

    #[test]
    fn iterators_live_for_15_minutes() {
        let at = |age| iterator().check_age(iterator().issued_at.plus(age)).is_ok();
        assert!(at(0) && at(15 * 60 * 1000) && !at(15 * 60 * 1000 + 1));
    }

    proptest! {
        #[test]
        fn damaged_texts_are_refused(at in any::<prop::sample::Index>(), with in any::<char>()) {
            let text = iterator().to_text(ARN, &key()).unwrap();
            let at = at.index(text.len());
            prop_assume!(!text[at..].starts_with(with.to_ascii_lowercase()));
            prop_assume!(!text[at..].starts_with(with.to_ascii_uppercase()));
            let damaged = format!("{}{with}{}", &text[..at], &text[at + 1..]);
            prop_assert!(ShardIterator::from_text(&damaged, &key()).is_err());
        }

        #[test]
        fn other_texts_are_refused(text in ".{0,80}") {
            prop_assert!(ShardIterator::from_text(&text, &key()).is_err());
        }
    }
}
