//! The rule of migrations, which maps an item of a source table to items of target tables.
//!
//! A record produces statements about the targets that its item had before or has after the change:
//! whether the item still produces the target, as of the record's stamp. The backfill produces such
//! statements about each item that it reads, with the lowest stamp. Functions consume the stream
//! from before the backfill's first read. Every later change of an item therefore has a higher
//! stamp than the backfill's statement. A delete leaves a tombstone, so that a statement from an
//! earlier read does not restore the item. Each target is a growing set of registers, one for each
//! source item. The order, repetition and interleaving of records and backfill therefore do not
//! affect the final state.
//!
//! The processor reads and writes the items. `phase` defines the phases of a migration.

mod active;
mod adoption;
mod assembly;
mod attribute_analysis;
mod condition;
mod effect;
mod in_place;
mod inverse_check;
mod item_error;
mod key_template;
pub mod lost_writes;
mod phase;
pub mod plan;
mod reads;
mod registers;
mod source_item;
mod split;
mod transform;
mod unmatched;
mod view;

pub use adoption::said_by_all;
pub use assembly::{Assembled, Document, Keys};
pub use condition::{Condition, UndecidedCondition};
pub use effect::{Effect, Folded};
pub use in_place::{Guard, Rewrite, changed};
pub use inverse_check::InverseError;
pub use item_error::ItemError;
pub use key_template::{KeyTemplate, KeyTemplateError};
pub use phase::Phase;
pub use plan::{Direction, Kind, Plan};
pub use reads::Absent;
pub use registers::{ForeignItem, OnlyMark, Register, Registers, key_of};
pub use source_item::{SourceItem, SourceItemError};
pub use split::{DocumentError, PARTS_MAX};
pub use transform::{OUTPUTS_MAX, Transform, TransformError};
pub use unmatched::Unmatched;
pub use view::UnstorableValue;

pub use crate::jq::{Fault, ProgramError};
pub use crate::marks::migration::{
    MARK, MARK_AT, MARK_FROM, MARK_GONE, MARK_MORE, TOUCH, TOUCH_OF_CUTOVER, is_bare_tombstone,
    is_bare_tombstone_of, unmarked, visible,
};

use std::borrow::Cow;
use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};
use std::convert::Infallible;
use std::sync::Arc;

use model::json::item_to_string;
use model::limits::ITEM_BYTES_MAX;
use model::stream_record::LambdaRecord;
use model::{AttributeValue, Item, KeySchema, PrimaryKey};
use thiserror::Error;

use self::split::{Misfits, Split};
use crate::marks::is_reserved;
use crate::rule::{Found, LookAhead, Refusal, Rule, stream_of};
use crate::stamp::Stamp;

/// The size of a target item's mark in bytes, without the string that identifies its source.
const MARK_BYTES: usize = 160;
/// The maximum size in bytes of the string that identifies a source: a table name, and a key of 3
/// KB whose bytes may take six characters each in JSON.
const SOURCE_TEXT_MAX: usize = 24 * 1024;

/// A target item.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Target {
    /// The migration that writes the item.
    pub migration: String,
    /// The table of the item.
    pub table: String,
    /// The key of the item.
    pub key: PrimaryKey,
    /// Whether an existing item without a mark counts as written by the migration. This is true in
    /// the reverse direction, because the source items existed before the migration.
    pub adopts: bool,
}

/// An error of a plan that is checked against the key schemas of its tables, with its place in the
/// plan.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{place}: {reason}")]
pub struct PlanError {
    /// The place in the plan, such as `from[0].items[1].key.pk`.
    pub place: String,
    /// The error.
    pub reason: String,
    /// The position of the error in bytes, if the error is in a transform.
    pub at: Option<usize>,
}

#[derive(Debug)]
struct Output {
    table: String,
    kind: OutputKind,
    key: BTreeMap<String, KeyTemplate>,
}

/// The kind of an output, which determines how it processes an item.
#[derive(Debug)]
enum OutputKind {
    Transform(Transform),
    /// Removes the items that meet the condition, and keeps the other items unchanged.
    Purge(Condition),
    Split(Arc<Split>),
}

impl Output {
    fn run(&self, item: &Item) -> Result<Vec<Item>, ItemError> {
        match &self.kind {
            OutputKind::Transform(transform) => Ok(transform.run(item)?),
            OutputKind::Purge(condition) => {
                Ok(if condition.is_met_by(item)? { Vec::new() } else { vec![item.clone()] })
            }
            OutputKind::Split(split) => Ok(split.cut(item)?),
        }
    }

