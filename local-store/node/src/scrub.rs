//! The progress of the verification of a replica's files.

use std::sync::MutexGuard;

use locks::Mutex;
use serde::{Deserialize, Serialize};

/// The progress of the scrub, which verifies the files of a replica: its state and, for the first
/// arc, the node's log. The progress is stored beside the state, so that a pass continues after a
/// restart.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Progress {
    /// Complete passes since the replica was created.
    pub passes: u64,
    /// The time at which the last pass ended, in milliseconds since 1970.
    pub completed_ms: Option<u64>,
    /// The time at which the current pass began, in milliseconds since 1970; `None` if no pass is
    /// in progress.
    pub begun_ms: Option<u64>,
    /// Bytes verified by the current pass, or by the last pass if none is in progress.
    pub verified_bytes: u64,
    /// Total bytes of the files at the start of the current or last pass.
    pub all_bytes: u64,
}

/// The progress of a running replica's scrub, shared between its threads.
#[derive(Debug, Default)]
pub struct Scrub(Mutex<Progress>);

impl Scrub {
    fn lock(&self) -> MutexGuard<'_, Progress> {
        self.0.lock()
    }

    /// Returns the current progress.
    pub fn progress(&self) -> Progress {
        self.lock().clone()
    }

    /// Changes the progress.
    pub fn update(&self, change: impl FnOnce(&mut Progress)) {
        change(&mut self.lock());
    }
}
