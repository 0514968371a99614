//! Key: `[23]`. Value: the ring, that is, the nodes of the cluster and the placement of its arcs.
//! Only the first arc stores it.

use super::{Family, decode_value, encode_value};
use crate::ring::Ring;
use crate::storage::overlay::Overlay;
use crate::storage::{ReadError, View};

/// The key of the ring.
pub(crate) const KEY: [u8; 1] = [Family::Ring as u8];

/// Reads the ring from the state of the first arc; `None` if the ring is not founded yet.
///
/// # Errors
/// When the storage cannot be read.
pub fn read_ring(view: &dyn View) -> Result<Option<Ring>, ReadError> {
    view.get(&KEY)?.map(|value| decode_value(&value)).transpose()
}

pub(crate) fn write(overlay: &mut Overlay<'_>, ring: &Ring) -> Result<(), ReadError> {
    overlay.put(KEY.to_vec(), encode_value(ring)?);
    Ok(())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::ring::tests::a_ring;
    use crate::storage::testing::MapStorage;

    proptest! {
        #[test]
        fn round_trip(ring in a_ring()) {
            let mut storage = MapStorage::default();
            prop_assert_eq!(read_ring(&storage), Ok(None));
            let below = storage.clone();
            let mut overlay = Overlay::new(&below);
            write(&mut overlay, &ring).unwrap();
            storage.apply(overlay.into_batch());
            prop_assert_eq!(read_ring(&storage), Ok(Some(ring)));
        }
    }
}
