//! `GetShardIterator`: returns an iterator, which contains the position in a shard to read from.
//!
//! `shard_iterator` encodes an iterator as a string.

use model::EpochMillis;
use partition::{Sequence, Shard, Table, View, find_first_since, read_last_sequence};

use super::answer::text_member;
use super::constraints::Constraints;
use super::error::ApiError;
use super::parameters::Parameters;
use super::shard_iterator::{Place, ShardIterator};
use super::streams::{self, FoundStream};
use crate::store::Store;

const TYPES: &[&str] =
    &["AFTER_SEQUENCE_NUMBER", "LATEST", "AT_SEQUENCE_NUMBER", "TRIM_HORIZON", "AT_TIMESTAMP"];
/// The length of a sequence number, both bounds inclusive (AWS API reference, `GetShardIterator`).
const SEQUENCE_NUMBER_LENGTH: (usize, usize) = (21, 40);

pub(super) fn get_shard_iterator(
    store: &Store,
    parameters: Parameters<'_>,
) -> Result<String, ApiError> {
    let arn = parameters.string("StreamArn")?;
    let shard_id = parameters.string("ShardId")?;
    let iterator_type = parameters.string("ShardIteratorType")?;
    let sequence = parameters.string("SequenceNumber")?;
    let time_ms = parameters.time_ms("Timestamp")?;

    let mut constraints = Constraints::new();
    streams::constrain_arn(&mut constraints, arn);
    constraints.required("shardId", shard_id.is_some());
    streams::constrain_shard_id(&mut constraints, "shardId", shard_id);
    constraints.required("shardIteratorType", iterator_type.is_some());
    constraints.one_of("shardIteratorType", iterator_type, TYPES);
    if let Some(sequence) = sequence {
        let (min, max) = SEQUENCE_NUMBER_LENGTH;
        constraints.length("sequenceNumber", sequence, min, max);
    }
    constraints.finish()?;
    let (arn, shard_id) = (arn.unwrap_or_default(), shard_id.unwrap_or_default());

    let found = FoundStream::find(store, arn)?;
    let (_, shard) = found.shard(shard_id, arn)?;
    let iterator_type = iterator_type.unwrap_or_default();
    check_companions(iterator_type, sequence.is_some(), time_ms.is_some())?;
    let view = store.view();
    let place = match (iterator_type, sequence, time_ms) {
        ("TRIM_HORIZON", ..) => Place::TrimHorizon,
        ("LATEST", ..) => latest(&*view, &found.table, shard)?,
        ("AT_TIMESTAMP", _, Some(time_ms)) => {
            let time = EpochMillis(time_ms);
            if time > store.now() {
                return Err(ApiError::invalid_parameter("Timestamp must not be in the future"));
            }
            since(&*view, &found.table, shard, time)?
        }
        ("AFTER_SEQUENCE_NUMBER", Some(text), _) => Place::After(sequence_of_shard(text, shard)?),
        ("AT_SEQUENCE_NUMBER", Some(text), _) => Place::At(sequence_of_shard(text, shard)?),
        _ => return Err(ApiError::defect("an invalid iterator type passed validation")),
    };
    check_not_trimmed(place, shard)?;
    let iterator = ShardIterator { shard_id: shard.id.clone(), place, issued_at: store.now() };
    let mut out = String::from("{");
    text_member(&mut out, "ShardIterator", &iterator.to_text(arn, store.token_key())?);
    out.push('}');
    Ok(out)
}

/// Checks that the request has the parameter that the iterator type requires, and no parameter that
/// the type does not allow.
fn check_companions(
    iterator_type: &str,
    has_sequence: bool,
    has_time: bool,
) -> Result<(), ApiError> {
    let needs_sequence = matches!(iterator_type, "AT_SEQUENCE_NUMBER" | "AFTER_SEQUENCE_NUMBER");
    let needs_time = iterator_type == "AT_TIMESTAMP";
    for (name, needs, has) in
        [("SequenceNumber", needs_sequence, has_sequence), ("Timestamp", needs_time, has_time)]
    {
        if needs != has {
            let verb = if needs { "must" } else { "can not" };
            return Err(ApiError::invalid_parameter(format!(
                "{name} {verb} be specified when ShardIteratorType is {iterator_type}"
            )));
        }
    }
    Ok(())
}

