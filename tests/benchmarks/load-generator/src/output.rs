//! Prints results to standard output, everything else to standard error.

use std::io::{self, Write as _};

/// Writes a line to standard output and flushes it.
pub(crate) fn print(line: &str) -> io::Result<()> {
    writeln!(io::stdout(), "{line}")
}

/// Writes a line to standard error.
pub(crate) fn say(line: &str) {
    // There is nowhere to report a failure.
    let _ = writeln!(io::stderr(), "{line}");
}
