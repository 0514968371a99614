//! The reverse direction of a split: a document is assembled from the items of its partition.
//!
//! An effect contains no data except the document's keys, because the document is computed from the
//! current items. Any record of any part may therefore cause the effect, in any order and any
//! number of times. The processor reads and writes the items.

use std::collections::{BTreeMap, BTreeSet};

use model::limits::ITEM_BYTES_MAX;
use model::stream_record::LambdaRecord;
use model::{Item, KeyValue, PrimaryKey};

use super::split::{DocumentError, Split};
use super::{Effect, MARK_BYTES, Migration, Register, Registers, SourceItem, Target, visible};
use crate::effect::Join;
use crate::rule::Refusal;
use crate::stamp::Stamp;

/// A document, identified by the partition of its parts.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Document {
    /// The migration.
    pub migration: String,
    /// The table of the parts.
    pub parts: String,
    /// The partition key.
    pub partition: KeyValue,
}

/// The keys under which a document was or is stored in its own table.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Keys(pub BTreeSet<PrimaryKey>);

/// The result of the assembly of a partition.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Assembled {
    /// The document for each target in the table of documents; `None` if the target must not exist.
    pub targets: BTreeMap<Target, Option<Item>>,
    /// The reason why the items form no valid document; `None` if they form a valid document.
    pub refused: Option<DocumentError>,
}

impl Join for Keys {
    fn join(&mut self, other: Self) {
        self.0.extend(other.0);
    }
}

impl Migration {
    /// Returns the table of documents that belongs to a table of parts. Returns `None` if the table
    /// is not a table of parts, or if this direction does not assemble documents.
    #[must_use]
    pub fn documents_of(&self, parts: &str) -> Option<&str> {
        self.splits.get(parts).map(|(documents, _)| documents.as_str())
    }

    /// Returns the table of parts that belongs to a table of documents. Returns `None` if this
    /// direction does not assemble these documents.
    #[must_use]
    pub fn parts_of(&self, documents: &str) -> Option<&str> {
        let mut splits = self.splits.iter();
        splits.find(|(_, (table, _))| table == documents).map(|(parts, _)| parts.as_str())
    }

    /// Returns whether an item of a table of parts is the profile of its document.
    #[must_use]
    pub fn is_profile(&self, parts: &str, item: &Item) -> bool {
        self.splits.get(parts).is_some_and(|(_, split)| split.is_profile(item))
    }

    /// Returns the key of the profile in a partition of a table of parts.
    #[must_use]
    pub fn profile_key(&self, parts: &str, partition: &KeyValue) -> Option<Item> {
        let (_, split) = self.splits.get(parts)?;
        Some(split.profile_key(partition.to_attribute_value()))
    }

    /// Returns the partition of the parts of the document with this key.
    ///
    /// # Errors
    /// The key does not belong to a document of this table.
    pub fn partition_of(&self, parts: &str, key: &Item) -> Result<KeyValue, DocumentError> {
        let wrong = || DocumentError::ForeignKey(parts.to_owned());
        let (table, split) = self.splits.get(parts).ok_or_else(wrong)?;
        let schema = self.schema(table).ok_or_else(wrong)?;
        let key = schema.key_of_parameter(key)?.to_item(schema);
        KeyValue::from_attribute_value(&split.partition_of(&key)?).ok_or_else(wrong)
    }

    /// Returns the document that a partition's items form, regardless of its size. Returns `None`
    /// if there is no profile.
    ///
    /// # Errors
    /// When an item contains an attribute that does not belong to the document.
    pub fn document(&self, parts: &str, items: &[Item]) -> Result<Option<Item>, DocumentError> {
        let split = self.splits.get(parts).map(|(_, split)| split);
        let split = split.ok_or_else(|| DocumentError::NotParts(parts.to_owned()))?;
        let schema = self.schema(parts).ok_or_else(|| DocumentError::NoTable(parts.to_owned()))?;
        let items: Vec<Item> = items.iter().filter_map(|item| visible(item, schema)).collect();
        if !items.iter().any(|item| split.is_profile(item)) {
            return Ok(None);
        }
        split.assemble(&items)
    }

