//! A table of the values of an expression. The expression refers to the values by index.

use std::borrow::Borrow;
use std::sync::Arc;

use model::AttributeValue;
use serde::{Deserialize, Serialize};

/// The position of a value in the table of an expression. 16 bits suffice, because an expression
/// has at most 4 KB.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ValueIndex(u16);

impl ValueIndex {
    /// Returns the index of the value at a position.
    pub(crate) fn at(position: usize) -> Self {
        Self(u16::try_from(position).unwrap_or(u16::MAX))
    }

    /// Returns the value at this index. Returns NULL if the value is missing because a log entry is
    /// damaged, so that evaluation never fails.
    pub(crate) fn of<V: Borrow<AttributeValue>>(self, values: &[V]) -> &AttributeValue {
        values.get(usize::from(self.0)).map_or(&AttributeValue::Null, Borrow::borrow)
    }

    /// Replaces the value.
    pub(crate) fn set(self, values: &mut [SharedValue], value: SharedValue) {
        if let Some(place) = values.get_mut(usize::from(self.0)) {
            *place = value;
        }
    }
}

/// A value that all conditions of one statement share, if a request executes the statement for many
/// items.
pub(crate) type SharedValue = Arc<AttributeValue>;

/// Converts values to shared values.
pub(crate) fn shared(values: Vec<AttributeValue>) -> Vec<SharedValue> {
    values.into_iter().map(Arc::new).collect()
}
