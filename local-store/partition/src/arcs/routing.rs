//! Routing: the arcs that store a key, and the arcs that must run a command.
//!
//! The server reads the key from these arcs, or sends the command to them.

use crate::catalogue::Catalogue;
use crate::command::Command;
use crate::keys::statistics::Statistics;
use crate::keys::{Family, decode_value, encode_value, ring, take};
use crate::storage::{ReadError, Value, end_of_prefix};
use crate::table::Table;
use crate::table::identifiers::TableId;
use crate::table::placement::{ArcId, Placement};
use model::{PrimaryKey, Token};

/// The arcs that store the value of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Location {
    /// One arc.
    In(ArcId),
    /// Every arc stores a part of the value; [`sum_values`] adds up the parts.
    Everywhere,
}

/// The arcs that must run a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Destination {
    /// Only the given arc.
    To(ArcId),
    /// The first arc, which decides about tables; the other arcs adopt the result.
    Definition,
    /// Every arc; each does its own part.
    Everyone,
    /// The arcs that store the command's items.
    Items,
    /// The arc that the sender specifies, for commands that one arc sends to another.
    Addressed,
}

/// Returns the arcs that must run a command. `catalogue` is the catalogue merged from all arcs.
#[must_use]
pub fn destination(catalogue: &Catalogue, command: &Command) -> Destination {
    let of_item = |table: TableId, key: &PrimaryKey| {
        let table = catalogue.get(table);
        Destination::To(table.map_or(ArcId::FIRST, |table| table.arc_of(key)))
    };
    match command {
        Command::CreateTable(_)
        | Command::UpdateTable(_)
        | Command::DeleteTable { .. }
        | Command::UpdateTimeToLive { .. } => Destination::Definition,
        Command::Write(write) => of_item(write.table, &write.key),
        Command::Expire { table, key, .. } => of_item(*table, key),
        Command::SplitPartition { table, partition, .. } => {
            let arc = ArcId::of_number(partition.0);
            let has_part = |table: &Table| table.placement.arcs().contains(&arc);
            let is_there = catalogue.get(*table).is_some_and(|table| has_part(table));
            // A client can name a partition that does not exist. The first arc then rejects the
            // command.
            Destination::To(if is_there { arc } else { ArcId::FIRST })
        }
        Command::Transaction(_) => Destination::Items,
        Command::ChangeRing(_) => Destination::To(ArcId::FIRST),
        // This match has no wildcard pattern, so that each new kind of command is assigned
        // deliberately. A wildcard could run the command in every arc.
        Command::StepTimeToLive { .. }
        | Command::StepIndexes { .. }
        | Command::StepSplits { .. }
        | Command::RotateShards { .. }
        | Command::TrimStreams { .. }
        | Command::PurgeTable { .. }
        | Command::ForgetTokens
        | Command::ForgetTransactions
        | Command::LimitItemCollections { .. } => Destination::Everyone,
        Command::AdoptTable { .. }
        | Command::DropTable { .. }
        | Command::Receive(_)
        | Command::TrimOutbox { .. }
        | Command::Prepare(_)
        | Command::Decide(_)
        | Command::Finish(_)
        | Command::CompleteTransaction { .. } => Destination::Addressed,
    }
}

impl Table {
    /// Returns the arc that stores the item with this key.
    #[must_use]
    pub fn arc_of(&self, key: &PrimaryKey) -> ArcId {
        self.placement.arc_of(key.token())
    }
}

/// Returns the arc that stores the result of the transaction with a client request token.
#[must_use]
pub fn arc_of_token(token: &str, arcs: u32) -> ArcId {
    let hash = xxhash_rust::xxh3::xxh3_64(token.as_bytes());
    ArcId(u32::try_from(hash % u64::from(arcs.max(1))).unwrap_or(0))
}

/// Splits a key into its family, its table and the rest.
fn split_key(key: &[u8]) -> Option<(u8, TableId, &[u8])> {
    let (family, rest) = key.split_first()?;
    let (table, rest) = take::<8>(rest)?;
    Some((*family, TableId(u64::from_be_bytes(table)), rest))
}

fn number(bytes: &[u8]) -> Option<u32> {
    take::<4>(bytes).map(|(number, _)| u32::from_be_bytes(number))
}

fn token(bytes: &[u8]) -> Option<Token> {
    take::<8>(bytes).map(|(token, _)| Token(u64::from_be_bytes(token)))
}

/// Returns the arcs that hold the value of a key.
///
/// # Errors
/// When keys of this family cannot be read across arcs.
pub fn locate(catalogue: &Catalogue, key: &[u8]) -> Result<Location, ReadError> {
    let unknown = || ReadError(format!("cannot find the arc of the key: {key:02x?}"));
    if key == ring::KEY {
        return Ok(Location::In(ArcId::FIRST));
    }
    let (family, table, rest) = split_key(key).ok_or_else(unknown)?;
    // A table that was deleted in the meantime has no data in any arc, so a read of any arc returns
    // the right result.
    let of_token = |token: Token| {
        catalogue.get(table).map_or(ArcId::FIRST, |table| table.placement.arc_of(token))
    };
    let place = if family == Family::Item as u8 {
        token(rest).map(of_token)
    } else if family == Family::IndexEntry as u8 {
        rest.get(4..).and_then(token).map(of_token)
    } else if family == Family::StreamRecord as u8 || family == Family::Statistics as u8 {
        number(rest).map(ArcId::of_number)
    } else if family == Family::IndexStatistics as u8 {
        return Ok(Location::Everywhere);
    } else {
        None
    };
    place.map(Location::In).ok_or_else(unknown)
}