/// Returns the position of the first record that was created at `time` or later; if there is no
/// such record, the position after all records. As in DynamoDB, returns the trim horizon if records
/// of this time may already have been trimmed.
fn since(
    view: &dyn View,
    table: &Table,
    shard: &Shard,
    time: EpochMillis,
) -> Result<Place, ApiError> {
    match find_first_since(view, table, shard, time)? {
        Some(first) if shard.trimmed.is_some_and(|trimmed| first <= trimmed) => {
            Ok(Place::TrimHorizon)
        }
        Some(first) => Ok(Place::At(first)),
        None => latest(view, table, shard),
    }
}

/// Returns the position after all records that were acknowledged before this request.
fn latest(view: &dyn View, table: &Table, shard: &Shard) -> Result<Place, ApiError> {
    Ok(read_last_sequence(view, table, shard)?.map_or(Place::TrimHorizon, Place::After))
}

/// Parses a sequence number, which must be in the range of the shard.
fn sequence_of_shard(text: &str, shard: &Shard) -> Result<Sequence, ApiError> {
    let sequence: Option<Sequence> = text.parse().ok();
    sequence
        .filter(|sequence| {
            *sequence >= shard.first && shard.last.is_none_or(|last| *sequence <= last)
        })
        .ok_or_else(|| {
            ApiError::validation(format!(
                "Invalid SequenceNumber: {text} is not in the range of Shard: {}",
                shard.id
            ))
        })
}

/// Rejects a position whose next record was trimmed.
pub(crate) fn check_not_trimmed(place: Place, shard: &Shard) -> Result<(), ApiError> {
    let misses = match (place, shard.trimmed) {
        (Place::TrimHorizon, _) | (_, None) => false,
        (Place::At(sequence), Some(trimmed)) => sequence <= trimmed,
        (Place::After(sequence), Some(trimmed)) => sequence < trimmed,
    };
    if misses { Err(ApiError::trimmed()) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use model::EpochMillis;
    use partition::ShardNumber;

    use super::*;

    #[test]
    fn only_missed_records_are_an_error() {
        let sequence = |index| Sequence { index, position: 0 };
        let shard = |trimmed: Option<u64>| Shard {
            number: ShardNumber(0),
            id: "shardId-00000001795000000000-0a1b2c3d".to_owned(),
            parent: None,
            first: sequence(1),
            last: None,
            opened_at: EpochMillis(0),
            closed_at: None,
            trimmed: trimmed.map(sequence),
        };
        for (place, trimmed, is_ok) in [
            (Place::TrimHorizon, Some(5), true),
            (Place::At(sequence(1)), None, true),
            (Place::At(sequence(5)), Some(5), false),
            (Place::At(sequence(6)), Some(5), true),
            (Place::After(sequence(4)), Some(5), false),
            (Place::After(sequence(5)), Some(5), true),
        ] {
            let outcome = check_not_trimmed(place, &shard(trimmed));
            assert_eq!(outcome.is_ok(), is_ok, "{place:?} {trimmed:?}");
        }
    }

    #[test]
    fn sequence_numbers_belong_to_their_shard() {
        let sequence = |index| Sequence { index, position: 0 };
        let shard = Shard {
            number: ShardNumber(0),
            id: "shardId-00000001795000000000-0a1b2c3d".to_owned(),
            parent: None,
            first: sequence(3),
            last: Some(sequence(9)),
            opened_at: EpochMillis(0),
            closed_at: Some(EpochMillis(1)),
            trimmed: None,
        };
        for (index, is_ok) in [(2, false), (3, true), (9, true), (10, false)] {
            let text = sequence(index).to_string();
            assert_eq!(sequence_of_shard(&text, &shard).is_ok(), is_ok, "{index}");
        }
        assert!(sequence_of_shard("999999999999999999999999", &shard).is_err());
    }
}
