//! Checks the first bytes of a function's program, as the operating system does when it starts the
//! program.

use std::fs::File;
use std::io::Read;
use std::path::Path;

/// Maximum length of a script's first line that Linux reads, in bytes (`BINPRM_BUF_SIZE`).
const LINE_BYTES_MAX: usize = 256;

/// The message for a file that is neither a program nor a script.
pub const NO_PROGRAM: &str = "it is neither a Linux program nor a script that begins with `#!` and the path of an interpreter";

/// The kinds of files, as seen by the operating system when it starts a program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Entrypoint {
    /// A program, a script whose interpreter exists, or a file that cannot be read.
    Valid,
    /// A script whose interpreter does not exist on this machine. The value is the interpreter's
    /// path.
    NoInterpreter(String),
    /// Neither a program nor a script.
    NoProgram,
}

/// Reads the first bytes of a file and returns its kind.
#[must_use]
pub fn look(path: &Path) -> Entrypoint {
    let mut begin = Vec::new();
    let read =
        File::open(path).and_then(|file| file.take(LINE_BYTES_MAX as u64).read_to_end(&mut begin));
    if read.is_err() {
        return Entrypoint::Valid;
    }
    of_bytes(&begin, |interpreter| Path::new(interpreter).exists())
}

fn of_bytes(begin: &[u8], is_there: impl Fn(&str) -> bool) -> Entrypoint {
    // Operating systems other than Linux reject an invalid program only when it is started.
    if begin.starts_with(b"\x7fELF") || !cfg!(target_os = "linux") {
        return Entrypoint::Valid;
    }
    let Some(line) = begin.strip_prefix(b"#!") else { return Entrypoint::NoProgram };
    let line = line.split(|byte| *byte == b'\n').next().unwrap_or_default();
    // Editors on Windows write a carriage return at the end of the line. Linux interprets it as
    // part of the interpreter's name.
    let line = String::from_utf8_lossy(line);
    let name = line.trim_matches([' ', '\t']).split([' ', '\t']).next().unwrap_or_default();
    match name {
        "" => Entrypoint::NoProgram,
        name if is_there(name) => Entrypoint::Valid,
        name => Entrypoint::NoInterpreter(name.escape_debug().to_string()),
    }
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;

    #[test]
    fn a_program_begins_with_its_kind_or_its_interpreter() {
        let missing = |name: &str| Entrypoint::NoInterpreter(name.to_owned());
        let cases: [(&[u8], Entrypoint); 10] = [
            (b"\x7fELF\x02\x01", Entrypoint::Valid),
            (b"#!/bin/sh\necho", Entrypoint::Valid),
            (b"#! /bin/sh -e\n", Entrypoint::Valid),
            (b"#!/bin/sh", Entrypoint::Valid),
            (b"#!/no/python3\n", missing("/no/python3")),
            (b"#!/no/python3 -u\n", missing("/no/python3")),
            (b"#!/bin/sh\r\n", missing("/bin/sh\\r")),
            (b"#!\n", Entrypoint::NoProgram),
            (b"echo hello\n", Entrypoint::NoProgram),
            (b"", Entrypoint::NoProgram),
        ];
        for (begin, expected) in cases {
            let found = of_bytes(begin, |name| name == "/bin/sh");
            assert_eq!(found, expected, "{}", String::from_utf8_lossy(begin));
        }
    }
}
