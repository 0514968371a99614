//! Locks that never continue with a state that a panic left behind.
//!
//! A thread that panics while it holds a lock may leave the locked state half changed; the standard
//! library then calls the lock poisoned. These locks have no error for that. In a process that has
//! called [`abort_when_poisoned`], taking a poisoned lock ends the process: what is on disk is whole,
//! and a restart recovers from it. Everywhere else, in tests and in the simulation, it panics: the test
//! or the run fails and says why, and the others go on.
//!
//! Locks that are held across an `await` are tokio's, not these.

use std::any::type_name;
use std::panic::Location;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{LockResult, MutexGuard, PoisonError, RwLockReadGuard, RwLockWriteGuard};
use std::{process, thread};

/// Whether a poisoned lock ends the process.
static ABORTS: AtomicBool = AtomicBool::new(false);

/// Makes every poisoned lock end the process from now on. A program that serves or stores data calls
/// it first.
pub fn abort_when_poisoned() {
    ABORTS.store(true, Ordering::Relaxed);
}

/// Returns the guard or the value of a lock that is not poisoned.
///
/// A thread that already panics gets that of a poisoned one, too: it only drops what it has, and a
/// second panic would end the process before the first is reported.
#[track_caller]
fn unpoisoned<T: ?Sized, G>(result: LockResult<G>) -> G {
    match result {
        Ok(guard) => guard,
        Err(poisoned) => recover_or_end::<T, G>(poisoned),
    }
}

#[cold]
#[track_caller]
#[expect(clippy::panic, reason = "the state may be half changed, and no caller can repair it")]
#[expect(clippy::print_stderr, reason = "the process ends here, whatever its log does")]
#[expect(clippy::disallowed_methods, reason = "a thread that panics only drops what it has")]
fn recover_or_end<T: ?Sized, G>(poisoned: PoisonError<G>) -> G {
    let message = format!(
        "the lock of `{}`, taken at {}, is poisoned: a thread panicked while it held the lock",
        type_name::<T>(),
        Location::caller(),
    );
    if ABORTS.load(Ordering::Relaxed) {
        eprintln!("{message}; the process ends, restart it");
        process::abort();
    }
    if thread::panicking() {
        return poisoned.into_inner();
    }
    panic!("{message}");
}

/// A lock for one holder at a time.
#[derive(Debug, Default)]
pub struct Mutex<T: ?Sized>(std::sync::Mutex<T>);

impl<T> Mutex<T> {
    /// Makes a lock of a value.
    pub const fn new(value: T) -> Self {
        Self(std::sync::Mutex::new(value))
    }

    /// Returns the value.
    #[track_caller]
    pub fn into_inner(self) -> T {
        unpoisoned::<T, _>(self.0.into_inner())
    }
}

impl<T: ?Sized> Mutex<T> {
    /// Waits for the lock and takes it.
    #[track_caller]
    pub fn lock(&self) -> MutexGuard<'_, T> {
        unpoisoned::<T, _>(self.0.lock())
    }

    /// Takes the lock if it is free.
    #[track_caller]
    pub fn try_lock(&self) -> Option<MutexGuard<'_, T>> {
        match self.0.try_lock() {
            Ok(guard) => Some(guard),
            Err(std::sync::TryLockError::WouldBlock) => None,
            Err(std::sync::TryLockError::Poisoned(poisoned)) => {
                Some(recover_or_end::<T, _>(poisoned))
            }
        }
    }
}

/// A lock for one writer or many readers at a time.
#[derive(Debug, Default)]
pub struct RwLock<T: ?Sized>(std::sync::RwLock<T>);

impl<T> RwLock<T> {
    /// Makes a lock of a value.
    pub const fn new(value: T) -> Self {
        Self(std::sync::RwLock::new(value))
    }
}

impl<T: ?Sized> RwLock<T> {
    /// Waits until no writer has the lock and takes it for reading.
    #[track_caller]
    pub fn read(&self) -> RwLockReadGuard<'_, T> {
        unpoisoned::<T, _>(self.0.read())
    }

    /// Waits until nobody has the lock and takes it for writing.
    #[track_caller]
    pub fn write(&self) -> RwLockWriteGuard<'_, T> {
        unpoisoned::<T, _>(self.0.write())
    }
}

/// Lets the holder of a [`Mutex`] wait until another thread notifies it.
#[derive(Debug, Default)]
pub struct Condvar(std::sync::Condvar);

impl Condvar {
    /// Makes one that nobody waits for.
    pub const fn new() -> Self {
        Self(std::sync::Condvar::new())
    }

    /// Releases the lock, waits for a notification or a spurious wake-up, and takes the lock again.
    #[track_caller]
    pub fn wait<'g, T>(&self, guard: MutexGuard<'g, T>) -> MutexGuard<'g, T> {
        unpoisoned::<T, _>(self.0.wait(guard))
    }

    /// Wakes one thread that waits.
    pub fn notify_one(&self) {
        self.0.notify_one();
    }

    /// Wakes all threads that wait.
    pub fn notify_all(&self) {
        self.0.notify_all();
    }
}

#[cfg(test)]
mod tests;
