//! The names and types of key attributes, such as `year N, title S`.

use super::preview::short;
use crate::table_shape::Keys;

/// Returns the names and types of keys. Each name is truncated to `characters`.
pub(crate) fn names(keys: &Keys, characters: usize) -> String {
    let name = |key: &model::KeyAttribute| {
        format!("{} {}", short(&key.name, characters), key.attribute_type.descriptor())
    };
    keys.all().map(name).collect::<Vec<_>>().join(", ")
}
