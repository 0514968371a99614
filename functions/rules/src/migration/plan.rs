//! Plans: what a migration makes of which tables.
//!
//! A plan is written as YAML (the command line reads that, with the places of its errors) and kept
//! as JSON in the control table. Key schemas are not part of it; they are the tables' own.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use xxhash_rust::xxh3::xxh3_128;

/// Scan segments of each source table at most: each is one item of the control table, and more
/// than a few hundred workers do not pay for themselves.
pub const SEGMENTS_MAX: u32 = 256;

/// Seconds that a stream may be behind before the backfill waits for it: far less than the 24 hours
/// after which records are lost, and more than a function needs that was just killed.
pub const LAG_SECONDS_MAX: u64 = 60;
/// Seconds after which it no longer counts that a stream was said to be behind.
pub const LAG_FRESH_SECONDS: u64 = 30;
/// Seconds between two notes of the same thing by one process: well within those for which a note
/// counts.
pub const NOTED_EVERY_SECONDS: u64 = 10;

/// What a migration does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Kind {
    /// Each source item becomes any number of items in other tables.
    Restructure,
    /// Each item becomes the same item with other attributes, where it stands.
    InPlace,
    /// Items are removed where they stand.
    Purge,
    /// Each source item, a document, becomes a profile and parts, and can be assembled again.
    Split,
}

impl Kind {
    /// Whether items are changed in the table in which they stand.
    #[must_use]
    pub fn is_in_place(self) -> bool {
        matches!(self, Self::InPlace | Self::Purge)
    }

    /// Whether items may be removed.
    #[must_use]
    pub fn deletes(self) -> bool {
        self == Self::Purge
    }
}

/// How the items that are there already come into a migration.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Backfill {
    /// Workers read them and write what they become, as of before all changes.
    #[default]
    Scan,
    /// Workers put a mark on each and take it off again, so that each comes through the stream.
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
    /// The migration's name: 1 to 64 of a-z, 0-9 and `-`.
    pub migration: String,
    /// What it does.
    pub kind: Kind,
    /// The tables that it reads.
    pub from: Vec<Source>,
    /// The way back: empty, or what makes the source items of the target items again.
    pub inverse: Vec<Source>,
    /// How the items that are there already come into it.
    #[serde(default, skip_serializing_if = "Backfill::is_scan")]
    pub backfill: Backfill,
    /// Scan segments of each source table, 1 to [`SEGMENTS_MAX`].
    pub segments: u32,
    /// Seconds for which a writer may act on a route that it has read; a cut-over waits so long.
    pub gate_seconds: u32,
    /// Seconds after which DynamoDB's streams have every record of a write that was acknowledged; a
    /// switch waits so long before it counts them as drained.
    #[serde(default = "settle_seconds", skip_serializing_if = "is_settle_seconds")]
    pub settle_seconds: u32,
    /// Seconds after which an invocation of the function has ended, its time-out, 1 to 900. A
    /// tombstone and a mark are there for so long after the last switch at least.
    #[serde(default = "function_seconds", skip_serializing_if = "is_function_seconds")]
    pub function_seconds: u32,
}

/// Seconds of an invocation unless a plan says otherwise: the time-out in the project's
/// `template.yaml`, and of local workers.
pub const FUNCTION_SECONDS: u32 = 60;

/// Seconds until a stream has the record of a write, unless a plan says otherwise: usually it is there
/// within one. A local store has it when the write is acknowledged, and is not waited for.
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

/// A table that is read, and what its items become.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Source {
    /// The table.
    pub table: String,
    /// What each of its items becomes; each entry gives any number of items.
    pub items: Vec<Output>,
    /// In a [`Kind::Split`]: the parts of its items. The only entry of `items` then says where they
    /// go.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub split: Option<Parts>,
    /// In a [`Kind::Purge`]: what meets the condition is erased from the table's archive, too.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub archive: bool,
}

/// Bytes of a piece at least: less would be more keys than content.
pub const PIECE_BYTES_MIN: usize = 1_000;
/// Bytes of a piece at most: an item of 400 KB, less its keys, its mark and a member's overhead.
pub const PIECE_BYTES_MAX: usize = 390_000;

/// The parts of a document.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Parts {
    /// The sort key of the item that holds what is in no part.
    pub profile: String,
    /// What is taken out of it.
    pub list: Vec<Part>,
}

/// A part of a document: one of its values, as one item or several.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Part {
    /// The sort key of its item, or what comes before `#` and the number of each of its items.
    pub name: String,
    /// The path of the value, such as `info.actors`.
    pub path: String,
    /// How it is cut.
    pub cut: Cut,
}

/// How a value is cut into items.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Cut {
    /// One item for the whole value.
    Whole,
    /// One item for each member of a list.
    Each,
    /// Pieces of a text, of binary, of a list or of a map, of so many bytes at most; a member that is
    /// larger is a piece of its own. [`PIECE_BYTES_MIN`] to [`PIECE_BYTES_MAX`].
    Bytes(usize),
}

/// Items that are made of one source item.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Output {
    /// The table that they go to.
    pub to: String,
    /// The jq program that makes them. In a [`Kind::Purge`]: the condition of the items that are
    /// removed, which gives one `true` or `false` for each.
    pub transform: String,
    /// Templates of key attributes, by name; a key attribute without one is left as the transform
    /// gives it.
    pub key: BTreeMap<String, String>,
}

/// Which way a migration runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Direction {
    /// From the sources to the targets.
    Forward,
    /// From the targets back to the sources, by the plan's inverse.
    Reverse,
}

impl Plan {
    /// What is read in a direction.
    #[must_use]
    pub fn sources(&self, direction: Direction) -> &[Source] {
        match direction {
            Direction::Forward => &self.from,
            Direction::Reverse => &self.inverse,
        }
    }

    /// The tables that are read in a direction, each once.
    #[must_use]
    pub fn source_tables(&self, direction: Direction) -> Vec<&str> {
        unique(self.sources(direction).iter().map(|source| source.table.as_str()))
    }

    /// The tables that are written in a direction, each once.
    #[must_use]
    pub fn target_tables(&self, direction: Direction) -> Vec<&str> {
        let outputs = self.sources(direction).iter().flat_map(|source| &source.items);
        unique(outputs.map(|output| output.to.as_str()))
    }

    /// A text that is the same for the same plan and no other: 32 hexadecimal digits over its
    /// JSON. Work that was begun under another fingerprint is not gone on with.
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
