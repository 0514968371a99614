//! A cache of the columns of recent records. Most records of a table have the same keys and
//! attributes, so their columns are derived once and shared.
//!
//! A cache never changes a result, so all caches compare as equal.

use std::collections::VecDeque;
use std::sync::Arc;

use locks::Mutex;
use model::AttributeType;
use model::json::ItemView;

use super::column::{Column, Schema};
use super::discovered::discover;

/// The maximum number of cached schemas. A table needs one schema for each kind of item in it.
const KNOWN_MAX: usize = 16;

/// The cached schemas, most recently used first.
#[derive(Debug, Default)]
pub struct KnownSchema(Mutex<VecDeque<CachedColumns>>);

/// The columns of a row, and the notes about attributes that have no column.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Columns {
    pub(super) schema: Arc<Schema>,
    /// The positions of the columns' attributes in the item from which the columns were derived.
    /// Most later items have the same positions.
    pub(super) places: Arc<[usize]>,
    pub(super) notes: Arc<[String]>,
}

type Shape = Vec<(String, AttributeType)>;

#[derive(Debug)]
struct CachedColumns {
    keys: Shape,
    declared: Arc<[Column]>,
    /// The attributes of the item, if the columns were discovered from them.
    item: Option<Shape>,
    columns: Columns,
}

impl KnownSchema {
    /// Returns the result of [`Schema::of`]. If `discovers` is true, the columns that are
    /// discovered in `item` are added.
    pub(super) fn of(
        &self,
        keys: &ItemView<'_>,
        declared: &Arc<[Column]>,
        item: &ItemView<'_>,
        discovers: bool,
    ) -> Columns {
        let found = discovers.then_some(item);
        let mut known = self.0.lock();
        if let Some(position) = known.iter().position(|known| known.is_of(keys, declared, found)) {
            if position > 0 {
                known.swap(0, position);
            }
            if let Some(known) = known.front() {
                return known.columns.clone();
            }
        }
        let base = Schema::of(keys, declared);
        let (schema, notes) = match found {
            Some(item) => discover(&base, item),
            None => (base, Vec::new()),
        };
        let places = schema.columns().map(|column| {
            let found = column.path.names().first().and_then(|name| item.find(name));
            found.map_or(0, |(place, _)| place)
        });
        let places = places.collect();
        let columns = Columns { schema: Arc::new(schema), places, notes: notes.into() };
        known.push_front(CachedColumns {
            keys: shape_of(keys),
            declared: Arc::clone(declared),
            item: found.map(shape_of),
            columns: columns.clone(),
        });
        known.truncate(KNOWN_MAX);
        columns
    }
}

fn shape_of(item: &ItemView<'_>) -> Shape {
    item.iter().map(|(name, value)| (name.to_owned(), value.attribute_type())).collect()
}

fn has_shape(item: &ItemView<'_>, shape: &Shape) -> bool {
    item.len() == shape.len()
        && item.iter().zip(shape).all(|((name, value), (known, known_type))| {
            name == known && value.attribute_type() == *known_type
        })
}

impl CachedColumns {
    fn is_of(
        &self,
        keys: &ItemView<'_>,
        declared: &Arc<[Column]>,
        item: Option<&ItemView<'_>>,
    ) -> bool {
        let same_item = match (item, &self.item) {
            (Some(item), Some(shape)) => has_shape(item, shape),
            (None, None) => true,
            _ => false,
        };
        // The declaration of a rule usually has the same address each time. Comparing addresses is
        // faster than comparing the columns.
        let same_declaration =
            || Arc::ptr_eq(&self.declared, declared) || self.declared == *declared;
        same_item && has_shape(keys, &self.keys) && same_declaration()
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
    use model::Item;
    use model::json::item_from_str;

    use super::super::column::parse_columns;
    use super::*;

    #[test]
    fn it_is_shared_while_keys_attributes_and_declaration_stay() {
        let known = KnownSchema::default();
        let declared: Arc<[Column]> = parse_columns("a:json").unwrap().into();
        let undeclared: Arc<[Column]> = Arc::default();
        let item = |text: &str| -> ItemView<'static> {
            let item: &Item = Box::leak(Box::new(item_from_str(text).unwrap()));
            ItemView::of(item)
        };
        let none = ItemView::default();
        let first = known.of(&item(r#"{"id":{"S":"1"}}"#), &declared, &none, false).schema;
        let alike = Arc::from(&*declared);
        let again = known.of(&item(r#"{"id":{"S":"2"}}"#), &alike, &none, false).schema;
        assert!(Arc::ptr_eq(&first, &again));
        for (other, declared) in [
            (r#"{"id":{"N":"1"}}"#, &declared),
            (r#"{"id":{"S":"1"}}"#, &undeclared),
            (r#"{"id":{"S":"1"},"sk":{"S":"1"}}"#, &declared),
            (r#"{"ID":{"S":"1"}}"#, &declared),
        ] {
            let keys = item(other);
            let schema = known.of(&keys, declared, &none, false).schema;
            assert_eq!(*schema, Schema::of(&keys, declared), "{other}");
        }
        let keys = item(r#"{"id":{"S":"1"}}"#);
        for number in 0..3 * KNOWN_MAX {
            for text in
                [r#"{"a0":{"S":"1"}}"#.to_owned(), format!(r#"{{"a{number}":{{"N":"1"}}}}"#)]
            {
                let item = item(&text);
                let found = known.of(&keys, &undeclared, &item, true);
                let (schema, notes) = discover(&Schema::of(&keys, &[]), &item);
                assert_eq!((&*found.schema, &*found.notes), (&schema, &*notes), "{text}");
            }
            assert!(known.0.lock().len() <= KNOWN_MAX);
        }
        // The columns of the most frequent kind of item were derived only once.
        let item = item(r#"{"a0":{"S":"2"}}"#);
        let schema = || known.of(&keys, &undeclared, &item, true).schema;
        assert!(Arc::ptr_eq(&schema(), &schema()));
    }
}