    /// Assembles the items of a partition, in the order of their sort keys. The result contains the
    /// document that the items form. Documents with other `keys` must not exist.
    ///
    /// # Errors
    /// When the table is not a table of parts of this migration.
    pub fn assembled(
        &self,
        document: &Document,
        items: &[Item],
        keys: &Keys,
    ) -> Result<Assembled, DocumentError> {
        let no_split = || DocumentError::NotParts(document.parts.clone());
        let (table, split) = self.splits.get(&document.parts).ok_or_else(no_split)?;
        let schema = self.schema(table).ok_or_else(|| DocumentError::NoTable(table.clone()))?;
        let target = |key: PrimaryKey| Target {
            migration: document.migration.clone(),
            table: table.clone(),
            key,
            adopts: true,
        };
        let mut assembled = Assembled::default();
        for key in &keys.0 {
            assembled.targets.insert(target(key.clone()), None);
        }
        let parts = self.schema(&document.parts).ok_or_else(no_split)?;
        let items: Vec<Item> = items.iter().filter_map(|item| visible(item, parts)).collect();
        let Some(profile) = items.iter().find(|item| split.is_profile(item)) else {
            // A client may delete the profile of a document before the parts.
            assembled.refused = (!items.is_empty()).then_some(DocumentError::NoProfile);
            return Ok(assembled);
        };
        let Ok(key) = schema.key_of_item(profile) else {
            assembled.refused = Some(DocumentError::ProfileWithoutKey(table.clone()));
            return Ok(assembled);
        };
        // The profile exists, so the document must not be deleted, even if the items are invalid.
        assembled.targets.remove(&target(key.clone()));
        match document.made_of(split, &items) {
            Ok(made) => {
                assembled.targets.insert(target(key), Some(made));
            }
            Err(reason) => assembled.refused = Some(reason),
        }
        Ok(assembled)
    }

    /// Splits a source item and assembles it again, for the checks of both directions.
    ///
    /// # Errors
    /// Returns the reason why the parts form no document.
    pub fn there_and_back(&self, table: &str, item: &Item) -> Result<Option<Item>, DocumentError> {
        let split = self.sources.get(table).into_iter().flatten().find_map(|output| output.split());
        let split = split.ok_or_else(|| DocumentError::NotSplit(table.to_owned()))?;
        let mut items = split.cut(item)?;
        items.sort_by_key(|item| split.sort_of(item).to_owned());
        split.assemble(&items)
    }

    /// Decides about a record of a part. The effect requires the document to equal the assembly of
    /// its partition.
    pub(super) fn decide_assembly(
        &self,
        table: &str,
        record: &LambdaRecord,
    ) -> Result<Vec<Effect>, Refusal> {
        let (Some((documents, split)), Some(items)) = (self.splits.get(table), self.schema(table))
        else {
            return Ok(Vec::new());
        };
        let change = &record.record;
        let key = items.key_of_parameter(&change.keys).map_err(|e| Refusal(e.to_string()))?;
        let images = [&change.old_image, &change.new_image];
        let profiles = images.into_iter().flatten().filter(|item| split.is_profile(item));
        // A profile whose document belongs to another partition does not affect this document.
        let at_home = profiles.filter(|item| {
            let partition = split.partition_of(item).ok();
            partition.and_then(|value| KeyValue::from_attribute_value(&value)).as_ref()
                == Some(&key.partition)
        });
        let schema = self.schema(documents);
        let keys = at_home.filter_map(|item| schema?.key_of_item(item).ok()).collect();
        let document = Document {
            migration: self.name.clone(),
            parts: table.to_owned(),
            partition: key.partition,
        };
        Ok(vec![Effect::Assemble { document, keys: Keys(keys) }])
    }
}

impl Document {
    /// Returns the source in the mark of an assembled document, in the form of a source item.
    #[must_use]
    pub fn source(&self, partition_attribute: &str) -> String {
        let key = Item::new().with(partition_attribute, self.partition.to_attribute_value());
        SourceItem { table: self.parts.clone(), key }.to_string()
    }

    /// Returns the registers to write for a document. `known` are its current registers. Each write
    /// increments the revision in the mark, even if the document is unchanged or deleted. A worker
    /// that read the parts before this write therefore cannot write after it.
    #[must_use]
    pub fn restated(known: Option<&Registers>, source: &str, item: Option<Item>) -> Registers {
        let said = known.and_then(|known| known.get(source)).map(|said| said.stamp.clone());
        let before = said.unwrap_or_else(Stamp::lowest);
        let stamp = before.reconciled(before.revision() + 1);
        Registers::of(source.to_owned(), Register { stamp, item })
    }

    fn made_of(&self, split: &Split, items: &[Item]) -> Result<Item, DocumentError> {
        let made = split.assemble(items)?.ok_or(DocumentError::NoProfile)?;
        let partition = KeyValue::from_attribute_value(&split.partition_of(&made)?);
        if partition.as_ref() != Some(&self.partition) {
            return Err(DocumentError::OtherPartition);
        }
        // The name of a key attribute has at most 255 bytes.
        let source = self.parts.len() + self.partition.to_attribute_value().size() + 255;
        let size = made.size() + source + MARK_BYTES;
        if size > ITEM_BYTES_MAX {
            return Err(DocumentError::TooLarge(size));
        }
        Ok(made)
    }
}
