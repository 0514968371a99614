//! Finds the index that a Query or Scan reads. Checks that the index supports the consistency and
//! `Select` of the request, and whether items must be fetched from the table.
//!
//! Source: AWS, "Local secondary indexes" and "Global secondary indexes", attribute projections.

use std::borrow::Cow;
use std::collections::BTreeSet;

use expression::{Condition, KeyCondition, KeyExpression, Projection, in_set_order};
use model::{IndexKeySchema, Item, KeyAttribute, KeyValue};
use partition::{IndexKey, IndexKind, ItemRange, SecondaryIndex, Table};

use super::error::ApiError;

/// The table or index from which a page is read.
#[derive(Clone, Copy)]
pub(crate) struct Source<'t> {
    pub(crate) table: &'t Table,
    /// The index; `None` for the table itself.
    pub(crate) index: Option<&'t SecondaryIndex>,
}

impl<'t> Source<'t> {
    /// Finds the named index, if there is one, and checks that it can be read.
    pub(crate) fn find(
        table: &'t Table,
        name: Option<&str>,
        is_consistent: bool,
    ) -> Result<Self, ApiError> {
        let Some(name) = name else {
            return Ok(Self { table, index: None });
        };
        let found = table.index(name).filter(|index| index.is_maintained());
        let index = found.ok_or_else(|| {
            ApiError::validation(format!("The table does not have the specified index: {name}"))
        })?;
        if index.is_being_built() {
            return Err(ApiError::validation(format!(
                "Cannot read from backfilling global secondary index: {name}"
            )));
        }
        if is_consistent && index.definition.kind == IndexKind::Global {
            return Err(ApiError::validation(
                "Consistent reads are not supported on global secondary indexes",
            ));
        }
        Ok(Self { table, index: Some(index) })
    }

    /// Returns whether an attribute belongs to the key of the source.
    pub(crate) fn is_key(&self, name: &str) -> bool {
        match self.index {
            Some(index) => index.definition.key_schema.contains(name),
            None => self.table.key_schema.contains(name),
        }
    }

    /// Returns the number of attributes in the key of the source.
    pub(crate) fn key_attribute_count(&self) -> usize {
        match self.index {
            Some(index) => index.definition.key_schema.attributes().count(),
            None => self.table.key_schema.attributes().count(),
        }
    }

    /// Returns the range of the source that a key condition selects.
    pub(crate) fn range_of(&self, expression: &KeyExpression) -> Result<ItemRange, ApiError> {
        Ok(match self.index {
            Some(index) => {
                ItemRange::Entries(expression.resolve_index(&index.definition.key_schema)?)
            }
            None => {
                let KeyCondition { partition, sort } =
                    expression.resolve(&self.table.key_schema)?;
                ItemRange::Collection { partition, sort }
            }
        })
    }

    /// Checks that the index projects the attributes of a Query's filter. The filter is evaluated
    /// on the index entries, even if the items are fetched from the table. The filter of a Scan may
    /// use attributes that the index does not project.
    pub(crate) fn check_filter(&self, filter: Option<&Condition>) -> Result<(), ApiError> {
        let filtered = filter.into_iter().flat_map(Condition::paths).map(expression::Path::root);
        self.refuse_filter(&in_set_order(filtered.filter(|name| !self.holds(name))))
    }

    /// Refuses a filter that uses attributes which the index does not project.
    pub(crate) fn refuse_filter(&self, missing: &[&str]) -> Result<(), ApiError> {
        match self.index {
            Some(index) if !missing.is_empty() => Err(ApiError::invalid_parameter(format!(
                "Secondary index {} does not project one or more filter attributes: [{}]",
                index.definition.name,
                missing.join(", ")
            ))),
            _ => Ok(()),
        }
    }

    /// Checks that the requested attributes are available. Returns whether the items must be
    /// fetched from the table, because the index does not project all requested attributes.
    pub(crate) fn check_projection(
        &self,
        select: Option<&str>,
        projection: Option<&Projection>,
    ) -> Result<bool, ApiError> {
        let Some(index) = self.index else {
            return Ok(false);
        };
        let definition = &index.definition;
        let is_global = definition.kind == IndexKind::Global;
        let holds_all = definition.projection == partition::IndexProjection::All;
        let wants_all = select == Some("ALL_ATTRIBUTES");
        if wants_all && is_global && !holds_all {
            return Err(ApiError::invalid_parameter(format!(
                "Select type ALL_ATTRIBUTES is not supported for global secondary index {} because its projection type is not ALL",
                definition.name
            )));
        }
        let missing = self.missing(projection.into_iter().flat_map(Projection::roots));
        if is_global && !missing.is_empty() {
            return Err(ApiError::invalid_parameter(format!(
                "Global secondary index {} does not project [{}]",
                definition.name,
                missing.join(", ")
            )));
        }
        Ok(!holds_all && (wants_all || !missing.is_empty()))
    }

