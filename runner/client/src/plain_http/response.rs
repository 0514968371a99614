//! Where an HTTP/1.1 answer ends, what its status is, and where its body is.
//!
//! Only what servers of this protocol send: a length or chunks. It reads no socket and does not
//! look into bodies.

/// Bytes of an answer's head at most.
const HEAD_BYTES_MAX: usize = 16 * 1024;
/// Bytes of a whole answer at most: a page of 1 MB with room for JSON's own characters.
pub(super) const ANSWER_BYTES_MAX: usize = 4 * 1024 * 1024;

/// A whole answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Answer {
    /// The HTTP status.
    pub status: u16,
    /// Offset of the body's first byte; in a chunked answer, of its first chunk's length.
    pub body_start: usize,
    /// Offset after the answer's last byte.
    pub end: usize,
    /// Whether the server closes the connection after it.
    pub closes: bool,
}

enum Framing {
    Length(usize),
    Chunked,
}

/// Finds the answer at the beginning of `bytes`; none as long as it is not whole.
///
/// # Errors
/// When the bytes are no HTTP/1.1 answer, it says neither its length nor that it is chunked, or it
/// is too large.
pub(super) fn parse(bytes: &[u8]) -> Result<Option<Answer>, String> {
    let mut lines = Lines { bytes, at: 0 };
    let Some(first) = lines.next_line() else {
        return head_incomplete(bytes);
    };
    let status = parse_status(first)?;
    let mut framing = None;
    let mut closes = false;
    loop {
        let Some(line) = lines.next_line() else {
            return head_incomplete(bytes);
        };
        if line.is_empty() {
            break;
        }
        let Some((name, value)) = split_header(line) else {
            return Err("a header line has no colon".to_owned());
        };
        // The first byte decides for most headers: this runs once for every request.
        match name.first() {
            Some(b'c' | b'C') if name.eq_ignore_ascii_case(b"content-length") => {
                framing = framing.or(Some(Framing::Length(parse_number(value, 10)?)));
            }
            Some(b'c' | b'C') if name.eq_ignore_ascii_case(b"connection") => {
                closes = value.eq_ignore_ascii_case(b"close");
            }
            Some(b't' | b'T') if name.eq_ignore_ascii_case(b"transfer-encoding") => {
                framing = Some(Framing::Chunked);
            }
            _ => {}
        }
    }
    let body_start = lines.at;
    let end = match framing {
        Some(Framing::Length(length)) => Some(body_start.saturating_add(length)),
        Some(Framing::Chunked) => end_of_chunks(&mut lines)?,
        None => return Err("an answer has no Content-Length and no chunks".to_owned()),
    };
    match end {
        Some(end) if end > ANSWER_BYTES_MAX => {
            Err(format!("an answer of {end} bytes is longer than {ANSWER_BYTES_MAX}"))
        }
        Some(end) if end <= bytes.len() => Ok(Some(Answer { status, body_start, end, closes })),
        _ => Ok(None),
    }
}

fn head_incomplete(bytes: &[u8]) -> Result<Option<Answer>, String> {
    if bytes.len() > HEAD_BYTES_MAX {
        return Err(format!("an answer's head is longer than {HEAD_BYTES_MAX} bytes"));
    }
    Ok(None)
}

fn parse_status(line: &[u8]) -> Result<u16, String> {
    let status = line.strip_prefix(b"HTTP/1.1 ").or_else(|| line.strip_prefix(b"HTTP/1.0 "));
    let digits = status.and_then(|rest| rest.get(..3));
    let number = digits.and_then(|digits| std::str::from_utf8(digits).ok()?.parse().ok());
    number.ok_or_else(|| {
        format!("no HTTP/1.1 answer: it begins with {:?}", String::from_utf8_lossy(line))
    })
}

fn split_header(line: &[u8]) -> Option<(&[u8], &[u8])> {
    let colon = line.iter().position(|byte| *byte == b':')?;
    let (name, value) = line.split_at_checked(colon)?;
    Some((name, value.get(1..)?.trim_ascii()))
}

fn parse_number(text: &[u8], radix: u32) -> Result<usize, String> {
    let number = std::str::from_utf8(text).ok().and_then(|t| usize::from_str_radix(t, radix).ok());
    number.ok_or_else(|| format!("{:?} is no length", String::from_utf8_lossy(text)))
}

/// The end of a chunked body whose first chunk begins where `lines` is; none if it is not whole.
fn end_of_chunks(lines: &mut Lines<'_>) -> Result<Option<usize>, String> {
    // Ends because each round takes at least one line from the bytes.
    loop {
        let Some(line) = lines.next_line() else { return Ok(None) };
        let digits = line.split(|byte| *byte == b';').next().unwrap_or_default();
        let length = parse_number(digits.trim_ascii(), 16)?;
        if length == 0 {
            break;
        }
        lines.at = lines.at.saturating_add(length).saturating_add(2);
    }
    while let Some(line) = lines.next_line() {
        if line.is_empty() {
            return Ok(Some(lines.at));
        }
    }
    Ok(None)
}

struct Lines<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Lines<'a> {
    /// The next line without its end; none if it is not whole.
    fn next_line(&mut self) -> Option<&'a [u8]> {
        let rest = self.bytes.get(self.at..)?;
        let length = rest.iter().position(|byte| *byte == b'\n')?;
        self.at += length + 1;
        let line = rest.get(..length)?;
        Some(line.strip_suffix(b"\r").unwrap_or(line))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn whole(text: &str) -> (u16, String, bool) {
        let answer = parse(text.as_bytes()).unwrap().expect("whole");
        assert_eq!(answer.end, text.len());
        (answer.status, text[answer.body_start..answer.end].to_owned(), answer.closes)
    }

    #[test]
    fn answers_are_found() {
        let cases = [
            ("HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}", (200, "{}", false)),
            ("HTTP/1.1 400 Bad Request\r\nA: b\r\nCONTENT-LENGTH:0\r\n\r\n", (400, "", false)),
            (
                "HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 1\r\n\r\nx",
                (200, "x", true),
            ),
            (
                "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3;x\r\nabc\r\n0\r\n\r\n",
                (200, "3;x\r\nabc\r\n0\r\n\r\n", false),
            ),
        ];
        for (text, (status, body, closes)) in cases {
            assert_eq!(whole(text), (status, body.to_owned(), closes), "{text}");
            for length in 0..text.len() {
                assert_eq!(parse(&text.as_bytes()[..length]), Ok(None), "{length} of {text}");
            }
        }
    }

    #[test]
    fn what_is_no_answer_is_refused() {
        let long_head = format!("HTTP/1.1 200 OK\r\nx: {}", "y".repeat(HEAD_BYTES_MAX));
        let cases = [
            ("SSH-2.0-OpenSSH\r\n", "no HTTP/1.1 answer"),
            ("HTTP/1.1 200 OK\r\n\r\n", "no Content-Length"),
            ("HTTP/1.1 200 OK\r\ncontent-length: -1\r\n\r\n", "is no length"),
            ("HTTP/1.1 200 OK\r\ncontent-length: 99999999\r\n\r\n", "longer than"),
            ("HTTP/1.1 200 OK\r\nnothing\r\n\r\n", "no colon"),
            (long_head.as_str(), "head is longer"),
        ];
        for (text, expected) in cases {
            let error = parse(text.as_bytes()).unwrap_err();
            assert!(error.contains(expected), "{error}");
        }
    }
}
