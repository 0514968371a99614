//! Plans: the tables of a migration and the changes of their items.
//!
//! The operator writes a plan in YAML. The command line parses it and stores it as JSON in the
//! control table. The key schemas are not in the plan, because they belong to the tables.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use xxhash_rust::xxh3::xxh3_128;

/// The maximum number of scan segments of each source table. Each segment is one item of the
/// control table. More workers than a few hundred do not make the backfill faster.
pub const SEGMENTS_MAX: u32 = 256;

/// The lag of a stream in seconds above which the backfill waits. It is far below the 24 hours
/// after which a stream trims records, and above the time that Lambda needs to replace a killed
/// function.
pub const LAG_SECONDS_MAX: u64 = 60;
/// The maximum age of a measured lag in seconds. An older measurement is ignored.
pub const LAG_FRESH_SECONDS: u64 = 30;
/// The minimum time in seconds between two status reports of one kind (such as lag) by one process.
/// It is below the age at which a report expires.
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
    /// Each source item is a document. It becomes a profile and parts, from which it can be
    /// assembled again.
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

/// The way in which existing items enter a migration.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Backfill {
    /// Workers read the items and write the targets. The statements of the backfill have a lower
    /// stamp than every stream record.
    #[default]
    Scan,
    /// Workers put a mark on each item and remove it again, so that the stream has a record of each
    /// item.
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
    /// The target tables, and how their items become source items again after the cut-over; empty
    /// without a reverse direction.
    pub inverse: Vec<Source>,
    /// The way in which existing items enter the migration.
    #[serde(default, skip_serializing_if = "Backfill::is_scan")]
    pub backfill: Backfill,
    /// The number of scan segments of each source table, 1 to [`SEGMENTS_MAX`].
    pub segments: u32,
    /// The number of seconds for which a writer may use a route that it has read. A cut-over waits
    /// for this time.
    pub gate_seconds: u32,
    /// The number of seconds after which DynamoDB's streams contain the record of every
    /// acknowledged write. A switch waits for this time before it checks that the streams are
    /// drained.
    #[serde(default = "settle_seconds", skip_serializing_if = "is_settle_seconds")]
    pub settle_seconds: u32,
    /// The timeout of the function in seconds, 1 to 900. Tombstones and marks are kept for at least
    /// this time after the last switch, because an invocation from before the switch may still be
    /// running.
    #[serde(default = "function_seconds", skip_serializing_if = "is_function_seconds")]
    pub function_seconds: u32,
    /// The name of the route that the application reads; `None` for the migration's name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub route: Option<String>,
}

/// The default timeout of an invocation in seconds, as in the project's `template.yaml` and in
/// local workers.
pub const FUNCTION_SECONDS: u32 = 60;

/// The default number of seconds until a stream contains the record of a write; the record usually
/// appears within one second. A local store needs no wait, because its stream contains the record
/// when the write is acknowledged.
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

/// A source table, and the target items that its items become.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Source {
    /// The table.
    pub table: String,
    /// The outputs of an item. Each output yields any number of items.
    pub items: Vec<Output>,
    /// The parts of a document, in a [`Kind::Split`]. The only entry of `items` then defines the
    /// table and the keys of the parts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub split: Option<Parts>,
    /// Whether the selected items are also erased from the table's archive, in a [`Kind::Purge`].
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub archive: bool,
}

/// The minimum size of a piece in bytes. The key of a smaller piece could be larger than the piece
/// itself.
pub const PIECE_BYTES_MIN: usize = 1_000;
/// The maximum size of a piece in bytes: the 400 KB of an item minus its keys, its mark and the
/// overhead of its members.
pub const PIECE_BYTES_MAX: usize = 390_000;

/// The parts of a document.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Parts {
    /// The sort key of the profile. The profile is the item with all attributes that are in no
    /// part.
    pub profile: String,
    /// The parts that are cut out of a document.
    pub list: Vec<Part>,
}

/// A part of a document: one value of the document, stored as one or several items.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Part {
    /// The name of the part. If the part is one item, this is its sort key. If the part is several
    /// items, `#` and a number follow the name.
    pub name: String,
    /// The path of the value, such as `info.actors`.
    pub path: String,
    /// The way in which the value is cut into items.
    pub cut: Cut,
}

/// The way in which a value is cut into items.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Cut {
    /// One item for the entire value.
    Whole,
    /// One item for each member of a list.
    Each,
    /// One item for each piece of a string, a binary value, a list or a map. A piece has at most
    /// this many bytes, [`PIECE_BYTES_MIN`] to [`PIECE_BYTES_MAX`]. A larger member becomes a
    /// separate piece.
    Bytes(usize),
}

/// The target items that are derived from one source item.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Output {
    /// The table of the items.
    pub to: String,
    /// The jq program that produces the items. In a [`Kind::Purge`], it is the condition, which
    /// yields `true` or `false` for each item.
    pub transform: String,
    /// The templates of key attributes, by name. A key attribute without a template is taken from
    /// the result of the transform.
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
    /// Returns the name of the route.
    #[must_use]
    pub fn route(&self) -> &str {
        self.route.as_deref().unwrap_or(&self.migration)
    }

    /// Returns the sources of a direction.
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

    /// Returns the fingerprint of a plan: a hash of its JSON, as 32 hexadecimal digits. A command
    /// resumes only the work of a plan with the same fingerprint.
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
