//! Removes the `aws-chunked` coding from a request's content.
//!
//! SDKs use this coding if a checksum follows the content, or if each chunk is signed. Signatures of chunks
//! are ignored, like all signatures in this endpoint. The decoder does no network I/O.
//!
//! Source: Amazon S3 API reference, "Signature calculations for the authorization header: transferring
//! payload in multiple chunks".

use std::sync::Arc;

use bytes::{Buf, Bytes, BytesMut};
use futures::{Stream, stream::try_unfold};
use http::{HeaderMap, HeaderName, HeaderValue};
use http_body_util::BodyExt;
use locks::Mutex;
use server::gate::RequestBody;

/// The maximum length of a chunk's head. It is ten times the length of 16 digits and a signature of 64
/// characters.
const HEAD_BYTES_MAX: usize = 1_024;

/// The maximum size of the data after the last chunk. A checksum and a signature need 200 bytes.
const TRAILER_BYTES_MAX: usize = 16 * 1_024;

/// The reason why the content of a request could not be decoded.
#[derive(Debug, thiserror::Error)]
pub(super) enum Error {
    #[error("the content ends in the middle of a chunk")]
    Incomplete,
    #[error("the aws-chunked coding is malformed: {0}")]
    Malformed(&'static str),
    #[error("the connection broke: {0}")]
    Connection(#[from] hyper::Error),
}

impl Error {
    /// Returns the error's code in S3; `None` if the client's connection is closed.
    fn code(&self) -> Option<&'static str> {
        match self {
            Self::Incomplete => Some("IncompleteBody"),
            Self::Malformed(_) => Some("InvalidArgument"),
            Self::Connection(_) => None,
        }
    }
}

/// The trailers that follow the content, or the error that ended it. The decoder sets them at the
/// end of the content.
#[derive(Debug, Default)]
struct End {
    trailers: HeaderMap,
    /// The code and the message of the error that ended the content.
    refusal: Option<(&'static str, String)>,
}

/// The trailers after the content, or the reason why it could not be decoded.
#[derive(Debug, Clone, Default)]
pub(super) struct Trailers(Arc<Mutex<End>>);

impl Trailers {
    pub(super) fn to_headers(&self) -> HeaderMap {
        self.0.lock().trailers.clone()
    }

    /// Returns the code and the message of the error if the content could not be decoded.
    pub(super) fn refusal(&self) -> Option<(&'static str, String)> {
        self.0.lock().refusal.clone()
    }
}

/// Returns the decoded content of `body`, and its trailers, which are filled when the content has been
/// read.
pub(super) fn decode(body: RequestBody) -> (impl Stream<Item = Result<Bytes, Error>>, Trailers) {
    let trailers = Trailers::default();
    let stream = try_unfold((body, Decoder::default(), trailers.clone()), |state| async move {
        let (mut body, mut decoder, trailers) = state;
        match read(&mut body, &mut decoder).await {
            Ok(Some(bytes)) => Ok(Some((bytes, (body, decoder, trailers)))),
            Ok(None) => {
                trailers.0.lock().trailers = decoder.trailers;
                Ok(None)
            }
            Err(error) => {
                trailers.0.lock().refusal = error.code().map(|code| (code, error.to_string()));
                Err(error)
            }
        }
    });
    (stream, trailers)
}

/// Returns the next part of the content; `None` at the end of the content. The decoder then has the
/// trailers.
async fn read(body: &mut RequestBody, decoder: &mut Decoder) -> Result<Option<Bytes>, Error> {
    loop {
        match decoder.step()? {
            Step::Data(bytes) => return Ok(Some(bytes)),
            Step::More => match body.frame().await.transpose()? {
                Some(frame) => {
                    if let Ok(bytes) = frame.into_data() {
                        decoder.feed(&bytes);
                    }
                }
                None => return decoder.end().map(|()| None),
            },
        }
    }
}

enum Step {
    Data(Bytes),
    More,
}

#[derive(Debug, Default)]
struct Decoder {
    buffer: BytesMut,
    place: Place,
    trailers: HeaderMap,
    trailer_bytes: usize,
}

/// The part of the coding that the decoder expects next.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
enum Place {
    /// The head of a chunk: its size in hexadecimal digits, an extension, and a line end.
    #[default]
    Head,
    /// The remaining bytes of a chunk, at least one.
    Data(usize),
    /// The line end after a chunk.
    DataEnd,
    /// The lines after the last chunk.
    Trailer,
}

impl Decoder {
    fn feed(&mut self, bytes: &[u8]) {
        self.buffer.extend_from_slice(bytes);
    }

    fn step(&mut self) -> Result<Step, Error> {
        loop {
            match self.place {
                Place::Data(_) if self.buffer.is_empty() => return Ok(Step::More),
                Place::Data(left) => {
                    let bytes = self.buffer.split_to(left.min(self.buffer.len())).freeze();
                    let left = left - bytes.len();
                    self.place = if left == 0 { Place::DataEnd } else { Place::Data(left) };
                    return Ok(Step::Data(bytes));
                }
                Place::Head | Place::DataEnd | Place::Trailer => {
                    let Some(line) = self.line()? else { return Ok(Step::More) };
                    self.take(&line)?;
                }
            }
        }
    }

