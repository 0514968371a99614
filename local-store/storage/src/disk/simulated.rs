//! A disk in memory whose power can be cut: a cut loses, tears and reorders unsynced writes.
//!
//! The simulated disk fulfils the contract of [`super`]: a synced byte is safe, a sector is never
//! half old and half new, and a sector never shows a later write without the earlier writes. The
//! caller's seed determines all random choices.

use std::collections::BTreeSet;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, MutexGuard};

use locks::Mutex;

use super::simulated_state::{NameChange, State, store};
use super::{Disk, DiskFile, Error, Operation, SplitMix64};

/// The effect of an injected fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// The operation fails with an I/O error. A failed sync also marks the file's unsynced writes
    /// as clean, as Linux does: they stay readable, but no later sync makes them durable, and a
    /// power cut loses them.
    Io,
    /// The operation fails for lack of space and changes nothing.
    OutOfSpace,
    /// The power goes off before the operation takes effect. This operation and every later
    /// operation fail until [`SimulatedDisk::power_cut`]. A create leaves a file of half its size.
    PowerOff,
}

/// The number of unsynced sectors that were lost and kept in a power cut.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct PowerCut {
    /// Sectors that have the content of the last sync after the cut.
    pub sectors_lost: usize,
    /// Sectors that have newer content after the cut.
    pub sectors_kept: usize,
}

fn injected(fault: Fault, operation: Operation, name: &str) -> Error {
    let source = match fault {
        Fault::Io => io::Error::other("input/output error"),
        Fault::OutOfSpace => io::Error::new(io::ErrorKind::StorageFull, "no space left on device"),
        Fault::PowerOff => io::Error::other("the power went off"),
    };
    Error::new(operation, name, source)
}

/// A directory of a disk in memory. Clones and subdirectories share the disk, its power and its
/// faults.
#[derive(Debug, Clone, Default)]
pub struct SimulatedDisk {
    state: Arc<Mutex<State>>,
    /// The beginning of all names in the directory: empty, or it ends with a separator.
    prefix: String,
    /// Whether the process that uses the disk is alive; `None` if it cannot be killed.
    is_alive: Option<Arc<AtomicBool>>,
}

impl SimulatedDisk {
    /// Creates an empty disk.
    pub fn new() -> Self {
        SimulatedDisk::default()
    }

    /// Returns a subdirectory. Subdirectories need not be created.
    #[must_use]
    pub fn subdirectory(&self, name: &str) -> Self {
        Self { prefix: format!("{}{name}/", self.prefix), ..self.clone() }
    }

    /// Returns the directory for one process. When the flag is false, the process is dead, and each
    /// of its operations fails without an effect.
    #[must_use]
    pub fn of_process(&self, is_alive: Arc<AtomicBool>) -> Self {
        Self { is_alive: Some(is_alive), ..self.clone() }
    }

    /// Removes all files in a subdirectory and below it, and makes their removal survive a power
    /// loss.
    ///
    /// # Errors
    /// When the power is off or goes off.
    pub fn remove_subdirectory(&self, name: &str) -> Result<(), Error> {
        let name = self.full_name(name);
        let state = &mut *self.lock_for(Operation::Remove, &name)?;
        let below = format!("{name}/");
        let names: Vec<String> =
            state.names.keys().filter(|name| name.starts_with(&below)).cloned().collect();
        for name in names {
            if let Some(fault) = state.begin(Operation::Remove, &name)? {
                return Err(injected(fault, Operation::Remove, &name));
            }
            state.change(NameChange::Remove(name));
        }
        state.sync_names(|name| name.starts_with(&below));
        Ok(())
    }

    /// Returns the names of the subdirectories that contain files, ascending.
    ///
    /// # Errors
    /// When the power is off.
    pub fn subdirectories(&self) -> Result<Vec<String>, Error> {
        let state = self.lock_for(Operation::List, ".")?;
        let below = state.names.keys().filter_map(|name| name.strip_prefix(&self.prefix));
        let folders: BTreeSet<&str> =
            below.filter_map(|name| Some(name.split_once('/')?.0)).collect();
        Ok(folders.into_iter().map(str::to_owned).collect())
    }