    fn split(&self) -> Option<&Split> {
        match &self.kind {
            OutputKind::Transform(_) | OutputKind::Purge(_) => None,
            OutputKind::Split(split) => Some(split),
        }
    }
}

/// One compiled direction of a migration.
#[derive(Debug)]
pub struct Migration {
    name: String,
    kind: Kind,
    direction: Direction,
    fence: Option<u64>,
    sources: BTreeMap<String, Vec<Output>>,
    /// In the reverse direction of a split: the table of documents for each table of parts, with
    /// the split.
    splits: BTreeMap<String, (String, Arc<Split>)>,
    schemas: BTreeMap<String, KeySchema>,
}

impl Migration {
    /// Checks a plan against the key schemas of its tables, by table name.
    ///
    /// # Errors
    /// Returns all errors of the plan.
    pub fn compile(
        plan: &Plan,
        direction: Direction,
        schemas: &BTreeMap<String, KeySchema>,
    ) -> Result<Self, Vec<PlanError>> {
        let mut errors = duplicate_tables(plan, direction);
        let mut sources: BTreeMap<String, Vec<Output>> = BTreeMap::new();
        let mut splits = BTreeMap::new();
        let targets = plan.target_tables(direction);
        let part = if direction == Direction::Forward { "from" } else { "inverse" };
        for (number, source) in plan.sources(direction).iter().enumerate() {
            let place = format!("{part}[{number}]");
            let mut wrong = |place: String, reason: String, at| {
                errors.push(PlanError { place, reason, at });
            };
            if !schemas.contains_key(&source.table) {
                wrong(
                    format!("{place}.table"),
                    format!("there is no table `{}`", source.table),
                    None,
                );
            }
            if !plan.kind.is_in_place() && targets.contains(&source.table.as_str()) {
                let reason = format!(
                    "`{}` is a source and a target of the plan; a restructuring must write to another table",
                    source.table
                );
                wrong(format!("{place}.table"), reason, None);
            }
            if plan.kind == Kind::Split {
                continue;
            }
            for (number, output) in source.items.iter().enumerate() {
                let place = format!("{place}.items[{number}]");
                let schema = schemas.get(&output.to);
                if let Some(output) = compile_output(plan.kind, &place, output, schema, &mut wrong)
                {
                    sources.entry(source.table.clone()).or_default().push(output);
                }
            }
        }
        for (number, source) in plan.from.iter().enumerate() {
            let Some(parts) = source.split.as_ref().filter(|_| plan.kind == Kind::Split) else {
                continue;
            };
            match compile_split(source, parts, schemas) {
                Err(wrong) => errors.extend(wrong.into_iter().map(|(place, reason)| PlanError {
                    place: format!("from[{number}].{place}"),
                    reason,
                    at: None,
                })),
                Ok((to, split)) if direction == Direction::Forward => {
                    let key = BTreeMap::new();
                    let output = Output { table: to, kind: OutputKind::Split(split), key };
                    sources.insert(source.table.clone(), vec![output]);
                }
                Ok((to, split)) => {
                    splits.insert(to, (source.table.clone(), split));
                }
            }
        }
        if !errors.is_empty() {
            return Err(errors);
        }
        let (name, kind) = (plan.migration.clone(), plan.kind);
        Ok(Self { name, kind, direction, fence: None, sources, splits, schemas: schemas.clone() })
    }

    /// Returns the same migration with a fence: records that were created at or before `second`, in
    /// seconds since 1970, have no effect.
    ///
    /// The backfill begins in a later second, so it reads the results of these records. Without a
    /// fence, a redelivered record from before the start could restore an item whose deletion was
    /// skipped.
    #[must_use]
    pub fn fenced(self, second: Option<u64>) -> Self {
        Self { fence: second, ..self }
    }

    /// Returns the kind of the migration.
    #[must_use]
    pub fn kind(&self) -> Kind {
        self.kind
    }

    fn is_before_fence(&self, made: Option<u64>) -> bool {
        // A record without a time is not skipped, so that no change is lost.
        self.fence.zip(made).is_some_and(|(fence, made)| made <= fence)
    }

