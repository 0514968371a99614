//! The way back of a split: a document is what the items of its partition make together.
//!
//! A statement holds no data but the keys that the document had, so it may be made of any record of
//! any of its items, in any order and as often as one likes: what is written follows from the items
//! that stand there then. Who reads and writes is not known here.

use std::collections::{BTreeMap, BTreeSet};

use model::limits::ITEM_BYTES_MAX;
use model::stream_record::LambdaRecord;
use model::{Item, KeyValue, PrimaryKey};

use super::split::Split;
use super::{MARK_BYTES, Migration, Register, Registers, SourceItem, Target, visible};
use crate::effect::{Effect, Join};
use crate::rule::Refusal;
use crate::stamp::Stamp;

/// The partition of a table of parts whose items are one document.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Document {
    /// The migration.
    pub migration: String,
    /// The table of the parts.
    pub parts: String,
    /// The partition key.
    pub partition: KeyValue,
}

/// Keys that a document had, in its own table.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Keys(pub BTreeSet<PrimaryKey>);

/// What the items of a partition say.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Assembled {
    /// Per target in the table of the documents the document, or none if it must not be there.
    pub targets: BTreeMap<Target, Option<Item>>,
    /// Why there are items that are no document which could stand there.
    pub refused: Option<String>,
}

impl Join for Keys {
    fn join(&mut self, other: Self) {
        self.0.extend(other.0);
    }
}

impl Migration {
    /// The table of the documents whose parts stand in a table; none if they are no parts, or this
    /// direction does not assemble.
    #[must_use]
    pub fn documents_of(&self, parts: &str) -> Option<&str> {
        self.splits.get(parts).map(|(documents, _)| documents.as_str())
    }

    /// The table of the parts that make the documents of a table; none if this direction assembles
    /// none.
    #[must_use]
    pub fn parts_of(&self, documents: &str) -> Option<&str> {
        let mut splits = self.splits.iter();
        splits.find(|(_, (table, _))| table == documents).map(|(parts, _)| parts.as_str())
    }

    /// Whether an item of a table of parts is the profile of its document.
    #[must_use]
    pub fn is_profile(&self, parts: &str, item: &Item) -> bool {
        self.splits.get(parts).is_some_and(|(_, split)| split.is_profile(item))
    }

    /// The key of the profile in a partition of a table of parts.
    #[must_use]
    pub fn profile_key(&self, parts: &str, partition: &KeyValue) -> Option<Item> {
        let (_, split) = self.splits.get(parts)?;
        Some(split.profile_key(partition.to_attribute_value()))
    }

    /// The partition of a table of parts that a document with a key has.
    ///
    /// # Errors
    /// When the key is not of a document of that table.
    pub fn partition_of(&self, parts: &str, key: &Item) -> Result<KeyValue, String> {
        let wrong = || format!("this is no key of a document of `{parts}`");
        let (table, split) = self.splits.get(parts).ok_or_else(wrong)?;
        let key = self.schema(table).ok_or_else(wrong)?.key_of_parameter(key);
        let key = key.map_err(|error| error.to_string())?;
        let key = key.to_item(self.schema(table).ok_or_else(wrong)?);
        KeyValue::from_attribute_value(&split.partition_of(&key)?).ok_or_else(wrong)
    }

    /// The document that the items of a partition make, whatever its size; none if there is no
    /// profile.
    ///
    /// # Errors
    /// When an item has something that the document has no place for.
    pub fn document(&self, parts: &str, items: &[Item]) -> Result<Option<Item>, String> {
        let split = self.splits.get(parts).map(|(_, split)| split);
        let split = split.ok_or_else(|| format!("`{parts}` is no table of parts"))?;
        let schema = self.schema(parts).ok_or_else(|| format!("there is no table `{parts}`"))?;
        let items: Vec<Item> = items.iter().filter_map(|item| visible(item, schema)).collect();
        if !items.iter().any(|item| split.is_profile(item)) {
            return Ok(None);
        }
        split.assemble(&items)
    }

    /// What the items of a partition, in the order of their sort keys, say of the documents with
    /// `keys` and of the one that they make.
    ///
    /// # Errors
    /// When the table is no table of parts of this migration.
    pub fn assembled(
        &self,
        document: &Document,
        items: &[Item],
        keys: &Keys,
    ) -> Result<Assembled, String> {
        let no_split = || format!("`{}` is no table of parts", document.parts);
        let (table, split) = self.splits.get(&document.parts).ok_or_else(no_split)?;
        let schema = self.schema(table).ok_or_else(|| format!("there is no table `{table}`"))?;
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
            // Whoever deletes a document may delete its profile first.
            assembled.refused = (!items.is_empty()).then(|| "parts without a profile".to_owned());
            return Ok(assembled);
        };
        let Ok(key) = schema.key_of_item(profile) else {
            assembled.refused = Some(format!("the profile has no key of `{table}`"));
            return Ok(assembled);
        };
        // Whatever is wrong with it, it is there.
        assembled.targets.remove(&target(key.clone()));
        match document.made_of(split, &items) {
            Ok(made) => {
                assembled.targets.insert(target(key), Some(made));
            }
            Err(reason) => assembled.refused = Some(reason),
        }
        Ok(assembled)
    }

    /// The document that the parts of a source item make; for checks of the way there and back.
    ///
    /// # Errors
    /// Why they are none.
    pub fn there_and_back(&self, table: &str, item: &Item) -> Result<Option<Item>, String> {
        let split = self.sources.get(table).into_iter().flatten().find_map(|output| output.split());
        let split = split.ok_or_else(|| format!("`{table}` is not split"))?;
        let mut items = split.cut(item)?;
        items.sort_by_key(|item| split.sort_of(item).to_owned());
        split.assemble(&items)
    }

    /// What a record of a part says: its document is what the partition's items make.
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
        // A profile whose document belongs elsewhere says nothing of the document that is there.
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
    /// What the mark of an assembled document says that it is from: a text like a source item's.
    #[must_use]
    pub fn source(&self, partition_attribute: &str) -> String {
        let key = Item::new().with(partition_attribute, self.partition.to_attribute_value());
        SourceItem { table: self.parts.clone(), key }.to_string()
    }

    /// What is to be written of a document over what is `known` of it. The revision in its mark is
    /// counted up by each write, also by one that changes nothing else and by one of a document that
    /// is gone: whoever read the parts before this write was made cannot write after it.
    #[must_use]
    pub fn restated(known: Option<&Registers>, source: &str, item: Option<Item>) -> Registers {
        let said = known.and_then(|known| known.get(source)).map(|said| said.stamp.clone());
        let before = said.unwrap_or_else(Stamp::lowest);
        let stamp = before.reconciled(before.revision() + 1);
        Registers::of(source.to_owned(), Register { stamp, item })
    }

    fn made_of(&self, split: &Split, items: &[Item]) -> Result<Item, String> {
        let made = split.assemble(items)?.ok_or("parts without a profile")?;
        let partition = KeyValue::from_attribute_value(&split.partition_of(&made)?);
        if partition.as_ref() != Some(&self.partition) {
            return Err(
                "the profile is of a document that belongs into another partition".to_owned()
            );
        }
        // The name of the key attribute has 255 bytes at most.
        let source = self.parts.len() + self.partition.to_attribute_value().size() + 255;
        let size = made.size() + source + MARK_BYTES;
        if size > ITEM_BYTES_MAX {
            return Err(format!(
                "the document has {size} bytes with its mark, more than the {ITEM_BYTES_MAX} of one item"
            ));
        }
        Ok(made)
    }
}
