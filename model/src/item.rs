//! An item: attributes by name.
//!
//! An item can compute its size. It does not contain its table or the names of its key attributes.

use std::collections::BTreeMap;
use std::ops::{Deref, DerefMut};

use crate::attribute_value::AttributeValue;

/// Attributes by name, in the order of their names.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Item(pub BTreeMap<String, AttributeValue>);

impl Item {
    /// Creates an item without attributes.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Returns the size in bytes: names and values, as DynamoDB counts them.
    #[must_use]
    pub fn size(&self) -> usize {
        self.0.iter().map(|(name, value)| name.len() + value.size()).sum()
    }

    /// Returns the item with an additional attribute, to build an item in one expression.
    #[must_use]
    pub fn with(mut self, name: &str, value: impl Into<AttributeValue>) -> Self {
        self.0.insert(name.to_owned(), value.into());
        self
    }
}

impl Deref for Item {
    type Target = BTreeMap<String, AttributeValue>;

    fn deref(&self) -> &Self::Target {
        &self.0
    }
}

impl DerefMut for Item {
    fn deref_mut(&mut self) -> &mut Self::Target {
        &mut self.0
    }
}

impl FromIterator<(String, AttributeValue)> for Item {
    fn from_iter<I: IntoIterator<Item = (String, AttributeValue)>>(attributes: I) -> Self {
        Self(attributes.into_iter().collect())
    }
}

impl IntoIterator for Item {
    type Item = (String, AttributeValue);
    type IntoIter = std::collections::btree_map::IntoIter<String, AttributeValue>;

    fn into_iter(self) -> Self::IntoIter {
        self.0.into_iter()
    }
}

impl<'a> IntoIterator for &'a Item {
    type Item = (&'a String, &'a AttributeValue);
    type IntoIter = std::collections::btree_map::Iter<'a, String, AttributeValue>;

    fn into_iter(self) -> Self::IntoIter {
        self.0.iter()
    }
}