    /// Returns the number of a file, also while the power is off; `None` if there is no such file.
    /// A later file with the same name has another number.
    #[must_use]
    pub fn number_of(&self, name: &str) -> Option<usize> {
        self.lock().names.get(&self.full_name(name)).copied()
    }

    /// Returns whether the power is on and the process is alive.
    pub fn is_reachable(&self) -> bool {
        !self.is_dead() && !self.lock().powered_off
    }

    fn is_dead(&self) -> bool {
        self.is_alive.as_ref().is_some_and(|is_alive| !is_alive.load(Ordering::SeqCst))
    }

    fn full_name(&self, name: &str) -> String {
        format!("{}{name}", self.prefix)
    }

    /// Locks the disk for an operation, unless the process is dead or the power is off.
    fn lock_for(&self, operation: Operation, name: &str) -> Result<MutexGuard<'_, State>, Error> {
        if self.is_dead() {
            return Err(Error::new(operation, name, io::Error::other("the process is dead")));
        }
        let state = self.lock();
        state.check_power(operation, name)?;
        Ok(state)
    }

    fn open_inode(&self, state: &mut State, name: String, inode: usize) -> Box<dyn DiskFile> {
        if let Some(file) = state.inodes.get_mut(inode) {
            file.handles += 1;
        }
        Box::new(SimulatedFile { disk: self.clone(), name, inode, epoch: state.epoch })
    }

    /// Returns the number of attempted operations that change the disk: creates, writes, syncs,
    /// renames, removes. The next of these operations has this number.
    pub fn operations(&self) -> u64 {
        self.lock().operations
    }

    /// Makes the operation with this number, counted from 0, fail once.
    pub fn fail_at(&self, operation: u64, fault: Fault) {
        self.lock().faults.insert(operation, fault);
    }

    /// Fills the disk, so that no file can be created or grow, or frees space again. Existing files
    /// can still be overwritten.
    pub fn set_full(&self, full: bool) {
        self.lock().full = full;
    }

    /// Returns how many files could not be created or grow because the disk was full.
    pub fn refusals(&self) -> u64 {
        self.lock().refusals
    }

    /// Returns how many sectors a power cut could lose now.
    pub fn unsynced_sectors(&self) -> usize {
        self.lock().inodes.iter().map(|file| file.unsynced.len()).sum()
    }

    /// Makes the next sync of data fail with [`Fault::Io`]. Other operations before it succeed.
    pub fn fail_next_sync(&self) {
        self.lock().sync_fails = true;
    }

    /// Turns the power off: every operation fails until [`SimulatedDisk::power_cut`].
    pub fn power_off(&self) {
        self.lock().powered_off = true;
    }

    /// Cuts the power and turns it on again. After the cut, each sector with unsynced writes has
    /// its synced content or the content after any one of these writes. Some of the unsynced
    /// creates, renames and removes survive. Files that were open fail after the cut, and pending
    /// faults are discarded. Returns how many unsynced sectors were lost and kept.
    pub fn power_cut(&self, seed: u64) -> PowerCut {
        let mut cut = PowerCut::default();
        let mut generator = SplitMix64::new(seed);
        // The power cut loses all unsynced sectors, none, or some of them.
        let keep_percent = match generator.up_to(3) {
            0 => 0,
            1 => 100,
            2 => 50,
            _ => 85,
        };
        let state = &mut *self.lock();
        for file in &mut state.inodes {
            for (number, versions) in std::mem::take(&mut file.unsynced) {
                if !generator.chance(keep_percent) {
                    cut.sectors_lost += 1;
                } else {
                    cut.sectors_kept += 1;
                    // A kept sector usually has the newest content, because the kernel writes the
                    // newest content.
                    let newest = versions.len() - 1;
                    let chosen =
                        if generator.chance(70) { newest } else { generator.up_to(newest) };
                    if let Some(content) = versions.get(chosen) {
                        store(&mut file.durable, number, content);
                    }
                }
            }
            file.cached.clone_from(&file.durable);
        }
        for change in std::mem::take(&mut state.unsynced_names) {
            if generator.chance(keep_percent) {
                change.apply(&mut state.durable_names);
            }
        }
        state.names.clone_from(&state.durable_names);
        state.faults.clear();
        state.powered_off = false;
        state.full = false;
        state.sync_fails = false;
        state.epoch += 1;
        cut
    }

    /// Corrupts stored bytes without a write, as a failing medium does: combines each byte of
    /// `mask` with the stored bytes from `offset` on by exclusive or. Ignores bytes beyond the
    /// file, and a missing file.
    pub fn corrupt(&self, name: &str, offset: usize, mask: &[u8]) {
        let state = &mut *self.lock();
        let Some(inode) = state.names.get(&self.full_name(name)) else { return };
        let Some(file) = state.inodes.get_mut(*inode) else { return };
        for bytes in [&mut file.durable, &mut file.cached] {
            for (byte, change) in bytes.iter_mut().skip(offset).zip(mask) {
                *byte ^= change;
            }
        }
    }

    /// Shortens a file without a write, as a failing medium does.
    pub fn shorten(&self, name: &str, size: usize) {
        let state = &mut *self.lock();
        let Some(inode) = state.names.get(&self.full_name(name)) else { return };
        let Some(file) = state.inodes.get_mut(*inode) else { return };
        file.durable.truncate(size);
        file.cached.truncate(size);
        file.unsynced.clear();
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }
}

