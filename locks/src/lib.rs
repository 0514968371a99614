//! Locks that never expose a value that a panic has left half changed.
//!
//! A thread that panics while it holds a lock may leave the protected value inconsistent. The
//! standard library calls such a lock poisoned. These locks return no poison error. In a process
//! that called [`abort_when_poisoned`], acquiring a poisoned lock prints the reason and aborts the
//! process. The data on disk is consistent, and a restart recovers from it. In tests and in the
//! simulation, acquiring a poisoned lock panics, so that only one test or run fails.
//!
//! For a lock that is held across an `await`, use a lock of tokio.

use std::any::type_name;
use std::panic::Location;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{LockResult, MutexGuard, PoisonError, RwLockReadGuard, RwLockWriteGuard};
use std::{process, thread};

/// Whether acquiring a poisoned lock aborts the process. If false, it panics.
static ABORTS: AtomicBool = AtomicBool::new(false);

/// Sets this process to abort when it acquires a poisoned lock. Call this function at the start of
/// a program that serves or stores data.
pub fn abort_when_poisoned() {
    ABORTS.store(true, Ordering::Relaxed);
}

/// Returns the guard or the value of a lock that is not poisoned.
///
/// A thread that is already panicking also gets the guard of a poisoned lock: it only drops values,
/// and a second panic would abort the process before the first panic is reported.
#[track_caller]
fn unpoisoned<T: ?Sized, G>(result: LockResult<G>) -> G {
    match result {
        Ok(guard) => guard,
        Err(poisoned) => recover_or_abort::<T, G>(poisoned),
    }
}

#[cold]
#[track_caller]
#[expect(clippy::panic, reason = "the state may be half changed, and no caller can repair it")]
#[expect(clippy::print_stderr, reason = "the process aborts here and cannot wait for its log")]
#[expect(clippy::disallowed_methods, reason = "a panicking thread only drops its values")]
fn recover_or_abort<T: ?Sized, G>(poisoned: PoisonError<G>) -> G {
    let message = format!(
        "the lock of `{}`, taken at {}, is poisoned: a thread panicked while it held the lock",
        type_name::<T>(),
        Location::caller(),
    );
    if ABORTS.load(Ordering::Relaxed) {
        eprintln!("{message}; the process aborts; restart the process");
        process::abort();
    }
    if thread::panicking() {
        return poisoned.into_inner();
    }
    panic!("{message}");
}

/// A lock that one thread at a time can hold.
#[derive(Debug, Default)]
pub struct Mutex<T: ?Sized>(std::sync::Mutex<T>);

impl<T> Mutex<T> {
    /// Creates an unlocked mutex.
    pub const fn new(value: T) -> Self {
        Self(std::sync::Mutex::new(value))
    }

    /// Consumes the lock and returns its value.
    #[track_caller]
    pub fn into_inner(self) -> T {
        unpoisoned::<T, _>(self.0.into_inner())
    }
}

impl<T: ?Sized> Mutex<T> {
    /// Blocks until the lock is free, and then acquires it.
    #[track_caller]
    pub fn lock(&self) -> MutexGuard<'_, T> {
        unpoisoned::<T, _>(self.0.lock())
    }

    /// Acquires the lock if it is free. Otherwise returns `None` immediately.
    #[track_caller]
    pub fn try_lock(&self) -> Option<MutexGuard<'_, T>> {
        match self.0.try_lock() {
            Ok(guard) => Some(guard),
            Err(std::sync::TryLockError::WouldBlock) => None,
            Err(std::sync::TryLockError::Poisoned(poisoned)) => {
                Some(recover_or_abort::<T, _>(poisoned))
            }
        }
    }
}

/// A lock that one writer or many readers at a time can hold.
#[derive(Debug, Default)]
pub struct RwLock<T: ?Sized>(std::sync::RwLock<T>);

impl<T> RwLock<T> {
    /// Creates an unlocked lock.
    pub const fn new(value: T) -> Self {
        Self(std::sync::RwLock::new(value))
    }
}

impl<T: ?Sized> RwLock<T> {
    /// Blocks until no writer holds the lock, and then acquires it for reading.
    #[track_caller]
    pub fn read(&self) -> RwLockReadGuard<'_, T> {
        unpoisoned::<T, _>(self.0.read())
    }

    /// Blocks until no other thread holds the lock, and then acquires it for writing.
    #[track_caller]
    pub fn write(&self) -> RwLockWriteGuard<'_, T> {
        unpoisoned::<T, _>(self.0.write())
    }
}

/// A condition variable, on which the holder of a [`Mutex`] waits until another thread notifies it.
#[derive(Debug, Default)]
pub struct Condvar(std::sync::Condvar);

impl Condvar {
    /// Creates a condition variable without waiters.
    pub const fn new() -> Self {
        Self(std::sync::Condvar::new())
    }

    /// Releases the lock, waits for a notification or a spurious wake-up, and acquires the lock
    /// again.
    #[track_caller]
    pub fn wait<'g, T>(&self, guard: MutexGuard<'g, T>) -> MutexGuard<'g, T> {
        unpoisoned::<T, _>(self.0.wait(guard))
    }

    /// Wakes one waiting thread.
    pub fn notify_one(&self) {
        self.0.notify_one();
    }

    /// Wakes all waiting threads.
    pub fn notify_all(&self) {
        self.0.notify_all();
    }
}

#[cfg(test)]
mod tests;
