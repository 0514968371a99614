//! Plans: what a migration does with which tables.
//!
//! A plan is written in YAML, which the command line parses with the positions of errors, and stored as
//! JSON in the control table. Key schemas are not part of a plan, because they belong to the tables.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use xxhash_rust::xxh3::xxh3_128;

/// The maximum number of scan segments of each source table. Each segment is one item of the control
/// table, and more than a few hundred workers bring no benefit.
pub const SEGMENTS_MAX: u32 = 256;

/// The lag of a stream in seconds from which on the backfill waits. It is far below the 24 hours after
/// which records are lost, and above the time that a function needs after it was killed.
pub const LAG_SECONDS_MAX: u64 = 60;
/// The age in seconds from which on a measured lag no longer counts.
pub const LAG_FRESH_SECONDS: u64 = 30;
/// Minimum seconds between two status reports of one kind (such as lag) by one process; below the age
/// at which a report expires.
pub const NOTED_EVERY_SECONDS: u64 = 10;

/// The kind of a migration.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Kind {
    /// Each source item becomes any number of items in other tables.
    Restructure,
    /// The attributes of each item are changed in place.
    InPlace,
    /// Items are removed in place.
    Purge,
    /// Each source item, a document, becomes a profile and parts, and can be assembled again.
    Split,
}

impl Kind {
    /// Returns whether items are changed or removed in their own table.
    #[must_use]
    pub fn is_in_place(self) -> bool {
        matches!(self, Self::InPlace | Self::Purge)
    }

    /// Returns whether items may be removed.
    #[must_use]
    pub fn deletes(self) -> bool {
        self == Self::Purge
    }
}

/// The way existing items enter a migration.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Backfill {
    /// Workers read the items and write the targets, as of before all changes.
    #[default]
    Scan,
    /// Workers put a mark on each item and remove it, so that each item comes through the stream.
    Touch,
}

impl Backfill {
    #[expect(clippy::trivially_copy_pass_by_ref, reason = "serde calls it with a reference")]
    fn is_scan(&self) -> bool {
        *self == Self::Scan
    }
}

/// A plan.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Plan {
    /// The name of the migration: 1 to 64 of a-z, 0-9 and `-`.
    pub migration: String,
    /// The kind of the migration.
    pub kind: Kind,
    /// The tables that the migration reads.
    pub from: Vec<Source>,
    /// The way back: empty, or how target items become source items again.
    pub inverse: Vec<Source>,
    /// How existing items enter the migration.
    #[serde(default, skip_serializing_if = "Backfill::is_scan")]
    pub backfill: Backfill,
    /// The number of scan segments of each source table, 1 to [`SEGMENTS_MAX`].
    pub segments: u32,
    /// The number of seconds for which a writer may rely on a route that it has read. A cut-over waits
    /// as long.
    pub gate_seconds: u32,
    /// The number of seconds after which DynamoDB's streams contain the record of every acknowledged
    /// write. A switch waits as long before it counts the streams as drained.
    #[serde(default = "settle_seconds", skip_serializing_if = "is_settle_seconds")]
    pub settle_seconds: u32,
    /// The time-out of the function in seconds, 1 to 900: after it, every invocation has ended.
    /// Tombstones and marks are kept for at least as long after the last switch.
    #[serde(default = "function_seconds", skip_serializing_if = "is_function_seconds")]
    pub function_seconds: u32,
}

/// The default time-out of an invocation in seconds: that of the project's `template.yaml` and of local
/// workers.
pub const FUNCTION_SECONDS: u32 = 60;

/// The default number of seconds until a stream contains the record of a write. Usually that takes less
/// than one. A local store needs no wait, because its stream contains the record when the write is
/// acknowledged.
pub const SETTLE_SECONDS: u32 = 5;

fn settle_seconds() -> u32 {
    SETTLE_SECONDS
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde calls it with a reference")]
fn is_settle_seconds(seconds: &u32) -> bool {
    *seconds == SETTLE_SECONDS
}

fn function_seconds() -> u32 {
    FUNCTION_SECONDS
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde calls it with a reference")]
fn is_function_seconds(seconds: &u32) -> bool {
    *seconds == FUNCTION_SECONDS
}

/// A table to read, and what its items become.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Source {
    /// The table.
    pub table: String,
    /// The outputs of each item. Each output yields any number of items.
    pub items: Vec<Output>,
    /// In a [`Kind::Split`]: the parts of a document. The only entry of `items` then defines their table
    /// and keys.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub split: Option<Parts>,
    /// In a [`Kind::Purge`]: whether the selected items are also erased from the table's archive.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub archive: bool,
}

/// The minimum size of a piece in bytes. A smaller piece would have more key than content.
pub const PIECE_BYTES_MIN: usize = 1_000;
/// The maximum size of a piece in bytes: an item of 400 KB minus its keys, its mark and a member's
/// overhead.
pub const PIECE_BYTES_MAX: usize = 390_000;

/// The parts of a document.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Parts {
    /// The sort key of the profile, the item with everything that is in no part.
    pub profile: String,
    /// The parts that are cut out.
    pub list: Vec<Part>,
}

/// A part of a document: one of its values, as one item or several.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Part {
    /// The sort key of the part's item, or the prefix before `#` and the number of each of its items.
    pub name: String,
    /// The path of the value, such as `info.actors`.
    pub path: String,
    /// How the value is cut.
    pub cut: Cut,
}

/// The way a value is cut into items.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Cut {
    /// One item for the whole value.
    Whole,
    /// One item for each member of a list.
    Each,
    /// One item for each piece of a text, a binary value, a list or a map, with at most this many bytes.
    /// A larger member is a piece by itself. [`PIECE_BYTES_MIN`] to [`PIECE_BYTES_MAX`].
    Bytes(usize),
}

/// The items that are made from one source item.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Output {
    /// The table of the items.
    pub to: String,
    /// The jq program that makes the items. In a [`Kind::Purge`]: the condition, which yields `true` or
    /// `false` for each item.
    pub transform: String,
    /// The templates of key attributes, by name. A key attribute without one is taken from the
    /// transform's result.
    pub key: BTreeMap<String, String>,
}

/// The direction of a migration.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Direction {
    /// From the sources to the targets.
    Forward,
    /// From the targets back to the sources, by the plan's inverse.
    Reverse,
}

impl Plan {
    /// Returns the entries that are read in a direction.
    #[must_use]
    pub fn sources(&self, direction: Direction) -> &[Source] {
        match direction {
            Direction::Forward => &self.from,
            Direction::Reverse => &self.inverse,
        }
    }

    /// Returns the tables that are read in a direction, without duplicates.
    #[must_use]
    pub fn source_tables(&self, direction: Direction) -> Vec<&str> {
        unique(self.sources(direction).iter().map(|source| source.table.as_str()))
    }

    /// Returns the tables that are written in a direction, without duplicates.
    #[must_use]
    pub fn target_tables(&self, direction: Direction) -> Vec<&str> {
        let outputs = self.sources(direction).iter().flat_map(|source| &source.items);
        unique(outputs.map(|output| output.to.as_str()))
    }

    /// Returns the fingerprint of a plan: 32 hexadecimal digits over its JSON. Work with another
    /// fingerprint is never resumed.
    #[must_use]
    pub fn fingerprint(json: &str) -> String {
        format!("{:032x}", xxh3_128(json.as_bytes()))
    }
}

fn unique<'p>(names: impl Iterator<Item = &'p str>) -> Vec<&'p str> {
    let mut unique: Vec<&str> = names.collect();
    unique.sort_unstable();
    unique.dedup();
    unique
}