/// Returns whether a full name is in the directory with this prefix, and not below it.
fn is_in(prefix: &str, name: &str) -> bool {
    name.strip_prefix(prefix).is_some_and(|rest| !rest.contains('/'))
}

/// An open file of a [`SimulatedDisk`].
#[derive(Debug)]
struct SimulatedFile {
    disk: SimulatedDisk,
    name: String,
    inode: usize,
    epoch: u64,
}

impl SimulatedFile {
    /// Runs `work` on the file, unless the power was cut since it was opened.
    fn with<T>(
        &self,
        operation: Operation,
        work: impl FnOnce(&mut State) -> Result<T, Error>,
    ) -> Result<T, Error> {
        let state = &mut *self.disk.lock_for(operation, &self.name)?;
        if state.epoch != self.epoch {
            let source = io::Error::other("the file was opened before the power was cut");
            return Err(Error::new(operation, self.name.as_str(), source));
        }
        work(state)
    }

    fn fail(&self, operation: Operation, kind: io::ErrorKind) -> Error {
        Error::new(operation, self.name.as_str(), kind.into())
    }
}

impl Drop for SimulatedFile {
    fn drop(&mut self) {
        if let Some(file) = self.disk.lock().inodes.get_mut(self.inode) {
            file.handles = file.handles.saturating_sub(1);
        }
    }
}

impl Disk for SimulatedDisk {
    fn create(&self, name: &str, size_bytes: u64) -> Result<Box<dyn DiskFile>, Error> {
        let name = &*self.full_name(name);
        let state = &mut *self.lock_for(Operation::Create, name)?;
        let fault = state.begin_growth(Operation::Create, name)?;
        if state.names.contains_key(name) {
            return Err(Error::new(Operation::Create, name, io::ErrorKind::AlreadyExists.into()));
        }
        let size = usize::try_from(size_bytes)
            .map_err(|_| Error::new(Operation::Create, name, io::ErrorKind::FileTooLarge.into()))?;
        if let Some(fault) = fault {
            if fault == Fault::PowerOff {
                state.add_file(name, size / 2);
            }
            return Err(injected(fault, Operation::Create, name));
        }
        let inode = state.add_file(name, size);
        Ok(self.open_inode(state, name.to_owned(), inode))
    }

    fn open(&self, name: &str) -> Result<Box<dyn DiskFile>, Error> {
        let name = self.full_name(name);
        let state = &mut *self.lock_for(Operation::Open, &name)?;
        let inode = state.inode(Operation::Open, &name)?;
        Ok(self.open_inode(state, name, inode))
    }

    fn create_empty(&self, name: &str) -> Result<Box<dyn DiskFile>, Error> {
        self.create(name, 0)
    }

    fn open_to_read(&self, name: &str) -> Result<Box<dyn DiskFile>, Error> {
        self.open(name)
    }

    fn list(&self) -> Result<Vec<String>, Error> {
        let state = self.lock_for(Operation::List, ".")?;
        let own = state.names.keys().filter(|name| is_in(&self.prefix, name));
        Ok(own.filter_map(|name| name.get(self.prefix.len()..)).map(str::to_owned).collect())
    }

