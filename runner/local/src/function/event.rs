//! The events of a function and its instances, for observers.
//!
//! An observer cannot influence the function.

use std::{sync::Arc, time::Duration};

use super::InvokeOutcome;

/// Receives each event, in the task in which the event happens. The observer must be quick and must not
/// block.
pub type Observer = Arc<dyn Fn(&Event<'_>) + Send + Sync>;

/// The stream to which a line was written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stream {
    /// Standard output.
    Output,
    /// Standard error.
    Error,
}

/// An event of a function or of one of its instances.
#[derive(Debug, Clone)]
pub enum Event<'a> {
    /// A process was started.
    InstanceStarted {
        /// The name of the function.
        function: &'a str,
        /// The process id.
        pid: u32,
    },
    /// A process requested its first invocation, so it is ready.
    InstanceReady {
        /// The name of the function.
        function: &'a str,
        /// The process id.
        pid: u32,
        /// The time since the process was started.
        init: Duration,
    },
    /// A process ended.
    InstanceExited {
        /// The name of the function.
        function: &'a str,
        /// The process id.
        pid: u32,
        /// The exit of the process, in the words that Lambda uses.
        exit: &'a str,
    },
    /// The program was rebuilt. Later invocations use the new program, and idle instances of the old
    /// program end.
    ProgramChanged {
        /// The name of the function.
        function: &'a str,
    },
    /// An instance received an invocation.
    InvocationStarted {
        /// The name of the function.
        function: &'a str,
        /// The request id of the invocation.
        request_id: &'a str,
        /// The process id.
        pid: u32,
        /// Whether the instance was started for this invocation.
        cold: bool,
    },
    /// An invocation ended.
    InvocationEnded {
        /// The name of the function.
        function: &'a str,
        /// The request id of the invocation.
        request_id: &'a str,
        /// The outcome of the invocation.
        outcome: &'a InvokeOutcome,
        /// The time since an instance received the invocation.
        duration: Duration,
    },
    /// A process wrote a line.
    Line {
        /// The name of the function.
        function: &'a str,
        /// The stream to which the line was written.
        stream: Stream,
        /// The request id of the running invocation, if there was one.
        request_id: Option<&'a str>,
        /// The line, without its newline.
        line: &'a str,
    },
}
