//! The content of a simulated disk: its files, their names, and what is not synced yet.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::ops::Range;

use super::simulated::Fault;
use super::{Error, Operation, SECTOR_BYTES};

/// The content of a sector, which is shorter than a sector at the end of a file.
pub(super) type Sector = Vec<u8>;

/// The contents of one file, without its names.
#[derive(Debug, Default)]
pub(super) struct Inode {
    /// The content that survives a power cut.
    pub(super) durable: Vec<u8>,
    /// The content that reads see.
    pub(super) cached: Vec<u8>,
    /// For each sector written since the last sync: every content that the sector has had, oldest
    /// first.
    pub(super) unsynced: BTreeMap<usize, Vec<Sector>>,
    /// The number of open files.
    pub(super) handles: usize,
}

impl Inode {
    /// Records the content of the sectors in a range of bytes that was written.
    pub(super) fn note_written(&mut self, range: Range<usize>) {
        let numbers = range.start / SECTOR_BYTES..range.end.div_ceil(SECTOR_BYTES);
        let written = self.cached.chunks(SECTOR_BYTES).enumerate().take(numbers.end);
        for (number, sector) in written.skip(numbers.start) {
            self.unsynced.entry(number).or_default().push(sector.to_vec());
        }
    }
}

#[derive(Debug, Clone)]
pub(super) enum NameChange {
    Create(String, usize),
    Rename(String, String),
    Remove(String),
}

impl NameChange {
    /// Returns the old name, whose directory is also the directory of the new name.
    pub(super) fn name(&self) -> &str {
        match self {
            NameChange::Create(name, _)
            | NameChange::Rename(name, _)
            | NameChange::Remove(name) => name,
        }
    }

    /// Applies the change of a name. Does nothing if the change needs a name whose creation was
    /// lost.
    pub(super) fn apply(self, names: &mut BTreeMap<String, usize>) {
        match self {
            NameChange::Create(name, inode) => {
                names.insert(name, inode);
            }
            NameChange::Rename(from, to) => {
                if let Some(inode) = names.remove(&from) {
                    names.insert(to, inode);
                }
            }
            NameChange::Remove(name) => {
                names.remove(&name);
            }
        }
    }
}

#[derive(Debug, Default)]
pub(super) struct State {
    pub(super) inodes: Vec<Inode>,
    /// The names that survive a power cut. The next field has the current names, as a listing shows
    /// them.
    pub(super) durable_names: BTreeMap<String, usize>,
    pub(super) names: BTreeMap<String, usize>,
    pub(super) unsynced_names: Vec<NameChange>,
    /// Number of attempted operations that change the disk.
    pub(super) operations: u64,
    pub(super) faults: BTreeMap<u64, Fault>,
    pub(super) powered_off: bool,
    /// Whether the disk is full, so that no file can be created. `refusals` counts the rejected
    /// creations.
    pub(super) full: bool,
    pub(super) refusals: u64,
    /// Whether the next sync of data fails.
    pub(super) sync_fails: bool,
    /// Number of power cuts. Operations on files that were opened before the last cut fail.
    pub(super) epoch: u64,
}

impl State {
    pub(super) fn check_power(&self, operation: Operation, name: &str) -> Result<(), Error> {
        if self.powered_off {
            return Err(Error::new(operation, name, io::Error::other("the power is off")));
        }
        Ok(())
    }

    /// Counts an operation, and returns the fault that was injected for its number.
    pub(super) fn begin(
        &mut self,
        operation: Operation,
        name: &str,
    ) -> Result<Option<Fault>, Error> {
        self.check_power(operation, name)?;
        let fault = self.faults.remove(&self.operations);
        self.operations += 1;
        if fault == Some(Fault::PowerOff) {
            self.powered_off = true;
        }
        Ok(fault)
    }

    /// Counts an operation that needs space, and returns its fault.
    pub(super) fn begin_growth(
        &mut self,
        operation: Operation,
        name: &str,
    ) -> Result<Option<Fault>, Error> {
        let fault = self.begin(operation, name)?;
        if self.full && fault.is_none() {
            self.refusals += 1;
            return Ok(Some(Fault::OutOfSpace));
        }
        Ok(fault)
    }

    pub(super) fn inode(&mut self, operation: Operation, name: &str) -> Result<usize, Error> {
        match self.names.get(name) {
            Some(inode) => Ok(*inode),
            None => Err(Error::new(operation, name, io::ErrorKind::NotFound.into())),
        }
    }

    pub(super) fn change(&mut self, change: NameChange) {
        change.clone().apply(&mut self.names);
        self.unsynced_names.push(change);
    }

    /// Makes the changes of some names durable, and frees files that have no name.
    pub(super) fn sync_names(&mut self, is_meant: impl Fn(&str) -> bool) {
        let changes = std::mem::take(&mut self.unsynced_names);
        let (meant, others) = changes.into_iter().partition(|change| is_meant(change.name()));
        let meant: Vec<NameChange> = meant;
        self.unsynced_names = others;
        let is_freeing = meant.iter().any(|change| !matches!(change, NameChange::Create(..)));
        meant.into_iter().for_each(|change| change.apply(&mut self.durable_names));
        if is_freeing {
            self.free_unnamed();
        }
    }

    /// Frees the bytes of files that have no name and are not open.
    pub(super) fn free_unnamed(&mut self) {
        let created = self.unsynced_names.iter().filter_map(|change| match change {
            NameChange::Create(_, inode) => Some(inode),
            NameChange::Rename(..) | NameChange::Remove(_) => None,
        });
        let names = self.names.values().chain(self.durable_names.values());
        let named: BTreeSet<usize> = names.chain(created).copied().collect();
        for (number, file) in self.inodes.iter_mut().enumerate() {
            if file.handles == 0 && !file.cached.is_empty() && !named.contains(&number) {
                *file = Inode::default();
            }
        }
    }

    pub(super) fn add_file(&mut self, name: &str, size: usize) -> usize {
        let bytes = vec![0; size];
        let file = Inode { durable: bytes.clone(), cached: bytes, ..Inode::default() };
        self.inodes.push(file);
        let inode = self.inodes.len() - 1;
        self.change(NameChange::Create(name.to_owned(), inode));
        inode
    }
}

/// Stores the content of a sector, and extends the file with zeros up to the sector's end.
pub(super) fn store(bytes: &mut Vec<u8>, number: usize, content: &[u8]) {
    let start = number * SECTOR_BYTES;
    let end = start + content.len();
    if bytes.len() < end {
        bytes.resize(end, 0);
    }
    if let Some(sector) = bytes.get_mut(start..end) {
        sector.copy_from_slice(content);
    }
}