    /// Returns the attributes that the index does not project, without duplicates, in order.
    fn missing<'n>(&self, attributes: impl Iterator<Item = &'n str>) -> Vec<&'n str> {
        let missing: BTreeSet<&str> = attributes.filter(|name| !self.holds(name)).collect();
        missing.into_iter().collect()
    }

    /// Returns whether the source contains this attribute: an index contains only projected
    /// attributes.
    pub(crate) fn holds(&self, attribute: &str) -> bool {
        self.index.is_none_or(|index| index.definition.projects(&self.table.key_schema, attribute))
    }

    /// Returns the attributes of an `ExclusiveStartKey` for the source.
    fn start_key_attributes(&self) -> Vec<&KeyAttribute> {
        match self.index {
            None => self.table.key_schema.attributes().collect(),
            Some(index) => index.definition.entry_attributes(&self.table.key_schema).collect(),
        }
    }

    /// Returns whether an exclusive start key has exactly the attributes that the source requires.
    /// Does not check their types.
    pub(crate) fn names_start_key(&self, key: &Item) -> bool {
        let attributes = self.start_key_attributes();
        key.len() == attributes.len() && attributes.iter().all(|a| key.get(&a.name).is_some())
    }

    /// Returns whether an exclusive start key has the right number of attributes, and a partition
    /// key of the right type. DynamoDB checks the other attributes after the key conditions.
    pub(crate) fn begins_start_key(&self, key: &Item) -> bool {
        let schema = self.key_schema();
        let is_typed = |attribute: &KeyAttribute| {
            let value = key.get(&attribute.name).and_then(KeyValue::from_attribute_value);
            value.is_some_and(|value| value.attribute_type() == attribute.attribute_type)
        };
        key.len() == self.start_key_attributes().len() && schema.partition.iter().all(is_typed)
    }

    /// Returns whether a query can have a second page. In a table without a sort key, a partition key
    /// has at most one item, so DynamoDB accepts no exclusive start key.
    pub(crate) fn can_continue_query(&self) -> bool {
        self.index.is_some() || self.table.key_schema.sort.is_some()
    }

    /// Returns the key schema of the source.
    pub(crate) fn key_schema(&self) -> Cow<'t, IndexKeySchema> {
        match self.index {
            Some(index) => Cow::Borrowed(&index.definition.key_schema),
            None => Cow::Owned(self.table.key_schema.clone().into()),
        }
    }

    /// Returns the position of an `ExclusiveStartKey`. An exclusive start key of an index must have
    /// exactly the key attributes of the table and of the index.
    pub(crate) fn start_key(&self, key: &Item) -> Result<IndexKey, model::key::KeyError> {
        let Some(index) = self.index else {
            let key = self.table.key_schema.key_of_parameter(key)?;
            return Ok(IndexKey { index: key.clone().into(), table: key });
        };
        let definition = &index.definition;
        if key.len() != self.start_key_attributes().len() {
            return Err(model::key::KeyError::SchemaMismatch);
        }
        let as_parameter = |error| match error {
            model::key::KeyError::Missing(_) | model::key::KeyError::TypeMismatch { .. } => {
                model::key::KeyError::SchemaMismatch
            }
            other => other,
        };
        Ok(IndexKey {
            index: definition.key_schema.values_of_item(key).map_err(as_parameter)?,
            table: self.table.key_schema.key_of_item(key).map_err(as_parameter)?,
        })
    }

    /// Returns the attributes of an item or entry that `LastEvaluatedKey` contains.
    pub(crate) fn key_attributes(&self, mut item: Item) -> Item {
        let index = self.index.map(|index| &index.definition.key_schema);
        let is_key = |name: &str| {
            self.table.key_schema.contains(name) || index.is_some_and(|key| key.contains(name))
        };
        item.retain(|name, _| is_key(name));
        item
    }
}

#[cfg(test)]
mod tests {
    use partition::IndexStatus;

    use super::super::handle;
    use super::super::tests::open_store;
    use super::*;

    const TABLE: &str = r#"{"TableName":"things","BillingMode":"PAY_PER_REQUEST","AttributeDefinitions":[{"AttributeName":"p","AttributeType":"S"},{"AttributeName":"g","AttributeType":"S"}],"KeySchema":[{"AttributeName":"p","KeyType":"HASH"}],"GlobalSecondaryIndexes":[{"IndexName":"by-g","KeySchema":[{"AttributeName":"g","KeyType":"HASH"}],"Projection":{"ProjectionType":"ALL"}}]}"#;

    /// Goal: reads of an index that lacks entries fail instead of returning an incomplete result. With one
    /// arc, no index waits for the delivery of entries, so the test sets this status itself.
    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn an_index_that_is_being_built_is_not_read() {
        let folder = tempfile::tempdir().unwrap();
        let store = open_store(folder.path()).await;
        let created = handle(&store, "DynamoDB_20120810.CreateTable", TABLE.as_bytes()).await;
        assert_eq!(created.status, 200);
        let mut table = Table::clone(store.catalogue().find("things").unwrap());
        let mut refusal = |status| {
            table.indexes[0].status = status;
            Source::find(&table, Some("by-g"), false).err().map(|error| format!("{error:?}"))
        };
        assert_eq!(refusal(IndexStatus::Active), None);
        let creating = IndexStatus::Creating { cursor: None };
        let delivering = IndexStatus::Delivering { until: Vec::new() };
        for status in [creating, delivering] {
            let text = refusal(status).unwrap();
            assert!(text.contains("Cannot read from backfilling global secondary index"), "{text}");
        }
        let text = refusal(IndexStatus::Deleting).unwrap();
        assert!(text.contains("does not have the specified index"), "{text}");
    }
}
