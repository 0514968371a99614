//! What a node that waits to start says in its log.

use std::time::Instant;

use super::{IdentityAnswers, PROGRESS};

pub(super) fn waiting_for(answers: &IdentityAnswers, all_needed: bool) -> String {
    let missing: Vec<String> =
        answers.values().filter_map(|who| who.as_ref().err().map(ToString::to_string)).collect();
    match (missing.is_empty(), all_needed) {
        (false, _) => format!("waiting for peers: {}", missing.join("; ")),
        (true, true) => "waiting for a leader".to_owned(),
        (true, false) => "waiting for the first node to create the cluster".to_owned(),
    }
}

/// The log of a node that is waiting to start, limited to one line per [`PROGRESS`]. The value is the
/// time of the last line.
pub(super) struct WaitReport(Instant);

impl WaitReport {
    pub(super) fn new() -> Self {
        Self(Instant::now())
    }

    pub(super) fn log(&mut self, what: &str) {
        if self.0.elapsed() >= PROGRESS {
            tracing::info!("{what}");
            self.0 = Instant::now();
        }
    }
}
