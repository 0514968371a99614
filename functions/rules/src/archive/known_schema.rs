//! The columns of the records that came last: those of a table mostly have the same keys and
//! attributes, so their columns are derived once and shared.
//!
//! Nothing that is decided depends on what is known here; therefore all of them are equal.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};

use model::{AttributeType, Item};

use super::column::{Column, Schema};
use super::discovered::discover;

/// Sets of columns that are remembered: tables that hold several kinds of item have some of them.
const KNOWN_MAX: usize = 16;

/// Sets of columns, the one that was used last first.
#[derive(Debug, Default)]
pub struct KnownSchema(Mutex<VecDeque<Known>>);

/// The columns of a row, and what must be said of attributes that have none.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Columns {
    pub(super) schema: Arc<Schema>,
    pub(super) notes: Arc<[String]>,
}

type Shape = Vec<(String, AttributeType)>;

#[derive(Debug)]
struct Known {
    keys: Shape,
    declared: Vec<Column>,
    /// The attributes, if their columns were discovered.
    item: Option<Shape>,
    columns: Columns,
}

impl KnownSchema {
    /// What [`Schema::of`] says, with the columns that are discovered in `item`, if one is given.
    pub(super) fn of(&self, keys: &Item, declared: &[Column], item: Option<&Item>) -> Columns {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(position) = known.iter().position(|known| known.is_of(keys, declared, item)) {
            if position > 0 {
                known.swap(0, position);
            }
            if let Some(known) = known.front() {
                return known.columns.clone();
            }
        }
        let base = Schema::of(keys, declared);
        let (schema, notes) = match item {
            Some(item) => discover(&base, item),
            None => (base, Vec::new()),
        };
        let columns = Columns { schema: Arc::new(schema), notes: notes.into() };
        known.push_front(Known {
            keys: shape_of(keys),
            declared: declared.to_vec(),
            item: item.map(shape_of),
            columns: columns.clone(),
        });
        known.truncate(KNOWN_MAX);
        columns
    }
}

fn shape_of(item: &Item) -> Shape {
    item.iter().map(|(name, value)| (name.clone(), value.attribute_type())).collect()
}

fn has_shape(item: &Item, shape: &Shape) -> bool {
    item.len() == shape.len()
        && item.iter().zip(shape).all(|((name, value), (known, known_type))| {
            name == known && value.attribute_type() == *known_type
        })
}

impl Known {
    fn is_of(&self, keys: &Item, declared: &[Column], item: Option<&Item>) -> bool {
        let same_item = match (item, &self.item) {
            (Some(item), Some(shape)) => has_shape(item, shape),
            (None, None) => true,
            _ => false,
        };
        same_item && has_shape(keys, &self.keys) && self.declared == declared
    }
}

impl Clone for KnownSchema {
    fn clone(&self) -> Self {
        Self::default()
    }
}

impl PartialEq for KnownSchema {
    fn eq(&self, _other: &Self) -> bool {
        true
    }
}

impl Eq for KnownSchema {}

#[cfg(test)]
mod tests {
    use model::json::item_from_str;

    use super::super::column::parse_columns;
    use super::*;

    #[test]
    fn it_is_shared_while_keys_attributes_and_declaration_stay() {
        let known = KnownSchema::default();
        let declared = parse_columns("a:json").unwrap();
        let item = |text: &str| item_from_str(text).unwrap();
        let first = known.of(&item(r#"{"id":{"S":"1"}}"#), &declared, None).schema;
        let again = known.of(&item(r#"{"id":{"S":"2"}}"#), &declared, None).schema;
        assert!(Arc::ptr_eq(&first, &again));
        for (other, declared) in [
            (r#"{"id":{"N":"1"}}"#, &declared[..]),
            (r#"{"id":{"S":"1"}}"#, &[]),
            (r#"{"id":{"S":"1"},"sk":{"S":"1"}}"#, &declared[..]),
            (r#"{"ID":{"S":"1"}}"#, &declared[..]),
        ] {
            let keys = item(other);
            let schema = known.of(&keys, declared, None).schema;
            assert_eq!(*schema, Schema::of(&keys, declared), "{other}");
        }
        let keys = item(r#"{"id":{"S":"1"}}"#);
        for number in 0..3 * KNOWN_MAX {
            for text in
                [r#"{"a0":{"S":"1"}}"#.to_owned(), format!(r#"{{"a{number}":{{"N":"1"}}}}"#)]
            {
                let item = item(&text);
                let found = known.of(&keys, &[], Some(&item));
                let (schema, notes) = discover(&Schema::of(&keys, &[]), &item);
                assert_eq!((&*found.schema, &*found.notes), (&schema, &*notes), "{text}");
            }
            assert!(known.0.lock().unwrap().len() <= KNOWN_MAX);
        }
        // The kind of item that comes all the time was derived once.
        let item = item(r#"{"a0":{"S":"2"}}"#);
        let schema = || known.of(&keys, &[], Some(&item)).schema;
        assert!(Arc::ptr_eq(&schema(), &schema()));
    }
}
