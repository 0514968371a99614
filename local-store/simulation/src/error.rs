//! Errors of a node, classified by what the world must do, and errors that are only shown.

use std::fmt::Display;

/// The reason why a node did not start or cannot continue. Each variant contains the message.
///
/// The type does not implement [`Display`], so that `?` converts every error that does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NodeError {
    /// The power is off: end the process, cut the power of the disk, and start the node again.
    PowerLost(String),
    /// The disk is full or rejected an operation: end the process, and start the node again.
    DiskUnavailable(String),
    /// The data is damaged: if a fault damaged it, replace the disk with an empty disk. Otherwise
    /// report a defect.
    Damaged(String),
    /// Any other reason: report a defect.
    Broken(String),
}

impl NodeError {
    /// Returns the message.
    #[must_use]
    pub fn reason(&self) -> &str {
        match self {
            Self::PowerLost(reason)
            | Self::DiskUnavailable(reason)
            | Self::Damaged(reason)
            | Self::Broken(reason) => reason,
        }
    }
}

impl<E: Display> From<E> for NodeError {
    /// Classifies an error by its message, because the errors of nodes, states and reads contain
    /// the error of the disk only as text.
    fn from(error: E) -> Self {
        let reason = error.to_string();
        let has = |texts: &[&str]| texts.iter().any(|text| reason.contains(text));
        if has(&["the power is off", "the power went off"]) {
            Self::PowerLost(reason)
        } else if has(&["no space", "input/output"]) {
            Self::DiskUnavailable(reason)
        } else if has(&["corrupt"]) {
            Self::Damaged(reason)
        } else {
            Self::Broken(reason)
        }
    }
}

/// The message of an error that ends a run. It is only shown.
///
/// The type does not implement [`Display`], so that `?` converts every error that does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HarnessError(pub String);

impl<E: Display> From<E> for HarnessError {
    fn from(error: E) -> Self {
        Self(error.to_string())
    }
}

impl From<NodeError> for HarnessError {
    fn from(error: NodeError) -> Self {
        Self(error.reason().to_owned())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::AtomicBool;

    use node::ring::ArcId;
    use storage::disk::{Fault, SimulatedDisk};
    use storage::log::{Log, Options};

    use super::NodeError;
    use crate::world::state::State;

    /// Goal: the errors of logs and states contain the text by which they are classified.
    #[test]
    fn an_error_of_the_disk_is_classified_in_errors_of_logs_and_states() {
        type Make = fn(String) -> NodeError;
        let cases: [(Fault, Make); 3] = [
            (Fault::PowerOff, NodeError::PowerLost),
            (Fault::Io, NodeError::DiskUnavailable),
            (Fault::OutOfSpace, NodeError::DiskUnavailable),
        ];
        for (fault, expected) in cases {
            let disk = || {
                let disk = SimulatedDisk::new();
                disk.fail_at(0, fault);
                disk
            };
            let log = Log::open(Arc::new(disk()), Options::default()).err().unwrap();
            let state = State::new(&disk(), ArcId::FIRST, Some(2_048));
            let state = state.open(&Arc::new(AtomicBool::new(true))).err().unwrap();
            for error in [NodeError::from(log), NodeError::from(state)] {
                assert_eq!(error, expected(error.reason().to_owned()));
            }
        }
    }
}
