//! What happens to a function and its instances, told to who watches.
//!
//! Nothing depends on being watched: an observer cannot change what happens.

use std::{sync::Arc, time::Duration};

use super::InvokeOutcome;

/// Called for each event, in the task where it happens: it must be quick and must not block.
pub type Observer = Arc<dyn Fn(&Event<'_>) + Send + Sync>;

/// Where a line was written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stream {
    /// Standard output.
    Output,
    /// Standard error.
    Error,
}

/// Something that happened. Each names its function.
#[derive(Debug, Clone)]
pub enum Event<'a> {
    /// A process was started.
    InstanceStarted {
        /// The function.
        function: &'a str,
        /// The process.
        pid: u32,
    },
    /// A process asked for its first invocation.
    InstanceReady {
        /// The function.
        function: &'a str,
        /// The process.
        pid: u32,
        /// Since it was started.
        init: Duration,
    },
    /// A process ended.
    InstanceExited {
        /// The function.
        function: &'a str,
        /// The process.
        pid: u32,
        /// How, in Lambda's words.
        exit: &'a str,
    },
    /// The program was built anew: what is invoked from now on is run by the new one, and idle
    /// instances of the one before end.
    ProgramChanged {
        /// The function.
        function: &'a str,
    },
    /// An instance took an invocation.
    InvocationStarted {
        /// The function.
        function: &'a str,
        /// The invocation.
        request_id: &'a str,
        /// The process.
        pid: u32,
        /// Whether the instance was started for it.
        cold: bool,
    },
    /// An invocation ended.
    InvocationEnded {
        /// The function.
        function: &'a str,
        /// The invocation.
        request_id: &'a str,
        /// How.
        outcome: &'a InvokeOutcome,
        /// Since an instance took it.
        duration: Duration,
    },
    /// A process wrote a line.
    Line {
        /// The function.
        function: &'a str,
        /// Where.
        stream: Stream,
        /// The invocation that ran, if one did.
        request_id: Option<&'a str>,
        /// The line, without its end.
        line: &'a str,
    },
}