    /// Returns the migration's name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the key schema of one of the migration's tables.
    #[must_use]
    pub fn schema(&self, table: &str) -> Option<&KeySchema> {
        self.schemas.get(table)
    }

    /// Returns the key schemas of the migration's tables, by name.
    #[must_use]
    pub fn schemas(&self) -> &BTreeMap<String, KeySchema> {
        &self.schemas
    }

    /// Returns the item as a reader of the table sees it; `None` if it is a tombstone.
    #[must_use]
    pub fn visible(&self, table: &str, item: &Item) -> Option<Item> {
        self.schema(table).and_then(|schema| visible(item, schema))
    }

    /// Returns whether an item has this migration's mark of a touch.
    #[must_use]
    pub fn has_touched(&self, item: &Item) -> bool {
        item.get(TOUCH).and_then(AttributeValue::as_str) == Some(self.name.as_str())
    }

    /// Returns whether a touch caused the record. Such a record produces statements about all
    /// targets of the item, including unchanged targets.
    fn is_touch(&self, old: Option<&Item>, new: Option<&Item>) -> bool {
        let has = |item: Option<&Item>| item.is_some_and(|item| self.has_touched(item));
        has(new) && !has(old)
    }

    /// Returns whether the migration reads a table.
    #[must_use]
    pub fn reads(&self, table: &str) -> bool {
        self.sources.contains_key(table) || self.splits.contains_key(table)
    }

    /// Returns whether a record of this table, created at `made` in seconds since 1970, can have an
    /// effect. This requires that the migration reads the table and that the record was created
    /// after the fence.
    #[must_use]
    pub fn follows(&self, table: &str, made: Option<u64>) -> bool {
        self.reads(table) && !self.is_before_fence(made)
    }

    /// Returns the targets of an item of a source table. A tombstone has no targets.
    ///
    /// # Errors
    /// Returns the reason why the transform fails for this item.
    pub fn outputs(&self, table: &str, item: &Item) -> Result<BTreeMap<Target, Item>, ItemError> {
        let mut targets = BTreeMap::new();
        // Most items have no mark that must be removed, so these items are not copied.
        let is_plain = !item.keys().any(|name| is_reserved(name));
        let item = match self.schemas.get(table).filter(|_| !is_plain) {
            Some(schema) => visible(item, schema).map(Cow::Owned),
            None => Some(Cow::Borrowed(item)),
        };
        let Some(item) = item else {
            return Ok(targets);
        };
        for output in self.sources.get(table).into_iter().flatten() {
            for made in output.run(&item)? {
                let (target, made) = self.place(output, made)?;
                self.check_size(table, &item, &target, &made)?;
                match targets.entry(target) {
                    Entry::Vacant(place) => {
                        place.insert(made);
                    }
                    Entry::Occupied(known) => {
                        let key = self.key_text(&output.table, &known.key().key);
                        return Err(ItemError::SameKey { table: output.table.clone(), key });
                    }
                }
            }
        }
        Ok(targets)
    }

    /// Returns whether an item of a source table has at least one target.
    ///
    /// # Errors
    /// The same as [`Migration::outputs`].
    pub fn selects(&self, table: &str, item: &Item) -> Result<bool, ItemError> {
        self.outputs(table, item).map(|targets| !targets.is_empty())
    }

    /// Checks that a target with its mark is not larger than an item may be. If one target of an
    /// item is too large, the item counts as having no targets. The record of its next version
    /// therefore produces statements about all targets again.
    fn check_size(
        &self,
        table: &str,
        item: &Item,
        target: &Target,
        made: &Item,
    ) -> Result<(), ItemError> {
        let bytes = made.size() + MARK_BYTES;
        // The exact length of the source's string matters only for the few largest items.
        if bytes + SOURCE_TEXT_MAX <= ITEM_BYTES_MAX {
            return Ok(());
        }
        let bytes = bytes + self.source_text(table, item)?.len();
        if bytes <= ITEM_BYTES_MAX {
            return Ok(());
        }
        Err(ItemError::TooLarge { table: target.table.clone(), bytes })
    }

    /// Returns the key of a target as DynamoDB JSON, for reports.
    #[must_use]
    pub fn key_text(&self, table: &str, key: &PrimaryKey) -> String {
        self.schemas
            .get(table)
            .map_or_else(String::new, |schema| item_to_string(&key.to_item(schema)))
    }

