//! A disk in memory whose power can be cut: a cut loses, tears and reorders unsynced writes.
//!
//! The simulated disk fulfils the contract of [`super`]: a synced byte is safe, a sector is never
//! half old and half new, and a sector never shows a later write without the earlier writes. The
//! caller's seed determines all random choices.

use std::collections::BTreeMap;
use std::io;
use std::ops::Range;
use std::sync::{Arc, MutexGuard};

use locks::Mutex;

use super::{Disk, DiskFile, Error, Operation, SECTOR_BYTES, SplitMix64};

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

/// The content of a sector, which is shorter than a sector at the end of a file.
type Sector = Vec<u8>;

/// The contents of one file, without its names.
#[derive(Debug, Default)]
struct Inode {
    /// The content that survives a power cut.
    durable: Vec<u8>,
    /// The content that reads see.
    cached: Vec<u8>,
    /// For each sector written since the last sync: every content that the sector has had, oldest
    /// first.
    unsynced: BTreeMap<usize, Vec<Sector>>,
}

impl Inode {
    /// Records the content of the sectors in a range of bytes that was written.
    fn note_written(&mut self, range: Range<usize>) {
        let numbers = range.start / SECTOR_BYTES..range.end.div_ceil(SECTOR_BYTES);
        let written = self.cached.chunks(SECTOR_BYTES).enumerate().take(numbers.end);
        for (number, sector) in written.skip(numbers.start) {
            self.unsynced.entry(number).or_default().push(sector.to_vec());
        }
    }
}

#[derive(Debug, Clone)]
enum NameChange {
    Create(String, usize),
    Rename(String, String),
    Remove(String),
}

