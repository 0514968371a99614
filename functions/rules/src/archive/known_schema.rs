//! The columns of the records that came last: those of a table all have the same keys, so their
//! columns are derived once and shared.
//!
//! Nothing that is decided depends on what is known here; therefore all of them are equal.

use std::sync::{Arc, Mutex, PoisonError};

use model::{AttributeType, Item};

use super::column::{Column, Schema};

/// The schema that was derived last.
#[derive(Debug, Default)]
pub struct KnownSchema(Mutex<Option<Known>>);

#[derive(Debug)]
struct Known {
    keys: Vec<(String, AttributeType)>,
    declared: Vec<Column>,
    schema: Arc<Schema>,
}

impl KnownSchema {
    /// What [`Schema::of`] says.
    pub(super) fn of(&self, keys: &Item, declared: &[Column]) -> Arc<Schema> {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = known.as_ref().filter(|known| known.is_of(keys, declared)) {
            return Arc::clone(&known.schema);
        }
        let schema = Arc::new(Schema::of(keys, declared));
        *known = Some(Known {
            keys: keys.iter().map(|(name, key)| (name.clone(), key.attribute_type())).collect(),
            declared: declared.to_vec(),
            schema: Arc::clone(&schema),
        });
        schema
    }
}

impl Known {
    fn is_of(&self, keys: &Item, declared: &[Column]) -> bool {
        let names = self.keys.iter().map(|(name, key_type)| (name.as_str(), *key_type));
        keys.iter().map(|(name, key)| (name.as_str(), key.attribute_type())).eq(names)
            && self.declared == declared
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
    fn it_is_shared_while_keys_and_declaration_stay() {
        let known = KnownSchema::default();
        let declared = parse_columns("a:json").unwrap();
        let keys = |text: &str| item_from_str(text).unwrap();
        let first = known.of(&keys(r#"{"id":{"S":"1"}}"#), &declared);
        assert!(Arc::ptr_eq(&first, &known.of(&keys(r#"{"id":{"S":"2"}}"#), &declared)));
        for (other, declared) in [
            (r#"{"id":{"N":"1"}}"#, &declared[..]),
            (r#"{"id":{"S":"1"}}"#, &[]),
            (r#"{"id":{"S":"1"},"sk":{"S":"1"}}"#, &declared[..]),
            (r#"{"ID":{"S":"1"}}"#, &declared[..]),
        ] {
            let keys = keys(other);
            assert_eq!(*known.of(&keys, declared), Schema::of(&keys, declared), "{other}");
        }
    }
}
