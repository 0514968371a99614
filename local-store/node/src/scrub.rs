//! How far the verifying of a replica's files is.

use std::sync::MutexGuard;

use locks::Mutex;
use serde::{Deserialize, Serialize};

/// What was verified of a replica: its state, and with the first arc the log of its node. Kept beside
/// the state, so that a pass goes on after a restart.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Progress {
    /// Passes over everything since the replica was made.
    pub passes: u64,
    /// When the last pass ended, in milliseconds since 1970.
    pub completed_ms: Option<u64>,
    /// When this pass began, if one is under way.
    pub begun_ms: Option<u64>,
    /// Bytes that this pass has verified, or the last one.
    pub verified_bytes: u64,
    /// Bytes that there were when it began.
    pub all_bytes: u64,
}

/// The progress of a running replica.
#[derive(Debug, Default)]
pub struct Scrub(Mutex<Progress>);

impl Scrub {
    fn lock(&self) -> MutexGuard<'_, Progress> {
        self.0.lock()
    }

    /// As it is now.
    pub fn progress(&self) -> Progress {
        self.lock().clone()
    }

    /// Changes it.
    pub fn update(&self, change: impl FnOnce(&mut Progress)) {
        change(&mut self.lock());
    }
}
