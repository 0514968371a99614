//! Output of results to standard output, and of all other messages to standard error.

use std::io::{self, Write as _};

/// Writes a line to standard output and flushes it.
pub(crate) fn print(line: &str) -> io::Result<()> {
    writeln!(io::stdout(), "{line}")
}

/// Writes a line to standard error.
pub(crate) fn say(line: &str) {
    // A failure cannot be reported anywhere else.
    let _ = writeln!(io::stderr(), "{line}");
}
