//! Key: `[1]`. Value: the state of the state machine that must survive a restart, in addition to
//! the tables.
//!
//! The state is part of every batch, so the storage always records exactly which log entries it
//! contains.

use model::EpochMillis;
use serde::{Deserialize, Serialize};

use super::{Family, decode_value, encode_value};
use crate::storage::overlay::Overlay;
use crate::storage::{ReadError, View};

/// The state of a state machine that must survive a restart, in addition to its tables.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct MachineState {
    /// The last applied log index; 0 before the first.
    pub(crate) applied_index: u64,
    /// The latest time of all applied entries; it never decreases.
    pub(crate) now: EpochMillis,
    /// The id that the next new table will get.
    pub(crate) next_table: u64,
}

pub(crate) fn read(view: &dyn View) -> Result<MachineState, ReadError> {
    match view.get(&[Family::MachineState as u8])? {
        Some(value) => decode_value(&value),
        None => Ok(MachineState { next_table: 1, ..MachineState::default() }),
    }
}

pub(crate) fn write(overlay: &mut Overlay<'_>, state: &MachineState) -> Result<(), ReadError> {
    overlay.put(vec![Family::MachineState as u8], encode_value(state)?);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::storage::testing::MapStorage;

    #[test]
    fn round_trip() {
        let state = MachineState { applied_index: 7, now: EpochMillis(9), next_table: 3 };
        let mut storage = MapStorage::default();
        assert_eq!(read(&storage).unwrap().next_table, 1);
        let below = storage.clone();
        let mut overlay = Overlay::new(&below);
        write(&mut overlay, &state).unwrap();
        storage.apply(overlay.into_batch());
        assert_eq!(read(&storage), Ok(state));
    }
}