    fn rename(&self, from: &str, to: &str) -> Result<(), Error> {
        let (from, to) = (self.full_name(from), self.full_name(to));
        let state = &mut *self.lock_for(Operation::Rename, &from)?;
        if let Some(fault) = state.begin(Operation::Rename, &from)? {
            return Err(injected(fault, Operation::Rename, &from));
        }
        state.inode(Operation::Rename, &from)?;
        state.change(NameChange::Rename(from, to));
        Ok(())
    }

    fn remove(&self, name: &str) -> Result<(), Error> {
        let name = self.full_name(name);
        let state = &mut *self.lock_for(Operation::Remove, &name)?;
        if let Some(fault) = state.begin(Operation::Remove, &name)? {
            return Err(injected(fault, Operation::Remove, &name));
        }
        state.inode(Operation::Remove, &name)?;
        state.change(NameChange::Remove(name));
        Ok(())
    }

    fn sync_directory(&self) -> Result<(), Error> {
        let state = &mut *self.lock_for(Operation::SyncDirectory, ".")?;
        if let Some(fault) = state.begin(Operation::SyncDirectory, ".")? {
            return Err(injected(fault, Operation::SyncDirectory, "."));
        }
        state.sync_names(|name| is_in(&self.prefix, name));
        Ok(())
    }
}

impl DiskFile for SimulatedFile {
    fn size_bytes(&self) -> Result<u64, Error> {
        self.with(Operation::Size, |state| {
            Ok(state.inodes.get(self.inode).map_or(0, |file| file.cached.len() as u64))
        })
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> Result<(), Error> {
        self.with(Operation::Read, |state| {
            let found = state.inodes.get(self.inode).and_then(|file| {
                let start = usize::try_from(offset).ok()?;
                file.cached.get(start..start.checked_add(buffer.len())?)
            });
            let bytes =
                found.ok_or_else(|| self.fail(Operation::Read, io::ErrorKind::UnexpectedEof))?;
            buffer.copy_from_slice(bytes);
            Ok(())
        })
    }

    fn write_at(&self, offset: u64, bytes: &[u8]) -> Result<(), Error> {
        self.with(Operation::Write, |state| {
            if let Some(fault) = state.begin(Operation::Write, &self.name)? {
                return Err(injected(fault, Operation::Write, &self.name));
            }
            let refused = || self.fail(Operation::Write, io::ErrorKind::InvalidInput);
            let file = state.inodes.get_mut(self.inode).ok_or_else(refused)?;
            let start = usize::try_from(offset).map_err(|_| refused())?;
            let end = start.checked_add(bytes.len()).ok_or_else(refused)?;
            file.cached.get_mut(start..end).ok_or_else(refused)?.copy_from_slice(bytes);
            file.note_written(start..end);
            Ok(())
        })
    }

    fn append(&self, bytes: &[u8]) -> Result<(), Error> {
        self.with(Operation::Write, |state| {
            if let Some(fault) = state.begin_growth(Operation::Write, &self.name)? {
                return Err(injected(fault, Operation::Write, &self.name));
            }
            let refused = || self.fail(Operation::Write, io::ErrorKind::InvalidInput);
            let file = state.inodes.get_mut(self.inode).ok_or_else(refused)?;
            let start = file.cached.len();
            file.cached.extend_from_slice(bytes);
            file.note_written(start..file.cached.len());
            Ok(())
        })
    }

    fn sync_data(&self) -> Result<(), Error> {
        self.with(Operation::SyncData, |state| {
            let mut fault = state.begin(Operation::SyncData, &self.name)?;
            if std::mem::take(&mut state.sync_fails) && fault.is_none() {
                fault = Some(Fault::Io);
            }
            let file = state
                .inodes
                .get_mut(self.inode)
                .ok_or_else(|| self.fail(Operation::SyncData, io::ErrorKind::InvalidInput))?;
            if fault != Some(Fault::PowerOff) {
                let unsynced = std::mem::take(&mut file.unsynced);
                if fault.is_none() {
                    for (number, versions) in unsynced {
                        if let Some(newest) = versions.last() {
                            store(&mut file.durable, number, newest);
                        }
                    }
                }
            }
            match fault {
                Some(fault) => Err(injected(fault, Operation::SyncData, &self.name)),
                None => Ok(()),
            }
        })
    }
}