/// Returns the sum of the values that the arcs store under one key of [`Location::Everywhere`].
pub fn sum_values(values: &[Value]) -> Result<Option<Value>, ReadError> {
    if values.is_empty() {
        return Ok(None);
    }
    let mut total = Statistics::default();
    for value in values {
        let part: Statistics = decode_value(value)?;
        total.items += part.items;
        total.bytes += part.bytes;
    }
    encode_value(&total).map(|value| Some(value.into()))
}

/// A part of a key range that is in one arc.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ArcRange {
    /// The arc.
    pub arc: ArcId,
    /// The first key, inclusive.
    pub from: Vec<u8>,
    /// The end, exclusive.
    pub to: Vec<u8>,
}

/// Splits a key range of one table into parts that are each in one arc, in key order.
///
/// # Errors
/// When ranges of this family cannot be read across arcs.
pub fn cut(catalogue: &Catalogue, from: &[u8], to: &[u8]) -> Result<Vec<ArcRange>, ReadError> {
    let unknown = || ReadError(format!("cannot find the arcs of the range from: {from:02x?}"));
    let (family, table, rest) = split_key(from).ok_or_else(unknown)?;
    let whole = |arc| vec![ArcRange { arc, from: from.to_vec(), to: to.to_vec() }];
    let prefix_bytes = if family == Family::Item as u8 {
        9
    } else if family == Family::IndexEntry as u8 {
        13
    } else if family == Family::StreamRecord as u8 {
        return number(rest).map(|number| whole(ArcId::of_number(number))).ok_or_else(unknown);
    } else {
        return Err(unknown());
    };
    let prefix = from.get(..prefix_bytes).ok_or_else(unknown)?;
    let Some(table) = catalogue.get(table) else { return Ok(Vec::new()) };
    Ok(pieces(&table.placement, prefix, from, to))
}

fn pieces(placement: &Placement, prefix: &[u8], from: &[u8], to: &[u8]) -> Vec<ArcRange> {
    let at = |token: Token| [prefix, &token.0.to_be_bytes()].concat();
    let ranges = &placement.ranges;
    if ranges.is_empty() {
        return vec![ArcRange { arc: ArcId::FIRST, from: from.to_vec(), to: to.to_vec() }];
    }
    let ends = ranges.iter().skip(1).map(|next| at(next.first));
    let ends = ends.chain([end_of_prefix(prefix)]);
    ranges
        .iter()
        .zip(ends)
        .enumerate()
        .map(|(place, (range, end))| {
            // The first part begins at the prefix itself, which sorts before all tokens.
            let start = if place == 0 { prefix.to_vec() } else { at(range.first) };
            ArcRange { arc: range.arc, from: start.max(from.to_vec()), to: end.min(to.to_vec()) }
        })
        .filter(|piece| piece.from < piece.to)
        .collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::table::partition::even_partitions;

    fn placement() -> Placement {
        let firsts = even_partitions(5).into_iter().map(|partition| partition.first_token);
        Placement::deal(TableId(7), firsts, 3)
    }

    proptest! {
        /// Goal: the pieces of a range cover it once, in order, each in the arc of its tokens.
        #[test]
        fn pieces_cover_a_range(mut bounds in prop::array::uniform2(any::<u64>()), probe in any::<u64>()) {
            bounds.sort_unstable();
            let prefix = Family::Item.of_table(TableId(7));
            let at = |token: u64| [prefix.as_slice(), &token.to_be_bytes()].concat();
            let [from, to] = bounds.map(at);
            let pieces = pieces(&placement(), &prefix, &from, &to);
            for pair in pieces.windows(2) {
                prop_assert_eq!(&pair[0].to, &pair[1].from);
            }
            if from < to {
                prop_assert_eq!(&pieces[0].from, &from);
                prop_assert_eq!(&pieces[pieces.len() - 1].to, &to);
            } else {
                prop_assert!(pieces.is_empty());
            }
            let key = at(probe);
            let holders: Vec<_> = pieces.iter().filter(|p| p.from <= key && key < p.to).collect();
            if from <= key && key < to {
                prop_assert_eq!(holders.len(), 1);
                prop_assert_eq!(holders[0].arc, placement().arc_of(Token(probe)));
            } else {
                prop_assert!(holders.is_empty());
            }
        }
    }

    #[test]
    fn the_range_of_a_table_splits_at_its_stretches() {
        let prefix = Family::Item.of_table(TableId(7));
        let pieces = pieces(&placement(), &prefix, &prefix, &end_of_prefix(&prefix));
        let arcs: Vec<u32> = pieces.iter().map(|piece| piece.arc.0).collect();
        assert_eq!(arcs, [1, 2, 0, 1, 2]);
    }
}
