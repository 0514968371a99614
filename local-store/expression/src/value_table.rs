//! The values of an expression, which its parts refer to by their place.

use std::borrow::Borrow;
use std::sync::Arc;

use model::AttributeValue;
use serde::{Deserialize, Serialize};

/// The place of a value in the table of an expression; a text of 4 KB names far fewer than 2^16.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ValueIndex(u16);

impl ValueIndex {
    /// The index of the value that stands behind so many others.
    pub(crate) fn at(position: usize) -> Self {
        Self(u16::try_from(position).unwrap_or(u16::MAX))
    }

    /// The value. A table that lacks it can only come from a damaged log entry; reading null
    /// there keeps evaluation total.
    pub(crate) fn of<V: Borrow<AttributeValue>>(self, values: &[V]) -> &AttributeValue {
        values.get(usize::from(self.0)).map_or(&AttributeValue::Null, Borrow::borrow)
    }

    /// Puts another value in its place.
    pub(crate) fn set(self, values: &mut [SharedValue], value: SharedValue) {
        if let Some(place) = values.get_mut(usize::from(self.0)) {
            *place = value;
        }
    }
}

/// A value that the conditions of one statement which is said of many items have in common.
pub(crate) type SharedValue = Arc<AttributeValue>;

/// Values to be shared.
pub(crate) fn shared(values: Vec<AttributeValue>) -> Vec<SharedValue> {
    values.into_iter().map(Arc::new).collect()
}
