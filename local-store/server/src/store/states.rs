//! The locations of the states in a node's directory: `arc-0/`, `arc-1/` and so on.

use std::collections::BTreeMap;
use std::sync::Arc;

use locks::Mutex;

use node::ring::ArcId;
use node::{DirectoryLocation, StateLocation, States};
use storage::disk::{Damage, FileDisk};
use storage::{BlockCache, Error, LsmOptions, StorageFolder};

/// The locations of a node's states. Each location is opened once.
pub(crate) struct DirectoryStates {
    disk: FileDisk,
    damage: Damage,
    cache: BlockCache,
    opened: Mutex<BTreeMap<ArcId, Arc<DirectoryLocation>>>,
}

impl DirectoryStates {
    /// Creates the locations in a node's directory, whose lock the caller holds.
    pub(crate) fn new(disk: &FileDisk, damage: &Damage, cache: &BlockCache) -> Self {
        let (disk, damage, cache) = (disk.clone(), damage.clone(), cache.clone());
        Self { disk, damage, cache, opened: Mutex::default() }
    }

    /// Returns the location of an arc's state. Creates it if it does not exist.
    ///
    /// # Errors
    /// When the location cannot be read or created, or is damaged.
    pub(crate) fn open(&self, arc: ArcId) -> Result<Arc<DirectoryLocation>, Error> {
        let mut opened = self.opened.lock();
        if let Some(location) = opened.get(&arc) {
            return Ok(Arc::clone(location));
        }
        let folder = self.disk.subdirectory(&arc.to_string()).map_err(|error| Error::Io {
            path: self.disk.path().join(arc.to_string()).display().to_string(),
            operation: "open",
            reason: error.to_string(),
        })?;
        let damage = self.damage.clone();
        let options = LsmOptions { damage, ..LsmOptions::with_cache(self.cache.clone()) };
        let location = DirectoryLocation::new(StorageFolder::Directory(folder), options)?;
        let location = Arc::new(location);
        opened.insert(arc, Arc::clone(&location));
        Ok(location)
    }
}

impl States for DirectoryStates {
    fn location(&self, arc: ArcId) -> Result<Arc<dyn StateLocation>, Error> {
        Ok(self.open(arc)?)
    }
}