    /// Returns the identity (table and key) of an item of a source table.
    ///
    /// # Errors
    /// When the table is not a source, or the item has no key.
    pub fn source_item(&self, table: &str, item: &Item) -> Result<SourceItem, ItemError> {
        Ok(SourceItem { table: table.to_owned(), key: key_of(item, self.source_schema(table)?) })
    }

    fn source_schema(&self, table: &str) -> Result<&KeySchema, ItemError> {
        self.schemas.get(table).ok_or_else(|| ItemError::NotInPlan(table.to_owned()))
    }

    /// Returns the result of [`Migration::source_item`] as a string.
    fn source_text(&self, table: &str, item: &Item) -> Result<String, ItemError> {
        Ok(SourceItem::text(table, item, self.source_schema(table)?))
    }

    /// Returns the effects of an item that the backfill read.
    ///
    /// # Errors
    /// When the transform fails for this item. Retries cannot succeed.
    pub fn backfill(&self, table: &str, item: &Item) -> Result<Vec<Effect>, Refusal> {
        if self.kind.is_in_place() {
            return self.rewrite_effect(table, item);
        }
        let source = self.source_text(table, item)?;
        let effects = self
            .outputs(table, item)?
            .into_iter()
            .map(|(target, item)| effect(target, &source, &Stamp::lowest(), Some(item)));
        Ok(effects.collect())
    }

    fn place(&self, output: &Output, mut item: Item) -> Result<(Target, Item), ItemError> {
        if let Some(mark) = [MARK, TOUCH].into_iter().find(|mark| item.contains_key(*mark)) {
            return Err(ItemError::Reserved(mark));
        }
        let keys: Vec<_> = output
            .key
            .iter()
            .map(|(name, template)| Ok((name.clone(), template.value(&item)?)))
            .collect::<Result<_, ItemError>>()?;
        item.extend(keys);
        let schema = self
            .schemas
            .get(&output.table)
            .ok_or_else(|| ItemError::NoTable(output.table.clone()))?;
        let key = schema.key_of_item(&item)?;
        let target = Target {
            migration: self.name.clone(),
            table: output.table.clone(),
            key,
            adopts: self.direction == Direction::Reverse,
        };
        Ok((target, item))
    }
}

impl Rule for Migration {
    type Input = Infallible;
    type Effect = Effect;

    fn look_ahead(&self) -> LookAhead {
        LookAhead::Nothing
    }

    fn decide(&self, record: &LambdaRecord, _: &Found<Infallible>) -> Result<Vec<Effect>, Refusal> {
        let stream = stream_of(&record.event_source_arn)?;
        let table = &stream.table.table;
        let change = &record.record;
        if !self.follows(table, change.approximate_creation_seconds) {
            return Ok(Vec::new());
        }
        if !(change.view_type.has_new_image() && change.view_type.has_old_image()) {
            return Err(Refusal(format!(
                "the stream's view type is {}, but a migration needs NEW_AND_OLD_IMAGES",
                change.view_type.as_str()
            )));
        }
        if self.kind.is_in_place() {
            return self.decide_in_place(table, record);
        }
        let stamp = Stamp::of_record(&stream.label, &change.sequence_number);
        if self.splits.contains_key(table) {
            return self.decide_assembly(table, record);
        }
        let source = self.source_text(table, &change.keys)?;
        let outputs = |image: &Option<Item>| match image {
            Some(item) => self.outputs(table, item),
            None => Ok(BTreeMap::new()),
        };
        // If the old version cannot be transformed, the targets of an earlier version may still
        // exist, and no record produces statements about them. A comparison of the targets finds
        // them.
        let before = outputs(&change.old_image).unwrap_or_default();
        let after = outputs(&change.new_image)?;
        let gone = before.keys().filter(|target| !after.contains_key(target));
        let gone: Vec<Target> = gone.cloned().collect();
        // An earlier record or the backfill has produced statements about the unchanged targets. A
        // touch is a backfill through the stream, so its record produces statements about all
        // targets.
        let is_touch = self.is_touch(change.old_image.as_ref(), change.new_image.as_ref());
        let changed =
            after.into_iter().filter(|(target, item)| is_touch || before.get(target) != Some(item));
        let live = changed.map(|(target, item)| (target, Some(item)));
        let effects = live
            .chain(gone.into_iter().map(|target| (target, None)))
            .map(|(target, item)| effect(target, &source, &stamp, item));
        Ok(effects.collect())
    }
}

