//! Verification of the checksums of files on disk, file by file.

use super::State;
use crate::engine::{Pace, StoredFile};

/// Verifies the file after `after`. See [`super::super::Storage::verify_next`].
pub(super) fn verify_next(
    state: &State,
    after: Option<StoredFile>,
    pace: &mut Pace<'_>,
) -> Result<Option<StoredFile>, lsm_tree::Error> {
    let last_table = match after {
        Some(StoredFile::Rows(_)) => Some(u64::MAX),
        Some(StoredFile::Table(id)) => Some(id),
        None => None,
    };
    if let Some(id) = state.tables.verify_next(last_table, pace)? {
        return Ok(Some(StoredFile::Table(id)));
    }
    let last_file = match after {
        Some(StoredFile::Rows(number)) => Some(number),
        _ => None,
    };
    let queues = state.view_states().current().queues.clone();
    let verified = queues.verify_next(last_file, pace)?;
    Ok(verified.map(StoredFile::Rows))
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::ops::ControlFlow;

    use partition::{Batch, Op, QUEUE_KEYS};

    use super::*;
    use crate::disk::{Damage, SplitMix64};
    use crate::lsm::{Error, LsmStorage, Options, Storage, TABLES_FOLDER, queue};

    /// Applies batches that each contain one row of the tree and one row of a queue.
    fn fill(storage: &LsmStorage) {
        let mut random = SplitMix64::new(1);
        for number in 0..400_u64 {
            // Incompressible values: most of a file must be blocks with values.
            let mut put = |side: &[u8]| {
                let value: Vec<u8> =
                    (0..250).flat_map(|_| random.next_u64().to_be_bytes()).collect();
                Op::Put([side, &number.to_be_bytes()].concat(), value.into())
            };
            let ops = vec![put(&[1]), put(&[QUEUE_KEYS, 7])];
            storage.apply(&Batch { ops }).unwrap();
        }
        storage.persist().unwrap();
    }

    /// Returns the verified files, in order. Fails at a damaged file.
    fn verify_all(storage: &LsmStorage) -> Result<Vec<StoredFile>, Error> {
        let mut files = Vec::new();
        while let Some(file) =
            storage.verify_next(files.last().copied(), &mut |_| ControlFlow::Continue(()))?
        {
            files.push(file);
        }
        Ok(files)
    }

    /// Goal: verification finds and reports one wrong bit anywhere in a file. The damage is
    /// recorded if other nodes can rebuild the node. The only node of a store can be opened again
    /// for its undamaged data.
    #[test]
    fn one_wrong_bit_is_found_in_every_kind_of_file() {
        for (folder_name, part, damage) in [
            (TABLES_FOLDER, 1, Damage::of_one_among_peers()),
            (TABLES_FOLDER, 2, Damage::of_only_node()),
            (queue::FOLDER, 1, Damage::of_one_among_peers()),
            (queue::FOLDER, 3, Damage::of_only_node()),
        ] {
            let folder = tempfile::tempdir().unwrap();
            let path = folder.path().join("state");
            let open = || {
                let damage = damage.clone();
                LsmStorage::open_with(&path, &Options { damage, ..Options::default() })
            };
            let storage = open().unwrap();
            fill(&storage);
            let files = verify_all(&storage).unwrap();
            assert!(matches!(files[..], [StoredFile::Table(_), .., StoredFile::Rows(_)]));
            assert!(storage.disk_bytes() > 0);
            assert_eq!(damage.reason(), None);
            drop(storage);
            let found = fs::read_dir(path.join(folder_name)).unwrap();
            let file = found.map(|entry| entry.unwrap().path()).next().unwrap();
            let mut bytes = fs::read(&file).unwrap();
            let place = bytes.len() * part / 4;
            bytes[place] ^= 1;
            fs::write(&file, bytes).unwrap();
            let storage = open().unwrap();
            assert!(matches!(verify_all(&storage), Err(Error::Corrupt { .. })), "{folder_name}");
            assert!(damage.reason().is_some());
            drop(storage);
            assert_eq!(open().is_ok(), !damage.has_peers(), "{folder_name}");
        }
    }
}
