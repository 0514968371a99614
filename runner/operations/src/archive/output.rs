//! Writes lines of data until the reader closes the pipe.
//!
//! A closed pipe, as after `weir archive get … | head`, is not an error.

use std::io::{ErrorKind, Write};

use client::failure::{Result, fatal};

/// The writer of lines.
pub(super) struct Output<'w> {
    writer: &'w mut dyn Write,
    closed: bool,
}

impl<'w> Output<'w> {
    pub(super) fn new(writer: &'w mut dyn Write) -> Self {
        Self { writer, closed: false }
    }

    /// Writes one line.
    pub(super) fn line(&mut self, text: &str) -> Result<()> {
        if self.closed {
            return Ok(());
        }
        let written = writeln!(self.writer, "{text}");
        self.note(written)
    }

    /// Flushes the buffers.
    pub(super) fn flush(&mut self) -> Result<()> {
        if self.closed {
            return Ok(());
        }
        let flushed = self.writer.flush();
        self.note(flushed)
    }

    fn note(&mut self, result: std::io::Result<()>) -> Result<()> {
        match result {
            Ok(()) => Ok(()),
            Err(error) if error.kind() == ErrorKind::BrokenPipe => {
                self.closed = true;
                Ok(())
            }
            Err(error) => Err(fatal!("cannot write the output: {error}")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Closing(ErrorKind);

    impl Write for Closing {
        fn write(&mut self, _: &[u8]) -> std::io::Result<usize> {
            Err(self.0.into())
        }
        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn a_closed_pipe_ends_the_output_and_a_full_disk_is_an_error() {
        let mut pipe = Closing(ErrorKind::BrokenPipe);
        let mut output = Output::new(&mut pipe);
        assert!(output.line("a").is_ok() && output.closed && output.line("b").is_ok());
        let mut disk = Closing(ErrorKind::StorageFull);
        assert!(Output::new(&mut disk).line("a").is_err());
    }
}
