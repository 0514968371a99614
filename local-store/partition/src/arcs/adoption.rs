//! Adoption of a table's definition by the other arcs of the ring.
//!
//! Only the first arc creates and changes tables. Each change gives the definition a higher
//! version, and every other arc adopts it. An arc ignores a definition with an older version. It
//! also ignores a definition with its current version, except while TTL moves from one attribute to
//! another. Work that takes many steps (TTL, indexes) runs in each arc for the items of that arc.

use model::EpochMillis;

use crate::entry::sequence::Sequence;
use crate::stream;
use crate::table::Table;
use crate::table::index::{IndexStatus, SecondaryIndex};
use crate::table::partition::{even_partitions, partitions_in};
use crate::table::placement::ArcId;
use crate::table::time_to_live::TimeToLive;

/// Creates an arc's part of a new table: the arc's own partitions, all of them empty.
pub(crate) fn found(definition: &Table, arc: ArcId, sequence: Sequence, now: EpochMillis) -> Table {
    let count = u32::try_from(definition.placement.ranges.len()).unwrap_or(u32::MAX);
    let partitions = partitions_in(&definition.placement, arc, even_partitions(count));
    let mut table = Table {
        next_partition: arc.first_number() + u32::try_from(partitions.len()).unwrap_or(u32::MAX),
        partitions,
        streams: Vec::new(),
        next_shard: arc.first_number(),
        time_to_live: TimeToLive::Disabled,
        indexes: Vec::new(),
        ..definition.clone()
    };
    table.indexes = definition
        .indexes
        .iter()
        .filter(|index| index.status != IndexStatus::Deleting)
        // The new table has no items to index.
        .map(|index| SecondaryIndex { status: IndexStatus::Active, ..index.clone() })
        .collect();
    if let Some(attribute) = definition.time_to_live.indexed_attribute() {
        table.time_to_live = TimeToLive::Enabled { attribute: attribute.to_owned() };
    }
    follow_stream(&mut table, definition, sequence, now);
    table
}

/// Returns whether an arc's table has adopted a definition: the table equals the definition or is
/// newer.
#[must_use]
pub(crate) fn has_followed(own: &Table, definition: &Table) -> bool {
    let (own_version, version) = (own.placement.version, definition.placement.version);
    let is_indexed_alike =
        own.time_to_live.indexed_attribute() == definition.time_to_live.indexed_attribute();
    own_version > version || (own_version == version && is_indexed_alike)
}

/// Returns whether adopting a definition would change an arc's table now. A table that is still
/// disabling TTL cannot adopt another TTL setting until it has finished.
#[must_use]
pub fn can_follow(own: &Table, definition: &Table) -> bool {
    let is_giving_up = own.placement.version == definition.placement.version
        && matches!(own.time_to_live, TimeToLive::Disabling { .. });
    !has_followed(own, definition) && !is_giving_up
}

/// Changes a table to its definition. Every setting changes immediately, except TTL: the table
/// first disables TTL for the old attribute. When the same definition arrives again, the table
/// enables TTL for the new attribute. See [`has_followed`].
pub(crate) fn follow(
    own: &Table,
    is_empty: bool,
    definition: &Table,
    sequence: Sequence,
    now: EpochMillis,
) -> Table {
    let mut table = own.clone();
    if own.placement.version > definition.placement.version {
        return table;
    }
    if own.placement.version < definition.placement.version {
        table.billing = definition.billing;
        table.deletion_protection = definition.deletion_protection;
        table.options = definition.options.clone();
        follow_stream(&mut table, definition, sequence, now);
        follow_indexes(&mut table, definition);
        table.placement.version = definition.placement.version;
    }
    // All definitions of one version have the same TTL attribute.
    table.time_to_live = next_time_to_live(&own.time_to_live, &definition.time_to_live, is_empty);
    table
}

fn follow_stream(table: &mut Table, definition: &Table, sequence: Sequence, now: EpochMillis) {
    let label = |table: &Table| table.enabled_stream().map(|stream| stream.label.clone());
    let (current, wanted) = (label(table), label(definition));
    if current == wanted {
        return;
    }
    if current.is_some() {
        stream::disable(table, sequence, now);
    }
    if let Some(wanted) = definition.enabled_stream() {
        stream::enable(table, wanted.label.clone(), wanted.view_type, sequence, now);
        // All arcs share one stream, so the stream gets the creation time in the definition.
        if let Some(own) = table.streams.last_mut() {
            own.created_at = wanted.created_at;
        }
    }
}

fn follow_indexes(table: &mut Table, definition: &Table) {
    for index in &mut table.indexes {
        let wanted = definition.indexes.iter().find(|wanted| wanted.number == index.number);
        match wanted {
            Some(wanted) if wanted.status != IndexStatus::Deleting => {
                index.definition = wanted.definition.clone();
            }
            _ => index.status = IndexStatus::Deleting,
        }
    }
    for wanted in &definition.indexes {
        let is_new = wanted.number.0 >= table.next_index;
        if is_new && wanted.status != IndexStatus::Deleting {
            let status = IndexStatus::Creating { cursor: None };
            table.indexes.push(SecondaryIndex { status, ..wanted.clone() });
        }
    }
    table.next_index = table.next_index.max(definition.next_index);
}

/// Returns the next step towards a TTL setting. A change of the attribute disables TTL first, so
/// that the expiry entries of the old attribute are removed. The arc may have missed the definition
/// that disabled TTL. An empty table has no expiry entries, so each step is complete immediately.
fn next_time_to_live(own: &TimeToLive, definition: &TimeToLive, is_empty: bool) -> TimeToLive {
    match (own, definition.indexed_attribute()) {
        (_, Some(wanted)) if own.indexed_attribute() == Some(wanted) => own.clone(),
        (TimeToLive::Disabled, Some(wanted)) if is_empty => {
            TimeToLive::Enabled { attribute: wanted.to_owned() }
        }
        (TimeToLive::Disabled, Some(wanted)) => {
            TimeToLive::Enabling { attribute: wanted.to_owned(), cursor: None }
        }
        (TimeToLive::Enabled { .. }, _) if is_empty => TimeToLive::Disabled,
        (TimeToLive::Enabling { attribute, .. } | TimeToLive::Enabled { attribute }, _) => {
            TimeToLive::Disabling { attribute: attribute.clone() }
        }
        (TimeToLive::Disabled | TimeToLive::Disabling { .. }, _) => own.clone(),
    }
}
