//! The indexes of a table, and what a write of an item costs in each.
//!
//! Source: DynamoDB developer guide, "Using global secondary indexes", provisioned throughput. An
//! entry that is added, removed or changed costs one write; an entry whose key changes costs two.
//! An item whose attributes in the index are unchanged costs nothing there.

use aws_sdk_dynamodb::types::{
    AttributeDefinition, KeySchemaElement, KeyType, Projection as SdkProjection, ProjectionType,
    TableDescription,
};
use model::{AttributeValue, Item, KeySchema};

/// The attributes of an item that an index contains.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Projection {
    All,
    /// Key attributes, and the attributes with these names.
    Names(Vec<String>),
}

/// An index of a table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct IndexFacts {
    pub(crate) name: String,
    /// The key attributes of the index, with DynamoDB's names of their types.
    pub(crate) keys: Vec<(String, String)>,
    pub(crate) projection: Projection,
}

impl IndexFacts {
    /// Returns all indexes of a table, global and local ones.
    pub(crate) fn of_table(table: &TableDescription) -> Vec<Self> {
        let types = table.attribute_definitions();
        let global = table.global_secondary_indexes().iter().map(|index| {
            Self::new(index.index_name(), index.key_schema(), index.projection(), types)
        });
        let local = table.local_secondary_indexes().iter().map(|index| {
            Self::new(index.index_name(), index.key_schema(), index.projection(), types)
        });
        global.chain(local).collect()
    }

    fn new(
        name: Option<&str>,
        keys: &[KeySchemaElement],
        projection: Option<&SdkProjection>,
        types: &[AttributeDefinition],
    ) -> Self {
        let type_of = |name: &str| {
            let found = types.iter().find(|found| found.attribute_name() == name);
            found.map_or("", |found| found.attribute_type().as_str()).to_owned()
        };
        let mut keys: Vec<_> = keys.iter().collect();
        keys.sort_by_key(|key| key.key_type() != &KeyType::Hash);
        let keys = keys.into_iter().map(|key| key.attribute_name().to_owned());
        let keys = keys.map(|key| (key.clone(), type_of(&key))).collect();
        let projection = match projection.and_then(SdkProjection::projection_type) {
            Some(ProjectionType::All) => Projection::All,
            _ => Projection::Names(
                projection.map(|some| some.non_key_attributes().to_vec()).unwrap_or_default(),
            ),
        };
        Self { name: name.unwrap_or_default().to_owned(), keys, projection }
    }

    /// Returns an item's index entry with its key values; `None` if the item is not in the index.
    fn entry<'i>(
        &self,
        table: &KeySchema,
        item: &'i Item,
    ) -> Option<(Vec<&'i AttributeValue>, Item)> {
        let key = self.keys.iter().map(|(name, wanted)| {
            item.get(name).filter(|value| value.attribute_type().descriptor() == wanted)
        });
        let key = key.collect::<Option<Vec<_>>>()?;
        let Projection::Names(names) = &self.projection else { return Some((key, item.clone())) };
        let mut entry = item.clone();
        entry.retain(|name, _| {
            let is_key = self.keys.iter().any(|(key, _)| key == name);
            is_key || table.contains(name) || names.contains(name)
        });
        Some((key, entry))
    }

    /// Returns the write units for a change from `before` to `after` in this index.
    pub(crate) fn write_units(
        &self,
        table: &KeySchema,
        before: Option<&Item>,
        after: Option<&Item>,
    ) -> f64 {
        let entry = |item: Option<&'_ Item>| {
            let (key, entry) = self.entry(table, item?)?;
            Some((key.into_iter().cloned().collect::<Vec<_>>(), entry))
        };
        match (entry(before), entry(after)) {
            (None, None) => 0.0,
            (Some(before), Some(after)) if before == after => 0.0,
            (Some(before), Some(after)) if before.0 == after.0 => {
                write_units(Some(&before.1), Some(&after.1))
            }
            (before, after) => {
                let alone = |entry: &(_, Item)| write_units(Some(&entry.1), None);
                before.as_ref().map_or(0.0, alone) + after.as_ref().map_or(0.0, alone)
            }
        }
    }
}

/// Returns the units of a write: the size of the larger item in KB, rounded up.
pub(crate) fn write_units(before: Option<&Item>, after: Option<&Item>) -> f64 {
    let bytes = [before, after].into_iter().flatten().map(Item::size).max().unwrap_or(0);
    f64::from(u32::try_from(bytes.div_ceil(1024).max(1)).unwrap_or(u32::MAX))
}

#[cfg(test)]
mod tests {
    use model::json::item_from_str;
    use model::{KeyAttribute, KeyAttributeType};

    use super::*;

    #[test]
    fn an_index_costs_what_changes_of_its_entries() {
        let partition = KeyAttribute { name: "p".to_owned(), attribute_type: KeyAttributeType::S };
        let table = KeySchema { partition, sort: None };
        let index = |projection| IndexFacts {
            name: "by-kind".to_owned(),
            keys: vec![("kind".to_owned(), "S".to_owned())],
            projection,
        };
        let item = |kind: &str, other: usize| {
            let other = "x".repeat(other);
            let text = format!(
                r#"{{"p":{{"S":"1"}},"kind":{kind},"a":{{"S":"y"}},"o":{{"S":"{other}"}}}}"#
            );
            item_from_str(&text).unwrap()
        };
        let (cat, dog) = (item(r#"{"S":"cat"}"#, 2_000), item(r#"{"S":"dog"}"#, 2_000));
        let (small, odd) = (item(r#"{"S":"cat"}"#, 1), item(r#"{"N":"1"}"#, 2_000));
        let names = |names: &[&str]| {
            Projection::Names(names.iter().map(|name| (*name).to_owned()).collect())
        };
        for (projection, before, after, units) in [
            (Projection::All, None, Some(&cat), 2.0),
            (Projection::All, Some(&cat), None, 2.0),
            (Projection::All, Some(&cat), Some(&small), 2.0),
            (Projection::All, Some(&cat), Some(&dog), 4.0),
            (Projection::All, Some(&cat), Some(&cat), 0.0),
            (Projection::All, Some(&cat), Some(&odd), 2.0),
            (Projection::All, Some(&odd), Some(&odd), 0.0),
            (names(&[]), None, Some(&cat), 1.0),
            (names(&[]), Some(&cat), Some(&small), 0.0),
            (names(&[]), Some(&cat), Some(&dog), 2.0),
            (names(&["a"]), Some(&cat), Some(&small), 0.0),
            (names(&["o"]), Some(&cat), Some(&small), 2.0),
        ] {
            let found = index(projection.clone()).write_units(&table, before, after);
            assert!((found - units).abs() < 1e-9, "{projection:?} {units}: {found}");
        }
    }
}
