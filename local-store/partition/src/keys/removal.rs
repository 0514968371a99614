//! Progress of a removal in steps. Key: `[22] table-id:u64 family:u8 rest`. Value: the last removed
//! key among those with the prefix `family table-id rest`.
//!
//! The key of a deleted table, `[7] table-id`, has the same kind of value: see [`super::table`].

use super::{Family, decode_value, encode_value};
use crate::storage::overlay::Overlay;
use crate::storage::{ReadError, View};
use crate::table::identifiers::TableId;

/// Returns the key that stores the progress of a removal in a table under a prefix.
pub(crate) fn place(table: TableId, prefix: &[u8]) -> Vec<u8> {
    let of_table = Family::Removal.of_table(table);
    let (family, behind) = prefix.split_at_checked(1).unwrap_or_default();
    let rest = behind.get(of_table.len().saturating_sub(1)..).unwrap_or_default();
    [&of_table, family, rest].concat()
}

/// Returns the last removed key. Returns `None` if no key was removed yet, or if an older version
/// of this program removed keys without storing the progress.
pub(crate) fn read(view: &dyn View, place: &[u8]) -> Result<Option<Vec<u8>>, ReadError> {
    let value = view.get(place)?.filter(|value| !value.is_empty());
    value.map(|value| decode_value(&value)).transpose()
}

pub(crate) fn write(overlay: &mut Overlay<'_>, place: &[u8], last: &[u8]) -> Result<(), ReadError> {
    overlay.put(place.to_vec(), encode_value(&last)?);
    Ok(())
}