    /// Returns the next complete line without its line end; `None` if more data is needed.
    fn line(&mut self) -> Result<Option<BytesMut>, Error> {
        let Some(end) = self.buffer.iter().position(|byte| *byte == b'\n') else {
            let limit =
                if self.place == Place::Trailer { TRAILER_BYTES_MAX } else { HEAD_BYTES_MAX };
            if self.buffer.len() > limit {
                return Err(Error::Malformed("a line is too long"));
            }
            return Ok(None);
        };
        let mut line = self.buffer.split_to(end);
        self.buffer.advance(1);
        if line.last() == Some(&b'\r') {
            line.truncate(line.len() - 1);
        }
        Ok(Some(line))
    }

    fn take(&mut self, line: &[u8]) -> Result<(), Error> {
        match self.place {
            Place::Head => {
                let digits = line.split(|byte| *byte == b';').next().unwrap_or_default();
                let size = std::str::from_utf8(digits)
                    .ok()
                    .filter(|digits| digits.bytes().all(|digit| digit.is_ascii_hexdigit()))
                    .and_then(|digits| usize::from_str_radix(digits, 16).ok())
                    .ok_or(Error::Malformed("a chunk's size is not a hexadecimal number"))?;
                self.place = if size == 0 { Place::Trailer } else { Place::Data(size) };
            }
            Place::DataEnd if line.is_empty() => self.place = Place::Head,
            Place::DataEnd => {
                return Err(Error::Malformed("a chunk is longer than its header states"));
            }
            Place::Trailer => self.take_trailer(line)?,
            Place::Data(_) => {}
        }
        Ok(())
    }

    /// Reads one line after the last chunk: `name:value`, or an empty line.
    fn take_trailer(&mut self, line: &[u8]) -> Result<(), Error> {
        self.trailer_bytes += line.len() + 1;
        if self.trailer_bytes > TRAILER_BYTES_MAX {
            return Err(Error::Malformed("the trailers are too long"));
        }
        if line.is_empty() {
            return Ok(());
        }
        let malformed = Error::Malformed("a trailer does not have the form name:value");
        let mut parts = line.splitn(2, |byte| *byte == b':');
        let (Some(name), Some(value)) = (parts.next(), parts.next()) else { return Err(malformed) };
        let name = HeaderName::from_bytes(name.trim_ascii());
        let value = HeaderValue::from_bytes(value.trim_ascii());
        let (Ok(name), Ok(value)) = (name, value) else { return Err(malformed) };
        self.trailers.insert(name, value);
        Ok(())
    }

    /// Ends the decoding. The last line may lack its end.
    fn end(&mut self) -> Result<(), Error> {
        if self.place != Place::Trailer {
            return Err(Error::Incomplete);
        }
        let rest = self.buffer.split();
        self.take_trailer(rest.trim_ascii())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(coded: &[u8], piece: usize) -> Result<(Vec<u8>, HeaderMap), Error> {
        let mut decoder = Decoder::default();
        let mut data = Vec::new();
        for bytes in coded.chunks(piece) {
            decoder.feed(bytes);
            while let Step::Data(bytes) = decoder.step()? {
                data.extend_from_slice(&bytes);
            }
        }
        decoder.end()?;
        Ok((data, decoder.trailers))
    }

    #[test]
    fn contents_decode_however_they_are_cut() {
        let cases: [(&[u8], &[u8], &str); 5] = [
            (b"5\r\nhello\r\n0\r\nx-amz-checksum-crc32:NhCmhg==\r\n\r\n", b"hello", "NhCmhg=="),
            (b"5\r\nhello\r\n0\r\nx-amz-checksum-crc32:NhCmhg==", b"hello", "NhCmhg=="),
            (
                b"3;chunk-signature=ab\r\nhel\r\n2;chunk-signature=cd\r\nlo\r\n0;chunk-signature=ef\r\nx-amz-checksum-crc32:NhCmhg==\n\r\nx-amz-trailer-signature:12\r\n\r\n",
                b"hello",
                "NhCmhg==",
            ),
            (b"0\r\n\r\n", b"", ""),
            (b"A\r\n0123\r\n789\n\r\n0\r\n", b"0123\r\n789\n", ""),
        ];
        for (coded, expected, crc) in cases {
            for piece in [1, 2, 3, 7, coded.len()] {
                let (data, trailers) = run(coded, piece).unwrap();
                assert_eq!(data, expected, "piece {piece}");
                let found =
                    trailers.get("x-amz-checksum-crc32").map_or("", |v| v.to_str().unwrap());
                assert_eq!(found, crc);
            }
        }
    }

    #[test]
    fn malformed_and_incomplete_contents_are_refused() {
        let long = [b'1'; 2_000];
        let cases: [&[u8]; 8] = [
            b"",
            b"5\r\nhel",
            b"5\r\nhello",
            b"5\r\nhello\r\n",
            b"5\r\nhello!\r\n0\r\n\r\n",
            b"xyz\r\n",
            b"0\r\nno colon\r\n",
            &long,
        ];
        for coded in cases {
            assert!(run(coded, 3).is_err(), "{:?}", String::from_utf8_lossy(coded));
        }
    }
}