impl NameChange {
    /// Applies the change of a name. Does nothing if the change needs a name whose creation was
    /// lost.
    fn apply(self, names: &mut BTreeMap<String, usize>) {
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
struct State {
    inodes: Vec<Inode>,
    /// The names that survive a power cut. The next field has the current names, as a listing shows
    /// them.
    durable_names: BTreeMap<String, usize>,
    names: BTreeMap<String, usize>,
    unsynced_names: Vec<NameChange>,
    /// Number of attempted operations that change the disk.
    operations: u64,
    faults: BTreeMap<u64, Fault>,
    powered_off: bool,
    /// Whether the disk is full, so that no file can be created. `refusals` counts the rejected
    /// creations.
    full: bool,
    refusals: u64,
    /// Whether the next sync of data fails.
    sync_fails: bool,
    /// Number of power cuts. Operations on files that were opened before the last cut fail.
    epoch: u64,
}

impl State {
    fn check_power(&self, operation: Operation, name: &str) -> Result<(), Error> {
        if self.powered_off {
            return Err(Error::new(operation, name, io::Error::other("the power is off")));
        }
        Ok(())
    }

    /// Counts an operation, and returns the fault that was injected for its number.
    fn begin(&mut self, operation: Operation, name: &str) -> Result<Option<Fault>, Error> {
        self.check_power(operation, name)?;
        let fault = self.faults.remove(&self.operations);
        self.operations += 1;
        if fault == Some(Fault::PowerOff) {
            self.powered_off = true;
        }
        Ok(fault)
    }

    /// Counts an operation that needs space, and returns its fault.
    fn begin_growth(&mut self, operation: Operation, name: &str) -> Result<Option<Fault>, Error> {
        let fault = self.begin(operation, name)?;
        if self.full && fault.is_none() {
            self.refusals += 1;
            return Ok(Some(Fault::OutOfSpace));
        }
        Ok(fault)
    }

    fn inode(&mut self, operation: Operation, name: &str) -> Result<usize, Error> {
        match self.names.get(name) {
            Some(inode) => Ok(*inode),
            None => Err(Error::new(operation, name, io::ErrorKind::NotFound.into())),
        }
    }

    fn change(&mut self, change: NameChange) {
        change.clone().apply(&mut self.names);
        self.unsynced_names.push(change);
    }

    fn add_file(&mut self, name: &str, size: usize) -> usize {
        let bytes = vec![0; size];
        let file = Inode { durable: bytes.clone(), cached: bytes, unsynced: BTreeMap::default() };
        self.inodes.push(file);
        let inode = self.inodes.len() - 1;
        self.change(NameChange::Create(name.to_owned(), inode));
        inode
    }
}

fn injected(fault: Fault, operation: Operation, name: &str) -> Error {
    let source = match fault {
        Fault::Io => io::Error::other("input/output error"),
        Fault::OutOfSpace => io::Error::new(io::ErrorKind::StorageFull, "no space left on device"),
        Fault::PowerOff => io::Error::other("the power went off"),
    };
    Error::new(operation, name, source)
}

/// A disk in memory. Clones share the same disk.
#[derive(Debug, Clone, Default)]
pub struct SimulatedDisk {
    state: Arc<Mutex<State>>,
}

impl SimulatedDisk {
    /// Creates an empty disk.
    pub fn new() -> Self {
        SimulatedDisk::default()
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
        let Some(inode) = state.names.get(name) else { return };
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
        let Some(inode) = state.names.get(name) else { return };
        let Some(file) = state.inodes.get_mut(*inode) else { return };
        file.durable.truncate(size);
        file.cached.truncate(size);
        file.unsynced.clear();
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }
}

/// Stores the content of a sector, and extends the file with zeros up to the sector's end.
fn store(bytes: &mut Vec<u8>, number: usize, content: &[u8]) {
    let start = number * SECTOR_BYTES;
    let end = start + content.len();
    if bytes.len() < end {
        bytes.resize(end, 0);
    }
    if let Some(sector) = bytes.get_mut(start..end) {
        sector.copy_from_slice(content);
    }
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
        let state = &mut *self.disk.lock();
        state.check_power(operation, &self.name)?;
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

impl Disk for SimulatedDisk {
    fn create(&self, name: &str, size_bytes: u64) -> Result<Box<dyn DiskFile>, Error> {
        let state = &mut *self.lock();
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
        let epoch = state.epoch;
        Ok(Box::new(SimulatedFile { disk: self.clone(), name: name.to_owned(), inode, epoch }))
    }

    fn open(&self, name: &str) -> Result<Box<dyn DiskFile>, Error> {
        let state = &mut *self.lock();
        state.check_power(Operation::Open, name)?;
        let inode = state.inode(Operation::Open, name)?;
        let epoch = state.epoch;
        Ok(Box::new(SimulatedFile { disk: self.clone(), name: name.to_owned(), inode, epoch }))
    }

    fn create_empty(&self, name: &str) -> Result<Box<dyn DiskFile>, Error> {
        self.create(name, 0)
    }

    fn open_to_read(&self, name: &str) -> Result<Box<dyn DiskFile>, Error> {
        self.open(name)
    }

    fn list(&self) -> Result<Vec<String>, Error> {
        let state = self.lock();
        state.check_power(Operation::List, ".")?;
        Ok(state.names.keys().cloned().collect())
    }

    fn rename(&self, from: &str, to: &str) -> Result<(), Error> {
        let state = &mut *self.lock();
        if let Some(fault) = state.begin(Operation::Rename, from)? {
            return Err(injected(fault, Operation::Rename, from));
        }
        state.inode(Operation::Rename, from)?;
        state.change(NameChange::Rename(from.to_owned(), to.to_owned()));
        Ok(())
    }

    fn remove(&self, name: &str) -> Result<(), Error> {
        let state = &mut *self.lock();
        if let Some(fault) = state.begin(Operation::Remove, name)? {
            return Err(injected(fault, Operation::Remove, name));
        }
        state.inode(Operation::Remove, name)?;
        state.change(NameChange::Remove(name.to_owned()));
        Ok(())
    }

    fn sync_directory(&self) -> Result<(), Error> {
        let state = &mut *self.lock();
        if let Some(fault) = state.begin(Operation::SyncDirectory, ".")? {
            return Err(injected(fault, Operation::SyncDirectory, "."));
        }
        for change in std::mem::take(&mut state.unsynced_names) {
            change.apply(&mut state.durable_names);
        }
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
