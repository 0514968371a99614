//! Results to standard output, everything else to standard error.

use std::io::{self, Write as _};

/// Writes a line to standard output at once.
pub(crate) fn print(line: &str) -> io::Result<()> {
    writeln!(io::stdout(), "{line}")
}

/// Writes a line to standard error.
pub(crate) fn say(line: &str) {
    // Nothing is left to report it to.
    let _ = writeln!(io::stderr(), "{line}");
}