fn effect(target: Target, source: &str, stamp: &Stamp, item: Option<Item>) -> Effect {
    let registers = Registers::of(source.to_owned(), Register { stamp: stamp.clone(), item });
    Effect::Registers { target, registers }
}

/// Returns errors for tables that occur twice in a plan although only one entry is possible: an
/// item that is changed in place becomes one item, a document becomes one set of parts, and a table
/// of parts has one source.
fn duplicate_tables(plan: &Plan, direction: Direction) -> Vec<PlanError> {
    let part = match (plan.kind, direction) {
        (Kind::Restructure, _) => return Vec::new(),
        (Kind::Split, _) | (_, Direction::Forward) => "from",
        (Kind::InPlace | Kind::Purge, Direction::Reverse) => "inverse",
    };
    let entries = if part == "from" { &plan.from } else { &plan.inverse };
    let (mut tables, mut parts) = (BTreeSet::new(), BTreeSet::new());
    let mut errors = Vec::new();
    for (number, source) in entries.iter().enumerate() {
        let place = |name: &str| format!("{part}[{number}].{name}");
        if !tables.insert(source.table.as_str()) {
            let instead = match plan.kind {
                Kind::Purge => "combine its conditions with `or`",
                _ => "combine its entries",
            };
            let reason = format!("`{}` is listed twice; {instead}", source.table);
            errors.push(PlanError { place: place("table"), reason, at: None });
        }
        let to = source.items.first().map(|output| output.to.as_str());
        if let Some(to) = to.filter(|_| plan.kind == Kind::Split)
            && !parts.insert(to)
        {
            let reason = format!(
                "`{to}` already stores the parts of another table; choose a separate table for these parts"
            );
            errors.push(PlanError { place: place("to"), reason, at: None });
        }
    }
    errors
}

/// Compiles a split. Returns the table of the parts and the definition of the parts. The place of
/// each error is relative to the source.
fn compile_split(
    source: &plan::Source,
    parts: &plan::Parts,
    schemas: &BTreeMap<String, KeySchema>,
) -> Result<(String, Arc<Split>), Misfits> {
    let wrong = |place: &str, reason: String| vec![(place.to_owned(), reason)];
    let Some(output) = source.items.first() else {
        return Err(wrong("to", "a split needs a table for its parts".to_owned()));
    };
    let schema = |table: &String, place: &str| {
        let found = schemas.get(table);
        found.ok_or_else(|| wrong(place, format!("there is no table `{table}`")))
    };
    let (documents, items) = (schema(&source.table, "table")?, schema(&output.to, "to")?);
    let mut key = BTreeMap::new();
    for (name, template) in &output.key {
        let template = KeyTemplate::parse(template);
        let template =
            template.map_err(|error| wrong(&format!("key.{name}"), error.to_string()))?;
        key.insert(name.clone(), template);
    }
    Split::new(parts, key, documents, items).map(|split| (output.to.clone(), Arc::new(split)))
}

fn compile_output(
    kind: Kind,
    place: &str,
    output: &plan::Output,
    schema: Option<&KeySchema>,
    wrong: &mut impl FnMut(String, String, Option<usize>),
) -> Option<Output> {
    if schema.is_none() {
        wrong(format!("{place}.to"), format!("there is no table `{}`", output.to), None);
    }
    let mut key = BTreeMap::new();
    for (name, template) in &output.key {
        let place = format!("{place}.key.{name}");
        if schema.is_some_and(|schema| !schema.contains(name)) {
            wrong(place, format!("`{name}` is not a key attribute of `{}`", output.to), None);
            continue;
        }
        match KeyTemplate::parse(template) {
            Ok(template) => {
                key.insert(name.clone(), template);
            }
            Err(error) => wrong(place, error.to_string(), None),
        }
    }
    let compiled = match kind {
        Kind::Purge => Condition::compile(&output.transform).map(OutputKind::Purge),
        Kind::Restructure | Kind::InPlace | Kind::Split => {
            Transform::compile(&output.transform).map(OutputKind::Transform)
        }
    };
    match compiled {
        Ok(kind) => Some(Output { table: output.to.clone(), kind, key }),
        Err(error) => {
            wrong(format!("{place}.transform"), error.reason, Some(error.at));
            None
        }
    }
}

#[cfg(test)]
mod in_place_tests;
#[cfg(test)]
mod split_tests;
#[cfg(test)]
mod tests;
